"""A signal stops a run cleanly: what is safe is committed, and the next run goes on."""

import itertools
import signal
import time
from dataclasses import replace

import pytest
from s3fault import Fault, S3Faults

from tests.support.backup import Backup
from tests.support.cluster import TestCluster, varied
from tests.support.command import Kbackup
from tests.support.in_process import in_one_process
from tests.support.large import Large
from tests.support.running import Running, ended, running, wait_until

pytestmark = pytest.mark.integration

_NUMBER = itertools.count()
NIGHTLY = pytest.mark.nightly
PARTITIONS = 2
SMALL = ("--flush-size", "300")


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
        pytest.param(signal.SIGINT, 130, id="SIGINT", marks=NIGHTLY),
        pytest.param(signal.SIGHUP, 143, id="SIGHUP is SIGTERM", marks=NIGHTLY),
    ],
)
def test_a_stopped_sink_says_what_is_safe_and_the_next_run_goes_on(
    number: int,
    code: int,
    kbackup: Kbackup,
    cluster: TestCluster,
    proxy: S3Faults,
    backup: Backup,
    topic: str,
) -> None:
    """After a signal the summary agrees with group and bucket, and the next run completes it."""
    cluster.create(topic, PARTITIONS)
    written = {p: varied(20_000, p) for p in range(PARTITIONS)}
    for partition, records in written.items():
        cluster.write(topic, records, partition)

    proxy.faults = [Fault("PUT /[^/]+/topics/", "delay", after=8, seconds=2)]  # it does not end
    slow = kbackup.with_environment(KBACKUP_STORE_URL=proxy.url)

    with running(slow, "sink", "-t", topic, *SMALL) as command:
        command.wait_for("object", 5)
        command.signal(number)
        stopped = command.finish()
        command.leave_nothing()
    stored = [len(backup.records(topic, partition)) for partition in range(PARTITIONS)]
    group = stopped.summary["group"]
    committed = cluster.committed(group, topic, range(PARTITIONS))
    rest = ended(in_one_process(kbackup), "sink", "-t", topic, *SMALL)

    assert (code, "stopped") == (stopped.code, stopped.summary["result"])
    assert code == stopped.summary["exit_code"]
    assert stored == [max(0, offset) for offset in committed]
    assert stored == [row["committed"] for row in stopped.summary["partitions"]]
    assert 5 * 300 <= sum(stored) == stopped.summary["records"]
    assert sum(stored) + rest.summary["records"] == sum(map(len, written.values()))
    for partition, records in written.items():
        assert records == backup.records(topic, partition)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGTERM, 143, id="SIGTERM", marks=NIGHTLY),
        pytest.param(signal.SIGINT, 130, id="SIGINT", marks=NIGHTLY),
        pytest.param(signal.SIGINT, 130, id="SIGINT without Spark", marks=pytest.mark.one_process),
    ],
)
def test_a_stopped_restore_goes_on_and_delivers_every_record_once(
    number: int,
    code: int,
    kbackup: Kbackup,
    cluster: TestCluster,
    proxy: S3Faults,
    large: Large,
) -> None:
    """After a signal what the summary counts is in the target; the next run adds the rest, once."""
    proxy.faults = [Fault("GET .*/topics/", "delay", after=16, seconds=5)]  # it does not end
    slow = replace(large.kbackup, module=kbackup.module).with_environment(
        KBACKUP_STORE_URL=proxy.url
    )
    prefix = f"signal_{next(_NUMBER)}_of_"
    words, target = large.restore(prefix), f"{prefix}{large.topic}"
    whole = large.partitions * large.count

    with running(slow, *words) as command:
        command.wait_for("progress")
        command.signal(number)
        stopped = command.finish()
        command.leave_nothing()
    safe = sum(len(cluster.read(target, partition)) for partition in range(large.partitions))
    proxy.faults = []
    rest = ended(in_one_process(slow), *words)

    assert (code, "stopped") == (stopped.code, stopped.summary["result"])
    assert safe == stopped.summary["records"] < whole
    assert whole == stopped.summary["records"] + rest.summary["records"]
    assert large.restored(cluster, target)


@pytest.fixture
def hanging(kbackup: Kbackup, cluster: TestCluster, proxy: S3Faults, topic: str) -> Kbackup:
    """The command, before a topic of 1,000 records and an S3 that takes none of its objects."""
    cluster.create(topic)
    cluster.write(topic, varied(1000))
    proxy.faults = [Fault(f"PUT .*topics/{topic}", "hang", seconds=90)]
    return kbackup.with_environment(KBACKUP_STORE_URL=proxy.url)


