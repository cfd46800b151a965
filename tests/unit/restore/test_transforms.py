"""Transforms of a restore: what is written, what is left out, and where it goes on."""

import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from backup_samples import batch
from hypothesis import given
from hypothesis import strategies as st
from record_samples import batch_of

from kbackup.catalog.listing import BackupFile, FileSet
from kbackup.errors import BadRecordError
from kbackup.naming import View
from kbackup.pipeline.rows import BadRecord
from kbackup.records import SCHEMA, Bad, Column, Span, TopicPartition
from kbackup.restore.job import RestoreUnit
from kbackup.restore.transform import Filtered, RecordFilter, with_offset, written
from kbackup.runs.position import Cursor, Lane, RestorePosition, RestoreSource
from kbackup.transforms.data import Records
from tests.support.target import MARKER, CrashError, Restoring

OF_KAFKA = "org.apache.kafka.connect.transforms."
COPY = TopicPartition("copy_of_orders", 0)
MASK = {
    "transforms": "mask",
    "transforms.mask.type": f"{OF_KAFKA}MaskField$Value",
    "transforms.mask.fields": "card",
    "value.converter": "json",
}
DROP = {
    "transforms": "drop",
    "transforms.drop.type": f"{OF_KAFKA}Filter",
    "transforms.drop.predicate": "old",
    "predicates": "old",
    "predicates.old.type": f"{OF_KAFKA}predicates.HasHeaderKey",
    "predicates.old.name": "old",
}


def cut(*rows: tuple[int, bytes | None, bool]) -> pa.RecordBatch:
    """Return full records: offset, value, and whether it has the header ``old``."""
    old = [{"key": "old", "value": None}]
    return batch_of(
        [
            {"offset": at, "timestamp": 1_700_000_000_000 + at, "key": b"k", "value": value,
             "headers": old if is_old else []}
            for at, value, is_old in rows
        ]
    )  # fmt: skip


def card(at: int) -> bytes:
    """Return a value with something to hide."""
    return b'{"n": %d, "card": "1234"}' % at


def restoring(properties: dict[str, str], *cuts: pa.RecordBatch) -> Restoring:
    """Return a backup of full records, to be restored with these properties."""
    found = Restoring(properties=properties)
    found.backup.put("orders", 0, *cuts)
    return found


def rows(found: Restoring) -> list[dict[str, Any]]:
    """Return the records of the copy."""
    return [row for row in found.cluster.logs[COPY].rows if row is not MARKER]


def test_values_are_changed_and_everything_else_stays() -> None:
    """A copy for a test environment hides what nobody there may see."""
    given = cut((0, card(0), False), (3, card(3), True))
    found = restoring(MASK, given)

    (report,) = found.restore()

    assert [{"n": 0, "card": ""}, {"n": 3, "card": ""}] == [
        json.loads(row["value"]) for row in rows(found)
    ]
    assert given.drop_columns(["value"]).to_pylist() == [
        {name: each for name, each in row.items() if name != "value"} for row in rows(found)
    ]
    assert (2, 0, 4) == (report.done.records, report.done.filtered, report.committed)


def test_a_filter_leaves_records_out_and_a_rerun_has_nothing_to_do() -> None:
    """An object of which nothing is left counts as restored."""
    found = restoring(
        DROP,
        cut((0, b"a", True), (1, b"b", True)),
        cut((2, b"c", False), (5, None, True)),
        cut((6, b"d", True)),
    )

    (report,) = found.restore()

    assert [b"c"] == [row["value"] for row in rows(found)]
    assert (1, 4, 7) == (report.done.records, report.done.filtered, report.committed)
    assert [] == found.plan().units()


def test_a_restore_that_died_goes_on_after_what_was_filtered() -> None:
    """A filtered restore that died writes each remaining record once."""
    found = restoring(DROP, *(cut((at, b"%d" % at, at % 2 == 0)) for at in range(8)))
    with pytest.raises(CrashError):
        found.restore(crash_at=2)

    found.restore(run="r2")

    assert [b"1", b"3", b"5", b"7"] == [row["value"] for row in rows(found)]


def test_another_chain_is_another_restore() -> None:
    """A restore without a transform does not continue one that had it."""
    found = restoring(MASK, cut((0, card(0), False)))
    plain = restoring({}, cut((0, card(0), False)))

    assert found.plan().group != plain.plan().group


@pytest.mark.parametrize("on_error", ["fail", "ignore"])
def test_a_record_that_cannot_be_changed_is_a_bad_record(on_error: str) -> None:
    """A record that a transform cannot change is bad, and is never written unchanged."""
    found = restoring(MASK, cut((0, card(0), False), (1, b"no JSON", False), (2, b"7", False)))
    if on_error == "fail":
        with pytest.raises(BadRecordError, match="orders-0 offset 1"):
            found.restore(on_error=on_error)
        assert [] == rows(found)
        return

    (report,) = found.restore(on_error=on_error)

    assert [{"n": 0, "card": ""}] == [json.loads(row["value"]) for row in rows(found)]
    assert (1, 2, 3) == (report.done.records, report.done.bad_records, report.committed)
    assert ["orders-0 offset 1: a value is not JSON",
            "orders-0 offset 2: the transform mask cannot be applied to a record"] == [
        entry.what for entry in report.own.skipped
    ]  # fmt: skip


