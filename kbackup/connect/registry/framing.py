"""Read and write the schema ids in records: Confluent's wire format.

A zero byte, the schema's id in four bytes (big-endian), and the value itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect.avro_walk import number_at

HEAD_BYTES: Final = 5
NUMBER_BYTES: Final = pa.array([8, 16, 24], pa.int32())
"""The length of a number, and of a key of Kafka Streams that is one within a window: with the
window's start, or with the start and the end of a session."""
_MAGIC: Final = 0
FIRST_MESSAGE: Final = b"\0"
"""The bytes between prefix and value if it is the first message of its schema."""
_DEPTH_MAX: Final = 64
_END: Final = 2**31 - 1
"""The end of a slice to the end of each value: without one, Arrow fails on large columns."""


@dataclass(frozen=True, slots=True)
class Frames:
    """A column taken apart.

    Attributes:
        ids: ``int64``: the schema's id in each row, null if the row is null or has no prefix.
        bodies: ``binary``: what follows the prefix, null where *ids* is.
        messages: ``binary``: which message of the schema a row is, as in `message_at`, null
            where *ids* is or if a row does not say; None if schemas have only one.
    """

    ids: pa.Int64Array
    bodies: pa.BinaryArray
    messages: pa.BinaryArray | None = None


def unframed(column: pa.BinaryArray) -> Frames:
    """Remove the prefix from each row of *column*."""
    heads = pc.binary_slice(column, 0, HEAD_BYTES).dictionary_encode()
    ids = pa.array([_id(head) for head in heads.dictionary.to_pylist()], pa.int64())
    of_rows = ids.take(heads.indices)
    bodies = pc.binary_slice(column, HEAD_BYTES, _END)
    if of_rows.null_count > column.null_count:
        bodies = pc.if_else(of_rows.is_valid(), bodies, pa.scalar(None, pa.binary()))
    return Frames(of_rows, bodies)


def alike(column: pa.BinaryArray) -> tuple[int, pa.BinaryArray] | None:
    """Return the id that all rows of *column* begin with, and what follows it; else None.

    It is what `unframed` returns where one schema serves all rows, at less than half the cost.
    """
    if not len(column) or column.null_count:
        return None
    head = column[0].as_py()[:HEAD_BYTES]
    found = _id(head)
    if found is None or not pc.all(pc.starts_with(column, head)).as_py():
        return None
    return found, pc.binary_slice(column, HEAD_BYTES, _END)


def unframed_messages(column: pa.BinaryArray) -> Frames:
    """Remove the prefix from each row of *column*, and the part that names the message.

    Source: Confluent's wire format: the number of indexes and each index, from the outermost
    message inwards, in variable length with the sign in the lowest bit; a zero is the first one.
    """
    frames = unframed(column)
    first = pc.binary_slice(frames.bodies, 0, 1)
    if pc.all(pc.equal(first, FIRST_MESSAGE), min_count=0).as_py():
        return Frames(frames.ids, pc.binary_slice(frames.bodies, 1, _END), first)
    parts = [_parted(body) for body in frames.bodies.to_pylist()]
    messages = pa.array([message for message, _ in parts], pa.binary())
    return Frames(frames.ids, pa.array([body for _, body in parts], pa.binary()), messages)


def schema_ids(column: pa.BinaryArray) -> list[int]:
    """Return the distinct ids that rows of *column* begin with, lowest first.

    Rows that only look as if they had a prefix count too: bytes that begin with a zero.
    """
    heads = pc.binary_slice(column, 0, HEAD_BYTES).unique()
    heads = heads.filter(pc.starts_with(heads, bytes([_MAGIC])))
    ids = {_id(head) for head in heads.to_pylist()}
    return sorted(found for found in ids if found is not None and found > 0)


def are_numbers(column: pa.BinaryArray, schema_id: int) -> bool:
    """Whether all rows of *column* that begin with an id are as long as numbers: `NUMBER_BYTES`.

    Such bytes, as Kafka's own LongSerializer writes them, begin like a record with a small id.
    """
    lengths = pc.binary_length(_under(column, schema_id)).cast(pa.int32())
    return bool(pc.all(pc.is_in(lengths, NUMBER_BYTES)).as_py())


def bodies_under(column: pa.BinaryArray, schema_id: int) -> pa.BinaryArray:
    """Return what follows the prefix in rows of *column* that begin with an id, each once."""
    return pc.binary_slice(_under(column, schema_id), HEAD_BYTES, _END).unique()


def _under(column: pa.BinaryArray, schema_id: int) -> pa.BinaryArray:
    return column.filter(pc.starts_with(column, head_of(schema_id)))


def renumbered(
    column: pa.BinaryArray, ids: Mapping[int, int]
) -> tuple[pa.BinaryArray, pa.BooleanArray | None]:
    """Return *column* with the ids of *ids* replaced; and which rows name another one, if any do.

    Rows without a prefix, and what follows the prefix, stay as they are.
    """
    heads = pc.binary_slice(column, 0, HEAD_BYTES).dictionary_encode()
    old = heads.dictionary.to_pylist()
    found = [_id(head) for head in old]
    new = [
        head if at is None or at not in ids else head_of(ids[at])
        for head, at in zip(old, found, strict=True)
    ]
    is_other = [at is not None and at > 0 and at not in ids for at in found]
    others = pa.array(is_other, pa.bool_()).take(heads.indices) if any(is_other) else None
    if new != old:
        bodies = pc.binary_slice(column, HEAD_BYTES, _END)
        begins = pa.array(new, pa.binary()).take(heads.indices)
        column = pc.binary_join_element_wise(begins, bodies, pa.scalar(b"", pa.binary()))
    return column, others


def message_at(message: bytes) -> list[int]:
    """Return the indexes in *message*, one of `Frames.messages`."""
    found, _ = _indexes(message)
    return found or [0]


def framed(schema_id: int, bodies: pa.BinaryArray) -> pa.BinaryArray:
    """Put the prefix of *schema_id* before each row of *bodies*; null stays null."""
    head = pa.scalar(head_of(schema_id), pa.binary())
    return pc.binary_join_element_wise(head, bodies, pa.scalar(b"", pa.binary()))


def head_of(schema_id: int) -> bytes:
    """Return the five bytes before a value."""
    return bytes([_MAGIC]) + schema_id.to_bytes(4, "big")


def _id(head: bytes | None) -> int | None:
    if head is None or len(head) < HEAD_BYTES or head[0] != _MAGIC:
        return None
    return int.from_bytes(head[1:], "big", signed=True)


def _parted(body: bytes | None) -> tuple[bytes | None, bytes | None]:
    """Return the bytes that name the message, and the message; None twice if there are none."""
    if body is None:
        return None, None
    try:
        _, end = _indexes(body)
    except (IndexError, ValueError):
        return None, None
    return body[:end], body[end:]


def _indexes(body: bytes) -> tuple[list[int], int]:
    """Return the indexes that *body* begins with, and where they end."""
    count, at = number_at(body, 0, 5)
    if not 0 <= count <= _DEPTH_MAX:
        raise ValueError(f"{count} indexes of messages")
    found = []
    for _ in range(count):
        index, at = number_at(body, at, 5)
        found.append(index)
    return found, at
