"""Parquet files of values, keys or headers: what the connectors' ``ParquetFormat`` writes.

A value is a struct, and each of its fields a column; keys and headers are in a struct of their
own, as in the connector's files.  The Avro schema in the footer holds what only Kafka Connect
knows; files of other tools have only their types.

Source: kafka-connect-storage-cloud 87eb7d39, ``ParquetRecordWriterProvider``, ``RecordViews``.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal, localcontext
from itertools import pairwise
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kbackup.connect import avro_writing, json_values
from kbackup.connect import schema as connect
from kbackup.connect.avro_reading import from_avro
from kbackup.connect.avro_writing import AvroStyle, to_avro
from kbackup.connect.json_values import unscaled
from kbackup.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, UNION, ConnectSchema, Type
from kbackup.errors import ConfigurationError, UnsupportedObjectError
from kbackup.formats import COLUMNS, HEADERS_SCHEMA, choose, column_schema, translated
from kbackup.formats.parquet_records import METADATA_PREFIX, READ_BYTES, RECORDS, RowGroups
from kbackup.naming import View
from kbackup.records import Schema

AVRO_SCHEMA: Final = "parquet.avro.schema"
"""Name in the footer, as in parquet-avro."""

DAMAGED: Final = "the Parquet file is cut short or altered"

_ENVELOPES: Final = {View.KEY: "RecordKey", View.HEADERS: "RecordHeaders"}
_SETTINGS: Final[dict[str, Any]] = {
    "write_page_checksum": True,
    "store_schema": False,  # Parquet's own types say all, to every reader alike
    "write_time_adjusted_to_utc": True,  # as parquet-avro; only then older readers see a time
    "version": "2.6",
}


class ValueWriter:
    """A Parquet file of one view being written; holds at most one row group and one batch."""

    def __init__(
        self, file: BinaryIO, view: View, schema: Schema | None, codec: str, level: int | None
    ) -> None:
        self._file, self._codec, self._level = file, codec, level
        self._view, self._column = view, COLUMNS[view]
        self._schema = HEADERS_SCHEMA if view is View.HEADERS else connect.of(schema)
        self._parquet: pq.ParquetWriter | None = None
        self._avro = ""
        self._groups = RowGroups(sizes=self._sizes, total=None)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of the one column.

        Raises:
            ConfigurationError: If the values are not structs, or have no schema.
        """
        if self._schema is None:
            self._schema = column_schema(batch.schema.field(self._column), "a Parquet file")
        if self._view is View.VALUE and self._schema.type is not Type.STRUCT:
            raise ConfigurationError(
                f"a parquet file cannot hold values of the type {self._schema.type}",
                "each of its columns is a field of a struct",
                choose(self._view, "avro", "json"),
            )
        for group in self._groups.add(pa.record_batch([batch[self._column]], [self._column])):
            self._write_group(group.column(0))

    def close(self, metadata: Mapping[str, str]) -> None:
        """Write what is left and the footer, with *metadata* under our prefix."""
        if self._schema is None:  # nothing was written
            self._schema = ConnectSchema(Type.STRUCT)
        rest = self._groups.rest()
        if rest is not None or self._parquet is None:
            none = pa.array([], self._schema.arrow())
            self._write_group(none if rest is None else rest.column(0))
        assert self._parquet is not None  # noqa: S101
        named = {METADATA_PREFIX + name.replace("-", "_"): text for name, text in metadata.items()}
        self._parquet.add_key_value_metadata(
            {**dict(sorted(named.items())), AVRO_SCHEMA: self._avro}
        )
        self._parquet.close()

    def _whole(self) -> ConnectSchema:
        """Return the schema of a row: the struct, or the one that wraps anything else."""
        assert self._schema is not None  # noqa: S101
        if self._view is View.VALUE:
            return self._schema
        return ConnectSchema(
            Type.STRUCT, name=_ENVELOPES[self._view], fields=((self._column, self._schema),)
        )

    def _sizes(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """Return the bytes of each value in Avro."""
        assert self._schema is not None  # noqa: S101
        datums = avro_writing.encode_avro(batch.column(0), self._schema, STYLE)
        return pc.fill_null(pc.binary_length(datums).cast(pa.int64()), 0)

    def _write_group(self, column: pa.Array) -> None:
        assert self._schema is not None  # noqa: S101
        whole = self._whole()
        parts = (
            json_values.struct_fields(column, self._schema)
            if self._view is View.VALUE
            else [column]
        )
        schemas = [schema for _, schema in whole.fields]
        try:
            self._avro = json.dumps(to_avro(whole, STYLE), separators=(",", ":"))
            arrays = [to_parquet(*each) for each in zip(parts, schemas, strict=True)]
        except ValueError as error:  # Arrow raises it too: a Decimal with too many digits
            raise ConfigurationError(
                f"{self._column}s do not fit into a Parquet file",
                str(error),
                choose(self._view, "avro", "json"),
            ) from None
        found = pa.schema(
            pa.field(name, array.type, nullable=schema.optional)
            for array, (name, schema) in zip(arrays, file_fields(whole), strict=True)
        )
        if self._parquet is None:
            self._parquet = pq.ParquetWriter(
                self._file, found, compression=self._codec, compression_level=self._level,
                **_SETTINGS,
            )  # fmt: skip
        if len(column):
            table = pa.Table.from_arrays(arrays, schema=found)
            self._parquet.write_table(table, row_group_size=len(column))


def read_values(file: BinaryIO, view: View) -> Iterator[pa.RecordBatch]:
    """Read a file of one view, lazily; its column has the schema in the footer.

    Raises:
        CorruptObjectError: If it is truncated or altered.
        UnsupportedObjectError: If another tool wrote it, with values that Connect has no type for.
    """
    with translated(DAMAGED):
        parquet = pq.ParquetFile(file, page_checksum_verification=True, pre_buffer=False)
        whole = _footer_schema(parquet)
        schema = whole if view is View.VALUE else dict(whole.fields)[COLUMNS[view]]
        rows = _batch_rows(parquet)
        groups = range(parquet.num_row_groups)
        for batch in itertools.chain.from_iterable(
            parquet.iter_batches(batch_size=rows, row_groups=[group], use_threads=False)
            for group in groups
        ):
            struct = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
            column = from_parquet(struct, whole)
            if view is not View.VALUE:
                column = column.field(COLUMNS[view])
            field = schema.of_column().on(pa.field(COLUMNS[view], column.type))
            yield pa.RecordBatch.from_arrays([column], schema=pa.schema([field]))


def _footer_schema(parquet: pq.ParquetFile) -> ConnectSchema:
    named = parquet.metadata.metadata or {}
    text = named.get(AVRO_SCHEMA.encode())
    if text is not None:
        return from_avro(json.loads(text))
    return of_parquet(pa.struct(list(parquet.schema_arrow)))


def _batch_rows(parquet: pq.ParquetFile) -> int:
    groups = [parquet.metadata.row_group(at) for at in range(parquet.num_row_groups)]
    row = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=1)
    return max(1, min(RECORDS, int(READ_BYTES / max(32, row))))


