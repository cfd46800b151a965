"""``kbackup doctor`` with everything in order, and with each thing it needs broken in turn."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from backup_samples import Backup
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.integration.product import Acl, KafkaSettings, LocalKafka, LocalS3
from tests.support.cluster import Record, TestCluster, varied
from tests.support.command import Kbackup, Result
from tests.support.truth import client_of

pytestmark = pytest.mark.integration

QUICK = ("doctor", "--no-spark")


def failures(result: Result) -> list[tuple[str, str]]:
    """Return area and name of what failed."""
    return [(row["area"], row["name"]) for row in result.of("check") if row["level"] == "fail"]


def check(result: Result, name: str) -> dict[str, Any]:
    """Return one check."""
    return next(row for row in result.of("check") if row["name"] == name)


def closed_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def orders(cluster: TestCluster, topic: str) -> str:
    """A topic with records that are not backed up."""
    cluster.create(topic)
    cluster.write(topic, [Record(b"key", b"value")] * 10)
    return topic


def test_everything_in_order(kbackup: Kbackup, orders: str, s3: LocalS3, bucket: str) -> None:
    """Before a good first run nothing fails, every area was looked at, and Spark ran."""
    result = kbackup.json("doctor", "-t", orders, "--write-probe")

    expected = {"configuration", "disk", "store", "kafka", "spark"}
    assert expected == {row["area"] for row in result.of("check")}
    assert [] == failures(result)
    assert "ok" == check(result, "start")["level"]
    # the fixture's, or the doctor's own
    assert check(result, "class archive")["text"].startswith(("present: ", "made, "))
    assert "ok" == check(result, "writable")["level"]
    assert [] == s3_keys(s3, bucket)


def s3_keys(s3: LocalS3, bucket: str) -> list[str]:
    """Return what is in a bucket, unfinished uploads included."""
    client: Any = client_of(s3)
    found = client.list_objects_v2(Bucket=bucket).get("Contents", [])
    uploads = client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    return [entry["Key"] for entry in [*found, *uploads]]


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("words", "environ", "failed", "code", "remedy"),
    [
        pytest.param(
            ["-k", "127.0.0.1:CLOSED", "--kafka-timeout", "2s"], {},
            ("kafka", "cluster"), 5, "check bootstrap.servers", id="no broker",
        ),
        pytest.param(
            ["-t", "no-such-topic"], {}, ("kafka", "topics"), 5, "correct topics", id="no topic",
        ),
        pytest.param(
            ["-b", "no-such-bucket"], {}, ("store", "readable"), 6, "create the bucket",
            id="no bucket",
        ),
        pytest.param(
            ["--store-url", "http://127.0.0.1:CLOSED"], {},
            ("store", "readable"), 6, "check store.url", id="no S3",
        ),
        pytest.param(
            ["--store-url", "file:///no/such/folder"], {},
            ("store", "readable"), 6, "mkdir -p /no/such/folder", id="no folder",
        ),
        pytest.param(
            ["--flush-size", "many"], {}, ("configuration", "flush.size"), 2, "correct it",
            id="wrong value",
        ),
        pytest.param(
            [], {"TMPDIR": "/no/such/folder"}, ("disk", "TMPDIR"), 2, "set TMPDIR", id="no TMPDIR",
        ),
        pytest.param(
            ["--security-protocol", "SASL_PLAINTEXT", "--sasl-mechanism", "PLAIN",
             "-X", "sasl.username=me", "--kafka-timeout", "3s"],
            {"KBACKUP_SASL_PASSWORD": "CANARY"},
            ("kafka", "cluster"), 5, "", id="wrong protocol",
        ),
    ],
)  # fmt: skip
def test_each_broken_dependency_is_one_line_with_a_fix_and_its_code(
    kbackup: Kbackup,
    orders: str,
    words: list[str],
    environ: dict[str, str],
    failed: tuple[str, str],
    code: int,
    remedy: str,
) -> None:
    """One cause gives one failure, in words, with what to do, and the code of its area."""
    topics = [] if "-t" in words else ["-t", orders]
    closed = str(closed_port())
    typed = [word.replace("CLOSED", closed) for word in words]

    result = kbackup.with_environment(**environ).json(*QUICK, *topics, *typed, expect=code)

    assert [failed] == failures(result)
    broken = check(result, failed[1])
    assert remedy in (broken["do"] or "")
    assert [code] == [error["exit_code"] for error in result.summary["errors"]]
    assert "Traceback" not in result.stderr
    assert "CANARY" not in result.stdout + result.stderr


@pytest.mark.nightly
def test_the_doctor_makes_the_archive_that_lets_spark_start_faster(
    kbackup: Kbackup, tmp_path: Path
) -> None:
    """The archive that lets Spark start faster is made once, and a damaged one is replaced."""
    own = kbackup.with_environment(KBACKUP_CACHE_DIR=str(tmp_path))

    first = own.json("doctor")
    made = list(tmp_path.glob("classes-*"))
    strict = {".jsa": "-Xshare:on", ".aot": "-XX:AOTMode=on"}[made[0].suffix]
    again = own.json("doctor", "--spark-conf", f"spark.driver.extraJavaOptions={strict}")

    assert "made" in check(first, "class archive")["text"]
    assert 1 == len(made)
    assert str(made[0]) in check(again, "class archive")["text"]
    assert made == list(tmp_path.glob("classes-*"))

    made[0].chmod(0o644)
    os.truncate(made[0], 30_000_000)
    replaced = own.json("doctor")

    assert "made" in check(replaced, "class archive")["text"]
    assert made == list(tmp_path.glob("classes-*"))
    assert 30_000_000 < made[0].stat().st_size


@pytest.mark.nightly
def test_a_run_makes_the_archive_where_it_is_asked_to(
    kbackup: Kbackup, orders: str, tmp_path: Path
) -> None:
    """With KBACKUP_ARCHIVE=1 the first run that uses Spark makes the archive, and says nothing."""
    own = kbackup.with_environment(KBACKUP_CACHE_DIR=str(tmp_path), KBACKUP_ARCHIVE="1")

    plain = own.with_environment(KBACKUP_ARCHIVE="0").json("sink", "-t", orders, "--dry-run")
    first = own("sink", "-t", orders, "--quiet")

    assert 0 == plain.code
    assert (0, "") == (first.code, first.stderr)
    assert {".jsa", ".aot"} & {kept.suffix for kept in tmp_path.glob("classes-*")}


def test_spark_that_does_not_start_is_exit_9(kbackup: Kbackup, orders: str) -> None:
    """An invalid Spark master is exit code 9, in Spark's words."""
    result = kbackup.json("doctor", "-t", orders, "--master", "local[zz]", expect=9)

    assert [("spark", "start")] == failures(result)
    assert "Could not parse Master URL" in check(result, "start")["text"]


