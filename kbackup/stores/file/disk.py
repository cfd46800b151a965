"""Files on the disk: put there for all threads together, listed in the order of keys.

A sync is a wait, mostly for the journal of the file system, and a few waits side by side take as
long as one.  So what threads ask for meanwhile is synced in one round, each folder of it once.

Each put still returns once its object would outlast a power cut, so whoever enters it into a ledger
or commits an offset after it needs no other order.  To wait until the commit would save no more: an
object in a partition's folder of its own needs four syncs, of two files and of two folders.
"""

import json
import logging
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import file_digest
from pathlib import Path
from typing import Final, TypeAlias

from kbackup import files
from kbackup.errors import CorruptObjectError, StoreError
from kbackup.stores import StoredObject

_THREADS: Final = 16
"""Syncs of a round that wait side by side: of eight objects, their bodies and their facts."""

_NAMED_MOST: Final = 20_000
"""Folders whose names are remembered as synced."""


class Disk:
    """The syncs of one store.  Safe to use from several threads.

    What was written or moved before `sync` was called is on the disk once it returns: a round
    takes only what was asked for before it began.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS)
        self._asking = threading.Lock()  # guards the next round
        self._syncing = threading.Lock()  # held while a round goes on
        self._next = _Round()
        self._named: set[Path] = set()

    def sync(self, *paths: Path) -> None:
        """Put files, or the names in folders, on the disk; return once they are.

        Raises:
            OSError: If one of *paths* cannot be; what others ask for is none of the caller's.
        """
        with self._asking:
            mine = self._next
            mine.take(paths)
        with self._syncing:
            if not mine.is_over:  # else another thread has synced for this one
                with self._asking:
                    self._next = _Round()
                mine.sync(self._pool)
        mine.check(paths)

    def sync_names(self, moves: files.Moves, folders: Iterable[Path], root: Path) -> None:
        """Put the names that *moves* gave on the disk, and those of the folders they are in.

        A folder that is found there may be another thread's, or a killed process's, whose name was
        never synced.  So each is synced into the one above it, once for each store.

        Args:
            moves: What was moved; `durable.Moves.take` names their folders.
            folders: Where to.
            root: The store's, which is there.
        """
        above = {
            at
            for folder in folders
            for at in (folder, *folder.parents)
            if at != root and at.is_relative_to(root) and at not in self._named
        }
        self.sync(*{*moves.take(), *(at.parent for at in above)})
        if len(self._named) >= _NAMED_MOST:  # of dated folders there is no end
            self._named.clear()
        self._named |= above


class _Round:
    """Paths that are synced together."""

    def __init__(self) -> None:
        self._done: dict[Path, Future[None]] = {}
        self._paths: dict[Path, None] = {}
        self.is_over = False

    def take(self, paths: Iterable[Path]) -> None:
        """Take in what to sync."""
        self._paths.update(dict.fromkeys(paths))

    def sync(self, pool: ThreadPoolExecutor) -> None:
        """Sync all of it; `check` says what came of it."""
        self._done = {path: pool.submit(files.sync, path) for path in self._paths}
        for done in self._done.values():
            done.exception()
        self.is_over = True

    def check(self, paths: Iterable[Path]) -> None:
        """Raise the first error of *paths*."""
        for path in paths:
            self._done[path].result()


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


Facts: TypeAlias = dict[str, str]
"""Metadata of one object, its ``sha256`` among it."""

Candidates: TypeAlias = list[Facts]
"""All that may apply to what is under a key; the content's own checksum decides."""


def read(path: Path, key: str) -> Candidates:
    """Read the facts written for *key*; none for an object that another tool put there.

    Raises:
        CorruptObjectError: If what is at *path* was not written here.
    """
    do = "remove it; the object then counts as one that another tool stored"
    try:
        return _parsed(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return []
    except (ValueError, RecursionError) as error:
        raise CorruptObjectError(str(path), "no facts of ours", do, key=key) from error


def applying(candidates: Candidates, path: Path, *, with_sha256: bool = False) -> Facts:
    """Return those facts of *candidates* that apply to the object at *path*."""
    if len(candidates) == 1:
        return candidates[0]
    if not candidates and not with_sha256:
        return {}
    found = sha256_of(path)
    return next((f for f in candidates if f["sha256"] == found), {"sha256": found})


def _parsed(text: bytes) -> Candidates:
    facts = json.loads(text)
    if not isinstance(facts, list) or not all(map(_are_facts, facts)):
        raise ValueError("not a list of facts")
    return facts


def _are_facts(entry: object) -> bool:
    is_text = isinstance(entry, dict) and all(isinstance(text, str) for text in entry.values())
    return is_text and "sha256" in entry  # type: ignore[operator]


_log: Final = logging.getLogger(__name__)

HIDDEN: Final = ".kbackup"
"""The store's own folder; no key begins with it, and nothing in it is listed."""


def walk(root: Path, prefix: str, after: str = "") -> Iterator[StoredObject]:
    """Yield what is below *root* under *prefix*, behind *after*, by key as UTF-8 bytes.

    Raises:
        StoreError: If a symbolic link is on the way.
    """
    folder, at = _folder(root, prefix), prefix[: prefix.rfind("/") + 1]
    open_folders = [] if folder is None else [_in_order(folder, at, prefix)]
    while open_folders:
        key, entry = next(open_folders[-1], ("", None))
        if entry is None:
            open_folders.pop()
        elif key.endswith("/"):
            if key != f"{HIDDEN}/":
                open_folders.append(_in_order(entry.path, key, prefix))
        elif entry.is_symlink():
            refuse_link(Path(entry.path))
        elif not _is_text(key):
            _log.warning("%s is not listed: its name is not UTF-8", ascii(entry.path))
        elif key > after and key.startswith(prefix) and (status := status_of(entry)) is not None:
            yield StoredObject(key, status.st_size, modified(status), etag(status))


def _folder(root: Path, prefix: str) -> Path | None:
    """Return the folder that a prefix ends in, `None` where no key can begin so.

    The folders on the way are not read: one may hold thousands.
    """
    folder, names = root, prefix.split("/")[:-1]
    if "\0" in prefix or names[:1] == [HIDDEN] or {"", ".", ".."}.intersection(names):
        return None
    for name in names:
        folder /= name
        refuse_link(folder)
    return folder


def _in_order(folder: Path | str, at: str, prefix: str) -> "Iterator[tuple[str, os.DirEntry[str]]]":
    """Return what *prefix* leads to in a folder whose key is *at*, keys of folders with a slash."""
    found = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            key = at + entry.name
            if key.startswith(prefix) or prefix.startswith(f"{key}/"):
                is_folder = entry.is_dir(follow_symlinks=False)
                found.append((f"{key}/" if is_folder else key, entry))
    found.sort(key=lambda pair: os.fsencode(pair[0]))
    return iter(found)


def _is_text(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True
