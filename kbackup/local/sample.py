"""Make the demo's records, every kind that a backup can get wrong, and compare a copy of them.

Four topics, as rows of ``records.SCHEMA``::

    orders     4 partitions   repeated header names, null keys, empty keys and values
    payments   3 partitions   written in transactions, some of them aborted
    clicks     2 partitions   binary with newlines, no keys, the broker's own timestamps
    profiles   1 partition    compacted; most keys more than once, tombstones

A record's number determines its kind, so a small sample has all kinds too; a seeded random
generator only fills in names and bytes.

Every record of each partition is compared, in order, as columns: key, value, headers (their order,
repeated names, null against empty) and timestamp.  Offsets, and who set the timestamp, are not: a
copy has its own offsets, and timestamps that its producer set.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from typing import Final

import orjson
import pyarrow as pa

from kbackup.errors import AuditError
from kbackup.kafka import Cluster, Connection, NewTopic, Position, TargetWriter, Topic, create_topic
from kbackup.records import SCHEMA, TimestampType, TopicPartition, replaced
from kbackup.runs.compare import Difference, in_order

BATCH_RECORDS: Final = 5_000
"""The most records of a batch."""

MIN_BATCHES: Final = 8
"""The fewest batches of a partition: each may become its own transaction or segment."""

_START_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z, the timestamp around which each partition begins."""

SPAN_MS: Final = 3 * 86_400_000
"""The time span of a partition's timestamps."""

_JITTER_MS: Final = 2 * 3_600_000
"""More than the time between two records, so that some are out of order."""

Header = tuple[str, bytes | None]
Row = tuple[bytes | None, bytes | None, list[Header]]
"""Key, value and headers of a record."""

Kind = Callable[[int, Random], Row]
"""Makes the record of a number, counted from 0 in its partition."""


def _order(number: int, random: Random) -> Row:
    customer = random.randrange(20_000)
    order = {
        "order": number,
        "customer": customer,
        "city": random.choice(("Zürich", "São Paulo", "東京", "Nairobi")),
        "items": [random.randrange(10_000) for _ in range(random.randrange(1, 6))],
    }
    key: bytes | None = b"customer-%d" % customer
    match number % 20:
        case 3:
            key = None
        case 7:
            key = b""
    value = b"" if number % 40 == 11 else orjson.dumps(order)
    return key, value, _order_headers(number, random)


def _order_headers(number: int, random: Random) -> list[Header]:
    match number % 5:
        case 0:
            return []
        case 1:
            return [("trace", random.randbytes(16)), ("source", b"web")]
        case 2:
            return [("tag", b"new"), ("tag", None), ("tag", b""), ("tag", b"new")]
        case 3:
            return [("", b"a name may be empty"), ("ключ", "значение".encode()), ("none", None)]
    return [("source", b"app")]


def _payment(number: int, random: Random) -> Row:
    amount = b"%d.%02d" % (random.randrange(900), random.randrange(100))
    headers: list[Header] = [("idempotency-key", random.randbytes(8)), ("retry-of", None)]
    return b"payment-%08d" % number, b"<payment>%s</payment>" % amount, headers


def _click(number: int, random: Random) -> Row:
    value = random.randbytes(random.randrange(8, 80)) + b"\r\n" + random.randbytes(8) + b"\n\x00"
    return None, value, [("session", b"%06d" % random.randrange(10**6))] if number % 2 else []


def _profile(number: int, random: Random) -> Row:
    # a few keys are written many times, many only once
    key = b"user-%d" % int(random.random() ** 4 * 20_000)
    if number % 10 == 9:
        return key, None, [("reason", b"account closed")]
    profile = {"name": f"User {number}", "visits": random.randrange(1000), "bio": "a\nb\tc"}
    return key, orjson.dumps(profile, option=orjson.OPT_INDENT_2), []


