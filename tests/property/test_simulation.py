"""A sink under random faults, against fakes: the promises hold for every schedule."""

from contextlib import suppress
from typing import Any
from uuid import uuid4

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from record_samples import record_batches

from kbackup.catalog import listing, reading
from kbackup.catalog.claims import Reading
from kbackup.clock import SystemClock
from kbackup.errors import KbackupError
from kbackup.formats import FormatOptions
from kbackup.kafka import KafkaSettings
from kbackup.naming import Layout, View
from kbackup.pipeline.rotate import Rule
from kbackup.pipeline.views import ReadOptions, ViewSpec
from kbackup.records import Span, TopicPartition, batch_bytes
from kbackup.runs.position import SinkPosition
from kbackup.runs.report import OfSink, PartitionReport
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.storing import TaskClients
from kbackup.sink.task import SinkPartitionTask
from kbackup.stores import Store, StoreSettings
from kbackup.stores.memory import MemoryStore
from kbackup.testing import FaultyStore
from tests.support.fakes import CrashError, FakePositions, FakeReader, SilentLine

WHERE = TopicPartition("orders", 0)


def job(size: int, run: str) -> SinkJob:
    """A sink that cuts by the records alone."""
    whole = ViewSpec(View.RECORD, "parquet", FormatOptions())
    return SinkJob(
        run, KafkaSettings("-"), StoreSettings("-"), Layout(), SystemClock(), (whole,), "default",
        "record", Rule(records=size), "group",
    )  # fmt: skip


def run_once(
    reader: FakeReader, positions: FakePositions, store: Store, size: int, run: str
) -> PartitionReport[OfSink]:
    """One run of the task, as the driver would plan it."""
    found = positions.read(WHERE)
    start = 0 if found is None else found.offset
    commit_metadata = None if found is None else SinkPosition.read(found.metadata)
    unit = SinkUnit(WHERE, Span(start, reader.end_offset), commit_metadata)
    clients = TaskClients(store, positions, reader)  # type: ignore[arg-type]
    work = SinkPartitionTask(job(size, run), unit, clients, SilentLine())
    work.run()
    return work.report


def stored(store: Store) -> tuple[list[str], list[dict[str, Any]]]:
    """Keys, and the records below them, in restore order."""
    found = listing.list_backup(store, Layout(), FormatOptions())
    sets = found.sets.get(WHERE, [])
    rows = [
        row
        for files in sets
        for batch in reading.read(Reading(store, ReadOptions()), files)
        for row in batch.to_pylist()
    ]
    return [files.files[0].key for files in sets], rows


words = st.lists(st.sampled_from(["ok", "ok", "ok", "503", "lost"]), max_size=12)


@given(record_batches(max_size=25), st.integers(1, 6), st.lists(words, max_size=5),
       st.sets(st.integers(1, 12), max_size=4))  # fmt: skip
def test_after_any_crashes_and_faults_the_backup_is_that_of_a_run_without(
    log: pa.RecordBatch, size: int, scripts: list[list[str]], crashes: set[int]
) -> None:
    """Nothing below the committed offset is ever missing, and the end is as without faults."""
    reader = FakeReader(log)
    reference = MemoryStore(StoreSettings(f"memory://{uuid4()}"))
    report = run_once(reader, FakePositions(), reference, size, "reference")
    assert (len(log), batch_bytes(log)) == (report.done.records, report.done.bytes_read)
    store = MemoryStore(StoreSettings(f"memory://{uuid4()}"))
    positions = FakePositions(crashes)
    written = log.to_pylist()

    for at, script in enumerate([*scripts, *[[]] * (len(crashes) + 1)]):
        with suppress(KbackupError, CrashError):
            run_once(reader, positions, FaultyStore(" ".join(script), store), size, f"run-{at}")
        position = positions.read(WHERE)
        committed = 0 if position is None else position.offset
        safe = [row for row in written if row["offset"] < committed]
        assert safe == [row for row in stored(store)[1] if row["offset"] < committed]

    assert stored(reference) == stored(store)
