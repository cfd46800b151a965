"""Rows to a record batch, for the few that cannot be copied as they are.

Each record is a Python object on its way: this is for a batch in the middle of which a read begins.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kbackup.batches import APPEND_TIME, CODEC_BITS, DELETE_HORIZON, Batches, crc32c, walk
from kbackup.batches.decoding import EVERYTHING, decoded
from kbackup.records import Span

_HEAD: Final = struct.Struct(">qiibI")
_CHECKED: Final = struct.Struct(">hiqqqhii")
"""A header behind its CRC32C, which is over this and the records."""

_UNCOUNTED: Final = 12
"""Bytes of a batch that its length leaves out: offset and length themselves."""

_SEQUENCES: Final = 2**31


def cut_from(one: Batches, offset: int) -> Batches:
    """Return the records of a batch from *offset* on, as a batch, not compressed.

    Returns:
        A batch of which the first record is the base, and whose last offset is the same; none if
        there are no such records.

    Raises:
        BatchError: If the batch does not hold what its header says.
    """
    header: Mapping[str, Any] = one.headers.to_pylist()[0]
    span = Span(offset, EVERYTHING.end_offset)
    rows = [row for some in decoded(one, span) for row in some.to_pylist()]
    if not rows:
        return one.slice(0, 0)
    return _encoded(rows, header)


def _encoded(rows: Sequence[Mapping[str, Any]], header: Mapping[str, Any]) -> Batches:
    base = rows[0]["offset"]
    attributes = header["attributes"] & ~(CODEC_BITS | DELETE_HORIZON)
    first, latest = rows[0]["timestamp"], max(row["timestamp"] for row in rows)
    if attributes & APPEND_TIME:
        first = latest = header["max_timestamp"]
    sequence = header["base_sequence"]
    if sequence >= 0:
        sequence = (sequence + base - header["base_offset"]) % _SEQUENCES
    checked = _CHECKED.pack(
        attributes, header["base_offset"] + header["last_delta"] - base, first, latest,
        header["producer_id"], header["producer_epoch"], sequence, len(rows),
    )  # fmt: skip
    checked += b"".join(_record(row, base, first) for row in rows)
    length = _HEAD.size - _UNCOUNTED + len(checked)
    head = _HEAD.pack(base, length, header["leader_epoch"], 2, crc32c(checked))
    return walk(pa.py_buffer(head + checked)).check()


def _record(row: Mapping[str, Any], base: int, first: int) -> bytes:
    delta = (row["timestamp"] - first + 2**63) % 2**64 - 2**63  # Java wraps, too
    parts = [b"\0", _varint(delta), _varint(row["offset"] - base)]
    parts += [*_sized(row["key"]), *_sized(row["value"]), _varint(len(row["headers"]))]
    for each in row["headers"]:
        parts += [*_sized(each["key"].encode()), *_sized(each["value"])]
    body = b"".join(parts)
    return _varint(len(body)) + body


def _sized(data: bytes | None) -> tuple[bytes, ...]:
    return (_varint(-1),) if data is None else (_varint(len(data)), data)


def _varint(number: int) -> bytes:
    bits = (number << 1 ^ number >> 63) % 2**64
    found = bytearray()
    while bits > 127:
        found.append(bits & 127 | 128)
        bits >>= 7
    return bytes((*found, bits))
