"""What a restore leaves behind."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from backup_samples import BYTES, JSON

from kbackup.catalog.ledger.rows import ACCEPTED, of_object
from kbackup.catalog.listing import Catalog, FileSet
from kbackup.clock import SystemClock
from kbackup.config import loading
from kbackup.errors import SparkError, StoreError
from kbackup.events import to_json
from kbackup.records import Span, TopicPartition
from kbackup.restore.job import RestoreUnit
from kbackup.restore.run import RestoreRun
from kbackup.runs import context
from kbackup.runs.context import Environment, Stop
from kbackup.runs.position import Cursor, Done, Lane, RestorePosition, RestoreSource
from kbackup.runs.report import OfRestore, PartitionReport
from kbackup.spark.channel import NotBegun
from kbackup.stores import StoredObject, StoreSettings
from kbackup.stores.memory import MemoryStore
from kbackup.testing import FaultyStore
from tests.support.encoded import Sent, batch
from tests.support.fake_kafka import FakeKafka
from tests.support.sinks import run_sink
from tests.support.target import COPY, FakeTarget, Restoring
from tests.support.telling import telling


def a_run(told: list[dict[str, Any]], **options: Any) -> RestoreRun:
    """A restore that has not begun, and tells what it tells."""
    given = {"bootstrap_servers": "-", "s3_bucket_name": "b", "no_lock": True} | options
    settings = loading.load("restore", options=given, files=(), environ={}).settings
    nowhere: Any = None
    return RestoreRun(
        settings, telling(told), Stop(), Environment(nowhere, nowhere, nowhere, SystemClock())
    )


def test_a_store_that_may_only_be_read_does_not_fail_a_restore() -> None:
    """Records that are all there are a restore."""
    told: list[dict[str, Any]] = []
    run = a_run(told)
    read_only = FaultyStore("403", MemoryStore(StoreSettings(f"memory://{uuid4()}")))

    run.record(read_only)

    assert ["no_run_record"] == [event["code"] for event in told]
    assert (0, told) == (
        to_json(run._summary.finish())["exit_code"],
        to_json(run._summary.finish())["warnings"],
    )


def test_tasks_are_told_what_was_asked_for() -> None:
    """Every option reaches the tasks that write the records."""
    options = {
        "offset_header": "was", "behavior_on_error": "log", "exactly_once": False,
        "max_records_per_second": 7, "max_bytes_per_second": 9,
    }  # fmt: skip

    job = a_run([], **options)._tasks.job("g")

    assert ("g", "was", "log", False) == (
        job.group, job.offset_header, job.on_error, job.exactly_once,
    )  # fmt: skip
    assert (7, 9) == (job.max_records_per_second, job.max_bytes_per_second)


def test_what_is_left_out_or_altered_is_exit_3() -> None:
    """Foreign objects are named and counted."""
    told: list[dict[str, Any]] = []
    run = a_run(told)
    where = TopicPartition("orders", 0)

    run._news.listed(Catalog(foreign=[("topics/orders/README", "not a key")], foreign_count=1))
    position = RestorePosition(RestoreSource("", where), "", Cursor(0, 0))
    sets = (FileSet(where, 0, "partition=0"),)
    run._account.plan(RestoreUnit(position, (Lane(TopicPartition("copy", 0), Span(0, 0)),), sets))
    done = Done(9, bad_objects=1, bad_records=2, zero_timestamps=3)
    run._account.take(PartitionReport(where, 0, None, None, OfRestore("copy"), done))

    assert [("foreign_object", "topics/orders/README")] == [(e["code"], e["key"]) for e in told]
    found = to_json(run._summary.finish())
    assert (3, [1, 1, 2, 3]) == (found["exit_code"], list(found["skipped"].values()))


class Counted:
    """Counts what a run asks of what runs its tasks: `runs.context.RunTasks`."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def begin(self) -> None:
        """Note it."""
        self.asked.append("begin")

    def end(self) -> None:
        """Note it."""
        self.asked.append("end")


