"""A restore that follows beside a sink that follows: what one stores, the other puts back."""

import signal

import pytest
from confluent_kafka.admin import NewPartitions

from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup
from tests.support.running import Running, running, wait_until
from tests.support.waits import shorter

pytestmark = [pytest.mark.integration, pytest.mark.one_process]

ALL = ("--topics-regex", "y-.*")


def restored(command: Running, written: dict[tuple[str, int], list[Record]]) -> bool:
    """Whether the run has put back all that was written."""
    safe = {(one["topic"], one["partition"]): one["committed"] for one in command.of("progress")}
    return all((safe.get(at) or 0) >= len(records) for at, records in written.items())


def test_a_standby_holds_each_record_once_whatever_comes_and_dies(
    kbackup: Kbackup, cluster: TestCluster
) -> None:
    """Both run, things come, the restore is killed: copies hold what originals do, once each."""
    kbackup = kbackup.with_environment(**shorter(NEWCOMERS_S=1))
    cluster.create("y-one", 2)
    written: dict[tuple[str, int], list[Record]] = {}

    def write(topic: str, partition: int, count: int) -> None:
        mine = written.setdefault((topic, partition), [])
        fresh = [Record(b"k", b"v%d" % at) for at in range(len(mine), len(mine) + count)]
        cluster.write(topic, fresh, partition)
        mine += fresh

    back = ("restore", *ALL, "--rename", "copy_of_$0", "--follow", "--s3-poll-interval-ms", "200")
    with running(
        kbackup, "sink", *ALL, "--follow", "--flush-size", "25", "--rotate-idle-ms", "300"
    ) as sink:
        write("y-one", 0, 60)
        with running(kbackup, *back) as first:
            wait_until(lambda: restored(first, written), "what was written first")
            write("y-one", 1, 10)
            wait_until(lambda: restored(first, written), "the other partition")
            write("y-one", 0, 200)
            first.wait_for("progress", len(first.of("progress")) + 1)
            first.kill_group()
        cluster.create("y-two")
        write("y-one", 1, 30)
        with running(kbackup, *back) as second:
            wait_until(lambda: restored(second, {("y-one", 1): written["y-one", 1]}), "the rest")
            write("y-two", 0, 40)
            wait_until(lambda: restored(second, {("y-two", 0): written["y-two", 0]}), "the topic")
            cluster.admin.create_partitions([NewPartitions("y-one", 3)])["y-one"].result(30)
            write("y-one", 2, 30)
            wait_until(lambda: restored(second, {("y-one", 2): written["y-one", 2]}), "the added")
            wait_until(lambda: copied(cluster, written), "all records in their copies")
            second.signal(signal.SIGTERM)
            run = second.finish()
            second.leave_nothing()
        sink.signal(signal.SIGTERM)
        sink.finish()

    assert (143, "stopped", []) == (run.code, run.summary["result"], run.summary["errors"])
    for (topic, partition), records in written.items():
        found = cluster.read(f"copy_of_{topic}", partition)
        assert [one.value for one in records] == [one.value for one in found]
    assert run.summary["last_success"] is not None


def copied(cluster: TestCluster, written: dict[tuple[str, int], list[Record]]) -> bool:
    """Whether each copy holds as many records as were written to its original."""
    return all(
        len(cluster.read(f"copy_of_{topic}", partition)) >= len(records)
        for (topic, partition), records in written.items()
    )
