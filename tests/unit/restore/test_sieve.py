"""Which records a restore writes, and how those are named that it does not."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kbackup.catalog.listing import BackupFile, FileSet
from kbackup.errors import BadRecordError, KbackupError
from kbackup.naming import View
from kbackup.records import SCHEMA, Span, TopicPartition
from kbackup.restore.job import Lane, RestoreUnit
from kbackup.restore.transform import RecordFilter
from kbackup.runs.position import BackupSource, CommitMetadata, Cursor, Mark

ORDERS = TopicPartition("orders", 0)


class Sifted:
    """A sieve for records of up to 100 bytes, and what it has left out."""

    def __init__(self, on_error: str) -> None:
        self.counted: dict[str, int] = {}
        self.skipped: list[KbackupError] = []
        job: Any = SimpleNamespace(
            schema_ids={},
            transforms=(),
            offset_header=None,
            max_record_bytes=100,
            on_error=on_error,
        )
        bookmark = CommitMetadata(Mark(BackupSource("", ORDERS), "", Span(0, 0), Cursor(0, 0)))
        unit = RestoreUnit((Lane(TopicPartition("copy", 0), bookmark),))
        self.sieve = RecordFilter(
            job, unit, self.counted.update, lambda error, _: self.skipped.append(error)
        )


def records(**sizes: int) -> pa.RecordBatch:
    """Records by offset, as ``o7=200``, with values of so many bytes."""
    rows = [
        {"offset": int(name[1:]), "timestamp": 0, "timestamp_type": 0, "value": b"x" * size}
        for name, size in sizes.items()
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


FILES = [FileSet(ORDERS, 3, "partition=0", BackupFile("k", View.RECORD, ".p", "parquet", 1, 0.0))]


def test_each_record_that_is_too_large_is_named_by_its_offset() -> None:
    """
    Whoever looks for what was left out finds all of it, not the first of every batch.
    """
    sifted = Sifted("log")

    kept = sifted.sieve.apply(records(o3=5, o7=200, o8=5, o12=300), FILES, 1000)

    assert [3, 8] == kept["offset"].to_pylist()
    assert [7, 12] == [error.place["offset"] for error in sifted.skipped]
    assert "offset 12 in k" in sifted.skipped[1].what
    assert {"bad_records": 2} == sifted.counted


def test_the_first_record_that_is_too_large_ends_the_partition() -> None:
    """
    Unless bad records may be left out, the error names the offset in front of which it stops.
    """
    with pytest.raises(BadRecordError, match="offset 7 in k") as caught:
        Sifted("fail").sieve.apply(records(o3=5, o7=200, o12=300), FILES, 1000)

    assert 7 == caught.value.place["offset"]
