"""Write files on this host: spools, ones that outlast a power cut, and those in a user's caches.

Objects are written here before they are stored, and fetched to here before they are read, so
nothing that others can see is ever half done.  On disk a spool has no name at all: none can be
guessed, no link can be planted in its place, and a killed process leaves nothing behind.
"""

import errno
import hashlib
import io
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from kbackup.errors import ConfigurationError, LocalServiceError, NoSpaceError, RefusedError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

# ruff: noqa: D102  # the methods of ``io`` mean here what they mean there


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_MIB: Final = 1 << 20


def spool_folder() -> Path:
    """Return where spools go when memory is not enough: ``TMPDIR``, else the system's choice.

    Raises:
        ConfigurationError: If no file can be made there.  Another folder is never taken in its
            place: it might be on a disk that was to be spared.
    """
    _temporary_file().close()
    return _folder()


SPOOL_BYTES: Final = 32 * 2**20
"""What a file that is being written may hold in memory; a sink's task has one filling and one being
stored."""

_scrambles: bool = False


def encrypt_spools() -> None:
    """From now on, keep what spools put on disk encrypted, each with a key that dies with it."""
    global _scrambles  # noqa: PLW0603  (of the process: whatever spools, what is spooled is secret)
    _scrambles = True


class Spool(io.BufferedIOBase, BinaryIO):
    """A file that is written once, from its start to its end, then read any number of times.

    Not safe to use from several threads.  Writing anywhere but at the end is refused: the
    checksum is taken while the bytes pass.

    Attributes:
        metadata: User metadata of the object that is in it, where whoever fetched it learned it.
    """

    metadata: Mapping[str, str] | None = None

    def __init__(
        self, memory_bytes: int, *, expected_bytes: int = 0, is_hashed: bool = True
    ) -> None:
        """Start empty.

        Args:
            memory_bytes: What may stay in memory; 0 for none.
            expected_bytes: Its size at the end, where that is known: it is said when the disk
                is full, and a spool that cannot stay in memory starts on disk.
            is_hashed: Take the checksum, which takes longer than all else.

        Raises:
            ConfigurationError: If ``TMPDIR`` is needed at once and cannot be used.
        """
        self.size = 0
        self._limit = memory_bytes
        self._expected = expected_bytes
        self._hash = hashlib.sha256(usedforsecurity=False)
        self._is_hashed = is_hashed
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
        if self._in_memory and self.size + length > self._limit:
            self.move_to_disk()
        if self._in_memory:
            self._file.write(data)
        else:
            with self._space_for(length):
                self._file.write(data)
        if self._is_hashed:
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
                f"about {-(-needed // _MIB)} MiB needed in {_folder()}",
                "free some, or set TMPDIR to a folder with more",
            ) from error


class DerivedFile(io.RawIOBase):
    """A file whose bytes are read from somewhere else, by their places."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._at = 0

    def bytes_at(self, at: int, most: int) -> bytes:
        """Return at most so many bytes from a place within it on; none where there are no more."""
        raise NotImplementedError

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
        view, done = memoryview(buffer).cast("B"), 0
        while done < len(view) and self._at < self.size:
            data = self.bytes_at(self._at, min(len(view) - done, self.size - self._at))
            if not data:
                break
            view[done : done + len(data)] = data
            done += len(data)
            self._at += len(data)
        return done


class Section(DerivedFile):
    """A stretch of a seekable file, read as a file of its own; moves the file's position."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        super().__init__(size)
        self._file, self._start = file, start

    def bytes_at(self, at: int, most: int) -> bytes:
        """Return bytes of the stretch: `DerivedFile.bytes_at`."""
        self._file.seek(self._start + at)
        return self._file.read(most)


_BLOCK: Final = 1 << 16
_AES_BLOCK: Final = 16


class _Scrambled(io.RawIOBase):
    """A file whose bytes are encrypted on disk, where they keep their places."""

    def __init__(self, raw: io.FileIO) -> None:
        # AES-CTR without a tag: what is read back was written by this process, each place once
        self._raw, self._key = raw, secrets.token_bytes(32)
        self._made: tuple[int, Any] = -1, None  # what is at hand, for which place

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        return self._raw.tell()

    def fileno(self) -> int:
        return self._raw.fileno()

    def truncate(self, size: int | None = None, /) -> int:
        self._key = secrets.token_bytes(32)  # what follows is written to places used before
        self._made = -1, None
        return self._raw.truncate(size)

    def write(self, data: "ReadableBuffer", /) -> int:
        at = self._raw.tell()
        scrambled = self._changed(at, data)
        written = self._raw.write(scrambled)
        while written < len(scrambled):
            written += self._raw.write(memoryview(scrambled)[written:])
        return written

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        at = self._raw.tell()
        view = memoryview(buffer).cast("B")
        length = self._raw.readinto(view)
        view[:length] = self._changed(at, view[:length])
        return length

    def close(self) -> None:
        self._raw.close()
        super().close()

    def _changed(self, at: int, data: "ReadableBuffer") -> bytes:
        """Return *data* encrypted or decrypted, which is one, as what stands at *at*."""
        there, cipher = self._made
        if there != at:
            from cryptography.hazmat.primitives.ciphers import (  # noqa: PLC0415  (an extra)
                Cipher,
                algorithms,
                modes,
            )

            blocks, more = divmod(at, _AES_BLOCK)
            start = modes.CTR(blocks.to_bytes(_AES_BLOCK))
            cipher = Cipher(algorithms.AES(self._key), start).encryptor()
            cipher.update(bytes(more))
        found: bytes = cipher.update(data)
        self._made = at + len(found), cipher
        return found


def _folder() -> Path:
    return Path(os.environ.get("TMPDIR") or tempfile.gettempdir())


