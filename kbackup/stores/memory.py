"""``memory://NAME``: objects in this process, for tests.  One name is one store."""

import io
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO, Final

from kbackup.errors import CorruptObjectError, ObjectNotFoundError
from kbackup.stores import ObjectHead, StoredObject, StoreSettings, is_kept


@dataclass(frozen=True, slots=True)
class _Object:
    body: bytes
    head: ObjectHead


_STORES: Final[defaultdict[str, dict[str, _Object]]] = defaultdict(dict)
_LOCK: Final = threading.Lock()


class MemoryStore:
    """Objects in a dictionary, shared by every store with the same URL."""

    @staticmethod
    def check_url(url: str) -> None:  # noqa: ARG004
        """Refuse any: what one process keeps, the tasks of a run do not see."""
        raise ValueError("a store in memory is for tests; expected http://, https:// or file:///")

    def __init__(self, settings: StoreSettings) -> None:
        self._url = settings.url
        with _LOCK:
            self._objects = _STORES[settings.url]

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
        """Keep a copy: `Store.put`."""
        body.seek(0)
        data = body.read()
        facts = {**metadata, "sha256": sha256}
        with _LOCK:
            there = self._objects.get(key)
            etag = None if there is None else there.head.etag
            if is_kept(etag, if_absent=if_absent, if_match=if_match):
                return there is not None and there.head.metadata["sha256"] == sha256
            head = ObjectHead(len(data), datetime.now(UTC), sha256, facts)
            self._objects[key] = _Object(data, head)
        return True

    def open(self, key: str) -> BinaryIO:
        """Return the copy: `Store.open`."""
        found = self._objects.get(key)
        if found is None:
            raise ObjectNotFoundError(f"{self._url}/{key}", "no such object", key=key)
        return io.BytesIO(found.body)

    def open_range(self, key: str, start: int, length: int) -> BinaryIO:
        """Return a part of the copy: `Ranges.open_range`."""
        part = self.open(key).read()[start : start + length]
        if len(part) < length:
            why = f"it ends before byte {start + length}"
            raise CorruptObjectError(f"{self._url}/{key}", why, key=key)
        return io.BytesIO(part)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """List what is there now: `Store.list`."""
        with _LOCK:
            there = {k: v.head for k, v in self._objects.items() if k.startswith(prefix)}
        found = sorted((k, head) for k, head in there.items() if k > after)
        for key, head in found:
            yield StoredObject(key, head.size, head.modified, head.etag)

    def head(self, key: str) -> ObjectHead | None:
        """Return what was put with it: `Store.head`."""
        found = self._objects.get(key)
        return None if found is None else found.head

    def delete(self, key: str) -> None:
        """Forget it: `Store.delete`."""
        with _LOCK:
            self._objects.pop(key, None)
