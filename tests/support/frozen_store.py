"""A store whose objects are archived, until somebody asks for them."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import BinaryIO, Final
from uuid import uuid4

from kbackup.errors import StoreError
from kbackup.stores import StoredObject, StoreSettings, Thaw, Tier
from kbackup.stores.memory import MemoryStore

UNTIL: Final = datetime(2026, 12, 1, tzinfo=UTC)


class FrozenStore(MemoryStore):
    """Objects by the storage class that was given to each.

    Attributes:
        classes: Storage class of a key; others have none.
        thaws: How far a key has come.
        asked: What was asked for.
    """

    def __init__(self) -> None:
        super().__init__(StoreSettings(f"memory://{uuid4()}"))
        self.classes: dict[str, str] = {}
        self.thaws: dict[str, Thaw] = {}
        self.asked: list[tuple[str, int, Tier]] = []

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """List with classes."""
        for entry in super().list(prefix, after=after):
            yield replace(entry, storage_class=self.classes.get(entry.key, "STANDARD"))

    def open(self, key: str) -> BinaryIO:
        """Refuse to open what cannot be read."""
        if key in self.classes and self.thawed(key).state != "ready":
            raise StoreError(f"s3:GetObject on {key}", "InvalidObjectState (403)")
        return super().open(key)

    def thawed(self, key: str) -> Thaw:
        """Return what a test has said, or that nobody has asked."""
        return self.thaws.get(key, Thaw("frozen"))

    def thaw(self, key: str, days: int, tier: Tier) -> None:
        """Note it."""
        self.asked.append((key, days, tier))
        self.thaws[key] = Thaw("thawing")
