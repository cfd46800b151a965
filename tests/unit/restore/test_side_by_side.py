"""Small partitions, which a task restores side by side."""

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from kbackup.errors import KafkaError
from kbackup.kafka import BrokenOffError
from kbackup.pipeline.views import ReadOptions
from kbackup.records import TopicPartition
from kbackup.restore import task
from kbackup.restore.job import RestoreJob, RestoreUnit
from kbackup.restore.target import begin
from kbackup.restore.task import RestorePartitionTask
from kbackup.runs.report import OfRestore, PartitionReport
from tests.support.fakes import SilentLine
from tests.support.target import FakeTarget, FakeWriter, Restoring

PARTITIONS = 12


@dataclass
class Waiting(FakeTarget):
    """Opens a writer only when so many others are wanted at the same time."""

    together: threading.Barrier = field(default_factory=lambda: threading.Barrier(1))

    def writer(self, target: TopicPartition, group: str, **_: Any) -> FakeWriter:
        """A writer of one partition."""
        self.together.wait(60)
        return super().writer(target, group)


def restored(kafka: Waiting) -> list[PartitionReport[OfRestore]]:
    """What one task says of a backup of some partitions."""
    restoring = Restoring(cluster=kafka)
    for partition in range(PARTITIONS):
        restoring.backup.put("orders", partition, range(partition, partition + 5))
    return reports_of(restoring)


def reports_of(restoring: Restoring) -> list[PartitionReport[OfRestore]]:
    """What one task says of all partitions of a backup."""
    kafka, plan = restoring.cluster, restoring.plan()
    units: list[RestoreUnit] = begin(plan, kafka, None, exactly_once=True)[1]
    job = RestoreJob(
        "r1", kafka, restoring.backup.settings, ReadOptions(), plan.group,  # type: ignore[arg-type]
    )  # fmt: skip
    return list(task.put_back(job, units, SilentLine()))


def test_small_partitions_do_not_wait_for_each_other() -> None:
    """Each mostly waits for the broker, with a writer and transactions of its own."""
    kafka = Waiting(together=threading.Barrier(4))

    reports = restored(kafka)

    assert [5] * PARTITIONS == [report.done.records for report in reports]
    for partition in range(PARTITIONS):
        assert 5 == len(kafka.values("copy_of_orders", partition))


def test_a_partition_that_fails_leaves_its_neighbours_alone() -> None:
    """A partition that fails is reported under its own name, and the others are restored."""
    denied = KafkaError("writing", "not authorized")
    kafka = Waiting(faults={TopicPartition("copy_of_orders", 3): denied})

    failed = {report.where.partition: report.failure for report in restored(kafka)}

    assert [3] == [partition for partition, failure in failed.items() if failure is not None]
    assert PARTITIONS == len(failed)


def test_large_partitions_are_restored_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Large partitions are restored one after the other, so memory is that of one."""
    monkeypatch.setattr(task, "SMALL_BYTES", 0)
    at_work, most = [0], [0]
    write = task._write

    def counted(work: RestorePartitionTask) -> None:
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        write(work)
        at_work[0] -= 1

    monkeypatch.setattr(task, "_write", counted)

    assert PARTITIONS == len(restored(Waiting()))
    assert [1] == most


@dataclass
class Breaking(Waiting):
    """Some of its writers, from the first on, cannot commit: 0 the first one, and so on."""

    breaks: int = 0
    writers: int = 0

    def writer(self, target: TopicPartition, group: str, **_: Any) -> FakeWriter:
        """The next one."""
        self.writers += 1
        found = BrokenWriter(self, group, target)
        found.is_broken = self.writers <= self.breaks
        return found


@dataclass
class BrokenWriter(FakeWriter):
    """Commits its beginning, and no records, where it is broken."""

    is_broken: bool = False

    def commit(self, *positions: Any) -> None:
        """Refuse records."""
        if self.is_broken and self._open:
            raise BrokenOffError("committing", "the broker closed the connection")
        super().commit(*positions)


@dataclass
class Refusing(Waiting):
    """Takes no record of an offset, and says so when it is asked to commit."""

    offset: int = 0

    def writer(self, target: TopicPartition, group: str, **_: Any) -> FakeWriter:
        """One that refuses."""
        return RefusingWriter(self, group, target)


class RefusingWriter(FakeWriter):
    """Refuses one record."""

    def commit(self, *positions: Any) -> None:
        """Refuse what holds the record."""
        assert isinstance(self.cluster, Refusing)
        for rows in self._open.values():
            if any(row["offset"] == self.cluster.offset for row in rows):
                raise KafkaError("writing", "invalid", offset=self.cluster.offset)
        super().commit(*positions)


def test_a_record_that_is_refused_is_named_with_its_object() -> None:
    """Whatever else was written since the last commit, and restored beside it."""
    restoring = Restoring(cluster=Refusing(offset=7))
    _, key, _ = restoring.backup.put("orders", 0, range(5), range(5, 10), range(10, 15))
    restoring.backup.put("orders", 1, range(3))

    failed, whole = (
        one.failure for one in sorted(reports_of(restoring), key=lambda one: one.where)
    )

    assert whole is None
    assert failed is not None
    assert f"writing, in {key}" == failed.what
    assert {"offset": 7, "key": key, "topic": "copy_of_orders", "partition": 0} == failed.place


@pytest.mark.parametrize(("patience_s", "done"), [(60.0, 5), (0.0, 0)])
def test_another_writer_goes_on_where_one_breaks_off(
    patience_s: float, done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From what is committed, for as long as it is waited for a broker."""
    monkeypatch.setattr(task, "SMALL_BYTES", 0)
    monkeypatch.setattr(task, "PATIENCE_S", patience_s)
    kafka = Breaking(breaks=3)

    reports = restored(kafka)

    failed = [report.failure.code for report in reports if report.failure is not None]
    assert (["kafka"] * (done == 0 and 3), PARTITIONS - len(failed)) == (
        failed, sum(report.done.records == 5 for report in reports),
    )  # fmt: skip
