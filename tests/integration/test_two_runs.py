"""Two runs at a time: with a lock, without one, and with one that was asleep."""

import signal
import time
from pathlib import Path

import pytest
from s3fault import Fault, S3Faults

from tests.support.backup import Backup
from tests.support.cluster import TestCluster, varied
from tests.support.command import Kbackup
from tests.support.large import Large
from tests.support.running import ended, running, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.one_process]


@pytest.mark.nightly
def test_of_two_runs_the_second_leaves_at_once(
    kbackup: Kbackup, cluster: TestCluster, topic: str, tmp_path: Path
) -> None:
    """Exit 8 within a second or so, whether the lock folder is shared or not, and quiet if told."""
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
    """Safety does not rest on the lock: same keys, same records, no offset ahead of the objects."""
    partitions = 2
    cluster.create(topic, partitions)
    written = {p: varied(6_000, p) for p in range(partitions)}
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
    """Stopped, and woken when all is done: it changes nothing, and exits 1, or 5 after long."""
    cluster.create(topic)
    records = varied(12_000)
    cluster.write(topic, records)
    words = ("sink", "-t", topic, "--flush-size", "200", "--no-lock")
    # It falls asleep with an upload open.  Stopped between the look at the group's position and
    # its own commit, it would move the group back and do all of it again: Kafka cannot compare.
    puts = "PUT /[^/]+/topics/"
    proxy.faults = [Fault(puts, "delay", after=3, seconds=5)]
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
    assert [12_000] == cluster.committed(other.summary["group"], topic)
    assert records == backup.records(topic)


@pytest.mark.parametrize("name", ["large", "large_in_batches"])
def test_a_restore_that_was_asleep_while_another_did_its_work_is_fenced(
    name: str, cluster: TestCluster, proxy: S3Faults, request: pytest.FixtureRequest
) -> None:
    """Who takes over aborts what the sleeper had begun; woken up, it writes nothing any more."""
    large = request.getfixturevalue(name)
    assert isinstance(large, Large)
    proxy.faults = [Fault("GET .*/topics/", "delay", after=16, seconds=5)]  # it does not end
    slow = large.in_one_process().kbackup.with_environment(KBACKUP_STORE_URL=proxy.url)
    words = (*large.restore("zombie_of_", by_batches=large.is_noise), "--no-lock")

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
