from uuid import uuid4

import pytest

from kbackup.stores import StoreSettings
from tests.support.standby import Standby
from tests.support.target import Restoring


@pytest.fixture
def again() -> Restoring:
    """An empty backup and an empty cluster."""
    return Restoring()


@pytest.fixture
def standby() -> Standby:
    """An empty bucket and an empty cluster."""
    return Standby()


@pytest.fixture
def store() -> StoreSettings:
    """The way to an empty bucket."""
    return StoreSettings(f"memory://{uuid4()}")
