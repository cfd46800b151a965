"""What a restore that follows says of what it has set aside."""

import time
from typing import Any

from kbackup.clock import SystemClock
from kbackup.config import loading
from kbackup.errors import KafkaError, RefusedError
from kbackup.records import TopicPartition
from kbackup.restore.watch import Remarks
from kbackup.runs.context import Environment, RunContext, Stop


def a_context() -> RunContext:
    """A restore that follows and has not begun."""
    given = {"bootstrap_servers": "-", "s3_bucket_name": "b", "follow": True}
    settings = loading.load("restore", options=given, files=(), environ={}).settings
    nowhere: Any = None
    outside = Environment(nowhere, nowhere, nowhere, SystemClock())
    return RunContext.of("restore", settings, lambda _: None, Stop(), outside)


def test_what_is_set_aside_stands_until_it_goes_on() -> None:
    """What a place fails with replaces what it failed with before, and nothing else."""
    context = a_context()
    summary, remarks = context.summary, Remarks(context)
    two = [RefusedError("no").issue(), RefusedError("nor this").issue()]
    where = TopicPartition("orders", 1)

    remarks.stand("orders", two)
    remarks.stand(where, [KafkaError("gone").issue()])
    remarks.stand("orders", two[1:])
    remarks.stand("payments", two)
    remarks.stand("payments", ())

    found = [(each.what, each.place.get("partition")) for each in summary.standing.values()]
    assert [("nor this", None), ("gone", 1)] == found


def test_a_cluster_that_is_away_costs_each_partition_the_same() -> None:
    """Ten thousand partitions are set aside, and taken up again, in a second of CPU time."""
    context = a_context()
    summary, remarks = context.summary, Remarks(context)
    wheres = [TopicPartition("orders", at) for at in range(10_000)]
    begin = time.process_time()

    for where in wheres:
        remarks.stand(where, [KafkaError("gone").issue()])
    for where in wheres:
        remarks.stand(where, ())

    assert {} == summary.standing
    assert time.process_time() - begin < 5
