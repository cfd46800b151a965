"""A store as one with a server, whose requests are counted in estimates."""

from typing import Any

from kbackup.stores import Store


class ServedStore:
    """Another store, whose server has a request for each byte."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def puts(self, size: float) -> int:
        """Return its bytes."""
        return int(size)
