"""Questions about a bucket itself, its archived objects and its unfinished uploads."""

import io
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from kbackup.errors import StoreError
from kbackup.stores import BucketFacts, LifecycleRule, Thaw, Tier, UnfinishedUpload
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


def facts(requests: "Requests") -> BucketFacts:
    """Return what the server says of the bucket: `Bucket.bucket_facts`."""
    untold: dict[str, str] = {}

    def ask(name: str, operation: str, read: Callable[[Mapping[str, Any]], _T]) -> _T | None:
        try:
            return read(requests.send(operation, ""))
        except StoreError as error:
            if error.place.get("s3_code") in _NONE_SET:
                return read({})
            if "status" not in error.place:
                raise
            untold[name] = error.why
            return None

    page = requests.send("list_objects_v2", "", MaxKeys=1)
    ahead = _clock_ahead(page, datetime.fromtimestamp(time.time(), UTC))
    if ahead is None:
        untold["clock_ahead_s"] = "the server sends no date"
    lock = ask("object_lock", "get_object_lock_configuration", _lock)
    return BucketFacts(
        ahead,
        ask("versioning", "get_bucket_versioning", lambda answer: answer.get("Status", "")),
        None if lock is None else lock[0],
        ask("rules", "get_bucket_lifecycle_configuration", lambda answer: tuple(_rules(answer))),
        untold,
        lock_days=0 if lock is None else lock[1],
    )


def is_locked(requests: "Requests") -> bool:
    """Whether the bucket has Object Lock: `Versions.is_locked`."""
    try:
        return bool(_lock(requests.send("get_object_lock_configuration", ""))[0])
    except StoreError as error:
        if error.place.get("s3_code") in _NONE_SET or transfer.not_implemented(error):
            return False
        raise


def probe_upload(requests: "Requests", key: str) -> None:
    """Upload in parts, and abort an upload: `Bucket.probe_upload`."""
    _put_parts(requests, key, {})
    created = requests.send("create_multipart_upload", key, Key=key)
    one = {"Key": key, "UploadId": created["UploadId"]}
    try:
        requests.send("upload_part", key, PartNumber=1, Body=_BODY, **one)
    finally:
        requests.send("abort_multipart_upload", key, **one)


def probe_conditions(requests: "Requests", key: str) -> tuple[str, ...]:
    """Try to put where a condition must fail: `Bucket.probe_conditions`."""
    return tuple(
        f"{header} on {operation}"
        for header, name, value in _CONDITIONS
        for operation, put in (("PutObject", _put), ("CompleteMultipartUpload", _put_parts))
        if not _is_kept(put, requests, key, {name: value})
    )


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


def thawed_object(requests: "Requests", key: str) -> Thaw:
    """Return how far an archived object has come: `Archive.thawed`."""
    answer = requests.send("head_object", key, Key=key)
    return read(answer.get("Restore", ""))


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


def thaw_object(requests: "Requests", key: str, days: int, tier: Tier) -> None:
    """Ask for an archived object: `Archive.thaw`."""
    request = {"Days": days, "GlacierJobParameters": {"Tier": tier}}
    try:
        requests.send("restore_object", key, Key=key, RestoreRequest=request)
    except StoreError as error:
        if error.place.get("s3_code") != _UNDER_WAY:
            raise


def unfinished_uploads(requests: "Requests", prefix: str) -> Iterator[UnfinishedUpload]:
    """Yield the unfinished uploads page by page: `Uploads.unfinished`."""
    at: dict[str, Any] = {}
    while True:
        page = requests.send("list_multipart_uploads", prefix, Prefix=prefix, **at)
        for entry in page.get("Uploads", ()):
            yield UnfinishedUpload(entry["Key"], entry["UploadId"], entry["Initiated"])
        if not page.get("IsTruncated"):
            return
        following = {
            "KeyMarker": page.get("NextKeyMarker", ""),
            "UploadIdMarker": page.get("NextUploadIdMarker", ""),
        }
        if following == at or not following["KeyMarker"]:
            raise StoreError(
                f"s3:ListBucketMultipartUploads on {requests.resource(prefix)}",
                "the listing is not complete: the server reports more objects, but not where "
                "the listing continues",
                "use another kind of bucket",
            )
        at = following


