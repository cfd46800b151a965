"""Fills a cluster with the sample: creates its topics and writes their records."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kbackup.kafka import Cluster, Connection, NewTopic, Position, Writer, create_topic
from kbackup.local.sample import TOPICS, SampleTopic
from kbackup.records import TopicPartition

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
        topic: What it is.
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


def _write_plainly(writer: Writer, batches: Iterable[pa.RecordBatch]) -> int:
    written = 0
    for batch in batches:
        writer.write(batch)
        writer.flush()  # so that each batch is an append of its own, and may begin a segment
        written += len(batch)
    return written


def _write_transactions(writer: Writer, batches: Iterable[pa.RecordBatch]) -> int:
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


def _abort(writer: Writer, batch: pa.RecordBatch) -> None:
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
