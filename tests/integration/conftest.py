"""What several integration tests share."""

from collections.abc import Iterator

import pytest
from s3fault import S3Faults

from tests.integration.product import LocalS3
from tests.support.backup import Backup
from tests.support.cluster import TestCluster
from tests.support.large import Large, back_up_large


@pytest.fixture(scope="session")
def large(s3: LocalS3, cluster: TestCluster) -> Large:
    """A backup of 320 MB that compress to few."""
    return back_up_large(cluster, s3, "large", 4, 4_000)


@pytest.fixture(scope="session")
def large_in_directories(s3: LocalS3, cluster: TestCluster) -> Large:
    """The same, each partition over three directories."""
    return back_up_large(cluster, s3, "large-spread", 4, 4_000, "--partitioner", "modulo")


@pytest.fixture(scope="session")
def large_in_batches(s3: LocalS3, cluster: TestCluster) -> Large:
    """A backup of 60 MB in batches as they were sent, which a restore sends as they are."""
    words = ("--format", "log")
    return back_up_large(cluster, s3, "large-batches", 2, 1_500, *words, is_noise=True)


@pytest.fixture
def proxy(s3: LocalS3) -> Iterator[S3Faults]:
    """A proxy in front of the S3 server."""
    with S3Faults(s3.endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def backup(s3: LocalS3, bucket: str) -> Backup:
    """What is in the test's bucket."""
    return Backup(s3, bucket)
