"""Copies of every making beside their backup, and what keeps them from being compared."""

import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final
from uuid import uuid4

import pytest
from s3fault import Fault, S3Faults

from tests.integration.product import Acl, KafkaSettings, LocalS3, ScramUser, start_kafka
from tests.integration.test_access import GuardedKafka
from tests.support.backup import Backup
from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup, Result, places
from tests.support.in_process import in_one_process
from tests.support.running import running, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.in_process, pytest.mark.nightly]

COPY: Final = ("--rename-prefix", "copy_of_")
TARGET: Final = ("restore", "verify", "--against", "target")
SOURCE: Final = ("restore", "verify", "--against", "source")


def values(first: int, end: int) -> list[Record]:
    """Records of JSON."""
    return [Record(None, b'{"n":%d}' % at) for at in range(first, end)]


def equal(done: Result) -> int:
    """How many records are the same."""
    assert not any(line["differences"] for line in done.of("compared"))
    return sum(line["records"] for line in done.of("compared"))


def test_a_copy_as_of_a_time_is_compared_as_of_it(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """What was stored later is not missing from it; without the time it is another restore."""
    cluster.create(topic)
    cluster.write(topic, values(0, 60))
    kbackup.json("sink", "-t", topic)
    time.sleep(1.1)
    then = ("--as-of", datetime.now(UTC).isoformat(timespec="milliseconds"))
    time.sleep(1.1)
    cluster.write(topic, values(60, 100))
    kbackup.json("sink", "-t", topic)
    kbackup.json("restore", "-t", topic, *COPY, *then)

    done = kbackup.json(*TARGET, "-t", topic, *COPY, *then)
    other = kbackup.json(*TARGET, "-t", topic, *COPY, expect=4)

    assert 60 == equal(done)
    assert "give --rename, --group, times" in other.summary["errors"][0]["do"]


def test_a_copy_of_values_and_full_records_is_compared(
    kbackup: Kbackup, cluster: TestCluster, topic: str, backup: Backup
) -> None:
    """Objects as the connectors write them, and full records from the middle of one of them on."""
    cluster.create(topic)
    cluster.write(topic, values(0, 200))
    json = ("--format", "json", "-X", "value.converter.schemas.enable=false")
    kbackup.json("sink", "-t", topic, "--topics-dir", "values", "--flush-size", "50", *json)
    kbackup.json("sink", "-t", topic, "--flush-size", "60", "--group", f"full-{topic}")
    for key in backup.keys(""):
        folder, _, name = key.partition("/")
        start = int(name.rpartition("+")[2][:10]) if "+" in name else -1
        if (folder, start) in (("values", 0), ("values", 50)) or (
            folder == "topics" and start >= 60
        ):
            at = {"Bucket": backup.bucket, "Key": key}
            backup.client.copy_object(Bucket=backup.bucket, Key=f"mixed/{name}", CopySource=at)
    words = ("-t", topic, "--topics-dir", "mixed", *COPY, *json[2:])
    kbackup.json("restore", *words)

    done = kbackup.json(*TARGET, *words)

    assert 200 == equal(done)
    assert values(0, 200) != cluster.read(f"copy_of_{topic}")  # values have no times
    assert [row.value for row in values(0, 200)] == [
        row.value for row in cluster.read(f"copy_of_{topic}")
    ]


def test_two_restores_into_one_topic_are_compared_each_for_itself(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """What the other one has written stands before its records, or behind them."""
    one, two = f"{topic}-one", f"{topic}-two"
    for name, count in ((one, 70), (two, 50)):
        cluster.create(name)
        cluster.write(name, values(0, count))
    kbackup.json("sink", "-t", one, "-t", two, "--flush-size", "40")
    first = ("-t", one, "--rename", f"both-{topic}")
    second = ("-t", two, "--rename", f"both-{topic}", "--group", f"two-{topic}")
    kbackup.json("restore", *first)
    kbackup.json("restore", *second, "--if-exists", "append", "--yes")

    before, behind = kbackup.json(*TARGET, *first), kbackup.json(*TARGET, *second)

    assert [70, 50] == [equal(before), equal(behind)]
    (line,) = before.of("compared")
    assert 50 <= line["behind"]


def test_large_records_are_compared(kbackup: Kbackup, cluster: TestCluster, topic: str) -> None:
    """Of 5 MB each, on both sides."""
    rows = [Record(b"%d" % at, bytes([at]) * 5_000_000) for at in range(8)]
    cluster.create(topic, max_message_bytes="6000000")
    cluster.write(topic, rows)
    kbackup.json("sink", "-t", topic)
    large = ("-X", "producer.override.max.request.size=6000000")
    kbackup.json("restore", "-t", topic, *COPY, *large)

    assert [8, 8] == [
        equal(kbackup.json(*SOURCE, "-t", topic)),
        equal(kbackup.json(*TARGET, "-t", topic, *COPY)),
    ]


def test_objects_that_were_left_out_are_counted(
    kbackup: Kbackup, cluster: TestCluster, topic: str, backup: Backup
) -> None:
    """By a restore that goes on at damage: what it has restored is equal, and exit 3 says so."""
    cluster.create(topic)
    cluster.write(topic, values(0, 90))
    kbackup.json("sink", "-t", topic, "--flush-size", "30")
    key = sorted(key for key in backup.keys("topics/") if topic in key)[1]
    backup.client.put_object(Bucket=backup.bucket, Key=key, Body=backup.body(key)[:-20])
    words = ("-t", topic, *COPY, "--behavior-on-error", "log")
    kbackup.json("restore", *words, expect=3)

    done = kbackup.json(*TARGET, *words, expect=3)
    strict = kbackup.json(*TARGET, "-t", topic, *COPY, expect=7)

    assert (60, {"bad_objects": 1}) == (equal(done), done.summary["skipped"])
    assert "corrupt" in {each["code"] for each in strict.summary["errors"]}


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_broker_that_dies_midway_is_waited_for(
    s3: LocalS3, proxy: S3Faults, *, comes_back: bool
) -> None:
    """What was read is not read again, or the run ends with 5 and says of what."""
    topic, count, random = f"dies-{comes_back}".lower(), 5000, Random(7)
    s3.create_bucket(topic)
    with start_kafka() as broker:
        cluster = TestCluster(broker.bootstrap_servers)
        cluster.create(topic, 2)
        for partition in range(2):  # more than a client fetches ahead
            rows = (Record(None, random.randbytes(20_000)) for _ in range(count))
            cluster.write(topic, rows, partition)
        own = places(cluster.servers, s3, topic, KBACKUP_STORE_URL=proxy.url)
        kbackup = in_one_process(Kbackup(own))
        kbackup.json("sink", "-t", topic, "--flush-size", "500")
        kbackup.json("restore", "-t", topic, *COPY)
        before = proxy.seen(read := "GET /[^/]+/topics/.*parquet")
        words = (*TARGET, "-t", topic, *COPY, "--kafka-timeout", "20s", "--json")
        with running(kbackup, *words) as run:
            wait_until(lambda: run.is_over or before < proxy.seen(read), "reads")
            assert not run.is_over
            broker.kill()
            if comes_back:
                broker.restart()
            done = run.finish(300)

    if comes_back:
        assert (0, 2 * count) == (done.code, sum(line["records"] for line in done.of("compared")))
        return
    assert 5 == done.code, f"{done.stdout}{done.stderr}"
    assert {"kafka"} == {each["code"] for each in done.summary["errors"]}
    assert not any(line["state"].startswith("same") for line in done.of("compared"))


def test_what_a_principal_may_not_do_is_said(
    kbackup: Kbackup, proxy: S3Faults, tmp_path: Path
) -> None:
    """In Kafka that is exit 5, with the topic; in S3 exit 6."""
    with GuardedKafka() as kafka:
        there, topic = TestCluster(kafka.plain), f"orders-{uuid4()}"
        there.create(topic)
        there.write(topic, values(0, 10))
        run = ("-k", kafka.plain, "-t", topic)
        kbackup.json("sink", *run)
        kbackup.json("restore", *run, *COPY)
        admin = KafkaSettings(kafka.plain).access()
        admin.set_password(ScramUser("eve", "SCRAM-SHA-512", 4096), b"secret")
        for name in (topic, f"copy_of_{topic}"):
            admin.add([Acl("TOPIC", name, "LITERAL", "User:eve", "*", "DESCRIBE", "ALLOW")])
        admin.add([Acl("GROUP", "*", "LITERAL", "User:eve", "*", "READ", "ALLOW")])
        admin.close()
        file = tmp_path / "eve.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            "sasl.username=eve\nsasl.password=secret\n"
        )
        file.chmod(0o600)
        eve = ("--config", str(file), "-k", kafka.scram, "-t", topic, "--kafka-timeout", "10s")
        commands = ((*SOURCE, *eve), (*TARGET, *eve, *COPY))
        unset = [kbackup.json(*words, expect=5) for words in commands]
        admin = KafkaSettings(kafka.plain).access()
        for name in (topic, f"copy_of_{topic}"):
            say = "DESCRIBE_CONFIGS"
            admin.add([Acl("TOPIC", name, "LITERAL", "User:eve", "*", say, "ALLOW")])
        admin.close()
        ends = [kbackup.json(*words, expect=5) for words in commands]
        proxy.faults = [Fault("GET .*topics", "status", status=403, code="AccessDenied")]
        stranger = kbackup.with_environment(KBACKUP_STORE_URL=proxy.url)
        store = stranger.json(*TARGET, *run, *COPY, expect=6)

    for end, first, name in zip(ends, unset, (topic, f"copy_of_{topic}"), strict=True):
        assert f"the settings of {name} cannot be read" == first.summary["errors"][0]["what"]
        (error,) = end.summary["errors"]
        assert (f"reading {name}-0", True) == (
            error["what"],
            "authorization failed" in error["why"],
        )
    assert "store" == store.summary["errors"][0]["code"]
