"""A column in the types of a Parquet file, and back in Kafka Connect's own.

The connectors' own files have their schema in the footer; those of other tools have only types.

Which type holds what is in `parquet_types`.
"""

from collections import Counter
from decimal import Decimal, localcontext
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import json_values
from kbackup.connect import schema as connect
from kbackup.connect.avro_writing import AvroStyle
from kbackup.connect.json_values import unscaled
from kbackup.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, UNION, ConnectSchema, Type
from kbackup.errors import UnsupportedObjectError

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
    """Return the schema of a field of another tool.

    Raises:
        UnsupportedObjectError: If Connect has nothing that holds its values.
    """
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
    """Return the schema of values that hold no others.

    Connect's times are milliseconds in UTC; others are the numbers that they are stored as.
    """
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

    Args:
        values: Under *schema*.
        schema: What they are to Connect.
        absent: The rows within a struct that is null, where anything may stand; None for none.
    """
    if schema.logical == DECIMAL:
        kind = pa.decimal256(max(_precision(schema), schema.scale, 1), schema.scale)
        return pa.array([_decimal(value, schema.scale) for value in values.to_pylist()], kind)
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


def _decimal(value: bytes | None, scale: int) -> Decimal | None:
    if value is None:
        return None
    number = Decimal(int.from_bytes(value, "big", signed=True)).as_tuple()
    return Decimal((number.sign, number.digits, -scale))


def from_parquet(values: pa.Array, schema: ConnectSchema) -> pa.Array:
    """Return *values* in Connect's own types.

    Args:
        values: As the file holds them.
        schema: What they are to Connect.

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
    """Return a field of a struct in Connect's own type.

    Raises:
        UnsupportedObjectError: If a number is too large for it.
    """
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
