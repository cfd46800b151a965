from uuid import uuid4

import pytest

from kbackup.stores import StoreSettings
from kbackup.stores.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(StoreSettings(f"memory://{uuid4()}"))
