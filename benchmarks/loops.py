"""The bare loops: what the Python client reaches when nobody does anything with the records.

Both are given the settings that kbackup gives the client, so that they are as fast as it can be.
Each process is ``python -m benchmarks.loops SHARE``; it prints its seconds, from before the client
is made to its last record.
"""

import gc
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from benchmarks.records import PARTITIONS, PROCESSES, Load, arguments

_CONSUMER: Final[dict[str, Any]] = {
    "group.id": "bench-bare",
    "enable.auto.commit": False,
    "check.crcs": True,
    "isolation.level": "read_committed",
    "fetch.queue.backoff.ms": 10,
    "fetch.wait.max.ms": 10,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 32 * 1024,
    "fetch.message.max.bytes": 8 * 2**20,
}

_SILENT_S: Final = 30.0
"""A loop that gets nothing for so long has lost records."""

_PRODUCER: Final[dict[str, Any]] = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 64 * 1024,
    "batch.size": 2**20,
    "delivery.report.only.error": True,
    "on_delivery": lambda error, _message: sys.exit(f"not written: {error}"),
}


@dataclass(frozen=True, slots=True)
class Share:
    """What one process does.

    Attributes:
        kind: ``consume`` or ``produce``.
        servers: The broker's address.
        topic: Where the records lie, or go to.
        value_bytes: Of each value.
        records: In each partition.
        partitions: This process's.
        codec: How batches are compressed.
        batch_bytes: `Load.batch_bytes`.
    """

    kind: str
    servers: str
    topic: str
    value_bytes: int
    records: int
    partitions: list[int]
    codec: str = "none"
    batch_bytes: int = 0


def commands(
    kind: str, servers: str, topic: str, load: Load, partitions: int = PARTITIONS
) -> list[list[str]]:
    """Return what to run side by side for one loop over all records of *load*."""
    records = load.records // partitions
    shares = [
        Share(
            kind,
            servers,
            topic,
            load.value_bytes,
            records,
            list(own),
            load.codec,
            load.batch_bytes,
        )
        for own in (range(number, partitions, PROCESSES) for number in range(PROCESSES))
    ]
    program = [sys.executable, "-m", "benchmarks.loops"]
    return [[*program, json.dumps(asdict(share))] for share in shares]


def seconds(outputs: list[str]) -> float:
    """Return the time of the slowest process, from what all have printed."""
    return max(float(json.loads(output)["seconds"]) for output in outputs)


def consume(share: Share) -> float:
    """Read the partitions from their start, and drop what comes."""
    gc.disable()
    began = time.monotonic()
    consumer = Consumer({**_CONSUMER, "bootstrap.servers": share.servers})
    consumer.assign([TopicPartition(share.topic, at, OFFSET_BEGINNING) for at in share.partitions])
    left = share.records * len(share.partitions)
    heard = began
    while left > 0:
        messages = consumer.consume(500, 0.2)
        left -= len(messages)
        if messages:
            heard = time.monotonic()
        elif time.monotonic() - heard > _SILENT_S:
            sys.exit(f"{left} records of {share.topic} never came")
    ended = time.monotonic()
    consumer.close()
    return ended - began


def produce(share: Share) -> float:
    """Write the partitions, one after the other as a restore does."""
    topic = share.topic
    rows = {at: arguments(share.value_bytes, share.records, at) for at in share.partitions}
    gc.disable()
    began = time.monotonic()
    settings = {"bootstrap.servers": share.servers, "compression.type": share.codec}
    of_batches = {"batch.size": share.batch_bytes} if share.batch_bytes else {}
    producer = Producer({**_PRODUCER, **settings, **of_batches})
    send = producer.produce
    for partition, records in rows.items():
        for value, key, timestamp, headers in records:
            while True:
                try:
                    send(topic, value, key, partition, None, None, timestamp, headers)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)
    while producer.flush(1.0):
        pass
    return time.monotonic() - began


if __name__ == "__main__":
    _share = Share(**json.loads(sys.argv[1]))
    print(json.dumps({"seconds": {"consume": consume, "produce": produce}[_share.kind](_share)}))