def ran(
    store: StoreSettings,
    tasks: Counted | None = None,
    told: list[dict[str, Any]] | None = None,
    /,
    **options: Any,
) -> dict[str, Any]:
    """How a restore of what is in a store ends; of its orders, if nothing else is said."""
    given = {
        "bootstrap_servers": "-", "s3_bucket_name": "b", "no_lock": True, "topics": "orders",
        "rename": "copy_of_$0", **options,
    }  # fmt: skip
    settings = loading.load("restore", options=given, files=(), environ={}).settings
    environment = Environment(FakeTarget(), store, tasks or Counted(), SystemClock())  # type: ignore[arg-type]
    tell = telling([] if told is None else told)
    return to_json(RestoreRun(settings, tell, Stop(), environment)())


@pytest.mark.parametrize("server", [None, "http://dr:9000"])
def test_the_first_line_of_a_run_names_the_server_of_the_backup(server: str | None) -> None:
    """Of a restore and of a sink, where it is not the usual one."""
    backup, kafka, told = Restoring().backup, FakeKafka(), list[dict[str, Any]]()
    backup.put("orders", 0, range(5))
    kafka.create("orders", 10)

    for ended in (
        ran(backup.settings, None, told, dry_run=True, store_url=server),
        run_sink(
            kafka, backup.settings, told=told, topics="orders", dry_run=True, store_url=server
        ),
    ):
        assert ended["exit_code"] == 0

    starts = [line for line in told if line["type"] == "start"]
    assert [server] * 2 == [line.get("server") for line in starts]
    assert [server is not None] * 2 == ["server" in line for line in starts]


def test_a_restore_that_is_refused_lets_go_of_the_spark_it_has_begun_to_start() -> None:
    """Spark starts beside the plan, and nothing of it is left where the plan says no."""
    tasks = Counted()

    summary = ran(StoreSettings(f"memory://{uuid4()}"), tasks)

    assert (7, ["begin", "end"]) == (summary["exit_code"], tasks.asked)


def test_a_task_that_cannot_begin_is_an_error_of_the_run() -> None:
    """Such as one on a worker with another version of kbackup."""
    restoring = Restoring()
    restoring.backup.put("orders", 0, range(5))
    run = a_run([])
    error = SparkError("driver and workers have different versions of kbackup")
    nothing: Any = lambda *_, **__: [NotBegun(error.issue())]  # noqa: E731
    environment = replace(run._frame.environment, run_tasks=nothing)
    run._frame = replace(run._frame, environment=environment)

    there: Any = restoring.cluster
    run._write(restoring.plan(), there, restoring.store)

    summary = to_json(run._summary.finish())
    assert (9, [error.what]) == (summary["exit_code"], [one["what"] for one in summary["errors"]])


def test_an_audit_that_a_stop_has_cut_short_was_not_made() -> None:
    """A run that is stopped before Spark is up to count the records does not say that it has."""
    restoring = Restoring()
    restoring.backup.put("orders", 0, range(5))
    restoring.cluster.create_topic(COPY.topic, 1, 1, {})
    plan, reports = restoring.plan(), restoring.restore()
    restoring.cluster.logs[COPY].rows.append({"value": b"somebody's"})
    run = a_run([])
    stopped: Any = lambda *_, **__: []  # noqa: E731
    run._frame = replace(run._frame, environment=replace(run._frame.environment, run_tasks=stopped))

    there: Any = restoring.cluster
    run._audit(plan, there, reports)

    assert "not made" == to_json(run._summary.finish())["audit"]


class Guarded(MemoryStore):
    """A store whose ledger this principal may not read."""

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """List objects, and locks."""
        if "/ledger/" in prefix:
            raise StoreError(f"list {prefix}", "Access Denied", status=403)
        return super().list(prefix, after=after)


