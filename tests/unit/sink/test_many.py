"""Plans of very many partitions."""

import sys
from uuid import uuid4

import pytest

from kbackup.clock import SystemClock
from kbackup.config import loading
from kbackup.naming import Layout
from kbackup.records import Span, TopicPartition
from kbackup.sink import accounting, plan
from kbackup.stores import StoreSettings
from kbackup.stores.memory import MemoryStore
from tests.support.fake_kafka import FakeKafka

MANY = 10_000


def calls_of_a_plan(topics: int, partitions: int) -> int:
    """Return the calls that a plan of *topics* makes that have so many *partitions* together.

    Calls are counted, and not seconds, which on a busy machine are those of its other work.
    """
    names = {f"t{at}": f"id{at}" for at in range(topics)}
    each = partitions // topics
    logs = {TopicPartition(name, at): Span(0, 10) for name in names for at in range(each)}
    options = {"bootstrap_servers": "-", "topics_regex": ".*", "s3_bucket_name": "b"}
    settings = loading.load("sink", options=options, files=(), environ={}).settings
    store = MemoryStore(StoreSettings(f"memory://{uuid4()}"))
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        found = plan.make_plan(settings, FakeKafka(names, logs), store, SystemClock())  # type: ignore[arg-type]
        units, lines = found.units(), list(accounting.plan_topics(found, Layout()))
    finally:
        sys.setprofile(before)

    assert (partitions, topics) == (len(units), len(lines))
    return calls


@pytest.mark.parametrize("share", [0, 0.1, 1])
def test_a_plan_grows_with_the_number_of_partitions_and_no_faster(share: float) -> None:
    """Ten times the partitions take about ten times the calls."""
    few, many = MANY // 10, MANY
    calls_of_a_plan(1, 10)  # what is imported and compiled once

    one = calls_of_a_plan(max(1, round(few * share)), few)
    ten = calls_of_a_plan(max(1, round(many * share)), many)

    assert ten < 11 * one
