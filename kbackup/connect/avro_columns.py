"""From Avro datums to a column, all rows at once.

A C library reads records, within each other too, of plain values that may be null, in one pass over
their bytes.  For what else there is, and on machines without the library, every row has a position
in the bytes of all rows, and continues where its value ends: Arrow's functions read each field for
all rows, so no Python runs per record.  Unusual data (maps, lists in several blocks or with very
many elements, datums that do not match their schema) are left to `avro_reading`, which reads row by
row and reports what is wrong with which row.

Source: Apache Avro 1.12, "Binary Encoding".
"""

import ctypes
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import avro_walk, json_values
from kbackup.connect.avro_reading import from_avro
from kbackup.connect.avro_walk import shape_of
from kbackup.connect.schema import ConnectSchema, Type

_VARINT_MAX: Final = 10
_INT_VARINT_MAX: Final = 5
_ONE: Final = pa.scalar(1, pa.int64())
_LAST: Final = 127
"""The last byte of a number is no higher."""
_SEVEN: Final = pa.scalar(_LAST, pa.uint8())
_SHORT: Final = pa.array([(byte >> 1) ^ -(byte & 1) for byte in range(_LAST + 1)], pa.int64())
"""The numbers of one byte."""


class UnsureError(Exception):
    """These data must be read by `avro_reading`."""


Place: TypeAlias = pa.Int64Array
"""The position of each row in the bytes of all rows."""


class Bytes:
    """The concatenated bytes of all rows."""

    def __init__(self, data: pa.Buffer) -> None:
        self.data = data
        self._each = pa.Array.from_buffers(pa.uint8(), data.size, [None, data])

    def at(self, place: Place) -> pa.UInt8Array:
        """Return the byte at each position; `avro_reading` handles one outside."""
        return self._each.take(place)

    def slices(self, start: Place, end: Place) -> pa.BinaryArray:
        """Return the bytes between *start* and *end*, which is no lower, of each row."""
        rows = len(start)
        if not rows:
            return pa.array([], pa.binary())
        in_order = pc.all(pc.greater_equal(start.slice(1), end.slice(0, rows - 1)), min_count=0)
        if not in_order.as_py() or end[rows - 1].as_py() > self.data.size:
            raise UnsureError
        # interleaved offsets start, end, start, end ...: every second value counts
        both = pc.bit_wise_or(start, pc.shift_left(end, pa.scalar(32, pa.int64())))
        spans = pa.BinaryArray.from_buffers(
            pa.binary(), 2 * rows - 1, [None, both.buffers()[1], self.data]
        )
        return spans.take(_even(rows))


Read: TypeAlias = Callable[[Bytes, Place], tuple[pa.Array, Place]]
"""Reads one value per row; returns the values, and where each row continues."""


def read_long(data: Bytes, at: Place) -> tuple[pa.Int64Array, Place]:
    """Read variable-length integers; `UnsureError` or `IndexError` if one does not end."""
    byte = data.at(at)
    at = pc.add(at, _ONE)
    least, most = _bounds(byte)
    if most <= _LAST:
        return _SHORT.take(byte), at
    found = pc.bit_wise_and(byte, _SEVEN).cast(pa.uint64())
    if least > _LAST:
        found, at = _rest(data, at, found)
    else:
        more = pc.greater(byte, _SEVEN)
        longer, there = _rest(data, at.filter(more), found.filter(more))
        found = pc.replace_with_mask(found, more, longer)
        at = pc.replace_with_mask(at, more, there)
    half = pc.shift_right(found, pa.scalar(1, pa.uint64())).view(pa.int64())
    sign = pc.bit_wise_and(found, pa.scalar(1, pa.uint64())).view(pa.int64())
    return pc.bit_wise_xor(half, pc.negate(sign)), at


def read_int(data: Bytes, at: Place) -> tuple[pa.Int64Array, Place]:
    """Read numbers of at most five bytes, as `read_long`: Java's reader takes no longer ones."""
    found, end = read_long(data, at)
    check(pc.subtract(end, at), 0, _INT_VARINT_MAX)
    return found, end


