import pytest
from kbackup_bucket import BucketPartitioner

from kbackup.testing import PartitionerContract


class TestBucketPartitioner(PartitionerContract):
    @pytest.fixture(params=[1, 16])
    def partitioner(self, request):
        found = BucketPartitioner()
        found.configure({"bucket.count": request.param})
        return found
