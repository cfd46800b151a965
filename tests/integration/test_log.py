"""Objects of record batches as a real broker sends them, read by every command that reads."""

import io
import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from backup_samples import put_batches

from tests.integration.product import (
    EVERYTHING,
    BatchError,
    Batches,
    FormatOptions,
    LogFormat,
    Span,
    Store,
    decoded,
    fetch_kafka,
    find_java,
    walk,
)
from tests.support.cluster import Record, TestCluster, send, varied
from tests.support.command import Kbackup
from tests.support.encoded import Sent, batch
from tests.support.fetched import fetched, produced
from tests.support.in_process import in_one_process

pytestmark = pytest.mark.integration

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SENT = [
    Sent(b"nul", b"k", [(b"before\0after", b"x"), (b"", None)], timestamp=5),
    Sent(b"zero", None, [(b"h%d" % at, b"") for at in range(70)], timestamp=0),
    Sent(None, b"", timestamp=-1),
]
"""What librdkafka loses: the rest of a name behind a NUL, and the time 0."""


def awkward(cluster: TestCluster, topic: str, each: int = 200) -> None:
    """Write by librdkafka and, by way of the topic's own codec, by Java; and transactions.

    Of every codec there are *each* records, and a fortieth in each part of a transaction.
    """
    for codec in CODECS:
        producer = cluster.producer(compression_type=codec)
        send(producer, topic, varied(each))
        producer.flush(30)
    for codec in CODECS[1:]:
        cluster.configure(topic, compression_type=codec)
        cluster.write(topic, varied(each, seed=1))
    cluster.configure(topic, compression_type="producer")
    ended = [cluster.producer(transactional_id=f"{topic}-{at}", linger_ms=0) for at in range(3)]
    for producer in ended:
        producer.init_transactions(30)
        producer.begin_transaction()
    for at in range(12):
        send(ended[at % 3], topic, [Record(b"txn", b"%d" % at)] * (each // 40))
        ended[at % 3].flush(30)
    ended[0].abort_transaction(30)
    ended[1].commit_transaction(30)
    ended[0].begin_transaction()
    send(ended[0], topic, [Record(b"txn", b"again")] * (each // 40))
    ended[0].commit_transaction(30)
    ended[2].abort_transaction(30)
    cluster.settle(topic, 0)


def compacted(
    cluster: TestCluster,
    topic: str,
    is_there: Callable[[Batches], bool],
    each: int = 200,
    **config: str,
) -> tuple[str, list[Batches]]:
    """Make a topic and write *each* records again and again, until one of its batches *is_there*.

    Return its name, and all of its batches.
    """
    cluster.create(
        topic, 1, cleanup_policy="compact", segment_ms="1000",
        min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="1000", **config,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    for number, codec in enumerate(CODECS * 20, 1):
        producer = cluster.producer(compression_type=codec)
        later = 1_700_000_000_000 + 10_000 * number  # segments end by the times of records
        records = [
            Record(
                b"%d" % (at * number * 7 % (9 * each // 2)),
                None if at % 9 == 8 else b"v" * (at % 50),
                timestamp=later,
            )
            for at in range(each)
        ]
        send(producer, topic, records)
        producer.flush(30)
        time.sleep(1.5)
        batches = fetched(cluster.servers, topic, 0, cluster.ends(topic)[1])
        if any(map(is_there, batches)):
            break
        assert time.monotonic() < deadline
    return topic, batches


def has_gaps(batches: Batches) -> bool:
    """Whether compaction has left fewer records in one of them than it has offsets."""
    full = pc.add(batches.headers["last_delta"], pa.scalar(1, pa.int32()))
    return bool(pc.any(pc.not_equal(batches.headers["count"], full)).as_py())


def rows(batches: list[Batches], span: Span = EVERYTHING) -> list[dict[str, Any]]:
    parts = [part for each in batches for part in decoded(each, span)]
    return list(pa.Table.from_batches(parts).to_pylist())


def as_records(found: list[dict[str, Any]]) -> list[Record]:
    return [
        Record(
            row["key"], row["value"], tuple((h["key"], h["value"]) for h in row["headers"]),
            row["timestamp"],
        )
        for row in found
    ]  # fmt: skip


def test_every_command_reads_batches_as_the_broker_sent_them(
    kbackup: Kbackup, cluster: TestCluster, store: Store, tmp_path: Path
) -> None:
    """Of all codecs and producers, without what was aborted; Kafka's own tool reads them too."""
    # what asks in SQL is on Spark; the tasks of the others are what they are in threads
    alone = in_one_process(kbackup)
    topic = cluster.create("log-awkward")
    awkward(cluster, topic)
    batches = fetched(cluster.servers, topic, 0, cluster.ends(topic)[1])
    found = rows(batches)

    assert cluster.read(topic) == as_records(found)
    kinds = {n & 7 for each in batches for n in each.headers["attributes"].to_pylist()}
    assert {0, 1, 2, 3, 4} == kinds
    offsets = [row["offset"] for row in found]
    for start, end in ((7, 300), (offsets[-1], offsets[-1] + 1), (150, 1700)):
        inside = [row for row in found if start <= row["offset"] < end]
        assert inside == rows(fetched(cluster.servers, topic, start, end), Span(start, end))

    parts = [each.slice(at, 3) for each in batches for at in range(0, len(each), 3)]
    half = len(parts) // 2
    kept = [put_batches(store, topic, parts[:half]), put_batches(store, topic, parts[half:])]
    words = ("-t", topic)
    checked = alone.json("restore", "verify", "--deep", *words)
    assert len(found) == checked.summary["records"]
    assert 0 == checked.summary.get("not_compared", 0)
    shown = alone("restore", "cat", f"{topic}:0@{offsets[1000]}", "-c", "3", "--json")
    assert offsets[1000:1003] == [json.loads(line)["offset"] for line in shown.stdout.splitlines()]
    asked = f"select count(*) n, max(offset) top, count(value) v from `{topic}`"
    (answer,) = [
        row
        for row in map(json.loads, kbackup("restore", "query", asked, "--json").stdout.splitlines())
        if "n" in row
    ]
    values = sum(row["value"] is not None for row in found)
    assert {"n": len(found), "top": offsets[-1], "v": values} == answer
    alone.json("restore", *words, "--rename", "copy_of_$0")
    assert cluster.read(topic) == cluster.read(f"copy_of_{topic}")

    segments, heads = [], []
    for key, facts in kept:
        segment = tmp_path / f"{facts.first_offset:020}.log"
        with store.open(key) as body:
            found_batches = [*LogFormat().batches(body, FormatOptions())]
            pieces = [bytes(piece) for each in found_batches for piece in each.pieces()]
        segment.write_bytes(b"".join(pieces))
        segments.append(segment)
        heads.append([
            pair for each in found_batches
            for pair in zip(*(each.headers[name].to_pylist() for name in ("base_offset", "count")),
                            strict=True)
        ])  # fmt: skip
    for (_, facts), told, dumped in zip(kept, heads, dump(segments), strict=True):
        listed = re.findall(r"^baseOffset: (\d+) .* count: (\d+) ", dumped, re.MULTILINE)
        at = [int(n) for n in re.findall(r"^\| offset: (\d+) ", dumped, re.MULTILINE)]
        assert told == [(int(base), int(count)) for base, count in listed]
        assert facts.records == sum(count for _, count in told) == len(at)
        assert (facts.first_offset, facts.last_offset) == (at[0], at[-1])
        assert set(re.findall(r"isvalid: (\w+)", dumped)) == {"true"}


def dump(segments: list[Path]) -> list[str]:
    """Return what Kafka's own tool says of each segment."""
    java = find_java()
    jars = os.pathsep.join(map(str, fetch_kafka(java)))
    words = ["-cp", jars, "kafka.tools.DumpLogSegments", "--print-data-log", "--files"]
    line = [str(java.executable), *words, ",".join(map(str, segments))]
    done = subprocess.run(line, check=True, capture_output=True, text=True, timeout=120)
    return re.split(r"^Dumping .*\n", done.stdout, flags=re.MULTILINE)[1:]


@pytest.mark.in_process
def test_a_sink_stores_what_the_broker_has_byte_for_byte(
    kbackup: Kbackup, cluster: TestCluster, store: Store
) -> None:
    """Objects end between batches, a later run goes on, and a restore gives record for record."""
    topic = cluster.create("log-sunk")
    awkward(cluster, topic)
    words = ("-t", topic, "--format", "log", "--flush-size", "700")

    first = kbackup.json("sink", *words).summary
    cluster.write(topic, varied(300, seed=2))
    second = kbackup.json("sink", *words).summary

    expected = fetched(cluster.servers, topic, 0, cluster.ends(topic)[1])
    assert ("batches", sum(map(len, rows_of(expected)))) == (
        first["kafka_client"], first["records"] + second["records"],
    )  # fmt: skip
    assert first["objects"] > 2
    assert stored(store, topic) == b"".join(bytes(p) for each in expected for p in each.pieces())
    heads = [store.head(one.key) for one in store.list(f"topics/{topic}/")]
    assert {"b1:"} == {head.metadata["digest"][:3] for head in heads if head is not None}
    checked = kbackup.json("restore", "verify", "--deep", "-t", topic).summary
    assert first["records"] + second["records"] == checked["records"]
    assert 0 == kbackup.json("sink", *words).summary["objects"]
    proved = kbackup.json("restore", "verify", "-t", topic, "--against", "source").of("compared")
    assert first["objects"] + second["objects"] == sum(one["proven"] for one in proved)
    lost = sorted(one.key for one in store.list(f"topics/{topic}/"))[1]
    store.delete(lost)
    start = int(lost.split("+")[2].split(".")[0])
    kbackup.json("sink", "repair", f"{topic}:0:{start}", *words)
    assert stored(store, topic) == b"".join(bytes(p) for each in expected for p in each.pieces())
    kbackup.json("restore", "-t", topic, "--rename", "copy_of_$0")
    assert cluster.read(topic) == cluster.read(f"copy_of_{topic}")


@pytest.mark.in_process
def test_a_backup_goes_on_in_another_format_within_a_batch(
    kbackup: Kbackup, cluster: TestCluster, store: Store
) -> None:
    """A position in the middle of a batch cuts it, and a topic may have objects of both formats."""
    topic = cluster.create("log-changed")
    cluster.write(topic, varied(1_000))
    kbackup.json("sink", "-t", topic, "--flush-size", "333", "--no-flush-on-stop")

    found = kbackup.json("sink", "-t", topic, "--format", "log").summary

    assert 1 == found["records"]
    (key,) = [one.key for one in store.list(f"topics/{topic}/") if one.key.endswith(".log.zst")]
    assert "+0000000999.record" in key
    kbackup.json("restore", "verify", "--deep", "-t", topic)
    kbackup.json("restore", "-t", topic, "--rename", "copy_of_$0")
    assert cluster.read(topic) == cluster.read(f"copy_of_{topic}")


def rows_of(batches: list[Batches]) -> list[pa.RecordBatch]:
    return [part for each in batches for part in decoded(each)]


def stored(store: Store, topic: str) -> bytes:
    """What the objects of a topic hold, in order."""
    parts = []
    for one in store.list(f"topics/{topic}/"):
        with store.open(one.key) as body:
            found = LogFormat().batches(body, FormatOptions())
            parts += [bytes(piece) for each in found for piece in each.pieces()]
    return b"".join(parts)


def test_what_librdkafka_loses_is_kept(cluster: TestCluster) -> None:
    """Names of headers behind a NUL, the time 0, and a time that is missing."""
    topic = cluster.create("log-lost", message_timestamp_before_max_ms=str(2**63 - 1))
    for codec in range(5):
        produced(cluster.servers, topic, batch(0, SENT, codec))

    found = rows(fetched(cluster.servers, topic, 0, 15))

    expected = [
        Record(s.key, s.value, tuple((n.decode(), v) for n, v in s.headers), s.timestamp)
        for s in SENT
    ]
    assert expected * 5 == as_records(found)
    assert [*range(15)] == [row["offset"] for row in found]


@pytest.mark.in_process
@pytest.mark.parametrize("form", ["parquet", "log"])
def test_what_librdkafka_loses_is_backed_up_and_compared(
    kbackup: Kbackup, cluster: TestCluster, form: str
) -> None:
    """Whatever format stores it, source, backup and copy are the same for every comparison."""
    before = str(2**63 - 1)
    topic = cluster.create(f"lost-{form}", message_timestamp_before_max_ms=before)
    produced(cluster.servers, topic, batch(0, [SENT[0], SENT[2]]))
    words = ("-t", topic)
    chosen = ("--format", "log") if form == "log" else ()

    kbackup.json("sink", *words, *chosen)
    kbackup.json("restore", "verify", *words, "--against", "source")
    kbackup.json("restore", *words, "--rename", "copy_of_$0")

    copy = rows(fetched(cluster.servers, f"copy_of_{topic}", 0, 2))
    assert b"before\0after".decode() == copy[0]["headers"][0]["key"]
    kbackup.json("restore", "verify", *words, "--against", "target", "--rename", "copy_of_$0")


@pytest.mark.nightly
@pytest.mark.in_process
def test_compacted_batches_keep_their_offsets(
    kbackup: Kbackup, cluster: TestCluster, store: Store
) -> None:
    """Batches of which compaction has left some records are read, counted and restored."""
    topic, batches = compacted(cluster, "log-compacted", has_gaps, delete_retention_ms="100")
    _, facts = put_batches(store, topic, batches)
    found = rows(batches)

    offsets = [row["offset"] for row in found]
    assert (offsets[0], offsets[-1], len(found)) == (
        facts.first_offset, facts.last_offset, facts.records,
    )  # fmt: skip
    assert len(found) == kbackup.json("restore", "verify", "--deep", "-t", topic).summary["records"]
    kbackup.json("restore", "-t", topic, "--rename", "copy_of_$0")
    assert as_records(found) == cluster.read(f"copy_of_{topic}")


@pytest.mark.nightly
@pytest.mark.in_process
def test_transactions_of_a_compacted_topic_are_told_apart(
    kbackup: Kbackup, cluster: TestCluster
) -> None:
    """What was committed after an abort whose marker compaction has met is stored, and no more."""
    topic = cluster.create(
        "log-cleaned", cleanup_policy="compact", segment_ms="1000", delete_retention_ms="100",
        min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="1000",
    )  # fmt: skip
    producer = cluster.producer(transactional_id=topic, linger_ms=0)
    producer.init_transactions(30)
    for number in range(16):
        later = 1_700_000_000_000 + 10_000 * number
        for ends in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            keys = (b"%d" % (at * (number + 1) % 97) for at in range(20))
            send(producer, topic, [Record(key, b"%d" % number, timestamp=later) for key in keys])
            ends(30)
        time.sleep(1.5)
    found = cluster.read(topic)

    kbackup.json("sink", "-t", topic, "--format", "log")
    kbackup.json("restore", "-t", topic, "--rename", "copy_of_$0")

    assert len(found) < 320
    assert found == cluster.read(f"copy_of_{topic}")


@pytest.mark.in_process
def test_damage_is_named_with_object_and_offset(
    kbackup: Kbackup, cluster: TestCluster, store: Store
) -> None:
    """A segment that is altered, cut, in another order or of another partition is exit 7."""
    topic = cluster.create("log-damaged")
    for seed in range(4):  # a batch each
        cluster.write(topic, varied(500, seed=seed))
    batches = fetched(cluster.servers, topic, 0, 2_000)
    key, facts = put_batches(store, topic, batches)
    with store.open(key) as body:
        data = body.read()
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 4
    sent = [bytes(piece) for each in batches for at in range(len(each))
            for piece in each.slice(at, 1).pieces()]  # fmt: skip
    assert len(sent) > 1
    turned = b"".join(reversed(sent))
    put_batches(store, topic, [walk(pa.py_buffer(b"".join(sent))).check()], altered=turned)
    with store.open(key) as body:
        reordered = body.read()
    other = data.replace(b'"partition":"0"', b'"partition":"1"')
    named = [(bytes(flipped), True), (reordered, True)]
    for number, (bad, has_offset) in enumerate(
        [*named, (data[: len(data) // 2], False), (data[:-1], False), (other, False), (b"", False)]
    ):
        sha = sha256(bad).hexdigest()
        metadata = {**replace(facts, sha256=sha).to_metadata(), "partition": "0"}
        store.put(key, io.BytesIO(bad), sha256=sha, metadata=metadata)

        verified = kbackup("restore", "verify", "--deep", "-t", topic)
        restored = kbackup("restore", "-t", topic, "--rename", f"bad{number}_$0")

        assert (number, 7, 7) == (number, verified.code, restored.code)
        for said in (verified, restored):
            text = said.stdout + said.stderr
            assert key in "".join(text.split())
            assert not has_offset or re.search(r"offset\s+\d", text)
    with pytest.raises(BatchError):
        list(decoded(replace(batches[0], data=pa.py_buffer(bytes(batches[0].data.size)))))
