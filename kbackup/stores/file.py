"""``file:///FOLDER``: a folder, on this host or mounted.

An object is a file below the folder, at its key.  Beside them is one hidden folder::

    .kbackup/facts/<key>     its metadata, as a JSON list of mostly one
    .kbackup/new/<random>    bodies on their way, moved to their key once they are on the disk
    .kbackup/lock            held while a body is moved and its facts are written

An object and its facts are two files, and no file system replaces two at once.  So new facts are
written first, beside those of the object that is still there, and the content's own checksum
decides which of them apply.
"""

import errno
import fcntl
import io
import json
import logging
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import file_digest
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias
from urllib.parse import unquote

from kbackup import files
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    ObjectKeyError,
    ObjectNotFoundError,
    StoreError,
)
from kbackup.stores import ObjectHead, StoredObject, StoreSettings, is_kept

_log: Final = logging.getLogger(__name__)

HIDDEN: Final = ".kbackup"
"""The store's own folder; no key begins with it, and nothing in it is listed."""

NAME_MAX: Final = 255
"""Bytes between two slashes of a key: what Linux file systems take."""

_STALE_SECONDS: Final = 86_400

_LARGE_BYTES: Final = 2**20
"""A body that is larger takes longer to write than a sync waits."""

_THREADS: Final = 16
"""Syncs of a round that wait side by side: of eight objects, their bodies and their facts."""

_NAMED_MOST: Final = 20_000
"""Folders whose names are remembered as synced."""

Facts: TypeAlias = dict[str, str]
"""Metadata of one object, its ``sha256`` among it."""

Candidates: TypeAlias = list[Facts]
"""All that may apply to what is under a key; the content's own checksum decides."""


@dataclass(frozen=True, slots=True)
class _State:
    """What is found under a key at one time; another task may change it at any time."""

    size: int
    modified: datetime  # when it was moved there
    etag: str  # another one after each put
    facts: Candidates  # all that may apply to it


@dataclass(frozen=True, slots=True)
class _New:
    """An object on its way: its key, its place, the file its body is in, and its facts."""

    key: str
    path: Path
    body: Path
    facts: Facts


class _Opened(io.BufferedReader):
    """An object's file, with what is known of it."""

    metadata: Facts


