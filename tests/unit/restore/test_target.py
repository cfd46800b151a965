"""What the target cluster has against a restore, before anything is written."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from kbackup.errors import ConfigurationError, KafkaError, KbackupError
from kbackup.records import Span, TopicPartition
from kbackup.restore.checks import Target, TopicCopy
from kbackup.restore.job import RestoreUnit
from kbackup.restore.plan import PlannedTopic, RestorePlan
from kbackup.restore.target import asked, create
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
    return asked(plan, target, target, None, asks_for_transactions=exactly_once)


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

    assert plan is asked(plan, target, target, None, asks_for_transactions=True)
