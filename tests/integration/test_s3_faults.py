"""Whole runs with an S3 that misbehaves: the records are compared at the end."""

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from s3fault import Fault, S3Faults

from tests.integration.product import LocalS3
from tests.support.backup import Backup
from tests.support.cluster import Record, TestCluster, varied
from tests.support.command import Kbackup, places
from tests.support.in_process import InProcess
from tests.support.running import ended

pytestmark = [pytest.mark.integration, pytest.mark.in_process]

RECORDS = {partition: varied(1000 + partition, partition) for partition in range(2)}
CUTS = ("--flush-size", "200")
OBJECTS = 11
BODY = r"GET .*/topics/.*parquet"
TWICE = (1, 2)
"""Of three attempts that a request has."""

_COUNT = itertools.count()


@pytest.fixture
def behind(kbackup: Kbackup, proxy: S3Faults) -> Kbackup:
    """The command, with the proxy for its S3."""
    return kbackup.with_environment(KBACKUP_STORE_URL=proxy.url, KBACKUP_S3_RETRY_BACKOFF_MS="10")


@pytest.fixture
def filled(cluster: TestCluster, topic: str) -> str:
    """A topic of some two thousand records."""
    cluster.create(topic, len(RECORDS))
    for partition, records in RECORDS.items():
        cluster.write(topic, records, partition)
    return topic


@dataclass(frozen=True)
class Stored:
    """A good backup, to be restored through a bad S3."""

    topic: str
    bucket: str

    def restore(self, kbackup: Kbackup) -> tuple[Kbackup, tuple[str, ...], str]:
        """Return the command, its words, and the target of a restore of its own."""
        prefix = f"s3_{next(_COUNT)}_of_"
        words = ("restore", "-t", self.topic, "--rename", f"{prefix}$0")
        here = kbackup.with_environment(KBACKUP_S3_BUCKET_NAME=self.bucket)
        return here, words, f"{prefix}{self.topic}"


@pytest.fixture(scope="session")
def stored(s3: LocalS3, cluster: TestCluster) -> Stored:
    """A backup made without faults."""
    topic = bucket = "s3-faults"
    cluster.create(topic, len(RECORDS))
    for partition, records in RECORDS.items():
        cluster.write(topic, records, partition)
    s3.create_bucket(bucket)
    InProcess(places(cluster.servers, s3, bucket)).json("sink", "-t", topic, *CUTS)
    return Stored(topic, bucket)


def _stored(backup: Backup, topic: str) -> dict[int, list[Record]]:
    return {partition: backup.records(topic, partition) for partition in RECORDS}


def _in_target(cluster: TestCluster, target: str) -> dict[int, list[Record]]:
    return {partition: cluster.read(target, partition) for partition in RECORDS}


def test_requests_that_are_throttled_twice_only_cost_time(
    behind: Kbackup, proxy: S3Faults, cluster: TestCluster, filled: str
) -> None:
    """Two 503s on each kind of request: both runs succeed, and the tasks' retries are logged."""
    proxy.faults = [
        Fault("PUT /[^/]+/topics/", "status", nth=TWICE),
        Fault("HEAD", "status", nth=TWICE),
        Fault("GET .*list-type=2", "status", nth=TWICE),
        Fault(BODY, "status", nth=TWICE),
    ]

    installed = Kbackup(behind.environment)  # whose tasks are workers, with a stderr of their own
    stored = installed.json("sink", "-t", filled, *CUTS)
    behind.json("sink", "-t", filled)  # looks for the last objects
    behind.json("restore", "--rename", "copy_of_$0")

    assert f"/topics/{filled}/" in stored.stderr
    hit = {line.split()[0] for line, done in proxy.log if done == "status"}
    assert {"PUT", "HEAD", "GET"} == hit
    assert 8 == sum(done == "status" for _, done in proxy.log)
    assert RECORDS == _in_target(cluster, f"copy_of_{filled}")


def test_s3_that_throttles_for_ever_ends_the_run_behind_the_last_whole_object(
    behind: Kbackup, proxy: S3Faults, cluster: TestCluster, backup: Backup, filled: str
) -> None:
    """If S3 stays away: exit 6, nothing half done, committed or left, and the next run goes on."""
    proxy.faults = [Fault("PUT /[^/]+/topics/", "status", after=3)]

    installed = Kbackup(behind.environment)  # what a worker, a JVM and Spark may leave is theirs
    failed = ended(installed, "sink", "-t", filled, *CUTS, expect=6)
    safe = _stored(backup, filled)
    committed = cluster.committed(failed.summary["group"], filled, tuple(RECORDS))
    proxy.faults = []
    rest = behind.json("sink", "-t", filled, *CUTS)

    assert 3 * 200 == sum(map(len, safe.values())) == failed.summary["records"]
    assert [len(records) for records in safe.values()] == [max(0, at) for at in committed]
    assert ["store"] == sorted({error["code"] for error in failed.summary["errors"]})
    assert OBJECTS - 3 == rest.summary["objects"]
    assert RECORDS == _stored(backup, filled)


