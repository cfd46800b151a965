"""Extension point: where objects are.  The scheme of a URL names it; wrappers stand beside.

Owns how objects are put, listed, read, copied, encrypted and deleted.  It never knows a layout, a
record or Kafka.

What every store promises: an object that is visible is complete; nothing is listed half-written;
a key is never taken for a local path outside the store's root.
"""

import hashlib
import io
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, BinaryIO, Final, Literal, Protocol, TypeVar, runtime_checkable

import orjson

from kbackup import plugins
from kbackup.errors import CorruptObjectError, NewerVersionError, StoreError

_log: Final = logging.getLogger(__name__)

Made = TypeVar("Made")
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One listed object.

    Attributes:
        key: Its key, relative to the store's root.
        modified: When it was stored, aware.
        etag: Changes when the content does; opaque.
        storage_class: What the server calls the way it is kept; empty where there is only one.
        version: Which of the object's versions it is; empty for what is there now.
    """

    key: str
    size: int
    modified: datetime
    etag: str
    storage_class: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """What a store knows of one object without reading it."""

    size: int
    modified: datetime
    etag: str
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What a store needs to be opened; plain data, so it can cross a process.

    Attributes:
        url: Where the backup is, such as ``s3://BUCKET`` or ``file:///FOLDER``.
        endpoint_url: The URL of the server, for stores that have servers; None for the usual one.
        options: What was given for the options that stores declare, by property; a store reads
            its own with `kbackup.options.Option.of`.
        wrapper: What stands around the store; None for nothing.
    """

    url: str
    endpoint_url: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    wrapper: "Wrapper | None" = None

    @property
    def is_secret(self) -> bool:
        """Whether what is stored is encrypted: run records and logs, which are not, quote none."""
        return self.wrapper is not None

    def __repr__(self) -> str:
        return f"StoreSettings(url={self.url!r}, endpoint_url={self.endpoint_url!r})"

    def open(self) -> "Store":
        """Open the store; the URL's scheme names its plugin.

        Raises:
            ConfigurationError: If no store is installed for the scheme.
        """
        factory: Any = plugins.load("stores", self.url.partition("://")[0])
        store: Store = factory(self)
        return store if self.wrapper is None else self.wrapper.wrap(store)


class Wrapper(Protocol):
    """Plain data that makes of a store another one, which keeps the same promises."""

    def wrap(self, store: "Store") -> "Store":
        """Return what stands around *store*."""
        ...


class Store(Protocol):
    """Objects by key.  Safe to use from several threads.

    A store is made from its `StoreSettings`; its entry point is named as its URL's scheme.
    """

    @staticmethod
    def check_url(url: str) -> None:
        """Check a ``store.url`` of this scheme before anything is opened.

        Raises:
            ValueError: If it is none; the text says what was expected.
        """
        ...

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
        """Store *body* from its start to its end as *key*, whole or not at all.

        Idempotent: repeating it gives the same object.  A lost answer is not an error: what is
        stored is compared by *sha256* first.

        Args:
            body: Seekable; read from 0, possibly several times; left open.
            sha256: Of the whole body, in hexadecimal; kept with the object as ``sha256``.
            metadata: User metadata: short lower-case ASCII names, text values.
            if_absent: Leave an object alone that is there already.
            if_match: Replace the object only if it still has this etag; not with *if_absent*.

        Returns:
            True if *key* holds this body now; False if a condition kept another object there, or
            the object that *if_match* names has gone.  Either condition holds against all other
            writers at once, unless the server has no such thing; `Bucket.probe_conditions` says.

        Raises:
            StoreError: Not reachable, not authorised, throttled beyond the retry budget.
        """
        ...

    def open(self, key: str) -> BinaryIO:
        """Fetch an object whole and checked, as a seekable file at 0, spooled to memory or disk.

        Where the store has the object's user metadata at hand, the file is a `HasMetadata`; `head`
        gives it in any case.  Interrupted bodies are resumed; where a checksum was stored it is
        compared, and a difference is tried once more.

        Raises:
            ObjectNotFoundError: No such object.
            CorruptObjectError: Its bytes are not the ones that were stored.
            StoreError: Otherwise.
        """
        ...

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """List what begins with *prefix*, by key as UTF-8 bytes, complete or with an error.

        Args:
            prefix: Of the keys.
            after: Only keys behind this one; the requests do not grow with what is before it.

        Raises:
            StoreError: If a page cannot be had: part of a listing is never taken for the whole.
        """
        ...

    def head(self, key: str) -> ObjectHead | None:
        """Return what is known of *key*, None where there is no such object."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object of our own, such as a lock; one that is not there is no error."""
        ...


@runtime_checkable
class HasMetadata(Protocol):
    """What a store has opened, where it knows the user metadata of the object."""

    @property
    def metadata(self) -> Mapping[str, str] | None:
        """The metadata; None where it is not known after all."""
        ...


def metadata_of(body: BinaryIO) -> Mapping[str, str] | None:
    """Return the metadata of an object that was opened; None where `Store.head` has to tell it."""
    return body.metadata if isinstance(body, HasMetadata) else None


