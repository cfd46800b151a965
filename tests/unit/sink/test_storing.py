"""Cuts of many partitions, which share what makes them safe."""

from collections.abc import Mapping
from typing import Any, BinaryIO
from uuid import uuid4

import pytest
from backup_samples import batch, sink_job

from kbackup.catalog.ledger import stream
from kbackup.catalog.ledger.rows import entries
from kbackup.errors import KafkaError, StoreError
from kbackup.kafka import Position
from kbackup.naming import Layout
from kbackup.pipeline.rotate import Rule
from kbackup.records import Span, TopicPartition
from kbackup.runs.report import OfSink, PartitionReport
from kbackup.sink import storing, task
from kbackup.sink.job import SinkUnit
from kbackup.stores import StoreSettings
from kbackup.stores.memory import MemoryStore
from tests.support.fakes import FakePositions, OneLog, SilentLine
from tests.support.hand_clock import HandClock

MANY = 40
FEW = 5


class Watched(MemoryStore):
    """A store that counts what is put under a prefix, and refuses to put some of it."""

    def __init__(self) -> None:
        super().__init__(StoreSettings(f"memory://{uuid4()}"))
        self.parts: list[str] = []
        self.refused = "/nothing/"

    def put(self, key: str, body: BinaryIO, **how: Any) -> bool:
        """Put it, unless it is refused."""
        if "/ledger/" in key:
            self.parts.append(key)
            if self.refused in key:
                raise StoreError(f"write {key}", "the disk is full")
        return super().put(key, body, **how)


class Group(FakePositions):
    """A group that says whether the ledger had each object when its offset was committed."""

    def __init__(self, store: Watched) -> None:
        super().__init__()
        self._store, self.requests, self.early = store, 0, 0
        self.error: KafkaError | None = None

    def close(self) -> None:
        """Nothing to leave."""

    def advance_all(self, positions: Mapping[TopicPartition, Position]) -> dict[Any, Any]:
        """Move the group on."""
        self.requests += 1
        for topic in {where.topic for where in positions}:
            found = stream.topic_stream(self._store, Layout(), topic, HandClock()).read()
            known = {entry.partition for entry in entries(found.rows)}
            mine = {where.partition for where in positions if where.topic == topic}
            self.early += len(mine - known)
        if self.error is not None:
            return dict.fromkeys(positions, self.error)
        return super().advance_all(positions)


class Backing:
    """One task over many partitions of two topics."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = Watched()
        self.group = Group(self.store)
        monkeypatch.setattr(storing, "open_store", lambda _: self.store)

    def reports(self, rule: Rule, count: int = FEW) -> list[PartitionReport[OfSink]]:
        """What the task reports."""
        kafka = OneLog(batch(range(10)), rows=3, group=self.group)
        job = sink_job(kafka=kafka, clock=HandClock(), rule=rule)
        units = [
            SinkUnit(TopicPartition(topic, at), Span(0, 10))
            for at in range(count)
            for topic in ("orders", "audit")
        ]
        found = task.back_up(job, units, SilentLine())
        return list(found)


@pytest.fixture
def backing(monkeypatch: pytest.MonkeyPatch) -> Backing:
    """A task that has not begun."""
    return Backing(monkeypatch)


@pytest.mark.parametrize("records", [10, 3], ids=["a cut each", "several cuts each"])
def test_an_object_is_in_the_ledger_before_its_offset_is_committed(
    backing: Backing, records: int
) -> None:
    """However many partitions share a commit, and however many cuts a partition has."""
    reports = backing.reports(Rule(records=records))

    assert [] == [report.failure for report in reports if report.failure is not None]
    assert {(10, 10)} == {(report.committed, report.done.records) for report in reports}
    assert {10} == {position.offset for position in backing.group.positions.values()}
    assert (2 * FEW, 0) == (len(backing.group.positions), backing.group.early)


def test_cuts_of_many_partitions_share_their_commits(backing: Backing) -> None:
    """Eighty partitions of two topics need neither eighty parts of ledger nor eighty commits."""
    backing.reports(Rule(), MANY)

    assert backing.group.requests <= 4
    assert len(backing.store.parts) <= 8


def test_where_the_ledger_cannot_be_written_nothing_is_committed(backing: Backing) -> None:
    """The partitions of one topic fail, each in its own name; those of the other are safe."""
    backing.store.refused = "/orders/"

    reports = backing.reports(Rule())

    failed = {report.where for report in reports if report.failure is not None}
    assert {TopicPartition("orders", at) for at in range(FEW)} == failed
    assert {"audit"} == {where.topic for where in backing.group.positions}
    assert failed == {
        TopicPartition(report.failure.place["topic"], report.failure.place["partition"])
        for report in reports
        if report.failure is not None
    }
    assert {0} == {report.committed for report in reports if report.failure is not None}


def test_a_group_that_cannot_be_committed_fails_every_partition(backing: Backing) -> None:
    """If the group cannot be committed every partition fails, and no report claims otherwise."""
    backing.group.error = KafkaError("committing", "not authorized")

    reports = backing.reports(Rule())

    assert 2 * FEW == len(reports)
    assert {("kafka", 0, 0)} == {
        (report.failure and report.failure.code, report.committed, report.done.records)
        for report in reports
    }
