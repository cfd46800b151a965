"""What one task of a sink works with: a log, a group's positions, a line to no driver."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from backup_samples import Backup, sink_job

from kbackup.events import Event, Plain, to_json
from kbackup.kafka import Position
from kbackup.pipeline.views import ViewSpec
from kbackup.records import Span, TopicPartition
from kbackup.runs.position import SinkPosition
from kbackup.runs.report import OfSink, PartitionReport
from kbackup.sink.evidence import gather
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.start import decide
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
    job = sink_job(views, store=backup.settings, layout=backup.layout)
    clients = TaskClients(store or backup.store, positions, reader)  # type: ignore[arg-type]
    work = SinkPartitionTask(job, unit, clients, line)
    work.run()
    return work.report


def run_planned(
    job: SinkJob, where: TopicPartition, log: pa.RecordBatch, positions: FakePositions, store: Store
) -> PartitionReport[OfSink]:
    """Run a partition of a sink from where group and bucket say, as its driver plans it."""
    reader = FakeReader(log)
    span = Span(0, reader.end_offset)
    seen = gather(store, job.layout, job.clock, {where: span}, positions.positions)[where]
    start = decide(where, seen, reset="earliest").offset
    position = positions.read(where)
    commit_metadata = None if position is None else SinkPosition.read(position.metadata)
    if position is not None and position.offset > start:
        del positions.positions[where]  # as the driver sets the group back
    unit = SinkUnit(where, Span(start, span.end_offset), commit_metadata)
    work = SinkPartitionTask(job, unit, TaskClients(store, positions, reader), SilentLine())  # type: ignore[arg-type]
    work.run()
    return work.report
