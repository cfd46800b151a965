"""``restore(sink(x)) == x``: the stages between Kafka and Kafka, with a store in memory."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar
from uuid import uuid4

import pyarrow as pa
from flow_samples import partitioners
from hypothesis import given, settings
from hypothesis import strategies as st
from record_samples import cut_up, record_batches

from kbackup.catalog import listing, merging
from kbackup.catalog.claims import Reading
from kbackup.clock import SystemClock
from kbackup.formats import FormatOptions
from kbackup.kafka import KafkaSettings
from kbackup.naming import Layout, View
from kbackup.partitioners import Partitioner, Traits
from kbackup.partitioners.default import DefaultPartitioner
from kbackup.partitioners.extractors import RecordExtractor
from kbackup.pipeline.convert import Conversion, convert, route
from kbackup.pipeline.rotate import Append, Cut, Rule, cut
from kbackup.pipeline.rows import Nulls
from kbackup.pipeline.views import ReadOptions, ViewSpec
from kbackup.pipeline.write import OpenFiles
from kbackup.records import SCHEMA, Span, TopicPartition
from kbackup.sink.job import SinkJob
from kbackup.sink.keep import keep
from kbackup.stores import Store, StoreSettings
from kbackup.stores.memory import MemoryStore

WHERE = TopicPartition("orders", 3)
WHOLE = (ViewSpec(View.RECORD, "parquet", FormatOptions()),)
VALUES = (
    ViewSpec(View.KEY, "avro", FormatOptions(), "bytes"),
    ViewSpec(View.VALUE, "avro", FormatOptions(), "bytes"),
)


class ByKey:
    """Spreads records over directories by their keys."""

    traits: ClassVar = Traits(())

    def encode(self, where: TopicPartition, batch: pa.RecordBatch) -> pa.Array:  # noqa: ARG002
        """Return the directory of each row."""
        return pa.array([f"key={key.decode()}" for key in batch["key"].to_pylist()], pa.string())


def job(views: tuple[ViewSpec, ...], rule: Rule) -> SinkJob:
    """A sink's settings; nothing in them is reached."""
    return SinkJob(
        "run",
        KafkaSettings("-"),
        StoreSettings("-"),
        Layout(),
        SystemClock(),
        views,
        "default",
        "record",
        rule,
        "group",
    )


def back_up(
    store: Store,
    batches: Sequence[pa.RecordBatch],
    work: SinkJob,
    partitioner: Partitioner | None = None,
) -> None:
    """What a sink task does between reader and commit."""
    views = [Conversion.of(spec) for spec in work.views]
    dead = work.rule.tombstones
    files = OpenFiles(WHERE, views, work.layout, work.spool_bytes, tombstones=dead)
    chosen, extractor = partitioner or DefaultPartitioner(), RecordExtractor()
    stream = (
        route(rows, WHERE, chosen, extractor, 0, tombstones=dead)
        for batch in batches
        for rows in convert(batch, views, nulls=Nulls.WRITE if dead else Nulls.FAIL)
    )
    for step in [*cut(stream, work.rule), Cut(0, "end")]:  # type: ignore[arg-type]
        match step:
            case Append(rows):
                files.write(rows)
            case Cut():
                for closed in files.close(Span(0, 0)):
                    keep(store, closed, work.layout)


def put_back(store: Store, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """What a restore task does before the writer."""
    found = listing.list_backup(store, Layout(), options.formats)
    assert 0 == found.foreign_count
    for step in merging.steps(Reading(store, options), found.sets.get(WHERE, [])):
        match step:
            case merging.StoredRows(batch):
                yield batch
            case merging.Failed(error=error):
                raise error


@settings(deadline=None)
@given(record_batches(), st.integers(1, 9), st.lists(st.integers(0, 40), max_size=4),
       partitioners)  # fmt: skip
def test_full_records_come_back_as_they_were(
    batch: pa.RecordBatch, size: int, cuts: list[int], partitioner: Partitioner
) -> None:
    """Every column of every record, in order, whatever the sizes of files and batches."""
    store = MemoryStore(StoreSettings(f"memory://{uuid4()}"))

    back_up(store, cut_up(batch, cuts), job(WHOLE, Rule(records=size)), partitioner)

    assert batch.to_pylist() == [
        row for part in put_back(store, ReadOptions()) for row in part.to_pylist()
    ]


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), max_size=20),
       st.integers(1, 9))  # fmt: skip
def test_keys_and_values_of_the_connectors_layout_come_back(
    records: list[tuple[bytes, bytes]], size: int
) -> None:
    """The compatible layout keeps keys and values, row for row, across objects."""
    rows = [
        {"offset": at, "timestamp": 0, "timestamp_type": 1, "key": key, "value": value,
         "headers": []}
        for at, (key, value) in enumerate(records)
    ]  # fmt: skip
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    store = MemoryStore(StoreSettings(f"memory://{uuid4()}"))
    options = ReadOptions(key_converter="bytes", value_converter="bytes")

    back_up(store, [batch], job(VALUES, Rule(records=size)))
    found = [row for part in put_back(store, options) for row in part.to_pylist()]

    assert records == [(row["key"], row["value"]) for row in found]
    assert [at for at, _ in enumerate(records)] == [row["offset"] for row in found]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.booleans()), max_size=20),
       st.integers(1, 20), st.lists(st.integers(0, 20), max_size=4),
       st.sampled_from([DefaultPartitioner(), ByKey()]))  # fmt: skip
def test_tombstones_of_the_connectors_layout_come_back_in_the_order_of_their_keys(
    records: list[tuple[bytes, bool]], size: int, cuts: list[int], partitioner: Partitioner
) -> None:
    """However often a key is deleted and written again, its records come back in order."""
    rows: list[dict[str, Any]] = [
        {"offset": at, "timestamp": 0, "timestamp_type": 1, "key": key,
         "value": None if is_dead else b"%d" % at, "headers": []}
        for at, (key, is_dead) in enumerate(records)
    ]  # fmt: skip
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    store = MemoryStore(StoreSettings(f"memory://{uuid4()}"))
    options = ReadOptions(key_converter="bytes", value_converter="bytes")
    work = job(VALUES, Rule(records=size, tombstones="tombstone"))

    back_up(store, cut_up(batch, cuts), work, partitioner)
    found = [row for part in put_back(store, options) for row in part.to_pylist()]

    for key in (b"a", b"b", b"c"):
        assert [row["value"] for row in rows if row["key"] == key] == [
            row["value"] for row in found if row["key"] == key
        ]
    assert len(rows) == len(found)


@settings(deadline=None)
@given(record_batches(), st.integers(0, 40))
def test_a_longer_rerun_replaces_and_a_shorter_one_does_not(
    batch: pa.RecordBatch, length: int
) -> None:
    """Stored records are never lost, in whichever order two runs store a file."""
    work = job(WHOLE, Rule())
    for first, second in ((batch.slice(0, length), batch), (batch, batch.slice(0, length))):
        store = MemoryStore(StoreSettings(f"memory://{uuid4()}"))

        back_up(store, [first], work)
        back_up(store, [second], work)

        assert batch.to_pylist() == [
            row for part in put_back(store, ReadOptions()) for row in part.to_pylist()
        ]
