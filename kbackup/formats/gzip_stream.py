"""Gzip around a whole file: written fast, or as Java writes it; read whoever wrote it.

Source: RFC 1952; JDK 21, ``java.util.zip.GZIPOutputStream``.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from kbackup.errors import CorruptObjectError

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
"""The most that `inflate` yields at a time."""

RATIO_MAX: Final = 1000
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

    Args:
        file: Where the member goes; not closed here.
        level: 0 to 9 of zlib, or -1 for the fastest available library.
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


def inflate(file: BinaryIO) -> Iterator[bytes]:
    """Yield the contents of a file of one or more gzip members, in pieces of `PIECE_BYTES` at most.

    Zeros after the last member are padding, as left by tapes and block devices.

    Raises:
        CorruptObjectError: If it is truncated, fails its checksum or length, continues with
            something else, or expands beyond `RATIO_MAX`.
    """
    rest = file.read(PIECE_BYTES)
    taken = given = 0
    if not rest:
        raise _corrupt("it is empty")
    while rest:
        member = _inflate.decompressobj(wbits=16 + zlib.MAX_WBITS)
        while not member.eof:
            rest = rest or file.read(PIECE_BYTES)
            try:
                piece = member.decompress(rest, PIECE_BYTES)
            except _errors as error:
                raise _corrupt(str(error)).doubting() from None  # its checksum comes last
            if not rest and not piece and not member.eof:
                raise _corrupt("it ends within a gzip member")
            left = member.unused_data if member.eof else member.unconsumed_tail
            taken, given = taken + len(rest) - len(left), given + len(piece)
            rest = left
            if given > RATIO_FLOOR_BYTES and given > RATIO_MAX * taken:
                raise _corrupt(f"{taken} bytes have become {given}, more than {RATIO_MAX} to one")
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
            raise _corrupt("something other than a gzip member follows its end")
        rest = file.read(PIECE_BYTES)
    return b""


def _corrupt(why: str) -> CorruptObjectError:
    return CorruptObjectError("the gzip file is cut short or altered", why)
