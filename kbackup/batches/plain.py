"""The functions of ``batches.c`` in Python, for machines without a C compiler, and far slower."""

import struct
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.records import SCHEMA, Span, TimestampType

HEADERS: Final = pa.schema(
    [
        pa.field(name, kind, nullable=False)
        for name, kind in (
            ("base_offset", pa.int64()),
            ("position", pa.int64()),
            ("length", pa.int64()),
            ("base_timestamp", pa.int64()),
            ("max_timestamp", pa.int64()),
            ("producer_id", pa.int64()),
            ("leader_epoch", pa.int32()),
            ("last_delta", pa.int32()),
            ("base_sequence", pa.int32()),
            ("count", pa.int32()),
            ("crc", pa.uint32()),
            ("records_crc", pa.uint32()),
            ("attributes", pa.int16()),
            ("producer_epoch", pa.int16()),
        )
    ]
)
"""A row of it is a batch's header, with where the batch is: *position* and *length* in bytes, and
the CRC32C of its records as they are stored, *records_crc*."""

HEADER_BYTES: Final = 61
_MAGIC_AT: Final = 16
_CHECKED_FROM: Final = 21
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")


class Why(IntEnum):
    """What is the matter with a batch: ``enum why`` of ``batches.c``."""

    SOUND = 0
    CUT_SHORT = 1
    OLD_MAGIC = 2
    BAD_LENGTH = 3
    BAD_CRC = 4
    BAD_COUNT = 5
    BAD_OFFSET = 6


class Fault(IntEnum):
    """What is the matter with records: ``enum fault`` of ``batches.c``."""

    FINE = 0
    NO_VARINT = 1
    BAD_SIZE = 2
    BAD_DELTA = 3
    LEFT_OVER = 4
    TOO_FEW = 5
    TOO_LARGE = 6


class Piece(NamedTuple):
    """Bytes of the records of one batch: all that are left, or the beginning of them.

    Attributes:
        data: Decompressed.
        is_append_time: *max_timestamp* is the timestamp of each record.
        left: Records from here on.
        previous: The offset delta of the record before, -1 without one.
        is_last: Nothing follows these bytes.
    """

    data: pa.Buffer
    base_offset: int
    base_timestamp: int
    max_timestamp: int
    is_append_time: bool
    last_delta: int
    left: int
    previous: int = -1
    is_last: bool = True


class Rest(NamedTuple):
    """How far the last piece was read.

    Attributes:
        used: Bytes.
        left: Records that follow.
        previous: The offset delta of the last record.
        wanted: How many bytes the next record needs at least; 0 where that is not known.
    """

    used: int = 0
    left: int = 0
    previous: int = -1
    wanted: int = 0


@cache
def _table() -> tuple[int, ...]:
    found = []
    for start in range(256):
        crc = start
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        found.append(crc)
    return tuple(found)


_Step: TypeAlias = tuple[list[int], ...]
"""What becomes of a CRC, by each of its four bytes, the lowest first."""


@cache
def _behind_zeros(power: int) -> _Step:
    """Return the step over 2 to the *power* zero bytes."""

    def step(crc: int) -> int:
        if not power:
            return crc >> 8 ^ _table()[crc & 255]
        half = _behind_zeros(power - 1)
        return _stepped(half, _stepped(half, crc))

    return tuple([step(byte << shift) for byte in range(256)] for shift in (0, 8, 16, 24))


def _stepped(step: _Step, crc: int) -> int:
    first, second, third, fourth = step
    return first[crc & 255] ^ second[crc >> 8 & 255] ^ third[crc >> 16 & 255] ^ fourth[crc >> 24]


def _joined(crc: int, following: int, size: int) -> int:
    """Return the CRC of bytes whose own is *crc*, and of *size* more whose own is *following*."""
    for power in range(size.bit_length()):
        if size >> power & 1:
            crc = _stepped(_behind_zeros(power), crc)
    return crc ^ following


_LARGE: Final = 2**13
"""From here on it pays to take the CRC of many stretches side by side."""