@dataclass(frozen=True, slots=True)
class SampleTopic:
    """One topic of the sample.

    Attributes:
        share: Percent of the sample's records.
        is_transactional: Written in transactions, one per batch, with aborted ones in between.
        config: Settings to create it with, besides those of every topic of the sample.
    """

    name: str
    partitions: int
    share: int
    kind: Kind
    about: str
    is_transactional: bool = False
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_compacted(self) -> bool:
        """Whether the broker removes records that have a later one of the same key."""
        return self.config.get("cleanup.policy") == "compact"

    def records(self, partition: int, sample_records: int) -> int:
        """Return how many records of a sample of *sample_records* belong to *partition*."""
        own = sample_records * self.share // 100
        return own // self.partitions + (partition < own % self.partitions)

    def batches(
        self, partition: int, sample_records: int, seed: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Make the records of *partition*, the same for the same arguments.

        Yields:
            ``records.SCHEMA``, offsets counted from 0; `MIN_BATCHES` batches or more, none above
            `BATCH_RECORDS`.  Timestamps are out of order here and there.
        """
        random = Random(f"{seed} {self.name} {partition}")  # noqa: S311  (nothing secret)
        total = self.records(partition, sample_records)
        step = min(BATCH_RECORDS, max(1, total // MIN_BATCHES))
        for start in range(0, total, step):
            yield self._batch(range(start, min(start + step, total)), total, random)

    def _batch(self, numbers: range, total: int, random: Random) -> pa.RecordBatch:
        rows = [self.kind(number, random) for number in numbers]
        keys, values, headers = zip(*rows, strict=True)
        times = [
            _START_MS + number * SPAN_MS // total + random.randrange(_JITTER_MS)
            for number in numbers
        ]
        columns = [
            numbers,
            times,
            [TimestampType.CREATE] * len(numbers),
            keys,
            values,
            [[{"key": name, "value": value} for name, value in row] for row in headers],
        ]
        arrays = [
            pa.array(column, entry.type) for column, entry in zip(columns, SCHEMA, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


TOPICS: Final = (
    # compaction continues while the others are written, so this one is first
    SampleTopic(
        "profiles",
        partitions=1,
        share=10,
        kind=_profile,
        about="compacted, with tombstones",
        config={
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            # a segment for each eighth of the records; all but the last can be compacted
            "segment.ms": str(SPAN_MS // MIN_BATCHES),
        },
    ),
    SampleTopic(
        "orders",
        partitions=4,
        share=40,
        kind=_order,
        about="null and empty keys, repeated and null headers",
    ),
    SampleTopic(
        "payments",
        partitions=3,
        share=30,
        kind=_payment,
        about="written in transactions, some of them aborted",
        is_transactional=True,
    ),
    SampleTopic(
        "clicks",
        partitions=2,
        share=20,
        kind=_click,
        about="no keys, binary with newlines, broker's timestamps",
        config={"message.timestamp.type": "LogAppendTime"},
    ),
)
"""The topics, in the order in which they are written."""


_GROUP: Final = "kbackup-sample"

_ABORTED_EVERY: Final = 3
"""One of this many transactions is aborted and then retried."""

COMPACTION_SECONDS: Final = 15.0
"""How long to wait for the broker to compact what it can; a second is usual."""

_SETTLED_SECONDS: Final = 1.0
"""Compaction is over when nothing has been removed for this long."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A topic of the sample in a cluster.

    Attributes:
        written: Records written, without those of aborted transactions.
        readable: Records that a consumer gets: fewer if the broker has compacted.
    """

    topic: SampleTopic
    written: int
    readable: int


def fill(
    kafka: Connection, sample_records: int, topics: Iterable[SampleTopic] = TOPICS
) -> Iterator[Filled]:
    """Create *topics* and write their records, of a sample of *sample_records* in all.

    Yields:
        One `Filled` per topic, compacted ones last: by then the broker has had time for them.

    Raises:
        KafkaError: If a topic exists already, or the cluster refuses.
    """
    cluster = kafka.cluster()
    compacted = []
    for topic in topics:
        # the broker uses the records' timestamps, and these are old
        config = {"retention.ms": "-1", **topic.config}
        create_topic(cluster, NewTopic(topic.name, topic.partitions, 1, config))
        written = sum(
            _write(kafka, topic, partition, sample_records) for partition in range(topic.partitions)
        )
        if topic.is_compacted:
            compacted.append((topic, written))
        else:
            yield Filled(topic, written, written)
    for topic, written in compacted:
        yield Filled(topic, written, _settled(kafka, cluster, topic, written))


def _write(kafka: Connection, topic: SampleTopic, partition: int, sample_records: int) -> int:
    where = TopicPartition(topic.name, partition)
    batches = topic.batches(partition, sample_records)
    writer = kafka.writer(where, _GROUP, exactly_once=topic.is_transactional)
    try:
        write = _write_transactions if topic.is_transactional else _write_plainly
        return write(writer, batches)
    finally:
        writer.close()


def _write_plainly(writer: TargetWriter, batches: Iterable[pa.RecordBatch]) -> int:
    written = 0
    for batch in batches:
        writer.write(batch)
        writer.flush()  # so that each batch is an append of its own, and may begin a segment
        written += len(batch)
    return written


def _write_transactions(writer: TargetWriter, batches: Iterable[pa.RecordBatch]) -> int:
    """Write a transaction per batch.  The last is aborted, so the log does not end in a record."""
    written = 0
    for index, batch in enumerate(batches):
        if index % _ABORTED_EVERY == 1:
            _abort(writer, batch)
        writer.write(batch)
        written += len(batch)
        writer.commit(Position(written))
    _abort(writer, batch)
    return written


def _abort(writer: TargetWriter, batch: pa.RecordBatch) -> None:
    writer.write(batch)
    writer.flush()  # into the log, where a consumer must skip them
    writer.abort()


def _settled(kafka: Connection, cluster: Cluster, topic: SampleTopic, written: int) -> int:
    """Return the number of readable records once compaction is over or has not started."""
    deadline = time.monotonic() + COMPACTION_SECONDS
    last = _readable(kafka, cluster, topic)
    while time.monotonic() < deadline:
        time.sleep(_SETTLED_SECONDS)
        now = _readable(kafka, cluster, topic)
        if now == last < written:
            break
        last = now
    return last


def _readable(kafka: Connection, cluster: Cluster, topic: SampleTopic) -> int:
    wheres = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
    reader = kafka.reader(_GROUP)
    try:
        return sum(
            len(batch)
            for where, span in cluster.settled_spans(wheres).items()
            for batch in reader.read(where, span)
        )
    finally:
        reader.close()


_COMPARING_GROUP: Final = "kbackup-compare"


def compare_topics(
    kafka: Connection, names: Mapping[str, str]
) -> Iterator[tuple[TopicPartition, int]]:
    """Compare topics with their copies in one cluster, partition by partition.

    Args:
        names: The name of each original's copy.

    Yields:
        Each partition of the originals, and how many records it and its copy have.

    Raises:
        AuditError: At the first partition that differs, with the place of the first difference.
        KafkaError: If an original does not exist, or something cannot be read.
    """
    cluster = kafka.cluster()
    topics = cluster.topics({*names, *names.values()})
    reader, copy_reader = kafka.reader(_COMPARING_GROUP), kafka.reader(_GROUP)
    try:
        for name, copy_name in names.items():
            partitions = _partitions(name, topics.get(name), copy_name, topics.get(copy_name))
            for partition in range(partitions):
                where, copy = TopicPartition(name, partition), TopicPartition(copy_name, partition)
                spans = cluster.settled_spans([where, copy])
                with (
                    closing(reader.read(where, spans[where])) as records,
                    closing(copy_reader.read(copy, spans[copy])) as copies,
                ):
                    compared = in_order(map(_comparable, records), map(_comparable, copies))
                if compared.named:
                    raise _error(where, copy, compared.named[0])
                yield where, compared.same
    finally:
        reader.close()
        copy_reader.close()


def _comparable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return records as a copy may have them: their timestamps are set by its producer."""
    kinds = pa.repeat(pa.scalar(TimestampType.CREATE, pa.int8()), len(batch))
    return replaced(batch, "timestamp_type", kinds)


def _partitions(name: str, topic: Topic | None, copy_name: str, copy: Topic | None) -> int:
    if topic is None or copy is None:
        raise AuditError(f"{name} and {copy_name}", f"no topic {copy_name if topic else name}")
    if topic.partitions != copy.partitions:
        raise AuditError(
            f"{name} and {copy_name}", f"{topic.partitions} and {copy.partitions} partitions"
        )
    return topic.partitions


def _error(where: TopicPartition, copy: TopicPartition, found: Difference) -> AuditError:
    if found.offset is None:
        why = f"the copy has a record at offset {found.kafka_offset}, and the original has none"
    elif found.kafka_offset is None:
        why = f"the original has a record at offset {found.offset}, and the copy has none"
    else:
        why = f"at offset {found.offset} of the original, {found.kafka_offset} of the copy, they "
        why += f"differ in {found.what}"
    return AuditError(f"{copy} is not equal to {where}", why, **where.place, offset=found.offset)
