"""Kafka in memory: a log, a group, a target; no more of it than the tasks use."""

from collections.abc import Iterator, Set

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.channel import Event, Line
from kbackup.kafka import Position
from kbackup.records import Span, TopicPartition


class FakeReader:
    """A partition's log."""

    def __init__(self, log: pa.RecordBatch, rows: int = 3) -> None:
        self.log, self.rows = log, rows

    @property
    def end_offset(self) -> int:
        """The offset behind the last record."""
        return self.log["offset"][-1].as_py() + 1 if len(self.log) else 0

    def read(self, _where: TopicPartition, span: Span) -> Iterator[pa.RecordBatch]:
        """The records of a span, a few at a time."""
        offset = self.log["offset"]
        inside = pc.and_(
            pc.greater_equal(offset, span.start_offset), pc.less(offset, span.end_offset)
        )
        rows = self.log.filter(inside)
        for at in range(0, len(rows), self.rows):
            yield rows.slice(at, self.rows)


class FakePositions:
    """A group's positions; the commits *fails_at* crash, counted from 1."""

    def __init__(self, fails_at: Set[int] = frozenset()) -> None:
        self.positions: dict[TopicPartition, Position] = {}
        self.fails_at = fails_at
        self.commits = 0

    def read(self, where: TopicPartition) -> Position | None:
        """The group's position."""
        return self.positions.get(where)

    def advance(self, where: TopicPartition, position: Position) -> None:
        """Move the group on, never back; a planned failure is the crash of the process."""
        self.commits += 1
        if self.commits in self.fails_at:
            raise CrashError
        assert where not in self.positions or self.positions[where].offset <= position.offset
        self.positions[where] = position


class CrashError(BaseException):
    """The process died here: nothing behind this point happened."""


class SilentLine(Line):
    """A line to no driver that remembers what was told."""

    def __init__(self) -> None:
        super().__init__(None)
        self.told: list[Event] = []

    def tell(self, event: Event) -> None:
        """Remember."""
        self.told.append(event)
