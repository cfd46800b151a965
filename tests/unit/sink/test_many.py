"""Plans of very many partitions."""

import time
from uuid import uuid4

import pytest

from kbackup import config
from kbackup.clock import SystemClock
from kbackup.naming import Layout
from kbackup.records import Span, TopicPartition
from kbackup.sink import accounting, plan
from kbackup.stores import StoreSettings
from kbackup.stores.memory import MemoryStore
from tests.support.fake_kafka import FakeKafka

MANY = 10_000


@pytest.mark.parametrize("topics", [1, 1_000, MANY])
def test_a_plan_grows_with_the_number_of_partitions_and_no_faster(topics: int) -> None:
    """Ten thousand partitions take half a second of CPU time, in however many topics."""
    names = {f"t{at}": f"id{at}" for at in range(topics)}
    logs = {TopicPartition(n, at): Span(0, 10) for n in names for at in range(MANY // topics)}
    options = {"bootstrap_servers": "-", "topics_regex": ".*", "s3_bucket_name": "b"}
    settings = config.load("sink", options=options, files=(), environ={}).settings
    store = MemoryStore(StoreSettings(f"memory://{uuid4()}"))
    begin = time.process_time()

    found = plan.make_plan(settings, FakeKafka(names, logs), store, SystemClock())  # type: ignore[arg-type]
    units, lines = found.units(), list(accounting.plan_topics(found, Layout()))

    assert (MANY, topics) == (len(units), len(lines))
    assert time.process_time() - begin < 2
