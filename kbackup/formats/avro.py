"""Avro's object containers: what the connectors' ``AvroFormat`` writes.

A file is a header with one schema, that of its records, then blocks of datums: each value, key or
list of headers is one.  The sync marker between blocks is derived from the contents, where others
choose it at random: the same records give the same file.

Source: kafka-connect-storage-cloud 87eb7d39, ``AvroRecordWriterProvider``; ``connect-compat``
section 3.2; Apache Avro 1.12, "Object Container Files".
"""

import bz2
import hashlib
import json
import lzma
import zlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, BinaryIO, ClassVar, Final, TypeAlias

import pyarrow as pa

from kbackup import records
from kbackup.connect import avro_reading, avro_walk, avro_writing
from kbackup.connect import schema as connect
from kbackup.connect.avro_reading import long
from kbackup.connect.avro_walk import AVRO, NAMED, full_name, full_names
from kbackup.connect.avro_writing import AvroStyle, to_avro
from kbackup.connect.schema import ConnectSchema, Type
from kbackup.connect.tables import Files, TableColumn, not_a_table, struct, text
from kbackup.errors import ConfigurationError, CorruptObjectError, counted, form, is_of_memory
from kbackup.formats import (
    COLUMNS,
    HEADERS_SCHEMA,
    FileFormat,
    FormatOptions,
    Traits,
    all_rows,
    choose,
    column_schema,
    corrupt,
    null_keys,
)
from kbackup.formats.codecs import PIECE_BYTES, RATIO_FLOOR_BYTES, RATIO_MAX
from kbackup.naming import View
from kbackup.options import boolean, words
from kbackup.records import ANY_KIND, ENCODED, Bad, Schema

CODEC: Final = words(
    "avro.codec",
    "Compression of the blocks of an Avro file.",
    ("null", "deflate", "snappy", "bzip2", "zstandard", "xz"),
    "null",
    commands="sink",
)
CONNECT_META: Final = boolean(
    "connect.meta.data",
    "Keep what only Kafka Connect knows about a schema in attributes that begin with connect.",
    True,
    commands="sink",
)
ENHANCED: Final = boolean(
    "enhanced.avro.schema.support",
    "Write text that was an Avro enum as an enum again.",
    True,
    commands="sink",
)
OPTIONAL_KEYS: Final = boolean(
    "allow.optional.map.keys",
    "Write maps with optional text keys as Avro maps.",
    False,
    commands="sink",
)

OPTIONS: Final = (CODEC, CONNECT_META, ENHANCED, OPTIONAL_KEYS)


_CONTAINER: Final = "org.apache.hadoop.hive.ql.io.avro.AvroContainer{}Format"

_AVRO: Final = {
    "null": "string",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}
_AVRO_LOGICAL: Final = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
}


_DIGITS_MOST: Final = 38
"""The most digits of the engines' decimals; a longer one stays bytes."""


_TEXT_MOST: Final = 2**20
"""The longest text of a record's fields: types that hold others by name multiply it."""


