"""Locks over a store in memory, with clocks that a test sets."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from kbackup.naming import Layout
from kbackup.runs.locks import RunLock
from kbackup.stores import ObjectHead, StoreSettings
from kbackup.stores.memory import MemoryStore
from kbackup.testing import open_bytes

LAYOUT = Layout()
START = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)


class Clocks:
    """A host's clock, which may be wrong, the store's, and one that only goes on."""

    def __init__(self) -> None:
        self.host, self.store, self.seconds = START, START, 0.0
        self.while_asleep: Any = lambda: None

    def pass_by(self, seconds: float) -> None:
        self.seconds += seconds
        self.host += timedelta(seconds=seconds)
        self.store += timedelta(seconds=seconds)

    def sleep(self, seconds: float) -> None:
        self.pass_by(seconds)
        self.while_asleep()


class ClockedStore(MemoryStore):
    """A store in memory whose clock is set by the test."""

    def __init__(self, clocks: Clocks) -> None:
        super().__init__(StoreSettings(f"memory://{uuid4()}"))
        self._clocks = clocks
        self._times: dict[str, tuple[str, datetime]] = {}

    def head(self, key: str) -> ObjectHead | None:
        found = super().head(key)
        if found is None:
            return None
        return ObjectHead(found.size, self._stored(key, found.etag), found.etag, found.metadata)

    def put(self, key: str, *args: Any, **named: Any) -> bool:
        done = super().put(key, *args, **named)
        self.head(key)
        return done

    def delete(self, key: str) -> None:
        super().delete(key)
        self._times.pop(key, None)

    def _stored(self, key: str, etag: str) -> datetime:
        if self._times.get(key, ("",))[0] != etag:
            self._times[key] = (etag, self._clocks.store)
        return self._times[key][1]


def crash(lock: RunLock) -> RunLock:
    """Take the lock and die: the kernel gives the file back, and nobody the object."""
    lock.__enter__()
    lock._file.release()
    lock._ended.set()
    return lock


def lock_keys(store: MemoryStore) -> list[str]:
    return [entry.key for entry in store.list("")]


def holder(store: MemoryStore) -> str | None:
    found = [json.loads(open_bytes(store, key))["run"] for key in lock_keys(store)]
    return found[0] if found else None