LOGICAL: Final = {
    DATE: pa.date32(),
    TIME: pa.time32("ms"),
    TIMESTAMP: pa.timestamp("ms", "UTC"),
}
"""How the file stores Connect's dates and times."""

_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.float16(): pa.float32(),
    pa.uint64(): pa.int64(),
    pa.null(): pa.string(),
}
"""Types of other tools' files that Connect lacks, and what holds all their values; of ``uint64``
all but the upper half, which is refused."""

_DO: Final = (
    "write the file again in another way, leave it out with a narrower topic.regex.list, or "
    "skip it with behavior.on.error"
)


def of_parquet(kind: pa.DataType, *, optional: bool = False) -> ConnectSchema:
    """Return the schema of the rows of another tool's file, or of the values of a column.

    A UUID is its text, as for the connectors; what else Arrow has a type of its own for, such as
    JSON, is what it is stored as.

    Raises:
        UnsupportedObjectError: If Connect has nothing that holds a field of theirs.
    """
    if kind == pa.uuid():
        return ConnectSchema(Type.STRING, optional)
    if isinstance(kind, pa.BaseExtensionType):
        return of_parquet(kind.storage_type, optional=optional)
    if pa.types.is_struct(kind):
        counts = Counter(each.name for each in kind)
        if twice := [name for name, count in counts.items() if count > 1]:
            why = "a record of Kafka Connect has each field once"
            raise UnsupportedObjectError(f"the Parquet file has two columns {twice[0]}", why, _DO)
        fields = tuple((each.name, _of_field(each)) for each in kind)
        return ConnectSchema(Type.STRUCT, optional, fields=fields)
    if pa.types.is_map(kind):
        key, item = of_parquet(kind.key_type), kind.item_field
        value = of_parquet(item.type, optional=item.nullable)
        return ConnectSchema(Type.MAP, optional, key=key, value=value)
    if _is_list(kind):
        item = kind.value_field
        value = of_parquet(item.type, optional=item.nullable)
        return ConnectSchema(Type.ARRAY, optional, value=value)
    return _of_scalar(kind, optional=optional)


