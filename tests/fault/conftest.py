from collections.abc import Iterator
from itertools import count

import pytest
from mypy_boto3_s3 import S3Client
from s3fault import S3Faults

from kbackup.local.servers import LocalS3
from kbackup.stores import StoreSettings
from kbackup.stores.s3 import S3Store
from tests.support.truth import client_of

PART_BYTES = 1024
"""Small parts make many-part uploads cheap."""

_BUCKETS = count()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[LocalS3]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("S3_UPLOAD_PART_MIN_SIZE", str(PART_BYTES))
        server = LocalS3()
    with server:
        yield server


@pytest.fixture(scope="session")
def truth(s3_server: LocalS3) -> S3Client:
    """A client of the server itself: sees what is stored, whatever the proxy does."""
    return client_of(s3_server)


@pytest.fixture
def proxy(s3_server: LocalS3) -> Iterator[S3Faults]:
    with S3Faults(s3_server.endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def settings(s3_server: LocalS3, proxy: S3Faults) -> StoreSettings:
    """An empty bucket of its own, behind the proxy."""
    bucket = f"faults-{next(_BUCKETS)}"
    s3_server.create_bucket(bucket)
    return StoreSettings(
        f"s3://{bucket}",
        endpoint_url=proxy.url,
        options={
            "aws.access.key.id": "AKIACANARY",
            "aws.secret.access.key": "SECRETCANARY",
            "s3.part.size": PART_BYTES,
            "s3.retry.backoff.ms": 1,
        },
    )


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def store(settings: StoreSettings, pauses: list[float]) -> S3Store:
    return S3Store(settings, read_timeout=5, sleep=pauses.append)


@pytest.fixture
def bucket(settings: StoreSettings) -> str:
    return settings.url.removeprefix("s3://")
