"""Up to when a backup is said to be complete, where runs see a part of it, or the wrong time."""

from typing import Any
from uuid import uuid4

import pytest

from kbackup.errors import StoreError
from kbackup.inspect.examination import last_backups
from kbackup.naming import Layout
from kbackup.naming.renaming import TopicFilter
from kbackup.runs import status
from kbackup.stores import StoreSettings, open_store
from tests.support.fake_kafka import FakeKafka
from tests.support.hand_clock import HandClock
from tests.support.sinks import run_sink, sink_settings

HOUR = 3600.0
DAY = 24 * HOUR
ASKS: dict[str, Any] = {"topics": "orders"}


class Backup:
    """A topic of two partitions, its backup, and a clock that stands still during a run."""

    def __init__(self) -> None:
        self.kafka, self.clock = FakeKafka(), HandClock()
        self.store = StoreSettings(f"memory://{uuid4()}")
        self.wheres = self.kafka.create("orders", 100, 100)

    def sink(self, *, ahead_s: float = 0, fails: bool = False, **options: Any) -> dict[str, Any]:
        """The summary of a run whose host has its clock *ahead_s* ahead."""
        self.kafka.faults = {self.wheres[0]: StoreError("put", "503")} if fails else {}
        self.kafka.append(self.wheres[0], 1)
        host = HandClock(self.clock.at_ms, ahead_s * 1000)
        summary = run_sink(self.kafka, self.store, clock=host, **ASKS | options)
        assert (6 if fails else 0) == summary["exit_code"], summary
        return summary

    def is_younger_than(self, age_s: float, **asked: Any) -> bool:
        """What ``sink status --max-age`` says now."""
        at, now = open_store(self.store), self.clock.now()
        code = status.status(
            at, Layout(), max_age_s=age_s, now=now, asked=TopicFilter(**asked)
        ).exit_code
        assert code in {0, 7}
        return code == 0

    def doctor(self, **options: Any) -> dict[str, Any] | None:
        """When the doctor finds that each topic was backed up."""
        settings = sink_settings(**ASKS | options)
        return last_backups(open_store(self.store), settings, self.clock.now())


@pytest.fixture
def backup() -> Backup:
    return Backup()


ASKED = [
    pytest.param({"names": ["orders"]}, id="the topic"),
    pytest.param({}, id="all there is"),
]


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("before", [True, False])
def test_a_run_for_one_partition_says_nothing_of_the_others(
    asked: dict[str, Any], before: bool, backup: Backup
) -> None:
    """The backup of a topic is as old as that of its other partitions, however often one is."""
    if before:
        backup.sink()
    backup.clock.pass_s(2 * HOUR)
    for _ in range(12):
        backup.sink(partitions=(0,))

    found = {
        which: backup.is_younger_than(HOUR, partitions=which, **asked)
        for which in (None, (0,), (1,), (0, 1))
    }
    assert {None: False, (0,): True, (1,): False, (0, 1): False} == found
    assert before == backup.is_younger_than(3 * HOUR, **asked)
    assert ({"orders"} if before else set()) == set(backup.doctor() or ())
    assert {"orders"} == set(backup.doctor(partitions=(0,)) or ())


def test_a_run_for_all_partitions_speaks_for_each(backup: Backup) -> None:
    """What is known of the whole is known of its parts, and a part that fails keeps it."""
    backup.sink()
    failed = backup.sink(partitions=(0,), fails=True)

    assert None is failed["last_success"]
    assert backup.is_younger_than(HOUR, names=["orders"], partitions=(0,))


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("selection", [{}, {"topics": None, "topics_regex": "ord.*"}])
def test_a_good_run_puts_right_what_a_wrong_clock_has_said(
    selection: dict[str, Any], asked: dict[str, Any], backup: Backup
) -> None:
    """A day later, when the wrong time is in the past, the backup is as old as the good run."""
    backup.sink(ahead_s=DAY, **selection)
    backup.clock.pass_s(HOUR)
    good = backup.sink(**selection)
    assert [good["run"][:20]] == [good["last_success"]]
    backup.clock.pass_s(DAY - HOUR)

    assert not backup.is_younger_than(HOUR, **asked)
    assert backup.is_younger_than(DAY, **asked)
    failed = backup.sink(fails=True, **selection)
    assert good["last_success"] == failed["last_success"]
    assert not backup.is_younger_than(HOUR, **asked)


@pytest.mark.parametrize("aheads", [[DAY, 0, 0], [DAY, 0, -DAY], [-DAY, DAY, 0]])
def test_what_is_stored_does_not_rest_on_hosts_clocks(aheads: list[float], backup: Backup) -> None:
    """Hosts whose clocks are a day apart store what hosts with the right time do."""
    right = Backup()
    for ahead_s, fails in zip(aheads, (False, True, False), strict=True):
        for one, by in ((backup, ahead_s), (right, 0.0)):
            one.sink(ahead_s=by, fails=fails)
            one.clock.pass_s(60)

    found, expected = (
        (
            {each.key: each.size for each in open_store(one.store).list("topics/")},
            {where: each.offset for where, each in one.kafka.positions_.items()},
        )
        for one in (backup, right)
    )
    assert expected == found


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_in_the_future_is_not_carried_on(asked: dict[str, Any], backup: Backup) -> None:
    """A run that is not good says so, and does not make the wrong time the truth of a day later."""
    backup.sink(ahead_s=DAY)
    backup.clock.pass_s(HOUR)
    failed = backup.sink(fails=True)
    backup.clock.pass_s(DAY)

    assert ["run_in_future"] == [each["code"] for each in failed["warnings"]]
    assert None is failed["last_success"]
    assert not backup.is_younger_than(10 * DAY, **asked)
