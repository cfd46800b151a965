"""Avro containers beside those of the connector: every codec, other writers, damage."""

import io
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kbackup import formats
from kbackup.connect.avro_reading import long
from kbackup.connect.avro_walk import AVRO
from kbackup.connect.avro_writing import AvroStyle, to_avro
from kbackup.connect.schema import ENUM, ConnectSchema, Type
from kbackup.errors import ConfigurationError, CorruptObjectError
from kbackup.formats import FormatOptions
from kbackup.formats.avro import (
    BLOCK_BYTES,
    COMPRESS,
    MAGIC,
    VALUES_RATIO,
    AvroFormat,
    BlockReader,
    BlockWriter,
)
from kbackup.naming import View
from kbackup.records import ENCODED, Schema

LONG = ConnectSchema(
    Type.STRUCT,
    name="a.Long",
    fields=(("n", ConnectSchema(Type.INT64)), ("text", ConnectSchema(Type.STRING))),
)
ROWS = [{"n": at, "text": "x" * 1000} for at in range(200)]


def written(rows: list[Any], schema: ConnectSchema, codec: str = "null") -> bytes:
    file = io.BytesIO()
    options = FormatOptions({"avro.codec": codec})
    writer = AvroFormat().writer(file, View.VALUE, options, schema.of_column())
    writer.write(pa.record_batch([pa.array(rows, schema.arrow())], ["value"]))
    writer.close({})
    return file.getvalue()


def read(data: bytes, **options: Any) -> list[Any]:
    batches = AvroFormat().read(io.BytesIO(data), View.VALUE, ".avro", FormatOptions(**options))
    return [row for batch in batches for row in batch["value"].to_pylist()]


@pytest.mark.parametrize("codec", COMPRESS)
def test_every_codec_is_read_by_others(codec: str) -> None:
    """What is written in any codec is read by another library, in several blocks, and by ours."""
    data = written(ROWS, LONG, codec)

    assert ROWS == [*fastavro.reader(io.BytesIO(data))]
    assert ROWS == read(data)
    blocks = [block.num_records for block in fastavro.block_reader(io.BytesIO(data))]
    assert [-(-BLOCK_BYTES // 1004)] * 3 == blocks[:3]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_blocks_end_where_they_are_full_however_datums_come(size: int) -> None:
    """A block ends with the datum that fills it, whichever batches and parts of columns come."""
    datums = [b"x" * (at * 37 % 9000) for at in range(100)]
    column = pa.array([b"before", *datums], pa.binary()).slice(1)
    file = io.BytesIO()
    writer = BlockWriter(file, '"null"', "null")
    for start in range(0, len(column), size):
        writer.write(column.slice(start, size))
    writer.finish()
    file.seek(0)

    blocks = list(BlockReader(file, 2**20))

    expected, held, count = list[tuple[int, bytes]](), b"", 0
    for datum in datums:
        held, count = held + datum, count + 1
        if len(held) >= BLOCK_BYTES:
            expected.append((count, held))
            held, count = b"", 0
    assert [*expected, (count, held)] == [(block.count, block.data) for block in blocks]


@pytest.mark.parametrize("codec", COMPRESS)
def test_what_others_write_is_read(codec: str) -> None:
    """A container of another library is read in any codec, maps, enums and defaults too."""
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "m", "type": {"type": "map", "values": ["null", "double"]}},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["B", "A"]}},
            {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
            {"name": "again", "type": ["null", "E"]},
        ],
    }
    row = {"m": {"a": 0.5, "b": None}, "e": "A", "f": b"\0\xff", "again": "B"}
    file = io.BytesIO()
    fastavro.writer(file, schema, [row] * 3, codec=codec)

    assert [row | {"m": [("a", 0.5), ("b", None)]}] * 3 == read(file.getvalue())


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2", "xz"])
def test_a_file_cut_within_a_block_is_no_shorter_backup(codec: str) -> None:
    """An Avro container that is cut anywhere but after a block is damaged, not short."""
    data = written(ROWS[:70], LONG, codec)
    whole = len(written([], LONG, codec))

    for end in {0, 3, 4, 20, whole - 1, whole + 1, whole + 40, len(data) - 17, len(data) - 1}:
        if end != whole:
            with pytest.raises(CorruptObjectError):
                read(data[:end])


@pytest.mark.parametrize("codec", ["deflate", "snappy", "bzip2", "xz", "null"])
def test_altered_bytes_are_an_error_or_other_values(codec: str) -> None:
    """No damage causes a library's exception, or more or fewer rows."""
    data = written([{"n": at, "text": "two\nlines"} for at in range(20)], LONG, codec)

    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        try:
            rows = read(damaged)
        except CorruptObjectError:
            continue
        assert len(rows) == 20


