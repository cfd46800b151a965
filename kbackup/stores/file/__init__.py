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
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import file_digest
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote

from kbackup import files
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    ObjectKeyError,
    ObjectNotFoundError,
    StoreError,
)
from kbackup.stores import ObjectHead, StoredObject, StoreSettings
from kbackup.stores.file.disk import (
    HIDDEN,
    Candidates,
    Disk,
    Facts,
    applying,
    etag,
    modified,
    refuse_link,
    sha256_of,
    status,
    walk,
)
from kbackup.stores.file.disk import read as read_facts

NAME_MAX: Final = 255
"""Bytes between two slashes of a key: what Linux file systems take."""

_STALE_SECONDS: Final = 86_400

_LARGE_BYTES: Final = 2**20
"""A body that is larger takes longer to write than a sync waits."""


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
        self._new = self._root / HIDDEN / "new"
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
                moves = files.Moves()
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
        new: "_New",
        beside: Path,
        moves: files.Moves,
        if_absent: bool,
        if_match: str | None,
    ) -> bool:
        there = self._state(new.key, new.path)
        before = None if there is None else applying(there.facts, new.path, with_sha256=True)
        is_same = before is not None and before["sha256"] == new.facts["sha256"]
        is_other = if_absent and there is not None
        if if_match is not None:
            is_other = there is None or there.etag != if_match
        facts_path = self._facts_path(new.key)
        if is_other:
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
        why = f"its sha256 is {found}; {stored[-1]} was stored"
        raise CorruptObjectError(str(path), why, "restore another copy of it")

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """Walk the folders that *prefix* leads to: `Store.list`."""
        with self._errors("list", prefix):
            root = self._root.stat()
            yield from walk(self._root, prefix, after)
            if not os.path.samestat(root, self._root.stat()):
                raise StoreError(f"list {self._root}", "it was unmounted or replaced", "run again")

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
        path = self._root.joinpath(*names)
        with self._errors(verb, key):
            for folder in path.parents[: len(names) - 1]:
                refuse_link(folder)
            yield path

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
        return self._root / HIDDEN / "facts" / key

    def _state(self, key: str, path: Path) -> "_State | None":
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
        files.make_folder(self._root / HIDDEN)
        flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(self._root / HIDDEN / "lock", flags, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)
