"""For plugin authors and our own tests: a contract suite for each extension point, and faults.

Owns what each extension point promises, as tests, and a store that fails.  It never starts a
server, and nothing else in the package imports it.

An author gets the whole suite of an extension point in a few lines::

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(StoreSettings(f"mine://{tmp_path}"))
"""

from kbackup.testing.files import ExtractorContract, FormatContract, PartitionerContract
from kbackup.testing.stores import (
    PART_BYTES,
    FaultyStore,
    StoreContract,
    etag,
    open_bytes,
    put_bytes,
)
from kbackup.testing.values import ConverterContract, TransformContract, decoded, encoded

__all__ = [
    "PART_BYTES",
    "ConverterContract",
    "ExtractorContract",
    "FaultyStore",
    "FormatContract",
    "PartitionerContract",
    "StoreContract",
    "TransformContract",
    "decoded",
    "encoded",
    "etag",
    "open_bytes",
    "put_bytes",
]