def _rest(data: Bytes, at: Place, found: pa.UInt64Array) -> tuple[pa.UInt64Array, Place]:
    """Continue reading numbers of more than one byte."""
    for step in range(1, _VARINT_MAX):
        byte = data.at(at)
        at = pc.add(at, _ONE)
        found = pc.bit_wise_or(found, _part(byte, step))
        least, most = _bounds(byte)
        if most <= _LAST:
            return found, at
        if least <= _LAST:
            more = pc.greater(byte, _SEVEN)
            longer, there = _rest_from(data, at.filter(more), found.filter(more), step + 1)
            return (
                pc.replace_with_mask(found, more, longer),
                pc.replace_with_mask(at, more, there),
            )
    raise UnsureError


def _rest_from(
    data: Bytes, at: Place, found: pa.UInt64Array, step: int
) -> tuple[pa.UInt64Array, Place]:
    is_open = pa.repeat(True, len(at))
    while step < _VARINT_MAX:
        byte = pc.if_else(is_open, data.at(pc.if_else(is_open, at, 0)), pa.scalar(0, pa.uint8()))
        found = pc.bit_wise_or(found, _part(byte, step))
        at = pc.add(at, is_open.cast(pa.int64()))
        is_open = pc.greater(byte, _SEVEN)
        if not pc.any(is_open).as_py():
            return found, at
        step += 1
    raise UnsureError


def _bytes(data: Bytes, at: Place) -> tuple[pa.BinaryArray, Place]:
    size, start = read_long(data, at)
    check(size, 0, data.data.size)
    end = pc.add(start, size)
    return data.slices(start, end), end


def _part(byte: pa.UInt8Array, step: int) -> pa.UInt64Array:
    """Return what the byte number *step* adds to a number."""
    if step == _VARINT_MAX - 1:
        check(byte, 0, 1)  # what is left of 64 bits
    low = pc.bit_wise_and(byte, _SEVEN).cast(pa.uint64())
    return pc.shift_left(low, pa.scalar(7 * step, pa.uint64()))


def _bounds(numbers: pa.Array) -> tuple[int, int]:
    """Return the lowest and the highest of *numbers*; 0 and 0 where there are none."""
    found = pc.min_max(numbers).as_py()
    return found["min"] or 0, found["max"] or 0


def check(numbers: pa.Int64Array, least: int, most: int) -> None:
    """Raise `UnsureError`, which leaves a row to `avro_reading`, if a number is out of bounds."""
    low, high = _bounds(numbers)
    if low < least or high > most:
        raise UnsureError


def _text(data: Bytes, at: Place) -> tuple[pa.StringArray, Place]:
    found, end = _bytes(data, at)
    if _is_ascii(found):  # then each is valid text, at a fraction of what it costs to look at each
        return found.view(pa.string()), end
    return found.cast(pa.string()), end


def _is_ascii(rows: pa.BinaryArray) -> bool:
    """Whether all bytes of *rows* together are ASCII."""
    _, offsets, data = rows.buffers()
    if not len(rows) or data is None:
        return False
    ends = memoryview(offsets).cast("i")
    whole = pa.array([ends[rows.offset], ends[rows.offset + len(rows)]], pa.int32())
    text = pa.Array.from_buffers(pa.string(), 1, [None, whole.buffers()[1], data])
    return bool(pc.string_is_ascii(text)[0].as_py())


def _boolean(data: Bytes, at: Place) -> tuple[pa.BooleanArray, Place]:
    byte = data.at(at)
    if pc.max(byte).as_py() > 1:
        raise UnsureError
    return byte.cast(pa.bool_()), pc.add(at, _ONE)


def fixed(size: int, kind: pa.DataType) -> Read:
    """Return the reader of values of *size* bytes each, which are *kind*'s as they are."""

    def read(data: Bytes, at: Place) -> tuple[pa.Array, Place]:
        end = pc.add(at, pa.scalar(size, pa.int64()))
        found = data.slices(at, end)
        if kind != pa.binary():
            found = pa.Array.from_buffers(kind, len(found), [None, found.buffers()[2]])
        return found, end

    return read


PLAIN: Final[dict[Any, Read]] = {
    "int": read_int,
    "long": read_long,
    "float": fixed(4, pa.float32()),
    "double": fixed(8, pa.float64()),
    "boolean": _boolean,
    "string": _text,
    "bytes": _bytes,
}
"""How the types are read that Avro's specification calls primitive, but for null."""


