"""What the target cluster has against a restore, before anything is written."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from kbackup.errors import ConfigurationError, KafkaError, KbackupError
from kbackup.records import Span, TopicPartition
from kbackup.restore.accounting import TargetCount, Written, audit
from kbackup.restore.checks import Target, TopicCopy
from kbackup.restore.job import RestoreUnit
from kbackup.restore.plan import PlannedTopic, RestorePlan
from kbackup.restore.target import checked_by_cluster, create
from kbackup.runs.position import Cursor, Lane, RestorePosition, RestoreSource
from tests.support.target import FakeTarget

ALL = frozenset({"READ", "WRITE", "DESCRIBE"})


@dataclass
class Strict(FakeTarget):
    """A cluster that takes some settings, and gives some rights."""

    unknown: str = ""  # a setting that it does not know
    lacks: Mapping[str, str] = field(default_factory=dict)  # operation by kind of resource
    created: list[tuple[str, Mapping[str, str], bool]] = field(default_factory=list)

    def create_topic(
        self, name: str, partitions: int, _factor: int, config: Mapping[str, str],
        *, only_validate: bool = False,
    ) -> str:  # fmt: skip
        assert (1, -1) == (partitions, _factor)
        if self.unknown in config:
            why = f"Unknown topic config name: {self.unknown}"
            raise ConfigurationError(f"creating topic {name}", why)
        self.created.append((name, config, only_validate))
        return "id"

    def of_topics(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        return dict.fromkeys(names, ALL - {self.lacks.get("topic", "")})

    def of_group(self, _group: str) -> frozenset[str]:
        return ALL - {self.lacks.get("group", "")}

    def of_transactions(self, _id: str) -> frozenset[str]:
        return ALL - {self.lacks.get("transactions", "")}


def planned(name: str, action: str = "create", *refusals: KbackupError) -> PlannedTopic:
    """Return a topic with work to do."""
    where = TopicPartition(name, 0)
    position = RestorePosition(RestoreSource("", where), "", Cursor(0, 0))
    unit: Any = RestoreUnit(position, (Lane(where, Span(0, 0)),))
    there = Target() if action == "create" else Target(1)
    config = {"retention.ms": "-1", "message.timestamp.before.max.ms": "9"}
    return PlannedTopic(
        TopicCopy(name, name, 1, there=there), (unit,), action, config, refusals, (), 1, 1, 1, 1
    )


def look(target: Any, *topics: PlannedTopic, exactly_once: bool = True) -> RestorePlan:
    """Return the plan of *topics*, asked about."""
    plan = RestorePlan(topics, "g", {})
    return checked_by_cluster(plan, target, target, None, asks_for_transactions=exactly_once)


@pytest.mark.parametrize(
    ("denied", "named"),
    [
        pytest.param({"topic": "WRITE"}, "topic old", id="write"),
        pytest.param({"topic": "DESCRIBE"}, "topic old", id="describe"),
        pytest.param({"group": "READ"}, "group g", id="group"),
        pytest.param({"transactions": "WRITE"}, "transactional ids", id="transactions"),
    ],
)
def test_a_missing_right_is_refused_by_the_plan(denied: dict[str, str], named: str) -> None:
    """What this principal may not do is found before the first record."""
    (error,) = look(Strict(lacks=denied), planned("new"), planned("old", "append")).refusals

    assert (5, True) == (error.exit_code, named in error.what)


def test_no_transaction_no_question() -> None:
    """With --at-least-once no right to transactions is needed."""
    target = Strict(lacks={"transactions": "WRITE"})

    assert [] == look(target, planned("new"), exactly_once=False).refusals


def test_a_setting_that_the_cluster_does_not_take_is_refused_by_the_plan() -> None:
    """A mistyped --topic-config is a configuration error of the plan and of the run alike."""
    target: Any = Strict(unknown="retention.ms")

    (topic,) = look(target, planned("new")).topics

    assert ("refuse", [2]) == (topic.action, [error.exit_code for error in topic.refusals])
    assert isinstance(create([planned("new")], target, None)["new"], ConfigurationError)


def test_a_plan_only_validates_and_leaves_out_what_old_brokers_lack() -> None:
    """Settings that a broker before 3.6 does not know are done without, in plan and run."""
    target: Any = Strict(unknown="message.timestamp.before.max.ms")

    assert [] == look(target, planned("new")).refusals
    assert [("new", {"retention.ms": "-1"}, True)] == target.created


def test_a_refused_plan_asks_nothing() -> None:
    """A refused plan requests no producer id and reports no missing right."""
    refused = planned("orders", "refuse", KafkaError("no"))

    assert ["no"] == [
        error.what for error in look(Strict(lacks={"group": "READ"}), refused).refusals
    ]


def test_a_plan_without_work_asks_nothing() -> None:
    """A restore that is done needs no rights."""
    done = PlannedTopic(TopicCopy("a", "a", 1, there=Target(1)), (), "done", {}, (), (), 1, 1, 1, 1)
    plan = RestorePlan((done,), "g", {TopicPartition("a", 0): Span(0, 1)})
    target: Any = Strict(lacks={"group": "READ"})

    assert plan is checked_by_cluster(plan, target, target, None, asks_for_transactions=True)


# what an audit takes for a difference


WHERE = TopicPartition("copy", 0)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(Span(0, 62), True, id="records and one marker a transaction"),
        pytest.param(Span(10, 62), True, id="what was there before has been deleted"),
        pytest.param(Span(11, 62), False, id="a written record has been deleted"),
        pytest.param(Span(0, 63), False, id="an aborted transaction, or a stranger"),
        pytest.param(Span(0, 61), False, id="the log was cut back"),
    ],
)
def test_only_a_log_that_moved_as_expected_is_not_counted(after: Span, expected: bool) -> None:
    """A log that grew exactly as expected is not read again."""
    assert expected == Written(WHERE, 50, 2, before=10, after=after, end=after.end_offset).is_plain


def test_only_what_is_still_there_is_counted() -> None:
    """Only records that are still there are counted, from the log's start on."""
    assert Span(30, 62) == Written(WHERE, 50, 2, before=10, after=Span(30, 62), end=62).span


