"""``s3://BUCKET``: Amazon S3, and whatever speaks its protocol.  Only here: boto3.

S3 makes an object visible whole or not at all. What remains is to send each body with its checksum,
to distinguish a lost answer from a lost object, and to resume where a body broke off.

boto3 is imported when a store is made: to list what is installed, none is.
"""

import copy
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from kbackup.errors import CorruptObjectError, ObjectNotFoundError, StoreError
from kbackup.stores import (
    ObjectHead,
    Store,
    StoredObject,
    StoreSettings,
    read_twice,
    side_by_side,
)
from kbackup.stores.s3 import bucket, transfer
from kbackup.stores.s3.bucket import S3Bucket
from kbackup.stores.s3.options import (
    PART_SIZE,
    ObjectSettings,
    addressing_style,
    as_of,
    chosen_provider,
    proxies_of,
)
from kbackup.stores.s3.transfer import Features, Upload, fetch, fetch_range

if TYPE_CHECKING:
    from kbackup.stores.s3.requests import Requests

_log: Final = logging.getLogger(__name__)

_TOGETHER: Final = 100
"""Keys whose versions are listed one behind the other: a page has those of some hundred."""


def import_ahead() -> None:
    """Load boto3 and what it reads for its first client: 0.3 s of CPU that workers then share."""
    from kbackup.stores.s3 import requests  # noqa: PLC0415

    requests.read_ahead()


