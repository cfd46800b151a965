"""Unfinished uploads of a real S3 server: listed over several pages, aborted, gone."""

import boto3
import pytest

from kbackup.local.s3 import LocalS3
from kbackup.stores import StoreSettings, open_store
from kbackup.stores.uploads import Uploads

BUCKET = "unfinished"


@pytest.fixture
def store(s3_server: LocalS3) -> Uploads:
    """A bucket with three unfinished uploads."""
    s3_server.create_bucket(BUCKET)
    keys = (s3_server.access_key_id, s3_server.secret_access_key)
    client = boto3.client(
        "s3", endpoint_url=s3_server.endpoint_url, region_name="us-west-2",
        aws_access_key_id=keys[0], aws_secret_access_key=keys[1],
    )  # fmt: skip
    for key in ("topics/a", "topics/b", "other/c"):
        client.create_multipart_upload(Bucket=BUCKET, Key=key)
    options = dict(zip(("aws.access.key.id", "aws.secret.access.key"), keys, strict=True))
    found = open_store(StoreSettings(f"s3://{BUCKET}", s3_server.endpoint_url, options))
    assert isinstance(found, Uploads)
    return found


def test_they_are_listed_by_prefix_and_aborted_once(store: Uploads) -> None:
    """
    One that has ended meanwhile is no error: it is gone, which was asked for.
    """
    found = [*store.unfinished("topics/")]

    for one in [*found, found[0]]:
        store.abort(one)

    assert ["topics/a", "topics/b"] == [one.key for one in found]
    assert all(one.begun.tzinfo is not None for one in found)
    assert ["other/c"] == [one.key for one in store.unfinished("")]
