"""Into which partitions a restore writes, and where it keeps its positions for them.

With ``same`` each partition goes to the one of its number, and the restore's group keeps one
position in each.  With the others several partitions of the backup may go to one of the target, or
one to all of them; then each partition of the backup has a group of its own, so that positions are
kept by source and target.

Source: Apache Kafka, ``org.apache.kafka.common.utils.Utils.murmur2`` and ``toPositive``;
``BuiltInPartitioner.partitionForKey``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.records import TopicPartition

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF

_WORD: Final = 4
"""Bytes that are mixed in at a time."""

_COLUMN_BYTES: Final = 256
"""Keys up to this length are hashed in columns, those of one length together."""


def partitions_of(keys: pa.Array, count: int) -> pa.Array:
    """Return the partition of each key, as Kafka's Java producer would choose it.

    Args:
        keys: ``binary``; a null has no partition.
        count: How many partitions there are.

    Returns:
        ``int32``, one row per row of *keys*, null where it is.
    """
    unique = keys.dictionary_encode()
    hashes = murmur2(unique.dictionary)
    positive = pc.bit_wise_and(hashes, _word(_POSITIVE))
    whole = pc.multiply(pc.divide(positive, _word(count)), _word(count))
    return pc.subtract(positive, whole).cast(pa.int32()).take(unique.indices)


def murmur2(keys: pa.Array) -> pa.Array:
    """Return the hash of each key: ``uint32``, none of *keys* is null."""
    lengths = pc.binary_length(keys)
    numbers = pa.array(range(len(keys)), pa.int64())
    rows, hashes = [pa.array([], pa.int64())], [pa.array([], pa.uint32())]
    for length in pc.unique(lengths).to_pylist():
        is_one = pc.equal(lengths, length)
        group = keys.filter(is_one)
        rows.append(numbers.filter(is_one))
        hashes.append(
            _of_length(group, length)
            if length <= _COLUMN_BYTES
            else pa.array(map(_of_key, group.to_pylist()), pa.uint32())
        )
    return pa.concat_arrays(hashes).take(pc.sort_indices(pa.concat_arrays(rows)))


def _of_length(keys: pa.Array, length: int) -> pa.Array:
    """Return the hashes of keys that are *length* bytes long."""
    found = pa.repeat(_word(_SEED ^ length), len(keys))
    end = length // _WORD * _WORD
    for start in range(0, end, _WORD):
        word = _times_m(_words(pc.binary_slice(keys, start, start + _WORD)))
        word = _times_m(_shifted(word, 24))
        found = pc.bit_wise_xor(_times_m(found), word)
    if end < length:
        padding = b"\0" * (_WORD - (length - end))
        rest = pc.binary_slice(keys, end, length)
        found = _times_m(
            pc.bit_wise_xor(found, _words(pc.binary_join_element_wise(rest, padding, b"")))
        )
    return _shifted(_times_m(_shifted(found, 13)), 15)


def _words(chunks: pa.Array) -> pa.Array:
    """Return chunks of four bytes as little-endian numbers."""
    return chunks.cast(pa.binary(_WORD)).view(pa.uint32())


def _shifted(numbers: pa.Array, bits: int) -> pa.Array:
    return pc.bit_wise_xor(numbers, pc.shift_right(numbers, _word(bits)))


def _times_m(numbers: pa.Array) -> pa.Array:
    return pc.multiply(numbers, _word(_M))  # wraps around, as Java's does


def _word(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint32())


def _of_key(key: bytes) -> int:
    """Return the hash of one key, however long it is."""
    found = _SEED ^ len(key)
    end = len(key) // _WORD * _WORD
    for word in memoryview(key[:end]).cast("I"):
        mixed = word * _M & _MASK
        mixed = (mixed ^ mixed >> 24) * _M & _MASK
        found = found * _M & _MASK ^ mixed
    if end < len(key):
        found = (found ^ int.from_bytes(key[end:], "little")) * _M & _MASK
    found = (found ^ found >> 13) * _M & _MASK
    return found ^ found >> 15


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
