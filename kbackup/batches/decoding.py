"""Unpack record batches to rows, the one place where that is done, and tell what is known of them.

A batch is decompressed a piece at a time, so neither what it claims nor what it becomes takes more
memory than some `PIECE_BYTES` and one record of the largest size allowed.
"""

import ctypes
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice, pairwise
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.batches import (
    APPEND_TIME,
    CODEC_BITS,
    HEADER_BYTES,
    BatchError,
    Batches,
    native,
    plain,
)
from kbackup.batches.native import DATA, PIECE, Columns, Measured
from kbackup.batches.plain import Fault, Piece, Rest
from kbackup.errors import is_of_memory
from kbackup.records import NO_TIMESTAMP, SCHEMA, ColumnsDigest, Facts, Span, bytes_of

PIECE_BYTES: Final = 4 * 2**20
"""Rows are passed on when their batches have this many bytes, decompressed..."""

RECORDS: Final = 16_384
"""...or this many records."""

EVERYTHING: Final = Span(0, 2**63 - 1)

MAX_RECORD_BYTES: Final = 2**28
"""The largest record that is unpacked, unless more is allowed."""

_SLACK: Final = 2**20
"""What a record may have besides keys, values and headers: its numbers."""

_WORDS: Final = {
    Fault.NO_VARINT: "a number in its records is cut short or too large",
    Fault.BAD_SIZE: "a length in its records does not fit",
    Fault.BAD_DELTA: "the offsets of its records do not rise within it",
    Fault.LEFT_OVER: "it has more bytes than records",
    Fault.TOO_FEW: "it ends before its last record",
    Fault.TOO_LARGE: "it holds a record that is too large",
}


