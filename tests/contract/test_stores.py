"""Every store that is registered keeps the promises of `kbackup.stores.Store`."""

import pickle
import subprocess
import sys
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest

from tests.contract.product import (
    PART_BYTES,
    LocalS3,
    Store,
    StoreContract,
    StoreSettings,
    open_store,
    plugins,
    put_bytes,
)

_BUCKETS = count()


def settings_for(scheme: str, tmp_path: Path, server: LocalS3) -> StoreSettings:
    """Return where an empty store of this kind lies."""
    if scheme == "s3":
        bucket = f"lake-{uuid4().hex[:8]}-{next(_BUCKETS)}"  # the server may not be ours
        server.create_bucket(bucket)
        return StoreSettings(
            f"s3://{bucket}",
            endpoint_url=server.endpoint_url,
            options={
                "aws.access.key.id": server.access_key_id,
                "aws.secret.access.key": server.secret_access_key,
                "s3.region": server.region,
                "s3.part.size": PART_BYTES,
                "s3.retry.backoff.ms": 1,
            },
        )
    place = {"file": str(tmp_path), "memory": str(uuid4())}[scheme]
    return StoreSettings(f"{scheme}://{place}")


@pytest.fixture(params=[plugin.name for plugin in plugins.installed("stores")])
def settings(request: pytest.FixtureRequest, tmp_path: Path, s3_server: LocalS3) -> StoreSettings:
    return settings_for(request.param, tmp_path, s3_server)


@pytest.fixture
def store(settings: StoreSettings) -> Store:
    return open_store(settings)


class TestStores(StoreContract):
    def test_settings_cross_a_process(self, settings: StoreSettings) -> None:
        """A worker opens the same store from settings that were pickled."""
        put_bytes(open_store(settings), "a", b"x")

        there = open_store(pickle.loads(pickle.dumps(settings)))

        assert ["a"] == [one.key for one in there.list("")]


def test_looking_at_stores_imports_no_client() -> None:
    """Commands that never touch S3 do not import its client."""
    code = "import kbackup.stores, kbackup.stores.file, sys; print('boto3' in sys.modules)"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "False" == found.stdout.strip()
