"""Record batches as brokers store and send them (magic 2): another form of records beside rows.

Owns their bytes: finds, checks, decodes and encodes them.  It asks no broker and opens no object.

`walk` finds the batches in bytes that came from a broker or an object, and compares their CRC32C;
`Batches` is what travels from then on; `kbackup.batches.decoding` turns it into rows.

Source: Kafka's message format, version 2.
"""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.batches import native, plain
from kbackup.batches.plain import HEADERS, Why

CODEC_BITS: Final = 0x07
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
"""Bits of ``attributes``; under the last one, the base timestamp is another time."""

HEADER_BYTES: Final = plain.HEADER_BYTES

_WORDS: Final = {
    Why.CUT_SHORT: "it is cut short",
    Why.OLD_MAGIC: "it is of a message format before version 2",
    Why.BAD_LENGTH: "it does not begin as a batch does",
    Why.BAD_CRC: "its CRC32C is another one",
    Why.BAD_COUNT: "it counts more records than it has offsets",
    Why.BAD_OFFSET: "it does not begin after the batch before it",
}


class BatchError(Exception):
    """A batch is not as a broker stores it.

    Attributes:
        why: What is the matter, as part of a sentence about the batch.
        offset: Its base offset, or where it should have begun; None where nothing says it.
        is_name: It is sound, but the name of a header is not UTF-8: *offset* is that record's.
        is_large: It may be sound, but exceeds what was allowed.
    """

    def __init__(
        self, why: str, offset: int | None, *, is_name: bool = False, is_large: bool = False
    ) -> None:
        place = "a batch" if offset is None else f"the batch at offset {offset}"
        super().__init__(f"offset {offset}: {why}" if is_name else f"{place}: {why}")
        self.why, self.offset, self.is_name, self.is_large = why, offset, is_name, is_large


@dataclass(frozen=True, slots=True)
class Batches:
    """Some record batches of one partition, in offset order; a slice of it copies no bytes.

    Attributes:
        data: The bytes that hold them; they must not change while it lives.
        headers: A row of `HEADERS` for each batch, in the order of *data*, between which bytes of
            others may lie.
    """

    data: pa.Buffer
    headers: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.headers)

    @property
    def records(self) -> int:
        """How many records they say they hold."""
        count: int = pc.sum(self.headers["count"]).as_py() or 0
        return count

    @property
    def bytes(self) -> int:
        """How many bytes they have."""
        size: int = pc.sum(self.headers["length"]).as_py() or 0
        return size

    @property
    def first_offset(self) -> int:
        """The base offset of the first one; there must be a batch."""
        first: int = self.headers["base_offset"][0].as_py()
        return first

    @property
    def next_offset(self) -> int:
        """The offset after the last one; there must be a batch."""
        last: int = self.headers["base_offset"][-1].as_py()
        delta: int = self.headers["last_delta"][-1].as_py()
        return last + delta + 1

    def slice(self, start: int, length: int | None = None) -> "Batches":
        """Return *length* batches from the one numbered *start* on, or all of them."""
        return Batches(self.data, self.headers.slice(start, length))

    def where(self, wanted: pa.BooleanArray) -> "Batches":
        """Return those for which *wanted* is true."""
        return Batches(self.data, self.headers.filter(wanted))

    def flagged(self, bits: int) -> pa.BooleanArray:
        """Return for each batch whether its attributes have any of *bits*."""
        found = pc.bit_wise_and(self.headers["attributes"], pa.scalar(bits, pa.int16()))
        return pc.not_equal(found, 0)

    def pieces(self) -> Iterator[memoryview]:
        """Yield their bytes, those that lie side by side as one."""
        data, start, end = memoryview(self.data).cast("B"), 0, 0
        columns = (self.headers[name].to_pylist() for name in ("position", "length"))
        for position, length in zip(*columns, strict=True):
            if position != end:
                if start < end:
                    yield data[start:end]
                start = position
            end = position + length
        if start < end:
            yield data[start:end]


