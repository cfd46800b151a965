"""A million awkward records, there and back by batches: equal record by record, batch by batch.

By columns, in Arrow: a loop in Python would take longer than all the rest.
"""

import subprocess
import time
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks import kafka_tools
from tests.integration.product import (
    Batches,
    KafkaSettings,
    Reader,
    Span,
    Store,
    TopicPartition,
    decoded,
    walk,
)
from tests.integration.test_log import CODECS, SENT, awkward, compacted, has_gaps, stored
from tests.integration.test_restore_batches import ALWAYS, NOISE, shapes
from tests.support.cluster import TestCluster, send, varied
from tests.support.command import Kbackup
from tests.support.encoded import Sent, batch
from tests.support.fetched import fetched, produced

pytestmark = [pytest.mark.integration, pytest.mark.nightly, pytest.mark.in_process]

COLUMNS = ["key", "value", "headers", "timestamp"]
CODEC_BITS, APPEND_TIME, TRANSACTIONAL, DELETE_HORIZON = 0x07, 0x08, 0x10, 0x40


def by_clients(cluster: TestCluster) -> str:
    """By librdkafka and by the broker's Java, in all codecs; transactions, some of them aborted."""
    topic = cluster.create("equal-clients")
    awkward(cluster, topic, 100_000)
    cluster.delete_records(topic, {0: 7})  # the first batch has 10,000
    return topic


def by_java(cluster: TestCluster) -> str:
    """By Kafka's own producer, in all codecs."""
    topic = cluster.create("equal-java")
    lines = "".join(
        f"{('NULL', f'h:{at}', 'h:1,h:,h:NULL')[at % 3]}\t{('NULL', '', at)[at // 3 % 3]}\t"
        f"{('NULL', '', 'x' * (at % 500))[at // 9 % 3]}\n"
        for at in range(10_000)
    )
    words = [
        *kafka_tools.tool("ConsoleProducer"), "--bootstrap-server", cluster.servers,
        "--topic", topic, "--property", "parse.headers=true", "--property", "parse.key=true",
        "--property", "null.marker=NULL", "--batch-size", "200000", "--timeout", "50",
    ]  # fmt: skip
    for codec in CODECS:
        command = [*words, "--compression-codec", codec]
        subprocess.run(command, input=lines, text=True, check=True, capture_output=True)
    return topic


def by_nobody(cluster: TestCluster) -> str:
    """What clients do not send: NULs in names, 70 headers, the time 0, and no time."""
    topic = cluster.create("equal-made", message_timestamp_before_max_ms=ALWAYS)
    for codec, number in product(range(5), range(10)):
        others = [Sent(b"%d.%d" % (number, at), timestamp=at - 500) for at in range(1_000)]
        records = [*SENT, Sent(NOISE.randbytes(30_000)), *others]
        produced(cluster.servers, topic, batch(0, records, codec))
    cluster.delete_records(topic, {0: 509})
    return topic


def by_the_brokers_time(cluster: TestCluster) -> str:
    """The times of whole batches are the broker's; a copy is to have them, and not its own."""
    topic = cluster.create("equal-appended", message_timestamp_type="LogAppendTime")
    for codec in CODECS:
        producer = cluster.producer(compression_type=codec)
        send(producer, topic, varied(10_000))
        assert producer.flush(60) == 0
    cluster.delete_records(topic, {0: 1234})
    cluster.create(f"copy_of_{topic}")
    return topic


def by_compaction(cluster: TestCluster) -> str:
    """Of some batches there are only some records left, of others deletions that are to go."""

    def is_there(batches: Batches) -> bool:
        return has_gaps(batches) and bool(pc.any(batches.flagged(DELETE_HORIZON)).as_py())

    topic, before = compacted(cluster, "equal-compacted", is_there, 5_000)
    cluster.configure(topic, cleanup_policy="delete")  # what is read twice is to stay as it is
    while (now := fetched(cluster.servers, topic, 0, cluster.ends(topic)[1])) != before:
        before = now
        time.sleep(1)
    cluster.create(f"copy_of_{topic}")
    return topic


