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
    ObjectKeyError,
    Store,
    StoreContract,
    StoreSettings,
    open_store,
    plugins,
    put_bytes,
)
from tests.support import emulators
from tests.support.truth import way_to

_BUCKETS = count()

CLOUDS = {"az": "azurite", "gs": "fake_gcs"}
"""The fixtures of the emulators, by scheme."""

BY_NIGHT = [pytest.param(scheme, marks=emulators.BY_NIGHT) for scheme in CLOUDS]
INSTALLED = [found.name for found in plugins.installed("stores") if found.name not in CLOUDS]
STORES = [*INSTALLED, *BY_NIGHT]


def settings_for(request: pytest.FixtureRequest, tmp_path: Path, server: LocalS3) -> StoreSettings:
    """Return where an empty store of the kind that a fixture is asked for lies."""
    scheme = request.param
    options = {"s3.part.size": PART_BYTES, "s3.retry.backoff.ms": 1}
    if scheme in CLOUDS:
        return StoreSettings(request.getfixturevalue(CLOUDS[scheme]).place(), options=options)
    if scheme == "s3":
        bucket = f"lake-{uuid4().hex[:8]}-{next(_BUCKETS)}"  # the server may not be ours
        server.create_bucket(bucket)
        return way_to(bucket, server, options)
    place = {"file": str(tmp_path), "memory": str(uuid4())}[scheme]
    return StoreSettings(f"{scheme}://{place}")


@pytest.fixture(params=STORES)
def settings(request: pytest.FixtureRequest, tmp_path: Path, s3_server: LocalS3) -> StoreSettings:
    return settings_for(request, tmp_path, s3_server)


@pytest.fixture
def store(settings: StoreSettings, request: pytest.FixtureRequest) -> Store:
    refuse_backslash(request, settings.url)
    return open_store(settings)


def refuse_backslash(request: pytest.FixtureRequest, url: str) -> None:
    r"""Expect a test with a key that Azure takes for another one to end in its refusal."""
    if url.startswith("az:") and "\\" in request.node.callspec.params.get("key", ""):
        request.applymarker(pytest.mark.xfail(raises=ObjectKeyError, strict=True))


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