@pytest.mark.parametrize(
    ("counted", "exactly_once", "is_difference", "repeated"),
    [
        pytest.param(50, True, False, (), id="as written"),
        pytest.param(51, True, True, (), id="more"),
        pytest.param(49, True, True, (), id="fewer"),
        pytest.param(51, False, False, ((WHERE, 1),), id="more, without transactions"),
        pytest.param(49, False, True, (), id="fewer, without transactions"),
    ],
)
def test_a_count_that_differs_is_an_error(
    counted: int, exactly_once: bool, is_difference: bool, repeated: tuple[object, ...]
) -> None:
    """Without transactions a task that was tried again may repeat records, which is told."""
    written = [Written(WHERE, 50, 2, before=10, after=Span(0, 70), end=70)]

    found = audit(written, lambda _: [TargetCount(WHERE, counted)], exactly_once=exactly_once)

    assert ("counted", is_difference, repeated) == (found.how, bool(found.issues), found.repeated)


def test_a_partition_that_was_not_counted_is_no_difference() -> None:
    """A partition that could not be counted is reported with the reason, not as a difference."""
    written = [Written(WHERE, 50, 2, before=10, after=Span(0, 70), end=70)]
    failure = KafkaError("no broker answers").issue()

    found = audit(written, lambda _: [TargetCount(WHERE, failure=failure)], exactly_once=True)

    assert ("not made", (failure,)) == (found.how, found.issues)


def test_records_behind_an_open_transaction_are_not_called_lost() -> None:
    """Records hidden by another producer's open transaction are reported as such."""
    written = Written(WHERE, 50, 2, before=10, after=Span(0, 10), end=70)

    found = written.difference(0, exactly_once=True)

    assert "open transaction hides" in str(found)


def test_what_is_not_seen_is_not_said_to_be_missing() -> None:
    """A log that is said to end before what was acknowledged is an error of the cluster, exit 5."""
    seen = Written(WHERE, 50, 2, before=10, after=Span(0, 62), end=62)
    old = Written(WHERE, 50, 2, before=10, after=Span(0, 10), end=10)

    assert seen.unseen() is None
    error = old.unseen()

    assert error is not None
    assert ("end_not_seen", 5) == (error.code, error.exit_code)
    assert (True, False) == (seen.is_seen, old.is_seen)