def rows(batches: list[Batches], span: Span) -> pa.Table:
    """What a copy has in common with the records of batches."""
    found = (part for each in batches for part in decoded(each, span))
    return pa.Table.from_batches(found).select(COLUMNS)


def by_the_client(servers: str, topic: str, span: Span) -> pa.Table:
    """The same as librdkafka reads it, which knows nothing of our decoder."""
    reader = Reader(KafkaSettings(servers), "equality")
    try:
        found = list(reader.read(TopicPartition(topic, 0), span))
    finally:
        reader.close()
    return pa.Table.from_batches(found).select(COLUMNS)


def attributes(batches: list[Batches]) -> set[int]:
    """Those that any of the batches has."""
    return {found for each in batches for found in each.headers["attributes"].to_pylist()}


def check_awkward(held: pa.Table) -> None:
    """Check that there is all that records may be."""
    headers = pc.list_flatten(held["headers"])
    for column in (held["key"], held["value"], pc.struct_field(headers, "value")):
        assert column.null_count > 0
        assert 0 == pc.min(pc.binary_length(column)).as_py()
    assert pc.any(pc.match_substring(pc.struct_field(headers, "key"), "\0")).as_py()
    assert 70 == pc.max(pc.list_value_length(held["headers"])).as_py()
    assert all(pc.any(pc.equal(held["timestamp"], at)).as_py() for at in (0, -1))


def test_a_million_awkward_records_are_the_same(
    kbackup: Kbackup, cluster: TestCluster, store: Store
) -> None:
    """All that a log may hold, from a start within a batch on: stored and restored unchanged."""
    uncut = [by_java(cluster), by_compaction(cluster)]
    topics = [by_clients(cluster), by_nobody(cluster), by_the_brokers_time(cluster), *uncut]
    words = ("--topics-regex", "equal-.*")
    sunk = kbackup.json("sink", *words, "--format", "log", "--flush-size", "70000").summary

    found = kbackup.json("restore", *words, "--rename", "copy_of_$0").summary

    assert sunk["records"] == found["records"] >= 1_000_000
    assert {} == found["skipped"]
    as_stored, seen, held = 0, set[int](), list[pa.Table]()
    for topic in topics:
        copy = f"copy_of_{topic}"
        spans = [Span(*cluster.ends(name)) for name in (topic, copy)]
        source, target = (
            fetched(cluster.servers, name, span.start_offset, span.end_offset)
            for name, span in zip((topic, copy), spans, strict=True)
        )
        seen |= attributes(source)
        expected, got = rows(source, spans[0]), rows(target, spans[1])
        assert expected.equals(got), topic
        held.append(expected)
        if "made" not in topic:
            assert expected.equals(by_the_client(cluster.servers, copy, spans[1])), topic
        sent = b"".join(bytes(piece) for each in source for piece in each.pieces())
        cut = source[0].headers["length"][0].as_py()
        assert topic in uncut or source[0].first_offset < spans[0].start_offset
        backup = stored(store, topic)
        assert backup.endswith(sent[cut:]), topic
        kept = walk(pa.py_buffer(backup)).check()
        kept = kept.where(pc.invert(kept.flagged(APPEND_TIME)))
        originals, copies = shapes([kept], plain=2**16, packed=2**14), iter(shapes(target))
        assert all(each in copies for each in originals), topic  # in their order
        as_stored += sum(each[-1] for each in originals)
    assert as_stored == found["as_stored"] > 0
    check_awkward(pa.concat_tables(held))
    ended = held[0].filter(pc.equal(held[0]["key"], b"txn"))["value"]
    assert {b"1", b"4", b"7", b"10", b"again"} == {*pc.unique(ended).to_pylist()}  # no aborted ones
    assert {*range(5)} == {each & CODEC_BITS for each in seen}
    assert {0, APPEND_TIME, TRANSACTIONAL, DELETE_HORIZON} <= {each & ~CODEC_BITS for each in seen}
