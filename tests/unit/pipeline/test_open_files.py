"""The memory that the open files of a partition share, and the thread that writes them."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flow_samples import WHERE
from record_samples import batch_of

from kbackup.errors import NoSpaceError
from kbackup.formats import FormatOptions
from kbackup.naming import Layout, View
from kbackup.partitioners.default import DefaultPartitioner
from kbackup.partitioners.extractors import RecordExtractor
from kbackup.partitioners.time_based import HourlyPartitioner
from kbackup.pipeline.convert import Conversion, route
from kbackup.pipeline.rows import Part, Rows
from kbackup.pipeline.views import ViewSpec
from kbackup.pipeline.write import OpenFiles
from kbackup.records import Span

HOUR_MS = 3_600_000
SPOOL_BYTES = 50_000


def test_files_that_are_complete_hold_no_more_memory_together_than_open_ones() -> None:
    """A file of few records gets its bytes only when it is closed, 200 of them together."""
    partitioner = HourlyPartitioner()
    partitioner.configure({"directory.delim": "/", "timezone": "UTC", "locale": "en"})
    batch = batch_of([{"timestamp": at * HOUR_MS, "value": os.urandom(2_000)} for at in range(200)])
    rows = route(Rows(batch, (Part(batch),)), WHERE, partitioner, RecordExtractor(), 0)
    view = Conversion.of(ViewSpec(View.RECORD, "parquet", FormatOptions()), WHERE.topic)
    files = OpenFiles(WHERE, [view], Layout(), SPOOL_BYTES)
    files.write(rows)
    closed = files.close(Span(0, 200))
    held = sum(file.body.size for file in closed if file.body.in_memory)
    for file in closed:
        file.body.close()

    assert 200 == len(closed)
    assert 0 < held <= SPOOL_BYTES


def opened(pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> OpenFiles:
    """Open files that take their time to write, and fail at a record of 13."""
    write = OpenFiles._write

    def slowly(files: OpenFiles, parts: Sequence[tuple[str, Rows]]) -> None:
        time.sleep(0.05)
        if any(b"13" in rows.batch["value"].to_pylist() for _, rows in parts):
            raise NoSpaceError("no space")
        write(files, parts)

    monkeypatch.setattr(OpenFiles, "_write", slowly)
    monkeypatch.setattr("kbackup.pipeline.write._FEW_BYTES", 0)
    view = Conversion.of(ViewSpec(View.RECORD, "parquet", FormatOptions()), WHERE.topic)
    return OpenFiles(WHERE, [view], Layout(), SPOOL_BYTES, pool=pool)


def one_row(number: int) -> Any:
    """A routed record at an offset of its own."""
    batch = batch_of([{"offset": number, "value": str(number).encode()}])
    return route(Rows(batch, (Part(batch),)), WHERE, DefaultPartitioner(), RecordExtractor(), 0)


def test_files_are_closed_with_all_that_was_given_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another thread still writes belongs to the files that are closed, in order."""
    with ThreadPoolExecutor(1) as pool:
        files = opened(pool, monkeypatch)
        for number in range(3):
            files.write(one_row(number))
        assert files.records == 3
        (closed,) = files.close(Span(0, 3))

    assert (0, 2, 3) == (closed.facts.first_offset, closed.facts.last_offset, closed.facts.records)
    closed.body.close()


def test_few_rows_are_written_by_who_has_them() -> None:
    """A small partition of a thousand waits for no other thread."""
    view = Conversion.of(ViewSpec(View.RECORD, "parquet", FormatOptions()), WHERE.topic)
    with ThreadPoolExecutor(1) as pool:
        pool.shutdown()
        files = OpenFiles(WHERE, [view], Layout(), SPOOL_BYTES, pool=pool)
        files.write(one_row(0))
        (closed,) = files.close(Span(0, 1))

    assert 1 == closed.facts.records
    closed.body.close()


def test_what_cannot_be_written_fails_before_the_files_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full disk in the thread that writes ends the file set."""
    with ThreadPoolExecutor(1) as pool:
        files = opened(pool, monkeypatch)
        files.write(one_row(13))

        with pytest.raises(NoSpaceError):
            files.close(Span(0, 14))
        files.drop()
