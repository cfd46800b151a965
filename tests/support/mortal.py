"""A store of a process that is killed between two of its requests."""

from collections.abc import Iterator, Set
from typing import Any, BinaryIO

from kbackup.stores import ObjectHead, Store, StoredObject


class Gone(BaseException):
    """The process was killed."""


class Mortal:
    """A store whose process dies at the request after *left*; None: it lives.

    Nothing may be deleted where that does not count.

    Attributes:
        made: Requests made, of those that are *counted*.
    """

    def __init__(
        self, store: Store, left: int | None = None,
        counted: Set[str] = frozenset({"put", "open", "list", "head"}),
    ) -> None:  # fmt: skip
        self._store, self._left, self._counted, self.made = store, left, counted, 0

    def _count(self, what: str) -> None:
        if what not in self._counted:
            return
        if self._left is not None and self.made >= self._left:
            raise Gone
        self.made += 1

    @staticmethod
    def check_url(url: str) -> None:
        """Accept any."""

    def put(self, key: str, body: BinaryIO, **more: Any) -> bool:
        """Put, unless dead."""
        self._count("put")
        return self._store.put(key, body, **more)

    def open(self, key: str) -> BinaryIO:
        """Open, unless dead."""
        self._count("open")
        return self._store.open(key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """List, unless dead."""
        self._count("list")
        return self._store.list(prefix, after=after)

    def head(self, key: str) -> ObjectHead | None:
        """Ask, unless dead."""
        self._count("head")
        return self._store.head(key)

    def delete(self, key: str) -> None:
        """Delete, unless dead."""
        assert "delete" in self._counted, key
        self._count("delete")
        self._store.delete(key)
