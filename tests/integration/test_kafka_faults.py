"""Kafka away, changed or used by others; refusals that write nothing; audits that notice."""

import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewPartitions
from s3fault import Fault, S3Faults

from kbackup.local import LocalS3, start_kafka
from kbackup.local.process import free_ports
from tests.support.backup import Backup
from tests.support.cluster import Record, TestCluster, varied
from tests.support.command import Kbackup
from tests.support.large import Large, back_up_large
from tests.support.running import Running, ended, running, wait_until

pytestmark = pytest.mark.integration

_COUNT = itertools.count()


@pytest.fixture
def backup(s3: LocalS3, bucket: str) -> Backup:
    """What lies in the test's bucket."""
    return Backup(s3, bucket)


@pytest.fixture
def proxy(s3: LocalS3) -> Iterator[S3Faults]:
    """A proxy in front of the S3 server."""
    with S3Faults(s3.endpoint_url) as proxy:
        yield proxy


# -- the cluster is away -------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("sink", "-t", "orders"), ("restore",)], ids=["sink", "restore"])
def test_no_broker_is_said_within_the_timeout(words: tuple[str, ...], kbackup: Kbackup) -> None:
    """
    Exit 5 names the address, and takes no longer than --kafka-timeout allows.
    """
    address = f"127.0.0.1:{free_ports(1)[0]}"
    begin = time.monotonic()

    run = kbackup.json(*words, "-k", address, "--kafka-timeout", "2s", expect=5)

    assert time.monotonic() - begin < 60  # three seconds on a quiet machine
    assert address in run.summary["errors"][0]["what"]
    assert "Connection refused" in run.summary["errors"][0]["why"]


def test_a_host_that_is_unknown_is_said(kbackup: Kbackup) -> None:
    """
    A misspelt name and a broker that is down have different remedies.
    """
    run = kbackup.json(
        "sink", "-t", "orders", "-k", "no-such.invalid:9092", "--kafka-timeout", "2s", expect=5
    )

    assert "resolve 'no-such.invalid:9092'" in run.summary["errors"][0]["why"]


def test_a_broker_that_dies_and_comes_back_is_waited_for(s3: LocalS3) -> None:
    """
    Killed and started again in the middle of a sink and of a restore: both end well, and every
    record is delivered once.
    """
    partitions, count = 2, 5000
    with start_kafka() as broker:
        cluster = TestCluster(broker.bootstrap_servers)
        big = back_up_large(cluster, s3, "broker-dies", partitions, count)
        with running(big.kbackup, *big.restore("copy_of_")) as restore:
            restore.wait_for("progress")
            broker.kill()
            broker.restart()
            restored = restore.finish(300)

        s3.create_bucket("broker-dies-again")
        other = big.kbackup.with_environment(KBACKUP_S3_BUCKET_NAME="broker-dies-again")
        with running(other, "sink", "-t", big.topic, "--flush-size", "100") as sink:
            sink.wait_for("object", 3)
            broker.kill()
            broker.restart()
            stored = sink.finish(300)
        backup = Backup(s3, "broker-dies-again")

        ends = [(0, []), (0, [])]
        assert ends == [(run.code, run.summary["errors"]) for run in (restored, stored)]
        assert big.restored(cluster, f"copy_of_{big.topic}")
        for partition in range(partitions):
            assert big.records(partition) == backup.records(big.topic, partition)


