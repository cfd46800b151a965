"""How much memory a sink task takes whose partitions are spread over many directories."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from backup_samples import sink_job

from kbackup.pipeline.rotate import Rule
from kbackup.records import SCHEMA, Span, TopicPartition
from kbackup.sink.job import SinkUnit
from kbackup.sink.storing import TaskClients
from kbackup.sink.task import SinkPartitionTask
from kbackup.spark.worker import share_one_heap
from kbackup.stores import StoreSettings, open_store
from tests.support.fakes import FakePositions, SilentLine
from tests.support.own_process import measured

PARTITIONS = 8
DIRECTORIES = 200
MIB = 2**20
HOUR_MS = 3_600_000
ROWS = 2_000
"""Records of a batch, of 1 KB each."""

RECORDS = 140_000
"""Of each partition: a cut of 128 MiB, and a short one."""

ROTATE_MIB = 128
ALLOWED_MIB = 52 + (4 + 4 + 2 * 32) + ROTATE_MIB + DIRECTORIES // 20
"""The formula of docs/explanation/architecture.md, for one view."""


class Spread:
    """Logs whose records go to one directory after the other; made while they are read."""

    def read(self, _where: TopicPartition, span: Span) -> Iterator[pa.RecordBatch]:
        """The records of a span; their values cannot be compressed."""
        for first in range(span.start_offset, span.end_offset, ROWS):
            offsets = range(first, min(first + ROWS, span.end_offset))
            times = [at % DIRECTORIES * HOUR_MS for at in offsets]
            yield pa.record_batch(
                [
                    pa.array(offsets, pa.int64()),
                    pa.array(times, pa.int64()),
                    pa.repeat(pa.scalar(0, pa.int8()), len(offsets)),
                    pa.nulls(len(offsets), pa.binary()),
                    pa.array([os.urandom(1024) for _ in offsets], pa.binary()),
                    pa.array([[]] * len(offsets), SCHEMA.field("headers").type),
                ],
                schema=SCHEMA,
            )


def _peak(folder: Path) -> float:
    """Back the partitions up one after the other; return the growth of memory in MiB."""
    place = StoreSettings(folder.as_uri())
    job = sink_job(
        store=place, partitioner="hourly",
        rule=Rule(bytes=ROTATE_MIB * MIB, open_files=DIRECTORIES),
        plugin_options={"directory.delim": "/", "timezone": "UTC", "locale": "en"},
    )  # fmt: skip
    clients = TaskClients(open_store(place), FakePositions(), Spread())  # type: ignore[arg-type]

    def back_up(partition: int, end: int) -> int:
        unit = SinkUnit(TopicPartition("orders", partition), Span(0, end))
        work = SinkPartitionTask(job, unit, clients, SilentLine())
        work.run()
        return work.report.done.objects

    back_up(PARTITIONS, 1)  # what it imports
    before = psutil.Process().memory_info().rss
    for partition in range(PARTITIONS):
        assert back_up(partition, RECORDS) >= DIRECTORIES
    return _highest_kib() / 1024 - before / MIB


def _highest_kib() -> int:
    """The most memory since this program began; ``getrusage`` counts its parent's too."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_two_hundred_directories_of_eight_partitions_stay_within_the_formula(
    tmp_path: Path,
) -> None:
    """A partition's files of 128 MiB a cut, with the defaults; a GiB in all."""
    assert measured(__file__, str(tmp_path)) < ALLOWED_MIB


if __name__ == "__main__":
    share_one_heap()  # as a worker of Spark does
    sys.stdout.write(f"{_peak(Path(sys.argv[1]))}\n")