class FileStore:
    """Objects in one folder, which must exist: a mount that is missing is not an empty backup."""

    @staticmethod
    def check_url(url: str) -> None:
        """Refuse what is no folder's full path, and the root."""
        path = url.partition("://")[2]
        if not path.startswith("/") or path.strip("/") == "":
            raise ValueError("expected a folder's full path: file:///FOLDER")

    def __init__(self, settings: StoreSettings) -> None:
        """Remember the folder; it is not looked at yet.

        Raises:
            ConfigurationError: If the URL is not that of a folder on this host.
        """
        host, slash, path = settings.url.partition("://")[2].partition("/")
        if not slash or unquote(host) not in ("", "localhost"):
            do = "write file:///FOLDER, with three slashes"
            raise ConfigurationError(f"{settings.url!r} is not a local folder", do=do)
        self._root = Path("/", unquote(path))
        self._hidden = self._root / HIDDEN
        self._new, self._facts = self._hidden / "new", self._hidden / "facts"
        self._disk = Disk()
        self._has_swept = False

    def put(
        self,
        key: str,
        body: BinaryIO,
        *,
        sha256: str,
        metadata: Mapping[str, str],
        if_absent: bool = False,
        if_match: str | None = None,
    ) -> bool:
        """Copy, sync, then move: `Store.put`.  A body that differs from *sha256* is refused."""
        facts = {**metadata, "sha256": sha256}
        with self._at(key, "write") as path:
            self._sweep()
            new = _New(key, path, files.write_synced(self._new, body, is_synced=False), facts)
            beside = None
            try:
                if (found := sha256_of(new.body)) != sha256:
                    raise StoreError(f"write {path}", f"its sha256 is {found}, not {sha256}")
                beside = self._written([facts], is_synced=False)
                # Whole on the disk before they have their names; what has its name on the disk
                # before this returns is there after a power cut, whatever is committed on it.
                if new.body.stat().st_size > _LARGE_BYTES:
                    files.sync(new.body)  # no round of small files waits for it
                    self._disk.sync(beside)
                else:
                    self._disk.sync(new.body, beside)
                moves = files.PendingMoves()
                with self._exclusive():
                    done = self._move_in(new, beside, moves, if_absent, if_match)
                if done:
                    folders = path.parent, self._facts_path(key).parent
                    self._disk.sync_names(moves, folders, self._root)
                return done
            finally:
                for left in (new.body, beside):
                    if left is not None:
                        left.unlink(missing_ok=True)

    def _move_in(
        self,
        new: _New,
        beside: Path,
        moves: files.PendingMoves,
        if_absent: bool,
        if_match: str | None,
    ) -> bool:
        there = self._state(new.key, new.path)
        before = None if there is None else applying(there.facts, new.path, with_sha256=True)
        is_same = before is not None and before["sha256"] == new.facts["sha256"]
        etag_there = None if there is None else there.etag
        facts_path = self._facts_path(new.key)
        if is_kept(etag_there, if_absent=if_absent, if_match=if_match):
            if is_same and there is not None:
                moves.add(new.path.parent)  # whoever stored it may not have come so far
                if there.facts:
                    moves.add(facts_path.parent)
                else:  # those of a power cut between the two, or put by others
                    moves.move(beside, facts_path)
            return is_same
        if before is not None and not is_same:
            files.move_synced(self._written([before, new.facts]), facts_path)
            files.move_synced(new.body, new.path)
            moves.move(beside, facts_path)
            return True
        if there is not None or read_facts(facts_path, new.key):
            # The facts of another body are never left beside this one, whatever breaks.
            files.move_synced(beside, facts_path)
        else:
            moves.move(beside, facts_path)
        try:
            moves.move(new.body, new.path, replace=not if_absent)
        except FileExistsError:
            if status(new.path) is None:
                raise
            return False  # another host's, which our lock does not keep out
        return True

    def open(self, key: str) -> BinaryIO:
        """Return the file itself, read through once if a checksum is known: `Store.open`."""
        with self._at(key, "read") as path:
            while True:
                before = self._state(key, path)
                if before is None:
                    raise ObjectNotFoundError(f"read {path}", "no such file")
                try:
                    file = _Opened(io.FileIO(path))
                except FileNotFoundError:  # deleted since
                    continue
                stored = {facts["sha256"]: facts for facts in before.facts}
                found = file_digest(file, "sha256").hexdigest() if stored else ""
                if not stored or found in stored:
                    file.seek(0)
                    file.metadata = stored.get(found, {})
                    return file
                file.close()
                if self._state(key, path) == before:  # else a writer came between
                    break
        why = f"its sha256 is {found}; {[*stored][-1]} was stored"
        raise CorruptObjectError(str(path), why, "replace it with another copy")

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """Walk the folders that *prefix* leads to: `Store.list`."""
        with self._errors("list", prefix):
            root = self._root.stat()
            yield from walk(self._root, prefix, after)
            if not os.path.samestat(root, self._root.stat()):
                raise StoreError(
                    f"list {self._root}", "it was unmounted or replaced", "run the command again"
                )

    def head(self, key: str) -> ObjectHead | None:
        """Return size, time and facts: `Store.head`."""
        with self._at(key, "read") as path:
            while (before := self._state(key, path)) is not None:
                try:
                    metadata = applying(before.facts, path)
                except FileNotFoundError:  # deleted since
                    continue
                if self._state(key, path) == before:  # else a writer came between
                    return ObjectHead(before.size, before.modified, before.etag, metadata)
        return None

    def delete(self, key: str) -> None:
        """Remove the file and its facts; folders stay: `Store.delete`."""
        with self._at(key, "delete") as path:
            if status(path) is not None:
                with self._exclusive():
                    path.unlink(missing_ok=True)
                    files.sync(path.parent)
                    self._facts_path(key).unlink(missing_ok=True)

    def check_name(self, key: str) -> None:
        """Refuse what would leave the folder, or is no file's name: `Names`."""
        for name in key.split("/"):
            if name in ("", ".", "..") or "\0" in name:
                raise ObjectKeyError(key, f"a file cannot be named {name!r}", "store it in S3")
            if len(os.fsencode(name)) > NAME_MAX:
                why = f"a segment of it is longer than the {NAME_MAX} bytes a file name may have"
                raise ObjectKeyError(key, why, "store it in S3")

    @contextmanager
    def _at(self, key: str, verb: str) -> Iterator[Path]:
        """Yield the file for *key*, which is below the root whatever the key says."""
        self.check_name(key)
        names = key.split("/")
        if names[0] == HIDDEN:
            raise ObjectKeyError(
                key, f"{HIDDEN} is reserved for the store", "choose another topics.dir"
            )
        folder = self._root
        with self._errors(verb, key):
            for name in names[:-1]:
                folder /= name
                refuse_link(folder)
            yield folder / names[-1]

    @contextmanager
    def _errors(self, verb: str, about: str) -> Iterator[None]:
        try:
            if not self._root.is_dir():
                why, do = "no such folder", f"mount it, or create it: mkdir -p {self._root}"
                if self._root.exists():
                    why, do = "it is a file, not a folder", "name the folder that the backup is in"
                raise StoreError(f"{verb} {self._root}", why, do)
            yield
        except OSError as error:
            do = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            what = f"{verb} {self._root / about}"
            raise StoreError(what, error.strerror or str(error), do) from error

    def _facts_path(self, key: str) -> Path:
        return self._facts / key

    def _state(self, key: str, path: Path) -> _State | None:
        """Return what is there and all that may apply to it; None where nothing is."""
        known = read_facts(self._facts_path(key), key)
        found = status(path)
        if found is None:
            return None
        return _State(found.st_size, modified(found), etag(found), known)

    def _written(self, facts: Candidates, *, is_synced: bool = True) -> Path:
        text = json.dumps(facts).encode()
        return files.write_synced(self._new, io.BytesIO(text), is_synced=is_synced)

    def _sweep(self) -> None:
        """Remove, once, what a killed process left behind at least a day ago."""
        if not self._has_swept and self._new.is_dir():
            for left in self._new.iterdir():
                with suppress(FileNotFoundError):  # its own task has moved it since
                    if left.stat().st_mtime < time.time() - _STALE_SECONDS:
                        left.unlink()
        self._has_swept = True

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        files.make_folder(self._hidden)
        flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(self._hidden / "lock", flags, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


class Disk:
    """The syncs of one store, for all threads together.  Safe to use from several threads.

    A sync is a wait, mostly for the journal of the file system, and a few waits side by side take
    as long as one.  So what threads ask for meanwhile is synced in one round, each folder once.

    Each put still returns once its object would outlast a power cut, so whoever enters it into a
    ledger or commits an offset after it needs no other order.  To wait until the commit would save
    no more: an object in a partition's folder of its own needs four syncs, of two files and of two
    folders.

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

    def sync_names(self, moves: files.PendingMoves, folders: Iterable[Path], root: Path) -> None:
        """Put the names that *moves* gave on the disk, and those of the folders they are in.

        A folder that is found there may be another thread's, or a killed process's, whose name was
        never synced.  So each is synced into the one above it, once for each store, but for the
        *root*, which is there.
        """
        above = set[Path]()
        for folder in folders:
            at = folder
            while at != root and at not in self._named and at not in above:
                above.add(at)
                at = at.parent
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
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(found.st_mode):
        refuse_link(path)
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


def read_facts(path: Path, key: str) -> Candidates:
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
        raise CorruptObjectError(str(path), "kbackup did not write it", do, key=key) from error


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
    """Return the folder that a prefix ends in, `None` where no key can begin so."""
    folder, names = root, prefix.split("/")[:-1]
    if "\0" in prefix or names[:1] == [HIDDEN] or {"", ".", ".."}.intersection(names):
        return None
    # these are not read: one may hold thousands
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
