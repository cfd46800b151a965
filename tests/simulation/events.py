"""What happened, as it was and not as kbackup says: the history that promises are checked by."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from tests.simulation.product import TopicPartition

NO_TYPE = 0
"""The timestamp type of a record of which only the value is kept."""


_NAME = re.compile(rb"[a-z]+/[0-9]+/[0-9]+/[\w-]+")


@lru_cache(100_000)
def named(text: bytes | None) -> bytes:
    """The name of a record in *text*, whatever a format has put around it."""
    found = _NAME.search(text or b"")
    return found[0] if found else b""


class Row(NamedTuple):
    """One record."""

    offset: int  # where it is
    timestamp: int  # in ms
    timestamp_type: int  # as `records.TimestampType`, or `NO_TYPE`
    key: bytes | None  # as it is
    value: bytes | None  # as it is
    # in order; the first one's value is the record's own and only name.  Where only values are
    # kept, the value is the name
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def name(self) -> bytes | None:
        """What tells it from every other record ever produced."""
        return self.headers[0][1] if self.headers else self.value

    @property
    def content(self) -> tuple[Any, ...]:
        """What a restore has to bring back."""
        return self.timestamp, self.key, self.value, self.headers

    def is_kept(self, produced: "Row | None") -> bool:
        """Whether this, found in an object, is what was produced."""
        if self.timestamp_type == NO_TYPE and produced is not None:
            return (self.offset, self.value) == (produced.offset, produced.value)
        return self == produced


@dataclass(frozen=True, slots=True)
class Produced:
    """Records became readable in a topic that is to be backed up."""

    topic_id: str
    where: TopicPartition
    rows: tuple[Row, ...]
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Unfit:
    """Records became readable that the backup does not hold: they are dead letters."""

    topic_id: str
    where: TopicPartition
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Keyed:
    """Restores choose partitions by the keys of records."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Records are no longer readable: ``expired`` or ``compacted``."""

    topic_id: str
    where: TopicPartition
    offsets: tuple[int, ...]
    how: str


@dataclass(frozen=True, slots=True)
class Begun:
    """A sink that leaves something behind of a partition had seen its log begin at *offset*."""

    topic_id: str
    where: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Stored:
    """An object became visible."""

    key: str
    rows: tuple[Row, ...] | None  # what a reader finds in it; None where it cannot be read
    by: str = "kbackup"  # ``kbackup``, or ``person`` for whoever has the bucket's keys
    size: int = 0  # bytes


@dataclass(frozen=True, slots=True)
class Removed:
    """An object is gone."""

    key: str
    by: str = "kbackup"


@dataclass(frozen=True, slots=True)
class Committed:
    """A sink's group was moved by kbackup: what is before *offset* is safe."""

    topic_id: str
    where: TopicPartition
    offset: int
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class GapKept:
    """The backup says now that these offsets of a topic were never stored."""

    where: TopicPartition
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Entered:
    """The backup's ledger knows an object now."""

    key: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A run looked what objects there are: what comes later it cannot know of."""

    run: str


@dataclass(frozen=True, slots=True)
class Touched:
    """Something was written: an object, a topic, a group."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A command ended by itself."""

    kind: str  # ``sink``, ``follow``, ``restore``, ``verify``, ``verify --deep`` or ``status``
    code: int  # its exit code
    # for a sink, each partition's identity and end offset when it looked first
    planned: Mapping[TopicPartition, tuple[str, int]]
    records: int | None  # the count in the summary, None where it is not known
    done: int  # records that it stored or wrote, by the world's own count
    # for a restore, the targets of the topics that it was asked for
    targets: Mapping[TopicPartition, TopicPartition]
    requests: int  # to the bucket
    text: str  # all that it said, for a search
    is_disturbed: bool = False  # whether it met a fault, or anything else went on beside it
    run: str = ""  # which run it was
    # records of a partition that a sink may leave to the next one, by its settings
    may_leave: int = 0
    errors: Sequence[Mapping[str, Any]] = ()  # those of its summary


@dataclass(frozen=True, slots=True)
class Vouched:
    """``sink status`` said up to when all is backed up."""

    until_ms: int  # up to then
    # the partitions that are there now, and which topics they are of
    topics: Mapping[TopicPartition, str]
    may_leave: int = 0  # as in `Ended`


@dataclass(frozen=True, slots=True)
class StandsBy:
    """A restore that follows said up to when its targets are complete."""

    until_ms: int  # up to then
    targets: Mapping[TopicPartition, TopicPartition]  # of the partitions that it was asked for


@dataclass(frozen=True, slots=True)
class TargetShows:
    """What a consumer of a restored partition gets now."""

    target: TopicPartition
    rows: tuple[Row, ...]
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Ruled:
    """Files are cut by the records alone: each holds *size* of them, or ends before a multiple."""

    size: int  # records


@dataclass(frozen=True, slots=True)
class Moved:
    """Somebody else moved the sink's group in a partition."""

    where: TopicPartition


@dataclass(frozen=True, slots=True)
class Note:
    """What somebody did; for people who read the history."""

    text: str


Event = (
    Produced | Gone | Begun | Stored | Removed | Committed | GapKept | Touched | Ended | TargetShows
    | Entered | Listed | Ruled | Moved | Note | StandsBy | Vouched | Unfit | Keyed
)  # fmt: skip
