"""The file that ``docs/reference/storage-format.md`` specifies."""

import io
from typing import Any, BinaryIO
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from record_samples import OPTIONS, batch_of, read, write

from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    StoreError,
    UnsupportedObjectError,
)
from kbackup.formats import FormatOptions, translated
from kbackup.formats.parquet import EXTENSIONS, ParquetFormat
from kbackup.naming import View
from kbackup.records import SCHEMA

PARQUET = ParquetFormat()
RECORDS = batch_of([{"key": b"k%d" % row, "value": b"v" * row} for row in range(100)])
METADATA = {
    "topic": "orders",
    "partition": "3",
    "records": "100",
    "first-offset": "0",
    "last-offset": "99",
    "min-timestamp": "1700000000000",
    "max-timestamp": "1700000000000",
}


def footer(data: bytes) -> pq.FileMetaData:
    return pq.ParquetFile(io.BytesIO(data)).metadata


def foreign(
    table: pa.Table, metadata: dict[str, str] | None = None, group_rows: int | None = None
) -> bytes:
    """Return a file of *table* as another writer would make it."""
    file = io.BytesIO()
    usual = {"kbackup.format_version": "1"} if metadata is None else metadata
    pq.write_table(table.replace_schema_metadata(usual), file, row_group_size=group_rows)
    return file.getvalue()


def why(data: bytes) -> str:
    """Return what is said of a file that is refused."""
    with pytest.raises(CorruptObjectError) as caught:
        read(PARQUET, View.RECORD, data)
    return str(caught.value)


def test_columns_are_those_of_the_specification() -> None:
    """Another tool sees these columns, types and nullability."""
    schema = pq.ParquetFile(io.BytesIO(write(PARQUET, View.RECORD, [RECORDS]))).schema
    columns = [schema.column(at) for at in range(len(schema.names))]

    assert [
        ("offset", "INT64", "None", 0),
        ("timestamp", "INT64", "None", 1),
        ("timestamp_type", "INT32", "Int(bitWidth=8, isSigned=true)", 0),
        ("key", "BYTE_ARRAY", "None", 1),
        ("value", "BYTE_ARRAY", "None", 1),
        ("headers.list.element.key", "BYTE_ARRAY", "String", 1),
        ("headers.list.element.value", "BYTE_ARRAY", "None", 2),
    ] == [
        (column.path, column.physical_type, str(column.logical_type), column.max_definition_level)
        for column in columns
    ]


def test_metadata_is_that_of_the_specification() -> None:
    """A file says which records it holds, in text, sorted, whatever order it was told in."""
    data = write(PARQUET, View.RECORD, [RECORDS], metadata=METADATA)
    backwards = write(PARQUET, View.RECORD, [RECORDS], metadata=dict(reversed(METADATA.items())))

    assert {
        b"kbackup.first_offset": b"0",
        b"kbackup.format_version": b"1",
        b"kbackup.last_offset": b"99",
        b"kbackup.max_timestamp": b"1700000000000",
        b"kbackup.min_timestamp": b"1700000000000",
        b"kbackup.partition": b"3",
        b"kbackup.records": b"100",
        b"kbackup.topic": b"orders",
    } == footer(data).metadata
    assert data == backwards


def test_layout_is_that_of_the_specification() -> None:
    """zstd, no dictionary, delta-coded numbers, statistics of offset and timestamp alone."""
    group = footer(write(PARQUET, View.RECORD, [RECORDS])).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]

    assert {"ZSTD"} == {column.compression for column in columns}
    assert not any(column.has_dictionary_page for column in columns)
    assert [True, True, *[False] * 5] == [column.is_stats_set for column in columns]
    assert ["DELTA_BINARY_PACKED"] * 2 + ["PLAIN"] * 5 == [
        next(name for name in column.encodings if name != "RLE") for column in columns
    ]
    assert (0, 99) == (columns[0].statistics.min, columns[0].statistics.max)


def test_row_groups_are_those_of_the_specification() -> None:
    """A row group ends after 16,384 records or 4 MiB, whichever comes first."""
    small = footer(write(PARQUET, View.RECORD, [batch_of([{}] * 40_000)]))
    large = footer(write(PARQUET, View.RECORD, [batch_of([{"value": bytes(2**20)}] * 9)]))

    assert [16_384, 16_384, 7_232] == [small.row_group(at).num_rows for at in range(3)]
    assert [4, 4, 1] == [large.row_group(at).num_rows for at in range(3)]


