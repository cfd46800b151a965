"""Memory against the number of partitions: the same records in 4 of them and in 300."""

from typing import Any, Final

from benchmarks import loops
from benchmarks.cases import sink
from benchmarks.process_tree import measure
from benchmarks.records import Load
from benchmarks.services import Services
from kbackup.files import SPOOL_BYTES
from kbackup.formats import parquet_records
from kbackup.kafka import reader

MANY: Final = 300
PER_PARTITION: Final = 4_000_000
"""Bytes in each of the many partitions."""


def task_bytes() -> int:
    """Return what one sink task holds at most, besides its interpreter: the stated formula.

    What the client fetched ahead, one batch being filled and its messages, one row group, one
    file being filled and one being uploaded; partitions do not appear in it.
    """
    fetched = reader.QUEUE_KIB * 2**10
    batch = 2 * reader.ROWS_BYTES
    spools = 2 * SPOOL_BYTES
    return fetched + batch + 2 * parquet_records.BYTES + spools


def measured(services: Services, scale: float) -> list[dict[str, Any]]:
    """Back up the same records from few partitions and from many; return a row each."""
    rows = []
    for partitions in (4, MANY):
        records = round(MANY * PER_PARTITION * scale / 1_000 / MANY) * MANY
        load = Load(f"memory-{partitions}", 1_000, records)
        services.create_topic(load.topic, partitions)
        measure(loops.commands("produce", services.servers, load.topic, load, partitions), {})
        place = services.fresh_place("dir")
        found = sink(services, load.topic, load, place)
        services.empty(place)
        services.delete_topic(load.topic)
        rows.append({"case": "sink memory", "partitions": partitions, **found})
    return rows
