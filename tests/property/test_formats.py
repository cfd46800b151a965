"""Whatever the records are, a file gives them back, and does not show how they came."""

import json
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from record_samples import cut_up, read, record_batches, texts, write

from kbackup.converters.json_text import JsonConverter
from kbackup.converters.primitives import ByteArrayConverter, StringConverter
from kbackup.formats import HEADERS, FormatOptions
from kbackup.formats.byte_array import ByteArrayFormat, separator
from kbackup.formats.json_lines import JsonFormat
from kbackup.formats.parquet import ParquetFormat
from kbackup.formats.parquet_records import RowGroups
from kbackup.naming import View
from kbackup.records import record_bytes
from kbackup.testing import decoded, encoded

cuts = st.lists(st.integers(0, 60), max_size=8)
options = st.builds(
    FormatOptions,
    st.fixed_dictionaries(
        {
            "s3.compression.type": st.sampled_from(["none", "gzip"]),
            "s3.compression.level": st.integers(-1, 9),
        }
    ),
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def one_column(name: str, column: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([column], [name])


@settings(deadline=None)
@given(record_batches(), cuts)
def test_full_records_come_back(batch: pa.RecordBatch, ends: list[int]) -> None:
    """Every record comes back as it was, null as null and empty as empty, from the same bytes."""
    data = write(ParquetFormat(), View.RECORD, cut_up(batch, ends))

    assert batch.to_pylist() == read(ParquetFormat(), View.RECORD, data)
    assert data == write(ParquetFormat(), View.RECORD, [batch])


@settings(deadline=None)
@given(record_batches(max_size=60), cuts, st.integers(1, 9), st.integers(1, 400))
def test_groups_follow_from_the_records(
    batch: pa.RecordBatch, ends: list[int], most_records: int, most_bytes: int
) -> None:
    """Groups hold every record once, in order, and each ends as soon as it is full."""
    groups = RowGroups(most_records, most_bytes)
    found = [group for part in cut_up(batch, ends) for group in groups.add(part)]
    rest = groups.rest()

    rows = [row for group in [*found, rest] if group is not None for row in group.to_pylist()]
    assert batch.to_pylist() == rows
    for group in found:
        sizes = record_bytes(group).to_pylist()
        assert len(group) == most_records or sum(sizes) >= most_bytes
        assert len(group) <= most_records
        assert sum(sizes[:-1]) < most_bytes
    if rest is not None:
        assert len(rest) < most_records
        assert sum(record_bytes(rest).to_pylist()) < most_bytes


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30), min_size=1), cuts, options)
def test_bytes_come_back(values: list[bytes], ends: list[int], how: FormatOptions) -> None:
    """Values that do not hold the separator come back, empty ones too, from the same bytes."""
    kept = [value.replace(separator(how), b"") for value in values]
    batch = one_column("value", pa.array(kept, pa.binary()))
    data = write(ByteArrayFormat(), View.VALUE, cut_up(batch, ends), how)

    assert kept == [row["value"] for row in read(ByteArrayFormat(), View.VALUE, data, how)]
    assert data == write(ByteArrayFormat(), View.VALUE, [batch], how)


@settings(deadline=None)
@given(st.lists(json_values, min_size=1), cuts, options, st.booleans())
def test_json_comes_back(
    values: list[Any], ends: list[int], how: FormatOptions, is_ascii: bool
) -> None:
    """JSON means the same after a round trip, to the last digit, however it was spelled."""
    sent = pa.array([json.dumps(each, ensure_ascii=is_ascii).encode() for each in values])
    batch = one_column("value", decoded(JsonConverter(), sent))
    data = write(JsonFormat(), View.VALUE, cut_up(batch, ends), how)
    rows = [row["value"] for row in read(JsonFormat(), View.VALUE, data, how)]
    back = encoded(JsonConverter(), pa.array(rows, pa.json_()))

    assert values == [None if text is None else json.loads(text) for text in back.to_pylist()]
    assert data == write(JsonFormat(), View.VALUE, [batch], how)


@settings(deadline=None)
@given(st.lists(json_values))
def test_canonical_json_is_its_own_canonical_form(values: list[Any]) -> None:
    """A restored record, backed up again, gives the same line."""
    sent = pa.array([json.dumps(each).encode() for each in values], pa.binary())
    once = decoded(JsonConverter(), sent)

    assert once.equals(decoded(JsonConverter(), once.storage.cast(pa.binary())))


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=20), min_size=1))
def test_bytes_come_back_from_json(values: list[bytes | None]) -> None:
    """Bytes written to a JSON file, as base64, are the same bytes again."""
    data = write(JsonFormat(), View.VALUE, [one_column("value", pa.array(values, pa.binary()))])
    rows = [row["value"] for row in read(JsonFormat(), View.VALUE, data)]

    assert values == encoded(ByteArrayConverter(), pa.array(rows, pa.json_())).to_pylist()


@settings(deadline=None)
@given(st.lists(st.none() | st.text(), min_size=1))
def test_text_comes_back_from_json(values: list[str | None]) -> None:
    """Text written to a JSON file is the same text again, whatever its characters."""
    sent = pa.array([None if each is None else each.encode() for each in values], pa.binary())
    data = write(JsonFormat(), View.VALUE, [one_column("value", decoded(StringConverter(), sent))])
    rows = [row["value"] for row in read(JsonFormat(), View.VALUE, data)]

    assert sent.equals(encoded(StringConverter(), pa.array(rows, pa.json_())))


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.fixed_dictionaries({"key": texts, "value": texts}), max_size=3), min_size=1
    ),
    cuts,
)
def test_headers_come_back(pairs: list[Any], ends: list[int]) -> None:
    """Headers keep their order and repeated names."""
    batch = one_column("headers", pa.array(pairs, HEADERS))
    data = write(JsonFormat(), View.HEADERS, cut_up(batch, ends))

    assert pairs == [row["headers"] for row in read(JsonFormat(), View.HEADERS, data)]
    assert data == write(JsonFormat(), View.HEADERS, [batch])
