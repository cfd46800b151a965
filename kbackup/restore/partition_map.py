"""Into which partitions of a target a restore writes, and where it keeps its positions for that.

With ``same`` each partition goes to the one of its number, and the restore's group keeps one
position in each.  With the others several partitions of the backup may go to one of the target, or
one to all of them; then each partition of the backup has a group of its own, so that positions are
kept by source and target.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.records import TopicPartition
from kbackup.restore.murmur2 import partitions_of

SAME, MODULO, KEY = "same", "modulo", "key"

ORDER = {
    MODULO: "records of one partition of the backup stay in order; those of several that share a "
    "partition of the target are mixed",
    KEY: "records of one key stay in order if they come from one partition of the backup; a record "
    "without a key goes to partition offset modulo {count}",
}
"""What order is promised, for the plan."""


@dataclass(frozen=True, slots=True)
class PartitionMap:
    """How partitions of a backup become partitions of a target.

    Attributes:
        how: ``same``, ``modulo`` (the number modulo the target's count), or ``key`` (by hash, as
            Kafka's Java producer does).
        group: The consumer group of the restore.
    """

    how: str
    group: str

    @property
    def is_same(self) -> bool:
        """Whether each partition goes to the one of its number."""
        return self.how == SAME

    def name(self, count: int) -> str:
        """Return what tells this map onto *count* partitions from others; empty for ``same``."""
        return "" if self.is_same else f"partition-map {self.how} {count}"

    def group_of(self, partition: int) -> str:
        """Return the group that keeps the positions of a partition of the backup."""
        return self.group if self.is_same else f"{self.group}.{partition}"

    def targets(self, where: TopicPartition, topic: str, count: int) -> list[TopicPartition]:
        """Return where records of a partition of the backup may go.

        Args:
            where: The partition of the backup.
            topic: The target.
            count: How many partitions it has.
        """
        if self.how == KEY:
            return [TopicPartition(topic, number) for number in range(count)]
        number = where.partition if self.is_same or not count else where.partition % count
        return [TopicPartition(topic, number)]


def spread(
    batch: pa.RecordBatch, targets: Sequence[TopicPartition]
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Yield the records that go to each of *targets* by key, in their order; none is empty.

    A record without a key goes by its offset, so that it goes to the same partition whenever the
    restore is run again.

    Args:
        batch: ``records.SCHEMA``.
        targets: All partitions of a topic, by number.
    """
    count = pa.scalar(len(targets), pa.int64())
    offsets = batch["offset"]
    by_offset = pc.subtract(offsets, pc.multiply(pc.divide(offsets, count), count))
    numbers = pc.coalesce(partitions_of(batch["key"], len(targets)), by_offset.cast(pa.int32()))
    rows = batch.take(pc.sort_indices(numbers))  # stable: each partition's stay in order
    start = 0
    counts = {found["values"]: found["counts"] for found in pc.value_counts(numbers).to_pylist()}
    for number in sorted(counts):
        yield targets[number], rows.slice(start, counts[number])
        start += counts[number]
