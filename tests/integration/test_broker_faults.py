"""A cluster that is away: reported in time, waited for, and gone on with."""

import os
import signal
import time

import pytest
from s3fault import Fault, S3Faults

from tests.integration.product import LocalS3, free_ports, start_kafka
from tests.support.backup import Backup
from tests.support.cluster import TestCluster
from tests.support.command import Kbackup
from tests.support.large import back_up_large
from tests.support.running import running
from tests.support.waits import shorter

pytestmark = [pytest.mark.integration, pytest.mark.one_process]

QUICK = ("--kafka-timeout", "6s")


@pytest.mark.parametrize(
    "words", [("sink", "-t", "orders"), ("restore", "run")], ids=["sink", "restore"]
)
def test_no_broker_is_said_within_the_timeout(words: tuple[str, ...], kbackup: Kbackup) -> None:
    """An unreachable broker is exit code 5, by its address, no later than --kafka-timeout."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    begin = time.monotonic()

    run = kbackup.json(*words, "-k", address, "--kafka-timeout", "2s", expect=5)

    assert time.monotonic() - begin < 60  # three seconds on a quiet machine
    assert address in run.summary["errors"][0]["what"]
    assert "Connection refused" in run.summary["errors"][0]["why"]


def test_a_host_that_is_unknown_is_said(kbackup: Kbackup) -> None:
    """An unknown host and a broker that is down get different remedies."""
    run = kbackup.json(
        "sink", "-t", "orders", "-k", "no-such.invalid:9092", "--kafka-timeout", "2s", expect=5
    )

    assert "resolve 'no-such.invalid:9092'" in run.summary["errors"][0]["why"]


@pytest.mark.nightly
def test_a_broker_that_dies_and_comes_back_is_waited_for(s3: LocalS3) -> None:
    """Killed and started again in the middle: all end well, each record is delivered once."""
    partitions, count = 2, 3000
    with start_kafka() as broker:
        cluster = TestCluster(broker.bootstrap_servers)
        big = back_up_large(
            cluster, s3, "broker-dies", partitions, count, "--format", "log", is_noise=True
        ).in_one_process()
        ends = []
        for prefix, by_batches in (("records_of_", False), ("batches_of_", True)):
            words = big.restore(prefix, by_batches=by_batches)
            with running(big.kbackup, *words) as restore:
                restore.wait_for("progress")
                broker.kill()
                broker.restart()
                restored = restore.finish(300)
            ends.append((restored.code, restored.summary["errors"]))
            as_stored = restored.summary.get("as_stored") or 0
            assert by_batches == (as_stored > 0)
            assert big.restored(cluster, prefix + big.topic)

        for form in ("parquet", "log"):
            s3.create_bucket(bucket := f"broker-dies-again-{form}")
            other = big.kbackup.with_environment(KBACKUP_S3_BUCKET_NAME=bucket)
            words = ("--flush-size", "100", "--view", "record", "--format", form)
            with running(other, "sink", "-t", big.topic, *words) as sink:
                sink.wait_for("object", 3)
                broker.kill()
                broker.restart()
                stored = sink.finish(300)
            ends.append((stored.code, stored.summary["errors"]))
            backup = Backup(s3, bucket)
            for partition in range(partitions):
                assert big.records(partition) == backup.records(big.topic, partition)

        assert [(0, [])] * 4 == ends


@pytest.mark.nightly
def test_a_broker_that_stays_away_ends_both_and_the_next_runs_go_on(
    s3: LocalS3, proxy: S3Faults
) -> None:
    """Frozen in the middle: exit 5, nothing half done or twice, and a sink that follows ends."""
    with start_kafka() as broker:
        cluster = TestCluster(broker.bootstrap_servers)
        big = back_up_large(cluster, s3, "broker-stays-away", 1, 4000).in_one_process()
        s3.create_bucket("broker-stays-away-again")
        other = big.kbackup.with_environment(KBACKUP_S3_BUCKET_NAME="broker-stays-away-again")
        proxy.faults = [  # neither ends before the other one is in its middle
            Fault("PUT /broker-stays-away-again/topics/", "delay", after=5, seconds=4),
            Fault("GET /broker-stays-away/topics/", "delay", after=2, seconds=4),
        ]
        patience = shorter(PATIENCE_S=6)
        slow = {"KBACKUP_STORE_URL": proxy.url, **patience}
        sinks, restores = other.with_environment(**slow), big.kbackup.with_environment(**slow)
        sink_words = ("sink", "-t", big.topic, "--flush-size", "100", "--group", "again", *QUICK)
        restore_words = (*big.restore("copy_of_"), *QUICK)
        follows = big.kbackup.with_environment(**patience)
        follow_words = ("sink", "-t", big.topic, "--follow", "--group", "follows", "--no-lock")
        with (
            running(follows, *follow_words, *QUICK) as follow,
            running(sinks, *sink_words) as sink,
            running(restores, *restore_words) as restore,
        ):
            follow.wait_for("start")
            sink.wait_for("object", 3)
            restore.wait_for("progress")
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