def decoded(
    batches: Batches, span: Span = EVERYTHING, max_record_bytes: int = MAX_RECORD_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the records of *batches* as rows.

    Args:
        batches: None of them a control batch.
        span: Records outside of it are left out.
        max_record_bytes: Larger records are refused.

    Yields:
        Rows of ``records.SCHEMA``, at least one each, offsets rising; some `PIECE_BYTES` of them,
        or `RECORDS`.

    Raises:
        BatchError: If a batch does not hold what its header says, or the name of a header is not
            UTF-8: all records before it were yielded.
    """
    following = span.start_offset
    try:
        for rows in _decoded(batches, span, max_record_bytes):
            yield rows
            following = rows["offset"][-1].as_py() + 1
    except BatchError as error:
        if error.is_name or len(batches) == 1:  # all before it is there
            raise
        left = Span(following, span.end_offset)  # many are read at once: one at a time now
        for at in range(len(batches)):
            yield from _decoded(batches.slice(at, 1), left, max_record_bytes)
        raise


def _decoded(batches: Batches, span: Span, max_record_bytes: int) -> Iterator[pa.RecordBatch]:
    for group in _groups(batches, span, max_record_bytes + _SLACK):
        rows = group.rows()
        bad = _bad_name(rows) if group.has_other_names else None
        if bad is not None:
            if bad:
                yield rows.take(pa.array(range(bad)))  # a slice would keep the name
            raise _not_utf8(rows, bad)
        if len(rows):
            yield rows


def _not_utf8(rows: pa.RecordBatch, at: int) -> BatchError:
    text = "the name of a header is not UTF-8"
    return BatchError(text, rows["offset"][at].as_py(), is_name=True)


class Times(NamedTuple):
    """The lowest and the highest timestamp of records, None where none has one."""

    low: int | None = None
    high: int | None = None

    def joined(self, other: "Times") -> "Times":
        """Return those of both."""
        lows = [each for each in (self.low, other.low) if each is not None]
        highs = [each for each in (self.high, other.high) if each is not None]
        return Times(min(lows, default=None), max(highs, default=None))


def times(batches: Batches, max_record_bytes: int = MAX_RECORD_BYTES) -> Times:
    """Return the timestamps of the records, and check them all: what is stored has to be readable.

    A header says neither the lowest time, nor whether its records are as it says.

    Raises:
        BatchError: If a batch does not hold what its header says, or the name of a header is not
            UTF-8.
    """
    found = Times()
    for group in _groups(batches, EVERYTHING, max_record_bytes + _SLACK):
        found = found.joined(group.times)
        if group.has_other_names:
            rows = group.rows()
            bad = _bad_name(rows)
            if bad is not None:
                raise _not_utf8(rows, bad)
    return found


class _RecordGroup:
    """Records of some batches, checked; of the last one there may be more to come."""

    def __init__(
        self, pieces: ctypes.Array[ctypes.c_char] | list[Piece], count: int, holds: object,
        span: Span, most: int,
    ) -> None:  # fmt: skip
        # in C *pieces* are `PIECE` after `PIECE`; *holds* is what must live as long as they do
        self._pieces, self._count, self._holds, self._span = pieces, count, holds, span
        self.rest = Rest()
        if isinstance(pieces, list):
            fault, at, self._rows, self.rest = plain.read(pieces, span, most)
            stamps = self._rows["timestamp"]
            ends = pc.min_max(stamps.filter(pc.not_equal(stamps, NO_TIMESTAMP))).as_py()
            self.times = Times(ends["min"], ends["max"])
        else:
            fault, at = self._measure(most)
        if fault is not Fault.FINE:
            base = pieces[at].base_offset if isinstance(pieces, list) else self._piece(at)[2]
            raise BatchError(_WORDS[fault], base, is_large=fault is Fault.TOO_LARGE)

    @classmethod
    def whole(
        cls, batches: Batches, inflated: Mapping[int, pa.Buffer], span: Span, most: int
    ) -> Self:
        """Return a group of one batch or more; *inflated* has the records of those compressed."""
        count = len(batches)
        if native.library() is None:
            pieces = [_piece(batches, at) for at in range(count)]
            for at, data in inflated.items():
                pieces[at] = pieces[at]._replace(data=data)
            return cls(pieces, count, batches, span, most)
        packed = ctypes.create_string_buffer(PIECE.size * count)
        headers = native.Headers(
            *(each.buffers()[1].address + each.offset * each.type.bit_width // 8
              for each in batches.headers.columns)
        )  # fmt: skip
        native.library().batches_pieces(batches.data.address, headers, count, packed)
        for at, data in inflated.items():
            DATA.pack_into(packed, PIECE.size * at, data.address, data.size)
        return cls(packed, count, (batches, inflated), span, most)

    @classmethod
    def part(cls, piece: Piece, span: Span, most: int) -> Self:
        """Return the group of a part of one batch."""
        if native.library() is None:
            return cls([piece], 1, piece, span, most)
        packed = PIECE.pack(
            piece.data.address, piece.data.size, piece.base_offset, piece.base_timestamp,
            piece.max_timestamp, piece.left, piece.previous, 0, piece.last_delta,
            piece.is_append_time, piece.is_last, 0,
        )  # fmt: skip
        return cls(ctypes.create_string_buffer(packed, len(packed)), 1, piece, span, most)

    def _piece(self, at: int) -> tuple[int, ...]:
        return PIECE.unpack_from(self._pieces, PIECE.size * at)  # type: ignore[arg-type]

    def _measure(self, most: int) -> tuple[Fault, int]:
        self._found = found = Measured()
        fault = Fault(
            native.library().records_measure(
                self._pieces, self._count, self._span.start_offset, self._span.end_offset,
                most, found,
            )
        )  # fmt: skip
        if fault is Fault.FINE:
            last = self._piece(self._count - 1)
            self.rest = Rest(used=last[7], left=last[5], previous=last[6], wanted=found.wanted)
            sizes = found.key, found.value, found.name, found.header_value, found.headers
            if max(sizes) > 2**31 - 1:
                fault = Fault.TOO_LARGE
        has_times = found.min_timestamp <= found.max_timestamp
        self.times = Times(found.min_timestamp, found.max_timestamp) if has_times else Times()
        return fault, found.bad_piece

    @property
    def has_other_names(self) -> bool:
        """Whether a header has a name that is not ASCII, and so may be no UTF-8 either."""
        return native.library() is None or bool(self._found.other_names)

    def rows(self) -> pa.RecordBatch:
        """Return the records within the span; names of headers have not been checked."""
        return self._rows if native.library() is None else self._copied()

    def _copied(self) -> pa.RecordBatch:
        found = self._found
        rows, headers = found.rows, found.headers
        room = pa.allocate_buffer
        ends, header_ends = 4 * (rows + 1), 4 * (headers + 1)
        out = {
            "offset": room(8 * rows), "timestamp": room(8 * rows), "timestamp_type": room(rows),
            "key_end": room(ends), "value_end": room(ends), "headers_end": room(ends),
            "name_end": room(header_ends), "header_value_end": room(header_ends),
            "key": room(found.key), "value": room(found.value), "name": room(found.name),
            "header_value": room(found.header_value),
            "key_valid": _zeros(rows, found.null_keys),
            "value_valid": _zeros(rows, found.null_values),
            "header_value_valid": _zeros(headers, found.null_header_values),
        }  # fmt: skip
        columns = Columns(
            **{name: None if buffer is None else buffer.address for name, buffer in out.items()}
        )
        native.library().records_copy(
            self._pieces, self._count, self._span.start_offset, self._span.end_offset,
            columns,
        )  # fmt: skip

        def made(
            kind: pa.DataType, length: int, name: str, nulls: int = 0, ends: str = ""
        ) -> pa.Array:
            buffers = [out[name]] if not ends else [out[ends], out[name]]
            valid = out.get(f"{name}_valid") if nulls else None
            return pa.Array.from_buffers(kind, length, [valid, *buffers], nulls)

        names = made(pa.string(), headers, "name", ends="name_end")
        values = made(
            pa.binary(), headers, "header_value", found.null_header_values, "header_value_end"
        )
        kind = SCHEMA.field("headers").type
        flat = pa.Array.from_buffers(kind.value_type, headers, [None], 0, children=[names, values])
        return pa.RecordBatch.from_arrays(
            [
                made(pa.int64(), rows, "offset"),
                made(pa.int64(), rows, "timestamp"),
                made(pa.int8(), rows, "timestamp_type"),
                made(pa.binary(), rows, "key", found.null_keys, "key_end"),
                made(pa.binary(), rows, "value", found.null_values, "value_end"),
                pa.Array.from_buffers(kind, rows, [None, out["headers_end"]], 0, children=[flat]),
            ],
            schema=SCHEMA,
        )


def _zeros(bits: int, nulls: int) -> pa.Buffer | None:
    return pa.py_buffer(bytearray((bits + 7) // 8)) if nulls else None


def _bad_name(rows: pa.RecordBatch) -> int | None:
    """Return the first row with a header whose name is not UTF-8, None where there is none."""
    try:
        rows["headers"].flatten().field("key").validate(full=True)
    except pa.ArrowInvalid:
        for row in range(len(rows)):
            try:
                rows["headers"].slice(row, 1).flatten().field("key").validate(full=True)
            except pa.ArrowInvalid:
                return row
    return None


def _groups(batches: Batches, span: Span, most: int) -> Iterator[_RecordGroup]:
    """Yield the records of *batches*, checked, about `PIECE_BYTES` or `RECORDS` at a time."""
    names = "attributes", "position", "length", "base_offset", "count"
    columns = (batches.headers[name].to_pylist() for name in names)
    first = size = records = 0
    inflated: dict[int, pa.Buffer] = {}
    small = _small(batches)
    for at, (attributes, position, length, base, count) in enumerate(zip(*columns, strict=True)):
        data_bytes, together = length, next(small)
        if together is not None:
            inflated[at - first], data_bytes = together, together.size
        elif attributes & CODEC_BITS or length > PIECE_BYTES:
            body = batches.data.slice(position + HEADER_BYTES, length - HEADER_BYTES)
            stream = _inflated(attributes & CODEC_BITS, body, base, most)
            whole, second = next(stream, _NOTHING), next(stream, None)
            if second is not None:
                if first < at:
                    yield _RecordGroup.whole(batches.slice(first, at - first), inflated, span, most)
                yield from _streamed(_piece(batches, at), (whole, second), stream, span, most)
                first, size, records, inflated = at + 1, 0, 0, {}
                continue
            inflated[at - first], data_bytes = whole, whole.size
        size += data_bytes
        records += count
        if size >= PIECE_BYTES or records >= RECORDS:
            yield _RecordGroup.whole(batches.slice(first, at + 1 - first), inflated, span, most)
            first, size, records, inflated = at + 1, 0, 0, {}
    if first < len(batches):
        yield _RecordGroup.whole(batches.slice(first), inflated, span, most)


def _piece(batches: Batches, at: int) -> Piece:
    """Return the records of a batch as they are stored."""
    names = (
        "position", "length", "base_offset", "base_timestamp", "max_timestamp", "attributes",
        "last_delta", "count",
    )  # fmt: skip
    position, length, base, base_time, max_time, attributes, delta, count = (
        batches.headers[name][at].as_py() for name in names
    )
    body = batches.data.slice(position + HEADER_BYTES, length - HEADER_BYTES)
    is_appended = bool(attributes & APPEND_TIME)
    return Piece(body, base, base_time, max_time, is_appended, delta, count)


def _streamed(
    piece: Piece,
    begun: tuple[pa.Buffer, pa.Buffer],
    stream: Iterator[pa.Buffer],
    span: Span,
    most: int,
) -> Iterator[_RecordGroup]:
    """Yield the records of one large batch."""
    held, following = bytearray(begun[0]), begun[1]
    rest = Rest(left=piece.left, previous=piece.previous)
    while True:
        is_last = following is None
        if is_last or len(held) >= rest.wanted:
            data = pa.py_buffer(bytes(held))
            here = piece._replace(
                data=data, left=rest.left, previous=rest.previous, is_last=is_last
            )
            group = _RecordGroup.part(here, span, most)
            yield group
            rest = group.rest
            del held[: rest.used]
        if is_last:
            return
        held += following
        following = next(stream, None)


_SMALL_BYTES: Final = 2**10
"""Compressed batches of at most so many bytes are decompressed together..."""

_RUN: Final = 256
"""...this many at once."""


def _small(batches: Batches) -> Iterator[pa.Buffer | None]:
    """Yield the records of each batch that is compressed and small, None for the others."""
    names = "attributes", "position", "length", "count"
    rows = zip(*(batches.headers[name].to_pylist() for name in names), strict=True)
    # to open a stream takes 12 us, a batch of one record 0.5 with zstd: one follows the other
    for name, alike in groupby(rows, _codec_if_small):
        while some := list(islice(alike, _RUN)):
            yield from ([None] * len(some) if name is None else _together(name, batches.data, some))


def _codec_if_small(row: Sequence[int]) -> str | None:
    attributes, _, length, _ = row
    return _STREAMS.get(attributes & CODEC_BITS) if length <= _SMALL_BYTES else None


def _together(
    codec: str, data: pa.Buffer, rows: Sequence[Sequence[int]]
) -> Sequence[pa.Buffer | None]:
    """Return the records of some batches; None for each where not all of them are sound."""
    alone = [None] * len(rows)
    if len(rows) == 1 or native.library() is None:
        return alone
    bodies = (data.slice(at + HEADER_BYTES, length - HEADER_BYTES) for _, at, length, _ in rows)
    joined = pa.py_buffer(b"".join(bodies))
    most = _GUESS * joined.size + 2**12
    try:
        found = pa.CompressedInputStream(pa.BufferReader(joined), codec).read_buffer(most)
    except (OSError, ValueError, pa.ArrowException):
        return alone  # where it is said which is wrong
    counts, ends = array("q", (row[-1] for row in rows)), array("q", bytes(8 * len(rows)))
    whole = native.library().records_split(
        found.address, found.size, counts.buffer_info()[0], len(rows), ends.buffer_info()[0]
    )
    if found.size == most or whole < len(rows):
        return alone
    return [found.slice(start, end - start) for start, end in pairwise((0, *ends))]


_NOTHING: Final = pa.py_buffer(b"")
_GUESS: Final = 8
"""How many bytes one byte of a batch becomes at most, as a rule."""
_STREAMS: Final = {1: "gzip", 3: "lz4", 4: "zstd"}
_SNAPPY: Final = 2
_XERIAL: Final = b"\x82SNAPPY\0"
_XERIAL_BYTES: Final = 16


def _inflated(codec: int, body: pa.Buffer, base: int, most: int) -> Iterator[pa.Buffer]:
    """Yield the records of a batch as they were before it was compressed, in pieces, none empty."""
    if not codec:
        for at in range(0, body.size, PIECE_BYTES):
            yield body.slice(at, min(PIECE_BYTES, body.size - at))
        return
    try:
        if codec in _STREAMS:
            stream: Any = pa.CompressedInputStream(pa.BufferReader(body), _STREAMS[codec])
            wanted = min(PIECE_BYTES, _GUESS * body.size + 2**12)
            while (piece := stream.read_buffer(wanted)).size:
                yield piece
                if piece.size < wanted:
                    return
                wanted = PIECE_BYTES
        elif codec == _SNAPPY:
            yield from _unsnappy(body, most)
        else:
            raise ValueError(f"codec {codec} is not known")  # noqa: TRY301  (as from a codec)
    except (OSError, ValueError, pa.ArrowException) as error:
        if is_of_memory(error):
            raise
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BatchError(f"its records cannot be decompressed: {why}", base) from None


def _unsnappy(body: pa.Buffer, most: int) -> Iterator[pa.Buffer]:
    """Yield what snappy made small: in xerial's blocks, as Java has it, or raw, as librdkafka."""
    data = memoryview(body).cast("B")
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        yield _unsnapped(data, most)
        return
    at, held = _XERIAL_BYTES, bytearray()
    while at < len(data):
        (size,) = struct.unpack(">i", data[at : at + 4].tobytes().rjust(4, b"\xff"))
        if not 0 < size <= len(data) - at - 4:
            raise ValueError("a block does not fit")
        held += _unsnapped(data[at + 4 : at + 4 + size], most)
        at += 4 + size
        if len(held) >= PIECE_BYTES:
            yield pa.py_buffer(bytes(held))
            held.clear()
    if held:
        yield pa.py_buffer(bytes(held))


def _unsnapped(data: memoryview, most: int) -> pa.Buffer:
    size, shift = 0, 0
    for byte in data[:5]:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if size > min(64 * len(data), max(most, 2**25)):
        raise ValueError(f"{len(data)} bytes would become {size}")
    return pa.Codec("snappy").decompress(data, size)


_COLUMNS: Final = ("last_delta", "count", "base_timestamp", "max_timestamp", "records_crc")


class BatchesDigest(ColumnsDigest):
    """Of batches that come some at a time.

    It depends on the batches and their order, not on their offsets: a copy elsewhere has others.
    Of the records it has the CRC32C, as they are stored: it tells damage, not forgery.
    """

    METHOD = "b1:"
    COLUMNS = len(_COLUMNS) + 1

    def add(self, batches: Batches) -> None:
        """Take the next ones."""
        self._take(len(batches), map(bytes_of, _kept_in_copies(batches)))


def _kept_in_copies(batches: Batches) -> list[pa.Array]:
    """Return what a copy of each has in common with it."""
    kind = pa.scalar(CODEC_BITS | APPEND_TIME, pa.int16())
    headers = batches.headers
    attributes = pc.bit_wise_and(headers["attributes"], kind)
    return [*(headers[name] for name in _COLUMNS), attributes]


def alike(one: Batches, two: Batches) -> int:
    """Return how many of *one* are copied in *two*, from the first of both on."""
    number = min(len(one), len(two))
    one, two = one.slice(0, number), two.slice(0, number)
    for mine, other in zip(_kept_in_copies(one), _kept_in_copies(two), strict=True):
        unequal = pc.index(pc.equal(mine, other), value=False).as_py()
        number = number if unequal < 0 else min(number, unequal)
    pairs = zip(_records(one.slice(0, number)), _records(two.slice(0, number)), strict=True)
    return next((at for at, (mine, other) in enumerate(pairs) if not mine.equals(other)), number)


def _records(batches: Batches) -> Iterator[pa.Buffer]:
    """Yield the records of each batch as they are stored."""
    columns = (batches.headers[name].to_pylist() for name in ("position", "length"))
    for position, length in zip(*columns, strict=True):
        yield batches.data.slice(position + HEADER_BYTES, length - HEADER_BYTES)


@dataclass(slots=True)
class Tally:
    """The facts of batches that come some at a time, none of them empty.

    Attributes:
        max_record_bytes: Larger records are refused, where records are unpacked.
    """

    max_record_bytes: int = MAX_RECORD_BYTES
    _facts: Facts | None = None
    _last: Batches | None = None
    _times: Times = field(default_factory=Times)
    _digest: BatchesDigest = field(default_factory=BatchesDigest)

    def add(self, batches: Batches) -> None:
        """Take the next ones.

        Raises:
            BatchError: If one that has to be unpacked does not hold what its header says.
        """
        if not len(batches):
            return
        if self._facts is None:
            first = self._offsets(batches.slice(0, 1))[0]
            self._facts = Facts(first, first, 0, None, None, "")
        self._facts = replace(self._facts, records=self._facts.records + batches.records)
        self._times = self._times.joined(times(batches, self.max_record_bytes))
        self._last = batches.slice(len(batches) - 1)
        self._digest.add(batches)

    def facts(self) -> Facts | None:
        """Return what is known, without the object's ``sha256``; None where nothing was added."""
        if self._facts is None or self._last is None:
            return None
        last = self._offsets(self._last)[1]
        return replace(
            self._facts, last_offset=last, min_timestamp=self._times.low,
            max_timestamp=self._times.high, digest=self._digest.text,
        )  # fmt: skip

    def _offsets(self, one: Batches) -> tuple[int, int]:
        """Return the first and the last offset of a batch, which need be neither end of it."""
        header: dict[str, Any] = one.headers.to_pylist()[0]
        base, delta = header["base_offset"], header["last_delta"]
        if header["count"] == delta + 1:
            return base, base + delta
        offsets = [rows["offset"] for rows in decoded(one, max_record_bytes=self.max_record_bytes)]
        return offsets[0][0].as_py(), offsets[-1][-1].as_py()
