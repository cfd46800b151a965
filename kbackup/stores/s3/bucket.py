"""Ask about a bucket itself: its archived objects, unfinished uploads and versions.

A versioned bucket can be read as it was at a time: what was deleted or overwritten since is there.
Nothing in it is believed but the times that the server itself gave to versions.
"""

import io
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from kbackup.errors import StoreError
from kbackup.stores import (
    BucketFacts,
    LifecycleRule,
    StoredObject,
    Thaw,
    Tier,
    UnfinishedUpload,
)
from kbackup.stores.s3 import transfer

if TYPE_CHECKING:
    from kbackup.stores.s3.requests import Requests

_T = TypeVar("_T")

_NONE_SET: Final = frozenset(
    {
        "NoSuchLifecycleConfiguration",
        "NoSuchObjectLockConfiguration",
        "ObjectLockConfigurationNotFoundError",
    }
)
"""The codes by which S3 says that nothing is configured."""

_BODY: Final = b"kbackup doctor was here\n"

_CONDITIONS: Final = (
    ("If-None-Match", "IfNoneMatch", "*"),
    ("If-Match", "IfMatch", f'"{"0" * 32}"'),  # no object's etag
)
"""Conditions that fail where an object is: header, parameter, value."""

_Put: TypeAlias = "Callable[[Requests, str, dict[str, Any]], None]"