@pytest.mark.parametrize("do", ["reset_after", "status_after"])
def test_lost_answers_to_uploads_leave_one_object_each(
    do: Any, behind: Kbackup, proxy: S3Faults, backup: Backup, filled: str
) -> None:
    """An object whose upload was carried out and not confirmed is recognised as ours."""
    proxy.faults = [Fault("PUT /[^/]+/topics/", do, nth=(1, 4, 9), status=500)]

    run = behind.json("sink", "-t", filled, *CUTS)

    assert 3 == sum(done == do for _, done in proxy.log)
    assert OBJECTS == run.summary["objects"] == len(backup.files())
    assert RECORDS == _stored(backup, filled)


def test_a_bit_that_flips_on_the_way_is_read_again(
    kbackup: Kbackup, proxy: S3Faults, cluster: TestCluster, stored: Stored
) -> None:
    """A checksum that differs once is a matter of the wire: the object is fetched again."""
    proxy.faults = [Fault(BODY, "corrupt", nth=(3,))]
    here, words, target = stored.restore(kbackup)

    here.with_environment(KBACKUP_STORE_URL=proxy.url).json(*words)

    assert 1 == sum(done == "corrupt" for _, done in proxy.log)
    assert RECORDS == _in_target(cluster, target)


def test_an_object_with_a_wrong_bit_stops_the_restore_in_front_of_it(
    kbackup: Kbackup, proxy: S3Faults, cluster: TestCluster, stored: Stored
) -> None:
    """Exit 7 names the object; nothing behind it is restored, and once mended it goes on."""
    name = r"s3-faults\+1\+0000000400"
    proxy.faults = [Fault(f"GET .*{name}".replace(r"\+", "(%2B|\\+)"), "corrupt")]
    here, words, target = stored.restore(kbackup)
    behind = here.with_environment(KBACKUP_STORE_URL=proxy.url)

    failed = behind.json(*words, expect=7)
    partial = _in_target(cluster, target)
    proxy.faults = []
    behind.json(*words)

    (error,) = failed.summary["errors"]
    assert ("corrupt", True) == (error["code"], "s3-faults+1+0000000400" in error["what"])
    assert [RECORDS[0], RECORDS[1][:400]] == [partial[0], partial[1]]
    assert RECORDS == _in_target(cluster, target)


@pytest.mark.parametrize("policy", ["log", "ignore"])
def test_an_object_with_a_wrong_bit_can_be_passed_over(
    policy: str, kbackup: Kbackup, proxy: S3Faults, cluster: TestCluster, stored: Stored
) -> None:
    """Exit 3 names what was left out, and the rest is restored; run again, it still exits 3."""
    proxy.faults = [Fault(r"GET .*s3-faults(%2B|\+)1(%2B|\+)0000000400", "corrupt")]
    here, words, target = stored.restore(kbackup)
    behind = here.with_environment(KBACKUP_STORE_URL=proxy.url)

    bad = ("--parse-error-topic-prefix", f"bad-{policy}")
    run = behind.json(*words, "--behavior-on-error", policy, *bad, expect=3)
    proxy.faults = []
    again, plan = (
        behind.json(*line, expect=3) for line in (words, ("restore", "plan", *words[1:]))
    )

    skipped = {"incomplete_partitions": 1}
    assert (skipped, skipped) == (again.summary["skipped"], plan.summary["skipped"])
    assert {"bad_objects": 1, "bad_records": 200} == run.summary["skipped"]
    assert any("s3-faults+1+0000000400" in entry["text"] for entry in run.summary["warnings"])
    [letter] = cluster.read(f"bad-{policy}-kbackup", 0)
    assert b"s3-faults+1+0000000400" in (letter.key or b"")
    assert RECORDS[0] == cluster.read(target, 0)
    assert RECORDS[1][:400] + RECORDS[1][600:] == cluster.read(target, 1)


def test_half_a_listing_is_not_a_backup(
    kbackup: Kbackup, proxy: S3Faults, cluster: TestCluster, stored: Stored
) -> None:
    """Where a later page of the listing cannot be had, nothing is restored."""
    proxy.page_keys = 5
    proxy.faults = [Fault("GET .*continuation-token", "status")]
    here, words, target = stored.restore(kbackup)

    run = here.with_environment(KBACKUP_STORE_URL=proxy.url).json(*words, expect=6)

    assert 0 == run.summary["records"]
    assert target not in cluster.admin.list_topics(timeout=30).topics
