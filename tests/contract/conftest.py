from collections.abc import Iterator

import pytest

from kbackup.local.s3 import LocalS3


@pytest.fixture(scope="session")
def s3_server() -> Iterator[LocalS3]:
    with LocalS3() as server:
        yield server
