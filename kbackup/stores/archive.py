"""Objects that cannot be read at once: they have to be requested first."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Protocol, runtime_checkable

ARCHIVED: Final = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes whose objects cannot be read at once.

``GLACIER_IR`` is none of them.  Source: "Archive storage classes" of the S3 user guide.
"""

Tier = Literal["Standard", "Bulk", "Expedited"]
"""How fast an archived object is retrieved, and at what price."""


@dataclass(frozen=True, slots=True)
class Thaw:
    """How far an archived object has come.

    Attributes:
        state: ``frozen``: nobody has requested it.  ``thawing``: it was requested, and cannot be
            read yet.  ``ready``: it can be read.
        until: When a copy that can be read ends; None where that is not known.
    """

    state: Literal["frozen", "thawing", "ready"]
    until: datetime | None = None


@runtime_checkable
class Archive(Protocol):
    """A store that can have archived objects."""

    def thawed(self, key: str) -> Thaw:
        """Return how far an object of a class of `ARCHIVED` has come.

        Raises:
            ObjectNotFoundError: No such object.
            StoreError: Otherwise.
        """
        ...

    def thaw(self, key: str, days: int, tier: Tier) -> None:
        """Ask for a copy that can be read for *days*; one that is on its way is left alone.

        Raises:
            ObjectNotFoundError: No such object.
            StoreError: Otherwise, such as a tier that its class does not have.
        """
        ...