def test_a_broker_that_stays_away_ends_both_and_the_next_runs_go_on(
    s3: LocalS3, proxy: S3Faults
) -> None:
    """
    Frozen in the middle of a sink and of a restore: exit 5, nothing half done, nothing twice.  A
    sink that follows ends too.
    """
    with start_kafka() as broker:
        cluster = TestCluster(broker.bootstrap_servers)
        big = back_up_large(cluster, s3, "broker-stays-away", 1, 7000)
        s3.create_bucket("broker-stays-away-again")
        other = big.kbackup.with_environment(KBACKUP_S3_BUCKET_NAME="broker-stays-away-again")
        proxy.faults = [  # neither ends before the other one is in its middle
            Fault("PUT /broker-stays-away-again/topics/", "delay", after=5, seconds=1),
            Fault("GET /broker-stays-away/topics/", "delay", after=4, seconds=15),
        ]
        slow = {"KBACKUP_STORE_URL": proxy.url}
        sinks, restores = other.with_environment(**slow), big.kbackup.with_environment(**slow)
        sink_words = ("sink", "-t", big.topic, "--flush-size", "100", "--group", "again")
        restore_words = big.restore("copy_of_")
        follow_words = ("sink", "-t", big.topic, "--follow", "--group", "follows", "--no-lock")
        with (
            running(sinks, *sink_words) as sink,
            running(restores, *restore_words) as restore,
            running(big.kbackup, *follow_words) as follow,
        ):
            sink.wait_for("object", 3)
            restore.wait_for("progress")
            follow.wait_for("start")
            os.kill(broker.pid, signal.SIGSTOP)
            stopped = [command.finish(300) for command in (sink, restore, follow)]
            os.kill(broker.pid, signal.SIGCONT)
        half = Backup(s3, "broker-stays-away-again").records(big.topic, 0)
        proxy.faults = []
        goes_on = [sinks.json(*sink_words), restores.json(*restore_words)]

        assert [5, 5, 5] == [run.code for run in stopped]
        assert all("Traceback" not in run.stderr for run in stopped)
        assert 0 < len(half) < len(big.records(0))
        assert [[], []] == [run.summary["errors"] for run in goes_on]
        assert big.records(0) == Backup(s3, "broker-stays-away-again").records(big.topic, 0)
        assert big.restored(cluster, f"copy_of_{big.topic}")


# -- the group, the topic ------------------------------------------------------------------------


def test_a_group_with_live_members_is_left_alone(
    kbackup: Kbackup, cluster: TestCluster, backup: Backup, topic: str
) -> None:
    """
    A connector that still runs is named, exit 4, and neither its offsets nor the bucket change.
    """
    cluster.create(topic)
    cluster.write(topic, varied(100))
    group = f"team-{topic}"
    member = Consumer(
        {
            "bootstrap.servers": cluster.servers, "group.id": group, "client.id": "connector-1",
            "auto.offset.reset": "earliest", "enable.auto.commit": False,
        }
    )  # fmt: skip
    try:
        member.subscribe([topic])
        wait_until(lambda: member.poll(0.2) is not None, "the member's first record")
        member.commit(offsets=[TopicPartition(topic, 0, 40)], asynchronous=False)

        run = kbackup.json("sink", "-t", topic, "--group", group, expect=4)
        restore = kbackup.json("restore", "--rename", "c_$0", "--group", group, expect=4)
    finally:
        member.close()

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
    """
    Exit 4, and every object of the first incarnation is what it was.
    """
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
    """
    Nothing of the new topic is mixed into the old one's backup, however many records it has, and
    the summary counts what is stored.
    """
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


def test_a_deleted_topic_is_exit_5(kbackup: Kbackup, cluster: TestCluster, topic: str) -> None:
    """
    A topic that was asked for and is not there is named.
    """
    run = kbackup.json("sink", "-t", topic, expect=5)

    assert topic in run.summary["errors"][0]["what"]


def test_added_partitions_are_picked_up(
    kbackup: Kbackup, cluster: TestCluster, backup: Backup, topic: str
) -> None:
    """
    The next run backs up the new partitions too, and the restore makes as many.
    """
    cluster.create(topic)
    cluster.write(topic, varied(50))
    kbackup.json("sink", "-t", topic)
    cluster.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    wait_until(
        lambda: len(cluster.admin.list_topics(timeout=30).topics[topic].partitions) == 3,
        "three partitions",
    )
    cluster.write(topic, varied(60, seed=2), 2)

    kbackup.json("sink", "-t", topic)
    plan = kbackup.json("restore", "plan", "--rename", "copy_of_$0")

    assert [varied(50), [], varied(60, seed=2)] == [backup.records(topic, p) for p in range(3)]
    assert [3] == [line["partitions"]["backup"] for line in plan.of("plan_topic")]