def test_the_offset_of_the_backup_is_a_header_beside_others() -> None:
    """The header with the backup's offset comes last, after all transforms."""
    drop = {
        "transforms": "drop", "transforms.drop.type": f"{OF_KAFKA}DropHeaders",
        "transforms.drop.headers": "old,was",
    }  # fmt: skip
    found = restoring(drop, cut((4, b"a", True)))

    found.restore(offset_header="was")

    assert [[{"key": "was", "value": b"4"}]] == [row["headers"] for row in rows(found)]


@pytest.mark.parametrize("on_error", ["fail", "ignore"])
def test_a_record_that_cannot_be_written_as_before_is_named_by_its_offset(on_error: str) -> None:
    """Text cannot hold what has become a struct; the records beside it are good."""
    hoist = DROP | {
        "transforms.drop.type": f"{OF_KAFKA}HoistField$Value",
        "transforms.drop.field": "text",
        "transforms.drop.predicate": "old",
        "value.converter": "string",
    }
    given = cut((3, b"a", False), (5, b"b", True), (8, b"c", True), (9, b"d", False))
    found = restoring(hoist, given)
    if on_error == "fail":
        with pytest.raises(BadRecordError, match=r"orders-0 offset 5: .* are not text"):
            found.restore(on_error=on_error)
        return

    (report,) = found.restore(on_error=on_error)

    assert [b"a", b"d"] == [row["value"] for row in rows(found)]
    assert (2, 2, 10) == (report.done.records, report.done.bad_records, report.committed)
    assert [5, 8] == [entry.place["offset"] for entry in report.own.skipped]


class HalfBad:
    """Takes every second value; counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def encode(self, column: pa.Array) -> Column:
        """Return nulls for odd rows, and say why."""
        self.asked += 1
        values = [value if row % 2 == 0 else None for row, value in enumerate(column.to_pylist())]
        bad = (Bad(row, "a value is odd", "odd") for row in range(1, len(values), 2))
        return Column(pa.array(values, pa.binary()), bad=tuple(bad))


def test_a_converter_is_asked_once_however_many_records_it_cannot_write() -> None:
    """5,000 bad records of 10,000 are named by their offsets, and the others are written."""
    batch = cut(*((10 + 3 * row, b"%d" % row, False) for row in range(10_000)))
    converter = HalfBad()

    fit, bad = written(
        Records.of(batch, "orders", 0, value=Column(batch["value"])),
        {View.VALUE: converter},  # type: ignore[dict-item]
    )

    assert 1 == converter.asked
    assert tuple(BadRecord(13 + 6 * at, "a value is odd", "odd") for at in range(5_000)) == bad
    assert fit.equals(batch.take(pa.array(range(0, 10_000, 2))))


# records that are too large


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


# the offset of the backup as a header of the copy


AT = [3, 7, 9]
HEADERS = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)}),
    max_size=3,
)


@given(st.lists(HEADERS, min_size=1, max_size=8), st.integers(0, 7), st.integers(0, 8))
def test_each_record_gets_one_header_more(
    headers: list[list[dict[str, Any]]], start: int, length: int
) -> None:
    """The last one; what was there keeps its order, and null, empty and absent stay apart."""
    batches = [batch([at * 3], headers=each) for at, each in enumerate(headers)]
    table = pa.Table.from_batches(batches, SCHEMA).combine_chunks()
    [rows] = table.to_batches()
    part = rows.slice(start, length)

    found = with_offset(part, "offset")

    found.validate(full=True)
    assert found.schema == SCHEMA
    assert found.drop_columns("headers") == part.drop_columns("headers")
    assert [
        [*there, {"key": "offset", "value": str(offset).encode()}]
        for there, offset in zip(
            part["headers"].to_pylist(), part["offset"].to_pylist(), strict=True
        )
    ] == found["headers"].to_pylist()


@pytest.mark.parametrize("name", [None, "was"])
def test_a_restore_gives_it_where_it_is_asked_to(name: str | None) -> None:
    """A copy counts its own offsets: with holes in the log they are not those of the original."""
    restoring = Restoring()
    restoring.backup.put("orders", 0, batch(AT, headers=[]))

    options: dict[str, Any] = {} if name is None else {"offset_header": name}
    restoring.restore(**options)

    rows = restoring.cluster.logs[TopicPartition("copy_of_orders", 0)].rows
    expected = [[]] * 3 if name is None else [[{"key": "was", "value": b"%d" % at}] for at in AT]
    assert expected == [row["headers"] for row in rows if row is not MARKER]
