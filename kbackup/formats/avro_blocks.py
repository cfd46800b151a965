"""Avro's object container: a header with the schema, then blocks of datums.

The sync marker between blocks is derived from the contents, where others choose it at random: the
same records give the same file.

Source: Apache Avro 1.12, "Object Container Files".
"""

import bz2
import hashlib
import lzma
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import pyarrow as pa

from kbackup.connect.avro_reading import long
from kbackup.errors import CorruptObjectError, counted, form
from kbackup.formats import corrupt
from kbackup.formats.codecs import PIECE_BYTES, RATIO_FLOOR_BYTES, RATIO_MAX

MAGIC: Final = b"Obj\x01"
BLOCK_BYTES: Final = 64_000
"""A block ends with the datum that reaches this many bytes, as in Avro's own writer."""
BLOCK_ROWS: Final = BLOCK_BYTES
"""A block ends with so many datums at the latest, even if they take no bytes."""

VALUES_FLOOR: Final = 2**22
"""Any file may claim so many values..."""
VALUES_RATIO: Final = 4000
"""...and so many for each byte of it.  `BlockWriter` reaches 3,200 with empty records, 1,600 with
records of one byte under zstandard, 985 under bzip2 and 646 under deflate."""

LIST_RATIO: Final = 25_000
"""How many bytes one byte of a file with lists may become: each may be an item.  Lists of 1 MiB
that hold one item all over reach 16,100 under bzip2, 14,800 under zstandard, 3,400 under xz."""

_WHAT: Final = "the Avro file is cut short or altered"
_MARKER_BYTES: Final = 16
_HEAD_BYTES_MAX: Final = 16 * 2**20
_VARINT_MAX: Final = 10


def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def _snappy(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, "snappy", asbytes=True)
    return packed + zlib.crc32(data).to_bytes(4, "big")


def _zstandard(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd", 1).compress(data, asbytes=True)
    return packed


COMPRESS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": _deflate,
    "snappy": _snappy,
    "bzip2": bz2.compress,
    "zstandard": _zstandard,
    "xz": lambda data: lzma.compress(data, preset=1),
}
"""How a block is compressed, by the name of the codec."""

_UNPACKERS: Final[dict[str, Callable[[], Any]]] = {
    "deflate": lambda: zlib.decompressobj(-15),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=2**28),
}


class BlockWriter:
    """A container being written; holds at most one block.

    Attributes:
        schema: The Avro schema, in JSON.
    """

    def __init__(self, file: BinaryIO, schema: str, codec: str) -> None:
        self.schema = schema
        self._file, self._codec = file, codec
        self._head = _head({"avro.codec": codec.encode(), "avro.schema": schema.encode()})
        self._compress = COMPRESS[codec]
        self._marker = b""
        self._held: list[memoryview] = []
        self._held_count = self._held_bytes = 0

    def write(self, datums: pa.BinaryArray) -> None:
        """Add one datum per row, none of them null."""
        if not len(datums):
            return
        data = memoryview(datums.buffers()[2] or b"")
        ends = memoryview(datums.buffers()[1]).cast("i")  # where each datum ends, after the first
        row, last = datums.offset, datums.offset + len(datums)
        while row < last:
            start = ends[row]
            full = start + BLOCK_BYTES - self._held_bytes
            most = min(last, row + BLOCK_ROWS - self._held_count)  # some take no bytes
            until = min(most, bisect_left(ends, full, row + 1, most + 1))
            self._held.append(data[start : ends[until]])
            self._held_count += until - row
            self._held_bytes += ends[until] - start
            row = until
            if self._held_bytes >= BLOCK_BYTES or self._held_count >= BLOCK_ROWS:
                self._end_block()

    def finish(self) -> None:
        """Write the rest; a container without records consists of its header."""
        if self._held_count:
            self._end_block()
        elif not self._marker:
            self._begin(b"")

    def _begin(self, data: bytes) -> None:
        digest = hashlib.blake2b(self._head, digest_size=_MARKER_BYTES)
        digest.update(data)
        self._marker = digest.digest()
        self._file.write(self._head + self._marker)

    def _end_block(self) -> None:
        data = b"".join(self._held)
        if not self._marker:
            self._begin(data)
        packed = self._compress(data)
        self._file.write(
            b"".join([long(self._held_count), long(len(packed)), packed, self._marker])
        )
        self._held, self._held_count, self._held_bytes = [], 0, 0


@dataclass(frozen=True, slots=True)
class AvroBlock:
    """Consecutive datums of a container."""

    count: int
    data: bytes


