"""Which records a restore writes, and how those are named that it does not."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from kbackup.catalog.listing import BackupFile, FileSet
from kbackup.naming import View
from kbackup.records import SCHEMA, Span, TopicPartition
from kbackup.restore.job import RestoreUnit
from kbackup.restore.transform import Filtered, RecordFilter
from kbackup.runs.position import Cursor, Lane, RestorePosition, RestoreSource

ORDERS = TopicPartition("orders", 0)


def filtered(on_error: str, batch: pa.RecordBatch) -> Filtered:
    """What is made of records where those of up to 100 bytes are taken."""
    job: Any = SimpleNamespace(
        schema_ids={}, transforms=(), offset_header=None, max_record_bytes=100, on_error=on_error
    )
    position = RestorePosition(RestoreSource("", ORDERS), "", Cursor(0, 0))
    unit = RestoreUnit(position, (Lane(TopicPartition("copy", 0), Span(0, 0)),))
    return RecordFilter(job, unit).apply(batch, FILES, 1000)


def records(**sizes: int) -> pa.RecordBatch:
    """Records by offset, as ``o7=200``, with values of so many bytes."""
    rows = [
        {"offset": int(name[1:]), "timestamp": 0, "timestamp_type": 0, "value": b"x" * size}
        for name, size in sizes.items()
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


FILES = [FileSet(ORDERS, 3, "partition=0", BackupFile("k", View.RECORD, ".p", "parquet", 1, 0.0))]


def test_each_record_that_is_too_large_is_named_by_its_offset() -> None:
    """Whoever looks for what was left out finds all of it, not the first of every batch."""
    found = filtered("log", records(o3=5, o7=200, o8=5, o12=300))

    errors = [error for error, _ in found.left]
    assert [3, 8] == found.batch["offset"].to_pylist()
    assert [7, 12] == [error.place["offset"] for error in errors]
    assert "offset 12 in k" in errors[1].what
    assert {"bad_records": 2} == found.counts


def test_the_first_record_that_is_too_large_ends_the_partition() -> None:
    """Unless bad records may be left out, the error names the offset in front of which it stops."""
    found = filtered("fail", records(o3=5, o7=200, o12=300))

    assert found.error is not None
    assert "offset 7 in k" in found.error.what
    assert 7 == found.error.place["offset"]
