"""Questions about a bucket itself, and an upload in parts for trial."""

import io
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from kbackup.errors import StoreError
from kbackup.stores.bucket_facts import BucketFacts, LifecycleRule
from kbackup.stores.s3 import outcomes

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
    return BucketFacts(
        ahead,
        ask("versioning", "get_bucket_versioning", lambda answer: answer.get("Status", "")),
        ask("object_lock", "get_object_lock_configuration", _lock),
        ask("rules", "get_bucket_lifecycle_configuration", lambda answer: tuple(_rules(answer))),
        untold,
    )


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
        if not (outcomes.is_taken(error) or outcomes.not_implemented(error)):
            raise
        return outcomes.is_taken(error)
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


def _lock(answer: Mapping[str, Any]) -> str:
    configuration = answer.get("ObjectLockConfiguration", {})
    if configuration.get("ObjectLockEnabled") != "Enabled":
        return ""
    rule = configuration.get("Rule", {}).get("DefaultRetention", {})
    unit = "Years" if "Years" in rule else "Days"
    return f"{rule['Mode']} {rule[unit]} {unit.lower()}" if unit in rule else "on"


def _rules(answer: Mapping[str, Any]) -> Iterator[LifecycleRule]:
    for rule in answer.get("Rules", ()):
        chosen = rule.get("Filter", {})
        prefix = chosen.get("Prefix", chosen.get("And", {}).get("Prefix", rule.get("Prefix", "")))
        abort = rule.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation")
        expire = rule.get("Expiration", {}).get("Days")
        if rule.get("Status") == "Enabled" and (abort is not None or expire is not None):
            yield LifecycleRule(rule.get("ID", "without a name"), prefix, abort, expire)
