"""The cluster through the client library alone: nothing of kbackup judges itself here."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as Code
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

_T = TypeVar("_T")

KEEP = {"retention.ms": "-1"}


class Record(NamedTuple):
    """One record: what a backup must keep, its offset left out."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = 1_700_000_000_000


class TestCluster:
    """Makes topics, writes records, reads them back."""

    __test__ = False

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers})

    def create(self, topic: str, partitions: int = 1, **config: str) -> str:
        """Create a topic that keeps old timestamps, and wait until the broker shows it."""
        settings = {**KEEP, **{name.replace("_", "."): text for name, text in config.items()}}
        new = NewTopic(topic, partitions, 1, config=settings)
        self.admin.create_topics([new])[topic].result(30)
        while topic not in self.admin.list_topics(timeout=10).topics:
            time.sleep(0.02)
        return topic

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self.admin.delete_topics([topic])[topic].result(30)
        while topic in self.admin.list_topics(timeout=10).topics:
            time.sleep(0.02)

    def configure(self, topic: str, **config: str) -> None:
        """Change settings of a topic."""
        entries = [
            ConfigEntry(name.replace("_", "."), text, incremental_operation=AlterConfigOpType.SET)
            for name, text in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(30)
        given = {name.replace("_", "."): text for name, text in config.items()}
        deadline = time.monotonic() + 30
        while not given.items() <= self.overridden(topic).items():  # until the broker has it
            assert time.monotonic() < deadline, given
            time.sleep(0.02)

    def overridden(self, topic: str) -> dict[str, str]:
        """The settings of a topic's own."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = self.admin.describe_configs([resource])[resource].result(30)
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {
            name: entry.value
            for name, entry in entries.items()
            if getattr(entry.source, "value", entry.source) == own
        }

    def producer(self, **config: Any) -> Producer:
        """A producer that takes large records."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        return Producer(
            {
                "bootstrap.servers": self.servers,
                "message.max.bytes": 100_000_000,
                "linger.ms": 20,
                "enable.idempotence": True,  # a batch that is sent again keeps its place
                "queue.buffering.max.messages": 1_000_000,
                **settings,
            }
        )

    def write(self, topic: str, records: Iterable[Record], partition: int = 0) -> None:
        """Append records to a partition."""
        producer = self.producer()
        send(producer, topic, records, partition)
        assert producer.flush(60) == 0

    def read(
        self, topic: str, partition: int = 0, *, isolation: str = "read_committed"
    ) -> list[Record]:
        """All readable records of a partition, in order, once ended transactions are visible."""
        self.settle(topic, partition)
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "test-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "fetch.message.max.bytes": 50_000_000,
                "fetch.queue.backoff.ms": 10,
                "fetch.wait.max.ms": 10,
            }
        )
        found: list[Record] = []
        try:
            consumer.list_topics(topic, timeout=10)  # else it looks for the leader in half a second
            consumer.assign([TopicPartition(topic, partition, 0)])
            consumer.assign([TopicPartition(topic, partition, -2)])
            while True:
                for message in consumer.consume(500, 0.05):
                    error = message.error()
                    if error is None:
                        found.append(as_record(message))
                    elif error.code() == Code._PARTITION_EOF:
                        return found
                    else:
                        raise AssertionError(error.str())
        finally:
            consumer.close()

    def settle(self, topic: str, partition: int) -> None:
        """Wait a while for the markers of transactions: a commit is answered before them."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            stable = self.end_offsets(topic, IsolationLevel.READ_COMMITTED)
            if stable[partition] == self.end_offsets(topic)[partition]:
                return
            time.sleep(0.02)

    def _settled(self, topic: str, ask: Callable[[], _T]) -> _T:
        """What *ask* returns once the leaders of a topic that was just created are known.

        The client remembers an older topic of the same name, until it is made to look again; a
        broker may hear of a new leader after the client.
        """
        passing = Code.NOT_LEADER_FOR_PARTITION, Code.UNKNOWN_LEADER_EPOCH, Code._NOENT
        deadline = time.monotonic() + 30
        while True:
            try:
                return ask()
            except KafkaException as error:
                if error.args[0].code() not in passing or time.monotonic() > deadline:
                    raise
                self.admin.list_topics(topic, timeout=10)

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Log start and end offset."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "test-ends"})
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)
            return low, high
        finally:
            consumer.close()

    def end_offsets(
        self, topic: str, level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> list[int]:
        """End offsets of all partitions, open transactions included; none without a topic."""
        found = self.admin.list_topics(timeout=30).topics.get(topic)
        if found is None:
            return []
        asked = {TopicPartition(topic, at): OffsetSpec.latest() for at in found.partitions}

        def ask() -> list[int]:
            answers = self.admin.list_offsets(asked, isolation_level=level)
            return [future.result(30).offset for future in answers.values()]

        return self._settled(topic, ask)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete what lies before an offset, as retention does."""
        offsets = [TopicPartition(topic, partition, at) for partition, at in before.items()]
        self._settled(
            topic,
            lambda: [future.result(30) for future in self.admin.delete_records(offsets).values()],
        )

    def committed(self, group: str, topic: str, partitions: Sequence[int] = (0,)) -> list[int]:
        """A group's offsets, those of open transactions left out; -1001 where there is none."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": group,
                "isolation.level": "read_uncommitted",  # else it waits for the transaction's end
            }
        )
        try:
            asked = [TopicPartition(topic, partition) for partition in partitions]
            return [at.offset for at in consumer.committed(asked, 10)]
        finally:
            consumer.close()

    def commit(
        self, group: str, topic: str, offset: int | Mapping[int, int], beside: str | None = None
    ) -> None:
        """Move a group in partition 0, or in those of *offset*, with metadata or without."""
        offsets = {0: offset} if isinstance(offset, int) else offset
        metadata = () if beside is None else (beside,)
        wanted = [TopicPartition(topic, at, to, *metadata) for at, to in offsets.items()]
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group})
        try:
            consumer.commit(offsets=wanted, asynchronous=False)
        finally:
            consumer.close()

    def join(self, group: str, topic: str, **properties: Any) -> Consumer:
        """Return a member of a group that was given its partitions; who asks for it closes it."""
        own = {"bootstrap.servers": self.servers, "group.id": group, "enable.auto.commit": False}
        found = Consumer(own | properties)
        found.subscribe([topic])
        while not found.assignment():
            found.poll(0.1)
        return found


def send(producer: Producer, topic: str, records: Iterable[Record], partition: int = 0) -> None:
    """Hand records to a producer."""
    for record in records:
        while True:
            try:
                producer.produce(
                    topic, record.value, record.key, partition,
                    timestamp=record.timestamp, headers=list(record.headers) or None,
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.1)


def as_record(message: Any) -> Record:
    """What a consumed message holds."""
    return Record(
        message.key(), message.value(), tuple(message.headers() or ()), message.timestamp()[1]
    )


def varied(count: int, seed: int = 0) -> list[Record]:
    """Records of every kind: null, empty, binary, newlines, repeated headers, tombstones."""
    keys = (None, b"", b"key", b"\x00\xff\n", "schlüssel".encode())
    values = (b"value", None, b"", b"two\nlines\r\n", bytes(range(256)), b"x" * 1000)
    headers: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
        (),
        (("trace", b"1"),),
        (("dup", b"1"), ("dup", None), ("dup", b"")),
        (("", b""), ("raw", b"\xff\x00")),
    )
    return [
        Record(
            keys[(at * 7 + seed) % len(keys)],
            values[(at * 5 + seed) % len(values)],
            headers[(at * 3 + seed) % len(headers)],
            1_700_000_000_000 + at * 37 - (at % 11) * 1000,
        )
        for at in range(count)
    ]
