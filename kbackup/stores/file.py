"""``file:///FOLDER``: a folder, on this host or mounted.

An object is a file below the folder, at its key.  Beside them lies one hidden folder::

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
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import file_digest
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias
from urllib.parse import unquote

from kbackup import durable
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    ObjectKeyError,
    ObjectNotFoundError,
    StoreError,
)
from kbackup.stores import ObjectHead, StoredObject, StoreSettings

_log: Final = logging.getLogger(__name__)

HIDDEN: Final = ".kbackup"
"""The store's own folder; no key begins with it, and nothing in it is listed."""

NAME_MAX: Final = 255
"""Bytes between two slashes of a key: what Linux file systems take."""

_Facts: TypeAlias = dict[str, str]
_Candidates: TypeAlias = list[_Facts]


_STALE_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class _State:
    """What is found under a key at one time; another task may change it at any time.

    Attributes:
        size: Bytes.
        modified: When it was moved there.
        etag: Another one after each put.
        facts: All that may apply to it.
    """

    size: int
    modified: datetime
    etag: str
    facts: _Candidates


class FileStore:
    """Objects in one folder, which must exist: a mount that is missing is not an empty backup."""

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
        self._new = self._root / HIDDEN / "new"
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
            new = durable.write(self._new, body)
            try:
                if (found := _sha256(new)) != sha256:
                    raise StoreError(f"write {path}", f"its sha256 is {found}, not {sha256}")
                with self._exclusive():
                    return self._move_in(new, key, path, facts, if_absent, if_match)
            finally:
                new.unlink(missing_ok=True)

    def _move_in(
        self,
        new: Path,
        key: str,
        path: Path,
        facts: _Facts,
        if_absent: bool,
        if_match: str | None,
    ) -> bool:
        there = self._state(key, path)
        before = None if there is None else _applying(there.facts, path, with_sha256=True)
        is_same = before is not None and before["sha256"] == facts["sha256"]
        is_other = if_absent and there is not None
        if if_match is not None:
            is_other = there is None or there.etag != if_match
        if is_other:
            return is_same
        both = [facts] if before is None or is_same else [before, facts]
        self._write_facts(key, both)
        try:
            durable.move(new, path, replace=not if_absent)
        except FileExistsError:  # by a host that our lock does not keep out
            return False
        if len(both) > 1:
            self._write_facts(key, [facts])
        return True

    def open(self, key: str) -> BinaryIO:
        """Return the file itself, read through once if a checksum is known: `Store.open`."""
        with self._at(key, "read") as path:
            while True:
                before = self._state(key, path)
                if before is None:
                    raise ObjectNotFoundError(f"read {path}", "no such file")
                try:
                    file = path.open("rb")
                except FileNotFoundError:  # deleted since
                    continue
                stored = [facts["sha256"] for facts in before.facts]
                found = file_digest(file, "sha256").hexdigest() if stored else ""
                if not stored or found in stored:
                    file.seek(0)
                    return file
                file.close()
                if self._state(key, path) == before:  # else a writer came between
                    break
        why = f"its sha256 is {found}, stored was {stored[-1]}"
        raise CorruptObjectError(str(path), why, "restore another copy of it")

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Walk the folders that *prefix* leads to: `Store.list`."""
        with self._errors("list", prefix):
            root = self._root.stat()
            yield from self._walk(prefix)
            if not os.path.samestat(root, self._root.stat()):
                raise StoreError(f"list {self._root}", "it was unmounted or replaced", "run again")

    def head(self, key: str) -> ObjectHead | None:
        """Return size, time and facts: `Store.head`."""
        with self._at(key, "read") as path:
            while (before := self._state(key, path)) is not None:
                try:
                    metadata = _applying(before.facts, path)
                except FileNotFoundError:  # deleted since
                    continue
                if self._state(key, path) == before:  # else a writer came between
                    return ObjectHead(before.size, before.modified, before.etag, metadata)
        return None

    def delete(self, key: str) -> None:
        """Remove the file and its facts; folders stay: `Store.delete`."""
        with self._at(key, "delete") as path:
            if _status(path) is not None:
                with self._exclusive():
                    path.unlink(missing_ok=True)
                    durable.sync(path.parent)
                    self._facts_path(key).unlink(missing_ok=True)

    @contextmanager
    def _at(self, key: str, verb: str) -> Iterator[Path]:
        """Yield the file for *key*, which lies below the root whatever the key says."""
        names = key.split("/")
        for name in names:
            if name in ("", ".", "..") or "\0" in name:
                raise ObjectKeyError(key, f"a file cannot be named {name!r}", "store it in S3")
            if len(os.fsencode(name)) > NAME_MAX:
                why = f"a name in it is longer than the {NAME_MAX} bytes that a file's may have"
                raise ObjectKeyError(key, why, "store it in S3")
        if names[0] == HIDDEN:
            raise ObjectKeyError(key, f"{HIDDEN} is the store's own", "choose another topics.dir")
        path = self._root.joinpath(*names)
        with self._errors(verb, key):
            for folder in path.parents[: len(names) - 1]:
                _refuse_link(folder)
            yield path

    @contextmanager
    def _errors(self, verb: str, about: str) -> Iterator[None]:
        if not self._root.is_dir():
            do = f"mount it, or create it: mkdir -p {self._root}"
            raise StoreError(f"{verb} {self._root}", "no such folder", do)
        try:
            yield
        except OSError as error:
            do = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            what = f"{verb} {self._root / about}"
            raise StoreError(what, error.strerror or str(error), do) from error

    def _walk(self, prefix: str) -> Iterator[StoredObject]:
        """Yield what is below the root, in the order of whole keys."""
        open_folders = [_in_order(self._root, "", prefix)]
        while open_folders:
            key, entry = next(open_folders[-1], ("", None))
            if entry is None:
                open_folders.pop()
            elif key.endswith("/"):
                if key != f"{HIDDEN}/":
                    open_folders.append(_in_order(entry.path, key, prefix))
            elif entry.is_symlink():
                _refuse_link(Path(entry.path))
            elif not _is_text(key):
                _log.warning("%s is not listed: its name is not UTF-8", ascii(entry.path))
            elif key.startswith(prefix) and (status := _status_of(entry)) is not None:
                yield StoredObject(key, status.st_size, _modified(status), _etag(status))

    def _facts_path(self, key: str) -> Path:
        return self._root / HIDDEN / "facts" / key

    def _candidates(self, key: str) -> _Candidates:
        """Read the facts written for *key*; none for an object that others have put there."""
        path = self._facts_path(key)
        do = "remove it, and the object counts as one that others have put there"
        try:
            return _parsed(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return []
        except (ValueError, RecursionError) as error:
            raise CorruptObjectError(str(path), "no facts of ours", do, key=key) from error

    def _state(self, key: str, path: Path) -> "_State | None":
        """Return what is there and all that may apply to it; None where nothing is."""
        facts = self._candidates(key)
        found = _status(path)
        if found is None:
            return None
        return _State(found.st_size, _modified(found), _etag(found), facts)

    def _write_facts(self, key: str, facts: _Candidates) -> None:
        new = durable.write(self._new, io.BytesIO(json.dumps(facts).encode()))
        durable.move(new, self._facts_path(key))

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
        durable.make_folder(self._root / HIDDEN)
        flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(self._root / HIDDEN / "lock", flags, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _applying(candidates: _Candidates, path: Path, *, with_sha256: bool = False) -> _Facts:
    """Return those facts of *candidates* that apply to the object at *path*."""
    if len(candidates) == 1:
        return candidates[0]
    if not candidates and not with_sha256:
        return {}
    found = _sha256(path)
    return next((f for f in candidates if f["sha256"] == found), {"sha256": found})


def _status(path: Path) -> os.stat_result | None:
    """Return what the file system knows of an object; None for a folder or nothing at all."""
    _refuse_link(path)
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _in_order(folder: Path | str, at: str, prefix: str) -> "Iterator[tuple[str, os.DirEntry[str]]]":
    """Return what *prefix* leads to in a folder whose key is *at*, keys of folders with a slash.

    A folder that somebody has removed since it was listed holds nothing.
    """
    found = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            key = at + entry.name
            if key.startswith(prefix) or prefix.startswith(f"{key}/"):
                is_folder = entry.is_dir(follow_symlinks=False)
                found.append((f"{key}/" if is_folder else key, entry))
    found.sort(key=lambda pair: os.fsencode(pair[0]))
    return iter(found)


def _status_of(entry: "os.DirEntry[str]") -> os.stat_result | None:
    """Return what `_status` does, with one question to the file system in place of two."""
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _refuse_link(path: Path) -> None:
    if path.is_symlink():  # left out of a listing, it could hide half a backup
        do = "mount what it points to in its place, or remove it"
        raise StoreError(f"follow {path}", "it is a symbolic link", do)


def _parsed(text: bytes) -> _Candidates:
    facts = json.loads(text)
    if not isinstance(facts, list) or not all(map(_are_facts, facts)):
        raise ValueError("not a list of facts")
    return facts


def _are_facts(entry: object) -> bool:
    is_text = isinstance(entry, dict) and all(isinstance(text, str) for text in entry.values())
    return is_text and "sha256" in entry  # type: ignore[operator]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _modified(status: os.stat_result) -> datetime:
    return datetime.fromtimestamp(status.st_mtime, UTC)


def _etag(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"


def _is_text(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True
