import pytest
from kbackup_bucket import BucketPartitioner

from kbackup.testing import PartitionerContract


class TestBucketPartitioner(PartitionerContract):
    @pytest.fixture
    def partitioner(self):
        return BucketPartitioner()