def table_columns(schema: Any) -> tuple[TableColumn, ...]:
    """Return the columns of a file with *schema*, parsed JSON; refuse one that is no record's."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise not_a_table("its values are no records")
    return tuple(TableColumn(name, kind) for name, kind in _fields(schema, {}, ""))


_Named: TypeAlias = dict[str, str | None]
"""The words for types, by their full names; None while the fields of one are read."""


def _fields(schema: Mapping[str, Any], named: _Named, namespace: str) -> list[tuple[str, str]]:
    full = full_name(schema, namespace)
    named[full], inner = None, full.rpartition(".")[0]
    fields, size = list[tuple[str, str]](), 0
    for one in schema["fields"]:
        name, kind = one["name"], _of_avro(one["type"], named, inner)
        if not isinstance(name, str):
            raise TypeError("a field's name is not text")
        fields.append((name, kind))
        size += len(name) + len(kind)
        if size > _TEXT_MOST:
            most = f"{_TEXT_MOST >> 20} MiB"
            raise not_a_table(f"its types take more than {most}, each written where it is named")
    return fields


def _of_avro(schema: Any, named: _Named, namespace: str) -> str:
    match schema:
        case list():
            kinds = [one for one in schema if one != "null"]
            if len(kinds) != 1:
                raise not_a_table("a field is one of several types")
            return _of_avro(kinds[0], named, namespace)
        case str() if schema in _AVRO:
            return _AVRO[schema]
        case str():
            return _by_name(schema, named, namespace)
    found = _logical(schema) or _complex(schema, named, namespace)
    if schema["type"] in NAMED:
        named[full_name(schema, namespace)] = found
    return found


def _by_name(name: str, named: _Named, namespace: str) -> str:
    full = next((one for one in full_names(name, namespace) if one in named), None)
    if full is None:
        raise ValueError(f"it has no type {name}")
    found = named[full]
    if found is None:
        raise not_a_table(f"its type {name} contains itself")
    return found


def _logical(schema: Mapping[str, Any]) -> str | None:
    logical = schema.get("logicalType")
    if logical == "decimal":
        match schema.get("precision"), schema.get("scale", 0):
            case int(precision), int(scale) if 0 <= scale <= precision <= _DIGITS_MOST:
                return f"decimal({precision:d},{scale:d})" if precision else None
        return None  # anybody may have written any text there
    return None if logical is None else _AVRO_LOGICAL.get(logical)


def _complex(schema: Mapping[str, Any], named: _Named, namespace: str) -> str:
    match schema["type"]:
        case "record":
            return struct(_fields(schema, named, namespace))
        case "array":
            return f"array<{_of_avro(schema['items'], named, namespace)}>"
        case "map":
            return f"map<string,{_of_avro(schema['values'], named, namespace)}>"
    return _of_avro(schema["type"], named, namespace)


def table_stored_as(schema: dict[str, Any], _engine: str, away: Collection[str]) -> tuple[str, ...]:
    """Return the lines that give *schema* to Athena or Hive, without the fields in *away*."""
    kept = [one for one in schema["fields"] if one["name"].lower() not in away]
    literal = json.dumps({**schema, "fields": kept}, separators=(",", ":"))
    return (
        "ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.avro.AvroSerDe'",
        f"WITH SERDEPROPERTIES ('avro.schema.literal' = {text(literal)})",
        f"STORED AS INPUTFORMAT '{_CONTAINER.format('Input')}'",
        f"OUTPUTFORMAT '{_CONTAINER.format('Output')}'",
    )


EXTENSION: Final = ".avro"
"""The same for every codec."""


MAGIC: Final = b"Obj\x01"
BLOCK_BYTES: Final = 64_000
"""A block ends with the datum that reaches this many bytes, as in Avro's own writer."""
BLOCK_ROWS: Final = BLOCK_BYTES
"""A block ends with so many datums at the latest, even if they take no bytes."""

VALUES_FLOOR: Final = 2**22
"""Any file may claim so many values..."""
VALUES_RATIO: Final = 4000
"""...and so many for each byte of it.  `BlockWriter` reaches 3,200 with empty records, 1,600 with
records of one byte under zstandard, 985 under bzip2 and 646 under deflate."""

LIST_RATIO: Final = 25_000
"""How many bytes one byte of a file with lists may become: each may be an item.  Lists of 1 MiB
that hold one item all over reach 16,100 under bzip2, 14,800 under zstandard, 3,400 under xz."""

_WHAT: Final = "the Avro file is cut short or altered"
_MARKER_BYTES: Final = 16
_HEAD_BYTES_MAX: Final = 16 * 2**20
_VARINT_MAX: Final = 10


def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def _snappy(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, "snappy", asbytes=True)
    return packed + zlib.crc32(data).to_bytes(4, "big")


