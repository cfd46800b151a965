"""A sink that follows while brokers, the store and topics come and go."""

import itertools
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest
from confluent_kafka.admin import NewPartitions
from s3fault import Fault, S3Faults

from tests.integration.product import LocalS3, start_kafka
from tests.support.backup import Backup
from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup, places
from tests.support.running import Running, running, wait_until
from tests.support.waits import SOON, shorter

pytestmark = pytest.mark.integration

_COUNT = itertools.count()


class Stream:
    """Writes a few records to each partition, several times a second.

    Attributes:
        written: What each partition has been given, in order.
    """

    def __init__(self, cluster: TestCluster) -> None:
        self._cluster, self._numbers = cluster, itertools.count()
        self._lock, self._ended = threading.Lock(), threading.Event()
        self.written: dict[tuple[str, int], list[Record]] = {}

    def add(self, topic: str, *partitions: int) -> None:
        """Write to these too."""
        with self._lock:
            self.written |= {(topic, partition): [] for partition in partitions}

    def drop(self, topic: str) -> None:
        """Write to this topic no more."""
        with self._lock:
            self.written = {at: records for at, records in self.written.items() if at[0] != topic}

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Write as long as the context lasts."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(120)
            assert not thread.is_alive()

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            with self._lock:
                for (topic, partition), records in self.written.items():
                    some = [Record(b"k", b"v%d" % next(self._numbers)) for _ in range(5)]
                    self._cluster.write(topic, some, partition)
                    records.extend(some)


def resident(command: Running) -> int:
    """Bytes that the Python workers hold."""
    total = 0
    for worker in command.workers():
        with suppress(psutil.NoSuchProcess):
            total += worker.memory_info().rss
    return total


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(4.0, id="a minute", marks=pytest.mark.nightly),
        pytest.param(
            540.0, id="ten minutes", marks=[pytest.mark.nightly, pytest.mark.timeout(1500)]
        ),
    ],
)
def test_whatever_happens_what_is_committed_is_equal_and_memory_is_flat(
    seconds: float, s3: LocalS3, class_archive: None
) -> None:
    """Faults, topics that come and go, new partitions: every record of what is left is stored."""
    bucket = f"follows-{next(_COUNT)}"
    s3.create_bucket(bucket)
    with start_kafka() as broker, S3Faults(s3.endpoint_url) as proxy:
        cluster = TestCluster(broker.bootstrap_servers)
        backup, stream = Backup(s3, bucket), Stream(cluster)
        own = {"KBACKUP_STORE_URL": proxy.url, "KBACKUP_S3_RETRY_BACKOFF_MS": "10"}
        own |= shorter(NEWCOMERS_S=2, RECORD_S=3)
        kbackup = Kbackup(places(broker.bootstrap_servers, s3, bucket, **own), SOON)
        cluster.create("f-keep", 4)
        cluster.create("f-gone")
        stream.add("f-keep", *range(4))
        stream.add("f-gone", 0)
        words = ("--flush-size", "50", "--rotate-idle-ms", "500", "--kafka-timeout", "5s")
        with running(kbackup, "sink", "--topics-regex", "f-.*", "--follow", *words) as command:
            with stream.flowing():
                command.wait_for("object", 10)
                proxy.faults = [Fault(r"PUT .*f-keep/partition(=|%3D)2/", "status")]
                wait_until(lambda: warned(command, "set_aside"), "the partition that gets 503s")
                command.wait_for("object", len(command.of("object")) + 10)  # its neighbours go on
                stream.drop("f-gone")
                cluster.delete("f-gone")
                cluster.create("f-new", 2)
                cluster.admin.create_partitions([NewPartitions("f-keep", 5)])["f-keep"].result(30)
                stream.add("f-new", 0, 1)
                stream.add("f-keep", 4)
                proxy.faults = []
                wait_until(lambda: stored(command, "f-new"), "the new topic")
                wait_until(lambda: stored(command, "f-keep/partition=4"), "the added partition")
                broker.restart()
                wait_until(lambda: warned(command, "goes_on"), "the partition that goes on")
                before, visits = resident(command), len(command.of("object"))
                time.sleep(seconds)
                after, visits = resident(command), len(command.of("object")) - visits
            for at, records in stream.written.items():
                wait_for_all(backup, at, len(records))
            wait_until(lambda: has_recorded(kbackup, stream), "the run record")
            command.signal(signal.SIGTERM)
            run = command.finish()
            command.leave_nothing()

        for (topic, partition), records in stream.written.items():
            assert values(records) == values(backup.records(topic, partition)), (topic, partition)
    assert (5, {"topic_deleted"}) == (run.code, {error["code"] for error in run.summary["errors"]})
    assert "Traceback" not in run.stderr
    assert after - before < 8 * 2**20 + visits * 1024


def wait_for_all(backup: Backup, at: tuple[str, int], count: int) -> None:
    """Wait until so many records of a partition are stored."""
    wait_until(lambda: len(backup.records(*at)) >= count, f"the last record of {at}")


def has_recorded(kbackup: Kbackup, stream: Stream) -> bool:
    """Whether ``sink status`` counts all records, and one run; the deleted topic's age is real."""
    status = kbackup("sink", "status", "--max-age", "1h", "--json").summary
    counts = {(row["topic"], row["partition"]): row["records"] for row in status["partitions"]}
    (run,) = status["runs"]
    return run["exit_code"] == 5 and all(
        counts.get(at) == len(records) for at, records in stream.written.items()
    )


def warned(command: Running, code: str) -> bool:
    """Whether it has told this warning."""
    return any(line["code"] == code for line in command.of("warning"))


def stored(command: Running, folder: str) -> bool:
    """Whether it has stored an object there."""
    return any(f"/{folder}" in line["key"] for line in command.of("object"))


def values(records: list[Record]) -> list[bytes | None]:
    """What tells one record from another."""
    return [record.value for record in records]
