"""librdkafka's own broker, in this process: no Java, ready at once.

It keeps what it is sent, byte for byte, and knows transactions, but neither aborts, compaction nor
retention: tests of those take a real Kafka.
"""

import logging
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka import KafkaError as Code

from kbackup.records import SCHEMA
from tests.support.cluster import Record

_SILENT = logging.Logger("mock")
_SILENT.addHandler(logging.NullHandler())


class MockKafka:
    """One broker; a topic has four partitions and is there when it is first written to."""

    def __init__(self) -> None:
        self._owner = Producer(
            {"bootstrap.servers": "mock", "test.mock.num.brokers": 1}, logger=_SILENT
        )
        (broker,) = self._owner.list_topics(timeout=10).brokers.values()
        self.bootstrap_servers = f"{broker.host}:{broker.port}"
        self._producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "message.max.bytes": 90_000_000,
                "queue.buffering.max.kbytes": 2_000_000,
                "linger.ms": 5,
            },
            logger=_SILENT,
        )

    def create(self, topic: str) -> None:
        """Have a topic, without records."""
        self._producer.list_topics(topic, 10)

    def write(self, topic: str, records: Iterable[Record], partition: int = 0) -> None:
        """Append records to a partition."""
        for record in records:
            self._producer.produce(
                topic, record.value, record.key, partition, timestamp=record.timestamp,
                headers=list(record.headers) or None,
            )  # fmt: skip
        assert self._producer.flush(30) == 0

    def batch(self, topic: str, partition: int = 0, start: int = 0) -> pa.RecordBatch:
        """What the client itself makes of a partition, record by record."""
        return objects_batch(self.bootstrap_servers, topic, partition, start)


def objects_batch(
    servers: str,
    topic: str,
    partition: int = 0,
    start: int = OFFSET_BEGINNING,
    **properties: Any,
) -> pa.RecordBatch:
    """A partition's records from an offset on, as ``records.SCHEMA``; no code of kbackup's."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "judge",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 10,
            "fetch.wait.max.ms": 10,
            "fetch.message.max.bytes": 100_000_000,
            **{name.replace("_", "."): value for name, value in properties.items()},
        },
        logger=_SILENT,
    )
    rows = []
    try:
        consumer.list_topics(topic, 10)  # else a timer of a second finds its leader
        consumer.assign([TopicPartition(topic, partition, start)])
        while True:
            for message in consumer.consume(500, 0.02):
                if message.error() is None:
                    rows.append(_row(message))
                    continue
                assert message.error().code() == Code._PARTITION_EOF, message.error()
                return pa.RecordBatch.from_pylist(rows, SCHEMA)
    finally:
        consumer.close()


def _row(message: Any) -> dict[str, Any]:
    kind, timestamp = message.timestamp()
    return {
        "offset": message.offset(),
        "timestamp": timestamp,
        "timestamp_type": kind,
        "key": message.key(),
        "value": message.value(),
        "headers": [{"key": name, "value": value} for name, value in message.headers() or ()],
    }
