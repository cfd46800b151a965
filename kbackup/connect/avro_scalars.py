"""Plain Avro values of all rows at once: numbers, texts and bytes.

Every row has a position in the bytes of all rows, and continues where its value ends.

Source: Apache Avro 1.12, "Binary Encoding".
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

_VARINT_MAX: Final = 10
_INT_VARINT_MAX: Final = 5
_ONE: Final = pa.scalar(1, pa.int64())
_LAST: Final = 127
"""The last byte of a number is no higher."""
_SEVEN: Final = pa.scalar(_LAST, pa.uint8())
_SHORT: Final = pa.array([(byte >> 1) ^ -(byte & 1) for byte in range(_LAST + 1)], pa.int64())
"""The numbers of one byte."""


class UnsureError(Exception):
    """These data must be read by `avro_values`."""


Place: TypeAlias = pa.Int64Array
"""The position of each row in the bytes of all rows."""


class Bytes:
    """The concatenated bytes of all rows."""

    def __init__(self, data: pa.Buffer) -> None:
        self.data = data
        self._each = pa.Array.from_buffers(pa.uint8(), data.size, [None, data])

    def at(self, place: Place) -> pa.UInt8Array:
        """Return the byte at each position; `avro_values` handles one outside."""
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
    """Read variable-length integers.

    Raises:
        UnsureError: If one does not end.
        IndexError: If a row is cut short.
    """
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
    """Read numbers of at most five bytes: Java's reader takes no longer ones of 32 bits.

    Raises:
        UnsureError: If one is longer.
        IndexError: If a row is cut short.
    """
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
    """Leave numbers outside these bounds to `avro_values`.

    Raises:
        UnsureError: If there are any.
    """
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
