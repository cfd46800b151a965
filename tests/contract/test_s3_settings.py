"""What an S3 server is asked for besides the body: encryption, access, storage class, tags."""

import base64
import hashlib
import io
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from mypy_boto3_s3 import S3Client
from s3fault import Fault, S3Faults

from tests.contract.product import (
    LocalS3,
    Store,
    StoreError,
    StoreSettings,
    open_bytes,
    open_store,
    put_bytes,
)
from tests.support.truth import client_of

FACTS = {"first-offset": "10", "last-offset": "19", "records": "7"}
KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
LARGE = bytes(5 * 2**20 + 1)

_BUCKETS = count()


@pytest.fixture
def bucket(s3_server: LocalS3) -> str:
    name = f"settings-{next(_BUCKETS)}"
    s3_server.create_bucket(name)
    return name


@pytest.fixture
def truth(s3_server: LocalS3) -> S3Client:
    return client_of(s3_server)


@pytest.fixture
def proxy(s3_server: LocalS3) -> Iterator[S3Faults]:
    with S3Faults(s3_server.endpoint_url) as proxy:
        yield proxy


def store_of(bucket: str, proxy: S3Faults, **options: Any) -> Store:
    given = {name.replace("_", "."): value for name, value in options.items()}
    keys = {
        "aws.access.key.id": "mine",
        "aws.secret.access.key": "secret",
        "s3.retry.backoff.ms": 1,
    }
    sizes = {"s3.part.size": 5 * 2**20}
    return open_store(StoreSettings(f"s3://{bucket}", proxy.url, {**keys, **sizes, **given}))


def put(store: Store, key: str, body: bytes = b"orders") -> None:
    """Put an object of the backup."""
    digest = hashlib.sha256(body).hexdigest()
    assert store.put(key, io.BytesIO(body), sha256=digest, metadata=FACTS, if_absent=True)


@pytest.mark.parametrize("body", [b"orders", LARGE], ids=["at once", "in parts"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"s3_ssea_name": "AES256"}, ("AES256", None)),
        ({"s3_ssea_name": "aws:kms", "s3_sse_kms_key_id": "k1"}, ("aws:kms", "k1")),
        ({"s3_ssea_name": "aws:kms"}, ("aws:kms", None)),
    ],
    ids=["SSE-S3", "SSE-KMS", "SSE-KMS with the account's key"],
)
def test_objects_are_encrypted_as_asked(
    options: dict[str, str], expected: tuple[str, str | None], body: bytes, bucket: str,
    proxy: S3Faults, truth: S3Client,
) -> None:  # fmt: skip
    """Every request carries the header, as a bucket policy may refuse any other."""
    store = store_of(bucket, proxy, **options)
    put(store, "a", body)
    put_bytes(store, "_kbackup/lock", b"mine")

    for key in ("a", "_kbackup/lock"):
        head = truth.head_object(Bucket=bucket, Key=key)
        assert expected[0] == head["ServerSideEncryption"]
        assert expected[1] in (None, head.get("SSEKMSKeyId"))
    assert body == open_bytes(store, "a")


@pytest.mark.parametrize("body", [b"orders", LARGE], ids=["at once", "in parts"])
def test_a_customers_key_goes_with_each_request(body: bytes, bucket: str, proxy: S3Faults) -> None:
    """Objects written with the key are read with it, and every request about them carries it."""
    store = store_of(bucket, proxy, s3_ssea_name="AES256", s3_sse_customer_key=KEY)
    put(store, "a", body)

    assert store.head("a") is not None
    assert body == open_bytes(store, "a")
    name = "x-amz-server-side-encryption-customer-key"
    of_bodies = [
        headers.get(name)
        for (line, _), headers in zip(proxy.log, proxy.headers, strict=True)
        if not line.startswith("POST") or "uploads" in line  # but for the completion
    ]
    assert [KEY] * len(of_bodies) == of_bodies
    assert len(of_bodies) >= 3


@pytest.mark.parametrize("body", [b"orders", LARGE], ids=["at once", "in parts"])
def test_access_list_and_storage_class_are_the_objects_own(
    body: bytes, bucket: str, proxy: S3Faults, truth: S3Client
) -> None:
    """A lock or a ledger in an archive could not be read: only the backup's objects go there."""
    store = store_of(bucket, proxy, s3_acl_canned="public-read", s3_storage_class="STANDARD_IA")
    put(store, "a", body)
    put_bytes(store, "_kbackup/lock", b"mine")

    assert "STANDARD_IA" == truth.head_object(Bucket=bucket, Key="a")["StorageClass"]
    assert "StorageClass" not in truth.head_object(Bucket=bucket, Key="_kbackup/lock")
    for key in ("a", "_kbackup/lock"):
        grants = truth.get_object_acl(Bucket=bucket, Key=key)["Grants"]
        assert "READ" in {grant["Permission"] for grant in grants}


def tags(truth: S3Client, bucket: str, key: str) -> dict[str, str]:
    found = truth.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]
    return {tag["Key"]: tag["Value"] for tag in found}


def test_tags_are_the_connectors_and_those_that_were_asked_for(
    bucket: str, proxy: S3Faults, truth: S3Client
) -> None:
    """Tags give first offset, last offset and number of records; a value may contain colons."""
    more = ("team:orders", "at:12:30")
    store = store_of(bucket, proxy, s3_object_tagging=True, s3_object_tagging_key_value_pairs=more)
    put(store, "a")
    put_bytes(store, "_kbackup/lock", b"mine")

    expected = {"startOffset": "10", "endOffset": "19", "recordCount": "7"}
    assert {**expected, "team": "orders", "at": "12:30"} == tags(truth, bucket, "a")
    assert {} == tags(truth, bucket, "_kbackup/lock")


@pytest.mark.parametrize("policy", ["ignore", "fail"])
def test_an_object_that_cannot_be_tagged_is_stored_all_the_same(
    policy: str, bucket: str, proxy: S3Faults, truth: S3Client, caplog: pytest.LogCaptureFixture
) -> None:
    """An object that cannot be tagged is stored, and behavior.on.tagging.error decides the rest."""
    proxy.faults = [Fault(r"PUT .*\?tagging", "status", status=403, code="AccessDenied")]
    more = {"s3_object_tagging": True, "s3_object_behavior_on_tagging_error": policy}
    store = store_of(bucket, proxy, **more)

    if policy == "fail":
        with pytest.raises(StoreError, match="PutObjectTagging"):
            put(store, "a")
    else:
        put(store, "a")
        assert "without tags" in caplog.text
    assert truth.head_object(Bucket=bucket, Key="a")["ContentLength"] == 6


def test_requests_go_through_the_proxy_that_is_named(bucket: str, s3_server: LocalS3) -> None:
    """The proxy is used even for servers that need none, and it alone sees user and password."""
    answer = Fault("PUT", "status", status=200, body=b"<Done/>")
    with S3Faults(s3_server.endpoint_url, [answer]) as proxy:
        given = {
            "aws.access.key.id": "mine", "aws.secret.access.key": "secret",
            "s3.proxy.url": proxy.url, "s3.proxy.user": "me", "s3.proxy.password": "p@ss/word",
        }  # fmt: skip
        store = open_store(StoreSettings(f"s3://{bucket}", "http://s3.invalid:9000", given))
        put_bytes(store, "a", b"orders")

        assert "http://s3.invalid:9000" in proxy.log[0][0]
        basic = base64.b64encode(b"me:p@ss/word").decode()
        assert f"Basic {basic}" == proxy.headers[0]["Proxy-Authorization"]