def _of_field(field: pa.Field) -> ConnectSchema:
    """Return the schema of a field of another tool."""
    try:
        return of_parquet(field.type, optional=field.nullable)
    except UnsupportedObjectError:
        raise
    except ValueError:
        raise unsupported(field.name, f"it has the type {field.type}") from None


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    known = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(is_one(kind) for is_one in known)


def unsupported(name: str, why: str) -> UnsupportedObjectError:
    """Return the refusal of the column *name*, whose values no type of Connect holds."""
    return UnsupportedObjectError(
        f"the Parquet file has a column {name} that Kafka Connect has no type for",
        why,
        _DO,
    )


def _of_scalar(kind: pa.DataType, *, optional: bool) -> ConnectSchema:
    """Return the schema of values that hold no others; times that Connect lacks are numbers."""
    for logical, stored_as in LOGICAL.items():
        if stored_as == kind:
            plain = Type.INT64 if logical == TIMESTAMP else Type.INT32
            return ConnectSchema(plain, optional, logical, 1)
    if pa.types.is_date64(kind):
        return ConnectSchema(Type.INT32, optional, DATE, 1)
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return ConnectSchema(Type.INT64, optional)
    if pa.types.is_decimal(kind):
        scale = ("scale", str(kind.scale))
        return ConnectSchema(Type.BYTES, optional, DECIMAL, 1, parameters=(scale,))
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_fixed_size_binary(kind):
        kind = pa.binary()
    return connect.of_arrow(_WIDER.get(kind, kind), optional=optional)


_INT64_MAX: Final = 2**63 - 1
STYLE: Final = AvroStyle()
"""Of the Avro schema in the footer, which the columns correspond to."""
_DIGITS: Final = 76
"""The most digits of Arrow's widest decimal."""
_UUID_BYTES: Final = 16
_UUID_DIGITS: Final = (0, 8, 12, 16, 20, 32)
"""Where a UUID's hexadecimal digits are parted."""


class _TooLargeError(ValueError):
    """A number is beyond what Connect's INT64 holds."""


