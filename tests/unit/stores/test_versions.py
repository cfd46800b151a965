"""Versions of an object, as a server lists them."""

from typing import Any

from kbackup.stores.s3 import versions

PAGE = {
    "Versions": [
        {"Key": "a", "VersionId": "3", "IsLatest": True},
        {"Key": "a", "VersionId": "1", "IsLatest": False},
        {"Key": "a.keys", "VersionId": "9", "IsLatest": True},
    ],
    "DeleteMarkers": [{"Key": "a", "VersionId": "2", "IsLatest": False}],
    "IsTruncated": False,
}


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