@pytest.mark.in_process
def test_retention_that_is_shorter_than_the_backups_interval(
    kbackup: Kbackup, cluster: TestCluster, orders: str
) -> None:
    """Records that went before they were backed up are data lost, and exit 5 says so."""
    kbackup.json("sink", "-t", orders)
    cluster.write(orders, [Record(None, b"late")] * 10)
    assert [] == failures(kbackup.json(*QUICK, "-t", orders))

    cluster.delete_records(orders, {0: 15})
    result = kbackup.json(*QUICK, "-t", orders, expect=5)

    text = check(result, "retention")["text"]
    assert f"{orders}: offsets 10 to 14 of partition 0 have expired" in text


@pytest.mark.in_process
def test_a_group_that_is_in_use(kbackup: Kbackup, cluster: TestCluster, orders: str) -> None:
    """A connector that still runs is found before both write the same objects."""
    with closing(cluster.join("busy", orders)):
        result = kbackup.json(*QUICK, "-t", orders, "--group", "busy", expect=5)

    assert [("kafka", "group")] == failures(result)
    assert "choose another --group" in check(result, "group")["do"]


@pytest.mark.in_process
def test_facts_of_the_bucket(kbackup: Kbackup, s3: LocalS3, bucket: str) -> None:
    """What protects a backup, and what deletes it, is read from the server."""
    client: Any = client_of(s3)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    rules = [
        {
            "ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": ""},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
        },
        {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "topics/"},
         "Expiration": {"Days": 30}},
    ]  # fmt: skip
    client.put_bucket_lifecycle_configuration(
        Bucket=bucket, LifecycleConfiguration={"Rules": rules}
    )

    result = kbackup.json(*QUICK)

    levels = {row["name"]: row["level"] for row in result.of("check") if row["area"] == "store"}
    assert {"versioning": "ok", "lifecycle": "ok", "expiration": "warn", "clock": "ok"}.items() <= (
        levels.items()
    )
    assert (
        "rule old deletes objects under topics/ after 30 days"
        in (check(result, "expiration")["text"])
    )


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalKafka]:
    """A Kafka that looks into its access control lists."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with LocalKafka(
        {"authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true"}
    ) as service:
        yield service


Deny = Callable[[str, str, str], None]


@pytest.fixture
def deny(guarded: LocalKafka) -> Deny:
    """Return a function that allows everything with a resource but one operation."""

    def add(kind: str, name: str, operation: str) -> None:
        access = KafkaSettings(guarded.bootstrap_servers).access()
        everybody = (kind, name, "LITERAL", "User:*", "*")
        access.add([Acl(*everybody, "ALL", "ALLOW"), Acl(*everybody, operation, "DENY")])
        access.close()

    return add


@pytest.fixture
def hide(guarded: LocalKafka, deny: Deny) -> Iterator[Callable[[str], None]]:
    """Return a function that hides a consumer group, in a cluster whose list says nothing of it."""
    deny("CLUSTER", "kafka-cluster", "DESCRIBE")
    yield lambda group: deny("GROUP", group, "DESCRIBE")
    everything = AclBindingFilter(
        ResourceType.BROKER, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip
    cluster = TestCluster(guarded.bootstrap_servers)  # held: its client ends with it
    for future in cluster.admin.delete_acls([everything]).values():
        future.result(10)


@pytest.mark.in_process
def test_consumer_groups_that_are_hidden_are_not_taken_for_absent(
    kbackup: Kbackup, guarded: LocalKafka, hide: Callable[[str], None]
) -> None:
    """Where the cluster shortens its list of groups, doctor, sink and list say so."""
    cluster = TestCluster(guarded.bootstrap_servers)
    orders = cluster.create(f"orders-{uuid4()}")
    cluster.write(orders, varied(3))
    hidden, seen = f"hidden-{uuid4()}", f"seen-{uuid4()}"
    for group in (hidden, seen):
        cluster.commit(group, orders, 2)
    hide(hidden)

    words = ("-k", guarded.bootstrap_servers, "-t", orders)
    asked = kbackup(*QUICK, *words, "--json")
    run = kbackup("sink", *words, "--json")
    by_name = kbackup("sink", *words, "--json", "--groups", "hidden.*|seen.*")
    listed = kbackup("restore", "list", orders, "--consumer-groups", "--json")

    assert "warn" == check(asked, "consumer groups")["level"], asked.stdout
    assert (0, 3) == (run.code, by_name.code), by_name.stdout
    assert {"incomplete_captures": 1} == by_name.summary["skipped"]
    assert [(seen, 2, False)] == [
        (line["group"], line["offset"], line["is_complete"]) for line in listed.of("group")
    ]


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("kind", "operation", "level", "name"),
    [
        pytest.param("TOPIC", "READ", "fail", "permissions", id="read a topic"),
        pytest.param("TOPIC", "DESCRIBE_CONFIGS", "warn", "permissions", id="see its settings"),
        pytest.param("TOPIC", "DESCRIBE", "fail", "topics", id="see a topic"),
        pytest.param("GROUP", "READ", "fail", "permissions", id="use the group"),
    ],
)
def test_a_denied_right_is_named(
    kbackup: Kbackup,
    guarded: LocalKafka,
    deny: Deny,
    kind: str,
    operation: str,
    level: str,
    name: str,
) -> None:
    """A missing right is found before the run, with the resource it is missing on."""
    servers = guarded.bootstrap_servers
    orders = TestCluster(servers).create(f"orders-{uuid4()}")
    group = f"group-{uuid4()}"
    resource = orders if kind == "TOPIC" else group
    deny(kind, resource, operation)

    result = kbackup(*QUICK, "-k", servers, "-t", orders, "--group", group, "--json")

    found = check(result, name)
    assert (level, 5 if level == "fail" else 0) == (found["level"], result.code), result.stdout
    assert resource in found["text"]
    assert found["do"]


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("kind", "operation", "command"),
    [
        pytest.param("TOPIC", "WRITE", "plan", id="write a topic, in a plan"),
        pytest.param("TOPIC", "WRITE", "run", id="write a topic, in a run"),
        pytest.param("GROUP", "READ", "plan", id="use the group, in a plan"),
        pytest.param("GROUP", "READ", "run", id="use the group, in a run"),
        pytest.param("TRANSACTIONAL_ID", "WRITE", "plan", id="write in transactions, in a plan"),
    ],
)
def test_a_restore_plan_misses_the_rights_that_its_run_needs(
    kbackup: Kbackup,
    guarded: LocalKafka,
    deny: Deny,
    tmp_path: Path,
    kind: str,
    operation: str,
    command: str,
) -> None:
    """What a restore may not do is exit 5 before anything is written, planned or run."""
    servers, topic, group = guarded.bootstrap_servers, f"orders-{uuid4()}", f"group-{uuid4()}"
    Backup.in_folder(tmp_path).put(topic, 0, range(3))
    if operation == "WRITE":
        TestCluster(servers).create(topic)
    names = {"TOPIC": topic, "GROUP": group, "TRANSACTIONAL_ID": f"{group}-plan"}
    deny(kind, names[kind], operation)

    result = kbackup(
        "restore", command, "-k", servers, "-t", topic, "--group", group, "--json", "--no-lock",
        "--store-url", f"file://{tmp_path}", timeout=60,
    )  # fmt: skip

    assert 5 == result.code, result.stdout
    assert "refuse" == result.of("plan_topic")[0]["action"]
    if operation == "WRITE":
        assert [(0, 0)] == [TestCluster(servers).ends(topic)]


@pytest.mark.in_process
def test_a_restore_without_the_right_to_its_transactions_writes_nothing(
    kbackup: Kbackup,
    guarded: LocalKafka,
    deny: Deny,
    tmp_path: Path,
) -> None:
    """A run that may not write in transactions is exit 5 and names what it was refused."""
    servers, topic, group = guarded.bootstrap_servers, f"orders-{uuid4()}", f"group-{uuid4()}"
    Backup.in_folder(tmp_path).put(topic, 0, range(3))
    TestCluster(servers).create(topic)
    deny("TRANSACTIONAL_ID", f"{group}-{topic}-0", "WRITE")

    result = kbackup(
        "restore", "run", "-k", servers, "-t", topic, "--group", group, "--json", "--no-lock",
        "--store-url", f"file://{tmp_path}", timeout=60,
    )  # fmt: skip

    assert 5 == result.code, result.stdout
    assert [(0, 0)] == [TestCluster(servers).ends(topic)]


@pytest.mark.in_process
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_setting_that_no_topic_has_is_refused_by_plan_and_run(
    kbackup: Kbackup, cluster: TestCluster, topic: str, tmp_path: Path, command: str
) -> None:
    """A mistyped --topic-config is exit 2, in the broker's words, and no topic is created."""
    Backup.in_folder(tmp_path).put(topic, 0, range(3))

    result = kbackup(
        "restore", command, "-t", topic, "--topic-config", "foo=bar", "--json",
        "--store-url", f"file://{tmp_path}",
    )  # fmt: skip

    assert 2 == result.code, result.stdout
    assert "foo" in result.summary["errors"][0]["why"]
    assert [] == cluster.end_offsets(topic)
