"""G1: small Parquet files that claim, or stand for, more than any memory holds."""

import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from record_samples import batch_of, read, record_batches

from kbackup.errors import CorruptObjectError
from kbackup.formats import FormatOptions
from kbackup.formats.parquet import ParquetFormat
from kbackup.formats.parquet_records import check_column
from kbackup.naming import View
from kbackup.records import HEADER, SCHEMA

MIB: Final = 2**20
PARQUET: Final = ParquetFormat()
HEADERS: Final = SCHEMA.field("headers").type

READ: Final = r"""
import re, sys
from kbackup.errors import CorruptObjectError
from kbackup.formats import FormatOptions
from kbackup.formats.parquet import ParquetFormat
from kbackup.naming import View

rows = 0
with open(sys.argv[1], "rb") as file:
    try:
        for batch in ParquetFormat().read(file, View.RECORD, ".parquet", FormatOptions()):
            rows += len(batch)
        print(rows, "rows")
    except CorruptObjectError as error:
        print(error.why)
print(int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) // 1024)
"""


def copied(rows: int, given: dict[str, pa.Array], **options: Any) -> bytes:
    """Return full records as another tool copies them, coded by dictionary; the rest is usual."""
    columns = {
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.nulls(rows, pa.int64()),
        "timestamp_type": pa.repeat(pa.scalar(0, pa.int8()), rows),
        "key": pa.nulls(rows, pa.binary()),
        "value": pa.nulls(rows, pa.binary()),
        "headers": pa.ListArray.from_arrays(
            pa.repeat(pa.scalar(0, pa.int32()), rows + 1), pa.array([], HEADER), type=HEADERS
        ),
        **given,
    }
    fields = [SCHEMA.field(name).with_type(columns[name].type) for name in SCHEMA.names]
    table = pa.Table.from_arrays([columns[name] for name in SCHEMA.names], schema=pa.schema(fields))
    chosen: dict[str, Any] = {"compression": "zstd", "store_schema": False, **options}
    file = io.BytesIO()
    with pq.ParquetWriter(file, table.schema, **chosen) as writer:
        writer.write_table(table, rows + 1)
        writer.add_key_value_metadata({"kbackup.format_version": "1"})
    return file.getvalue()


def repeated(value: bytes, times: int) -> pa.DictionaryArray:
    """Return one value many times, at the cost of one."""
    return pa.DictionaryArray.from_arrays(
        pa.repeat(pa.scalar(0, pa.int32()), times), pa.array([value], pa.binary())
    )


def headers(keys: pa.Array, values: pa.Array) -> pa.ListArray:
    """Return one record's headers."""
    fields = [
        HEADER.field("key").with_type(keys.type),
        HEADER.field("value").with_type(values.type),
    ]
    pairs = pa.StructArray.from_arrays([keys, values], fields=fields)
    element = pa.field("element", pairs.type, nullable=False)
    return pa.ListArray.from_arrays(pa.array([0, len(keys)], pa.int32()), pairs, pa.list_(element))


def large_values() -> bytes:
    """Return 16 records of one value of 64 MiB."""
    return copied(16, {"value": repeated(bytes(64 * MIB), 16)})


def large_headers() -> bytes:
    """Return a record with 16 headers of one value of 64 MiB."""
    return copied(1, {"headers": headers(pa.array(["h"] * 16), repeated(bytes(64 * MIB), 16))})


def small_rows() -> bytes:
    """Return 20 million records that take next to no bytes."""
    encoding = {"offset": "DELTA_BINARY_PACKED"}
    rows = 20_000_000
    return copied(rows, {}, use_dictionary=False, column_encoding=encoding)


@pytest.mark.parametrize(
    ("make", "outcome"),
    [
        pytest.param(large_values, "its dictionaries expand to more than 67108864", id="values"),
        pytest.param(large_headers, "one has 1073741968 bytes", id="headers of one record"),
        pytest.param(small_rows, "20000000 rows", id="rows without bytes"),
    ],
)
def test_a_file_cannot_fill_the_memory(tmp_path: Path, make: Any, outcome: str) -> None:
    """A file's decompressed size is checked first, and then it is decompressed in parts."""
    path = tmp_path / "bomb.parquet"
    path.write_bytes(make())

    ran = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True
    )

    said, peak_mib = ran.stdout.splitlines()
    assert path.stat().st_size < MIB
    assert outcome in said
    assert int(peak_mib) < 512


@settings(deadline=None)
@given(record_batches(max_size=60))
def test_a_copy_with_dictionaries_is_the_same(batch: pa.RecordBatch) -> None:
    """Dictionary-encoded columns of other tools read back as written, nulls included."""
    data = copied(len(batch), {name: batch[name] for name in SCHEMA.names})

    assert batch.to_pylist() == read(PARQUET, View.RECORD, data)


def test_a_long_record_of_a_dictionary_is_refused() -> None:
    """The limit on a record's size holds for dictionary-encoded columns too."""
    data = copied(2, {"value": repeated(bytes(1001), 2)})

    with pytest.raises(CorruptObjectError, match="more than 1000") as caught:
        read(PARQUET, View.RECORD, data, FormatOptions(max_record_bytes=1000))

    assert "--max-record-bytes" in caught.value.do


@pytest.mark.parametrize("length", [2**31 - 1, 2**32 - 1])
def test_a_length_that_no_page_holds_is_damage(length: int) -> None:
    """A record that claims gigabytes is refused, and nothing is allocated for it."""
    value = b"a value of thirty bytes, or so"
    records = batch_of([{"value": value}] * 3)
    columns = {name: records[name] for name in SCHEMA.names}
    data = copied(3, columns, use_dictionary=False, compression="none")
    at = data.index(len(value).to_bytes(4, "little") + value)
    data = data[:at] + length.to_bytes(4, "little") + data[at + 4 :]

    with pytest.raises(CorruptObjectError):
        read(PARQUET, View.RECORD, data)


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param({"total_uncompressed_size": 1000}, id="size"),
        pytest.param({"num_values": 10}, id="too few values"),
        pytest.param({"num_values": 10_000}, id="too many values"),
        pytest.param({"data_page_offset": 5}, id="place"),
        pytest.param({"total_compressed_size": 2**40}, id="end"),
    ],
)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_that_hold_other_than_the_footer_says_are_not_read(
    lie: dict[str, int], version: str
) -> None:
    """A footer that contradicts its pages is detected before they are decompressed."""
    records = batch_of([{"value": b"%d" % at * 20} for at in range(1000)])
    columns = {name: records[name] for name in SCHEMA.names}
    file = io.BytesIO(copied(1000, columns, data_page_version=version, data_page_size=4096))
    column = pq.ParquetFile(file).metadata.row_group(0).column(4)
    names = """
        path_in_schema has_dictionary_page dictionary_page_offset data_page_offset num_values
        total_compressed_size total_uncompressed_size
    """
    said = {name: getattr(column, name) for name in names.split()}
    check_column(file, SimpleNamespace(**said))

    with pytest.raises(CorruptObjectError):
        check_column(file, SimpleNamespace(**{**said, **lie}))