def test_retention_that_overtakes_a_running_sink_is_a_gap(
    kbackup: Kbackup, cluster: TestCluster, backup: Backup, proxy: S3Faults, topic: str
) -> None:
    """
    Offsets that expire before they are read are counted and named, exit 3, and the run goes on
    behind them; the next run has nothing to say.
    """
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
    """
    What was planned and deleted before the tasks began is counted and named, also where nothing
    of a partition is left; the next run has nothing to say.
    """
    cluster.create(topic, 2)
    written = {p: varied(100, p) for p in range(2)}
    for partition, records in written.items():
        cluster.write(topic, records, partition)

    with running(kbackup, "sink", "-t", topic) as command:
        command.wait_for("start")
        cluster.delete_records(topic, {0: 60, 1: 100})
        gap = command.finish()
    again = kbackup.json("sink", "-t", topic)

    assert (3, {"expired_offsets": 160}) == (gap.code, gap.summary["skipped"]), gap.stdout
    assert [[0, 59], [0, 99]] == [w["offsets"] for w in gap.of("warning") if w["code"] == "gap"]
    assert {0: 0, 1: 0} == {row["partition"]: row["lag"] for row in gap.summary["partitions"]}
    assert [written[0][60:], []] == [backup.records(topic, p) for p in range(2)]
    assert (0, {}) == (again.code, again.summary["skipped"])


# -- two runs at a time --------------------------------------------------------------------------


def test_of_two_runs_the_second_leaves_at_once(
    kbackup: Kbackup, cluster: TestCluster, topic: str, tmp_path: Path
) -> None:
    """
    Exit 8 within a second or so, whether the lock folder is shared or not, silent with --quiet.
    """
    cluster.create(topic)
    here = kbackup.with_environment(KBACKUP_LOCK_DIR=str(tmp_path / "here"))
    elsewhere = kbackup.with_environment(KBACKUP_LOCK_DIR=str(tmp_path / "elsewhere"))

    with running(here, "sink", "-t", topic, "--follow") as first:
        first.wait_for("start")
        begin = time.monotonic()
        second = here("sink", "-t", topic, "--quiet")
        seconds = time.monotonic() - begin
        third = elsewhere.json("sink", "-t", topic, expect=8)
        first.signal(signal.SIGTERM)
        first.finish()

    assert (8, "", "") == (second.code, second.stdout, second.stderr)
    assert seconds < 60  # under one on a quiet machine
    assert "locked" == third.summary["errors"][0]["code"]


def test_two_runs_without_a_lock_write_the_same_objects(
    kbackup: Kbackup, cluster: TestCluster, backup: Backup, topic: str
) -> None:
    """
    Safety does not rest on the lock: same keys, same records, no offset ahead of the objects.
    """
    partitions = 2
    cluster.create(topic, partitions)
    written = {p: varied(15_000, p) for p in range(partitions)}
    for partition, records in written.items():
        cluster.write(topic, records, partition)
    words = ("sink", "-t", topic, "--flush-size", "300", "--no-lock")

    with running(kbackup, *words) as first, running(kbackup, *words) as second:
        ends = [first.finish(300), second.finish(300)]
    group = ends[0].of("start")[0]["group"]
    stored = [len(backup.records(topic, p)) for p in range(partitions)]
    committed = cluster.committed(group, topic, range(partitions))
    ended(kbackup, *words)

    assert {end.code for end in ends} <= {0, 1}
    assert all(offset <= count for offset, count in zip(committed, stored, strict=True))
    overtaken = {error["code"] for end in ends for error in end.summary["errors"]}
    assert overtaken <= {"offset_moved"}
    assert written == {p: backup.records(topic, p) for p in range(partitions)}
    assert {300} == {len(file.offsets) for file in backup.files().values()}


def test_a_sink_that_was_asleep_while_another_did_its_work_changes_nothing(
    kbackup: Kbackup, cluster: TestCluster, backup: Backup, proxy: S3Faults, topic: str
) -> None:
    """
    Stopped in the middle and woken up when all is done: what it puts is what is there, it does
    not move the group back, and it ends with exit 1, for the position was moved; or with 5, if it
    slept for longer than it waits for a broker.
    """
    cluster.create(topic)
    records = varied(60_000)
    cluster.write(topic, records)
    words = ("sink", "-t", topic, "--flush-size", "200", "--no-lock")
    # It falls asleep with an upload open.  Stopped between the look at the group's position and
    # its own commit, it would move the group back and do all of it again: Kafka cannot compare.
    puts = "PUT /[^/]+/topics/"
    proxy.faults = [Fault(puts, "delay", after=3, seconds=15)]
    slow = kbackup.with_environment(KBACKUP_STORE_URL=proxy.url)

    with running(slow, *words) as sleeper:
        wait_until(lambda: proxy.seen(puts) == 4, "the upload that takes long")
        sleeper.signal_all(signal.SIGSTOP)
        other = ended(kbackup, *words)
        before = {key: file.sha256 for key, file in backup.files().items()}
        proxy.faults = []
        sleeper.signal_all(signal.SIGCONT)
        woken = sleeper.finish()

    errors = {error["code"] for error in woken.summary["errors"]}
    assert errors, woken.summary
    assert errors <= {"offset_moved", "kafka"}, woken.summary
    assert (1 if "offset_moved" in errors else 5) == woken.code
    assert before == {key: file.sha256 for key, file in backup.files().items()}
    assert [60_000] == cluster.committed(other.summary["group"], topic)
    assert records == backup.records(topic)


