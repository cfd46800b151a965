"""How a record says which schema its value is under: Confluent's wire format.

A zero byte, the schema's id in four bytes, big end first, and the value itself.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

HEAD_BYTES: Final = 5
_MAGIC: Final = 0
_END: Final = 2**31 - 1
"""Where a slice to the end of each value ends: Arrow fails on large columns without it."""


@dataclass(frozen=True, slots=True)
class Frames:
    """A column taken apart.

    Attributes:
        ids: ``int64``: the schema's id in each row, null where the row is null or has no head.
        bodies: ``binary``: what follows the head, null where *ids* is.
    """

    ids: pa.Int64Array
    bodies: pa.BinaryArray


def unframed(column: pa.BinaryArray) -> Frames:
    """Take the head off each row of *column*."""
    heads = pc.binary_slice(column, 0, HEAD_BYTES).dictionary_encode()
    ids = pa.array([_id(head) for head in heads.dictionary.to_pylist()], pa.int64())
    of_rows = ids.take(heads.indices)
    bodies = pc.binary_slice(column, HEAD_BYTES, _END)
    if of_rows.null_count > column.null_count:
        bodies = pc.if_else(of_rows.is_valid(), bodies, pa.scalar(None, pa.binary()))
    return Frames(of_rows, bodies)


def framed(schema_id: int, bodies: pa.BinaryArray) -> pa.BinaryArray:
    """Put the head of *schema_id* before each row of *bodies*; null stays null."""
    head = pa.scalar(head_of(schema_id), pa.binary())
    return pc.binary_join_element_wise(head, bodies, pa.scalar(b"", pa.binary()))


def head_of(schema_id: int) -> bytes:
    """Return the five bytes that stand before a value."""
    return bytes([_MAGIC]) + schema_id.to_bytes(4, "big")


def _id(head: bytes | None) -> int | None:
    if head is None or len(head) < HEAD_BYTES or head[0] != _MAGIC:
        return None
    return int.from_bytes(head[1:], "big", signed=True)
