"""What the doctor says of topics and their retention."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from kbackup.catalog import access
from kbackup.clock import time_span
from kbackup.errors import ConfigurationError
from kbackup.inspect import examination
from kbackup.inspect.examination import LogState
from kbackup.kafka import Acl, Group, GroupList
from kbackup.records import Span, TopicPartition
from kbackup.runs import history, wiring
from kbackup.stores.memory import MemoryStore
from kbackup.testing import FaultyStore
from tests.support.ended import ended
from tests.support.examined import HOUR_MS, NOW, settings
from tests.support.fake_cluster import FakeAccess
from tests.support.fake_kafka import FakeKafka


def test_without_brokers_nothing_is_asked_of_kafka() -> None:
    """A restore's configuration may leave the cluster to the command line."""
    found = list(examination.kafka_checks(settings(), {}, NOW, "g"))

    assert [("warn", "not checked: no bootstrap.servers")] == [(c.level, c.text) for c in found]


@pytest.mark.parametrize(
    ("log", "hours", "level", "text"),
    [
        pytest.param(
            LogState("orders", 24 * HOUR_MS, {}, True), 30, "fail",
            "orders keeps 24 h, last good backup 30 h ago: data is being lost", id="too late",
        ),
        pytest.param(
            LogState("orders", 24 * HOUR_MS, {}, False), 30, "ok",
            "orders keeps 24 h, last good backup 30 h ago, nothing new since", id="nothing to lose",
        ),
        pytest.param(
            LogState("orders", 24 * HOUR_MS, {}, True), 13, "warn",
            "orders keeps 24 h, last good backup 13 h ago: half of that time has passed", id="late",
        ),
        pytest.param(
            LogState("orders", 24 * HOUR_MS, {}, True), 2, "ok",
            "orders keeps 24 h, last good backup 2 h ago", id="in time",
        ),
        pytest.param(
            LogState("orders", 24 * HOUR_MS, {}, True), None, "ok",
            "orders keeps 24 h, and no sink has backed it up yet", id="first run to come",
        ),
        pytest.param(
            LogState("orders", None, {}, True), 900, "ok",
            "orders keeps records for ever", id="no retention",
        ),
        pytest.param(
            LogState("orders", 0, {}, True), 1, "fail",
            "orders keeps 0 s, last good backup 60 min ago: data is being lost", id="keeps nothing",
        ),
        pytest.param(
            LogState("orders", 24 * HOUR_MS, {2: Span(10, 20)}, True), 1, "fail",
            "orders: offsets 10 to 19 of partition 2 have expired before they were backed up: "
            "data is being lost", id="gone already",
        ),
    ],
)  # fmt: skip
def test_retention_is_held_against_the_age_of_the_backup(
    log: LogState, hours: int | None, level: str, text: str
) -> None:
    """A topic whose retention is shorter than its backup is old is reported: it loses data."""
    backup = None if hours is None else NOW - timedelta(hours=hours)

    found = examination.judge(log, backup, NOW)

    assert (level, text) == (found.level, found.text)
    assert (level != "ok") == bool(found.do)


