"""A sink backs up no topic that a drill has made, and every other one."""

from typing import Any
from uuid import uuid4

import pytest

from kbackup.catalog import drills
from kbackup.catalog.drills import Scratch
from kbackup.clock import SystemClock
from kbackup.naming import Layout
from kbackup.sink.plan import plan_more
from kbackup.stores import StoreSettings, open_store
from tests.support.fake_kafka import FakeKafka
from tests.support.sinks import run_sink, sink_settings

OWN = "drill_5c1e09ab_orders"


@pytest.fixture
def store() -> StoreSettings:
    """A bucket that names a drill's topic."""
    found = StoreSettings(f"memory://{uuid4()}")
    drills.keep_scratch(open_store(found), Layout(), Scratch("5c1e09ab", 1, "", {OWN: None}))
    return found


@pytest.fixture
def kafka() -> FakeKafka:
    """A topic, that of a drill, and one that is only called like one."""
    found = FakeKafka()
    for name in ("orders", OWN, "drill_x"):
        found.create(name, 3)
    return found


def back_up(kafka: FakeKafka, store: StoreSettings, **options: Any) -> list[dict[str, Any]]:
    """What a sink tells, its summary last."""
    told: list[dict[str, Any]] = []
    summary = run_sink(kafka, store, told=told, **options)
    return [*told, summary]


def test_a_pattern_leaves_them_out(kafka: FakeKafka, store: StoreSettings) -> None:
    """The plan names them; one that no drill has stored is backed up."""
    start, *_, summary = back_up(kafka, store, topics_regex=".*")

    assert (0, ["drill_x", "orders"]) == (
        summary["exit_code"], sorted(row["topic"] for row in summary["partitions"])
    )  # fmt: skip
    assert [OWN] == start["drills"]


def test_one_that_is_named_is_left_out_too(kafka: FakeKafka, store: StoreSettings) -> None:
    """A warning says so."""
    told = back_up(kafka, store, topics=f"orders,{OWN}")

    assert ["topic_of_drill"] == [one["code"] for one in told if one["type"] == "warning"]
    assert ["orders"] == [row["topic"] for row in told[-1]["partitions"]]


def test_one_that_appears_later_is_left_out(kafka: FakeKafka, store: StoreSettings) -> None:
    """A sink that follows finds no topic of a drill."""
    cluster: Any = kafka

    plan = plan_more(
        sink_settings(topics_regex=".*"), cluster, open_store(store), SystemClock(), {}
    )

    assert ["drill_x", "orders"] == sorted(plan.topics)


def test_a_topic_that_has_gone_since_it_was_listed_is_no_error(
    kafka: FakeKafka, store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drill that ends meanwhile fails no sink with a pattern."""
    drills.forget(open_store(store), Layout(), "5c1e09ab")
    names = kafka.topic_names()
    kafka.delete(OWN)
    monkeypatch.setattr(kafka, "topic_names", lambda: names)

    assert 0 == back_up(kafka, store, topics_regex=".*")[-1]["exit_code"]
