"""The connectors' layout through the whole command: the real connector's objects, byte for byte."""

import io
import json
from hashlib import sha256
from pathlib import Path

import pytest
from object_content import stored
from scenario_files import COPIES, Scenario

from tests.integration.product import LocalS3, Store
from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup
from tests.support.scenario_runs import Bench

pytestmark = [pytest.mark.integration, pytest.mark.in_process]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("-f", "json", "--store-kafka-keys", "--keys-format-class", "json",
                      "--store-kafka-headers", "--headers-format-class", "json"),
                     id="json with keys and headers"),
        pytest.param(("-f", "bytes"), id="bytes of our own, whose count is known"),
    ],
)  # fmt: skip
def test_values_keys_and_headers_come_back(
    options: tuple[str, ...], kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """What the compatible layout stores is restored; timestamps it does not store."""
    cluster.create(topic)
    records = [
        Record(b"key-%d" % at, b'{"n":%d}' % at, (("h", b"1"), ("h", b"two"))) for at in range(50)
    ]
    cluster.write(topic, records)
    keeps_keys = "--store-kafka-keys" in options

    kbackup.json("sink", "-t", topic, "--flush-size", "20", *options)
    kbackup.json("restore", "--rename", "copy_of_$0")

    assert [
        (record.key if keeps_keys else None, record.value, record.headers if keeps_keys else ())
        for record in records
    ] == [(copy.key, copy.value, copy.headers) for copy in cluster.read(f"copy_of_{topic}")]


def test_another_tools_bytes_are_split_only_with_consent(
    kbackup: Kbackup, cluster: TestCluster, store: Store
) -> None:
    """Raw bytes of another tool are split only if confirmed: values may hold the separator."""
    Scenario.read(COPIES / "bytes-plain").put_into(store)

    refused = kbackup.json("restore", "--rename", "bytes_of_$0", expect=4)
    kbackup.json("restore", "--rename", "bytes_of_$0", "--yes-split-on-newline")

    assert "--yes-split-on-newline" in refused.summary["errors"][0]["do"]
    assert [b"one", b"two", b"three", b"four", b"five", b"six"] == [
        record.value for record in cluster.read("bytes_of_s3_topic")
    ]


@pytest.mark.parametrize(
    ("records", "options", "what"),
    [
        pytest.param([Record(b"k", None)], (), "a value is null", id="tombstone"),
        pytest.param([Record(b"k", b"{")], (), "JSON", id="not JSON"),
        pytest.param(
            [Record(None, b"1")], ("--store-kafka-keys", "--keys-format-class", "json"),
            "no key", id="null key",
        ),
    ],
)  # fmt: skip
def test_what_the_layout_cannot_hold_fails_by_offset_and_stores_nothing_of_it(
    records: list[Record], options: tuple[str, ...], what: str, kbackup: Kbackup,
    cluster: TestCluster, topic: str, store: Store,
) -> None:  # fmt: skip
    """The connectors' layout refuses what it would lose; what came before is safe."""
    cluster.create(topic)
    good = [Record(b"k", b'{"n":%d}' % at) for at in range(10)]
    cluster.write(topic, [*good, *records, *good])

    failed = kbackup.json("sink", "-t", topic, "-f", "json", "--flush-size", "5", *options,
                          expect=1)  # fmt: skip

    (error,) = failed.summary["errors"]
    assert (topic, 0, 10) == (error["topic"], error["partition"], error["offset"])
    assert 10 == failed.summary["partitions"][0]["committed"]
    assert what in f"{error['what']} {error['why']}"
    assert all(topic in key for key in stored(store))


def test_null_values_are_left_out_where_asked(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """``behavior.on.null.values=ignore`` asked for exactly that: it is counted, and exits 0."""
    cluster.create(topic)
    cluster.write(
        topic,
        [Record(b"k", b"1"), Record(b"k", None), Record(b"k", b" null\n"), Record(b"k", b"3")],
    )

    done = kbackup.json(
        "sink", "-t", topic, "-f", "json", "--flush-size", "2",
        "--behavior-on-null-values", "ignore",
    )  # fmt: skip

    row = done.summary["partitions"][0]
    assert (2, 2, 4) == (row["records"], row["nulls_left_out"], row["committed"])


def test_records_that_do_not_fit_become_dead_letters(
    kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """The dead letter topic, which the pattern matches too, holds them as they were, and why."""
    letters = f"{topic}-dead"
    cluster.create(topic)
    bad = Record(b"k", b"no JSON", (("trace", b"t"), ("none", None)), 1_700_000_000_000)
    cluster.write(topic, [Record(b"k", b"1"), bad, Record(b"k", b"3")])
    options = (
        "sink", "--topics-regex", f"{topic}.*", "-f", "json", "--flush-size", "2",
        "--errors-tolerance", "all", "--errors-deadletterqueue-topic-name", letters,
        "--errors-deadletterqueue-topic-replication-factor", "1",
        "--errors-deadletterqueue-context-headers-enable",
    )  # fmt: skip

    first = kbackup.json(*options, expect=3)
    again = kbackup.json(*options)

    [row] = first.summary["partitions"]
    assert (topic, 2, [[1, 1]], 3) == (
        row["topic"], row["records"], row["skipped_offsets"], row["committed"],
    )  # fmt: skip
    assert [topic] == [at["topic"] for at in again.summary["partitions"]]
    [letter] = cluster.read(letters)
    assert (bad.key, bad.value, bad.timestamp) == (letter.key, letter.value, letter.timestamp)
    assert bad.headers == letter.headers[:2]
    assert ("__connect.errors.offset", b"1") in letter.headers


def test_a_connectors_bucket_and_group_are_taken_over(
    kbackup: Kbackup, cluster: TestCluster, store: Store, bucket: str, s3: LocalS3, tmp_path: Path
) -> None:
    """What the connector has stored stays as it is, and the next object follows its last one."""
    scenario = Scenario.read(COPIES / "json-schemaless")
    bench = Bench(scenario, cluster, s3, bucket, tmp_path)
    (topic,) = bench.topics
    scenario.put_into(store)
    before = stored(store)
    config = tmp_path / "sink.json"  # the connector's own, with the bucket of this test
    place = {"s3.bucket.name": bucket, "store.url": s3.endpoint_url}
    config.write_text(json.dumps(scenario.config | place))
    asked = ("--config", str(config), "-t", topic)

    with bench.topics_written():
        cluster.commit("connect-s3-sink", topic, len(scenario.given))
        cluster.write(topic, [Record(None, b'{"n":%d}' % at) for at in range(3)])
        (planned,) = kbackup.json("sink", "plan", *asked).of("plan_partition")
        done = kbackup.json("sink", *asked)
        committed = cluster.committed("connect-s3-sink", topic)

    key = f"topics/{topic}/partition=0/{topic}+0+0000000009.json"
    assert (9, 9, 12, key) == tuple(
        planned[name] for name in ("committed", "start", "end", "next_key")
    )
    assert {"first": 6, "records": 3} == {
        name: planned["newest"][name] for name in ("first", "records")
    }
    assert {"no_effect"} >= {warning["code"] for warning in done.of("warning")}
    assert before | {key: b'{"n":0}\n{"n":1}\n{"n":2}\n'} == stored(store)
    assert [12] == committed


def test_full_records_after_a_connector_with_transforms_are_restored(
    kbackup: Kbackup, cluster: TestCluster, store: Store, topic: str
) -> None:
    """Its rows are like no record, and fewer than offsets: its last object is in full records."""
    cluster.create(topic)
    cluster.write(topic, [Record(None, b'{"n":%d}' % at) for at in range(25)])
    for cut in (range(10), range(10, 20, 2)):
        body = b"".join(b'{"masked":%d}\n' % at for at in cut)
        key = f"topics/{topic}/partition=0/{topic}+0+{cut[0]:010}.json"
        store.put(key, io.BytesIO(body), sha256=sha256(body).hexdigest(), metadata={})
    cluster.commit("connect-s3-sink", topic, 20)

    kbackup.json("sink", "-t", topic, "--group", "connect-s3-sink")
    kbackup.json("restore", "verify")
    kbackup.json("restore", "--rename", "copy_of_$0")

    masked = [b'{"masked":%d}' % at for at in range(10)]
    whole = [b'{"n":%d}' % at for at in range(10, 25)]
    assert [*masked, *whole] == [copy.value for copy in cluster.read(f"copy_of_{topic}")]
    assert [25] == cluster.committed("connect-s3-sink", topic)