def upload_bytes(requests: "Requests", upload: UnfinishedUpload) -> int:
    """Return how much of an upload is there: `Uploads.stored_bytes`."""
    total, at = 0, dict[str, Any]()
    while True:
        page = requests.send("list_parts", upload.key, Key=upload.key, UploadId=upload.id, **at)
        total += sum(int(part["Size"]) for part in page.get("Parts", ()))
        if not page.get("IsTruncated"):
            return total
        at = {"PartNumberMarker": page["NextPartNumberMarker"]}


def abort_upload(requests: "Requests", upload: UnfinishedUpload) -> None:
    """Throw an upload's parts away: `Uploads.abort`."""
    try:
        requests.send("abort_multipart_upload", upload.key, Key=upload.key, UploadId=upload.id)
    except StoreError as error:
        if not transfer.is_forgotten(error):
            raise


BUCKET: Final = ""
OBJECTS: Final = "topics/*"
RECORDS: Final = "_kbackup/*"
"""What a permission is on: the bucket itself, the backup's objects (below ``topics.dir``), or what
kbackup keeps beside them."""

_LIST: Final = frozenset({("s3:ListBucket", BUCKET), ("s3:GetObject", RECORDS)})
_READ: Final = _LIST | {("s3:GetObject", OBJECTS)}
_KEEP: Final = frozenset({("s3:PutObject", RECORDS), ("s3:DeleteObject", RECORDS)})
_EXAMINE: Final = frozenset(
    {
        ("s3:ListBucket", BUCKET),
        ("s3:GetObject", OBJECTS),
        ("s3:GetBucketVersioning", BUCKET),
        ("s3:GetLifecycleConfiguration", BUCKET),
        ("s3:GetBucketObjectLockConfiguration", BUCKET),
    }
)
"""The last three may be missing: ``doctor`` then reports them as not checkable."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a command, in its words after ``kbackup``, asks for: actions, and what each is on."""

    command: str
    grants: frozenset[tuple[str, str]]


NEEDS: Final = (
    Need(
        "sink",
        _READ | _KEEP | {(f"s3:{do}", OBJECTS) for do in ("PutObject", "AbortMultipartUpload")},
    ),
    Need("sink --dry-run", _READ),
    Need("sink status", _LIST),
    Need("sink reindex", _READ | {("s3:PutObject", RECORDS)}),
    Need("sink accept", _LIST | {("s3:PutObject", RECORDS)}),
    Need("sink copy", _READ),
    Need(
        "sink expire",
        _LIST
        | _KEEP
        | {("s3:DeleteObject", OBJECTS), ("s3:GetBucketObjectLockConfiguration", BUCKET)},
    ),
    Need(
        "sink abort-uploads",
        frozenset(
            {("s3:ListBucketMultipartUploads", BUCKET), ("s3:AbortMultipartUpload", OBJECTS)}
        ),
    ),
    Need(
        "sink abort-uploads --dry-run",
        frozenset(
            {("s3:ListBucketMultipartUploads", BUCKET), ("s3:ListMultipartUploadParts", OBJECTS)}
        ),
    ),
    Need("restore", _READ | _KEEP),
    Need("restore --follow", _READ | _KEEP),
    Need("restore --dry-run", _READ),
    Need("restore status", _LIST),
    Need("restore list", _LIST),
    Need("restore query", _READ),
    Need("restore verify", _LIST),
    Need("restore verify --deep", _READ),
    Need("restore cat", _READ),
    Need("restore thaw", _READ | {("s3:RestoreObject", OBJECTS), ("s3:RestoreObject", RECORDS)}),
    Need("doctor", _EXAMINE),
    Need(
        "doctor --write-probe",
        _EXAMINE | _KEEP | {("s3:GetObject", RECORDS), ("s3:AbortMultipartUpload", RECORDS)},
    ),
)
"""Each command, with the settings that it has if nothing else is said."""
