"""Unfinished uploads of a real S3 server: listed over several pages, aborted, gone."""

import pytest

from tests.contract.product import LocalS3, StoreSettings, Uploads, open_store
from tests.support.truth import client_of

BUCKET = "unfinished"


@pytest.fixture
def store(s3_server: LocalS3) -> Uploads:
    """A bucket with three unfinished uploads."""
    s3_server.create_bucket(BUCKET)
    client = client_of(s3_server)
    for key in ("topics/a", "topics/b", "other/c"):
        client.create_multipart_upload(Bucket=BUCKET, Key=key)
    options = {
        "aws.access.key.id": s3_server.access_key_id,
        "aws.secret.access.key": s3_server.secret_access_key,
        "s3.region": s3_server.region,
    }
    found = open_store(StoreSettings(f"s3://{BUCKET}", s3_server.endpoint_url, options))
    assert isinstance(found, Uploads)
    return found


def test_they_are_listed_by_prefix_and_aborted_once(store: Uploads) -> None:
    """An upload that has ended meanwhile is not an error: it is gone, as requested."""
    found = [*store.unfinished("topics/")]

    for one in [*found, found[0]]:
        store.abort(one)

    assert ["topics/a", "topics/b"] == [one.key for one in found]
    assert all(one.begun.tzinfo is not None for one in found)
    assert ["other/c"] == [one.key for one in store.unfinished("")]