class BlockReader:
    """A container being read, a block at a time, of at most *max_bytes*, compressed or not.

    Attributes:
        schema: The Avro schema, in JSON.

    Raises:
        CorruptObjectError: If it does not begin like a container.
    """

    def __init__(self, file: BinaryIO, max_bytes: int) -> None:
        self._file, self._max = file, max_bytes
        self._taken = self._given = self._values = 0
        if file.read(len(MAGIC)) != MAGIC:
            raise _corrupt("it does not begin like an Avro container")
        named = self._metadata()
        self.schema = named.get("avro.schema", b"").decode(errors="replace")
        self._empty_parts, self._ratio = 0, RATIO_MAX
        self._codec = named.get("avro.codec", b"null").decode(errors="replace")
        self._marker = self._take(_MARKER_BYTES)
        self._taken = 0  # of the blocks alone: a schema of any length stands for no values
        if self._codec not in COMPRESS:
            raise _corrupt(f"its codec is {self._codec!r}")

    def __iter__(self) -> Iterator[AvroBlock]:
        number = 0
        while (count := self._long(at_end=True)) is not None:
            number += 1
            size = self._long() or 0
            if count < 0 or not 0 <= size <= self._max:
                said = f"{counted(count, 'value')} in {counted(size, 'byte')}"
                raise _corrupt(f"block {number} claims {said}")
            packed = self._take(size)
            if self._take(_MARKER_BYTES) != self._marker:
                raise _corrupt(f"the sync marker after block {number} is not the file's")
            self.spend(count)
            data = self._unpacked(packed, number)
            self.spend(max(count, len(data)) * self._empty_parts)
            self._given += len(data)
            if self._given > max(RATIO_FLOOR_BYTES, self._ratio * self._taken):
                raise _corrupt(
                    f"{self._taken} bytes have become {self._given}, more than {self._ratio} to one"
                )
            yield AvroBlock(count, data)

    def limit(self, empty_parts: int, *, has_lists: bool) -> None:
        """Say what makes values more work than their bytes show: lists, and parts without bytes.

        Of these, *empty_parts* may come with any value, or any byte of one.
        """
        self._empty_parts, self._ratio = empty_parts, LIST_RATIO if has_lists else RATIO_MAX

    def spend(self, values: int) -> None:
        """Count values, or parts, that may take no bytes; refuse more than bytes stand for."""
        self._values += values
        if self._values > max(VALUES_FLOOR, VALUES_RATIO * self._taken):
            raise _corrupt(
                f"{self._taken} bytes claim {self._values} values, more than {VALUES_RATIO} to one"
            )

    def _unpacked(self, packed: bytes, number: int) -> bytes:
        try:
            data = _decompressed(self._codec, packed, self._max)
        except (
            zlib.error,
            lzma.LZMAError,
            OSError,
            ValueError,
            EOFError,
            pa.ArrowException,
        ) as bad:
            raise _corrupt(f"block {number}: {bad}") from bad
        if len(data) > self._max:
            why = f"block {number} has more than {self._max} bytes"
            do = "if records are this long, raise --max-record-bytes"
            raise CorruptObjectError(_WHAT, why, do)
        return data

    def _metadata(self) -> dict[str, bytes]:
        named: dict[str, bytes] = {}
        while count := self._long() or 0:
            if count < 0:
                self._long()
            for _ in range(abs(count)):
                name = self._bytes()
                named[name.decode(errors="replace")] = self._bytes()
                if len(named) > 1000:
                    raise _corrupt("its header does not end")
        return named

    def _bytes(self) -> bytes:
        size = self._long() or 0
        if not 0 <= size <= _HEAD_BYTES_MAX:
            raise _corrupt(f"its header claims {counted(size, 'byte')}")
        return self._take(size)

    def _take(self, size: int) -> bytes:
        data = self._file.read(size)
        self._taken += len(data)
        if left := size - len(data):
            are = form(left, "is", "are")
            raise _corrupt(f"{counted(left, 'byte')} {are} missing at its end")
        return data

    def _long(self, *, at_end: bool = False) -> int | None:
        """Read an integer; None at the end of the file if the file may end here."""
        found = 0
        for at in range(_VARINT_MAX):
            byte = self._file.read(1)
            if not byte:
                if at_end and not at:
                    return None
                raise _corrupt("it ends within a number")
            found |= (byte[0] & 127) << 7 * at
            if byte[0] < 128:
                return (found >> 1) ^ -(found & 1)
        raise _corrupt("a number in it does not end")


def _decompressed(codec: str, packed: bytes, limit: int) -> bytes:
    """Return the decompressed data, at most one byte more than *limit*."""
    if codec == "null":
        return packed
    if codec == "snappy":
        return _unsnapped(packed, limit)
    if codec == "zstandard":
        found = bytearray()
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            # Arrow never frees what it has set aside for a read that fails
            while len(found) <= limit and (piece := stream.read(PIECE_BYTES)):
                found += piece
        return bytes(found)
    unpacker = _UNPACKERS[codec]()
    data: bytes = unpacker.decompress(packed, limit + 1)
    if not unpacker.eof and len(data) <= limit:
        raise ValueError("its compressed data are cut short")
    return data


def _unsnapped(packed: bytes, limit: int) -> bytes:
    size = _snappy_size(packed)
    if size > limit:
        return bytes(limit + 1)
    data: bytes = pa.decompress(packed[:-4], size, "snappy", asbytes=True)
    if zlib.crc32(data).to_bytes(4, "big") != packed[-4:]:
        raise ValueError("its checksum does not match")
    return data


def _snappy_size(packed: bytes) -> int:
    size = 0
    for at, byte in enumerate(packed[:5]):
        size |= (byte & 127) << 7 * at
        if byte < 128:
            return size
    raise ValueError("its length does not end")


def _head(named: dict[str, bytes]) -> bytes:
    pairs = b"".join(
        long(len(part)) + part for name, value in named.items() for part in (name.encode(), value)
    )
    return MAGIC + long(len(named)) + pairs + b"\0"


def _corrupt(why: str) -> CorruptObjectError:
    return corrupt(_WHAT, why)