def test_a_file_without_records_is_a_file() -> None:
    """A file without records reads as no records."""
    assert [] == read(PARQUET, View.RECORD, write(PARQUET, View.RECORD, []))


@pytest.mark.parametrize("codec", [codec for codec in EXTENSIONS if codec not in ("lz4", "lzo")])
def test_each_codec_comes_back(codec: str) -> None:
    """The connectors' codecs are written under the connectors' extensions."""
    options = FormatOptions({"parquet.codec": codec})
    data = write(PARQUET, View.RECORD, [RECORDS], options)

    assert RECORDS.to_pylist() == read(PARQUET, View.RECORD, data, options)
    assert PARQUET.reads(PARQUET.extension(options), options)


@pytest.mark.parametrize("codec", ["lz4", "lzo", "zip"])
def test_a_codec_that_cannot_be_written_is_refused(codec: str) -> None:
    """Another codec is not put in the place of the one that was asked for."""
    with pytest.raises(ConfigurationError, match=f"parquet.codec={codec}"):
        PARQUET.writer(io.BytesIO(), View.RECORD, FormatOptions({"parquet.codec": codec}))


def test_a_column_of_the_future_is_ignored() -> None:
    """A column that a later version adds is ignored."""
    table = pa.table(RECORDS)
    more = table.add_column(2, "leader_epoch", pa.array([7] * 100))

    assert RECORDS.to_pylist() == read(PARQUET, View.RECORD, foreign(more))


def test_only_what_is_wanted_is_read() -> None:
    """Damage to values is none to keys, but in a file with dictionaries: it is judged whole."""
    data = bytearray(write(PARQUET, View.RECORD, [RECORDS]))
    (value,) = [
        column
        for column in (footer(bytes(data)).row_group(0).column(at) for at in range(7))
        if column.path_in_schema == "value"
    ]
    data[value.data_page_offset + value.total_compressed_size - 1] ^= 1
    wanted = FormatOptions(columns=frozenset({"offset", "key"}))

    def read_wanted(file: bytes) -> pa.Table:
        found = PARQUET.read(io.BytesIO(file), View.RECORD, ".zstd.parquet", wanted)
        return pa.Table.from_batches(found)

    assert pa.table(RECORDS.select(["offset", "key"])) == read_wanted(bytes(data))
    assert "altered" in why(bytes(data))
    assert SCHEMA == read_wanted(foreign(pa.table(RECORDS))).schema


def test_columns_may_stand_in_any_order() -> None:
    """A Parquet file is read by the names of its columns, whatever their order."""
    turned = pa.table(RECORDS).select(SCHEMA.names[::-1])

    assert RECORDS.to_pylist() == read(PARQUET, View.RECORD, foreign(turned))


@pytest.mark.parametrize(
    ("table", "metadata", "reason"),
    [
        pytest.param(
            pa.table(RECORDS),
            {"kbackup.format_version": "2"},
            "another version: it has version 2, this program reads 1",
            id="later version",
        ),
        pytest.param(pa.table(RECORDS), {}, "no kbackup.format_version", id="no version"),
        pytest.param(
            pa.table(RECORDS), {"kbackup.format_version": "one"}, "altered", id="no number"
        ),
        pytest.param(
            pa.table(RECORDS).drop_columns(["key"]), None, "column key is missing", id="missing"
        ),
        pytest.param(
            pa.table(RECORDS).append_column("key", RECORDS["key"]),
            None,
            "column key is twice",
            id="twice",
        ),
        pytest.param(
            pa.table(RECORDS).set_column(
                1, "timestamp", RECORDS["timestamp"].cast("timestamp[ms]")
            ),
            None,
            "column timestamp should be",
            id="of another type",
        ),
        pytest.param(
            pa.table(RECORDS).set_column(0, "offset", RECORDS["offset"]),
            None,
            "column offset should be",
            id="nullable",
        ),
        pytest.param(
            pa.table(RECORDS),
            {"kbackup.format_version": "1", "kbackup.records": "101"},
            "kbackup.records is 101, the footer says 100",
            id="other count",
        ),
        pytest.param(
            pa.table(RECORDS),
            {"kbackup.format_version": "1", "kbackup.first_offset": "1"},
            "first_offset should be 1 and is 0",
            id="other first offset",
        ),
        pytest.param(
            pa.table(RECORDS),
            {"kbackup.format_version": "1", "kbackup.last_offset": "98"},
            "last_offset should be 98 and is 99",
            id="other last offset",
        ),
        pytest.param(
            pa.concat_tables([pa.table(RECORDS)] * 2),
            None,
            "offset 0 follows offset 99",
            id="repeated",
        ),
        pytest.param(
            pa.table(batch_of([{"headers": [{"key": "é", "value": None}]}])).cast(SCHEMA),
            None,
            "",
            id="UTF-8 header",
        ),
    ],
)
def test_a_file_that_is_not_as_specified_is_refused_in_words(
    table: pa.Table, metadata: dict[str, str] | None, reason: str
) -> None:
    """A file that could be misread is refused, and the reason named."""
    data = foreign(table, metadata)

    if reason:
        assert reason in why(data)
    else:
        assert table.num_rows == len(read(PARQUET, View.RECORD, data))