def test_a_restore_that_may_lock_has_to_read_the_ledger(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Who may write beside the ledger, and not read it, would notice nothing missing."""
    restoring = Restoring()
    restoring.backup.put("orders", 0, range(5))
    guarded = Guarded(restoring.backup.settings)
    monkeypatch.setattr(context, "open_store", lambda _: guarded)

    at = str(tmp_path)
    summary = ran(restoring.backup.settings, dry_run=True, no_lock=False, lock_dir=at)

    assert (6, "store") == (summary["exit_code"], summary["errors"][0]["code"])


@pytest.mark.parametrize(("kind", "code"), [("LogAppendTime", 3), ("CreateTime", 0)])
def test_append_time_is_exit_3(kind: str, code: int) -> None:
    """A restore into a topic that replaces timestamps says so, and exits 3, in its plan too."""
    restoring = Restoring()
    restoring.backup.put("orders", 0, range(5))
    run = a_run([])

    plan = restoring.plan(topic_config=(f"message.timestamp.type={kind}",))
    run._show(plan, restoring.cluster)

    assert code == to_json(run._summary.finish())["exit_code"]


def test_what_only_format_leaves_out_is_exit_3() -> None:
    """The objects of other formats are counted, in the plan already."""
    restoring = Restoring()
    restoring.backup.put("orders", 0, range(10), views=JSON)
    restoring.backup.put("orders", 0, range(10, 20), views=BYTES)

    summary = ran(restoring.backup.settings, only_format="json", dry_run=True)

    assert (3, {"other_format_objects": 1}) == (summary["exit_code"], summary["skipped"])


@pytest.mark.parametrize(
    ("more", "is_kept"),
    [({}, True), ({"max_bytes_per_second": "9"}, False), ({"kafka_client": "python"}, False)],
)
def test_a_plan_says_what_may_go_as_it_is_stored(more: dict[str, str], is_kept: bool) -> None:
    """Objects of batches, where nothing asks for their records."""
    restoring = Restoring()
    restoring.backup.put("orders", 0, range(5))
    large = Sent(random.Random(0).randbytes(300_000))
    key = restoring.backup.put_batches("payments", batch(0, [large]))

    topics = ["orders", "payments"]
    summary = ran(restoring.backup.settings, dry_run=True, topics=topics, **more)

    size = len(restoring.backup.body(key))
    assert size * is_kept == summary["estimate"]["as_stored"] < summary["estimate"]["bytes"]


@pytest.mark.parametrize(("pattern", "expected"), [
    ("test.*", ["excludes_nothing"]), ("pay.*", []),
])  # fmt: skip
def test_a_pattern_that_leaves_nothing_out_is_said(pattern: str, expected: list[str]) -> None:
    """The plan warns, and the restore is none the worse for it."""
    restoring = Restoring()
    for topic in ("orders", "payments"):
        restoring.backup.put(topic, 0, range(5))
    told: list[dict[str, Any]] = []
    run = a_run(told, topics_exclude=pattern)

    run._show(restoring.plan(topics_exclude=pattern), restoring.cluster)

    assert expected == [event["code"] for event in told if event["type"] == "warning"]
    assert 0 == to_json(run._summary.finish())["exit_code"]


@pytest.mark.parametrize(("as_of", "code", "skipped"), [
    (None, 0, {}), (1000, 3, {"partitions_with_removed_objects": 2}),
])  # fmt: skip
def test_what_was_removed_since_a_time_is_exit_3(
    as_of: int | None, code: int, skipped: dict[str, int]
) -> None:
    """Each partition that lacks something counts, as of that time alone."""
    restoring = Restoring()
    backup = restoring.backup
    for partition in range(3):
        keys = backup.put("orders", partition, range(5), range(5, 10))
        rows = [replace(backup.entry(key), first_stored=999, held_since=999) for key in keys]
        gone = rows[:partition]
        for row in gone:
            backup.store.delete(row.key or "")
        rows += [of_object(ACCEPTED, row, "v1", 2000) for row in gone]
        backup.entries.setdefault("orders", []).extend(rows)
    run = a_run([])

    run._show(restoring.plan(as_of=as_of), restoring.cluster)

    summary = to_json(run._summary.finish())
    assert (code, skipped) == (summary["exit_code"], summary["skipped"])
