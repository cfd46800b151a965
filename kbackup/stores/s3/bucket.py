"""Questions about a bucket itself, and an upload in parts for trial."""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

from kbackup.errors import StoreError
from kbackup.stores.bucket_facts import BucketFacts, LifecycleRule
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


def facts(requests: Requests) -> BucketFacts:
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


def probe_upload(requests: Requests, key: str) -> None:
    """Upload in parts, and abort an upload: `Bucket.probe_upload`."""
    for is_kept in (True, False):
        created = requests.send("create_multipart_upload", key, Key=key)
        one = {"Key": key, "UploadId": created["UploadId"]}
        try:
            part = requests.send("upload_part", key, PartNumber=1, Body=_BODY, **one)
            if is_kept:
                parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
                requests.send(
                    "complete_multipart_upload", key, MultipartUpload={"Parts": parts}, **one
                )
        except StoreError:
            requests.send("abort_multipart_upload", key, **one)
            raise
        if not is_kept:
            requests.send("abort_multipart_upload", key, **one)


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