def _zstandard(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd", 1).compress(data, asbytes=True)
    return packed


COMPRESS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": _deflate,
    "snappy": _snappy,
    "bzip2": bz2.compress,
    "zstandard": _zstandard,
    "xz": lambda data: lzma.compress(data, preset=1),
}
"""How a block is compressed, by the name of the codec."""

_UNPACKERS: Final[dict[str, Callable[[], Any]]] = {
    "deflate": lambda: zlib.decompressobj(-15),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=2**28),
}


class BlockWriter:
    """A container being written, under a *schema* in JSON; holds at most one block."""

    def __init__(self, file: BinaryIO, schema: str, codec: str) -> None:
        self.schema = schema
        self._file, self._codec = file, codec
        self._head = _head({"avro.codec": codec.encode(), "avro.schema": schema.encode()})
        self._compress = COMPRESS[codec]
        self._marker = b""
        self._held: list[memoryview] = []
        self._held_count = self._held_bytes = 0

    def write(self, datums: pa.BinaryArray) -> None:
        """Add one datum per row, none of them null."""
        if not len(datums):
            return
        data = memoryview(datums.buffers()[2] or b"")
        ends = memoryview(datums.buffers()[1]).cast("i")  # where each datum ends, after the first
        row, last = datums.offset, datums.offset + len(datums)
        while row < last:
            start = ends[row]
            full = start + BLOCK_BYTES - self._held_bytes
            most = min(last, row + BLOCK_ROWS - self._held_count)  # some take no bytes
            until = min(most, bisect_left(ends, full, row + 1, most + 1))
            self._held.append(data[start : ends[until]])
            self._held_count += until - row
            self._held_bytes += ends[until] - start
            row = until
            if self._held_bytes >= BLOCK_BYTES or self._held_count >= BLOCK_ROWS:
                self._end_block()

    def finish(self) -> None:
        """Write the rest; a container without records consists of its header."""
        if self._held_count:
            self._end_block()
        elif not self._marker:
            self._begin(b"")

    def _begin(self, data: bytes) -> None:
        digest = hashlib.blake2b(self._head, digest_size=_MARKER_BYTES)
        digest.update(data)
        self._marker = digest.digest()
        self._file.write(self._head + self._marker)

    def _end_block(self) -> None:
        data = b"".join(self._held)
        if not self._marker:
            self._begin(data)
        packed = self._compress(data)
        self._file.write(
            b"".join([long(self._held_count), long(len(packed)), packed, self._marker])
        )
        self._held, self._held_count, self._held_bytes = [], 0, 0


@dataclass(frozen=True, slots=True)
class AvroBlock:
    """Consecutive datums of a container."""

    count: int
    data: bytes


