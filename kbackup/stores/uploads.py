"""Unfinished uploads in parts: never listed as objects, but billed."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """One of them.

    Attributes:
        key: The object that it would have become.
        id: The server's name for the upload.
        begun: When, aware.
    """

    key: str
    id: str
    begun: datetime


@runtime_checkable
class Uploads(Protocol):
    """A store that can be asked for them."""

    def unfinished(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Yield the uploads of keys that begin with *prefix*, complete or with an error.

        Raises:
            StoreError: If the store does not answer, or its listing is not complete.
        """
        ...

    def abort(self, upload: UnfinishedUpload) -> None:
        """Throw its parts away; one that has ended meanwhile is no error.

        Raises:
            StoreError: If the store refuses.
        """
        ...
