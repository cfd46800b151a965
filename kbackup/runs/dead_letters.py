"""Write dead letters: records that were left out, to a topic of their own.

They are written as they are found and acknowledged before the position after them is committed, so
none is lost; a run that dies between the two writes some of them again.

Source of topic and partitions: Kafka Connect's ``DeadLetterQueueReporter``.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from kbackup.errors import KafkaError, KbackupError
from kbackup.kafka import Cluster, Connection, NewTopic, TargetWriter, create_topic
from kbackup.naming import alike
from kbackup.records import TopicPartition, replaced

CONTEXT: Final = "__connect.errors."
"""What the names of the headers begin with that say what is wrong."""

ANY_PARTITION: Final = -1
"""Librdkafka's: the record's key chooses the partition."""

_PARTITIONS: Final = 1
_CONFIG: Final = {"retention.ms": "-1"}
"""Of a topic that is created: a dead letter keeps the record's timestamp, and the default retention
would delete an old one at once."""


def with_headers(
    letters: pa.RecordBatch, more: Iterable[Iterable[Mapping[str, Any]]]
) -> pa.RecordBatch:
    """Return letters, `records.SCHEMA`, with *more* headers after those that each has."""
    found = letters["headers"].to_pylist()
    headers = [[*own, *added] for own, added in zip(found, more, strict=True)]
    return replaced(letters, "headers", pa.array(headers, letters["headers"].type))


class DeadLetters:
    """The dead letter topic, as a task writes to it; opened for the first letter.

    Not safe to use from several threads at once.
    """

    def __init__(self, kafka: Connection, group: str, topic: str) -> None:
        self._kafka, self._group, self.topic = kafka, group, topic
        self._writer: TargetWriter | None = None

    def send(self, batch: pa.RecordBatch) -> None:
        """Hand over letters, `records.SCHEMA`; `flush` says whether they have arrived."""
        try:
            if self._writer is None:
                target = TopicPartition(self.topic, ANY_PARTITION)
                self._writer = self._kafka.writer(
                    target, self._group, exactly_once=False, is_spread=True
                )
            self._writer.write(batch)
        except KbackupError as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        """Wait until the cluster has acknowledged every dead letter.

        What fails must keep what it belongs to from being committed.
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


def ensure_topic(
    cluster: Cluster,
    topic: str,
    replication_factor: int,
    option: str,
    *,
    only_validate: bool = False,
) -> None:
    """Create the dead letter topic, with one partition that keeps everything, unless it is there.

    A factor of -1 takes the cluster's default; *option* sets it.

    Raises:
        IllegalTopicNameError: If Kafka would take its name for that of another topic.
    """
    if topic in cluster.topics([topic]):
        return
    metric = topic.replace(".", "_")
    if taken := [name for name in cluster.topic_names() if name.replace(".", "_") == metric]:
        raise alike([*taken, topic], topic, "choose another dead letter topic")
    try:
        new = NewTopic(topic, _PARTITIONS, replication_factor, _CONFIG)
        create_topic(cluster, new, only_validate=only_validate)
    except KafkaError as error:
        if topic in cluster.topics([topic]):  # someone else was faster
            return
        raise KafkaError(
            f"the dead letter topic {topic} cannot be created",
            str(error),
            f"create it, or set {option} to at most the number of brokers",
            topic=topic,
        ) from error
