"""What some stores can do beyond objects: archives, bucket facts, uploads in parts, ranges."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Final, Literal, Protocol, runtime_checkable

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


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """An enabled rule of a bucket.

    Attributes:
        name: Its ID.
        prefix: The keys it is about begin with this; empty for all.
        abort_days: Days after which unfinished uploads are thrown away; None: not by this rule.
        expire_days: Days after which objects are deleted; None: not by this rule.
    """

    name: str
    prefix: str
    abort_days: int | None
    expire_days: int | None


@dataclass(frozen=True, slots=True)
class BucketFacts:
    """What a server says about a bucket; None where it does not.

    Attributes:
        clock_ahead_s: Seconds that the server's clock is ahead of this host's.
        versioning: ``Enabled``, ``Suspended``, or empty where it was never switched on.
        object_lock: What new objects are locked for, such as ``GOVERNANCE 30 days`` or ``on``;
            empty where there is no lock.
        rules: The enabled lifecycle rules that abort uploads or delete objects.
        untold: Why, for each of these attributes that is None.
    """

    clock_ahead_s: float | None
    versioning: str | None
    object_lock: str | None
    rules: tuple[LifecycleRule, ...] | None
    untold: Mapping[str, str]


@runtime_checkable
class Bucket(Protocol):
    """A store that knows such facts, and can try an upload in parts."""

    def bucket_facts(self) -> BucketFacts:
        """Ask for the facts; what is denied, or not implemented, is None.

        Raises:
            StoreError: If the bucket does not answer at all.
        """
        ...

    def probe_upload(self, key: str) -> None:
        """Upload *key*, a few bytes, in parts; then begin to again and abort it.

        Raises:
            StoreError: If one of the steps is refused.
        """
        ...

    def probe_conditions(self, key: str) -> tuple[str, ...]:
        """Try conditions that must fail on *key*, where an object is; it may be another one then.

        Returns:
            What the server does not keep to, such as ``If-Match on PutObject``; empty where it
            keeps to all that `Store.put` relies on.

        Raises:
            StoreError: If a request fails for another reason.
        """
        ...


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


@runtime_checkable
class Ranges(Protocol):
    """A store for which reading a part of an object is cheaper than reading all of it."""

    def open_range(self, key: str, start: int, length: int) -> BinaryIO:
        """Fetch a part of an object, as a seekable file at 0.

        No checksum is compared: whoever asks for a part must be able to check it.  The file's
        attribute ``metadata`` is the object's user metadata, where the store has it at hand.

        Args:
            key: The object's.
            start: The first byte.
            length: How many; the object must have them.

        Raises:
            ObjectNotFoundError: No such object.
            CorruptObjectError: The object ends before, or was replaced meanwhile.
            StoreError: Otherwise.
        """
        ...
