"""A file in the making: in memory up to a limit, then on disk, hashed as it is written.

Objects are written here before they are stored, and fetched to here before they are read, so
nothing that others can see is ever half done.  On disk a spool has no name at all: none can be
guessed, no link can be planted in its place, and a killed process leaves nothing behind.
"""

# ruff: noqa: D102  # the methods of ``io`` mean here what they mean there
import errno
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from kbackup.errors import ConfigurationError, NoSpaceError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_MIB: Final = 1 << 20


def folder() -> Path:
    """Return where spools go when memory is not enough: ``TMPDIR``, else the system's choice.

    Raises:
        ConfigurationError: If no file can be made there.  Another folder is never taken in its
            place: it might be on a disk that was to be spared.
    """
    path = _folder()
    _temporary_file(path).close()
    return path


def free_bytes() -> int:
    """Return what this user may still write to that folder's disk, 0 where nobody can say."""
    try:
        return shutil.disk_usage(_folder()).free
    except OSError:
        return 0


class Spool(io.BufferedIOBase, BinaryIO):
    """A file that is written once, from its start to its end, then read any number of times.

    Not safe to use from several threads.  Writing anywhere but at the end is refused: the
    checksum is taken while the bytes pass.

    Attributes:
        size: Bytes written so far.
        metadata: User metadata of the object that is in it, where whoever fetched it learned it.
    """

    metadata: Mapping[str, str] | None = None

    def __init__(self, memory_bytes: int, *, expected_bytes: int = 0) -> None:
        """Start empty.

        Args:
            memory_bytes: What may stay in memory; 0 for none.
            expected_bytes: Its size at the end, where that is known: it is said when the disk
                is full, and a spool that cannot stay in memory starts on disk.

        Raises:
            ConfigurationError: If ``TMPDIR`` is needed at once and cannot be used.
        """
        self.size = 0
        self._limit = memory_bytes
        self._expected = expected_bytes
        self._hash = hashlib.sha256(usedforsecurity=False)
        self._in_memory = expected_bytes <= memory_bytes
        self._file: BinaryIO = io.BytesIO() if self._in_memory else _temporary_file()

    @property
    def sha256(self) -> str:
        """Of all that was written so far, in hexadecimal."""
        return self._hash.hexdigest()

    @property
    def in_memory(self) -> bool:
        """Whether nothing of it is on disk."""
        return self._in_memory

    @property
    def mode(self) -> str:
        return "w+b"

    def write(self, data: "ReadableBuffer", /) -> int:
        """Append *data*.

        Returns:
            Its length in bytes.

        Raises:
            NoSpaceError: If the disk is full.
            ConfigurationError: If ``TMPDIR`` cannot be used.
        """
        if self.tell() != self.size:
            raise io.UnsupportedOperation("a spool is written at its end only")
        length = memoryview(data).nbytes
        with self._space_for(length):
            if self._in_memory and self.size + length > self._limit:
                self.move_to_disk()
            self._file.write(data)
        self._hash.update(data)
        self.size += length
        return length

    def restart(self) -> None:
        """Forget all that was written."""
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256(usedforsecurity=False)
        self.size = 0

    def read(self, size: int | None = -1, /) -> bytes:
        return self._file.read(-1 if size is None else size)

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        return self._file.readinto(buffer)  # type: ignore[attr-defined, no-any-return]

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._file.readline(-1 if size is None else size)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        with self._space_for(0):  # what is buffered may have to be written first
            return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        if not self._file.closed:
            with self._space_for(0):
                self._file.flush()

    def close(self) -> None:
        """Throw it away."""
        if not self.closed:
            try:
                self._file.close()
            except OSError:  # a full disk; nobody wants the bytes any more
                pass
            finally:
                super().close()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def __enter__(self) -> "Spool":
        return self

    def move_to_disk(self) -> None:
        """Give the memory back; what follows is written to disk too.

        Raises:
            NoSpaceError: If the disk is full.
            ConfigurationError: If ``TMPDIR`` cannot be used.
        """
        if self._in_memory:
            with self._space_for(0):
                memory, self._file = self._file, _temporary_file()
                self._in_memory = False
                self._file.write(memory.getbuffer())  # type: ignore[attr-defined]

    @contextmanager
    def _space_for(self, more: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in _FULL:
                raise
            needed = max(self._expected, self.size + more)
            raise NoSpaceError(
                "no space in TMPDIR",
                f"about {-(-needed // _MIB)} MiB needed",
                "free some, or set TMPDIR to a folder with more",
            ) from error


class Section(io.RawIOBase):
    """A stretch of a seekable file, read as a file of its own; moves the file's position.

    Attributes:
        size: Its length in bytes.
    """

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file, self._start, self.size = file, start, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        self._file.seek(self._start + self._at)
        data = self._file.read(min(len(view), max(0, self.size - self._at)))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def _folder() -> Path:
    return Path(os.environ.get("TMPDIR") or tempfile.gettempdir())


def _temporary_file(path: Path | None = None) -> BinaryIO:
    where = path or _folder()
    try:
        return tempfile.TemporaryFile(prefix="kbackup-", dir=where)
    except OSError as error:
        if error.errno in _FULL:
            raise NoSpaceError(
                "no space in TMPDIR", f"not even for an empty file in {where}", "free some"
            ) from error
        raise ConfigurationError(
            f"TMPDIR={where} cannot be used",
            error.strerror or str(error),
            "set TMPDIR to a folder that can be written to",
        ) from error
