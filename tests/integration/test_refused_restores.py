"""What a restore refuses, what its audit notices, and records too large for the target."""

import random
from collections.abc import Callable
from typing import Any, Final

import psutil
import pyarrow as pa
import pytest
from s3fault import Fault, S3Faults

from tests.fault.test_parquet_bombs import large_headers
from tests.integration.product import LocalS3
from tests.support.backup import Backup
from tests.support.cluster import Record, TestCluster, varied
from tests.support.command import Kbackup, places
from tests.support.encoded import ZSTD, sealed, varint
from tests.support.in_process import WITHOUT_SPARK, InProcess
from tests.support.large import Large
from tests.support.running import Running, ended, running, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.in_process]


@pytest.fixture(scope="session")
def pair(s3: LocalS3, cluster: TestCluster) -> tuple[Kbackup, tuple[str, str]]:
    """A backup of two topics of two partitions, the second one with old records."""
    topics = ("refused-one", "refused-two")
    for topic in topics:
        cluster.create(topic, 2)
        for partition in range(2):
            cluster.write(topic, varied(100, partition), partition)
    s3.create_bucket("refused")
    kbackup = InProcess(places(cluster.servers, s3, "refused"), WITHOUT_SPARK)
    kbackup.json("sink", "-t", ",".join(topics))
    return kbackup, topics


def _state(cluster: TestCluster) -> dict[str, list[tuple[int, int]]]:
    """What each topic holds; Kafka's own are left out."""
    topics = cluster.admin.list_topics(timeout=30).topics
    return {
        name: [cluster.ends(name, partition) for partition in topic.partitions]
        for name, topic in topics.items()
        if not name.startswith("__") and "refused" in name
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
    """Exit 4 says why, one refused topic stops all, and no topic is made or written to."""
    if prepare is not None:
        prepare(cluster)
    kbackup, _ = pair
    before = _state(cluster)

    plan = kbackup("restore", "plan", *words, "--json")
    run = kbackup.json("restore", *words, expect=4)

    assert code in {error["code"] for error in run.summary["errors"]}
    assert before == _state(cluster)
    assert 4 == plan.code


@pytest.mark.parametrize("change", ["added", pytest.param("deleted", marks=pytest.mark.nightly)])
def test_the_audit_notices_what_others_do_to_the_target(
    change: str, cluster: TestCluster, proxy: S3Faults, large: Large
) -> None:
    """Records that somebody adds or deletes while a restore runs are exit 7."""
    target = f"{change}_to_{large.topic}"
    proxy.faults = [Fault("GET .*/topics/", "delay", after=12, seconds=2)]  # it does not end
    slow = large.in_one_process().kbackup.with_environment(KBACKUP_STORE_URL=proxy.url)

    with running(slow, *large.restore(f"{change}_to_")) as command:
        where = _first_written(command)
        if change == "added":
            cluster.write(target, [Record(b"stranger", b"in town")], where)
        else:
            cluster.delete_records(target, {where: 10})
        proxy.faults = []
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


@pytest.fixture
def small(kbackup: Kbackup, cluster: TestCluster, topic: str) -> str:
    """A target, for the backup of a topic with a record that is too large for it."""
    cluster.create(topic)
    cluster.write(topic, _with_a_giant())
    kbackup.json("sink", "-t", topic)
    return cluster.create(f"small_{topic}", max_message_bytes="20000")


def test_a_record_too_large_for_the_target_stops_in_front_of_it(
    kbackup: Kbackup, cluster: TestCluster, small: str
) -> None:
    """The error names record, size and limit; once the limit is raised the same command goes on."""
    failed = kbackup.json("restore", "--rename", "small_$0", expect=1)
    partial = cluster.read(small)
    cluster.configure(small, max_message_bytes="1000000")
    ended(kbackup, "restore", "--rename", "small_$0")

    (error,) = failed.summary["errors"]
    assert "offset 200" in error["what"]
    assert all(text in error["why"] for text in ("bytes", "limit"))
    assert "max.message.bytes" in error["do"]
    assert _with_a_giant()[: len(partial)] == partial
    assert _with_a_giant() == cluster.read(small)


def test_a_record_too_large_for_the_target_can_be_left_out(
    kbackup: Kbackup, cluster: TestCluster, small: str
) -> None:
    """With behavior.on.error=log it is counted, exit 3, and all the others are there."""
    run = kbackup.json("restore", "--rename", "small_$0", "--behavior-on-error", "log", expect=3)

    assert ({"bad_records": 1}, 400) == (run.summary["skipped"], run.summary["records"])
    assert [record for record in _with_a_giant() if record.key != b"giant"] == cluster.read(small)


ALLOWED: Final = 2**30
"""Bytes that a command may take for its data in this test: as many as its objects become."""


def large_batch() -> bytes:
    """Return a log with a batch whose record has a value of 1 GiB, compressed twice."""
    numbers = (ALLOWED + 20, 0, 0, 0, -1, ALLOWED)  # size, attributes, deltas, key, value
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "zstd") as file:
        file.write(b"".join(map(varint, numbers)))
        for _ in range(ALLOWED // 2**22):
            file.write(bytes(2**22))
    data = sealed(0, packed.getvalue().to_pybytes(), 1, 0, attributes=ZSTD)
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


@pytest.mark.parametrize(
    ("ending", "make"),
    [
        pytest.param("log.zst", large_batch, id="log"),
        pytest.param("zstd.parquet", large_headers, id="parquet", marks=pytest.mark.nightly),
    ],
)
def test_an_object_that_would_fill_the_memory_is_named(
    ending: str, make: Callable[[], bytes], kbackup: Kbackup, backup: Backup, topic: str
) -> None:
    """Commands that meet few bytes which stand for a gigabyte exit 7, with little memory."""
    key = f"topics/{topic}/partition=0/{topic}+0+0000000000.record.{ending}"
    backup.client.put_object(Bucket=backup.bucket, Key=key, Body=make())
    ends = []

    for words in (("verify", "--deep"), ("cat", topic), ("run", "--rename", "copy_of_$0")):
        with running(kbackup, "restore", *words) as command:
            psutil.Process(command.pid).rlimit(psutil.RLIMIT_DATA, (ALLOWED, ALLOWED))
            done = command.finish()
            ends.append((done.code, key in done.stderr))

    assert [(7, True)] * 3 == ends
