"""Archived objects in a real S3 server: listed, refused, asked for, read."""

import pytest

from tests.contract.product import (
    Archive,
    LocalS3,
    ObjectNotFoundError,
    StoreError,
    Thaw,
    open_store,
    read,
)
from tests.support.truth import client_of, way_to

BUCKET = "archived"


@pytest.fixture
def store(s3_server: LocalS3) -> Archive:
    """A bucket with an archived object."""
    s3_server.create_bucket(BUCKET)
    client = client_of(s3_server)
    client.put_object(Bucket=BUCKET, Key="old", Body=b"data", StorageClass="DEEP_ARCHIVE")
    client.put_object(Bucket=BUCKET, Key="new", Body=b"data")
    found = open_store(way_to(BUCKET, s3_server))
    assert isinstance(found, Archive)
    return found


def test_an_archived_object_is_asked_for_and_then_read(store: Archive) -> None:
    """An archived object cannot be opened until it is thawed, and the error says what to do."""
    listed = {entry.key: entry.storage_class for entry in store.list("")}  # type: ignore[attr-defined]
    before = store.thawed("old")
    with pytest.raises(StoreError, match="InvalidObjectState") as refused:
        store.open("old")  # type: ignore[attr-defined]

    store.thaw("old", 3, "Bulk")

    after = store.thawed("old")
    assert {"new": "STANDARD", "old": "DEEP_ARCHIVE"} == listed
    assert "kbackup restore thaw" in refused.value.do
    assert (Thaw("frozen"), "ready") == (before, after.state)
    assert after.until is not None
    assert b"data" == store.open("old").read()  # type: ignore[attr-defined]


def test_an_object_that_is_gone_is_no_archived_one(store: Archive) -> None:
    """An object that was deleted after the listing is reported as missing, not as archived."""
    with pytest.raises(ObjectNotFoundError):
        store.thawed("gone")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", "frozen"),
        ('ongoing-request="true"', "thawing"),
        ('ongoing-request="false"', "ready"),
        ('ongoing-request="false", expiry-date="Fri, 21 Dec 2012 00:00:00 GMT"', "ready"),
        ('ongoing-request="false", expiry-date="soon"', "ready"),
    ],
)
def test_the_header_is_read_in_each_of_its_forms(header: str, expected: str) -> None:
    """An invalid date does not prevent an object from being read."""
    assert expected == read(header).state