@lru_cache(8)
def _even(rows: int) -> pa.Int64Array:
    return pa.array(range(0, 2 * rows, 2), pa.int64())


# 100,000 records of 8 fields (two strings, one optional, numbers, a list) on one core: 0.5 us per
# record; fastavro takes 5.6 us, including Arrow.

_LIST_MAX: Final = 64
"""The most elements of a list that are read like this: each costs as much as a field."""
_FIRST: Final = pa.array([0], pa.int32())


def decode(datums: pa.BinaryArray, text: str) -> pa.Array | None:
    """Return what `avro_reading.decode_each_avro` does of *datums*, none of them null.

    None if that must be called; *text* is their Avro schema in JSON.
    """
    found = decode_in_c(datums, text)
    return by_columns(datums, text) if found is None else found


def by_columns(datums: pa.BinaryArray, text: str) -> pa.Array | None:
    """Return what `decode` does, without the C library."""
    read = _reader_of(text)
    if read is None or not len(datums) or datums.total_values_length >= 2**30:
        return None
    offsets = pa.Array.from_buffers(
        pa.int32(), len(datums) + 1, [None, datums.buffers()[1]], offset=datums.offset
    ).cast(pa.int64())
    try:
        values, end = read(Bytes(datums.buffers()[2]), offsets.slice(0, len(datums)))
        is_whole = end.equals(offsets.slice(1))
    except (UnsureError, pa.ArrowException, IndexError):
        return None
    return values if is_whole else None


@lru_cache(100)
def _reader_of(text: str) -> Read | None:
    try:
        return _reader(shape_of(text), from_avro(json.loads(text)))
    except (ValueError, KeyError, TypeError, AttributeError, UnsureError):
        return None


def _reader(shape: Any, schema: ConnectSchema) -> Read:
    """Return the reader of values of a shape of `avro_walk.shape_of`."""
    whole: tuple[Any, ...] = (shape,) if isinstance(shape, str) else shape
    kind, *parts = whole
    if kind == "union":
        if len(parts) != 2 or "null" not in parts:
            raise UnsureError
        some = parts.index("null") ^ 1
        return _optional(_reader(parts[some], schema), some, schema.arrow())
    if kind == "record":
        fields = zip(parts, schema.fields, strict=True)
        return _struct([_reader(part, field) for part, (_, field) in fields], schema.arrow())
    if kind == "enum":
        return _enum(pa.array(parts, pa.string()))
    if kind == "fixed" and parts[0]:  # `avro_walk` counts those without bytes
        return _cast(fixed(parts[0], pa.binary()), schema.arrow())
    if kind == "array" and schema.type is Type.ARRAY:
        return _list(_reader(parts[0], schema.items), schema.arrow())
    if kind not in PLAIN:
        raise UnsureError
    return _cast(PLAIN[kind], schema.arrow())


def _cast(read: Read, kind: pa.DataType) -> Read:
    def cast(data: Bytes, at: Place) -> tuple[pa.Array, Place]:
        found, end = read(data, at)
        return (found if found.type == kind else found.cast(kind)), end

    return cast


def _enum(symbols: pa.StringArray) -> Read:
    def read(data: Bytes, at: Place) -> tuple[pa.Array, Place]:
        found, end = read_int(data, at)
        return symbols.take(found), end

    return read


def _struct(fields: list[Read], kind: pa.StructType) -> Read:
    if not fields:
        raise UnsureError

    def read(data: Bytes, at: Place) -> tuple[pa.Array, Place]:
        columns = []
        for field in fields:
            column, at = field(data, at)
            columns.append(column)
        return pa.StructArray.from_arrays(columns, fields=list(kind)), at

    return read


def _optional(value: Read, some: int, kind: pa.DataType) -> Read:
    """Read a union with null; *some* is the branch of the other type."""

    def read(data: Bytes, at: Place) -> tuple[pa.Array, Place]:
        branch, at = read_int(data, at)
        check(branch, 0, 1)
        is_some = pc.equal(branch, some)
        rows = is_some.true_count
        if rows == len(at):
            return value(data, at)
        if not rows:
            return pa.nulls(len(at), kind), at
        found, end = value(data, at.filter(is_some))
        return _with_nulls(found, is_some), pc.replace_with_mask(at, is_some, end)

    return read