def crc32c(data: memoryview) -> int:
    """Return the CRC32C of *data*: 10 MB/s, of a batch of 64 KiB 25 and of 1 MiB 70."""
    table, crc = _table(), 0xFFFFFFFF
    if len(data) < _LARGE:
        for byte in bytes(data):
            crc = crc >> 8 ^ table[(crc ^ byte) & 255]
        return crc ^ 0xFFFFFFFF
    power = (len(data).bit_length() - 5) // 2  # few long stretches, or many short ones
    width = 2**power
    body = bytes(-len(data) % width) + bytes(data)  # zeros leave a CRC of 0 as it is
    count = len(body) // width
    by_byte, found = pa.array(table, pa.uint32()), pa.repeat(pa.scalar(0, pa.uint32()), count)
    for at in range(width):
        column = pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(body[at::width])])
        lowest = found.cast(pa.uint8(), safe=False)
        above = pc.shift_right(found, pa.scalar(8, pa.uint32()))
        found = pc.bit_wise_xor(above, by_byte.take(pc.bit_wise_xor(lowest, column)))
    whole, step = 0, _behind_zeros(power)
    for each in found.to_pylist():
        whole = _stepped(step, whole) ^ each
    return _joined(crc, whole, len(data)) ^ 0xFFFFFFFF