def test_a_block_that_grows_without_end_is_refused() -> None:
    """A container of another program cannot fill the memory."""
    data = written([{"n": 1, "text": "x" * 5_000_000}], LONG, "deflate")

    with pytest.raises(CorruptObjectError, match="more than 1000000 bytes") as caught:
        read(data, max_record_bytes=1_000_000)

    assert "--max-record-bytes" in caught.value.do


def test_a_type_that_contains_itself_is_named() -> None:
    """A column is as deep as its type, and such values are of any depth."""
    schema = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "next", "type": ["null", "Node"]}],
    }
    file = io.BytesIO()
    fastavro.writer(file, schema, [{"next": None}])

    with pytest.raises(CorruptObjectError) as caught:
        read(file.getvalue())

    assert "Node contains itself" in caught.value.why


def test_json_without_a_schema_is_refused() -> None:
    """JSON without a schema is refused: an Avro file needs a schema, and none is made up."""
    values = pa.array(['{"a":1}'], pa.json_())
    form = AvroFormat()

    [bad] = form.refuses(View.VALUE, values, FormatOptions())
    with pytest.raises(ConfigurationError, match="an Avro file"):
        form.writer(io.BytesIO(), View.VALUE, FormatOptions()).write(
            pa.record_batch([values], ["value"])
        )

    assert "schemas.enable" in bad.do


@pytest.mark.parametrize(
    ("count", "left"),
    [(0, "3 bytes are left"), (1, "2 bytes are left"), (2, "1 byte is left")],
)
def test_a_block_with_more_than_it_claims_is_damage(count: int, left: str) -> None:
    """No value is left out because a block claims fewer than it holds."""
    whole = written([], ConnectSchema(Type.INT64))
    data = bytes(2) + long(5)

    with pytest.raises(CorruptObjectError, match=left):
        read(whole + long(count) + long(len(data)) + data + whole[-16:])


EMPTY = ConnectSchema(Type.STRUCT, name="a.Empty")
LISTS = ConnectSchema(
    Type.STRUCT, name="a.Lists", fields=(("all", ConnectSchema(Type.ARRAY, value=EMPTY)),)
)


def test_lists_of_empty_structs_come_back_up_to_the_length_that_is_written() -> None:
    """A list of empty structs is refused while it is written, or can be read back."""
    rows: list[Any] = [{"all": [{}] * count} for count in (0, 1, 1000, 1001)]

    refused = AvroFormat().refuses(View.VALUE, pa.array(rows, LISTS.arrow()), FormatOptions())

    assert [3] == [bad.row for bad in refused]
    assert rows[:3] == read(written(rows[:3], LISTS))


def test_values_without_bytes_come_back_however_many() -> None:
    """Values that take no bytes are written in blocks that a reader accepts."""
    data = written([{}] * 150_000, EMPTY)

    assert [64_000, 64_000, 22_000] == [each.count for each in BlockReader(io.BytesIO(data), 2**20)]
    assert 150_000 == len(read(data))


@pytest.mark.parametrize(
    ("schema", "count", "datums"),
    [
        pytest.param(EMPTY, 2**62, b"", id="values"),
        pytest.param(LISTS, 1, long(2**62) + b"\0", id="items"),
    ],
)
def test_a_block_that_claims_any_number_without_bytes_is_refused(
    schema: ConnectSchema, count: int, datums: bytes
) -> None:
    """A short block that claims 2^62 values or items is damage, and keeps nobody busy."""
    whole = written([], schema)
    marker = whole[-16:]

    with pytest.raises(CorruptObjectError, match=r"take no bytes|claim \d+ values"):
        read(whole + long(count) + long(len(datums)) + datums + marker)


def container(schema: Any, codec: str, count: int, datums: bytes, blocks: int) -> bytes:
    """Return a file of blocks that are all the same."""
    pairs = {"avro.codec": codec, "avro.schema": json.dumps(schema)}
    head = b"".join(
        long(len(each)) + each.encode() for pair in pairs.items() for each in pair
    )  # fmt: skip
    packed, marker = COMPRESS[codec](datums), bytes(16)
    block = long(count) + long(len(packed)) + packed + marker
    return MAGIC + long(2) + head + b"\0" + marker + block * blocks


