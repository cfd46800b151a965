"""Dead letters: records that were left out, kept in a topic of their own as they were.

They are written as they are found and acknowledged before the offset after them is committed, so
none is lost; a run that dies between the two writes some of them again.

Source of topic, partitions and headers: Kafka Connect's ``DeadLetterQueueReporter``.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.errors import KafkaError, KbackupError
from kbackup.flow.rows import BadRecord
from kbackup.kafka import Cluster, Connection, Writer
from kbackup.records import SCHEMA, TopicPartition

ANY_PARTITION: Final = -1
"""Librdkafka's: the record's key chooses the partition."""

PREFIX: Final = "__connect.errors."
"""What the names of the headers begin with that say what is wrong."""

_PARTITIONS: Final = 1
_CONFIG: Final = {"retention.ms": "-1"}
"""Of a topic that is created: a dead letter keeps the record's timestamp, and the default retention
would delete an old one at once."""
_CLASS: Final = "io.confluent.connect.s3.S3SinkTask"
_EXCEPTION: Final = "org.apache.kafka.connect.errors.DataException"


class DeadLetters:
    """The dead letter topic, as a task writes to it; opened for the first letter.

    Not safe to use from several threads at once.
    """

    def __init__(self, kafka: Connection, group: str, topic: str) -> None:
        self._kafka, self._group, self.topic = kafka, group, topic
        self._writer: Writer | None = None

    def send(self, batch: pa.RecordBatch) -> None:
        """Hand over letters, `records.SCHEMA`; `flush` says whether they have arrived.

        Raises:
            KbackupError: If one could not be written.
        """
        try:
            if self._writer is None:
                target = TopicPartition(self.topic, ANY_PARTITION)
                self._writer = self._kafka.writer(target, self._group, exactly_once=False)
            self._writer.write(batch)
        except KbackupError as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        """Wait until the cluster has acknowledged every dead letter.

        Raises:
            KbackupError: If one could not be written; what it belongs to must not be committed.
        """
        if self._writer is not None:
            try:
                self._writer.flush()
            except KbackupError as error:
                raise self._failed(error) from error

    def close(self) -> None:
        """Leave the cluster."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _failed(self, error: KbackupError) -> KbackupError:
        """Return *error* as one of dead letters; the next letter gets a new writer."""
        self.close()
        why = error.why or error.what  # what failed names a partition that the client chooses
        failed = type(error)(
            f"dead letters cannot be written to {self.topic}", why, error.do, **error.place
        )
        if isinstance(failed, KafkaError) and isinstance(error, KafkaError):
            failed.is_away = error.is_away
        return failed


def ensure_topic(cluster: Cluster, topic: str, replication_factor: int) -> None:
    """Create the dead letter topic, with one partition that keeps everything, unless it is there.

    Raises:
        KafkaError: If it cannot be created.
    """
    if topic in cluster.topics([topic]):
        return
    try:
        cluster.create_topic(topic, _PARTITIONS, replication_factor, _CONFIG)
    except KafkaError as error:
        if topic in cluster.topics([topic]):  # someone else was faster
            return
        raise KafkaError(
            f"the dead letter topic {topic} cannot be created",
            str(error),
            "create it, or set errors.deadletterqueue.topic.replication.factor to at most the "
            "number of brokers",
            topic=topic,
        ) from error


def with_context(
    letters: pa.RecordBatch, bad: Sequence[BadRecord], where: TopicPartition, connector: str
) -> pa.RecordBatch:
    """Add headers that say where records came from and what is wrong with them.

    Args:
        letters: ``records.SCHEMA``, a row for each of *bad*.
        bad: What is wrong with each.
        where: Their partition.
        connector: Its name.
    """
    headers = [
        [*own, *_context(one, where, connector)]
        for own, one in zip(letters["headers"].to_pylist(), bad, strict=True)
    ]
    at = SCHEMA.get_field_index("headers")
    return letters.set_column(at, SCHEMA.field(at), pa.array(headers, SCHEMA.field(at).type))


def _context(bad: BadRecord, where: TopicPartition, connector: str) -> Iterable[dict[str, Any]]:
    error = bad.error(where)
    facts = {
        "topic": where.topic,
        "partition": str(where.partition),
        "offset": str(bad.offset),
        "connector.name": connector,
        "task.id": "0",
        "stage": bad.stage,
        "class.name": _CLASS,
        "exception.class.name": _EXCEPTION,
        "exception.message": str(error),
        "exception.stacktrace": "\n".join(filter(None, (error.what, error.why, error.do))),
    }
    for name, text in facts.items():
        yield {"key": PREFIX + name, "value": text.encode()}


def of_offsets(batch: pa.RecordBatch, offsets: Sequence[int]) -> pa.RecordBatch:
    """Return the rows of *batch* that have these offsets."""
    return batch.filter(pc.is_in(batch["offset"], pa.array(offsets, pa.int64())))
