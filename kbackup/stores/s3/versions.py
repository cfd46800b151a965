"""A versioned bucket as it was at a time: what was deleted or overwritten since is there.

Nothing in the bucket is believed but the times that the server itself gave to versions.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from kbackup.stores import StoredObject

if TYPE_CHECKING:
    from kbackup.stores.s3.requests import Requests

_NOW: Final = re.compile(r"(?:^|/)_kbackup/locks/")

_OF_VERSION: Final = frozenset({"get_object", "head_object"})


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


def at(requests: "Requests", key: str, moment: datetime) -> str | None:
    """Return the version that a key had at a time; None where there was no object."""
    for found in _versions(requests, key, "", moment):
        if found["Key"] == key:
            return None if _is_marker(found) else str(found["VersionId"])
        if found["Key"] > key:
            break
    return None


def listed(
    requests: "Requests", prefix: str, after: str, moment: datetime
) -> Iterator[StoredObject]:
    """Yield what a bucket had at a time: `Store.list`."""
    for found in _versions(requests, prefix, after, moment):
        if not _is_marker(found) and found["Key"] > after:
            yield StoredObject(
                found["Key"], found["Size"], found["LastModified"],
                requests.etag(found, found["Key"]), found.get("StorageClass", ""),
            )  # fmt: skip


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
    return found["LastModified"], not _is_marker(found)


def _is_marker(found: Mapping[str, Any]) -> bool:
    return "Size" not in found


def every(requests: "Requests", key: str) -> Iterator[Mapping[str, Any]]:
    """Yield all versions of an object, delete markers too."""
    for found, last in _pages(requests, key):
        yield from (one for one in found if one["Key"] == key)
        if last is not None and last > key:
            return


def locked_until(requests: "Requests", key: str) -> datetime | None:
    """Return until when a version of an object is locked: `Versions.locked_until`."""
    ends = []
    for one in every(requests, key):
        if _is_marker(one):
            continue
        said = OfVersion(requests, str(one["VersionId"])).send("head_object", key, Key=key)
        if said.get("ObjectLockLegalHoldStatus") == "ON":
            return datetime.max.replace(tzinfo=UTC)
        ends.append(said.get("ObjectLockRetainUntilDate"))
    return max((end for end in ends if end is not None), default=None)


def delete(requests: "Requests", key: str) -> None:
    """Delete all versions of an object: `Versions.delete_versions`."""
    # the newest last, else an older one would be there if this is as far as it comes
    for one in sorted(every(requests, key), key=lambda one: bool(one["IsLatest"])):
        requests.send("delete_object", key, Key=key, VersionId=one["VersionId"])
