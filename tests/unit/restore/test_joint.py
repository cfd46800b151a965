"""Small partitions that share a writer, and transactions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from backup_samples import Backup

from kbackup.errors import KafkaError
from kbackup.kafka import NO_OTHERS, Position, TakenOverError
from kbackup.pipeline.views import ReadOptions
from kbackup.records import TopicPartition
from kbackup.restore import task, transaction
from kbackup.restore.job import RestoreJob
from kbackup.restore.target import begin
from kbackup.runs.report import OfRestore, PartitionReport
from tests.support.fakes import SilentLine
from tests.support.target import MARKER, FakeTarget, FakeWriter, Restoring

PARTITIONS = 9
FENCES = 2


@dataclass
class Cluster(FakeTarget):
    """Keeps count of what its writers commit."""

    backup: Backup = field(default_factory=Backup)
    line: SilentLine = field(default_factory=SilentLine)
    refused: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()
    loss: type[KafkaError] = KafkaError
    stops_at: int | None = None
    opened: int = 0
    commits: list[set[int]] = field(default_factory=list)
    heard: list[int] = field(default_factory=list)
    open: set[TopicPartition] = field(default_factory=set)

    def fence(self, target: TopicPartition) -> TopicPartition:
        """Few stand for all."""
        return replace(target, partition=target.partition % FENCES)

    def writer(self, target: TopicPartition, group: str, **_: Any) -> "Counted":
        """A writer; the only one of its fence."""
        assert self.fence(target) not in self.open
        self.open.add(self.fence(target))
        self.opened += 1
        return Counted(self, group, target, kafka=self)

    @property
    def restoring(self) -> Restoring:
        """The restore of the backup into this cluster."""
        return Restoring(self.backup, self)


@dataclass
class Counted(FakeWriter):
    """A writer that may fail."""

    kafka: Cluster = field(default_factory=Cluster)

    def write(self, batch: pa.RecordBatch, where: TopicPartition | None = None) -> int:
        """Keep records until they are committed, unless they are refused."""
        assert self.position(where) is not None, "a killed restore could not go on"
        if (where or self.where).partition in self.kafka.refused:
            raise KafkaError(f"writing to {where}", "not authorized")
        if (where or self.where).partition == self.kafka.stops_at:
            self.kafka.line._stopped.set()
        return super().write(batch, where)

    def commit(
        self,
        position: Position,
        others: Mapping[TopicPartition, Position] = NO_OTHERS,
        where: TopicPartition | None = None,
    ) -> None:
        """Commit, unless that is planned to fail."""
        self.kafka.heard.append(len(self.kafka.line.told))
        if len(self.kafka.heard) in self.kafka.lost:
            raise self.kafka.loss("committing a transaction", "no answer")
        self.kafka.commits.append({at.partition for at in (where or self.where, *others)})
        super().commit(position, others, where)

    def close(self) -> None:
        """Leave."""
        self.kafka.open.remove(self.kafka.fence(self.where))


def restored(kafka: Cluster, **options: Any) -> dict[int, PartitionReport[OfRestore]]:
    """What one task says of the partitions of a backup, by partition."""
    restoring = kafka.restoring
    plan = restoring.plan()
    units = begin(plan, restoring.cluster, None, exactly_once=True)[1]
    job = RestoreJob(
        "r1", kafka, restoring.backup.settings, ReadOptions(), plan.group, **options,  # type: ignore[arg-type]
    )  # fmt: skip
    (share,) = transaction.task_options(job)["deal"](units, 1)
    return {report.where.partition: report for report in task.put_back(job, share, kafka.line)}


def backed_up(
    kafka: Cluster, *sets: range, partitions: Iterable[int] = range(PARTITIONS)
) -> dict[int, list[str]]:
    """Put the same objects into each partition; return their keys."""
    backup = kafka.backup
    return {at: backup.put("orders", at, *(sets or (range(5),))) for at in partitions}


def is_exact(kafka: Cluster, report: PartitionReport[OfRestore], *, count: int = 5) -> bool:
    """Whether a partition holds each record once, and the markers that its report counts."""
    where = TopicPartition("copy_of_orders", report.where.partition)
    rows = kafka.logs[where].rows
    values = kafka.values("copy_of_orders", where.partition)
    markers = sum(row is MARKER for row in rows)
    return (
        values == [b'{"n":%d}' % at for at in range(count)]
        and report.failure is None
        and (report.done.records, report.done.commits) == (count, markers)
    )


def test_partitions_that_share_a_writer_are_committed_together() -> None:
    """One transaction carries all beginnings, before any record, and one the rest."""
    kafka = Cluster()
    backed_up(kafka)

    reports = restored(kafka)

    even, odd = {0, 2, 4, 6, 8}, {1, 3, 5, 7}
    assert [even, even, odd, odd] == sorted(kafka.commits, key=min)
    assert PARTITIONS == sum(is_exact(kafka, report) for report in reports.values())


def test_nothing_is_reported_before_the_joint_transaction_is_committed() -> None:
    """The driver shows what is safe, and hears of a partition only with the commit of all."""
    kafka = Cluster()
    backed_up(kafka, partitions=range(0, PARTITIONS, FENCES))

    restored(kafka)

    assert [0, 0] == kafka.heard
    told = [event for event in kafka.line.told if event["type"] == "progress"]
    assert {0, 2, 4, 6, 8} == {event["partition"] for event in told}


def test_a_partition_that_cannot_be_written_to_leaves_those_of_its_writer_alone() -> None:
    """It fails in its own name, and all others are restored, each record once."""
    kafka = Cluster(refused=frozenset({4}))
    backed_up(kafka)

    reports = restored(kafka)

    failed = [at for at, report in reports.items() if report.failure is not None]
    assert [4] == failed
    assert PARTITIONS - 1 == sum(is_exact(kafka, report) for report in reports.values())
    assert not kafka.values("copy_of_orders", 4)


def test_a_damaged_object_stops_its_own_partition() -> None:
    """What was good until there is committed with the neighbours' records."""
    kafka = Cluster()
    _, damaged = backed_up(kafka, range(5), range(5, 10))[2]
    backup = kafka.backup
    backup.replace(damaged, bytes(len(backup.body(damaged))))

    reports = restored(kafka)

    assert [2] == [at for at, report in reports.items() if report.failure is not None]
    assert 5 == len(kafka.values("copy_of_orders", 2))
    whole = [is_exact(kafka, report, count=10) for report in reports.values()]
    assert PARTITIONS - 1 == sum(whole)
    assert 4 == len(kafka.commits)


