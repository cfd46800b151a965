"""``sqlite:///PATH.db``: objects in one SQLite file, on a disk that all tasks of a run share."""

import io
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from hashlib import sha256 as checksum
from typing import BinaryIO

from kbackup_sqlite_options import TIMEOUT

from kbackup.errors import CorruptObjectError, ObjectNotFoundError, StoreError
from kbackup.stores import ObjectHead, StoredObject, StoreSettings

_TABLE = (
    "CREATE TABLE IF NOT EXISTS objects (key BLOB PRIMARY KEY, body BLOB, modified TEXT,"
    " metadata TEXT, version INTEGER)"
)


class SqliteStore:
    """One row per object; SQLite's transactions make each put all or nothing."""

    @staticmethod
    def check_url(url: str) -> None:
        """Expect a file's full path."""
        if not url.startswith("sqlite:///") or url.endswith("/"):
            raise ValueError("expected a file's full path: sqlite:///PATH.db")

    def __init__(self, settings: StoreSettings) -> None:
        self._path = settings.url.removeprefix("sqlite://")
        self._timeout_s = TIMEOUT.of(settings.options)

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
        """Write a row, and check for an existing one in the same transaction."""
        body.seek(0)
        data = body.read()
        if checksum(data).hexdigest() != sha256:
            raise StoreError(f"put {key}", "the body does not match its sha256")
        facts = json.dumps({**metadata, "sha256": sha256})
        with self._connected() as database:
            database.execute("BEGIN IMMEDIATE")
            there = self._head(database, key)
            if there is not None and there.metadata["sha256"] == sha256 and if_absent:
                return True
            if if_absent and there is not None:
                return False
            if if_match is not None and (there is None or there.etag != if_match):
                return there is not None and there.metadata["sha256"] == sha256
            version = 1 if there is None else int(there.etag) + 1
            row = key.encode(), data, datetime.now(UTC).isoformat(), facts, version
            database.execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", row)
        return True

    def open(self, key: str) -> BinaryIO:
        """Read a row and verify its checksum."""
        with self._connected() as database:
            row = database.execute(
                "SELECT body, metadata FROM objects WHERE key = ?", [key.encode()]
            ).fetchone()
        if row is None:
            raise ObjectNotFoundError(f"no object {key}", key=key)
        if checksum(row[0]).hexdigest() != json.loads(row[1])["sha256"]:
            raise CorruptObjectError(key, "its bytes are not the ones that were stored", key=key)
        return io.BytesIO(row[0])

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """Read the keys: BLOBs are in the order of their bytes."""
        start = prefix.encode()
        with self._connected() as database:
            rows = database.execute(
                "SELECT key, length(body), modified, version FROM objects"
                " WHERE substr(key, 1, ?) = ? AND key > ? ORDER BY key",
                [len(start), start, after.encode()],
            ).fetchall()
        for key, size, modified, version in rows:
            yield StoredObject(key.decode(), size, datetime.fromisoformat(modified), str(version))

    def head(self, key: str) -> ObjectHead | None:
        """Read the facts about an object."""
        with self._connected() as database:
            return self._head(database, key)

    def delete(self, key: str) -> None:
        """Remove a row."""
        with self._connected() as database:
            database.execute("DELETE FROM objects WHERE key = ?", [key.encode()])

    def _connected(self) -> "_Connected":
        return _Connected(self._path, self._timeout_s)

    def _head(self, database: sqlite3.Connection, key: str) -> ObjectHead | None:
        row = database.execute(
            "SELECT length(body), modified, version, metadata FROM objects WHERE key = ?",
            [key.encode()],
        ).fetchone()
        if row is None:
            return None
        modified = datetime.fromisoformat(row[1])
        return ObjectHead(row[0], modified, str(row[2]), json.loads(row[3]))


class _Connected(closing[sqlite3.Connection]):
    """A connection per call, never shared between threads; it commits unless the call fails."""

    def __init__(self, path: str, timeout_s: float) -> None:
        database = sqlite3.connect(path, timeout=timeout_s)
        database.execute(_TABLE)
        super().__init__(database)

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.thing.commit()
        super().__exit__(*error)