@dataclass(frozen=True)
class Allowed:
    """What a principal may do with every topic, and with every group."""

    operations: frozenset[str]

    def of_topics(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """The same for each."""
        return dict.fromkeys(names, self.operations)

    def of_group(self, _: str) -> frozenset[str]:
        """The same for any."""
        return self.operations


@pytest.mark.parametrize(
    ("operations", "level", "code", "text"),
    [
        pytest.param({"READ", "WRITE"}, "ok", "check", "may write to letters", id="allowed"),
        pytest.param({"READ"}, "fail", "kafka", "WRITE is denied on letters", id="denied"),
    ],
)
def test_a_dead_letter_topic_that_may_not_be_written_to_is_found_before_a_run(
    operations: set[str], level: str, code: str, text: str
) -> None:
    """A dead letter topic that cannot be written to is reported before the first bad record."""
    cluster: Any = FakeKafka({"letters": "id"}, {TopicPartition("letters", 0): Span(0, 0)})
    allowed: Any = Allowed(frozenset(operations))

    found = examination.dead_letters("letters", cluster, allowed)

    assert (level, code, text) == (found.level, found.code, found.text)
    assert (level != "ok") == bool(found.do)


def test_a_dead_letter_topic_that_is_missing_is_no_fault() -> None:
    """A missing dead letter topic is reported as fine: the first run creates it."""
    cluster: Any = FakeKafka({}, {})
    allowed: Any = Allowed(frozenset())

    found = examination.dead_letters("letters", cluster, allowed)

    assert ("ok", True) == (found.level, "creates it" in found.text)


@pytest.mark.parametrize(
    ("is_complete", "level", "text"),
    [
        (True, "ok", "2 groups in the cluster, all of them visible"),
        (False, "warn", "2 groups visible, maybe not all: DESCRIBE is denied on the cluster"),
    ],
)
def test_consumer_groups_that_may_be_hidden_are_found_before_a_run(
    is_complete: bool, level: str, text: str
) -> None:
    """A principal that may not see all consumer groups, and so not capture them, is told so."""
    groups = tuple(Group(name, "consumer", "EMPTY") for name in ("audit", "billing"))

    found = examination.consumer_groups(GroupList(groups, is_complete))

    assert (level, text) == (found.level, found.text)
    assert (level != "ok") == bool(found.do)


@pytest.mark.parametrize(
    ("given", "level", "text"),
    [
        ({}, "ok", "may capture 1 ACL, 1 SCRAM user, 0 broker settings"),
        (
            {"entries": None}, "ok",
            "may capture 1 SCRAM user, 0 broker settings; no ACLs: the cluster has no authorizer",
        ),
        (
            {"denied": {"acls"}}, "warn",
            "ACLs cannot be captured: reading acls: Cluster authorization failed",
        ),
    ],
)  # fmt: skip
def test_access_that_may_not_be_captured_is_found_before_a_run(
    given: dict[str, Any], level: str, text: str
) -> None:
    """A principal that may not see ACLs or users, which the sink is to capture, is told so."""
    who = FakeAccess()
    who.entries = {Acl("TOPIC", "orders", "LITERAL", "User:app", "*", "READ", "ALLOW")}
    who.people = {("app", "SCRAM-SHA-512"): 4096}
    vars(who).update(given)

    found = examination.cluster_capture(*access.take_bundle(who, 0))

    assert (level, text) == (found.level, found.text)
    assert (level != "ok") == bool(found.do)


def test_topics_at_risk_have_a_line_each() -> None:
    """Only topics that lose data are listed, even among a hundred."""
    logs = [LogState(f"t{at}", HOUR_MS, {}, is_pending=at < 2) for at in range(100)]
    backups = {log.topic: NOW - timedelta(hours=2) for log in logs}

    found = list(examination.retention_checks(logs, backups, NOW))

    assert ["fail", "fail", "ok"] == [check.level for check in found]
    assert "98 topics keep their records long enough" == found[-1].text


def test_retention_without_run_records_is_not_called_good() -> None:
    """Without the store nobody knows how old the backup is."""
    found = list(examination.retention_checks([LogState("t", 1, {}, True)], None, NOW))

    assert ["warn"] == [check.level for check in found]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (86400, "24 h"), (604800, "7 d")],
)
def test_times_are_said_as_people_say_them(seconds: int, text: str) -> None:
    """Retention is set in milliseconds, and thought of in days."""
    assert text == time_span(seconds)


def test_the_newest_good_run_of_each_topic_counts(store: MemoryStore) -> None:
    """A run that failed, one of the future, and one without the topic do not."""
    layout = wiring.layout(settings())

    def record(run: str, code: int, *topics: str) -> None:
        rows = [{"topic": topic, "partition": 0} for topic in topics]
        told = ended(run=run, exit_code=code, partitions=rows)
        history.write_run(store, layout, told)

    record("2026-11-21T08:00:00Z-0001", 0, "orders", "audit")
    record("2026-11-21T09:00:00Z-0002", 3, "orders")
    record("2026-11-21T10:00:00Z-0003", 5, "orders", "audit")
    record("2026-11-22T10:00:00Z-0004", 0, "orders")

    found = examination.last_backups(store, settings(), NOW)

    assert {"orders": NOW.replace(hour=9), "audit": NOW.replace(hour=8)} == found


def test_run_records_that_cannot_be_had_are_not_taken_for_none() -> None:
    """If the last backup's time is unknown, the topic is not called never backed up."""
    assert examination.last_backups(FaultyStore("503"), settings(), NOW) is None


def test_leaving_out_every_topic_fails_as_the_run_would() -> None:
    """A sink that follows waits for topics to come."""
    with pytest.raises(ConfigurationError, match="leaves out every topic"):
        examination._topics(settings(topics_exclude="ord.*"), ["orders"], {})
    waits = examination._topics(settings(topics_exclude="ord.*", follow=True), ["orders"], {})

    assert "ok" == waits.level


@pytest.mark.parametrize(("excluded", "expected"), [
    (None, ("no topic matches a.*", "correct topics.regex")),
    ("a1", ("no topic matches a.*, except a1", "correct topics.regex or topics.exclude")),
])  # fmt: skip
def test_no_topic_is_warned_of_with_all_that_chooses(
    excluded: str | None, expected: tuple[str, str]
) -> None:
    """What leaves topics out may be what is wrong."""
    found = examination._topics(settings(topics_regex="a.*", topics_exclude=excluded), [], [])

    assert ("warn", *expected) == (found.level, found.text, found.do)
