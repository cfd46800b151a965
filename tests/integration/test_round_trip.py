"""Sink and restore against a real Kafka and an S3 server over HTTP, judged record for record."""

import resource
import time

import pytest

from tests.support.cluster import Record, TestCluster, send, varied
from tests.support.command import Kbackup
from tests.support.in_process import in_one_process
from tests.support.running import ended

pytestmark = pytest.mark.integration


def test_every_kind_of_record_comes_back(
    kbackup: Kbackup, cluster: TestCluster, topic: str, way: str
) -> None:
    """Each part of each record comes back, through C and in Python, and nothing stays behind."""
    cluster.create(topic, 3)
    written = {partition: varied(2000 + partition, partition) for partition in range(3)}
    for partition, records in written.items():
        cluster.write(topic, records, partition)

    runs = kbackup if way == "native" else in_one_process(kbackup)
    chosen = runs.with_environment(KBACKUP_KAFKA_CLIENT=way)
    backup = ended(chosen, "sink", "-t", topic)
    restore = ended(chosen, "restore", "--rename", "copy_of_$0")

    assert [way] * 2 == [run.summary["kafka_client"] for run in (backup, restore)]
    assert sum(map(len, written.values())) == backup.summary["records"]
    for partition, records in written.items():
        assert records == cluster.read(f"copy_of_{topic}", partition)


