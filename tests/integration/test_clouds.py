"""A backup in Azure Blob Storage and in Google Cloud Storage, in their emulators, by night."""

import random
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.test_encryption import new_key
from tests.integration.test_standby import copied, restored
from tests.support.cluster import Record, TestCluster, varied
from tests.support.command import Kbackup
from tests.support.emulators import BY_NIGHT, Emulator
from tests.support.killing import KILLS, kill_somewhen
from tests.support.large import LZ4, large_records, write_large
from tests.support.running import ended, running, wait_until
from tests.support.waits import shorter

pytestmark = [pytest.mark.integration, *BY_NIGHT]

BACK = ("restore", "--rename", "copy_of_$0")


@dataclass(frozen=True)
class Cloud:
    """One of the two, and kbackup with an empty store in it."""

    emulator: Emulator
    kbackup: Kbackup


@pytest.fixture(params=["azurite", "fake_gcs"])
def cloud(request: pytest.FixtureRequest, kbackup: Kbackup) -> Cloud:
    emulator: Emulator = request.getfixturevalue(request.param)
    return Cloud(emulator, _in(kbackup, emulator.place()))


def _in(kbackup: Kbackup, place: str) -> Kbackup:
    # the smallest parts, so that some objects have several
    return kbackup.with_environment(
        KBACKUP_STORE_URL=place, KBACKUP_S3_BUCKET_NAME="", KBACKUP_S3_PART_SIZE="5242880"
    )


def _pair(cloud: Cloud, folder: Path, *, is_encrypted: bool) -> tuple[Kbackup, Kbackup]:
    """Return what stores, and cannot read it again where it encrypts, and what reads."""
    if not is_encrypted:
        return cloud.kbackup, cloud.kbackup
    public = [new_key(folder / f"{name}.pem") for name in ("one", "two")]
    return cloud.kbackup.with_environment(
        KBACKUP_ENCRYPTION_RECIPIENTS=",".join(public),
        KBACKUP_ENCRYPTION_KEY_FILE=str(folder / "backup.key"),
    ), cloud.kbackup.with_environment(KBACKUP_ENCRYPTION_IDENTITY_FILE=str(folder / "one.pem"))


@pytest.fixture
def records(cluster: TestCluster, topic: str) -> list[list[Record]]:
    """What two partitions of the topic hold: an object has several parts."""
    cluster.create(topic, 2)
    write_large(cluster, topic, 2, 800, is_noise=True)
    return [large_records(partition, 800, is_noise=True) for partition in range(2)]


def _copies(cluster: TestCluster, topic: str) -> list[list[Record]]:
    return [cluster.read(f"copy_of_{topic}", partition) for partition in range(2)]


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("form", "is_encrypted"),
    [pytest.param("parquet", False, id="plain"), pytest.param("log", True, id="encrypted")],
)  # the other two are stored in S3 and in a folder: test_encryption.py
def test_what_was_stored_comes_back(
    cloud: Cloud,
    cluster: TestCluster,
    topic: str,
    records: list[list[Record]],
    tmp_path: Path,
    form: str,
    is_encrypted: bool,
) -> None:
    """Stored, stored again, checked by content, restored: with objects in several parts."""
    sink, reader = _pair(cloud, tmp_path, is_encrypted=is_encrypted)
    format_ = ("--format", form) if form == "log" else ()

    done = sink.json("sink", "-t", topic, *format_)
    again = sink.json("sink", "-t", topic, *format_)
    reader.json(*BACK, "-t", topic, *LZ4)
    checks = [
        reader("restore", "verify", *words, "--json").code
        for words in ((), ("--deep",), ("--against", "source"))
    ]
    status = sink("sink", "status", "--json").code

    assert (1600, 0) == (done.summary["records"], again.summary["records"])
    assert records == _copies(cluster, topic)
    assert [0, 0, 0, 0] == [*checks, status]


@pytest.mark.in_process
def test_what_a_cloud_cannot_do_is_named(cloud: Cloud, cluster: TestCluster, topic: str) -> None:
    """It is exit 2, before anything is stored, or asked for."""
    cluster.create(topic)
    cluster.write(topic, varied(10))
    options = (
        ("--s3-object-lock-mode", "COMPLIANCE", "--s3-object-lock-days", "1"),
        ("--s3-storage-class", "GLACIER"),
        ("--s3-acl-canned", "private"),
    )

    refused = [cloud.kbackup("sink", "-t", topic, *words) for words in options]
    cloud.kbackup.json("sink", "-t", topic)
    refused.append(cloud.kbackup("restore", "thaw"))
    refused.append(cloud.kbackup("sink", "abort-uploads"))

    assert [2] * 5 == [one.code for one in refused]
    for one, (name, *_) in zip(refused[:3], options, strict=True):
        assert name[2:].replace("-", ".") in one.stderr + one.stdout


