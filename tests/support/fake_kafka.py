"""A cluster in memory that a sink reads: topics that come, go, fail and are deleted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa
from backup_samples import batch

from kbackup.batches import Batches, walk
from kbackup.errors import KbackupError
from kbackup.kafka import LogStartMovedError, Position
from kbackup.kafka.reader import not_utf8
from kbackup.records import Span, TopicPartition
from tests.support.encoded import Sent
from tests.support.encoded import batch as encoded_batch
from tests.support.fake_cluster import FakeCluster
from tests.support.fakes import FakePositions


@dataclass
class FakeKafka(FakeCluster):
    """One cluster and its group, whose *logs* are offsets: records are made when they are read."""

    positions_: dict[TopicPartition, Position] = field(default_factory=dict)  # the group's
    # what reading a partition raises
    faults: dict[TopicPartition, KbackupError] = field(default_factory=dict)
    # how many offsets open transactions keep from consumers
    behind: dict[TopicPartition, int] = field(default_factory=dict)
    opened: int = 0  # how often a reader was opened
    # values of records that are not the usual ones
    values: dict[tuple[TopicPartition, int], bytes | None] = field(default_factory=dict)
    # keys of records that are not the usual ones
    keys: dict[tuple[TopicPartition, int], bytes | None] = field(default_factory=dict)
    # columns of records that are not the usual ones
    columns: dict[tuple[TopicPartition, int], dict[str, Any]] = field(default_factory=dict)
    # offsets whose records compaction has removed
    compacted: set[tuple[TopicPartition, int]] = field(default_factory=set)
    # offsets of records with a header whose name is not UTF-8
    misnamed: set[tuple[TopicPartition, int]] = field(default_factory=set)
    # what was written to topics, and acknowledged: topic, and the record's columns
    letters: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    # errors of the next writes, one each; None for a write that goes well
    unwritten: list[KbackupError | None] = field(default_factory=list)

    def create(self, topic: str, *ends: int, topic_id: str = "") -> list[TopicPartition]:
        """Create a topic, or add partitions to it, whose logs end there."""
        self.ids.setdefault(topic, topic_id or f"id-of-{topic}")
        first = sum(where.topic == topic for where in self.logs)
        made = [TopicPartition(topic, first + at) for at in range(len(ends))]
        self.logs |= {where: Span(0, end) for where, end in zip(made, ends, strict=True)}
        return made

    def delete(self, topic: str) -> None:
        """Delete a topic and its positions."""
        del self.ids[topic]
        for where in [where for where in self.logs if where.topic == topic]:
            del self.logs[where]
            self.positions_.pop(where, None)

    def append(self, where: TopicPartition, count: int) -> None:
        """Write *count* records."""
        log = self.logs[where]
        self.logs[where] = Span(log.start_offset, log.end_offset + count)

    def span(self, where: TopicPartition) -> Span:
        """What a partition holds."""
        found: Span = self.logs[where]
        return found

    def group(self, _name: str) -> dict[TopicPartition, Position]:
        """The positions of the only group."""
        return self.positions_

    def add_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic."""
        self.configs[name] = dict(config)
        self.create(name, *[0] * partitions)

    def reader(self, _group: str, *, by_batches: bool = False) -> "_Reader":  # noqa: ARG002
        """A reader."""
        self.opened += 1
        return _Reader(self)

    def positions(self, _group: str) -> FakePositions:
        """The group's positions."""
        return FakePositions(positions=self.positions_)

    def writer(self, target: TopicPartition, _group: str, **_: Any) -> "_Writer":
        """A writer of plain records."""
        return _Writer(self, target)

    def ends(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs end, behind open transactions."""
        self.asked.append("ends")
        return {where: self.logs[where].end_offset + self.behind.get(where, 0) for where in wheres}

    def set_positions(self, _group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """Move the group."""
        self.positions_ |= positions


@dataclass
class _Reader:
    kafka: FakeKafka

    def read(self, where: TopicPartition, span: Span) -> Iterator[pa.RecordBatch]:
        """The records of a span."""
        if where in self.kafka.faults:
            raise self.kafka.faults[where]
        start = self.kafka.logs[where].start_offset
        if span.start_offset < start:
            raise LogStartMovedError(f"{where} no longer has the next offset")
        made = batch(range(span.start_offset, span.end_offset))
        rows = [
            row for row in made.to_pylist() if (where, row["offset"]) not in self.kafka.compacted
        ]
        for at, row in enumerate(rows):
            if (where, row["offset"]) in self.kafka.misnamed:
                yield pa.RecordBatch.from_pylist(rows[:at], made.schema)
                raise not_utf8(where, row["offset"])
            row["value"] = self.kafka.values.get((where, row["offset"]), row["value"])
            row["key"] = self.kafka.keys.get((where, row["offset"]), row["key"])
            row.update(self.kafka.columns.get((where, row["offset"]), {}))
        yield pa.RecordBatch.from_pylist(rows, made.schema)

    def batches(self, where: TopicPartition, span: Span) -> Iterator[Batches]:
        """The same as they were sent, ten offsets a batch."""
        rows = [row for some in self.read(where, span) for row in some.to_pylist()]
        for number, group in groupby(rows, lambda row: row["offset"] // 10):
            base = max(span.start_offset, 10 * number)
            made = [
                (
                    row["offset"] - base,
                    Sent(
                        row["value"], row["key"],
                        [(each["key"].encode(), each["value"]) for each in row["headers"]],
                        row["timestamp"],
                    ),
                )
                for row in group
            ]  # fmt: skip
            deltas, sent = zip(*made, strict=True)
            last = 10 * number + 9 - base
            yield walk(
                pa.py_buffer(encoded_batch(base, sent, deltas=deltas, last_delta=last))
            ).check()

    def close(self) -> None:
        """Nothing to leave."""


@dataclass
class _Writer:
    kafka: FakeKafka
    target: TopicPartition
    sent: list[dict[str, Any]] = field(default_factory=list)

    def write(self, batch: pa.RecordBatch) -> int:
        """Take records."""
        self.sent += batch.to_pylist()
        return 0

    def flush(self) -> None:
        """Acknowledge them, or fail as was planned."""
        error = self.kafka.unwritten.pop(0) if self.kafka.unwritten and self.sent else None
        if error is not None:
            raise error
        self.kafka.letters += ((self.target.topic, row) for row in self.sent)
        self.sent = []

    def close(self) -> None:
        """Nothing to leave."""