def test_an_offset_that_two_row_groups_hold_is_noticed() -> None:
    """Offsets rise from one row group to the next, too."""
    twice = pa.concat_tables([pa.table(RECORDS)] * 2)

    assert "offset 0 follows offset 99" in why(foreign(twice, group_rows=100))


def test_a_row_group_with_fewer_rows_than_it_says_is_noticed() -> None:
    """Each row group holds as many rows as its own entry says, whatever the footer's total is."""
    data = foreign(pa.table(RECORDS))
    rows, more = b"\x16\xc8\x01", b"\x16\xca\x01"  # 100 and 101, as Thrift writes them
    at = data.rindex(rows)
    altered = data[:at] + more + data[at + len(rows) :]
    assert (100, 101) == (footer(altered).num_rows, footer(altered).row_group(0).num_rows)

    assert "row group 0 should have 101 rows and has 100" in why(altered)


def test_a_header_name_that_is_not_text_is_noticed() -> None:
    """Bytes under a name's type do not reach Kafka as text."""
    broken = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    headers = pa.ListArray.from_arrays(
        pa.array([0, 1], pa.int32()),
        pa.StructArray.from_arrays(
            [broken, pa.nulls(1, pa.binary())], fields=list(SCHEMA.field("headers").type.value_type)
        ),
        type=SCHEMA.field("headers").type,
    )
    columns = [*batch_of([{}]).columns[:-1], headers]

    assert "altered" in why(foreign(pa.Table.from_arrays(columns, schema=SCHEMA)))


def test_a_group_larger_than_any_of_ours_is_refused() -> None:
    """A file cannot ask for more memory than its records may take."""
    options = FormatOptions(max_record_bytes=1000)
    data = foreign(pa.table(batch_of([{"value": bytes([row]) * 10**6} for row in range(120)])))

    with pytest.raises(CorruptObjectError, match="row group 0 has") as caught:
        read(PARQUET, View.RECORD, data, options)

    assert "--max-record-bytes" in caught.value.do


class Failing(io.BytesIO):
    """A file on a store that fails."""

    def __init__(self, data: bytes, error: Exception) -> None:
        super().__init__(data)
        self.error: Exception = error
        self.fails = False

    def read(self, size: int | None = -1, /) -> bytes:
        if self.fails:
            raise self.error
        return super().read(size)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(OSError(5, "Input/output error"), id="disk"),
        pytest.param(StoreError("no answer"), id="store"),
        pytest.param(MemoryError(), id="memory of Python"),
        pytest.param(pa.ArrowMemoryError("malloc of size 128 failed"), id="memory of Arrow"),
    ],
)
def test_a_failing_disk_is_not_a_damaged_file(error: Exception) -> None:
    """A failing disk, or too little memory, is not reported as a damaged file."""
    file = Failing(write(PARQUET, View.RECORD, [batch_of([{}] * 20_000)]), error)
    rows = PARQUET.read(file, View.RECORD, ".zstd.parquet", OPTIONS)
    next(rows)
    file.fails = True

    with pytest.raises(type(error)) as caught:
        list(rows)
    with pytest.raises(type(error)):
        PARQUET.own_metadata(file)

    assert not isinstance(caught.value, CorruptObjectError)


def test_a_full_disk_reaches_the_writer() -> None:
    """A full disk's error reaches the writer unchanged."""

    class Full(io.BytesIO):
        def write(self, _: Any, /) -> int:
            raise OSError(28, "No space left on device")

    file: BinaryIO = Full()

    with pytest.raises(OSError, match="No space left") as caught:
        PARQUET.writer(file, View.RECORD, OPTIONS).close({})

    assert 28 == caught.value.errno


