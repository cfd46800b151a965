"""The memory that the open files of a partition share."""

import os

from flow_samples import WHERE
from record_samples import batch_of

from kbackup.formats import FormatOptions
from kbackup.naming import Layout, View
from kbackup.partitioners.extractors import RecordExtractor
from kbackup.partitioners.time_based import HourlyPartitioner
from kbackup.pipeline.convert import Conversion
from kbackup.pipeline.route import route
from kbackup.pipeline.rows import Part, Rows
from kbackup.pipeline.views import ViewSpec
from kbackup.pipeline.write import OpenFiles
from kbackup.records import Span

HOUR_MS = 3_600_000
SPOOL_BYTES = 50_000


def test_files_that_are_complete_hold_no_more_memory_together_than_open_ones() -> None:
    """
    A file of few records gets its bytes only when it is closed, and 200 of them close together.
    """
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
