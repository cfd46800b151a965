from collections.abc import Iterator

import pytest

from tests.contract.product import LocalS3
from tests.support.other_s3 import OtherS3


@pytest.fixture(scope="session")
def s3_server() -> Iterator[LocalS3 | OtherS3]:
    """The S3 server that ``KBACKUP_TEST_S3`` names, else one of our own."""
    if (other := OtherS3.of_environment()) is not None:
        yield other
        return
    with LocalS3() as server:
        yield server
