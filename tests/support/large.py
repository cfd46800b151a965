"""A backup whose restore takes seconds and many transactions, from few records."""

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kbackup.local import LocalS3
from tests.support.cluster import Record, TestCluster, send
from tests.support.command import Kbackup, places
from tests.support.in_process import in_one_process
from tests.support.running import ended

VALUE_BYTES: Final = 20_000
TOYS: Final = Path(__file__).parents[1] / "toys"
LZ4: Final = ("-X", "producer.override.compression.type=lz4")
"""For restores: the broker's disk is not what is tested."""


@dataclass(frozen=True)
class Large:
    """The backup."""

    topic: str  # what was backed up
    partitions: int
    count: int  # records in each partition
    kbackup: Kbackup  # the command, with the backup's bucket in its environment
    group: str  # the sink's consumer group
    is_noise: bool = False  # its records do not compress

    def records(self, partition: int) -> list[Record]:
        """What was written: each unlike the others."""
        return large_records(partition, self.count, is_noise=self.is_noise)

    def restored(self, cluster: TestCluster, target: str) -> bool:
        """Whether a topic holds each record once, in order."""
        return all(
            self.records(partition) == cluster.read(target, partition)
            for partition in range(self.partitions)
        )

    def in_one_process(self) -> "Large":
        """The same, its command without Spark."""
        return replace(self, kbackup=in_one_process(self.kbackup))

    def restore(self, prefix: str, *, by_batches: bool = False) -> tuple[str, ...]:
        """Return the words of a restore to a topic with *prefix* in front of its name."""
        way = () if by_batches else LZ4  # who asks for compression has batches packed anew
        return ("restore", "-t", self.topic, "--rename", f"{prefix}$0", *way)


def large_records(partition: int, count: int, *, is_noise: bool = False) -> list[Record]:
    """Return *count* records of some 20 KB, with tombstones among them."""

    def value(at: int) -> bytes:
        if is_noise:
            return random.Random(partition * count + at).randbytes(VALUE_BYTES)
        return (b"%d:%d;" % (partition, at) * (VALUE_BYTES // 4))[:VALUE_BYTES]

    return [
        Record(
            b"%d" % (at % 100),
            value(at) if at % 50 else None,
            (("at", b"%d" % at),),
            1_700_000_000_000 + at,
        )
        for at in range(count)
    ]


def write_large(
    cluster: TestCluster, topic: str, partitions: int, count: int, *, is_noise: bool = False
) -> None:
    """Write large records to an existing topic, compressed."""
    producer = cluster.producer(compression_type="lz4")
    for partition in range(partitions):
        send(producer, topic, large_records(partition, count, is_noise=is_noise), partition)
    assert 0 == producer.flush(120)


def back_up_large(
    cluster: TestCluster,
    s3: LocalS3,
    topic: str,
    partitions: int,
    count: int,
    *layout: str,
    is_noise: bool = False,
) -> Large:
    """Make a topic of large records and back it up, into a bucket of the same name.

    Args:
        cluster: Where the topic is made.
        s3: Where it is backed up.
        topic: Its name.
        partitions: Of it.
        count: Records in each partition.
        layout: More words for the sink; the partitioners in ``tests/toys`` are installed.
        is_noise: The records do not compress.
    """
    cluster.create(topic, partitions)
    write_large(cluster, topic, partitions, count, is_noise=is_noise)
    s3.create_bucket(topic)
    kbackup = Kbackup(places(cluster.servers, s3, topic, PYTHONPATH=str(TOYS)))
    run = ended(in_one_process(kbackup), "sink", "-t", topic, "--flush-size", "600", *layout)
    return Large(topic, partitions, count, kbackup, run.summary["group"], is_noise)
