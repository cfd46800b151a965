"""A group or a topic that others use, change or delete while it is backed up."""

import random
from contextlib import closing
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka import TopicPartition
from s3fault import Fault, S3Faults

from tests.support.backup import Backup
from tests.support.cluster import Record, TestCluster, varied
from tests.support.command import Kbackup
from tests.support.in_process import InThreads
from tests.support.running import running

pytestmark = [pytest.mark.integration, pytest.mark.in_process]


def test_a_group_with_live_members_is_left_alone(
    kbackup: Kbackup, cluster: TestCluster, backup: Backup, topic: str
) -> None:
    """A connector that still runs is named, exit 4, and its offsets and bucket do not change."""
    cluster.create(topic)
    cluster.write(topic, varied(100))
    group = f"team-{topic}"
    with closing(cluster.join(group, topic, **{"client.id": "connector-1"})) as member:
        member.commit(offsets=[TopicPartition(topic, 0, 40)], asynchronous=False)

        run = kbackup.json("sink", "-t", topic, "--group", group, expect=4)
        restore = kbackup.json("restore", "--rename", "c_$0", "--group", group, expect=4)

    for refused in (run, restore):
        (error,) = refused.summary["errors"]
        assert ("group_active", True) == (error["code"], "connector-1" in error["why"])
    assert [40] == cluster.committed(group, topic)
    assert {} == backup.files()


@pytest.mark.parametrize(
    "count", [pytest.param(50, id="it is shorter"), pytest.param(150, id="it is longer")]
)
def test_a_recreated_topic_does_not_touch_the_older_backup(
    count: int, kbackup: Kbackup, cluster: TestCluster, backup: Backup, topic: str
) -> None:
    """Exit 4, and every object of the first incarnation is what it was."""
    cluster.create(topic)
    cluster.write(topic, varied(100))
    kbackup.json("sink", "-t", topic)
    before = backup.keys("topics/")
    cluster.delete(topic)
    cluster.create(topic)
    cluster.write(topic, varied(count, seed=5))

    run = kbackup.json("sink", "-t", topic, expect=4)

    assert ["topic_changed"] == [error["code"] for error in run.summary["errors"]]
    assert before == backup.keys("topics/")


def test_a_topic_recreated_under_a_sink_that_follows_ends_it(
    kbackup: Kbackup, cluster: TestCluster, backup: Backup, topic: str
) -> None:
    """Nothing of the new topic is mixed into the old one's backup, and the summary is right."""
    cluster.create(topic)
    cluster.write(topic, varied(100))
    words = ("sink", "-t", topic, "--follow", "--rotate-idle-ms", "500")
    with running(kbackup, *words) as command:
        command.wait_for("object")
        cluster.delete(topic)
        cluster.create(topic)
        cluster.write(topic, varied(200, seed=5))
        run = command.finish(120)
    again = kbackup.json("sink", "-t", topic, expect=4)

    assert run.code in (4, 5)  # 5 where it looked twice while the topic was not there
    assert 100 == run.summary["records"]
    assert varied(100) == backup.records(topic, 0)
    assert ["topic_changed"] == [error["code"] for error in again.summary["errors"]]


def test_a_topic_that_does_not_exist_is_exit_5(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """A topic that was asked for and is not there is named."""
    run = kbackup.json("sink", "-t", topic, expect=5)

    assert topic in run.summary["errors"][0]["what"]


def test_retention_that_overtakes_a_running_sink_is_a_gap(
    kbackup: Kbackup, cluster: TestCluster, backup: Backup, proxy: S3Faults, topic: str
) -> None:
    """Offsets that expire before they are read are named, exit 3, and the run goes on behind."""
    noise = random.Random(11).randbytes(28_000)  # more than a client fetches ahead
    written = [Record(b"%d" % at, noise[at : at + 20_000]) for at in range(8000)]
    cluster.create(topic)
    cluster.write(topic, written)
    proxy.faults = [Fault("PUT /[^/]+/topics/", "delay", seconds=0.5)]  # what is read is kept back
    slow = kbackup.with_environment(KBACKUP_STORE_URL=proxy.url)
    words = ("sink", "-t", topic, "--flush-size", "500")

    with running(slow, *words) as command:
        command.wait_for("object", 2)
        cluster.delete_records(topic, {0: 7500})
        gap = command.finish()
    again = slow.json(*words)

    missing = gap.summary["skipped"]["expired_offsets"]
    assert (3, True) == (gap.code, 0 < missing < 6500), gap.stdout
    assert written[: 7500 - missing] + written[7500:] == backup.records(topic)
    assert (0, {}) == (again.code, again.summary["skipped"])


def test_retention_that_overtakes_a_first_backup_is_a_gap_too(
    kbackup: Kbackup, cluster: TestCluster, backup: Backup, topic: str
) -> None:
    """What was planned and deleted before the tasks began is named, though nothing is left."""
    cluster.create(topic, 2)
    written = {p: varied(100, p) for p in range(2)}
    for partition, records in written.items():
        cluster.write(topic, records, partition)

    def late(self: InThreads, *args: Any, **more: Any) -> Any:
        cluster.delete_records(topic, {0: 60, 1: 100})
        return begun(self, *args, **more)

    begun = InThreads.__call__
    with patch.object(InThreads, "__call__", late):
        gap = kbackup.json("sink", "-t", topic, expect=3)
    again = kbackup.json("sink", "-t", topic)

    assert (3, {"expired_offsets": 160}) == (gap.code, gap.summary["skipped"]), gap.stdout
    assert [[0, 59], [0, 99]] == [w["offsets"] for w in gap.of("warning") if w["code"] == "gap"]
    assert {0: 0, 1: 0} == {row["partition"]: row["lag"] for row in gap.summary["partitions"]}
    assert [written[0][60:], []] == [backup.records(topic, p) for p in range(2)]
    assert (0, {}) == (again.code, again.summary["skipped"])