class BlockReader:
    """A container being read, a block at a time, of at most *max_bytes*, compressed or not.

    Raises:
        CorruptObjectError: If it does not begin like a container.
    """

    def __init__(self, file: BinaryIO, max_bytes: int) -> None:
        self._file, self._max = file, max_bytes
        self._taken = self._given = self._values = 0
        if file.read(len(MAGIC)) != MAGIC:
            raise _corrupt("it does not begin like an Avro container")
        named = self._metadata()
        self.schema = named.get("avro.schema", b"").decode(errors="replace")
        self._empty_parts, self._ratio = 0, RATIO_MAX
        self._codec = named.get("avro.codec", b"null").decode(errors="replace")
        self._marker = self._take(_MARKER_BYTES)
        self._taken = 0  # of the blocks alone: a schema of any length stands for no values
        if self._codec not in COMPRESS:
            raise _corrupt(f"its codec is {self._codec!r}")

    def __iter__(self) -> Iterator[AvroBlock]:
        number = 0
        while (count := self._long(at_end=True)) is not None:
            number += 1
            size = self._long() or 0
            if count < 0 or not 0 <= size <= self._max:
                said = f"{counted(count, 'value')} in {counted(size, 'byte')}"
                raise _corrupt(f"block {number} claims {said}")
            packed = self._take(size)
            if self._take(_MARKER_BYTES) != self._marker:
                raise _corrupt(f"the sync marker after block {number} is not the file's")
            self.spend(count)
            data = self._unpacked(packed, number)
            self.spend(max(count, len(data)) * self._empty_parts)
            self._given += len(data)
            if self._given > max(RATIO_FLOOR_BYTES, self._ratio * self._taken):
                raise _corrupt(
                    f"{self._taken} bytes have become {self._given}, more than {self._ratio} to one"
                )
            yield AvroBlock(count, data)

    def limit(self, empty_parts: int, *, has_lists: bool) -> None:
        """Say what makes values more work than their bytes show: lists, and parts without bytes.

        Of these, *empty_parts* may come with any value, or any byte of one.
        """
        self._empty_parts, self._ratio = empty_parts, LIST_RATIO if has_lists else RATIO_MAX

    def spend(self, values: int) -> None:
        """Count values, or parts, that may take no bytes; refuse more than bytes stand for."""
        self._values += values
        if self._values > max(VALUES_FLOOR, VALUES_RATIO * self._taken):
            raise _corrupt(
                f"{self._taken} bytes claim {self._values} values, more than {VALUES_RATIO} to one"
            )

    def _unpacked(self, packed: bytes, number: int) -> bytes:
        try:
            data = _decompressed(self._codec, packed, self._max)
        except (
            zlib.error,
            lzma.LZMAError,
            OSError,
            ValueError,
            EOFError,
            pa.ArrowException,
        ) as bad:
            if is_of_memory(bad):
                raise
            raise _corrupt(f"block {number}: {bad}") from bad
        if len(data) > self._max:
            why = f"block {number} has more than {self._max} bytes"
            do = "if records are this long, raise --max-record-bytes"
            raise CorruptObjectError(_WHAT, why, do)
        return data

    def _metadata(self) -> dict[str, bytes]:
        named: dict[str, bytes] = {}
        while count := self._long() or 0:
            if count < 0:
                self._long()
            for _ in range(abs(count)):
                name = self._bytes()
                named[name.decode(errors="replace")] = self._bytes()
                if len(named) > 1000:
                    raise _corrupt("its header does not end")
        return named

    def _bytes(self) -> bytes:
        size = self._long() or 0
        if not 0 <= size <= _HEAD_BYTES_MAX:
            raise _corrupt(f"its header claims {counted(size, 'byte')}")
        return self._take(size)

    def _take(self, size: int) -> bytes:
        data = self._file.read(size)
        self._taken += len(data)
        if left := size - len(data):
            are = form(left, "is", "are")
            raise _corrupt(f"{counted(left, 'byte')} {are} missing at its end")
        return data

    def _long(self, *, at_end: bool = False) -> int | None:
        """Read an integer; None at the end of the file if the file may end here."""
        found = 0
        for at in range(_VARINT_MAX):
            byte = self._file.read(1)
            if not byte:
                if at_end and not at:
                    return None
                raise _corrupt("it ends within a number")
            found |= (byte[0] & 127) << 7 * at
            if byte[0] < 128:
                return (found >> 1) ^ -(found & 1)
        raise _corrupt("a number in it does not end")


def _decompressed(codec: str, packed: bytes, limit: int) -> bytes:
    """Return the decompressed data, at most one byte more than *limit*."""
    if codec == "null":
        return packed
    if codec == "snappy":
        return _unsnapped(packed, limit)
    if codec == "zstandard":
        found = bytearray()
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            # Arrow never frees what it has set aside for a read that fails
            while len(found) <= limit and (piece := stream.read(PIECE_BYTES)):
                found += piece
        return bytes(found)
    unpacker = _UNPACKERS[codec]()
    data: bytes = unpacker.decompress(packed, limit + 1)
    if not unpacker.eof and len(data) <= limit:
        raise ValueError("its compressed data are cut short")
    return data