class Heads(Protocol):
    """What is known of objects."""

    def head(self, key: str) -> ObjectHead | None:
        """Return what is known of *key*, None where there is no such object."""
        ...


class RememberedHeads:
    """Asks a store for each object once, for those who judge one listing of it."""

    def __init__(self, store: Heads) -> None:
        self._asked = cache(store.head)

    def head(self, key: str) -> ObjectHead | None:
        """Return what was known of *key* when it was first asked for: `Store.head`."""
        return self._asked(key)


def shown(key: str) -> str:
    """Return a key for people: in one line, whatever is in it."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in key)


def read_twice(fetch: Callable[[], Made]) -> Made:
    """Return what *fetch* returns, which is called once more where a checksum differs."""
    try:
        return fetch()
    except CorruptObjectError as error:
        _log.warning("%s; reading it once more", error)
        return fetch()


def is_kept(there: str | None, *, if_absent: bool, if_match: str | None) -> bool:
    """Whether a condition of `Store.put` leaves alone what is *there*: its etag, None for none."""
    return there != if_match if if_match is not None else if_absent and there is not None


def open_store(settings: StoreSettings) -> Store:
    """Return the store that *settings* describe: `StoreSettings.open`."""
    return settings.open()


def put_json(store: Store, key: str, data: Mapping[str, Any], *, if_absent: bool = False) -> bool:
    """Store *data* as a small JSON object, and return and raise as `Store.put` does."""
    body = orjson.dumps(data)
    return put_bytes(store, key, body, if_absent=if_absent)


def put_bytes(store: Store, key: str, body: bytes, *, if_absent: bool = False) -> bool:
    """Write a small object, as `Store.put` does."""
    sha256 = hashlib.sha256(body).hexdigest()
    return store.put(key, io.BytesIO(body), sha256=sha256, metadata={}, if_absent=if_absent)


def parse_json(
    key: str, body: bytes, make: Callable[[Mapping[str, Any]], Made], what: str, do: str
) -> Made:
    """Return what a small JSON object of ours holds; its ``v``, the version of its form, is 1.

    *what* says what it should hold, *do* what to do if it does not.

    Raises:
        CorruptObjectError: If it holds something else.
        NewerVersionError: If a later version has stored it.
    """
    try:
        said = orjson.loads(body)
        if (version := int(said["v"])) > 1:
            writer = str(said.get("version", ""))
            raise NewerVersionError.of(key, version, 1, writer, do, key=key)
        return make(said)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise CorruptObjectError(f"{key} holds no {what}", why, do, key=key) from error


def side_by_side(ask: Callable[[Asked], Answer], items: Iterable[Asked]) -> list[Answer]:
    """Return what *ask* returns of each of *items*, in their order: requests mostly wait."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(ask, items))


ARCHIVED: Final = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes whose objects cannot be read at once.

``GLACIER_IR`` is none of them.  Source: "Archive storage classes" of the S3 user guide.
"""

Tier = Literal["Standard", "Bulk", "Expedited"]
"""How fast an archived object is retrieved, and at what price."""

READABLE: Final[Mapping[Tier, str]] = {
    "Standard": "within hours", "Bulk": "within two days", "Expedited": "within minutes",
}  # fmt: skip
"""When S3 lets an object be read that it was asked for in a tier, as its documentation says."""


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
        prefix: The keys it is about begin with this; empty for all.
        abort_days: Days after which unfinished uploads are thrown away; None: not by this rule.
        expire_days: Days after which objects are deleted; None: not by this rule.
        version_days: Days after which what was deleted or overwritten is; None: not by this rule.
    """

    name: str
    prefix: str
    abort_days: int | None
    expire_days: int | None
    version_days: int | None = None


@dataclass(frozen=True, slots=True)
class BucketFacts:
    """What a server says about a bucket; None where it does not.

    Attributes:
        clock_ahead_s: Seconds that the server's clock is ahead of this host's.
        versioning: ``Enabled``, ``Suspended``, or empty where it was never switched on.
        object_lock: What new objects are locked for, such as ``GOVERNANCE 30 days`` or ``on``;
            empty where there is no lock.
        rules: The enabled lifecycle rules that abort uploads, or delete objects or versions.
        untold: Why, for each of these attributes that is None.
        lock_days: For how many days the configuration has new objects locked, else the bucket;
            0: neither says.
    """

    clock_ahead_s: float | None
    versioning: str | None
    object_lock: str | None
    rules: tuple[LifecycleRule, ...] | None
    untold: Mapping[str, str]
    lock_days: int = 0


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


@runtime_checkable
class Untold(Protocol):
    """A store whose server cannot be asked what becomes of objects by its own rules."""

    def untold(self) -> tuple[str, str]:
        """Return what is not known, and the command that shows it."""
        ...


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """An upload: the object's key, the server's name for it, and when it was begun, aware."""

    key: str
    id: str
    begun: datetime