def test_an_upload_that_hangs_does_not_keep_a_stopped_run(
    hanging: Kbackup, proxy: S3Faults, backup: Backup, topic: str
) -> None:
    """Where S3 accepts a request and never answers, a signal ends the run within --stop-timeout."""
    with running(hanging, "sink", "-t", topic, "--stop-timeout", "2s") as command:
        wait_until(lambda: proxy.seen(f"PUT .*topics/{topic}"), "an upload")
        command.signal(signal.SIGTERM)
        begin = time.monotonic()
        stopped = command.finish()
        seconds = time.monotonic() - begin
        command.leave_nothing()

    assert (143, 143) == (stopped.code, stopped.summary["exit_code"])
    assert seconds < 30  # three on a quiet machine
    assert {} == backup.files()


def test_a_second_signal_ends_at_once(
    hanging: Kbackup, proxy: S3Faults, backup: Backup, topic: str
) -> None:
    """A second signal ends a run at once, and the next run stores what was left."""
    with running(hanging, "sink", "-t", topic, "--stop-timeout", "10m") as command:
        wait_until(lambda: proxy.seen(f"PUT .*topics/{topic}"), "an upload")
        command.signal(signal.SIGTERM)
        time.sleep(0.5)
        is_waiting = not command.is_over
        begin = time.monotonic()
        # two signals at the same time are one: whoever is impatient asks until it helps
        wait_until(
            lambda: command.is_over or command.signal(signal.SIGTERM),
            "the end",
        )
        stopped = command.finish()
        seconds = time.monotonic() - begin
        command.leave_nothing()
    proxy.faults = []
    ended(in_one_process(hanging), "sink", "-t", topic)

    assert (True, 143) == (is_waiting, stopped.code)
    assert seconds < 60
    assert varied(1000) == backup.records(topic)


@pytest.mark.one_process
def test_a_sink_that_follows_writes_full_files_and_short_ones_of_a_quiet_topic(
    kbackup: Kbackup, cluster: TestCluster, backup: Backup, topic: str
) -> None:
    """New records are picked up; too few for a file, they wait --rotate-idle-ms, no longer."""
    cluster.create(topic)
    records = varied(1000)
    cluster.write(topic, records[:700])
    words = ("sink", "-t", topic, "--follow", "--flush-size", "500", "--rotate-idle-ms", "1000")

    with running(kbackup, *words) as command:
        command.wait_for("object", 2)
        cluster.write(topic, records[700:703])
        command.wait_for("object", 3)
        cluster.write(topic, records[703:])
        command.wait_for("object", 4)
        wait_until(lambda: len(backup.records(topic)) == 1000, "the last record")
        command.signal(signal.SIGTERM)
        stopped = command.finish()
        command.leave_nothing()

    assert (143, 1000) == (stopped.code, stopped.summary["records"])
    assert records == backup.records(topic)
    assert [1000] == cluster.committed(stopped.summary["group"], topic)
    assert (500, 200) == tuple(line["records"] for line in stopped.of("object")[:2])


@pytest.mark.nightly
@pytest.mark.one_process
def test_a_sink_that_follows_leaves_a_tail_that_is_not_due_to_the_next_run(
    kbackup: Kbackup, cluster: TestCluster, backup: Backup, topic: str
) -> None:
    """At a stop only what is stored is committed; the next run begins with the records left."""
    cluster.create(topic)
    cluster.write(topic, varied(700))
    words = ("sink", "-t", topic, "--flush-size", "500")

    with running(kbackup, *words, "--follow", "--rotate-idle-ms", "600000") as command:
        command.wait_for("object")
        wait_until(lambda: cluster.committed(_group_of(command), topic) == [500], "the commit")
        command.signal(signal.SIGTERM)
        stopped = command.finish()
    tail = ended(kbackup, *words)

    assert (143, [500]) == (stopped.code, [r["committed"] for r in stopped.summary["partitions"]])
    assert [(500, 699)] == [(line["first"], line["last"]) for line in tail.of("object")]
    assert varied(700) == backup.records(topic)


def _group_of(command: Running) -> str:
    """The consumer group that a running command told of."""
    return str(command.of("start")[0]["group"])