def _with_nulls(found: pa.Array, is_some: pa.BooleanArray) -> pa.Array:
    """Return *found* at the rows where *is_some* is true, and null at the others."""
    if (pa.types.is_string(found.type) or pa.types.is_binary(found.type)) and not is_some.offset:
        # the bytes stay where they are: a null has none of them
        before = pc.cumulative_sum(is_some.cast(pa.int32()))
        ends = pa.Array.from_buffers(
            pa.int32(), len(found) + 1, [None, found.buffers()[1]], offset=found.offset
        ).take(pa.concat_arrays([_FIRST, before]))
        bitmap, data = is_some.buffers()[1], found.buffers()[2]
        return pa.Array.from_buffers(found.type, len(before), [bitmap, ends.buffers()[1], data])
    return json_values.spread(found, is_some)


def _list(item: Read, kind: pa.ListType) -> Read:
    """Read lists of at most one block."""

    def read(data: Bytes, at: Place) -> tuple[pa.Array, Place]:
        count, at = read_long(data, at)
        most = pc.max(count).as_py()
        if pc.min(count).as_py() < 0 or most > _LIST_MAX:
            raise UnsureError
        rows = pa.array(range(len(at)), pa.int64())
        parts, owners = [], []
        for number in range(most):
            has = pc.greater(count, number)
            found, end = item(data, at.filter(has))
            at = pc.replace_with_mask(at, has, end)
            parts.append(found)
            owners.append(rows.filter(has))
        has = pc.greater(count, 0)
        last, end = read_long(data, at.filter(has))  # the empty block that ends the list
        check(last, 0, 0)
        at = pc.replace_with_mask(at, has, end)
        if parts:
            order = pc.array_sort_indices(pa.concat_arrays(owners))  # stable: elements in order
            items = pa.concat_arrays(parts).take(order)
        else:
            items = pa.array([], kind.value_type)
        ends = pc.cumulative_sum(count).cast(pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        return pa.ListArray.from_arrays(offsets, items, type=kind), at

    return read


# 100,000 records of 4 fields (two strings, one optional, two numbers) on one core: 0.03 us per
# record; avro_columns takes 0.11 us.

_KINDS: Final = {
    ("int", Type.INT8): avro_walk.INT8,
    ("int", Type.INT16): avro_walk.INT16,
    ("int", Type.INT32): avro_walk.INT32,
    ("long", Type.INT64): avro_walk.INT64,
    ("float", Type.FLOAT32): avro_walk.FLOAT,
    ("double", Type.FLOAT64): avro_walk.DOUBLE,
    ("boolean", Type.BOOLEAN): avro_walk.BOOLEAN,
    ("string", Type.STRING): avro_walk.BYTES,
    ("bytes", Type.BYTES): avro_walk.BYTES,
}
"""How the plain types of Avro are read, for the types of Connect that they stand for."""
_WIDTHS: Final = {avro_walk.INT8: 1, avro_walk.INT16: 2, avro_walk.INT64: 8, avro_walk.DOUBLE: 8}
"""The bytes of a row; 4 for the others."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A plain value of a schema: what C is told of it."""

    kind: int
    some: int
    size: int
    type: pa.DataType
    symbols: pa.StringArray | None = None


_Build: TypeAlias = Callable[[list[pa.Array]], pa.Array]
"""Makes a column of the columns of all leaves."""


def decode_in_c(datums: pa.BinaryArray, text: str) -> pa.Array | None:
    """Return what `decode` does, by the C library; None if something else must be called."""
    library, plan = avro_walk.library(), _plan_of(text)
    if library is None or plan is None or not len(datums) or datums.buffers()[2] is None:
        return None
    leaves, build = plan
    try:
        return build(_read_in_c(library, datums, leaves))
    except (UnsureError, pa.ArrowException):
        return None


def _read_in_c(library: Any, datums: pa.BinaryArray, leaves: list[_Leaf]) -> list[pa.Array]:
    rows = len(datums)
    _, offsets, data = datums.buffers()
    rooms = [_Room(leaf, rows) for leaf in leaves]
    told = (avro_walk.Leaf * len(leaves))(*(room.told() for room in rooms))
    ends = offsets.address + 4 * datums.offset
    if not library.avro_read(data.address, ends, rows, told, len(leaves)):
        raise UnsureError
    found = []
    for leaf, room, one in zip(leaves, rooms, told, strict=True):
        if leaf.kind not in (avro_walk.BYTES, avro_walk.FIXED):
            column = pa.Array.from_buffers(
                pa.int32() if leaf.symbols is not None else leaf.type,
                rows, [room.valid, room.values], one.nulls,
            )  # fmt: skip
            found.append(column if leaf.symbols is None else leaf.symbols.take(column))
            continue
        size = ctypes.c_int32.from_address(room.values.address + 4 * rows).value
        body = pa.allocate_buffer(size)
        is_ascii = library.avro_copy(data.address, one, rows, body.address)
        kind = leaf.type if is_ascii else pa.binary()
        column = pa.Array.from_buffers(kind, rows, [room.valid, room.values, body], one.nulls)
        found.append(column if is_ascii else column.cast(leaf.type))  # which looks at each text
    return found


class _Room:
    """The memory of one leaf's column."""

    def __init__(self, leaf: _Leaf, rows: int) -> None:
        is_text = leaf.kind in (avro_walk.BYTES, avro_walk.FIXED)
        bits = (rows + 7) // 8  # the bytes of a bitmap
        others = _WIDTHS.get(leaf.kind, 4) * (rows + is_text)
        size = bits if leaf.kind == avro_walk.BOOLEAN else others
        self.leaf = leaf
        self.values = pa.allocate_buffer(size)
        self.valid = pa.allocate_buffer(bits) if leaf.some >= 0 else None
        self.starts = pa.allocate_buffer(4 * rows) if is_text else None
        for buffer in (self.valid, self.values if leaf.kind == avro_walk.BOOLEAN else None):
            if buffer is not None:
                ctypes.memset(buffer.address, 0, buffer.size)
        if is_text:
            ctypes.memset(self.values.address, 0, 4)

    def told(self) -> avro_walk.Leaf:
        """Return what C is told."""
        leaf = self.leaf
        addresses = (
            None if buffer is None else buffer.address
            for buffer in (self.values, self.valid, self.starts)
        )  # fmt: skip
        return avro_walk.Leaf(leaf.kind, leaf.some, leaf.size, 0, *addresses)


@lru_cache(100)
def _plan_of(text: str) -> tuple[list[_Leaf], _Build] | None:
    """Return the leaves of a schema, in order, and what makes a column of theirs."""
    leaves: list[_Leaf] = []
    try:
        build = _planned(shape_of(text), from_avro(json.loads(text)), -1, leaves)
    except (UnsureError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return (leaves, build) if leaves else None


def _planned(shape: Any, schema: ConnectSchema, some: int, leaves: list[_Leaf]) -> _Build:
    whole: tuple[Any, ...] = (shape,) if isinstance(shape, str) else shape
    kind, *parts = whole
    if kind == "union":
        if some >= 0 or len(parts) != 2 or "null" not in parts:
            raise UnsureError
        branch = parts.index("null") ^ 1
        return _planned(parts[branch], schema, branch, leaves)
    if kind == "record":
        if some >= 0 or not parts or schema.type is not Type.STRUCT:
            raise UnsureError
        pairs = zip(parts, schema.fields, strict=True)
        builds = [_planned(part, field, -1, leaves) for part, (_, field) in pairs]
        fields = list(schema.arrow())
        return lambda columns: pa.StructArray.from_arrays(
            [build(columns) for build in builds], fields=fields
        )
    leaves.append(_leaf(kind, parts, schema, some))
    at = len(leaves) - 1
    return lambda columns: columns[at]


def _leaf(kind: str, parts: list[Any], schema: ConnectSchema, some: int) -> _Leaf:
    if kind == "enum":
        symbols = pa.array(parts, pa.string())
        return _Leaf(avro_walk.ENUM, some, len(parts), pa.string(), symbols)
    if kind == "fixed" and parts[0] < 2**31:
        return _Leaf(avro_walk.FIXED, some, parts[0], pa.binary())
    if (kind, schema.type) not in _KINDS:
        raise UnsureError
    return _Leaf(_KINDS[kind, schema.type], some, 0, schema.arrow())
