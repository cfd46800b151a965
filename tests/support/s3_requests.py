"""The requests of the S3 store, as scripts of faults name them, and what the bucket holds."""

from collections.abc import Callable
from typing import Any

import pytest
from mypy_boto3_s3 import S3Client

from kbackup.stores.s3 import S3Store
from kbackup.testing import open_bytes, put_bytes

SMALL = b"orders" * 100
LARGE = bytes(range(256)) * 9  # three parts of the fixture's settings, the last of 256 bytes

PUT, CREATE, PART, COMPLETE = (
    "PUT [^?]*$",
    r"POST .*\?uploads",
    "PUT .*partNumber=2",
    "POST .*uploadId",
)
GET, LIST, HEAD, DELETE, ABORT = (
    "GET [^?]*/a$",
    "list-type=2",
    "HEAD ",
    "DELETE [^?]*$",
    "DELETE .*uploadId",
)


def keys(truth: S3Client, bucket: str) -> list[str]:
    return [one["Key"] for one in truth.list_objects_v2(Bucket=bucket).get("Contents", [])]


def unfinished(truth: S3Client, bucket: str) -> int:
    return len(truth.list_multipart_uploads(Bucket=bucket).get("Uploads", []))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged, but by Kafka clients that another test has left."""
    kafka = "kbackup.kafka"
    return [one.getMessage() for one in caplog.records if not one.name.startswith(kafka)]


def content(truth: S3Client, bucket: str, key: str = "a") -> bytes:
    return truth.get_object(Bucket=bucket, Key=key)["Body"].read()


WORK: dict[str, Callable[[S3Store], Any]] = {
    PUT: lambda store: put_bytes(store, "a", SMALL),
    CREATE: lambda store: put_bytes(store, "a", LARGE),
    PART: lambda store: put_bytes(store, "a", LARGE),
    COMPLETE: lambda store: put_bytes(store, "a", LARGE),
    GET: lambda store: open_bytes(store, "a"),
    LIST: lambda store: [one.key for one in store.list("")],
    HEAD: lambda store: (store.head("a"), store.head("none")),
    DELETE: lambda store: (store.delete("a"), store.head("a")),
}
"""What meets a fault, by the request that is broken."""

EVERY_REQUEST = [
    pytest.param(PUT, id="put"),
    pytest.param(CREATE, id="create"),
    pytest.param(PART, id="part"),
    pytest.param(COMPLETE, id="complete"),
    pytest.param(GET, id="get"),
    pytest.param(LIST, id="list"),
    pytest.param(HEAD, id="head"),
    pytest.param(DELETE, id="delete"),
]
