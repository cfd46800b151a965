"""The digest of an object's records, by the page of the storage format."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from record_samples import batch_of, cut_up, record_batches

from kbackup.pipeline.rows import RecordsDigest
from kbackup.records import SCHEMA

ROOT: Final = Path(__file__).parents[3]
VECTORS: Final = json.loads((ROOT / "tests/golden/digests.json").read_text())
PAGE: Final = ROOT / "docs/reference/storage-format.md"

Row = Mapping[str, Any]


def digest(batches: Iterable[pa.RecordBatch]) -> str:
    """The digest of records that come so."""
    found = RecordsDigest()
    for batch in batches:
        found.add(batch)
    return found.text


def row_by_row(rows: Sequence[Row]) -> str:
    """The digest, written down again: a record after the other, without columns."""

    def number(value: int, width: int) -> bytes:
        return value.to_bytes(width, "little", signed=True)

    def length(part: bytes | None) -> bytes:
        return number(-1 if part is None else len(part), 4)

    headers = [header for row in rows for header in row["headers"]]
    names = [header["key"].encode() for header in headers]
    streams = [
        [number(-(2**63) if row["timestamp"] is None else row["timestamp"], 8) for row in rows],
        [number(row["timestamp_type"], 1) for row in rows],
        [number(len(row["headers"]), 4) for row in rows],
    ]
    for column in (
        [row["key"] for row in rows],
        [row["value"] for row in rows],
        names,
        [header["value"] for header in headers],
    ):
        streams.append([length(part) for part in column])
        streams.append([part or b"" for part in column])
    parts = [number(len(rows), 8), *(hashlib.sha256(b"".join(at)).digest() for at in streams)]
    return "r1:" + hashlib.sha256(b"".join(parts)).hexdigest()


def of_json(row: Row) -> Row:
    """A record of the file of vectors: bytes are in hexadecimal."""

    def part(text: str | None) -> bytes | None:
        return None if text is None else bytes.fromhex(text)

    headers = [{"key": name, "value": part(value)} for name, value in row["headers"]]
    key, value = part(row["key"]), part(row["value"])
    return {**row, "key": key, "value": value, "headers": headers}


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_a_digest_is_what_the_page_says(vector: Any) -> None:
    """By columns, and by a second implementation that goes from record to record."""
    rows = [of_json(row) for row in vector["records"]]

    assert vector["digest"] == digest([batch_of(rows)]) == row_by_row(rows)


def test_the_page_has_a_vector() -> None:
    """Whoever has the page alone can check a computation of their own."""
    section = PAGE.read_text().partition("\n## Digest of records\n")[2].partition("\n## ")[0]
    shown = json.loads(section.partition("```json\n")[2].partition("```")[0])

    (vector,) = (one for one in VECTORS if one["records"] == shown)
    assert re.findall(r"r1:[0-9a-f]{64}", section) == [vector["digest"]]


def test_no_two_vectors_are_alike() -> None:
    """Null, empty and absent, and the order of all there is, tell records apart."""
    assert len(VECTORS) == len({vector["digest"] for vector in VECTORS})


@given(record_batches(max_size=12), st.lists(st.integers(0, 12), max_size=4))
def test_a_digest_does_not_depend_on_batches(batch: pa.RecordBatch, cuts: list[int]) -> None:
    """Slices, empty ones too, and copies add up to what the records are one by one."""
    parts = cut_up(batch, cuts)
    copied = [pa.RecordBatch.from_pylist(part.to_pylist(), SCHEMA) for part in parts]

    assert row_by_row(batch.to_pylist()) == digest(parts) == digest(copied)


@given(record_batches(max_size=6), record_batches(max_size=6))
def test_other_records_have_another_digest(some: pa.RecordBatch, others: pa.RecordBatch) -> None:
    """Whatever differs but for offsets, and null against the lowest of all numbers as a time."""
    mine, theirs = some.drop_columns("offset").to_pylist(), others.drop_columns("offset")
    assume(all(row["timestamp"] != -(2**63) for row in (*mine, *theirs.to_pylist())))

    assert (mine == theirs.to_pylist()) == (digest([some]) == digest([others]))


@given(record_batches(max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_records_counts(batch: pa.RecordBatch, random: Any) -> None:
    """The same records in another order have the digest of another object."""
    rows = batch.drop_columns("offset").to_pylist()
    order = list(range(len(rows)))
    random.shuffle(order)
    other = batch.take(pa.array(order, pa.int64()))
    assume(all(row["timestamp"] != -(2**63) for row in rows))

    is_same = rows == [rows[at] for at in order]
    assert is_same == (digest([batch]) == digest([other]))


def test_the_place_of_a_null_is_not_read() -> None:
    """A null has no bytes, whatever its place in memory holds."""
    batch = batch_of([{"key": b"a"}, {"key": None}, {"key": b"c"}])
    whole = pa.array([b"a", b"hidden", b"c"], pa.binary())
    masked = pa.Array.from_buffers(
        pa.binary(), 3, [pa.array([True, False, True]).buffers()[1], *whole.buffers()[1:]]
    )
    at = SCHEMA.get_field_index("key")

    assert digest([batch]) == digest([batch.set_column(at, SCHEMA.field(at), masked)])