def test_a_restore_that_was_asleep_while_another_did_its_work_is_fenced(
    cluster: TestCluster, proxy: S3Faults, large: Large
) -> None:
    """
    Who takes over aborts what the sleeper had begun; woken up, it writes nothing any more.
    """
    proxy.faults = [Fault("GET .*/topics/", "delay", after=16, seconds=5)]  # it does not end
    slow = large.kbackup.with_environment(KBACKUP_STORE_URL=proxy.url)
    words = (*large.restore("zombie_of_"), "--no-lock")

    with running(slow, *words) as sleeper:
        sleeper.wait_for("progress", 2)
        sleeper.signal_all(signal.SIGSTOP)
        proxy.faults = []
        ended(slow, *words)
        sleeper.signal_all(signal.SIGCONT)
        woken = sleeper.finish(300)

    assert 5 == woken.code
    errors = [(error["what"], error["why"]) for error in woken.summary["errors"]]
    assert any("took over" in why for _, why in errors), errors
    assert large.restored(cluster, f"zombie_of_{large.topic}")


# -- refusals ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(s3: LocalS3, cluster: TestCluster) -> Iterator[tuple[Kbackup, tuple[str, str]]]:
    """A backup of two topics of two partitions, the second one with old records."""
    topics = ("refused-one", "refused-two")
    for topic in topics:
        cluster.create(topic, 2)
        for partition in range(2):
            cluster.write(topic, varied(100, partition), partition)
    s3.create_bucket("refused")
    kbackup = Kbackup(
        {
            "KBACKUP_BOOTSTRAP_SERVERS": cluster.servers,
            "KBACKUP_STORE_URL": s3.endpoint_url,
            "KBACKUP_S3_BUCKET_NAME": "refused",
            **s3.environment,
        }
    )
    ended(kbackup, "sink", "-t", ",".join(topics))
    yield kbackup, topics
    for topic in topics:
        cluster.delete(topic)


def _state(cluster: TestCluster) -> dict[str, list[tuple[int, int]]]:
    """What each topic holds; Kafka's own are left out."""
    topics = cluster.admin.list_topics(timeout=30).topics
    return {
        name: [cluster.ends(name, partition) for partition in topic.partitions]
        for name, topic in topics.items()
        if not name.startswith("__") and ("refused" in name or "merged" in name)
    }


def _with_records(cluster: TestCluster, target: str) -> None:
    cluster.create(target, 2)
    cluster.write(target, varied(3))


