"""Compress and decompress files of rows with gzip, zstd and bzip2.

All of them allow several compressed streams in a row, which is what makes blocks possible, and
all read what any tool has compressed.

Source: RFC 1952; JDK 21, ``java.util.zip.GZIPOutputStream``.
"""

import bz2
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa

from kbackup.errors import CorruptObjectError, is_of_memory

try:
    from isal import igzip_lib, isal_zlib

    _inflate: Any = isal_zlib
    _fast: Any = isal_zlib
    _errors: Any = (igzip_lib.IsalError, zlib.error)
except ImportError:  # no wheel for this machine
    _inflate = zlib
    _fast = zlib
    _errors = zlib.error

PIECE_BYTES: Final = 2**18
"""The most that `inflate_gzip` yields at a time."""

GZIP_RATIO_MAX: Final = 1000
"""How many bytes one byte of a file may become..."""

RATIO_FLOOR_BYTES: Final = 64 * 2**20
"""...once it has become this many."""

_MAGIC: Final = b"\x1f\x8b"
_HEADER: Final = _MAGIC + b"\x08\x00\x00\x00\x00\x00\x00\xff"  # deflate, no time, system unknown
_FAST_LEVEL: Final = 2  # isal: 345 MB/s of JSON lines and 6 % more bytes; zlib's default 39 MB/s

# If a compressor's output shows how its input was divided, it is divided at multiples of these.
_FAST_PIECE: Final = 2**20
_STORED_PIECE: Final = 2**16


