"""Kafka in memory: topics, a log, a group; no more of it than plans and tasks use."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from backup_samples import Backup

from kbackup.clock import SystemClock
from kbackup.events import Event, Plain, to_json
from kbackup.kafka import KafkaSettings, Position, Topic
from kbackup.pipeline.rotate import Rule
from kbackup.pipeline.views import ViewSpec
from kbackup.records import Span, TopicPartition
from kbackup.runs.report import OfSink, PartitionReport
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.storing import TaskClients
from kbackup.sink.task import SinkPartitionTask
from kbackup.spark.channel import Line
from kbackup.stores import Store


def topics_of(
    ids: Mapping[str, str], wheres: Iterable[TopicPartition], names: Iterable[str]
) -> dict[str, Topic]:
    """Return those of *names* that have an id, each with its number of partitions."""
    partitions = Counter(where.topic for where in wheres)
    return {name: Topic(name, partitions[name], ids[name]) for name in names if name in ids}


@dataclass
class FakeCluster:
    """What a sink's plan asks of a cluster.

    Attributes:
        ids: The id of each topic.
        logs: What each partition holds.
        positions: The group's.
        cluster_id: The cluster's id.
    """

    ids: dict[str, str]
    logs: dict[TopicPartition, Span]
    positions: dict[TopicPartition, Position] = field(default_factory=dict)
    cluster_id: str = "cluster-1"

    def topic_names(self) -> list[str]:
        """All topics."""
        return sorted(self.ids)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of *names* that exist."""
        return topics_of(self.ids, self.logs, names)

    def topic_config(
        self, names: Iterable[str], *, overridden_only: bool = False
    ) -> dict[str, dict[str, str]]:
        """One setting of the topic's own, and one that it has not changed."""
        default = {} if overridden_only else {"cleanup.policy": "delete"}
        return {name: {"retention.ms": "-1", **default} for name in names}

    def has_group(self, _group: str) -> bool:
        """Whether the group has positions."""
        return bool(self.positions)

    def members(self, _group: str) -> list[str]:
        """Nobody."""
        return []

    def committed(
        self, _group: str, wheres: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Position]:
        """The group's positions."""
        return {where: self.positions[where] for where in wheres if where in self.positions}

    def spans(self, wheres: Sequence[TopicPartition]) -> Mapping[TopicPartition, Span]:
        """What the logs hold."""
        return {where: self.logs[where] for where in wheres}

    def ends(self, wheres: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where the logs end."""
        return {where: self.logs[where].end_offset for where in wheres}


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

    def read_all(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """The group's positions."""
        return {where: self.read(where) for where in wheres}

    def advance_all(self, positions: Mapping[TopicPartition, Position]) -> dict[Any, Any]:
        """Move the group on."""
        for where, position in positions.items():
            self.advance(where, position)
        return {}


class CrashError(BaseException):
    """The process died here: nothing behind this point happened."""


class SilentLine(Line):
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
    job = SinkJob(
        "r1",
        KafkaSettings("-"),
        backup.settings,
        backup.layout,
        SystemClock(),
        views,
        "default",
        "record",
        Rule(),
        "g",
    )
    clients = TaskClients(store or backup.store, positions, reader)  # type: ignore[arg-type]
    work = SinkPartitionTask(job, unit, clients, line)
    work.run()
    return work.report