def test_a_second_run_finds_nothing_and_starts_no_spark(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """Right after a backup there is nothing to do: no JVM, little time, nothing left behind."""
    cluster.create(topic, 2)
    cluster.write(topic, varied(100))
    in_one_process(kbackup).json("sink", "-t", topic)

    without_java = kbackup.with_environment(JAVA_HOME="/nowhere", PATH="/nowhere")
    began, used = time.monotonic(), _seconds_of_children()
    again = ended(without_java, "sink", "-t", topic)
    took, used = time.monotonic() - began, _seconds_of_children() - used

    assert 0 == again.summary["records"]
    assert {"up to date", "empty"} == {row["state"] for row in again.summary["partitions"]}
    assert used < 12  # of CPU; on a quiet machine all of it takes two seconds
    assert took < 60  # it waits for nobody, however busy the machine is


def _seconds_of_children() -> float:
    """CPU time of the commands that have ended: other tests' work does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.in_process
def test_more_records_are_backed_up_where_the_last_run_ended(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """Each run continues at the committed offset, and the copy holds all records once."""
    cluster.create(topic)
    first, second = varied(500), varied(700, seed=3)
    cluster.write(topic, first)
    kbackup.json("sink", "-t", topic)
    cluster.write(topic, second)

    more = kbackup.json("sink", "-t", topic)
    kbackup.json("restore", "--rename", "copy_of_$0")

    assert (500, 1199) == tuple(more.summary["partitions"][0][name] for name in ("first", "last"))
    assert first + second == cluster.read(f"copy_of_{topic}")


@pytest.mark.in_process
def test_aborted_records_are_absent_and_a_marker_at_the_end_does_not_hang(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """Of transactions only what was committed is backed up, and the run ends behind the marker."""
    cluster.create(topic)
    producer = cluster.producer(transactional_id=f"tx-{topic}")
    producer.init_transactions()
    kept: list[Record] = []
    for at in range(6):
        records = varied(50, seed=at)
        producer.begin_transaction()
        send(producer, topic, records)
        producer.flush()  # else a slow broker is asked to end what it has not heard of
        if at % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            kept += records

    backup = kbackup.json("sink", "-t", topic)
    again = kbackup.json("sink", "-t", topic)
    kbackup.json("restore", "--rename", "copy_of_$0")

    end = cluster.ends(topic)[1]
    assert [150, end] == [
        backup.summary["partitions"][0][name] for name in ("records", "committed")
    ]
    assert "up to date" == again.summary["partitions"][0]["state"]
    assert kept == cluster.read(f"copy_of_{topic}")


@pytest.mark.in_process
def test_a_topic_of_aborted_records_alone_ends(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """A log of aborted transactions alone is backed up as no records, and then all is done."""
    cluster.create(topic)
    producer = cluster.producer(transactional_id=f"tx-{topic}")
    producer.init_transactions()
    producer.begin_transaction()
    send(producer, topic, varied(20))
    producer.flush()
    producer.abort_transaction()

    backup = kbackup.json("sink", "-t", topic)
    again = kbackup.json("sink", "-t", topic)

    assert "no records" == backup.summary["partitions"][0]["state"]
    assert "up to date" == again.summary["partitions"][0]["state"]


@pytest.mark.in_process
def test_empty_and_emptied_topics_are_told_apart(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """A topic that never had records and one that lost them all are different news."""
    cluster.create(topic)
    cluster.create(f"{topic}-emptied")
    cluster.write(f"{topic}-emptied", varied(30))
    cluster.delete_records(f"{topic}-emptied", {0: 30})

    backup = kbackup.json("sink", "-t", f"{topic},{topic}-emptied")

    states = {row["topic"]: row["state"] for row in backup.summary["partitions"]}
    assert {topic: "empty", f"{topic}-emptied": "emptied"} == states


@pytest.mark.in_process
@pytest.mark.parametrize("first_left", [150, 200], ids=["some", "all"])
def test_records_that_expired_between_two_runs_are_news_once(
    first_left: int, kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """A gap exits 3, as its plan does, and is written down; the next run exits 0."""
    cluster.create(topic)
    cluster.write(topic, varied(100))
    kbackup.json("sink", "-t", topic)
    cluster.write(topic, varied(100, seed=1))
    cluster.delete_records(topic, {0: first_left})

    plan = kbackup.json("sink", "plan", "-t", topic, expect=3)
    gap = kbackup.json("sink", "-t", topic, expect=3)
    again = kbackup.json("sink", "-t", topic)

    expired = [100, first_left - 1]
    assert (
        {"expired_offsets": first_left - 100} == gap.summary["skipped"] == plan.summary["skipped"]
    )
    for told in (plan, gap):
        assert [expired] == [w["offsets"] for w in told.of("warning") if w["code"] == "gap"]
    assert {} == again.summary["skipped"]


@pytest.mark.in_process
def test_compacted_records_leave_holes_that_are_no_loss(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """Compacted records are not waited for, and those left come back in order."""
    cluster.create(
        topic, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="0",
    )  # fmt: skip
    for seed in range(4):  # segments roll by the records' own time
        now = int(time.time() * 1000)
        values = [Record(b"k%d" % (at % 5), b"%d-%d" % (seed, at), (), now) for at in range(50)]
        cluster.write(topic, values)
        time.sleep(0.3)
    deadline = time.monotonic() + 30
    while len(cluster.read(topic)) >= 200 and time.monotonic() < deadline:
        time.sleep(0.5)
        cluster.write(topic, [Record(b"tick", b"tock", (), int(time.time() * 1000))])
    kept = cluster.read(topic)

    kbackup.json("sink", "-t", topic)
    kbackup.json("restore", "--rename", "copy_of_$0")

    assert len(kept) < 200
    assert {record.key: record.value for record in kept} == {
        record.key: record.value for record in cluster.read(f"copy_of_{topic}")
    }


@pytest.mark.nightly
@pytest.mark.in_process
def test_three_hundred_partitions_of_few_records(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """Many small partitions are one run each way, and every record is back in its partition."""
    cluster.create(topic, 300)
    producer = cluster.producer()
    written = {partition: varied(partition % 4, seed=partition) for partition in range(300)}
    for partition, records in written.items():
        send(producer, topic, records, partition)
    producer.flush()

    backup = kbackup.json("sink", "-t", topic)
    restored = kbackup.json("restore", "--rename", "copy_of_$0")

    count = sum(map(len, written.values()))
    assert (count, count) == (backup.summary["records"], restored.summary["records"])
    for partition in (0, 1, 2, 3, 150, 299):
        assert written[partition] == cluster.read(f"copy_of_{topic}", partition)


@pytest.mark.in_process
def test_a_record_of_20_mb_comes_back(kbackup: Kbackup, cluster: TestCluster, topic: str) -> None:
    """A giant record passes both ways, and the copy's topic is created large enough for it."""
    cluster.create(topic, max_message_bytes="30000000")
    giant = Record(b"giant", bytes(range(256)) * (20 * 4096))
    records = [*varied(10), giant, *varied(10)]
    cluster.write(topic, records)

    kbackup.json("sink", "-t", topic)
    kbackup.json("restore", "--rename", "copy_of_$0")

    assert records == cluster.read(f"copy_of_{topic}")


@pytest.mark.in_process
def test_append_time_timestamps_come_back_as_they_were(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """The broker's timestamps of the source are the producer's timestamps of the copy."""
    cluster.create(topic, message_timestamp_type="LogAppendTime")
    cluster.write(topic, varied(50))
    stamped = cluster.read(topic)

    kbackup.json("sink", "-t", topic)
    kbackup.json("restore", "--rename", "copy_of_$0")

    assert stamped == cluster.read(f"copy_of_{topic}")


@pytest.mark.in_process
def test_group_moved_ahead_by_somebody_leaves_no_hole(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """If the group is behind the end of the bucket, the lower one is used, with a warning."""
    cluster.create(topic)
    records = varied(300)
    cluster.write(topic, records[:100])
    group = kbackup.json("sink", "-t", topic).summary["group"]
    cluster.write(topic, records[100:])
    cluster.commit(group, topic, 250)

    backup = kbackup.json("sink", "-t", topic)
    kbackup.json("restore", "--rename", "copy_of_$0")

    assert ["bucket_behind"] == [w["code"] for w in backup.of("warning")]
    assert records == cluster.read(f"copy_of_{topic}")


@pytest.mark.in_process
def test_group_reset_to_the_start_writes_the_same_objects_again(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """A rerun from the beginning cuts at the same places, so it changes nothing."""
    cluster.create(topic)
    cluster.write(topic, varied(1000))
    first = kbackup.json("sink", "-t", topic, "--flush-size", "300")
    cluster.commit(first.summary["group"], topic, 0)

    again = kbackup.json("sink", "-t", topic, "--flush-size", "300")

    facts = ("key", "first", "last", "records", "sha256")
    assert [[line[name] for name in facts] for line in first.of("object")] == [
        [line[name] for name in facts] for line in again.of("object")
    ]


@pytest.mark.in_process
def test_a_plan_writes_nothing_and_exits_as_the_run_would(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """Plans of sink and restore touch neither bucket, group nor topics, and exit as runs would."""
    cluster.create(topic)
    cluster.write(topic, varied(10))

    kbackup.json("sink", "plan", "-t", topic)
    kbackup.json("sink", "-t", topic)
    planned = kbackup.json("restore", "plan", "--rename", "copy_of_$0")

    assert ["create"] == [line["action"] for line in planned.of("plan_topic")]
    assert f"copy_of_{topic}" not in cluster.admin.list_topics(timeout=10).topics


@pytest.mark.nightly
@pytest.mark.parametrize("both", [False, True])
def test_a_run_on_a_spark_cluster_of_two_executors(
    kbackup: Kbackup, cluster: TestCluster, topic: str, both: bool
) -> None:
    """The same commands work where tasks run in processes of their own."""
    cluster.create(topic, 4)
    for partition in range(4):
        cluster.write(topic, varied(200, seed=partition), partition)
    master = ("--master", "local-cluster[2,1,1024]")

    kbackup.json("sink", "-t", topic, *master)
    if both:
        kbackup.json("restore", "--rename", "copy_of_$0", *master)
    else:
        in_one_process(kbackup).json("restore", "--rename", "copy_of_$0")

    for partition in range(4):
        assert varied(200, seed=partition) == cluster.read(f"copy_of_{topic}", partition)
