"""A sink that leaves bad records out, under random faults: no record is lost from sight."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pyarrow as pa
from backup_samples import JSON
from hypothesis import given, settings
from hypothesis import strategies as st
from record_samples import batch_of

from kbackup.catalog import listing, reading
from kbackup.catalog.claims import Reading
from kbackup.catalog.ledger import stream
from kbackup.catalog.ledger.rows import TopicLedger, entries
from kbackup.clock import SystemClock
from kbackup.errors import KafkaError, KbackupError
from kbackup.formats import FormatOptions
from kbackup.kafka import KafkaSettings
from kbackup.naming import Layout
from kbackup.pipeline.rotate import Rule
from kbackup.pipeline.views import ReadOptions
from kbackup.records import Span, TopicPartition
from kbackup.runs.dead_letters import DeadLetters
from kbackup.runs.position import SinkPosition
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.rejects import ErrorPolicy
from kbackup.sink.storing import TaskClients
from kbackup.sink.task import SinkPartitionTask
from kbackup.stores import Store, StoreSettings
from kbackup.stores.memory import MemoryStore
from kbackup.testing import FaultyStore
from tests.support.fakes import CrashError, FakePositions, FakeReader, SilentLine

WHERE = TopicPartition("orders", 0)
TOLERANT = ErrorPolicy(tolerates=True, topic="dead", has_context=True)


class Topic:
    """The dead letter topic, and a connection to it; acknowledgements fail by script."""

    def __init__(self) -> None:
        self.script: list[str] = []
        self.offsets: set[int] = set()
        self._sent: list[int] = []

    def writer(self, *_: Any, **__: Any) -> "Topic":
        self._sent = []
        return self

    def write(self, batch: pa.RecordBatch) -> int:
        self._sent += batch["offset"].to_pylist()
        return 0

    def flush(self) -> None:
        word = self.script.pop(0) if self.script and self._sent else "ok"
        if word != "fail":
            self.offsets.update(self._sent)
        if word != "ok":
            raise KafkaError("writing records", word)
        self._sent = []

    def close(self) -> None:
        pass


def run_once(
    reader: FakeReader, positions: FakePositions, store: Store, topic: Topic, size: int, run: str
) -> None:
    """One run of the task, as the driver would plan it."""
    found = positions.read(WHERE)
    start = 0 if found is None else found.offset
    commit_metadata = None if found is None else SinkPosition.read(found.metadata)
    unit = SinkUnit(WHERE, Span(start, reader.end_offset), commit_metadata)
    job = SinkJob(
        run, KafkaSettings("-"), StoreSettings("-"), Layout(), SystemClock(), JSON, "default",
        "record", Rule(records=size), "group", errors=TOLERANT,
    )  # fmt: skip
    letters = DeadLetters(topic, "group", "dead")  # type: ignore[arg-type]
    clients = TaskClients(store, positions, reader, letters)  # type: ignore[arg-type]
    SinkPartitionTask(job, unit, clients, SilentLine()).run()


def stored(store: Store) -> Iterator[int]:
    """What is in the bucket; each value is its record's offset."""
    for files in listing.list_backup(store, Layout(), FormatOptions()).sets.get(WHERE, []):
        for batch in reading.read(Reading(store, ReadOptions()), files):
            yield from map(int, batch["value"].to_pylist())


def skipped(store: Store) -> set[int]:
    """What the ledger names as left out."""
    rows = stream.topic_stream(store, Layout(), "orders", SystemClock()).read().rows
    spans = TopicLedger.of(entries(rows)).partition(0).skipped
    return {at for span in spans for at in range(span.start_offset, span.end_offset)}


@settings(max_examples=40)
@given(
    st.lists(st.booleans(), min_size=1, max_size=20),
    st.integers(1, 5),
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["ok", "ok", "ok", "503", "lost"]), max_size=8),
            st.lists(st.sampled_from(["ok", "fail", "lost"]), max_size=4),
        ),
        max_size=4,
    ),
    st.sets(st.integers(1, 8), max_size=3),
)
def test_each_record_is_in_the_bucket_or_a_dead_letter_that_is_named(
    good: list[bool], size: int, scripts: list[tuple[list[str], list[str]]], crashes: set[int]
) -> None:
    """After every run all good records below the committed offset are stored, at last once each."""
    log = batch_of([{"value": b"%d" % at if fits else b"?"} for at, fits in enumerate(good)])
    store, topic = MemoryStore(StoreSettings(f"memory://{uuid4()}")), Topic()
    reader, positions = FakeReader(log), FakePositions(crashes)
    fit = {at for at, fits in enumerate(good) if fits}

    for at, (words, acks) in enumerate([*scripts, *[([], [])] * (len(crashes) + 1)]):
        topic.script = list(acks)
        with suppress(KbackupError, CrashError):
            faulty = FaultyStore(" ".join(words), store)
            run_once(reader, positions, faulty, topic, size, f"run-{at}")
        position = positions.read(WHERE)
        below = range(0 if position is None else position.offset)
        assert fit & {*below} <= {*stored(store)}
        assert {*below} - fit <= skipped(store) & topic.offsets

    assert sorted(fit) == sorted(stored(store))
    assert {*range(len(good))} - fit == skipped(store) == topic.offsets
