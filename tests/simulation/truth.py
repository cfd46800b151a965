"""What is true of a play: every record there was, what is stored, and what people took away."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from tests.simulation.events import (
    Row,
)
from tests.simulation.product import Layout, TopicPartition

LAYOUT = Layout()
ROUTED = "routed-"
"""What the names of topics begin with that a sink stores under other names."""


@dataclass(slots=True)
class Source:
    """What is true of one partition of one topic id."""

    rows: dict[int, Row] = field(default_factory=dict)  # every record that was ever readable
    # those that no longer are, and how they went
    gone: dict[int, str] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)  # when each became readable, in ms
    begins: int | None = None  # where the backup of it begins, None before it has begun
    claimed: int = 0  # what is before this offset is safe, by kbackup's own commits
    # when that was said, in ms, and of which offset
    claims: list[tuple[int, int]] = field(default_factory=list)
    # offsets that need not be stored: they went before they had to be
    excused: set[int] = field(default_factory=set)
    unfit: dict[int, Row] = field(default_factory=dict)  # records that are to become dead letters

    def due(self) -> dict[int, Row]:
        """The records that have to be in the backup."""
        if self.begins is None:
            return {}
        return {
            offset: row
            for offset, row in self.rows.items()
            if self.begins <= offset < self.claimed and offset not in self.excused
        }


class Truth:
    """The topics as they were, and the bucket as it is.

    Attributes:
        sources: What is true of each partition of each topic id.
        ids: Which topic id each backup's partition is of.
        begun_last: Which topic id a backup of each partition was begun for last.
        objects: The records of each object.
        held: What the backup holds of each partition, each record once.
        lost_by_people: Records that people took away.
        lost_from: The object that each of these was in.
        entered: Objects that the ledger knows.
        strange: Objects that people have put in place.
        is_tampered: Whether people have changed the bucket at all.
        sizes: Bytes of each object.
        alike: Records that people took away without a trace in names and sizes.
        gaps: Offsets of each partition that were reported as expired.
        folders: The directory of each record that is stored as a value alone.
        doubled: Partitions of which two objects of one directory hold the same records.
        letters: The names of all dead letters.
    """

    def __init__(self) -> None:
        self.sources: dict[tuple[str, TopicPartition], Source] = {}
        self.ids: dict[TopicPartition, str] = {}
        self.begun_last: dict[TopicPartition, str] = {}
        self.objects: dict[str, tuple[Row, ...]] = {}
        self.held: dict[TopicPartition, dict[int, Row]] = {}
        self.lost_by_people: set[tuple[TopicPartition, int]] = set()
        self.lost_from: dict[tuple[TopicPartition, int], str] = {}
        self.entered: set[str] = set()
        self.strange: set[str] = set()
        self.is_tampered = False
        self.sizes: dict[str, int] = {}
        self.alike: set[tuple[TopicPartition, int]] = set()
        self.gaps: dict[TopicPartition, set[int]] = {}
        self.folders: dict[tuple[TopicPartition, int], str] = {}
        self.doubled: set[TopicPartition] = set()
        self.letters: set[bytes | None] = set()

    def source(self, topic_id: str, where: TopicPartition) -> Source:
        return self.sources.setdefault((topic_id, where), Source())

    def original(self, where: TopicPartition) -> Source | None:
        """The one topic that a backup's partition is of: the first that was ever stored."""
        topic_id = self.ids.get(where)
        return None if topic_id is None else self.sources[topic_id, where]

    def own(self, where: TopicPartition) -> None:
        """From its first record or gap on, a backup's partition is of one topic."""
        if where in self.begun_last:
            self.ids.setdefault(where, self.begun_last[where])

    def stored(self, where: TopicPartition) -> dict[int, Row]:
        """What the backup holds of a partition, each record once."""
        return self.held.setdefault(where, {})

    def offsets(self) -> dict[TopicPartition, set[int]]:
        """What a restore that looks now has to bring back: what is there, and what should be."""
        found = {where: set(rows) for where, rows in self.held.items()}
        for where, topic_id in self.ids.items():
            due = self.sources[topic_id, where].due().keys() - self.gaps.get(where, set())
            found.setdefault(where, set()).update(due)
        return found

    def look_again(self, where: TopicPartition) -> None:
        """Find out what the backup holds after people were in it."""
        found: dict[int, Row] = {}
        for key, rows in self.objects.items():
            if partition_of(key) == where:
                for row in rows:
                    if key not in self.strange or self.is_true(where, row):
                        found.setdefault(row.offset, row)
        self.held[where] = found

    def missing(self, where: TopicPartition) -> list[int]:
        """Offsets that have to be stored and are not, but for what people took away."""
        source = self.original(where)
        if source is None:
            return []
        there, gaps = self.stored(where), self.gaps.get(where, set())
        return sorted(
            offset
            for offset in source.due()
            if not (offset in there or offset in gaps or (where, offset) in self.lost_by_people)
        )

    def lose(self, key: str, rows: Iterable[Row]) -> None:
        """People took these away, unless another object has them too."""
        where = partition_of(key)
        kept = self.stored(where)
        lost = {
            (where, row.offset)
            for row in rows
            if row.offset not in kept and self.is_true(where, row)
        }
        self.lost_by_people |= lost
        self.lost_from |= dict.fromkeys(lost, key)

    def is_true(self, where: TopicPartition, row: Row) -> bool:
        known = self.original(where)
        return known is not None and row.is_kept(known.rows.get(row.offset))

    def is_forgotten(self, key: str) -> bool:
        """Whether nothing is left of a backup that a run had begun, now that *key* is removed.

        The run was killed after it had stored its first objects, and before it could enter them
        or commit an offset; then people removed them.  All evidence was in what they removed, so
        the next run is a first one: it begins where the log begins by then.
        """
        where = partition_of(key)
        source = self.original(where)
        return (
            source is not None
            and not source.claimed
            and not self.gaps.get(where)
            and not any(partition_of(known) == where for known in {*self.entered, *self.objects})
        )

    def overlaps(self, where: TopicPartition, folder: str) -> bool:
        """Whether objects of values in one directory reach into one another."""
        spans = sorted(
            (rows[0].offset, rows[-1].offset)
            for key, rows in self.objects.items()
            if rows and key.rpartition("/")[0] == folder and partition_of(key) == where
        )
        return any(later[0] <= earlier[1] for earlier, later in pairwise(spans))

    def file(self, key: str, where: TopicPartition, rows: tuple[Row, ...]) -> None:
        """Note which directory holds these values, and whether another object of it does too."""
        folder = key.rpartition("/")[0]
        for row in rows:
            self.folders[where, row.offset] = folder
        if self.overlaps(where, folder):
            self.doubled.add(where)

    def has_compacted(self, key: str) -> bool:
        where = partition_of(key)
        source = self.original(where)
        return source is not None and any(
            source.gone.get(row.offset) == "compacted" for row in self.objects.get(key, ())
        )


@lru_cache(100_000)
def partition_of(key: str) -> TopicPartition:
    parts = LAYOUT.parse(key)
    return TopicPartition(source_name(parts.topic), parts.partition)


def source_name(topic: str) -> str:
    """The name in Kafka of a topic of the backup."""
    return topic.removeprefix(ROUTED)
