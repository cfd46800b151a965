"""``kill -9`` at any moment: nothing is lost, nothing stands twice, no half object is seen."""

import functools
import itertools
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kbackup.local import LocalS3
from kbackup.local.kafka import LocalKafka
from tests.support.backup import Backup, StoredFile
from tests.support.cluster import Record, TestCluster, varied
from tests.support.command import Kbackup
from tests.support.large import Large
from tests.support.running import Running, ended, running, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.crash]

PARTITIONS = 4
KILLS = 5
"""In each of four tests a direction."""

SINK = ("--flush-size", "500")
"""Many cuts: the working phase takes seconds."""

_NUMBER = itertools.count()


def _kill_somewhen(command: Running, chance: random.Random, at_work: Callable[[], object]) -> bool:
    """Kill the whole group at a random moment; False where it was over before.

    One kill in four comes while Spark starts, one at the first sign of work, the others later.
    """
    kind = chance.choice(("start", "first sign", "work", "work"))
    if kind == "start":
        wait_s = chance.uniform(0.5, 6)
    else:
        wait_until(lambda: command.is_over or at_work(), "work")
        wait_s = chance.uniform(0, 0.1) if kind == "first sign" else chance.expovariate(1.0)
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline and not command.is_over:
        time.sleep(0.005)
    if command.is_over:
        return False
    command.kill_group()
    return True


# -- sink ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """What a run without faults leaves of a topic."""

    topic: str
    written: dict[int, list[Record]]
    files: dict[str, StoredFile]


@pytest.fixture(scope="module")
def reference(kafka: LocalKafka, s3: LocalS3, cluster: TestCluster) -> Reference:
    """A topic, and the objects that one undisturbed run makes of it."""
    topic = "crash-source"
    cluster.create(topic, PARTITIONS)
    written = {p: varied(20_000 + 100 * p, p) for p in range(PARTITIONS)}
    for partition, records in written.items():
        cluster.write(topic, records, partition)
    bucket = "crash-reference"
    s3.create_bucket(bucket)
    ended(_kbackup(kafka, s3, bucket), "sink", "-t", topic, *SINK)
    backup = Backup(s3, bucket)
    for partition, records in written.items():
        assert records == backup.records(topic, partition)
    return Reference(topic, written, backup.files())


def _kbackup(kafka: LocalKafka, s3: LocalS3, bucket: str) -> Kbackup:
    return Kbackup(
        {
            "KBACKUP_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "KBACKUP_STORE_URL": s3.endpoint_url,
            "KBACKUP_S3_BUCKET_NAME": bucket,
            **s3.environment,
        }
    )


def _facts(files: dict[str, StoredFile]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {key: (file.sha256, file.offsets) for key, file in files.items()}


@pytest.mark.parametrize("seed", range(4))
def test_a_sink_killed_again_and_again_loses_nothing_and_cuts_the_same(
    seed: int,
    kafka: LocalKafka,
    s3: LocalS3,
    cluster: TestCluster,
    reference: Reference,
    tmp_path: Path,
) -> None:
    """
    After each kill every visible object is whole, all below the committed offset is stored, no
    more was shown as safe and the summary file is whole; the last run leaves exactly the objects
    of a run without faults.
    """
    chance = random.Random(seed)
    topic, expected = reference.topic, _facts(reference.files)
    summary = tmp_path / "summary.json"
    words = ("sink", "-t", topic, *SINK, "--summary-file", str(summary))
    kills = 0
    while kills < KILLS:
        bucket = f"crash-sink-{next(_NUMBER)}"
        s3.create_bucket(bucket)
        kbackup, backup = _kbackup(kafka, s3, bucket), Backup(s3, bucket)
        group = kbackup.json("sink", "plan", "-t", topic).summary["group"]
        while kills < KILLS:
            with running(kbackup, *words) as command:
                if not _kill_somewhen(command, chance, lambda: command.of("object")):
                    assert 0 == command.finish().code
                    break
                kills += 1
                command.leave_nothing()
            seen = _facts(backup.files())
            assert seen.items() <= expected.items()
            assert not summary.exists() or json.loads(summary.read_text())["type"] == "summary"
            committed = cluster.committed(group, topic, range(PARTITIONS))
            assert _shows_what_is_safe(command, committed)
            for partition, offset in enumerate(committed):
                below = {
                    key
                    for key, file in reference.files.items()
                    if file.partition == partition and file.start < offset
                }
                assert below <= seen.keys()
        else:
            ended(kbackup, *words)
        assert expected == _facts(backup.files())
        assert 0 == json.loads(summary.read_text())["exit_code"]
        summary.unlink()


def _shows_what_is_safe(command: Running, committed: list[int]) -> bool:
    """Whether no progress line went beyond what is committed."""
    return all(
        line["committed"] is None or line["committed"] <= max(0, committed[line["partition"]])
        for line in command.of("progress")
    )


# -- restore -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_restore_killed_again_and_again_delivers_every_record_once(
    seed: int, cluster: TestCluster, large: Large
) -> None:
    """
    However often it was killed, the same command goes on, and a reader of committed records sees
    each of them once, in order.
    """
    chance = random.Random(seed)
    kills = 0
    while kills < KILLS:
        prefix = f"crash_{next(_NUMBER)}_of_"
        words = large.restore(prefix)
        target = f"{prefix}{large.topic}"
        while kills < KILLS:
            with running(large.kbackup, *words) as command:
                before = cluster.end_offsets(target)
                moved = functools.partial(_has_moved, cluster, target, before)
                if not _kill_somewhen(command, chance, moved):
                    assert 0 == command.finish().code, command.finish()
                    break
                kills += 1
                command.leave_nothing()
            for start in command.of("start"):
                committed = cluster.committed(start["group"], target, range(large.partitions))
                assert _shows_what_is_safe(command, committed)
        else:
            ended(large.kbackup, *words)
        assert large.restored(cluster, target)
        cluster.delete(target)


