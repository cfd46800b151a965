"""Versions of an object, as a server lists them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kbackup.config import loading
from kbackup.stores.s3 import versions

NOW = datetime(2026, 11, 20, tzinfo=UTC)
PAGE = {
    "Versions": [
        {"Key": "a", "VersionId": "3", "IsLatest": True},
        {"Key": "a", "VersionId": "1", "IsLatest": False},
        {"Key": "a.keys", "VersionId": "9", "IsLatest": True},
    ],
    "DeleteMarkers": [{"Key": "a", "VersionId": "2", "IsLatest": False}],
    "IsTruncated": False,
}


class Paged:
    """A server whose pages have one version each."""

    def send(self, operation: str, about: str, **params: Any) -> Any:  # noqa: ARG002
        """Answer."""
        every = [
            ("DeleteMarkers", {"Key": "a", "VersionId": "2", "LastModified": NOW}),
            ("Versions", {"Key": "a", "VersionId": "1", "LastModified": NOW, "Size": 1}),
        ]
        at = 1 if params.get("VersionIdMarker") == "2" else 0
        kind, found = every[at]
        more = {"NextKeyMarker": "a", "NextVersionIdMarker": "2"} if at == 0 else {}
        return {kind: [found], "IsTruncated": at == 0, **more}


def test_of_one_second_the_version_is_meant_wherever_a_page_ends() -> None:
    """A marker that is on the page before does not hide it."""
    server: Any = Paged()

    assert "1" == versions.at(server, "a", NOW)


class Listed:
    """A server that has one page."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def send(self, operation: str, about: str, **params: Any) -> Any:  # noqa: ARG002
        """Answer, or delete."""
        if operation == "delete_object":
            self.deleted.append(params["VersionId"])
        return PAGE


def test_the_newest_version_goes_last() -> None:
    """Whoever dies before it leaves what was there, and no older object in its place."""
    server: Any = Listed()

    versions.delete(server, "a")

    assert ["1", "2", "3"] == server.deleted


@pytest.mark.parametrize("command", ["restore", "configs", "groups", "access"])
def test_all_that_a_restore_brings_back_can_be_of_a_time(command: loading.Command) -> None:
    """Access and settings too: after an attack, what is there now is the attacker's."""
    given, time = {"s3_bucket_name": "b", "bootstrap_servers": "h:1"}, "2026-11-20T10:00:00Z"
    extra = [f"s3.versions.as.of={time}"]
    settings = loading.load(command, options=given, files=[], environ={}, extra=extra).settings

    assert time == settings.options_of("stores").get("s3.versions.as.of")


@pytest.mark.parametrize("command", ["sink", "reindex", "accept", "expire", "copy", "keys"])
def test_all_that_is_stored_is_locked(command: loading.Command) -> None:
    """Wrapped keys and copies too: a backup without them is none."""
    given = {"s3_bucket_name": "b", "bootstrap_servers": "h:1", "topics": "orders"}
    lock = {"s3.object.lock.mode": "COMPLIANCE", "s3.object.lock.days": 30}
    extra = [f"{name}={text}" for name, text in lock.items()]
    found = loading.load(
        command, options=given if command == "sink" else {"s3_bucket_name": "b"}, files=[],
        environ={}, extra=extra,
    )  # fmt: skip

    assert lock.items() <= found.settings.options_of("stores").items()