def _temporary_file() -> BinaryIO:
    where = _folder()
    try:
        if _scrambles:
            raw = tempfile.TemporaryFile(prefix="kbackup-", dir=where, buffering=0)  # noqa: SIM115
            return io.BufferedRandom(_Scrambled(raw), _BLOCK)
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


_CHUNK: Final = 1 << 20


def file_sha256(file: BinaryIO | DerivedFile) -> bytes:
    """Return the SHA-256 of all of a file; leaves it at its end."""
    digest = hashlib.sha256(usedforsecurity=False)
    file.seek(0)
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.digest()


def write_synced(
    folder: Path, body: BinaryIO, *, prefix: str = "", is_synced: bool = True, mode: int = 0o666
) -> Path:
    """Copy *body* from its start to a new file in *folder*, and sync it unless told not to.

    Its name is *prefix* and random digits, which are no part of any object's key; nobody has more
    rights to it than *mode* says, from the first.
    """
    make_folder(folder)
    new = folder / f"{prefix}{secrets.token_hex(12)}"
    try:
        with open(new, "xb", opener=partial(os.open, mode=mode)) as file:
            body.seek(0)
            while chunk := body.read(_CHUNK):
                file.write(chunk)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return new


def replace_file(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Put *content* in the place of what is at *path*, whole or not at all.

    Args:
        mode: Permissions; None for those of any new file.

    Raises:
        OSError: If it cannot be written; an old file is then as it was.
    """
    new = write_synced(path.parent, io.BytesIO(content), prefix=f".{path.name}.")
    try:
        if mode is not None:
            new.chmod(mode)
        move_synced(new, path)
    finally:
        new.unlink(missing_ok=True)


def read_private(path: Path, what: str) -> bytes:
    """Return a file that its owner alone may read.

    Args:
        what: What it holds, for the error.

    Raises:
        OSError: If it cannot be read.
        RefusedError: If others may read it.
    """
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o177:
            raise RefusedError(
                f"{path} has mode {mode:04o}",
                f"others than its owner may read or use {what}",
                f"chmod 600 {path}; and change {what} if others may have read the file",
            )
        return file.read()


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that its owner alone may read, and put it on the disk.

    Raises:
        OSError: If it is there, or cannot be written.
    """
    new = write_synced(path.parent, io.BytesIO(content), prefix=f".{path.name}.", mode=0o600)
    try:
        move_synced(new, path, replace=False)
    finally:
        new.unlink(missing_ok=True)


def move_synced(new: Path, path: Path, *, replace: bool = True) -> None:
    """Give a file its name, whole at once, and sync its folder.

    Raises:
        FileExistsError: If not *replace*, and the name is taken.
    """
    moves = PendingMoves()
    moves.move(new, path, replace=replace)
    moves.sync()


class PendingMoves:
    """Files that get their names together, and last only once all of them are synced.

    Syncing them all at once takes about one wait for the disk, not one for each.
    """

    def __init__(self) -> None:
        self._folders: dict[Path, None] = {}

    def move(self, new: Path, path: Path, *, replace: bool = True) -> None:
        """Give a file its name, whole at once, its folders made if need be.

        Raises:
            FileExistsError: If not *replace*, and the name is taken.
        """
        self._make_folder(path.parent)
        if replace:
            new.replace(path)
        else:
            path.hardlink_to(new)
            new.unlink()
        self.add(path.parent)

    def add(self, folder: Path) -> None:
        """Sync *folder* too: another process may have moved a file there and not come so far."""
        self._folders[folder] = None

    def take(self) -> list[Path]:
        """Return the folders to sync, which is left to the caller."""
        folders, self._folders = [*self._folders], {}
        return folders

    def sync(self) -> None:
        """Put all the names on the disk."""
        sync(*self.take())

    def _make_folder(self, path: Path) -> None:
        if not path.is_dir():
            self._make_folder(path.parent)
            path.mkdir(exist_ok=True)
            self.add(path.parent)


def make_folder(path: Path) -> None:
    """Create a folder and those above it, each synced."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def sync(*paths: Path) -> None:
    """Put files, and the names in folders, on the disk: side by side, so that they share a wait."""
    if len(paths) > 1:
        with ThreadPoolExecutor(len(paths)) as pool:
            list(pool.map(sync, paths))
        return
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def user_cache() -> Path | None:
    """Return kbackup's folder among the user's caches; nothing is made or looked at.

    None where the user has no home, as in a container.
    """
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # a relative path there is to be ignored: XDG Base Directory Specification, "Basics"
    if xdg.is_absolute():
        return xdg / "kbackup"
    try:
        return Path("~/.cache/kbackup").expanduser()
    except RuntimeError:
        return None


def cache_path() -> Path:
    """Return where the cache is or would be, without creating or checking it.

    Raises:
        LocalServiceError: If this user has no home.
    """
    if ours := os.environ.get("KBACKUP_CACHE_DIR"):
        return Path(ours).absolute()
    found = user_cache()
    if found is None:
        raise _unusable_cache(Path("~/.cache/kbackup"), "HOME is not set")
    return found


def cache_directory() -> Path:
    """Return the user's cache for kbackup, creating it if necessary.

    ``KBACKUP_CACHE_DIR``, else ``$XDG_CACHE_HOME/kbackup``, else ``~/.cache/kbackup``.

    Raises:
        LocalServiceError: If it cannot be created or written to.
    """
    path = cache_path()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable_cache(path, error) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise _unusable_cache(path, "no permission to write there")
    return path


def _unusable_cache(path: Path, why: object) -> LocalServiceError:
    return LocalServiceError(
        f"the cache {path} cannot be used",
        str(why),
        "set KBACKUP_CACHE_DIR to a directory that you may write to",
    )