class S3Bucket:
    """What is asked of a bucket besides reading and storing objects."""

    def __init__(self, requests: "Requests") -> None:
        self._requests = requests

    def _reading(self, key: str) -> "Requests":  # noqa: ARG002  (a store may read a version)
        """Return the requests that read an object."""
        return self._requests

    def bucket_facts(self) -> BucketFacts:
        """Return what the server says of the bucket: `Bucket.bucket_facts`."""
        untold: dict[str, str] = {}

        def ask(name: str, operation: str, read: Callable[[Mapping[str, Any]], _T]) -> _T | None:
            try:
                return read(self._requests.send(operation, ""))
            except StoreError as error:
                if error.place.get("s3_code") in _NONE_SET:
                    return read({})
                if "status" not in error.place:
                    raise
                untold[name] = error.why
                return None

        page = self._requests.send("list_objects_v2", "", MaxKeys=1)
        ahead = _clock_ahead(page, datetime.fromtimestamp(time.time(), UTC))
        if ahead is None:
            untold["clock_ahead_s"] = "the server sends no date"
        lock = ask("object_lock", "get_object_lock_configuration", _lock)
        own = self._requests.of_objects.lock or lock
        return BucketFacts(
            ahead,
            ask("versioning", "get_bucket_versioning", lambda answer: answer.get("Status", "")),
            None if lock is None else lock[0],
            ask(
                "rules", "get_bucket_lifecycle_configuration", lambda answer: tuple(_rules(answer))
            ),
            untold,
            lock_days=0 if own is None else own[1],
        )

    def is_locked(self) -> bool:
        """Whether the bucket has Object Lock: `Versions.is_locked`."""
        try:
            return bool(_lock(self._requests.send("get_object_lock_configuration", ""))[0])
        except StoreError as error:
            if error.place.get("s3_code") in _NONE_SET or transfer.not_implemented(error):
                return False
            raise

    def locked_until(self, key: str) -> datetime | None:
        """Return until when a version of an object is locked: `Versions.locked_until`."""
        ends = []
        for one in every(self._requests, [key]):
            if is_marker(one):
                continue
            version: dict[str, Any] = {"Key": key, "VersionId": one["VersionId"]}
            said = self._requests.send("head_object", key, **version)
            hold, end = map(said.get, ("ObjectLockLegalHoldStatus", "ObjectLockRetainUntilDate"))
            # it says neither to who may not see them: that has to be asked for
            hold = hold or self._lock("get_object_legal_hold", "LegalHold", version).get("Status")
            if hold == "ON":
                return datetime.max.replace(tzinfo=UTC)
            end = end or self._lock("get_object_retention", "Retention", version).get(
                "RetainUntilDate"
            )
            ends.append(end)
        return max((end for end in ends if end is not None), default=None)

    def _lock(self, operation: str, name: str, version: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            found: Mapping[str, Any] = self._requests.send(operation, version["Key"], **version)
        except StoreError as error:
            if error.place.get("s3_code") in _NONE_SET or transfer.not_implemented(error):
                return {}
            raise
        return dict(found.get(name) or {})

    def delete_versions(self, key: str) -> None:
        """Delete all versions of an object: `Versions.delete_versions`."""
        # the newest last, else an older one would be there if this is as far as it comes
        for one in sorted(every(self._requests, [key]), key=lambda one: bool(one["IsLatest"])):
            self._requests.send("delete_object", key, Key=key, VersionId=one["VersionId"])

    def probe_upload(self, key: str) -> None:
        """Upload in parts, and abort an upload: `Bucket.probe_upload`."""
        _put_parts(self._requests, key, {})
        created = self._requests.send("create_multipart_upload", key, Key=key)
        one = {"Key": key, "UploadId": created["UploadId"]}
        try:
            self._requests.send("upload_part", key, PartNumber=1, Body=_BODY, **one)
        finally:
            self._requests.send("abort_multipart_upload", key, **one)

    def probe_conditions(self, key: str) -> tuple[str, ...]:
        """Try to put where a condition must fail: `Bucket.probe_conditions`."""
        return tuple(
            f"{header} on {operation}"
            for header, name, value in _CONDITIONS
            for operation, put in (("PutObject", _put), ("CompleteMultipartUpload", _put_parts))
            if not _is_kept(put, self._requests, key, {name: value})
        )

    def thawed(self, key: str) -> Thaw:
        """Return how far an archived object has come: `Archive.thawed`."""
        answer = self._reading(key).send("head_object", key, Key=key)
        return read(answer.get("Restore", ""))

    def thaw(self, key: str, days: int, tier: Tier) -> None:
        """Ask for an archived object: `Archive.thaw`."""
        request = {"Days": days, "GlacierJobParameters": {"Tier": tier}}
        try:
            self._reading(key).send("restore_object", key, Key=key, RestoreRequest=request)
        except StoreError as error:
            if error.place.get("s3_code") != _UNDER_WAY:
                raise

    def unfinished(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Yield the unfinished uploads page by page: `Uploads.unfinished`."""
        at: dict[str, Any] = {}
        while True:
            page = self._requests.send("list_multipart_uploads", prefix, Prefix=prefix, **at)
            for entry in page.get("Uploads", ()):
                yield UnfinishedUpload(entry["Key"], entry["UploadId"], entry["Initiated"])
            if not page.get("IsTruncated"):
                return
            following = {
                "KeyMarker": page.get("NextKeyMarker", ""),
                "UploadIdMarker": page.get("NextUploadIdMarker", ""),
            }
            if following == at or not following["KeyMarker"]:
                raise incomplete(self._requests, "s3:ListBucketMultipartUploads", prefix)
            at = following

    def stored_bytes(self, upload: UnfinishedUpload) -> int:
        """Return how much of an upload is there: `Uploads.stored_bytes`."""
        total, at = 0, dict[str, Any]()
        while True:
            page = self._requests.send(
                "list_parts", upload.key, Key=upload.key, UploadId=upload.id, **at
            )
            total += sum(int(part["Size"]) for part in page.get("Parts", ()))
            if not page.get("IsTruncated"):
                return total
            at = {"PartNumberMarker": page["NextPartNumberMarker"]}

    def abort(self, upload: UnfinishedUpload) -> None:
        """Throw an upload's parts away: `Uploads.abort`."""
        try:
            self._requests.send(
                "abort_multipart_upload", upload.key, Key=upload.key, UploadId=upload.id
            )
        except StoreError as error:
            if not transfer.is_forgotten(error):
                raise


def incomplete(
    requests: "Requests",
    action: str,
    prefix: str,
    why: str = "the server reports more objects, but not where the listing continues",
) -> StoreError:
    """Return the error of a listing that is not complete."""
    what = f"{action} on {requests.resource(prefix)}"
    return StoreError(what, f"the listing is not complete: {why}", "use another kind of bucket")


def _is_kept(put: _Put, requests: "Requests", key: str, condition: dict[str, Any]) -> bool:
    try:
        put(requests, key, condition)
    except StoreError as error:
        if not (transfer.is_taken(error) or transfer.not_implemented(error)):
            raise
        return transfer.is_taken(error)
    return False


def _put(requests: "Requests", key: str, condition: dict[str, Any]) -> None:
    requests.send("put_object", key, body=io.BytesIO(_BODY), Key=key, **condition)


def _put_parts(requests: "Requests", key: str, condition: dict[str, Any]) -> None:
    created = requests.send("create_multipart_upload", key, Key=key)
    one = {"Key": key, "UploadId": created["UploadId"]}
    try:
        part = requests.send("upload_part", key, PartNumber=1, Body=_BODY, **one)
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        requests.send("complete_multipart_upload", key, MultipartUpload=parts, **one, **condition)
    except StoreError:
        requests.send("abort_multipart_upload", key, **one)
        raise


def _clock_ahead(answer: Mapping[str, Any], now: datetime) -> float | None:
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        server = parsedate_to_datetime(headers["date"])
    except (KeyError, TypeError, ValueError):
        return None
    return (server - now).total_seconds() if server.tzinfo is not None else None


def _lock(answer: Mapping[str, Any]) -> tuple[str, int]:
    """Return what new objects are locked for, for people and in days."""
    configuration = answer.get("ObjectLockConfiguration", {})
    if configuration.get("ObjectLockEnabled") != "Enabled":
        return "", 0
    rule = configuration.get("Rule", {}).get("DefaultRetention", {})
    for unit, days in (("Years", 365), ("Days", 1)):
        if unit in rule:
            return f"{rule['Mode']} {rule[unit]} {unit.lower()}", rule[unit] * days
    return "on", 0


def _rules(answer: Mapping[str, Any]) -> Iterator[LifecycleRule]:
    for rule in answer.get("Rules", ()):
        chosen = rule.get("Filter", {})
        prefix = chosen.get("Prefix", chosen.get("And", {}).get("Prefix", rule.get("Prefix", "")))
        abort = rule.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation")
        expire = rule.get("Expiration", {}).get("Days")
        versions = rule.get("NoncurrentVersionExpiration", {}).get("NoncurrentDays")
        if rule.get("Status") == "Enabled" and {abort, expire, versions} != {None}:
            yield LifecycleRule(rule.get("ID", "without a name"), prefix, abort, expire, versions)


_UNDER_WAY: Final = "RestoreAlreadyInProgress"


def read(header: str) -> Thaw:
    """Return what ``x-amz-restore`` says; an object without it was not asked for."""
    if 'ongoing-request="true"' in header:
        return Thaw("thawing")
    if 'ongoing-request="false"' not in header:
        return Thaw("frozen")
    date = re.search(r'expiry-date="([^"]*)"', header)
    try:
        return Thaw("ready", None if date is None else parsedate_to_datetime(date[1]))
    except ValueError:
        return Thaw("ready")


_NOW: Final = re.compile(r"(?:^|/)_kbackup/locks/")

_OF_VERSION: Final = frozenset({"get_object", "head_object", "restore_object"})


def is_now(key: str) -> bool:
    """Whether a key is of a lock: those that hold one now are meant."""
    return _NOW.search(key) is not None


@dataclass(frozen=True, slots=True)
class OfVersion:
    """Requests that read one version of an object."""

    requests: "Requests"
    version: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.requests, name)

    def send(self, operation: str, about: str, **params: Any) -> Any:
        """Return the server's answer: `Requests.send`."""
        if operation in _OF_VERSION:
            params["VersionId"] = self.version
        return self.requests.send(operation, about, **params)


def of_version(requests: "Requests", version: str) -> "Requests":
    """Return requests that read one version of an object."""
    return cast("Requests", OfVersion(requests, version))


def at(requests: "Requests", key: str, moment: datetime) -> str | None:
    """Return the version that a key had at a time; None where there was no object."""
    for found in _versions(requests, key, "", moment):
        if found["Key"] == key:
            return None if is_marker(found) else str(found["VersionId"])
        if found["Key"] > key:
            break
    return None


def stored_object(
    requests: "Requests", entry: Mapping[str, Any], version: str = ""
) -> StoredObject:
    """Return what an entry of a listing says."""
    return StoredObject(
        entry["Key"], entry["Size"], entry["LastModified"],
        requests.etag(entry, entry["Key"]), entry.get("StorageClass", ""), version,
    )  # fmt: skip


def listed(
    requests: "Requests", prefix: str, after: str, moment: datetime
) -> Iterator[StoredObject]:
    """Yield what a bucket had at a time: `Store.list`."""
    for found in _versions(requests, prefix, after, moment):
        if not is_marker(found) and found["Key"] > after:
            yield stored_object(requests, found)


def _versions(
    requests: "Requests", prefix: str, after: str, moment: datetime
) -> Iterator[Mapping[str, Any]]:
    """Yield of each key the version that it had at a time, or its delete marker, by key."""
    best: dict[str, Mapping[str, Any]] = {}
    for found, last in _pages(requests, prefix, after):
        for one in found:
            if one["LastModified"] > moment:
                continue
            before = best.get(one["Key"])
            # the newest comes first; of a version and a marker of one second the version is meant
            if before is None or _rank(one) > _rank(before):
                best[one["Key"]] = one
        for key in sorted(key for key in best if last is None or key < last):
            yield best.pop(key)


def _pages(
    requests: "Requests", prefix: str, after: str = ""
) -> Iterator[tuple[Sequence[Mapping[str, Any]], str | None]]:
    """Yield versions and delete markers, and the key from which others follow; None for none."""
    place: dict[str, Any] = {"KeyMarker": after} if after else {}
    while True:
        page = requests.send("list_object_versions", prefix, Prefix=prefix, **place)
        last = page["NextKeyMarker"] if page.get("IsTruncated") else None
        yield (*page.get("Versions", ()), *page.get("DeleteMarkers", ())), last
        if last is None:
            return
        place = {"KeyMarker": last}
        if version := page.get("NextVersionIdMarker"):
            place["VersionIdMarker"] = version


def _rank(found: Mapping[str, Any]) -> tuple[datetime, bool]:
    return found["LastModified"], not is_marker(found)


def is_marker(found: Mapping[str, Any]) -> bool:
    """Whether what is listed among versions is a delete marker."""
    return "Size" not in found


def every(requests: "Requests", keys: Collection[str]) -> Iterator[Mapping[str, Any]]:
    """Yield all versions of objects, delete markers too, of each object the newest first.

    A page has all keys that are close together; what lies between others is not listed.
    """
    wanted, left, last = {*keys}, sorted(keys, reverse=True), ""
    while left:
        prefix = commonprefix((left[-1], left[0]))  # noqa: RUF071  (of keys, not of paths)
        places = (place for place in (last, left[-1][:-1]) if place.startswith(prefix))
        for found, following in _pages(requests, prefix, max(places, default="")):
            yield from (one for one in found if one["Key"] in wanted)
            while left and (following is None or left[-1] < following):
                left.pop()
            if not left or left[-1] != following:
                last = following or ""
                break
