"""What a task reads, writes and keeps its positions with.  Rows cross this seam as columns."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Protocol

import pyarrow as pa

from kbackup.errors import KafkaError, KbackupError
from kbackup.records import Span, TopicPartition

PATIENCE_S: Final = 30.0
"""How long a task that works waits at least for a broker that was there a moment ago."""


@dataclass(frozen=True, slots=True)
class Position:
    """A committed offset: the next one to work on.

    Attributes:
        offset: The next offset.
        metadata: Text the committer kept with it; empty when someone else moved the offset.
    """

    offset: int
    metadata: str = ""


FENCES: Final = 64
"""Transactional ids that a group has for a topic at most; another number would let a writer of an
earlier version go on beside a new one.

A transaction, and a client, for each of 1,000 partitions took 20 times as long as for 64.
"""


def fence(target: TopicPartition) -> TopicPartition:
    """Return the partition that the transactional id of a writer to *target* is named after."""
    return replace(target, partition=target.partition % FENCES)


class LogStartMovedError(KbackupError):
    """Retention overtook the reader: its next offset is gone from the log."""

    code = "expired"


class OffsetMovedError(KbackupError):
    """The group's offset is ahead of what this run would commit."""

    code = "offset_moved"


class TakenOverError(KafkaError):
    """A newer writer of the same fence has begun, or the cluster has ended this one's transaction.

    It can write nothing more; which of the two it is the cluster does not say.
    """


NO_OTHERS: Final[Mapping[TopicPartition, Position]] = MappingProxyType({})
"""A writer that writes to its target alone commits no other positions."""


class Reader(Protocol):
    """Reads partitions, one after the other; no member of any group."""

    def read(self, where: TopicPartition, span: Span) -> Generator[pa.RecordBatch, None, None]:
        """Read the records of *span*, which holds fewer where some were compacted or aborted.

        The end is known by position, never by a record: the last offsets may hold none.  Close
        the generator where it is not read to its end.

        Yields:
            ``records.SCHEMA``, at least one row each, offsets rising.

        Raises:
            LogStartMovedError: If retention has deleted the next offset to read.
            TopicChangedError: If the log ends before *span* does.
            KafkaError: If the cluster stays silent, or says no.
        """
        ...

    def close(self) -> None:
        """Leave the cluster."""
        ...


class Writer(Protocol):
    """Writes to one target partition, and commits a position of its group with the records.

    It may write to other partitions of the topic too, and commit positions in them.

    Attributes:
        record_bytes_max: The largest record that the target takes, its headers counted in.
    """

    record_bytes_max: int

    def position(self, where: TopicPartition | None = None) -> Position | None:
        """Return the group's committed position in *where*, None where it has none.

        Earlier writers are fenced by now, so nobody moves it any more.

        Args:
            where: A partition; None for the target.
        """
        ...

    def positions(
        self, wheres: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Position | None]:
        """Return the group's committed positions, in one request; see `position`.

        Those that the cluster does not say are left out.
        """
        ...

    def write(self, batch: pa.RecordBatch, where: TopicPartition | None = None) -> int:
        """Send the records of *batch* (``records.SCHEMA``) in order.

        A null timestamp is the layout's "not stored": the record gets the time of writing.

        Args:
            batch: The records.
            where: A partition of the target's topic; None for the target.

        Returns:
            How many timestamps the client could not send as they are: 0 ms becomes 1 ms.
        """
        ...

    def commit(
        self,
        position: Position,
        others: Mapping[TopicPartition, Position] = NO_OTHERS,
        where: TopicPartition | None = None,
    ) -> None:
        """Make everything written so far visible, together with *position*.

        Args:
            position: The group's in *where*.
            others: Its positions in other partitions, committed together with it.
            where: A partition of the target's topic; None for the target.

        Raises:
            KafkaError: If the cluster refused; with transactions nothing is visible then.
        """
        ...

    def flush(self) -> None:
        """Wait until the cluster has acknowledged everything written; it is not committed yet.

        Raises:
            KafkaError: If the cluster refused a record.
        """
        ...

    def abort(self) -> None:
        """Drop what was not committed; safe to call at any time, and it raises nothing."""
        ...

    def close(self) -> None:
        """Leave the cluster; what was not committed is dropped."""
        ...


class Positions(Protocol):
    """The committed offsets of one group, which has no members.

    Not safe to use from several threads at once.
    """

    def read(self, where: TopicPartition) -> Position | None:
        """Return the group's position, None where it has none.

        Raises:
            KafkaError: If the cluster does not say.
        """
        ...

    def read_all(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """Return the group's positions, in one request; those it is not told of are left out.

        Raises:
            KafkaError: If the cluster does not answer.
        """
        ...

    def advance_all(
        self, positions: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, KbackupError]:
        """Commit positions as `advance` does, in one request; return what kept any from it."""
        ...

    def advance(self, where: TopicPartition, position: Position) -> None:
        """Commit *position*, unless it would move the group back.

        Raises:
            KafkaError: If the group has live members, or cannot be written.
            OffsetMovedError: If the group is ahead: another run overtook this one.
        """
        ...

    def close(self) -> None:
        """Leave the cluster."""
        ...