LEAST_BYTES: Final = (2**16, 2**14)
"""Smaller batches are packed anew, many into one, for each takes a request of its own: those that
are not compressed, and those that are, which packing leaves larger.

A request takes a producer 0.17 ms of CPU, as much as packing 50 KiB of records of 100 bytes.
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """Which batches a partition takes as they are stored, and keeps so.

    Attributes:
        most_bytes: The largest one.
        codec: The only one that it keeps; None where it keeps each.
    """

    most_bytes: int
    codec: int | None = None

    def split(self, batches: Batches) -> Iterator[tuple[bool, Batches]]:
        """Yield *batches* in their order: those that are kept, and others, as many as follow.

        Those whose times are a broker's are none of them: another one would set its own.
        """
        headers = batches.headers
        is_kept = pc.and_(
            pc.equal(headers["count"], pc.add(headers["last_delta"], pa.scalar(1, pa.int32()))),
            pc.invert(batches.flagged(APPEND_TIME | CONTROL)),
        )
        size, (plain, packed) = headers["length"], LEAST_BYTES
        least = pc.if_else(batches.flagged(CODEC_BITS), packed, plain)
        fits = pc.and_(pc.greater_equal(size, least), pc.less_equal(size, self.most_bytes))
        is_kept = pc.and_(is_kept, fits)
        if self.codec is not None:
            codecs = pc.bit_wise_and(headers["attributes"], pa.scalar(CODEC_BITS, pa.int16()))
            is_kept = pc.and_(is_kept, pc.equal(codecs, self.codec))
        runs = pc.run_end_encode(is_kept)
        start = 0
        for end, kept in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            yield kept, batches.slice(start, end - start)
            start = end


class Walked(NamedTuple):
    """What bytes begin with.

    Attributes:
        batches: Those that are whole and sound.
        end: Where the one after them would begin.
        why: What is the matter with that one; `Why.SOUND` where the bytes end there.
        offset: Its base offset, None where not even that is there.
    """

    batches: Batches
    end: int
    why: Why
    offset: int | None

    def check(self, *, may_be_cut: bool = False) -> Batches:
        """Return the batches, of which the last one may lack its end in the answer to a fetch.

        Raises:
            BatchError: If there is something else behind them.
        """
        if self.why is Why.SOUND or (may_be_cut and self.why is Why.CUT_SHORT):
            return self.batches
        raise BatchError(_WORDS[self.why], self.offset)


def walk(data: pa.Buffer) -> Walked:
    """Find the batches that *data* begins with, check their CRC32C, and that offsets rise."""
    library = native.library()
    if library is None:
        headers, end, why = plain.walk(memoryview(data).cast("B"))
    else:
        at, reason = ctypes.c_int64(), ctypes.c_int32()
        room = library.batches_walk(data.address, data.size, 0, None, at, reason)
        buffers = [pa.allocate_buffer(field.type.bit_width // 8 * room) for field in HEADERS]
        columns = native.Headers(*(buffer.address for buffer in buffers))
        stopped = ctypes.c_int32()
        rows = library.batches_walk(
            data.address, data.size, room, ctypes.byref(columns), at, stopped
        )
        why = Why(stopped.value if rows < room else reason.value)
        headers = pa.RecordBatch.from_arrays(
            [
                pa.Array.from_buffers(field.type, rows, [None, buffer])
                for field, buffer in zip(HEADERS, buffers, strict=True)
            ],
            schema=HEADERS,
        )
        end = at.value
    found = memoryview(data)[end : end + 8]
    offset = int.from_bytes(found, "big", signed=True) if len(found) == 8 else None
    return Walked(Batches(data, headers), end, why, None if why is Why.SOUND else offset)


def crc32c(data: bytes) -> int:
    """Return the CRC32C of *data*."""
    library = native.library()
    if library is None:
        return plain.crc32c(memoryview(data))
    found: int = library.crc32c(data, len(data))
    return found
