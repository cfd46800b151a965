"""A backup as version cf14769 wrote it; ``tests/golden/cf14769/README`` says how."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from backup_samples import Backup

from kbackup.catalog.ledger import stream
from kbackup.clock import SystemClock
from kbackup.errors import IncompleteBackupError, TopicChangedError
from kbackup.pipeline.views import ReadOptions
from kbackup.records import Span, TopicPartition
from kbackup.runs import history, known
from kbackup.runs.report import Summary
from kbackup.sink.entering import RunLedger, asked
from kbackup.sink.plan import SinkPlan, make_plan
from kbackup.verify.run import Notes, verify
from tests.support.configurations import load
from tests.support.fakes import FakeCluster
from tests.support.target import FakeTarget, Restoring
from tests.support.verified import NOW

GOLDEN = Path(__file__).parents[2] / "golden" / "cf14769"
ORDERS = [TopicPartition("orders", at) for at in range(2)]
AUDIT = [TopicPartition("audit", at) for at in range(3)]
LOST = "topics/orders/partition=0/orders+0+0000000020.record.zstd.parquet"


@pytest.fixture
def backup(tmp_path: Path) -> Backup:
    """A copy of it, with its run records."""
    shutil.copytree(GOLDEN / "store", tmp_path, dirs_exist_ok=True)
    found = Backup.in_folder(tmp_path)
    found.runs = [dict(one.said) for one in history.runs(found.store, found.layout, "sink")]
    return found


def cluster(backup: Backup, *, recreated: Sequence[str] = ()) -> FakeCluster:
    """The cluster it was made from, some time later; its group's offsets have expired."""
    record = backup.runs[0]
    ids = {name: entry["topic_id"] for name, entry in record["topic_settings"].items()}
    ids |= dict.fromkeys(recreated, "another-id")
    logs = {ORDERS[0]: Span(0, 100), ORDERS[1]: Span(15, 40), **dict.fromkeys(AUDIT, Span(0, 0))}
    return FakeCluster(ids, logs, cluster_id=record["cluster_id"])


def plan(backup: Backup, there: FakeCluster) -> SinkPlan:
    """What a sink of it would do."""
    settings = load(
        "sink", bootstrap_servers="-", topics="orders,audit", store_url=backup.settings.url
    ).settings
    return make_plan(settings, there, backup.store, SystemClock())  # type: ignore[arg-type]


def take_over(backup: Backup) -> None:
    """Enter what a sink enters that meets it."""
    there = cluster(backup)
    planned = plan(backup, there)
    ledger = RunLedger(backup.store, backup.layout, "2026-11-22T00:00:00Z-0000", SystemClock())
    ledger.begin(planned, there, asked("g", planned.topics, None), ReadOptions())  # type: ignore[arg-type]


def verified(backup: Backup) -> tuple[int, dict[TopicPartition, str]]:
    """Exit code of a shallow verify, and the state of each partition."""
    summary = Summary("r", "restore verify")
    notes = Notes(known.read(backup.store, backup.layout, SystemClock()))
    list(verify(backup.store, backup.layout, ReadOptions(), summary, now=NOW, notes=notes))
    states = {row.where: row.state for row in summary.partitions}  # type: ignore[attr-defined]
    return summary.exit_code(), states


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_it_is_all_there_before_and_after_it_is_taken_over(
    is_taken_over: bool, backup: Backup
) -> None:
    """
    A backup of an earlier version verifies as complete, empty topics included, and a deleted object
    is missed.
    """
    if is_taken_over:
        take_over(backup)

    states = {**dict.fromkeys(ORDERS, "all there"), **dict.fromkeys(AUDIT, "nothing stored")}
    assert (0, states) == verified(backup)
    backup.path(LOST).unlink()
    assert 7 == verified(backup)[0]


def test_what_was_lost_before_it_was_taken_over_is_still_missed(backup: Backup) -> None:
    """
    What was lost before the backup was taken over stays known from the run records.
    """
    backup.path(LOST).unlink()
    take_over(backup)
    shutil.rmtree(backup.path("_kbackup/runs"))

    assert 7 == verified(backup)[0]


def test_it_is_restored_whole(backup: Backup) -> None:
    """
    Every record is restored, tombstones included, and so is the empty topic with its partitions.
    """
    restoring = Restoring(backup, FakeTarget())

    reports = restoring.restore()

    assert {ORDERS[0]: 75, ORDERS[1]: 15} == {
        report.where: report.done.records for report in reports
    }
    assert {"copy_of_orders", "copy_of_audit"} == set(restoring.cluster.ids)


def test_a_restore_of_it_misses_what_is_gone(backup: Backup) -> None:
    """
    A backup of an earlier version is verified by its run records.
    """
    backup.path(LOST).unlink()

    with pytest.raises(IncompleteBackupError, match="missing"):
        Restoring(backup, FakeTarget()).restore()


def test_a_sink_goes_on_where_it_ends(backup: Backup) -> None:
    """
    A backup is continued with its offsets and topic ids, before and after it is taken over.
    """
    before = {at.where: at.start for at in plan(backup, cluster(backup)).partitions}
    take_over(backup)
    after = {at.where: at.start for at in plan(backup, cluster(backup)).partitions}

    assert before == after
    first, second = before[ORDERS[0]], before[ORDERS[1]]
    assert first is not None
    assert second is not None
    assert (75, 20) == (first.offset, second.offset)
    assert stream.topics_stream(backup.store, backup.layout, SystemClock()).read().is_begun


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_recreated_topic_is_refused(is_taken_over: bool, backup: Backup) -> None:
    """
    A recreated topic is refused by the run records, and after the takeover by the ledger.
    """
    if is_taken_over:
        take_over(backup)
        shutil.rmtree(backup.path("_kbackup/runs"))

    found = plan(backup, cluster(backup, recreated=["orders"])).partitions

    refused = {at.where for at in found if isinstance(at.refusal, TopicChangedError)}
    assert {*ORDERS} == refused
