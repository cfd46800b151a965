"""What several integration tests share."""

import pytest

from kbackup.local import LocalS3
from tests.support.cluster import TestCluster
from tests.support.large import Large, back_up_large


@pytest.fixture(scope="session")
def large(s3: LocalS3, cluster: TestCluster) -> Large:
    """A backup of 560 MB that compress to few."""
    return back_up_large(cluster, s3, "large", 4, 7_000)
