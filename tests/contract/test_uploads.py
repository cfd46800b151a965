"""Unfinished uploads of a real S3 server: listed over several pages, aborted, gone."""

from collections.abc import Iterator

import pytest

from tests.contract.product import LocalS3, Uploads, open_store
from tests.support.truth import client_of, way_to

BUCKET = "unfinished"


@pytest.fixture
def store(s3_server: LocalS3) -> Iterator[Uploads]:
    """A bucket with three unfinished uploads."""
    s3_server.create_bucket(BUCKET)
    client = client_of(s3_server)
    for key in ("topics/a", "topics/b", "other/c"):
        client.create_multipart_upload(Bucket=BUCKET, Key=key)
    found = open_store(way_to(BUCKET, s3_server))
    assert isinstance(found, Uploads)
    yield found
    for one in found.unfinished(""):
        found.abort(one)


def test_their_parts_are_added_up(store: Uploads, s3_server: LocalS3) -> None:
    """As they are: what is there takes place, and is billed."""
    first, second = store.unfinished("topics/")
    for number in (1, 2):
        client_of(s3_server).upload_part(
            Bucket=BUCKET, Key=first.key, UploadId=first.id, PartNumber=number, Body=b"12345"
        )

    assert [10, 0] == [store.stored_bytes(one) for one in (first, second)]


def test_they_are_listed_by_prefix_and_aborted_once(store: Uploads) -> None:
    """An upload that has ended meanwhile is not an error: it is gone, as requested."""
    found = [*store.unfinished("topics/")]

    for one in [*found, found[0]]:
        store.abort(one)

    assert ["topics/a", "topics/b"] == [one.key for one in found]
    assert all(one.begun.tzinfo is not None for one in found)
    assert ["other/c"] == [one.key for one in store.unfinished("")]
