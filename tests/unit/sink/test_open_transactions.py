"""Backups that open transactions hold up."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner

from kbackup.cli import root
from kbackup.events import to_json
from kbackup.inspect.examination import LogState, retention_checks
from kbackup.naming import Layout
from kbackup.naming.renaming import ALL
from kbackup.records import Span, TopicPartition
from kbackup.restore.run import RestoreRun
from kbackup.runs import history, status
from kbackup.runs.context import Environment, Stop
from kbackup.runs.metrics import Exporter, WatchedRuns
from kbackup.runs.report import HeldUp
from kbackup.stores import StoreSettings, open_store
from tests.support.configurations import load
from tests.support.fake_kafka import FakeKafka
from tests.support.hand_clock import HandClock
from tests.support.in_turn import InTurn
from tests.support.sinks import run_sink

WHERE = TopicPartition("orders", 0)


class Backup:
    """A topic, its backup, and a clock that stands still between two runs."""

    def __init__(self) -> None:
        self.kafka, self.clock = FakeKafka(), HandClock()
        self.store = StoreSettings(f"memory://{uuid4()}")
        self.kafka.create("orders", 100)

    def sink(self, **options: Any) -> dict[str, Any]:
        """The summary of a run, a minute after the last."""
        self.clock.pass_s(60)
        asks = {"topics": "orders", **options}
        return run_sink(self.kafka, self.store, clock=self.clock, **asks)

    def restore_plan(self, **options: object) -> dict[str, Any]:
        """The summary of a plan to restore it."""
        given = {"bootstrap_servers": "h:1", "s3_bucket_name": "b", "dry_run": True, **options}
        environment = Environment(self.kafka, self.store, InTurn(), self.clock)  # type: ignore[arg-type]
        settings = load("restore", topics=["orders"], rename="copy_of_$0", **given).settings
        return to_json(RestoreRun(settings, lambda _: None, Stop(), environment)())

    def status(self, max_age_s: float) -> dict[str, Any]:
        """What ``sink status`` says."""
        store = open_store(self.store)
        return to_json(status.status(store, Layout(), max_age_s=max_age_s, now=self.clock.now()))


@pytest.fixture
def backup() -> Backup:
    return Backup()


def _row(summary: dict[str, Any]) -> dict[str, Any]:
    (row,) = summary["partitions"]
    return dict(row)


def _warnings(summary: dict[str, Any]) -> list[str]:
    return [each["text"] for each in summary["warnings"] if each["code"] == "held_up"]


def test_what_lies_behind_an_open_transaction_is_counted_and_named(backup: Backup) -> None:
    """Transactions are open now and then: what follows one is lag, and is named, with exit 0."""
    backup.kafka.behind[WHERE] = 5000
    first, second = backup.sink(), backup.sink()
    plan = backup.sink(dry_run=True)

    said = (
        "orders-0 is held up at offset 100 since 2027-01-15T08:01:00Z by an open transaction; "
        "5,000 offsets behind it are not in the backup; if it stays open, see "
        "kafka-transactions.sh find-hanging"
    )
    assert [(0, 5000, "done"), (0, 5000, "held up"), (0, 5000, "held up")] == [
        (each["exit_code"], _row(each)["lag"], _row(each)["state"])
        for each in (first, second, plan)
    ]
    assert [[said]] * 3 == [_warnings(each) for each in (first, second, plan)]


def test_the_lag_that_is_measured_counts_what_is_behind_an_open_transaction(
    backup: Backup, tmp_path: Path
) -> None:
    """An alert on lag fires though consumers see no record that is left to read."""
    backup.kafka.behind[WHERE] = 5000
    backup.sink()
    store = open_store(backup.store)
    watched = WatchedRuns(store, "s3://b", Layout(), backup.clock, ALL, status.SINK)
    metrics = Exporter(watched)

    metrics.look()
    metrics.write(tmp_path / "out.prom")

    lines = (tmp_path / "out.prom").read_text().splitlines()
    (lag,) = [line for line in lines if line.startswith("kbackup_lag_records{")]
    assert lag.endswith(" 5000.0")


def test_what_is_held_up_for_too_long_is_left_out(backup: Backup) -> None:
    """A transaction open for longer than Kafka allows makes each run exit 3, until it ends."""
    backup.sink()
    backup.kafka.behind[WHERE] = 50
    codes = [backup.sink()["exit_code"]]
    backup.clock.pass_s(900)
    late = backup.sink()
    planned = backup.sink(dry_run=True)
    backup.kafka.behind.clear()
    backup.kafka.append(WHERE, 50)
    codes += [late["exit_code"], planned["exit_code"], backup.sink()["exit_code"]]

    assert ([0, 3, 3, 0], {"held_up_offsets": 50}) == (codes, late["skipped"])
    assert {} == history.read_held_up(open_store(backup.store), Layout())


def test_what_holds_a_backup_up_is_not_forgotten_by_a_run_that_is_refused(backup: Backup) -> None:
    """A host whose clock is behind, before a topic that was made anew, has looked at nothing."""
    backup.sink()
    backup.kafka.behind[WHERE] = 50
    backup.sink()
    held_up = history.read_held_up(open_store(backup.store), Layout())
    backup.clock.pass_s(-86_400)
    backup.kafka.ids["orders"] = "another"
    refused = backup.sink()

    assert 4 == refused["exit_code"]
    assert {WHERE} == held_up.keys()
    assert held_up == history.read_held_up(open_store(backup.store), Layout())


def test_transactions_that_come_and_go_are_no_hanging_one(backup: Backup) -> None:
    """Where each look meets another open transaction, the backup goes on, and grows no older."""
    ages = []
    for _ in range(20):
        backup.kafka.append(WHERE, 100)
        backup.kafka.behind[WHERE] = 50
        summary = backup.sink()
        ages.append(summary["last_success"])
        assert 0 == summary["exit_code"]

    assert [None, *sorted(set(ages[1:]))] == ages
    assert 0 == backup.status(max_age_s=120)["exit_code"]


def test_a_backup_that_is_held_up_grows_old(backup: Backup) -> None:
    """Up to when the backup is complete stays where it was before the transaction began."""
    good = backup.sink()
    backup.kafka.behind[WHERE] = 5000
    for _ in range(5):
        last = backup.sink()

    assert good["last_success"] == last["last_success"] is not None
    assert (7, 0) == tuple(backup.status(age)["exit_code"] for age in (120, 400))


def test_what_retention_deletes_behind_a_transaction_is_a_gap(backup: Backup) -> None:
    """The partition is not called emptied, and the transaction does not become a younger one."""
    backup.kafka.behind[WHERE] = 5000
    backup.sink()
    backup.clock.pass_s(900)
    backup.kafka.logs[WHERE], backup.kafka.behind[WHERE] = Span(3000, 3000), 2100
    gap, after = backup.sink(), backup.sink()

    assert {"expired_offsets": 2900, "held_up_offsets": 2100} == gap["skipped"]
    assert ({"held_up_offsets": 2100}, "held up", 2100) == (
        after["skipped"], _row(after)["state"], _row(after)["lag"],
    )  # fmt: skip


def test_a_group_behind_the_transaction_is_no_other_topic(backup: Backup) -> None:
    """A position between the last stable offset and the end of the log is not beyond the log."""
    backup.sink()
    backup.kafka.logs[WHERE], backup.kafka.behind[WHERE] = Span(0, 80), 100
    summary = backup.sink()

    assert ([], "held up", 80) == (summary["errors"], _row(summary)["state"], _row(summary)["lag"])


@pytest.mark.parametrize("ahead_s", [-86_400, 86_400])
def test_a_clock_that_differs_by_a_day_delays_no_alarm_for_long(
    backup: Backup, ahead_s: float
) -> None:
    """Since when is never later than the clock that reads it."""
    backup.sink()
    backup.kafka.behind[WHERE] = 5
    backup.clock.pass_s(ahead_s)
    backup.sink()
    backup.clock.pass_s(-ahead_s)
    backup.sink()
    backup.clock.pass_s(900)

    assert 3 == backup.sink()["exit_code"]


def test_doctor_names_what_a_transaction_holds_up() -> None:
    """A partition that is held up does not count as one without anything new."""
    clock = HandClock()
    held_up = HeldUp.of(Span(0, 100), 5100, clock.now().timestamp())
    assert held_up is not None
    log = LogState("orders", 10**9, {}, is_pending=True, held_up={3: held_up})
    (check, retention) = retention_checks([log], {"orders": clock.now()}, clock.now())

    assert ("warn", True) == (check.level, "holds partition 3 up at offset 100" in check.text)
    assert "nothing new" not in retention.text


def test_a_restore_says_what_a_transaction_keeps_from_the_backup(backup: Backup) -> None:
    """The plan of a restore names what the sink could not store, and exits 3 if that lasts."""
    backup.kafka.create("orders", 10)
    backup.sink()
    backup.kafka.behind[WHERE] = 50
    backup.sink()
    short = backup.restore_plan()
    backup.clock.pass_s(900)
    backup.sink()
    long, others = backup.restore_plan(), backup.restore_plan(partitions="1")

    assert [(0, 1), (3, 1), (0, 0)] == [
        (each["exit_code"], len(_warnings(each))) for each in (short, long, others)
    ]
    assert {"held_up_offsets": 50} == long["skipped"]


@pytest.mark.parametrize("command", ["list", "verify"])
def test_a_look_at_a_backup_says_what_a_transaction_keeps_from_it(
    backup: Backup, tmp_path: Path, command: str
) -> None:
    """Both name what the sink could not store, and exit 3 once that has lasted."""
    backup.store = StoreSettings(f"file://{tmp_path}")

    def look(*more: str) -> tuple[int, str]:
        words = ["restore", command, "--store-url", backup.store.url, "--json", *more]
        result = CliRunner().invoke(root, words, prog_name="kbackup")
        summary = json.loads(result.stdout.splitlines()[-1])
        return result.exit_code, " ".join(_warnings(summary))

    backup.kafka.create("orders", 10)
    backup.sink()
    backup.kafka.behind[WHERE] = 50
    backup.sink()
    short = look()
    backup.clock.pass_s(900)
    backup.sink()
    long, others = look(), look("--partitions", "1")

    assert (0, 3) == (short[0], long[0])
    assert all("orders-0 is held up at offset 100" in text for _, text in (short, long))
    assert (0, "") == others


def test_what_the_backup_has_passed_is_held_up_no_longer(backup: Backup) -> None:
    """A sink that runs no more left its last look; what another stored since outdates it."""
    backup.kafka.behind[WHERE] = 50
    backup.sink()
    backup.clock.pass_s(1000)
    backup.sink()
    backup.kafka.behind.clear()
    backup.kafka.append(WHERE, 50)
    backup.sink(topics=None, topics_regex="ord.*")

    plan = backup.restore_plan()

    assert (0, []) == (plan["exit_code"], _warnings(plan))