@pytest.mark.parametrize(
    "small", [pytest.param(2**18, id="together"), pytest.param(-1, id="one by one")]
)
def test_partitions_that_another_restore_has_taken_over_are_left_to_it(
    monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """A restore that was fenced fails for all partitions of that writer, and fences nobody."""
    monkeypatch.setattr(task, "SMALL_BYTES", small)
    kafka = Cluster(lost=frozenset({2}), loss=TakenOverError)
    backed_up(kafka, partitions=range(0, PARTITIONS, FENCES))

    reports = restored(kafka)

    named = [report.failure.place["partition"] for report in reports.values() if report.failure]
    assert [0, 2, 4, 6, 8] == sorted(named)
    assert 1 == len(kafka.commits), "only the beginning"
    assert 1 == kafka.opened


@pytest.mark.parametrize("lost", [pytest.param(1, id="beginnings"), pytest.param(2, id="records")])
def test_what_could_not_be_committed_together_is_restored_one_by_one(lost: int) -> None:
    """A transaction that is lost leaves nothing behind: each partition has each record once."""
    kafka = Cluster(lost=frozenset({lost}))
    backed_up(kafka, partitions=range(0, PARTITIONS, FENCES))

    reports = restored(kafka)

    assert [0, 2, 4, 6, 8] == [at for at in sorted(reports) if is_exact(kafka, reports[at])]
    assert {1} == {len(each) for each in kafka.commits[lost - 1 :]}


@dataclass
class Unanswered(Counted):
    """A writer whose commits take place, though their answers may be lost."""

    def commit(
        self,
        position: Position,
        others: Mapping[TopicPartition, Position] = NO_OTHERS,
        where: TopicPartition | None = None,
    ) -> None:
        """Commit, and lose the answer if that is planned."""
        lost, self.kafka.lost = self.kafka.lost, frozenset()
        super().commit(position, others, where)
        self.kafka.lost = lost
        if len(self.kafka.heard) in lost:
            raise self.kafka.loss("committing a transaction", "no answer")


@pytest.mark.parametrize("lost", [1, 2])
def test_a_commit_whose_answer_is_lost_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """The next writer continues after what was committed, and its report counts it."""
    monkeypatch.setattr(Cluster, "writer", _unanswered)
    kafka = Cluster(lost=frozenset({lost}))
    backed_up(kafka, partitions=range(0, PARTITIONS, FENCES))

    reports = restored(kafka)

    assert [0, 2, 4, 6, 8] == [at for at in sorted(reports) if is_exact(kafka, reports[at])]


def _unanswered(kafka: Cluster, target: TopicPartition, group: str, **_: Any) -> Unanswered:
    kafka.open.add(kafka.fence(target))
    return Unanswered(kafka, group, target, kafka=kafka)


def test_a_stop_commits_what_was_written_and_the_next_run_writes_the_rest() -> None:
    """What waits for the partitions that a stopped restore does not reach is not lost."""
    kafka = Cluster(stops_at=4)
    backed_up(kafka, range(5), range(5, 10), partitions=range(0, PARTITIONS, FENCES))

    stopped = restored(kafka)
    kafka.stops_at, kafka.line = None, SilentLine()
    restored(kafka)

    assert {0: None, 2: None, 4: "stopped"} == {
        at: report.failure and report.failure.code for at, report in stopped.items()
    }
    everything = [b'{"n":%d}' % at for at in range(10)]
    values = [kafka.values("copy_of_orders", at) for at in range(0, 9, FENCES)]
    assert [everything] * 5 == values
    assert [{0, 2, 4, 6, 8}, {0, 2, 4}] == kafka.commits[:2]


@pytest.mark.parametrize("limit", ["JOINT_BYTES", "JOINT_S"])
def test_a_joint_transaction_has_bounds(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """It is committed after so many bytes or seconds, whatever is still to come."""
    monkeypatch.setattr(transaction, limit, 0)
    kafka = Cluster()
    backed_up(kafka)

    reports = restored(kafka)

    assert [1] * PARTITIONS == sorted(len(each) for each in kafka.commits)[:PARTITIONS]
    assert PARTITIONS == sum(is_exact(kafka, report) for report in reports.values())


def test_a_partition_with_several_transactions_counts_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A small object may hold much; its partition's transactions are as large as others."""
    monkeypatch.setattr(transaction, "TRANSACTION_RECORDS", 1)
    kafka = Cluster()
    backed_up(kafka, range(5), range(5, 10), range(10, 15))

    reports = restored(kafka)

    assert PARTITIONS == sum(is_exact(kafka, each, count=15) for each in reports.values())
    assert {3} == {report.done.commits for report in reports.values()}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"exactly_once": False}, id="without transactions"),
        pytest.param({"max_records_per_second": 1_000_000}, id="slowed down"),
        pytest.param({"error_topic": "bad"}, id="dead letters"),
    ],
)
def test_partitions_that_cannot_wait_for_others_are_committed_alone(
    options: Mapping[str, Any],
) -> None:
    """Where transactions, limits or dead letters forbid it, no position waits for another."""
    kafka = Cluster()
    backed_up(kafka)

    reports = restored(kafka, **options)

    assert {1} == {len(each) for each in kafka.commits}
    assert [5] * PARTITIONS == [report.done.records for report in reports.values()]


