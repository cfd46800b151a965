"""What all tests share: a real Kafka and an S3 server, started once, and kbackup as a command."""

import gc
import itertools
from collections.abc import Generator, Iterator
from contextlib import suppress

import pytest
from hypothesis import settings

from kbackup.errors import SparkError
from kbackup.inspect.host import keep_classes
from kbackup.local import LocalS3, find_java, start_kafka
from kbackup.local.kafka import LocalKafka
from kbackup.stores import Store, StoreSettings, open_store
from tests.support.apicurio import LocalRegistry
from tests.support.cluster import TestCluster
from tests.support.command import Kbackup, places
from tests.support.emulators import Azurite, Emulator, FakeGcs, started
from tests.support.in_process import WITHOUT_SPARK, InProcess
from tests.support.mock_kafka import MockKafka
from tests.support.registry import FakeRegistry
from tests.support.timing import pytest_terminal_summary
from tests.support.ways import usable

__all__ = ["pytest_terminal_summary"]  # a hook of pytest

_COUNT = itertools.count()

settings.register_profile("kbackup", deadline=None)  # machines are shared and noisy
settings.load_profile("kbackup")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage in what stays until the end: modules, and 14,000 tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def kafka() -> Iterator[LocalKafka]:
    """A real Apache Kafka, shared by all tests of the run."""
    with start_kafka() as service:
        yield service


@pytest.fixture(scope="session")
def s3() -> Iterator[LocalS3]:
    """An S3 server over HTTP, shared by all tests of the run."""
    with LocalS3() as service:
        yield service


@pytest.fixture(scope="session")
def azurite() -> Iterator[Emulator]:
    """An emulator of Azure Blob Storage, for the night alone."""
    with started(Azurite) as found:
        yield found


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[Emulator]:
    """An emulator of Google Cloud Storage, for the night alone."""
    with started(FakeGcs) as found:
        yield found


@pytest.fixture(scope="session")
def cluster(kafka: LocalKafka) -> TestCluster:
    """The Kafka, seen by a client that is not kbackup's."""
    return TestCluster(kafka.bootstrap_servers)


@pytest.fixture(scope="session")
def mock_kafka() -> MockKafka:
    """A broker without Java, shared by all tests of the run."""
    return MockKafka()


@pytest.fixture(scope="session")
def apicurio() -> Iterator[LocalRegistry]:
    """A real Schema Registry, shared by all tests of the run."""
    with LocalRegistry() as service:
        yield service


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """A Schema Registry in this process, empty."""
    with FakeRegistry() as found:
        yield found


@pytest.fixture(params=["native", "python"])
def way(request: pytest.FixtureRequest) -> str:
    """Both values of ``kafka.client`` that name a way; the first where C can be compiled."""
    return usable(request.param)


@pytest.fixture
def bucket(s3: LocalS3) -> str:
    """A fresh bucket."""
    name = f"bucket-{next(_COUNT)}"
    s3.create_bucket(name)
    return name


@pytest.fixture
def store(s3: LocalS3, bucket: str) -> Store:
    """The bucket of the test, seen directly."""
    options = {
        "aws.access.key.id": s3.access_key_id,
        "aws.secret.access.key": s3.secret_access_key,
        "s3.region": s3.region,
    }
    return open_store(StoreSettings(f"s3://{bucket}", s3.endpoint_url, options))


@pytest.fixture
def topic() -> str:
    """A topic name nobody else uses."""
    return f"orders-{next(_COUNT)}"


@pytest.fixture(scope="session")
def class_archive() -> None:
    """What lets each of the many runs start Spark in half the time, made as the doctor does."""
    with suppress(SparkError):  # a Java that cannot make one does without
        keep_classes(find_java())


@pytest.fixture
def kbackup(request: pytest.FixtureRequest, kafka: LocalKafka, s3: LocalS3, bucket: str) -> Kbackup:
    """The installed command, with its cluster and bucket in the environment.

    In tests marked ``in_process`` it runs in the test's process, or in one of its own if it is
    watched; in those marked ``one_process`` always in one of its own.  Both are without Spark.
    """
    environment = places(kafka.bootstrap_servers, s3, bucket)
    if request.node.get_closest_marker("in_process") is not None:
        return InProcess(environment, WITHOUT_SPARK)
    if request.node.get_closest_marker("one_process") is not None:
        return Kbackup(environment, WITHOUT_SPARK)
    request.getfixturevalue("class_archive")
    return Kbackup(environment)