IDS = UUID("00112233-4455-6677-8899-aabbccddeeff"), UUID(int=0)


def extended(kind: pa.DataType, stored: list[Any]) -> pa.Array:
    """Return a column of a type that Arrow has made of another."""
    return pa.ExtensionArray.from_storage(kind, pa.array(stored, kind.storage_type))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None, 2**63 - 1], pa.uint64()), [1, None, 2**63 - 1]),
        (pa.array([b"ab", None, b"\0\1"], pa.binary(2)), [b"ab", None, b"\0\1"]),
        (pa.array([[1], None, []], pa.large_list(pa.uint64())), [[1], None, []]),
        (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)), [[1, 2], None, [3, 4]]),
        (pa.array([1.5, None, -0.25], pa.float16()), [1.5, None, -0.25]),
        (pa.array([5, None, -7], pa.duration("us")), [5, None, -7]),
        (pa.array([86_400_000, None, 0], pa.date64()), [1, None, 0]),
        (pa.nulls(3), [None] * 3),
        (extended(pa.uuid(), [IDS[0].bytes, None, IDS[1].bytes]), [str(IDS[0]), None, str(IDS[1])]),
        (extended(pa.uuid(), [None, None]), [None, None]),
        (
            pa.ListArray.from_arrays([0, 2, 2], extended(pa.uuid(), [IDS[1].bytes, IDS[0].bytes])),
            [[str(IDS[1]), str(IDS[0])], []],
        ),
        (extended(pa.json_(), ['{"n": 1}', None, ""]), ['{"n": 1}', None, ""]),
    ],
)
def test_types_of_other_tools_come_back_without_loss(
    column: pa.Array, expected: list[object]
) -> None:
    """A type that Kafka Connect lacks is read as one that holds all its values."""
    rows = read(PARQUET, View.VALUE, foreign(pa.table({"a": column})))

    assert expected == [row["value"]["a"] for row in rows]


@pytest.mark.parametrize("kind", [pa.uint64(), pa.list_(pa.uint64())])
def test_a_number_that_connect_cannot_hold_is_refused_by_its_column(kind: pa.DataType) -> None:
    """The file is not called damaged, and the exit code is that of a refusal."""
    value: object = 2**63 if pa.types.is_uint64(kind) else [2**63]

    with pytest.raises(UnsupportedObjectError, match="column much") as refused:
        read(PARQUET, View.VALUE, foreign(pa.table({"much": pa.array([value], kind)})))

    assert 4 == refused.value.exit_code


def test_two_columns_of_one_name_are_refused() -> None:
    """One of them would take the other's place."""
    table = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])

    with pytest.raises(UnsupportedObjectError, match="two columns a"):
        read(PARQUET, View.VALUE, foreign(table))


@pytest.mark.parametrize(
    ("kind", "is_refused"),
    [
        (pa.struct([]), True),
        (pa.struct([("a", pa.list_(pa.struct([])))]), True),
        (pa.struct([("a", pa.map_(pa.string(), pa.struct([])))]), True),
        (pa.struct([("a", pa.list_(pa.int8()))]), False),
    ],
)
@pytest.mark.parametrize("view", [View.VALUE, View.KEY])
def test_a_struct_without_fields_is_refused(
    view: View, kind: pa.StructType, is_refused: bool
) -> None:
    """Parquet has no column for it, so the file would have fewer rows than records."""
    values = pa.array([{"a": []} if kind.num_fields else {}] * 2, kind)

    found = ParquetFormat().refuses(view, values, OPTIONS)

    assert ([0, 1] if is_refused else []) == [bad.row for bad in found]


@pytest.mark.parametrize("size", [2**62, 2**63 - 1])
def test_a_size_that_no_machine_has_is_damage(size: int) -> None:
    """What asks Arrow for it is an altered file."""
    with pytest.raises(CorruptObjectError, match="the file is"), translated("the file is altered"):
        pa.allocate_buffer(size)


@pytest.mark.parametrize(("size", "expected"), [(2**35, CorruptObjectError), (2**32, MemoryError)])
def test_a_page_that_claims_two_billion_values_is_damage(
    size: int, expected: type[Exception]
) -> None:
    """A dictionary of as many as a page's header can say takes 32 GiB; 4 GiB a file may need."""
    with pytest.raises(expected), translated("the file is altered"):
        raise pa.ArrowMemoryError(f"malloc of size {size} failed")
