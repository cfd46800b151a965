"""What a file of rows can be compressed with: gzip, zstd and bzip2.

All of them allow several compressed streams in a row, which is what makes blocks possible, and
all read what any tool has compressed.
"""

import bz2
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa

from kbackup.errors import CorruptObjectError
from kbackup.formats import gzip_stream
from kbackup.formats.gzip_stream import PIECE_BYTES, RATIO_FLOOR_BYTES, GzipWriter

RATIO_MAX: Final = 1_000_000
"""How many bytes one byte of zstd or bzip2 may become, once it has become `RATIO_FLOOR_BYTES`:
lines that are all the same really reach that."""

_ZSTD_LEVEL: Final = 3
_BZIP2_LEVEL: Final = 9
_FRAME_BYTES: Final = 4 * 2**20
"""Of the content of one frame of zstd: its bytes must not show how the rows came."""


@dataclass(frozen=True, slots=True)
class Codec:
    """One of them.

    Attributes:
        name: As the configuration has it.
        extension: Behind a format's own, dot first.
        has_checksum: Whether a bit that flipped is noticed when it is read.
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
    """Begin a stream.

    Args:
        codec: How.
        file: Where to; not closed here.
        level: 0 to 9, or -1 for what suits the codec; gzip alone has 0, others take 1 for it.
    """
    if codec is ZSTD:
        return _Zstd(file, _ZSTD_LEVEL if level < 0 else max(1, level))
    if codec is BZIP2:
        return _Bzip2(file, _BZIP2_LEVEL if level < 0 else max(1, level))
    return GzipWriter(file, level)


def inflate(codec: Codec, file: BinaryIO) -> Iterator[bytes]:
    """Yield what a file of one or more streams holds, in pieces of `PIECE_BYTES` at most.

    Raises:
        CorruptObjectError: If it is empty, cut short, damaged, or grows beyond all measure.
    """
    if codec is GZIP:
        yield from gzip_stream.inflate(file)
        return
    taken = _Taken(file)
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


class _Taken:
    """A file that counts what is read of it, and that Arrow cannot close.

    Attributes:
        size: Bytes so far.
    """

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


def _unzstd(file: _Taken) -> Iterator[bytes]:
    stream: Any = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    while piece := stream.read(PIECE_BYTES):
        yield piece


def _unbzip2(file: _Taken) -> Iterator[bytes]:
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