INTS: Any = {"type": "array", "items": "int"}
EMPTIES: Any = {"type": "array", "items": {"type": "record", "name": "E", "fields": []}}
FIXED: Any = {"type": "fixed", "name": "F", "size": 0}
OF_NOTHING: Any = {
    "type": "record", "name": "N",
    "fields": [{"name": f"f{at}", "type": FIXED | {"name": f"F{at}"}} for at in range(2000)],
}  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(lambda: container("int", "bzip2", 2**26, bytes(2**26), 20), id="numbers"),
        pytest.param(lambda: container(FIXED, "null", 2**20, b"", 500), id="values of no bytes"),
        pytest.param(lambda: container(OF_NOTHING, "null", 60_000, b"", 500), id="wide"),
        pytest.param(
            lambda: container(INTS, "bzip2", 1, long(2**26) + bytes(2**26 + 1), 20), id="items"
        ),
        pytest.param(
            lambda: container(EMPTIES, "bzip2", 2**14, (long(1000) + b"\0") * 2**14, 50),
            id="items of no bytes",
        ),
    ],
)
def test_what_a_file_asks_of_a_reader_is_bounded_by_its_size(data: Callable[[], bytes]) -> None:
    """Kilobytes that claim millions of values are damage, whatever block or list claims them."""
    begun = time.monotonic()

    with pytest.raises(CorruptObjectError, match="to one"):
        read(data())

    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("codec", sorted(COMPRESS))
@pytest.mark.parametrize("value", [{}, 7])
def test_no_file_of_our_own_asks_too_much(codec: str, value: Any) -> None:
    """Values that compress best, in any number, are read back."""
    schema = EMPTY if value == {} else ConnectSchema(Type.INT32)
    rows = 128_000

    data = written([value] * rows, schema, codec)

    assert rows < VALUES_RATIO * len(data)
    assert rows == len(read(data))


def test_a_schema_that_grows_without_end_is_refused() -> None:
    """Named types that each hold the one before twice are no more than the file says."""
    kind: Any = {"type": "record", "name": "T0", "fields": [{"name": "a", "type": "int"}]}
    for at in range(1, 27):
        both = [{"name": "a", "type": kind}, {"name": "b", "type": f"T{at - 1}"}]
        kind = {"type": "record", "name": f"T{at}", "fields": both}

    with pytest.raises(CorruptObjectError, match="more than 100000 types"):
        read(container(kind, "null", 1, bytes(10), 1))


def test_a_decimal_of_any_scale_is_refused() -> None:
    """One byte does not become a gigabyte of digits."""
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2**30}

    with pytest.raises(CorruptObjectError, match="scale of 1073741824"):
        read(container(kind, "null", 1, b"\x02\x01", 1))


@pytest.mark.parametrize("name", ["avro", "parquet"])
def test_advice_names_the_property_that_is_meant(name: str) -> None:
    """What is wrong with a key is mended by the format of keys, not by that of values."""
    keys = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1"]))

    [bad] = formats.by_name(name).refuses(View.KEY, keys, FormatOptions())

    assert "choose keys.format.class=json" in bad.do


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (ConnectSchema(Type.BYTES, name="F", parameters=(("connect.fixed.size", "4"),)), b""),
        (ConnectSchema(Type.STRING, parameters=((ENUM, "E"), (f"{ENUM}.A", "A"))), ""),
    ],
)
def test_what_its_schema_does_not_take_damages_no_file(schema: ConnectSchema, value: Any) -> None:
    """A fixed of another size and a symbol that is none, as transforms may leave, are refused."""
    whole = ConnectSchema(Type.STRUCT, name="R", fields=(("a", schema),))

    with pytest.raises(ConfigurationError, match="do not match their schema"):
        written([{"a": value}], whole)


def test_a_damaged_block_of_zstd_keeps_no_memory() -> None:
    """A reader that meets many damaged files holds none of what it set aside for them."""
    data = written(ROWS, LONG, "zstandard")
    at = data.index(b"\x28\xb5\x2f\xfd")
    bad = data[:at] + b"\0" + data[at + 1 :]
    before = virtual()

    for _ in range(20):
        with pytest.raises(CorruptObjectError):
            read(bad)

    assert virtual() - before < 2**28


def virtual() -> int:
    """The address space of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def test_the_default_replaces_null_in_datums_that_came_encoded() -> None:
    """A datum is not stored as it came where the connector writes a default for its null."""
    text = ConnectSchema(Type.STRING, optional=True, default='"dd"')
    schema = ConnectSchema(Type.STRUCT, name="R", fields=(("a", text),))
    theirs = json.dumps(to_avro(schema, AvroStyle()))
    encoded = Schema(theirs, encoding=AVRO).on(pa.field(ENCODED, pa.binary()))
    values = pa.array([{"a": None}, {"a": "x"}], schema.arrow())
    fields = pa.schema([pa.field("value", values.type), encoded])
    file = io.BytesIO()
    writer = AvroFormat().writer(file, View.VALUE, FormatOptions(), schema.of_column())

    writer.write(pa.record_batch([values, pa.array([b"\2", b"\0\2x"], pa.binary())], fields))
    writer.close({})

    found = list(fastavro.reader(io.BytesIO(file.getvalue())))
    assert [{"a": "dd"}, {"a": "x"}] == found