def _unsnapped(packed: bytes, limit: int) -> bytes:
    size = _snappy_size(packed)
    if size > limit:
        return bytes(limit + 1)
    data: bytes = pa.decompress(packed[:-4], size, "snappy", asbytes=True)
    if zlib.crc32(data).to_bytes(4, "big") != packed[-4:]:
        raise ValueError("its checksum does not match")
    return data


def _snappy_size(packed: bytes) -> int:
    size = 0
    for at, byte in enumerate(packed[:5]):
        size |= (byte & 127) << 7 * at
        if byte < 128:
            return size
    raise ValueError("its length does not end")


def _head(named: dict[str, bytes]) -> bytes:
    pairs = b"".join(
        long(len(part)) + part for name, value in named.items() for part in (name.encode(), value)
    )
    return MAGIC + long(len(named)) + pairs + b"\0"


def _corrupt(why: str) -> CorruptObjectError:
    return corrupt(_WHAT, why)


def _no_schema(why: str) -> CorruptObjectError:
    return CorruptObjectError("the Avro file has a schema that kbackup cannot read", why)


class AvroFormat(FileFormat):
    """Avro containers; rows have one column.

    It writes columns with a Connect schema, and plain columns as if they were optional.
    """

    name: ClassVar = "avro"
    ending: ClassVar = EXTENSION
    traits: ClassVar = Traits(
        class_names=("AvroFormat",),
        options=OPTIONS,
        views=frozenset(COLUMNS),
        takes=ANY_KIND,
        assumed={View.VALUE: "json", View.KEY: "string"},
        assumed_to_write={View.VALUE: "avro"},
        needs_schema=True,
        encodings=frozenset({AVRO}),
    )

    def refuses(self, view: View, values: pa.Array, _options: FormatOptions) -> Sequence[Bad]:
        """Refuse null keys, JSON without a schema, and lists that nobody can read back."""
        if view is View.HEADERS:
            return ()
        if isinstance(values.type, pa.JsonType):
            do = f"set schemas.enable=true of its converter, or {choose(view, 'json')}"
            what = f"a {COLUMNS[view]} has no schema"
            return all_rows(values, what, "an Avro file needs one", do)
        return [
            *(null_keys(values) if view is View.KEY else ()),
            *_too_many_empty_items(values, view),
        ]

    def _writer(
        self, file: BinaryIO, view: View, options: FormatOptions, schema: Schema | None
    ) -> "AvroWriter":
        return AvroWriter(file, view, options, schema)

    def _read(
        self, file: BinaryIO, view: View, _extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        return _read(file, view, options)

    def table(self, file: BinaryIO, _view: View, _extension: str, options: FormatOptions) -> Files:
        """Return a column for each field of the records."""
        text = BlockReader(file, options.max_record_bytes).schema
        try:
            schema = json.loads(text)
            columns = table_columns(schema)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _no_schema(f"{type(error).__name__}: {error}") from None
        return Files(columns, (EXTENSION,), "avro", partial(table_stored_as, schema))


class AvroWriter:
    """An Avro container being written; holds a block."""

    def __init__(
        self, file: BinaryIO, view: View, options: FormatOptions, schema: Schema | None
    ) -> None:
        given = options.values
        self._style = AvroStyle(CONNECT_META.of(given), ENHANCED.of(given), OPTIONAL_KEYS.of(given))
        self._file, self._codec = file, CODEC.of(given)
        self._view, self._column = view, COLUMNS[view]
        self._schema = HEADERS_SCHEMA if view is View.HEADERS else connect.of(schema)
        self._blocks: BlockWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of the one column.

        Raises:
            ConfigurationError: If the column is JSON without a schema.
        """
        if self._schema is None:
            self._schema = column_schema(batch.schema.field(self._column), "an Avro file")
        blocks = self._begun(self._schema)
        datums = self._as_they_came(batch, blocks.schema)
        if datums is None:
            datums = avro_writing.encode_avro(batch[self._column], self._schema, self._style)
        if datums.null_count:
            raise ConfigurationError(
                f"{self._column}s do not match their schema",
                "something in one is null and must not be, is not a symbol of its enum, or does "
                "not have the size of its fixed type",
                "correct the transform that changes them, or " + choose(self._view, "json"),
            )
        blocks.write(datums)

    def _as_they_came(self, batch: pa.RecordBatch, schema: str) -> pa.BinaryArray | None:
        """Return the producers' datums, None if they do not have the file's schema."""
        # nor where a null in them may have a default, which the connector writes in its place
        if ENCODED not in batch.schema.names or batch[ENCODED].null_count:
            return None
        if self._schema is not None and self._schema.fills_null:
            return None
        theirs = records.schema_of(batch.schema.field(ENCODED))
        if theirs is None or not avro_walk.is_same_on_the_wire(theirs.text, schema):
            return None
        return batch[ENCODED]

    def close(self, metadata: Mapping[str, str]) -> None:  # noqa: ARG002  # no room for it
        """Complete the file."""
        schema = self._schema or ConnectSchema(Type.BYTES, optional=True)  # nothing was written
        self._begun(schema).finish()

    def _begun(self, schema: ConnectSchema) -> BlockWriter:
        if self._blocks is None:
            try:
                avro = to_avro(schema, self._style)
            except ValueError as error:
                raise ConfigurationError(
                    f"{self._column}s have a schema that Avro cannot express",
                    str(error),
                    choose(self._view, "json"),
                ) from None
            text = json.dumps(avro, separators=(",", ":"))
            self._blocks = BlockWriter(self._file, text, self._codec)
        return self._blocks


def _too_many_empty_items(values: pa.Array, view: View) -> list[Bad]:
    """Return the rows whose lists have more empty structs than a reader accepts."""
    empty = _empty_items(values.type)
    if empty is None:
        return []
    (schema, walk), found = empty, []
    for row, datum in enumerate(avro_writing.encode_avro(values, schema, AvroStyle()).to_pylist()):
        if datum is not None:  # what cannot be encoded has another reason
            try:
                walk(datum, 0)
            except ValueError as why:
                what = "lists of empty structs are too long for Avro"
                found.append(Bad(row, what, str(why), choose(view, "json")))
    return found


@lru_cache(100)
def _empty_items(kind: pa.DataType) -> tuple[ConnectSchema, Callable[[bytes, int], int]] | None:
    """Return how values with lists of empty structs are looked through; None for other types."""
    try:
        schema = connect.of_arrow(kind)
        text = json.dumps(to_avro(schema, AvroStyle()))
    except ValueError:  # no type of Avro's: the writer says so
        return None
    return (schema, avro_walk.walker(text)) if avro_walk.empty_items(text) else None


def _read(file: BinaryIO, view: View, options: FormatOptions) -> Iterator[pa.RecordBatch]:
    """Yield values, keys or headers, a block at a time, under Connect's schema for the file's."""
    blocks = BlockReader(file, options.max_record_bytes)
    try:
        schema = avro_reading.connect_schema(blocks.schema)
    except ValueError as error:
        raise _no_schema(str(error)) from None
    text = blocks.schema
    blocks.limit(avro_walk.empty_parts(text), has_lists=avro_walk.has_lists(text))
    field = schema.of_column().on(pa.field(COLUMNS[view], schema.arrow()))
    rows = 0
    for block in blocks:
        column = _values(block, blocks, rows)
        rows += len(column)
        yield pa.RecordBatch.from_arrays([column], schema=pa.schema([field]))


def _values(block: AvroBlock, blocks: BlockReader, before: int) -> pa.Array:
    try:
        blocks.spend(avro_walk.check_block(block.data, block.count, blocks.schema))
        return avro_reading.decode_avro(block.data, block.count, blocks.schema)
    except (ValueError, pa.ArrowException) as error:
        if is_of_memory(error):
            raise
        why = f"values {before + 1} to {before + block.count}: {error}"
        raise CorruptObjectError("the Avro file does not match its schema", why) from None