def _has_moved(cluster: TestCluster, topic: str, before: list[int]) -> bool:
    return sum(cluster.end_offsets(topic)) != sum(before)


# -- parts of a run ------------------------------------------------------------------------------


def test_a_sink_outlives_its_python_workers(
    kafka: LocalKafka, s3: LocalS3, cluster: TestCluster, reference: Reference
) -> None:
    """
    Killed workers are replaced within the run: it ends with 0, its objects are those of a run
    without faults, and it counts each record once.
    """
    bucket = f"crash-worker-{next(_NUMBER)}"
    s3.create_bucket(bucket)
    kbackup = _kbackup(kafka, s3, bucket)

    with running(kbackup, "sink", "-t", reference.topic, *SINK) as command:
        command.wait_for("object", 20)
        killed = _kill_workers(command)
        result = command.finish()

    assert (0, True) == (result.code, killed > 0), result.stdout
    assert _facts(reference.files) == _facts(Backup(s3, bucket).files())
    assert sum(map(len, reference.written.values())) == result.summary["records"]
    assert len(reference.files) == result.summary["objects"]
    group = result.summary["group"]
    ends = [len(records) for records in reference.written.values()]
    assert ends == cluster.committed(group, reference.topic, range(PARTITIONS))


def test_a_restore_outlives_its_python_workers(cluster: TestCluster, large: Large) -> None:
    """
    Killed workers are replaced within the run: their open transactions are aborted, the retries
    go on where these began, and the run ends with 0 and counts each record once.
    """
    prefix = f"crash_{next(_NUMBER)}_of_"

    with running(large.kbackup, *large.restore(prefix)) as command:
        command.wait_for("progress", 2)
        killed = _kill_workers(command)
        result = command.finish()

    assert (0, True) == (result.code, killed > 0), result.stdout
    assert large.partitions * large.count == result.summary["records"]
    assert large.restored(cluster, f"{prefix}{large.topic}")


def _kill_workers(command: Running) -> int:
    """Kill the Python workers of Spark; return how many there were."""
    workers = command.workers()
    for worker in workers:
        worker.kill()
    return len(workers)


def test_a_dead_driver_of_a_sink_leaves_no_orphans(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """
    When only the driver is killed, its JVM and its Python workers end by themselves.
    """
    cluster.create(topic, 2)
    cluster.write(topic, varied(100))

    with running(kbackup, "sink", "-t", topic, "--follow") as command:
        wait_until(command.workers, "a Python worker")
        command.process.kill()
        command.process.wait()

        command.leave_nothing()


def test_a_dead_driver_of_a_restore_leaves_no_orphans(large: Large) -> None:
    """
    A worker in the middle of a transaction ends with its driver.
    """
    with running(large.kbackup, *large.restore("orphan_of_")) as command:
        command.wait_for("progress")
        command.process.kill()
        command.process.wait()

        command.leave_nothing()
