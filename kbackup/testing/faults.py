"""A store that fails by script."""

from collections.abc import Iterator, Mapping
from typing import BinaryIO
from uuid import uuid4

from kbackup.errors import CorruptObjectError, ObjectNotFoundError, StoreError
from kbackup.stores import ObjectHead, Store, StoredObject, StoreSettings
from kbackup.stores.memory import MemoryStore


class FaultyStore:
    """A store that fails by script: one word for each call; after the last, calls succeed.

    ========  =====================================================================
    ok        the call succeeds
    503       any status: nothing happens, `StoreError`
    lost      the call succeeds, but its answer is lost: `StoreError`
    corrupt   nothing happens, `CorruptObjectError`
    missing   nothing happens, `ObjectNotFoundError`
    half      half of a listing, then `StoreError`; nothing of any other call
    ========  =====================================================================

    Attributes:
        script: The remaining words.
        calls: Each scripted call: method, key or prefix, word.
    """

    def __init__(
        self,
        script: str,
        store: Store | None = None,
        *,
        methods: frozenset[str] = frozenset({"put", "open", "list", "head", "delete"}),
    ) -> None:
        """Wrap *store*, an empty one in memory if None; only calls to *methods* take a word."""
        self.script = script.split()
        self.calls: list[tuple[str, str, str]] = []
        self._store = MemoryStore(StoreSettings(f"memory://{uuid4()}")) if store is None else store
        self._methods = methods

    @staticmethod
    def check_url(url: str) -> None:
        """Accept any."""

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
        """Put, or fail as the script says."""
        word = self._word("put", key)
        done = self._store.put(
            key, body, sha256=sha256, metadata=metadata, if_absent=if_absent, if_match=if_match
        )
        self._lose(word, "put", key)
        return done

    def open(self, key: str) -> BinaryIO:
        """Open, or fail as the script says."""
        word = self._word("open", key)
        file = self._store.open(key)
        self._lose(word, "open", key)
        return file

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """List, or fail as the script says, before the first object or in the middle."""
        word = self._word("list", prefix, in_progress="half")
        found = [*self._store.list(prefix, after=after)]
        yield from found[: len(found) // 2] if word == "half" else found
        self._lose("lost" if word == "half" else word, "list", prefix)

    def head(self, key: str) -> ObjectHead | None:
        """Request the metadata, or fail as the script says."""
        word = self._word("head", key)
        head = self._store.head(key)
        self._lose(word, "head", key)
        return head

    def delete(self, key: str) -> None:
        """Delete, or fail as the script says."""
        word = self._word("delete", key)
        self._store.delete(key)
        self._lose(word, "delete", key)

    def _word(self, method: str, about: str, in_progress: str = "lost") -> str:
        word = self.script.pop(0) if self.script and method in self._methods else "ok"
        self.calls.append((method, about, word))
        if word in ("ok", "lost", in_progress):
            return word
        what, why = f"{method} {about}", f"scripted {word}"
        kinds = {"corrupt": CorruptObjectError, "missing": ObjectNotFoundError}
        raise kinds.get(word, StoreError)(what, why)

    def _lose(self, word: str, method: str, about: str) -> None:
        if word == "lost":
            raise StoreError(f"{method} {about}", "scripted loss of the answer")
