"""Gzip around a whole file: written as Java writes it, read from anywhere.

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
    _errors: Any = (igzip_lib.IsalError, zlib.error)
except ImportError:  # no wheel for this machine
    _inflate = zlib
    _errors = zlib.error

PIECE_BYTES: Final = 2**18
"""What `inflate` yields at most at a time."""

RATIO_MAX: Final = 1000
"""How many bytes one byte of a file may become..."""

RATIO_FLOOR_BYTES: Final = 64 * 2**20
"""...once it has become this many."""

_MAGIC: Final = b"\x1f\x8b"
_HEADER: Final = _MAGIC + b"\x08\x00\x00\x00\x00\x00\x00\xff"  # deflate, no time, system unknown
_STORED_BYTES: Final = 2**16


class GzipWriter:
    """One gzip member, byte for byte what ``GZIPOutputStream`` over zlib writes.

    zlib gives the bytes of the JDK at every level, isal at none, so the speed of isal (320 MB/s
    of JSON lines against 34 MB/s at the default level and 10 at level 9) is out of reach here:
    objects in the connectors' layout are promised to be the connectors' to the byte.

    Args:
        file: Where the member goes; not closed here.
        level: 0 to 9, or -1 for zlib's default, 6.
    """

    def __init__(self, file: BinaryIO, level: int) -> None:
        self._file = file
        self._deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._stored = bytearray() if level == 0 else None
        self._crc = self._size = 0
        file.write(_HEADER)

    def write(self, data: memoryview) -> None:
        """Add *data*; how it is spread over calls does not show in the member."""
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        if self._stored is None:
            self._file.write(self._deflate.compress(data))
            return
        self._stored += data  # level 0 alone cuts its blocks where calls end
        while len(self._stored) >= _STORED_BYTES:
            self._file.write(self._deflate.compress(self._stored[:_STORED_BYTES]))
            del self._stored[:_STORED_BYTES]

    def finish(self) -> None:
        """Complete the member."""
        if self._stored:
            self._file.write(self._deflate.compress(self._stored))
        self._file.write(self._deflate.flush())
        self._file.write(struct.pack("<II", self._crc, self._size & 0xFFFFFFFF))


def inflate(file: BinaryIO) -> Iterator[bytes]:
    """Yield what a file of one or more gzip members holds, in pieces of `PIECE_BYTES` at most.

    Zeros behind the last member are padding, as tapes and block devices leave it.

    Raises:
        CorruptObjectError: If it is cut short, fails its checksum or length, goes on with
            something else, or grows beyond `RATIO_MAX`.
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
                raise _corrupt(str(error)) from None
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
    """Return what follows a member, b"" at the end of the file or where only zeros follow."""
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
