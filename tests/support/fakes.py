"""What one task of a sink works with: a log, a group's positions, a line to no driver."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from backup_samples import Backup

from kbackup.events import Event, Plain, to_json
from kbackup.kafka import Position
from kbackup.pipeline.views import ViewSpec
from kbackup.records import Span, TopicPartition
from kbackup.runs.report import OfSink, PartitionReport
from kbackup.sink.job import SinkUnit
from kbackup.sink.storing import TaskClients
from kbackup.sink.task import SinkPartitionTask
from kbackup.spark.channel import TaskChannel
from kbackup.stores import Store


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

    def close(self) -> None:
        """Nothing to leave."""


class FakePositions:
    """A group's positions; the commits *fails_at* crash, counted from 1."""

    def __init__(
        self,
        fails_at: Set[int] = frozenset(),
        positions: dict[TopicPartition, Position] | None = None,
    ) -> None:
        self.positions = {} if positions is None else positions
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

    def read_all(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """The group's positions."""
        return {where: self.read(where) for where in wheres}

    def advance_all(self, positions: Mapping[TopicPartition, Position]) -> dict[Any, Any]:
        """Move the group on."""
        for where, position in positions.items():
            self.advance(where, position)
        return {}

    def close(self) -> None:
        """Nothing to leave."""


@dataclass
class OneLog:
    """A `kafka.Connection` to a cluster whose partitions all hold the same *log*."""

    log: pa.RecordBatch
    rows: int = 20
    group: FakePositions = field(default_factory=FakePositions)

    def reader(self, _group: str, *, by_batches: bool = False) -> FakeReader:  # noqa: ARG002
        """A reader of the log, so many *rows* at a time."""
        return FakeReader(self.log, self.rows)

    def positions(self, _group: str) -> FakePositions:
        """The group's positions."""
        return self.group

    def cluster(self) -> None:
        """It is there."""


class CrashError(BaseException):
    """The process died here: nothing behind this point happened."""


class SilentLine(TaskChannel):
    """A line to no driver that remembers what was told."""

    def __init__(self) -> None:
        super().__init__(None)
        self.told: list[Event] = []

    def tell(self, event: Plain) -> None:
        """Remember."""
        self.told.append(to_json(event))


def run_task(
    backup: Backup,
    unit: SinkUnit,
    reader: FakeReader,
    positions: FakePositions,
    line: SilentLine,
    views: tuple[ViewSpec, ...],
    store: Store | None = None,
) -> PartitionReport[OfSink]:
    """Run one unit of a sink, in this process; return its report."""
    clients = TaskClients(store or backup.store, positions, reader)  # type: ignore[arg-type]
    work = SinkPartitionTask(backup.job(views, "r1"), unit, clients, line)
    work.run()
    return work.report