@pytest.mark.parametrize(
    ("words", "prepare", "code"),
    [
        pytest.param(("-t", "refused-one"), None, "feedback_loop", id="its own source"),
        pytest.param(
            ("-t", "refused-one", "--rename", "refused-two"), None, "feedback_loop",
            id="a topic that a sink backs up",
        ),
        pytest.param(
            ("-t", "refused-one", "--rename", "full_$0"),
            lambda cluster: _with_records(cluster, "full_refused-one"),
            "target_not_empty", id="target not empty",
        ),
        pytest.param(
            ("-t", "refused-one", "--rename", "more_$0", "--if-exists", "append"),
            lambda cluster: _with_records(cluster, "more_refused-one"),
            "refused", id="append and nobody to ask",
        ),
        pytest.param(
            ("-t", "refused-one", "--rename", "again_$0", "--if-exists", "resume"),
            lambda cluster: cluster.create("again_refused-one", 2),
            "target_not_empty", id="nothing to resume",
        ),
        pytest.param(
            ("-t", "refused-one", "--rename", "few_$0"),
            lambda cluster: cluster.create("few_refused-one", 1),
            "fewer_partitions", id="fewer partitions",
        ),
        pytest.param(("--rename", "merged"), None, "merged_topics", id="two topics on one"),
        pytest.param(
            ("-t", "refused-one", "--rename", "refused/$0"), None, "illegal_topic_name",
            id="illegal name",
        ),
        pytest.param(
            ("-t", "refused-one", "--rename", "__refused"), None, "illegal_topic_name",
            id="internal topic",
        ),
        pytest.param(
            ("-t", "refused-one", "--rename", "gone_$0", "--no-create-topics"), None, "refused",
            id="no topic, and none to be created",
        ),
        pytest.param(
            ("-t", "refused-one", "--rename", "short_$0"),
            lambda cluster: cluster.create("short_refused-one", 2, retention_ms="3600000"),
            "retention", id="retention would delete the records",
        ),
    ],
)  # fmt: skip
def test_a_refused_restore_writes_nothing(
    words: tuple[str, ...],
    prepare: Callable[[TestCluster], Any] | None,
    code: str,
    pair: tuple[Kbackup, tuple[str, str]],
    cluster: TestCluster,
) -> None:
    """
    Exit 4 says why, one refused topic stops all, and no topic is made or written to.
    """
    if prepare is not None:
        prepare(cluster)
    kbackup, _ = pair
    before = _state(cluster)

    plan = kbackup("restore", "plan", *words, "--json")
    run = kbackup.json("restore", *words, expect=4)

    assert code in {error["code"] for error in run.summary["errors"]}
    assert before == _state(cluster)
    assert 4 == plan.code


# -- audits, giants ------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["added", "deleted"])
def test_the_audit_notices_what_others_do_to_the_target(
    change: str, cluster: TestCluster, large: Large
) -> None:
    """
    Records that somebody adds or deletes while a restore runs are exit 7.
    """
    target = f"{change}_to_{large.topic}"

    with running(large.kbackup, *large.restore(f"{change}_to_")) as command:
        where = _first_written(command)
        if change == "added":
            cluster.write(target, [Record(b"stranger", b"in town")], where)
        else:
            cluster.delete_records(target, {where: 10})
        run = command.finish(300)

    assert 7 == run.code, run.stdout
    assert [("audit", where)] == [(e["code"], e["partition"]) for e in run.summary["errors"]]


def _first_written(command: Running) -> int:
    """Wait for a commit; return its partition."""

    def written() -> list[int]:
        return [line["partition"] for line in command.of("progress") if line["records"]]

    wait_until(written, "a commit")
    return written()[0]


def _with_a_giant() -> list[Record]:
    giant = Record(b"giant", random.Random(3).randbytes(50_000))
    return [*varied(200), giant, *varied(200, seed=1)]


def test_a_record_too_large_for_the_target_stops_in_front_of_it(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """
    The error names record, size and limit; once the limit is raised the same command goes on.
    """
    cluster.create(topic)
    cluster.write(topic, _with_a_giant())
    kbackup.json("sink", "-t", topic)
    target = cluster.create(f"small_{topic}", max_message_bytes="20000")

    failed = kbackup.json("restore", "--rename", "small_$0", expect=1)
    partial = cluster.read(target)
    cluster.configure(target, max_message_bytes="1000000")
    ended(kbackup, "restore", "--rename", "small_$0")

    (error,) = failed.summary["errors"]
    assert "offset 200" in error["what"]
    assert all(text in error["why"] for text in ("bytes", "limit"))
    assert "max.message.bytes" in error["do"]
    assert _with_a_giant()[: len(partial)] == partial
    assert _with_a_giant() == cluster.read(target)


def test_a_record_too_large_for_the_target_can_be_left_out(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """
    With behavior.on.error=log it is counted, exit 3, and all the others are there.
    """
    cluster.create(topic)
    cluster.write(topic, _with_a_giant())
    kbackup.json("sink", "-t", topic)
    target = cluster.create(f"small_{topic}", max_message_bytes="20000")

    run = kbackup.json("restore", "--rename", "small_$0", "--behavior-on-error", "log", expect=3)

    assert ({"bad_records": 1}, 400) == (run.summary["skipped"], run.summary["records"])
    assert [record for record in _with_a_giant() if record.key != b"giant"] == cluster.read(target)
