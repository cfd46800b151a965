"""What a summary says of what fails for now."""

import time

from kbackup.errors import KafkaError, RefusedError
from kbackup.records import TopicPartition
from kbackup.runs.report import Summary


def test_what_is_set_aside_stands_until_it_goes_on() -> None:
    """What a place fails with replaces what it failed with before, and nothing else."""
    summary = Summary("r1", "restore")
    two = [RefusedError("no").issue(), RefusedError("nor this").issue()]
    where = TopicPartition("orders", 1)

    summary.stand("orders", two)
    summary.stand(where, [KafkaError("gone").issue()])
    summary.stand("orders", two[1:])
    summary.stand("payments", two)
    summary.stand("payments", ())

    assert {"nor this", "gone"} == {each.what for each in summary.finish().errors}


def test_a_cluster_that_is_away_costs_each_partition_the_same() -> None:
    """Ten thousand partitions are set aside, and taken up again, in a second of CPU time."""
    summary = Summary("r1", "restore")
    wheres = [TopicPartition("orders", at) for at in range(10_000)]
    begin = time.process_time()

    for where in wheres:
        summary.stand(where, [KafkaError("gone").issue()])
    for where in wheres:
        summary.stand(where, ())

    assert {} == summary.standing
    assert time.process_time() - begin < 5
