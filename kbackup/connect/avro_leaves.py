"""From Avro datums to a column, in one pass over their bytes, by a small C library.

It reads records, within each other too, of plain values that may be null.  What else there is
(lists, maps, records that may be null), data that are not datums of their schema, and machines
without the library are left to `avro_columns`.
"""

import ctypes
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

from kbackup.connect import native
from kbackup.connect.avro_reading import from_avro
from kbackup.connect.avro_walk import shape_of
from kbackup.connect.schema import ConnectSchema, Type

# 100,000 records of 4 fields (two strings, one optional, two numbers) on one core: 0.03 us per
# record; avro_columns takes 0.11 us.

_KINDS: Final = {
    ("int", Type.INT8): native.INT8,
    ("int", Type.INT16): native.INT16,
    ("int", Type.INT32): native.INT32,
    ("long", Type.INT64): native.INT64,
    ("float", Type.FLOAT32): native.FLOAT,
    ("double", Type.FLOAT64): native.DOUBLE,
    ("boolean", Type.BOOLEAN): native.BOOLEAN,
    ("string", Type.STRING): native.BYTES,
    ("bytes", Type.BYTES): native.BYTES,
}
"""How the plain types of Avro are read, for the types of Connect that they stand for."""
_WIDTHS: Final = {native.INT8: 1, native.INT16: 2, native.INT64: 8, native.DOUBLE: 8}
"""The bytes of a row; 4 for the others."""


class _OtherwiseError(Exception):
    """`avro_columns` must read these data."""


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


def decode(datums: pa.BinaryArray, text: str) -> pa.Array | None:
    """Return each row of *datums*, one datum and none of them null, as a row of a column.

    Args:
        datums: One Avro datum per row.
        text: Their Avro schema in JSON.

    Returns:
        What `avro_values.decode_each` returns; None if something else must be called.
    """
    library, plan = native.library(), _plan_of(text)
    if library is None or plan is None or not len(datums) or datums.buffers()[2] is None:
        return None
    leaves, build = plan
    try:
        return build(_read(library, datums, leaves))
    except (_OtherwiseError, pa.ArrowException):
        return None


def _read(library: Any, datums: pa.BinaryArray, leaves: list[_Leaf]) -> list[pa.Array]:
    rows = len(datums)
    _, offsets, data = datums.buffers()
    rooms = [_Room(leaf, rows) for leaf in leaves]
    told = (native.Leaf * len(leaves))(*(room.told() for room in rooms))
    ends = offsets.address + 4 * datums.offset
    if not library.kb_avro_read(data.address, ends, rows, told, len(leaves)):
        raise _OtherwiseError
    found = []
    for leaf, room, one in zip(leaves, rooms, told, strict=True):
        if leaf.kind not in (native.BYTES, native.FIXED):
            column = pa.Array.from_buffers(
                pa.int32() if leaf.symbols is not None else leaf.type,
                rows, [room.valid, room.values], one.nulls,
            )  # fmt: skip
            found.append(column if leaf.symbols is None else leaf.symbols.take(column))
            continue
        size = ctypes.c_int32.from_address(room.values.address + 4 * rows).value
        body = pa.allocate_buffer(size)
        is_ascii = library.kb_avro_copy(data.address, one, rows, body.address)
        kind = leaf.type if is_ascii else pa.binary()
        column = pa.Array.from_buffers(kind, rows, [room.valid, room.values, body], one.nulls)
        found.append(column if is_ascii else column.cast(leaf.type))  # which looks at each text
    return found


class _Room:
    """The memory of one leaf's column."""

    def __init__(self, leaf: _Leaf, rows: int) -> None:
        is_text = leaf.kind in (native.BYTES, native.FIXED)
        bits = _bytes_of_bits(rows)
        others = _WIDTHS.get(leaf.kind, 4) * (rows + is_text)
        size = bits if leaf.kind == native.BOOLEAN else others
        self.leaf = leaf
        self.values = pa.allocate_buffer(size)
        self.valid = pa.allocate_buffer(bits) if leaf.some >= 0 else None
        self.starts = pa.allocate_buffer(4 * rows) if is_text else None
        for buffer in (self.valid, self.values if leaf.kind == native.BOOLEAN else None):
            if buffer is not None:
                ctypes.memset(buffer.address, 0, buffer.size)
        if is_text:
            ctypes.memset(self.values.address, 0, 4)

    def told(self) -> native.Leaf:
        """Return what C is told."""
        leaf = self.leaf
        addresses = (
            None if buffer is None else buffer.address
            for buffer in (self.values, self.valid, self.starts)
        )  # fmt: skip
        return native.Leaf(leaf.kind, leaf.some, leaf.size, 0, *addresses)


def _bytes_of_bits(rows: int) -> int:
    """Return the bytes of a bitmap."""
    return (rows + 7) // 8


@lru_cache(100)
def _plan_of(text: str) -> tuple[list[_Leaf], _Build] | None:
    """Return the leaves of a schema, in order, and what makes a column of theirs."""
    leaves: list[_Leaf] = []
    try:
        build = _planned(shape_of(text), from_avro(json.loads(text)), -1, leaves)
    except (_OtherwiseError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return (leaves, build) if leaves else None


def _planned(shape: Any, schema: ConnectSchema, some: int, leaves: list[_Leaf]) -> _Build:
    whole: tuple[Any, ...] = (shape,) if isinstance(shape, str) else shape
    kind, *parts = whole
    if kind == "union":
        if some >= 0 or len(parts) != 2 or "null" not in parts:
            raise _OtherwiseError
        branch = parts.index("null") ^ 1
        return _planned(parts[branch], schema, branch, leaves)
    if kind == "record":
        if some >= 0 or not parts or schema.type is not Type.STRUCT:
            raise _OtherwiseError
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
        return _Leaf(native.ENUM, some, len(parts), pa.string(), symbols)
    if kind == "fixed" and parts[0] < 2**31:
        return _Leaf(native.FIXED, some, parts[0], pa.binary())
    if (kind, schema.type) not in _KINDS:
        raise _OtherwiseError
    return _Leaf(_KINDS[kind, schema.type], some, 0, schema.arrow())