def to_parquet(
    values: pa.Array, schema: ConnectSchema, absent: pa.BooleanArray | None = None
) -> pa.Array:
    """Return *values* in the types of the file: dates, times, decimals.

    In the rows *absent*, within a struct that is null, anything may stand; None for none.
    """
    if schema.logical == DECIMAL:
        kind = pa.decimal256(max(_precision(schema), schema.scale, 1), schema.scale)
        numbers = [
            None if value is None else json_values.decimal(value, schema.scale)
            for value in values.to_pylist()
        ]
        return pa.array(numbers, kind)
    kind = _plain_type(schema)
    if kind is not None:
        if schema.fixed_size and absent is not None:
            values = pc.if_else(absent, pa.scalar(bytes(schema.fixed_size)), values)
        return values.cast(kind)
    if schema.type is Type.STRUCT:
        absent = values.is_null() if absent is None else pc.or_(absent, values.is_null())
        parts = [  # not as `nested.fields` has them: a column that may not be null is not, here
            to_parquet(json_values.filled(values.field(at), field), field, absent)
            for at, (_, field) in enumerate(schema.fields)
        ]
        fields = [
            pa.field(name, part.type, nullable=field.optional)
            for part, (name, field) in zip(parts, file_fields(schema), strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=values.is_null())
    if schema.type is Type.ARRAY:
        items = to_parquet(values.flatten(), schema.items)
        offsets = _offsets(values)
        kind = pa.list_(pa.field("element", items.type, nullable=schema.items.optional))
        return pa.ListArray.from_arrays(offsets, items, type=kind)
    return _map(values, schema) if schema.type is Type.MAP else values


def file_fields(schema: ConnectSchema) -> list[tuple[str, ConnectSchema]]:
    """Return the fields of a struct by their names in a file; a union's are numbered."""
    if schema.name != UNION:
        return list(schema.fields)
    return [(f"member{at}", field) for at, (_, field) in enumerate(schema.fields)]


def _map(values: pa.MapArray, schema: ConnectSchema) -> pa.Array:
    """Return maps as maps, or as lists of entries where their keys are not plain text."""
    lists = json_values.as_lists(values)
    keys, items = lists.flatten().flatten()
    key, item = to_parquet(keys, schema.keys), to_parquet(items, schema.items)
    value = pa.field("value", item.type, nullable=schema.items.optional)
    if STYLE.has_entries(schema):
        key_field = pa.field("key", key.type, nullable=schema.keys.optional)
        entries = pa.StructArray.from_arrays([key, item], fields=[key_field, value])
        kind = pa.list_(pa.field("element", entries.type, nullable=False))
        return pa.ListArray.from_arrays(_offsets(lists), entries, type=kind)
    kind = pa.map_(pa.field("key", key.type, nullable=False), value)
    return pa.MapArray.from_arrays(_offsets(lists), key, item, type=kind)


def _plain_type(schema: ConnectSchema) -> pa.DataType | None:
    """Return the type of the file for values of another type in Arrow; None for the others."""
    if schema.logical in LOGICAL:
        return LOGICAL[schema.logical]
    if schema.type in (Type.INT8, Type.INT16):  # as in Avro, which has none that short
        return pa.int32()
    return pa.binary(schema.fixed_size) if schema.fixed_size else None


def _offsets(lists: pa.ListArray) -> pa.Int32Array:
    """Return where each list begins, null where it is null, and where the last one ends."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    lengths = lengths.cast(pa.int32())
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    if not lists.null_count:
        return ends
    is_there = pa.concat_arrays([lists.is_valid(), pa.array([True])])
    return pc.if_else(is_there, ends, pa.scalar(None, pa.int32()))


def _precision(schema: ConnectSchema) -> int:
    return min(_DIGITS, int(schema.parameter("connect.decimal.precision") or 64))


def from_parquet(values: pa.Array, schema: ConnectSchema) -> pa.Array:
    """Return *values* of a file in Connect's own types.

    Raises:
        UnsupportedObjectError: If a number is too large for its type.
    """
    if isinstance(values.type, pa.BaseExtensionType):
        is_text = values.type == pa.uuid() and schema.type is Type.STRING
        return _uuids(values.storage) if is_text else from_parquet(values.storage, schema)
    if schema.logical == DECIMAL:
        return pa.array([_unscaled(each, schema.scale) for each in values.to_pylist()], pa.binary())
    if schema.type is Type.STRUCT:
        columns = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
        parts = [_column(name, columns[name], field) for name, field in file_fields(schema)]
        mask = values.is_null()
        return pa.StructArray.from_arrays(parts, fields=list(schema.arrow()), mask=mask)
    if schema.type is Type.ARRAY:
        items = from_parquet(values.flatten(), schema.items)
        return pa.ListArray.from_arrays(_offsets(values), items, type=schema.arrow())
    if schema.type is Type.MAP:
        lists = json_values.as_lists(values) if pa.types.is_map(values.type) else values
        keys, items = lists.flatten().flatten()
        key, item = from_parquet(keys, schema.keys), from_parquet(items, schema.items)
        return pa.MapArray.from_arrays(_offsets(lists), key, item, type=schema.arrow())
    if pa.types.is_date64(values.type):
        values = values.cast(pa.date32())
    if pa.types.is_uint64(values.type) and (pc.max(values).as_py() or 0) > _INT64_MAX:
        raise _TooLargeError
    return values.cast(schema.arrow())


def _column(name: str, values: pa.Array, schema: ConnectSchema) -> pa.Array:
    """Return a field of a struct in Connect's own type."""
    try:
        return from_parquet(values, schema)
    except _TooLargeError:
        why = f"it has the type uint64, and a value above {_INT64_MAX}"
        raise unsupported(name, why) from None


def _uuids(values: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Return UUIDs as text, in lower case with hyphens."""
    data = values.buffers()[1]
    if not len(values) or data is None:
        return pa.nulls(len(values), pa.string())
    mine = data[values.offset * _UUID_BYTES : (values.offset + len(values)) * _UUID_BYTES]
    digits = pa.py_buffer(mine.to_pybytes().hex().encode())
    digits = pa.Array.from_buffers(pa.binary(2 * _UUID_BYTES), len(values), [None, digits])
    parts = [
        pc.binary_slice(digits, start, stop).cast(pa.binary()).cast(pa.string())
        for start, stop in pairwise(_UUID_DIGITS)
    ]
    texts = pc.binary_join_element_wise(*parts, "-")
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string()))


def _unscaled(value: Decimal | None, scale: int) -> bytes | None:
    if value is None:
        return None
    with localcontext() as context:
        context.prec = 2 * _DIGITS
        return unscaled(int(value.scaleb(scale)))