class S3Store(S3Bucket):
    """Objects in one bucket."""

    @staticmethod
    def check_url(url: str) -> None:  # noqa: ARG004
        """Refuse any: the bucket has a property of its own."""
        raise ValueError("name the bucket with s3.bucket.name; a server's URL begins with http://")

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> None:
        """Refuse options that cannot go together.

        Raises:
            ConfigurationError: With the option as ``place["property"]``.
        """
        ObjectSettings.of(options)
        addressing_style(options)
        proxies_of(options)
        chosen_provider(options)

    def __init__(
        self,
        settings: StoreSettings,
        *,
        read_timeout: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Make a client; the bucket is not looked at yet.

        Args:
            settings: With an ``s3://`` URL.
            read_timeout: Seconds without a byte from the server after which an answer is lost.
            sleep: Waits that many seconds between attempts.

        Raises:
            ConfigurationError: If URL, endpoint or credentials are malformed.
        """
        from kbackup.stores.s3.requests import Requests  # noqa: PLC0415

        super().__init__(Requests(settings, read_timeout, sleep))
        self._part_bytes = PART_SIZE.of(settings.options)
        self._as_of = as_of(settings.options)
        self._versions: Mapping[str, str] = {}
        self._features = Features()  # until the server says otherwise
        self._copies = True  # likewise

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
        """Send at once or in parts: `Store.put`.  After a lost answer, look what is stored."""
        size = body.seek(0, 2)
        facts = {**metadata, "sha256": sha256}
        upload = Upload(key, body, size, sha256, facts, if_absent, if_match)
        features = self._features
        was_forgotten = less_was_needed = False
        while True:
            try:
                done = self._put(upload, features)
            except StoreError as error:
                if (outcome := self._outcome(error, upload)) is not None:
                    if outcome:
                        self._requests.of_objects.tag(self._requests, key, facts)
                    return outcome
                less = features.less() if transfer.not_implemented(error) else None
                if less is not None:
                    features, less_was_needed = less, True
                elif was_forgotten or not (
                    transfer.is_taken(error) or transfer.is_forgotten(error)
                ):
                    raise
                else:  # what was in the way, or the upload, is gone: try again
                    was_forgotten = True
            else:
                if less_was_needed:
                    self._settle_for(features)
                if done:
                    self._requests.of_objects.tag(self._requests, key, facts)
                return done

    def open(self, key: str) -> BinaryIO:
        """Fetch into a spool, twice if the first does not match: `Store.open`."""
        requests = self._reading(key)
        return read_twice(lambda: fetch(requests, key, self._part_bytes))

    def _reading(self, key: str) -> "Requests":
        """Return the requests that read an object as it was, if that is asked for."""
        version = self._versions.get(key)
        if version is None:
            if self._as_of is None or bucket.is_now(key):
                return self._requests
            version = bucket.at(self._requests, key, self._as_of)
        if version is None:
            raise ObjectNotFoundError(
                self._requests.resource(key), f"it was not there at {self._as_of}", key=key
            )
        return bucket.of_version(self._requests, version)

    def earlier(self, keys: Collection[str]) -> Iterator[StoredObject]:
        """List versions, some keys at a time: `Earlier.earlier`."""
        if self._as_of is not None or not self._has_versions:  # by the server's times alone
            return
        every = sorted(keys)
        parts = (every[at : at + _TOGETHER] for at in range(0, len(every), _TOGETHER))
        try:
            found = side_by_side(lambda part: [*bucket.every(self._requests, part)], parts)
        except StoreError as error:
            if transfer.not_implemented(error):
                return
            raise
        for one in (one for part in found for one in reversed(part)):  # the newest is listed first
            if not (one["IsLatest"] or bucket.is_marker(one)):
                yield bucket.stored_object(self._requests, one, str(one["VersionId"]))

    @cached_property
    def _has_versions(self) -> bool:
        """Whether there may be versions: else no key need be asked for."""
        try:
            return "Status" in self._requests.send("get_bucket_versioning", "")
        except StoreError:  # who may not ask that may ask for those of a key
            return True

    def at(self, versions: Mapping[str, str]) -> "S3Store":
        """Return the store that reads these versions: `Earlier.at`."""
        found = copy.copy(self)
        found._versions = {**self._versions, **versions}  # noqa: SLF001  (it is one of these)
        return found

    def open_range(self, key: str, start: int, length: int) -> BinaryIO:
        """Fetch a part into a spool: `Ranges.open_range`."""
        return fetch_range(self._reading(key), key, start, length, self._part_bytes)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """List page by page: `Store.list`."""
        if self._as_of is not None and not bucket.is_now(prefix):
            yield from bucket.listed(self._requests, prefix, after, self._as_of)
            return
        last, token = "", ""
        first = {"StartAfter": after} if after else {}
        while True:
            more: dict[str, Any] = {"ContinuationToken": token} if token else first
            page = self._requests.send("list_objects_v2", prefix, Prefix=prefix, **more)
            for entry in page.get("Contents", ()):
                key = entry["Key"]
                if key <= last:  # text sorts by code point, which is as its UTF-8 bytes do
                    why = f"{key!r} comes after {last!r}"
                    raise bucket.incomplete(self._requests, "s3:ListBucket", prefix, why)
                last = key
                if key <= after:  # of a server that does not know StartAfter
                    continue
                yield bucket.stored_object(self._requests, entry)
            if not page.get("IsTruncated"):
                return
            following = page.get("NextContinuationToken", "")
            if following in ("", token):
                raise bucket.incomplete(self._requests, "s3:ListBucket", prefix)
            token = following

    def head(self, key: str) -> ObjectHead | None:
        """Ask for size, time and metadata: `Store.head`."""
        try:
            return self._head(key, self._reading(key))
        except ObjectNotFoundError:
            return None

    def _head(
        self, key: str, requests: "Requests | None" = None, *, is_tried_again: bool = True
    ) -> ObjectHead | None:
        send = (requests or self._requests).send
        try:
            answer = send("head_object", key, Key=key, is_tried_again=is_tried_again)
        except ObjectNotFoundError:
            return None
        return ObjectHead(
            answer["ContentLength"],
            answer["LastModified"],
            self._requests.etag(answer, key),
            answer["Metadata"],
        )

    def copy_from(
        self, source: Store, key: str, is_wanted: Callable[[Mapping[str, str]], bool]
    ) -> ObjectHead | None:
        """Have the server copy, and tell the sha256 of what it has copied: `Copies.copy_from`."""
        if not (
            self._copies
            and isinstance(source, S3Store)
            and source._as_of is None  # noqa: SLF001  (its kin)
            and key not in source._versions  # noqa: SLF001
            and (there := source._requests).endpoint_url == self._requests.endpoint_url  # noqa: SLF001
            and not there.of_objects.keyed
        ):
            return None
        found = source.head(key)
        if (
            found is None
            or not (found.metadata.get("sha256") and is_wanted(found.metadata))
            or self._head(key) is not None  # not every server keeps to the condition
        ):
            return None
        is_large = found.size > transfer.COPIED_BYTES_MAX
        parts = transfer.Parts.of(there, key) if is_large else None
        if is_large and parts is None:
            return None
        try:
            sha256 = transfer.copy(self._requests, there.bucket, key, found, parts)
        except StoreError as error:
            passing = (transfer.is_taken, transfer.is_missing, transfer.is_forgotten)
            if not (any(is_so(error) for is_so in passing) or transfer.is_worn_out(error)):
                self._copies = False
                _log.info("objects are sent, as the server does not copy them: %s", error)
            return None
        if sha256 is None:
            self._copies = False
            _log.info("objects are sent, as %s copies without checksums", self._requests.host)
        if not self._is_whole(key, sha256, found.metadata["sha256"]):
            self.delete(key)
            return None
        self._requests.of_objects.tag(self._requests, key, found.metadata)
        return found

    def _is_whole(self, key: str, sha256: str | None, stored: str) -> bool:
        """Whether what was copied is what was stored; where no *sha256* is told, it is read."""
        if sha256 is not None:
            return sha256 == stored
        try:
            self.open(key).close()
        except CorruptObjectError:
            return False
        return True

    def delete(self, key: str) -> None:
        """Delete; S3 does not say whether it was there: `Store.delete`."""
        self._requests.send("delete_object", key, Key=key)

    def puts(self, size: float) -> int:
        """Count parts, a look, begin and completion: `Served.puts`."""
        if not transfer.in_parts(size, self._part_bytes):
            return 1
        return min(transfer.MAX_PARTS, ceil(size / self._part_bytes)) + 3

    def _put(self, upload: Upload, features: Features) -> bool:
        is_large = transfer.in_parts(upload.size, self._part_bytes)
        if upload.is_conditional and (is_large or not features.conditional):
            # worth a look before it is sent in vain
            there = self._head(upload.key)
            if not upload.may_replace(there):
                return _holds(there, upload)
        upload.send(self._requests, self._part_bytes, features)
        return True

    def _outcome(self, error: StoreError, upload: Upload) -> bool | None:
        """Return what the put achieved after all, judging by what is stored; None if nothing."""
        is_refused = transfer.is_taken(error) or (
            upload.if_match is not None and transfer.is_missing(error)
        )
        if not (is_refused or transfer.is_forgotten(error) or transfer.is_lost(error)):
            return None
        try:  # once where the put has spent its budget: the same server is not worth another one
            there = self._head(upload.key, is_tried_again=not transfer.is_lost(error))
        except StoreError:
            raise error from None  # the first error says more
        if _holds(there, upload):
            return True
        # Where what was in the way of a new object has gone, there is room for it now.
        is_settled = is_refused and (there is not None or upload.if_match is not None)
        return False if is_settled else None

    def _settle_for(self, features: Features) -> None:
        """Remember what the server was found to lack, saying so once."""
        before, self._features = self._features, features
        host = self._requests.host
        if before.conditional and not features.conditional:
            _log.warning("%s has no conditional writes: looking before each put", host)
        if before.checksums and not features.checksums:
            _log.warning("%s takes no checksums: bodies are checked when they are read", host)


def _holds(there: ObjectHead | None, upload: Upload) -> bool:
    return there is not None and there.metadata.get("sha256") == upload.sha256