@runtime_checkable
class Served(Protocol):
    """A store with a server, which takes its time, and a price, for each request."""

    def puts(self, size: float) -> int:
        """Return how many requests store an object of so many bytes; none is made."""
        ...


@runtime_checkable
class Uploads(Protocol):
    """A store that can be asked for them."""

    def unfinished(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Yield the uploads of keys that begin with *prefix*, complete or with an error.

        Raises:
            StoreError: If the store does not answer, or its listing is not complete.
        """
        ...

    def stored_bytes(self, upload: UnfinishedUpload) -> int:
        """Return how much of it is there.

        Raises:
            StoreError: If the store does not answer, or refuses.
        """
        ...

    def abort(self, upload: UnfinishedUpload) -> None:
        """Throw its parts away; one that has ended meanwhile is no error.

        Raises:
            StoreError: If the store refuses.
        """
        ...


@runtime_checkable
class Versions(Protocol):
    """A store that keeps what was deleted or overwritten, and may have it locked."""

    def is_locked(self) -> bool:
        """Whether it can lock objects at all: then a plain deletion only hides them.

        Raises:
            StoreError: If the store does not say.
        """
        ...

    def locked_until(self, key: str) -> datetime | None:
        """Return until when a version of an object cannot be deleted; None where all can be.

        Raises:
            StoreError: If the store does not say.
        """
        ...

    def delete_versions(self, key: str) -> None:
        """Remove an object with all its versions, none of which is locked.

        Raises:
            StoreError: If the store refuses.
        """
        ...


@runtime_checkable
class Earlier(Protocol):
    """A store in which what was deleted or overwritten can be found, and read."""

    def earlier(self, keys: Collection[str]) -> Iterator[StoredObject]:
        """Yield the versions of objects but the current ones, of each object the oldest first.

        There are none where the server keeps no versions, or none can be meant.

        Raises:
            StoreError: If the store does not answer, or refuses.
        """
        ...

    def at(self, versions: Mapping[str, str]) -> "Store":
        """Return the store as if these versions, by key, were what is there; listings stay."""
        ...


def at_versions(store: "Store", versions: Mapping[str, str]) -> "Store":
    """Return what reads these versions, by key, and of other objects what is there."""
    return store.at(versions) if versions and isinstance(store, Earlier) else store


def is_refused(error: StoreError) -> bool:
    """Whether a server has refused a request, and would again, rather than not answered."""
    status = int(error.place.get("status", 0))
    return 400 <= status < 500 and status != 429


@runtime_checkable
class Copies(Protocol):
    """A store whose server can bring an object from another one, past this host."""

    def copy_from(
        self, source: "Store", key: str, is_wanted: Callable[[Mapping[str, str]], bool]
    ) -> ObjectHead | None:
        """Bring an object, where nothing is under its key, and compare its sha256.

        It has the same key in both; *is_wanted* says by its metadata whether it may be brought.

        Returns:
            What was brought; None if nothing was, for whatever reason: then it must be sent.

        Raises:
            StoreError: If one of the two does not answer.
        """
        ...


@runtime_checkable
class Ranges(Protocol):
    """A store for which reading a part of an object is cheaper than reading all of it."""

    def open_range(self, key: str, start: int, length: int) -> BinaryIO:
        """Fetch a part of an object, as a seekable file at 0.

        No checksum is compared: whoever asks for a part must be able to check it.  The file may
        be a `HasMetadata`.

        Raises:
            ObjectNotFoundError: No such object.
            CorruptObjectError: The object ends before, or was replaced meanwhile.
            StoreError: Otherwise.
        """
        ...


KEYED: Final = "h1:"
"""What a digest begins with that is under a key of the backup; its method follows."""


@runtime_checkable
class Seals(Protocol):
    """A store that keeps objects encrypted: their sizes and ``sha256`` are of what is stored."""

    def stored_size(self, size: int) -> int:
        """Return the bytes that an encrypted object of *size* bytes has in the store."""
        ...

    def keyed(self, digest: str) -> str:
        """Return *digest*, of anything but bytes as they are stored, as it is kept there."""
        ...

    def can_read(self, metadata: Mapping[str, str]) -> bool:
        """Whether an object can be decrypted here, judging by its metadata."""
        ...


def with_keyed(store: "Store | Seals", digests: Iterable[str]) -> set[str]:
    """Return *digests* as they may be kept in a store: as they are, and keyed where it seals."""
    found = {*digests}
    return found | {store.keyed(one) for one in found} if isinstance(store, Seals) else found


def has_method(digest: str | None, methods: str | tuple[str, ...]) -> bool:
    """Whether a digest, keyed or not, is by one of *methods*."""
    return (digest or "").removeprefix(KEYED).startswith(methods)


@runtime_checkable
class Names(Protocol):
    """A store in which not everything that S3 takes can name an object."""

    def check_name(self, key: str) -> None:
        """Check a key, or a part of one between two slashes.

        Raises:
            ObjectKeyError: If no object can be named so.
        """
        ...
