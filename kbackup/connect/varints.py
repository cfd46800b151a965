"""Integers with seven bits per byte, lowest first, as in both Avro and Protobuf."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_BYTES: Final = pa.array([bytes([at]) for at in range(256)], pa.binary())
_NOTHING: Final = pa.scalar(b"", pa.binary())


def unsigned(left: pa.UInt64Array) -> pa.BinaryArray:
    """Return each number as bytes; null stays null."""
    most = pc.max(left).as_py() or 0
    parts = []
    for at in range(max(1, -(-most.bit_length() // 7))):
        rest = pc.shift_right(left, pa.scalar(7, pa.uint64()))
        more = pc.if_else(pc.greater(rest, 0), pa.scalar(128, pa.uint64()), 0)
        byte = pc.bit_wise_or(pc.bit_wise_and(left, pa.scalar(127, pa.uint64())), more)
        part = _BYTES.take(byte)
        if at:
            part = pc.if_else(pc.greater(left, 0), part, _NOTHING)
        parts.append(part)
        left = rest
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, _NOTHING)


def signed(numbers: pa.Array) -> pa.BinaryArray:
    """Return each number as bytes, its sign in the lowest bit; null stays null."""
    wide = numbers.cast(pa.int64())
    doubled = pc.shift_left(wide.view(pa.uint64()), pa.scalar(1, pa.uint64()))
    return unsigned(pc.if_else(pc.less(wide, 0), pc.bit_wise_not(doubled), doubled))