def walk(data: memoryview) -> tuple[pa.RecordBatch, int, Why]:
    """Return the headers of the batches that *data* begins with, where they end, and why there."""
    rows: list[tuple[int, ...]] = []
    at = following = 0
    why = Why.SOUND
    while at < len(data):
        found, why = _header(data[at:], at, following)
        if found is None:
            break
        rows.append(found)
        at += found[2]
        following = found[0] + found[7] + 1
    columns = list(zip(*rows, strict=True)) or [()] * len(HEADERS)
    arrays = [pa.array(each, field.type) for each, field in zip(columns, HEADERS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=HEADERS), at, why


def _header(data: memoryview, at: int, following: int) -> tuple[tuple[int, ...] | None, Why]:
    if (why := _shape(data)) is not Why.SOUND:
        return None, why
    (
        base, length, epoch, _, crc, attributes, delta, base_time, max_time,
        producer, producer_epoch, sequence, count,
    ) = _HEADER.unpack_from(data)  # fmt: skip
    length += 12
    records_crc = crc32c(data[HEADER_BYTES:length])
    head_crc = crc32c(data[_CHECKED_FROM:HEADER_BYTES])
    if _joined(head_crc, records_crc, length - HEADER_BYTES) != crc:
        return None, Why.BAD_CRC
    if delta < 0 or not 0 <= count <= delta + 1:
        return None, Why.BAD_COUNT
    if base < following or base > 2**63 - 2 - delta:
        return None, Why.BAD_OFFSET
    row = (
        base, at, length, base_time, max_time, producer, epoch, delta, sequence, count, crc,
        records_crc, attributes, producer_epoch,
    )  # fmt: skip
    return row, Why.SOUND


def _shape(data: memoryview) -> Why:
    if len(data) <= _MAGIC_AT:
        return Why.CUT_SHORT
    if data[_MAGIC_AT] != 2:
        return Why.OLD_MAGIC if data[_MAGIC_AT] < 2 else Why.BAD_LENGTH
    length = int.from_bytes(data[8:12], "big", signed=True) + 12
    if not HEADER_BYTES <= length < 2**31:
        return Why.BAD_LENGTH
    return Why.CUT_SHORT if length > len(data) else Why.SOUND


class _FaultError(Exception):
    def __init__(self, fault: Fault) -> None:
        self.fault = fault


class _Rows:
    """The columns of records while they grow."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._columns: tuple[list[Any], ...] = ([], [], [], [], [])
        self._ends, self._names, self._values = [0], list[bytes](), list[bytes | None]()

    def add(
        self,
        numbers: tuple[int, int, int],
        texts: tuple[bytes | None, bytes | None],
        headers: Sequence[tuple[bytes, bytes | None]],
    ) -> None:
        """Add a record, if it is in the span: offset, timestamp and its type, key and value."""
        if not self._span.start_offset <= numbers[0] < self._span.end_offset:
            return
        for column, one in zip(self._columns, (*numbers, *texts), strict=True):
            column.append(one)
        self._names += [name for name, _ in headers]
        self._values += [value for _, value in headers]
        self._ends.append(len(self._names))

    def taken(self) -> pa.RecordBatch:
        """Return the columns; nothing says yet that names are UTF-8."""
        kind = SCHEMA.field("headers").type
        names = pa.array(self._names, pa.binary())
        flat = pa.Array.from_buffers(
            kind.value_type, len(names), [None], 0,
            children=[
                pa.Array.from_buffers(pa.string(), len(names), names.buffers()),
                pa.array(self._values, pa.binary()),
            ],
        )  # fmt: skip
        headers = pa.ListArray.from_arrays(pa.array(self._ends, pa.int32()), flat, kind)
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(self._columns, SCHEMA, strict=False)
        ]
        return pa.RecordBatch.from_arrays([*arrays, headers], schema=SCHEMA)


def read(pieces: Sequence[Piece], span: Span, most: int) -> tuple[Fault, int, pa.RecordBatch, Rest]:
    """Return what is wrong and in which piece, the records in *span*, and how far it was read."""
    rows, rest = _Rows(span), Rest()
    for number, piece in enumerate(pieces):
        try:
            rest = _read(piece, most, rows)
        except _FaultError as error:
            return error.fault, number, rows.taken(), rest
    return Fault.FINE, 0, rows.taken(), rest


def _read(piece: Piece, most: int, rows: _Rows) -> Rest:
    data, at, left, previous = bytes(piece.data), 0, piece.left, piece.previous
    while left:
        try:
            start, size = _varint(data, at, len(data))
        except _FaultError:
            is_long = len(data) - at > 9
            if piece.is_last or is_long:
                raise _FaultError(Fault.NO_VARINT if is_long else Fault.TOO_FEW) from None
            return Rest(at, left, previous, 10)
        if size < 1 or size > most:
            raise _FaultError(Fault.BAD_SIZE if size < 1 else Fault.TOO_LARGE)
        if size > len(data) - start:
            if piece.is_last:
                raise _FaultError(Fault.TOO_FEW)
            return Rest(at, left, previous, size + start - at)
        at = start + size
        place, time = _varint(data, start + 1, at)
        place, delta = _varint(data, place, at)
        if not previous < delta <= piece.last_delta:
            raise _FaultError(Fault.BAD_DELTA)
        texts, headers = _texts(data, place, at)
        kind = TimestampType.LOG_APPEND if piece.is_append_time else TimestampType.CREATE
        if piece.is_append_time:
            time = piece.max_timestamp
        else:
            time = (piece.base_timestamp + time + 2**63) % 2**64 - 2**63  # Java wraps, too
        rows.add((piece.base_offset + delta, time, kind), texts, headers)
        previous, left = delta, left - 1
    if at != len(data):
        raise _FaultError(Fault.LEFT_OVER)
    return Rest(at, left, previous)


def _texts(
    data: bytes, at: int, end: int
) -> tuple[tuple[bytes | None, bytes | None], list[tuple[bytes, bytes | None]]]:
    at, key = _sized(data, at, end, -1)
    at, value = _sized(data, at, end, -1)
    at, count = _varint(data, at, end, Fault.BAD_SIZE)
    if not 0 <= count <= (end - at) // 2:
        raise _FaultError(Fault.BAD_SIZE)
    headers = []
    for _ in range(count):
        at, name = _sized(data, at, end, 0)
        at, content = _sized(data, at, end, -1)
        headers.append((name or b"", content))
    if at != end:
        raise _FaultError(Fault.BAD_SIZE)
    return (key, value), headers


def _sized(data: bytes, at: int, end: int, lowest: int) -> tuple[int, bytes | None]:
    at, size = _varint(data, at, end, Fault.BAD_SIZE)
    if size < lowest or size > end - at:
        raise _FaultError(Fault.BAD_SIZE)
    return (at, None) if size < 0 else (at + size, data[at : at + size])


def _varint(data: bytes, at: int, end: int, fault: Fault = Fault.NO_VARINT) -> tuple[int, int]:
    bits = shift = 0
    while True:
        if at >= end or shift > 63 or (shift == 63 and data[at] > 1):
            raise _FaultError(fault)
        bits |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return at, bits >> 1 ^ -(bits & 1)
