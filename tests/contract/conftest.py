import pytest

from tests.contract.product import LocalS3
from tests.support.other_s3 import OtherS3


@pytest.fixture(scope="session")
def s3_server(request: pytest.FixtureRequest) -> LocalS3 | OtherS3:
    """The S3 server that ``KBACKUP_TEST_S3`` names, else the one that all tests share."""
    if (other := OtherS3.of_environment()) is not None:
        return other
    ours: LocalS3 = request.getfixturevalue("s3")
    return ours