@pytest.mark.one_process
@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])
def test_a_sink_that_is_killed_again_and_again_loses_nothing(
    cloud: Cloud, cluster: TestCluster, topic: str, tmp_path: Path, is_encrypted: bool
) -> None:
    """The last run ends it: all is there once, and comes back."""
    sink, reader = _pair(cloud, tmp_path, is_encrypted=is_encrypted)
    cluster.create(topic, 2)
    written = [varied(20_000, seed) for seed in range(2)]
    for partition, some in enumerate(written):
        cluster.write(topic, some, partition)
    chance, words = random.Random(7), ("sink", "-t", topic, "--flush-size", "500")
    for _ in range(KILLS):
        with running(sink, *words) as command:
            kill_somewhen(command, chance, lambda: command.of("object"))

    ended(sink, *words)
    verified = reader.json("restore", "verify", "--deep")
    reader.json(*BACK, "-t", topic)

    assert [] == verified.of("finding")
    assert written == _copies(cluster, topic)


@pytest.mark.one_process
def test_a_standby_follows(cloud: Cloud, cluster: TestCluster, topic: str, tmp_path: Path) -> None:
    """One stores as records come, another puts them back; the one that restores is killed once."""
    pair = _pair(cloud, tmp_path, is_encrypted=True)  # which needs more of a store
    stores, restores = (one.with_environment(**shorter(NEWCOMERS_S=1)) for one in pair)
    cluster.create(topic)
    written: dict[tuple[str, int], list[Record]] = {(topic, 0): []}

    def write(count: int) -> None:
        at = len(written[topic, 0])
        fresh = [Record(b"k", b"v%d" % number) for number in range(at, at + count)]
        cluster.write(topic, fresh)
        written[topic, 0] += fresh

    back = (*BACK, "-t", topic, "--follow", "--s3-poll-interval-ms", "200")
    with running(
        stores, "sink", "-t", topic, "--follow", "--flush-size", "25", "--rotate-idle-ms", "300"
    ) as sink:
        write(60)
        sink.wait_for("object", 1)  # before that an encrypted backup has no keys: exit 2
        with running(restores, *back) as first:
            wait_until(lambda: restored(first, written), "what was written first")
            write(200)
            first.wait_for("progress", len(first.of("progress")) + 1)
            first.kill_group()
        with running(restores, *back) as second:
            write(40)
            wait_until(lambda: copied(cluster, written), "the rest")
            second.signal(signal.SIGTERM)
            assert 143 == second.finish().code
        sink.signal(signal.SIGTERM)
        assert 143 == sink.finish().code

    found = cluster.read(f"copy_of_{topic}")
    assert [one.value for one in written[topic, 0]] == [one.value for one in found]


@pytest.mark.in_process
def test_a_backup_in_s3_is_copied_there(
    cloud: Cloud, kbackup: Kbackup, cluster: TestCluster, topic: str, records: list[list[Record]]
) -> None:
    """From S3 into the cloud, from the copy to another of it, and from there into Kafka."""
    one, two = cloud.emulator.place(), cloud.emulator.place()
    kbackup.json("sink", "-t", topic, "--flush-size", "500")  # 10 MB an object

    sent = kbackup.json("sink", "copy", "--to", one)
    again = kbackup.json("sink", "copy", "--to", one)
    _in(kbackup, one).json("sink", "copy", "--to", two)
    there = _in(kbackup, two)
    verified = there.json("restore", "verify", "--deep")
    there.json(*BACK, "-t", topic, *LZ4)

    assert (4, 0) == (sent.summary["sent"], again.summary["sent"])
    assert [] == verified.of("finding")
    assert records == _copies(cluster, topic)


def test_workers_of_spark_reach_it(
    cloud: Cloud, cluster: TestCluster, topic: str, records: list[list[Record]]
) -> None:
    """Workers are forked, and each has threads of obstore's own."""
    cloud.kbackup.json("sink", "-t", topic, "--flush-size", "500")
    cloud.kbackup.json(*BACK, "-t", topic, *LZ4)
    cloud.kbackup.json("doctor", "--write-probe")
    rows = cloud.kbackup.json("restore", "query", f"SELECT count(*) AS n FROM `{topic}`")

    assert records == _copies(cluster, topic)
    assert "1600" in rows.stdout
