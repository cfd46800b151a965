"""What the file system knows of an object."""

import os
import stat
from datetime import UTC, datetime
from hashlib import file_digest
from pathlib import Path

from kbackup.errors import StoreError


def status(path: Path) -> os.stat_result | None:
    """Return what the file system knows of an object; None for a folder or nothing at all."""
    refuse_link(path)
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def status_of(entry: "os.DirEntry[str]") -> os.stat_result | None:
    """Return what `status` does, with one question to the file system in place of two."""
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def refuse_link(path: Path) -> None:
    """Refuse a symbolic link, as it may lead out of the root.

    Raises:
        StoreError: If *path* is one.
    """
    if path.is_symlink():  # left out of a listing, it could hide half a backup
        do = "mount its target in its place, or remove it"
        raise StoreError(f"follow {path}", "it is a symbolic link", do)


def sha256_of(path: Path) -> str:
    """Return the checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def modified(status: os.stat_result) -> datetime:
    """Return when a file was written, aware."""
    return datetime.fromtimestamp(status.st_mtime, UTC)


def etag(status: os.stat_result) -> str:
    """Return what changes whenever another file takes the place."""
    return f"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"
