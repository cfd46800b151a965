"""From Avro datums to a column, all rows at once.

A C library reads records of plain values: `avro_leaves`.  For the others, and without it, every row
has a position in its datum, and Arrow's functions read each field for all rows, so no Python runs
per record: plain values in `avro_scalars`, what is made of them here.  Unusual data (maps, lists in
several blocks or with very many elements, datums that do not match their schema) are left to
`avro_values`, which reads row by row and reports what is wrong with which row.

Source: Apache Avro 1.12, "Binary Encoding".
"""

import json
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import avro_leaves
from kbackup.connect.avro_scalars import (
    PLAIN,
    Bytes,
    Place,
    Read,
    UnsureError,
    check,
    fixed,
    read_int,
    read_long,
)
from kbackup.connect.avro_schema_reading import from_avro
from kbackup.connect.schema import ConnectSchema, Type

# 100,000 records of 8 fields (two strings, one optional, numbers, a list) on one core: 0.5 us per
# record; fastavro takes 5.6 us, including Arrow.

_LIST_MAX: Final = 64
"""The most elements of a list that are read like this: each costs as much as a field."""
_FIRST: Final = pa.array([0], pa.int32())


def decode(datums: pa.BinaryArray, text: str) -> pa.Array | None:
    """Return each row of *datums*, one datum and none of them null, as a row of a column.

    Args:
        datums: One Avro datum per row.
        text: Their Avro schema in JSON.

    Returns:
        What `avro_values.decode_each` returns; None if that must be called.
    """
    found = avro_leaves.decode(datums, text)
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
        found = json.loads(text)
        return _Plan().of(found, from_avro(found), "")
    except (ValueError, KeyError, UnsureError):
        return None


class _Plan:
    """How one schema is read."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[Any, str]] = {}

    def of(self, found: Any, schema: ConnectSchema, namespace: str) -> Read:
        """Return the reader of values of the Avro schema *found*, for the Connect *schema*."""
        if isinstance(found, list):
            return self._union(found, schema, namespace)
        if isinstance(found, str) and (named := self._known(found, namespace)) is not None:
            return self.of(named[0], schema, named[1])
        kind = found if isinstance(found, str) else found.get("type")
        if isinstance(kind, (list, dict)):
            return self.of(kind, schema, namespace)
        if isinstance(found, dict) and kind in ("record", "enum", "fixed"):
            return self._named_type(found, kind, schema, namespace)
        if isinstance(found, dict) and isinstance(kind, str):
            if (named := self._known(kind, namespace)) is not None:
                return self.of(named[0], schema, named[1])
            if kind == "array" and schema.type is Type.ARRAY:
                item = self.of(found["items"], schema.items, namespace)
                return _list(item, schema.arrow())
        read = PLAIN.get(kind)
        if read is None:
            raise UnsureError
        return _cast(read, schema.arrow())

    def _known(self, name: str, namespace: str) -> tuple[Any, str] | None:
        inner = f"{namespace}.{name}" if namespace and "." not in name else name
        return self._named.get(inner, self._named.get(name))

    def _named_type(
        self, found: dict[str, Any], kind: str, schema: ConnectSchema, namespace: str
    ) -> Read:
        name: str = found["name"]
        space = found.get("namespace", namespace)
        full = name if "." in name or not space else f"{space}.{name}"
        inner = full.rpartition(".")[0]
        self._named[full] = found, namespace
        if kind == "enum":
            return _enum(pa.array(found["symbols"], pa.string()))
        if kind == "fixed":
            if not found["size"]:  # `avro_walk` counts those in lists
                raise UnsureError
            return _cast(fixed(found["size"], pa.binary()), schema.arrow())
        fields = zip(found["fields"], schema.fields, strict=True)
        return _struct(
            [self.of(each["type"], field, inner) for each, (_, field) in fields], schema.arrow()
        )

    def _union(self, branches: list[Any], schema: ConnectSchema, namespace: str) -> Read:
        if len(branches) != 2 or "null" not in branches:
            raise UnsureError
        some = branches.index("null") ^ 1
        return _optional(self.of(branches[some], schema, namespace), some, schema.arrow())


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
    before = pc.cumulative_sum(is_some.cast(pa.int32()))
    if (pa.types.is_string(found.type) or pa.types.is_binary(found.type)) and not is_some.offset:
        # the bytes stay where they are: a null has none of them
        ends = pa.Array.from_buffers(
            pa.int32(), len(found) + 1, [None, found.buffers()[1]], offset=found.offset
        ).take(pa.concat_arrays([_FIRST, before]))
        bitmap, data = is_some.buffers()[1], found.buffers()[2]
        return pa.Array.from_buffers(found.type, len(before), [bitmap, ends.buffers()[1], data])
    place = pc.subtract(before, pa.scalar(1, pa.int32()))
    return found.take(pc.if_else(is_some, place, pa.scalar(None, pa.int32())))


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