def test_each_writer_is_one_tasks() -> None:
    """Partitions whose writers would take over from each other are dealt to one task."""
    kafka = Cluster()
    backed_up(kafka)
    plan = kafka.restoring.plan()
    job = RestoreJob(
        "r1", kafka, kafka.backup.settings, ReadOptions(), plan.group,  # type: ignore[arg-type]
    )  # fmt: skip

    shares = transaction.task_options(job)["deal"](plan.units(), 8)

    assert [{0}, {1}] == [{unit.target.partition % FENCES for unit in share} for share in shares]
    assert PARTITIONS == sum(map(len, shares))


def test_a_partition_that_was_committed_whole_stays_whole_when_a_later_transaction_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its report says what it has, though another restore has taken over those after it."""
    monkeypatch.setattr(transaction, "TRANSACTION_RECORDS", 1)
    kafka = Cluster(lost=frozenset({4}), loss=TakenOverError)
    backed_up(kafka, range(5), range(5, 10), partitions=range(0, PARTITIONS, FENCES))

    reports = restored(kafka)

    assert [{0, 2, 4, 6, 8}, {0}, {0, 2}] == kafka.commits
    assert [0] == [at for at in reports if is_exact(kafka, reports[at], count=10)]
    assert [2, 4, 6, 8] == [at for at in sorted(reports) if reports[at].failure is not None]