class GzipWriter:
    """One gzip member; it does not show how its data was divided into calls.

    At levels 1 to 9 it is byte for byte what ``GZIPOutputStream`` writes with the same
    zlib; at -1 only the content matters, and isal writes it nine times as fast.
    """

    def __init__(self, file: BinaryIO, level: int) -> None:
        self._file = file
        is_fast = level == -1 and _fast is not zlib
        library, chosen = (_fast, _FAST_LEVEL) if is_fast else (zlib, level)
        self._deflate = library.compressobj(chosen, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._piece = _FAST_PIECE if is_fast else _STORED_PIECE if level == 0 else 0
        self._rest = bytearray()
        self._crc = self._size = 0
        file.write(_HEADER)

    def write(self, data: memoryview) -> None:
        """Add *data*."""
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        if not self._piece:
            self._file.write(self._deflate.compress(data))
            return
        self._rest += data
        whole = len(self._rest) - len(self._rest) % self._piece
        for start in range(0, whole, self._piece):
            self._file.write(self._deflate.compress(self._rest[start : start + self._piece]))
        del self._rest[:whole]

    def finish(self) -> None:
        """Complete the member."""
        if self._rest:
            self._file.write(self._deflate.compress(self._rest))
        self._file.write(self._deflate.flush())
        self._file.write(struct.pack("<II", self._crc, self._size & 0xFFFFFFFF))


def inflate_gzip(file: BinaryIO) -> Iterator[bytes]:
    """Yield the contents of a file of one or more gzip members, in pieces of `PIECE_BYTES` at most.

    Zeros after the last member are padding, as left by tapes and block devices.

    Raises:
        CorruptObjectError: If it is truncated, fails its checksum or length, continues with
            something else, or expands beyond `GZIP_RATIO_MAX`.
    """
    rest = file.read(PIECE_BYTES)
    taken = given = 0
    if not rest:
        raise _corrupt(GZIP, "it is empty")
    while rest:
        member = _inflate.decompressobj(wbits=16 + zlib.MAX_WBITS)
        while not member.eof:
            rest = rest or file.read(PIECE_BYTES)
            try:
                piece = member.decompress(rest, PIECE_BYTES)
            except _errors as error:
                raise _corrupt(GZIP, str(error)).doubting() from None  # its checksum comes last
            if not rest and not piece and not member.eof:
                raise _corrupt(GZIP, "it ends within a gzip member")
            left = member.unused_data if member.eof else member.unconsumed_tail
            taken, given = taken + len(rest) - len(left), given + len(piece)
            rest = left
            if given > RATIO_FLOOR_BYTES and given > GZIP_RATIO_MAX * taken:
                raise _corrupt(
                    GZIP, f"{taken} bytes have become {given}, more than {GZIP_RATIO_MAX} to one"
                )
            if piece:
                yield piece
        rest = _next_member(file, rest)


def _next_member(file: BinaryIO, rest: bytes) -> bytes:
    """Return what follows a member, b"" at the end of the file or if only zeros follow."""
    rest = rest or file.read(PIECE_BYTES)
    if not rest.startswith(b"\x00"):
        return rest
    while rest:
        if rest.strip(b"\x00"):
            raise _corrupt(GZIP, "something other than a gzip member follows its end")
        rest = file.read(PIECE_BYTES)
    return b""


RATIO_MAX: Final = 1_000_000
"""How many bytes one byte of zstd or bzip2 may become, once it has become `RATIO_FLOOR_BYTES`:
lines that are all the same really reach that."""

_ZSTD_LEVEL: Final = 3
_BZIP2_LEVEL: Final = 9
_FRAME_BYTES: Final = 4 * 2**20
"""Of the content of one frame of zstd: its bytes must not show how the rows came."""


@dataclass(frozen=True, slots=True)
class Codec:
    """One of them, by its name in the configuration.

    Its extension is behind a format's own; a checksum notices a bit that flipped.
    """

    name: str
    extension: str
    has_checksum: bool = True


GZIP: Final = Codec("gzip", ".gz")
ZSTD: Final = Codec("zstd", ".zst", has_checksum=False)
BZIP2: Final = Codec("bzip2", ".bz2")
CODECS: Final = (GZIP, ZSTD, BZIP2)


class Compressor(Protocol):
    """Rows on their way into a file; how they are spread over calls does not show in it."""

    def write(self, data: memoryview) -> object:
        """Add *data*."""
        ...

    def finish(self) -> None:
        """Complete the stream; the file stays open."""
        ...


def by_name(name: str) -> Codec | None:
    """Return the codec of that name, None for ``none``."""
    return next((codec for codec in CODECS if codec.name == name), None)


def of_extension(extension: str) -> Codec | None:
    """Return the codec that files with *extension* are compressed with, None for none."""
    return next((codec for codec in CODECS if extension.endswith(codec.extension)), None)


def checks_itself(extension: str) -> bool:
    """Whether a file of this extension is compressed by a codec that has a checksum."""
    codec = of_extension(extension)
    return codec is not None and codec.has_checksum


def without(extension: str) -> str:
    """Return *extension* without the codec's part."""
    codec = of_extension(extension)
    return extension if codec is None else extension.removesuffix(codec.extension)


def compressor(codec: Codec, file: BinaryIO, level: int) -> Compressor:
    """Begin a stream at a level of 0 to 9, or -1 for what suits the codec.

    Gzip alone has the level 0; others take 1 for it.
    """
    if codec is ZSTD:
        return _Zstd(file, _ZSTD_LEVEL if level < 0 else max(1, level))
    if codec is BZIP2:
        return _Bzip2(file, _BZIP2_LEVEL if level < 0 else max(1, level))
    return GzipWriter(file, level)


def inflate(codec: Codec | None, file: BinaryIO) -> Iterator[bytes]:
    """Yield what a file of one or more streams holds, in pieces of `PIECE_BYTES` at most.

    Without a codec, it is the file's own bytes.

    Raises:
        CorruptObjectError: If it is empty, cut short, damaged, or grows beyond all measure.
    """
    if codec is None:
        while piece := file.read(PIECE_BYTES):
            yield piece
        return
    if codec is GZIP:
        yield from inflate_gzip(file)
        return
    taken = _Counting(file)
    given = 0
    try:
        for piece in _unzstd(taken) if codec is ZSTD else _unbzip2(taken):
            given += len(piece)
            if given > RATIO_FLOOR_BYTES and given > RATIO_MAX * taken.size:
                why = f"{taken.size} bytes have become {given}, more than {RATIO_MAX} to one"
                raise _corrupt(codec, why)
            yield piece
    except EOFError as error:  # what came until then is as it was written
        raise _corrupt(codec, str(error)) from None
    except (OSError, ValueError, pa.ArrowException) as error:
        if is_of_memory(error):
            raise
        raise _corrupt(codec, str(error)).doubting() from None
    if not taken.size:
        raise _corrupt(codec, "it is empty")


class _Zstd:
    """Frames of a fixed size: one call of the library each, so nothing of the calls shows."""

    def __init__(self, file: BinaryIO, level: int) -> None:
        self._file, self._rest = file, bytearray()
        self._codec = pa.Codec("zstd", compression_level=level)

    def write(self, data: memoryview) -> None:
        """Add *data*."""
        self._rest += data
        whole = len(self._rest) - len(self._rest) % _FRAME_BYTES
        for start in range(0, whole, _FRAME_BYTES):
            self._frame(bytes(self._rest[start : start + _FRAME_BYTES]))
        del self._rest[:whole]

    def finish(self) -> None:
        """Complete the stream."""
        if self._rest:
            self._frame(bytes(self._rest))
            self._rest.clear()

    def _frame(self, data: bytes) -> None:
        self._file.write(self._codec.compress(data, asbytes=True))


class _Bzip2:
    def __init__(self, file: BinaryIO, level: int) -> None:
        self._file, self._bzip2 = file, bz2.BZ2Compressor(level)

    def write(self, data: memoryview) -> None:
        """Add *data*."""
        self._file.write(self._bzip2.compress(data))

    def finish(self) -> None:
        """Complete the stream."""
        self._file.write(self._bzip2.flush())


class _Counting:
    """A file that counts what is read of it, and that Arrow cannot close."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        """Read on."""
        data = self._file.read(size)
        self.size += len(data)
        return data

    def readable(self) -> bool:
        """Arrow asks."""
        return True

    def close(self) -> None:
        """Leave the file to its owner."""


def _unzstd(file: _Counting) -> Iterator[bytes]:
    stream: Any = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    while piece := stream.read(PIECE_BYTES):
        yield piece


def _unbzip2(file: _Counting) -> Iterator[bytes]:
    rest = file.read(PIECE_BYTES)
    while rest:
        stream = bz2.BZ2Decompressor()
        while not stream.eof:
            if stream.needs_input and not rest:
                rest = file.read(PIECE_BYTES)
                if not rest:
                    raise EOFError("it ends within a stream")
            piece = stream.decompress(rest, PIECE_BYTES)
            rest = b""
            if piece:
                yield piece
        rest = stream.unused_data or file.read(PIECE_BYTES)


def _corrupt(codec: Codec, why: str) -> CorruptObjectError:
    return CorruptObjectError(f"the {codec.name} file is cut short or altered", why)
