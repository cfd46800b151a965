"""What is said where a service cannot be had."""

from pathlib import Path

import pytest

from kbackup.errors import ConfigurationError, LocalServiceError
from kbackup.local import downloads, java, kafka, servers, start_kafka
from kbackup.local.downloads import KAFKA_VERSION, fetch_kafka, ivy_jar
from kbackup.spark.java import Java
from tests.support.apicurio import REGISTRY_VERSION, fetch_registry


@pytest.mark.parametrize("release", downloads.RELEASES.values(), ids=downloads.RELEASES)
def test_every_jar_has_its_checksum(release: downloads.Release) -> None:
    """The list covers the broker itself and what it logs through, each with a SHA-256."""
    sums = release.wanted.sums
    _, logger, revision = release.logger

    assert {f"kafka_2.13-{release.version}.jar", f"{logger}-{revision}.jar"} <= sums.keys()
    assert {64} == {len(digest) for digest in sums.values()}


def test_the_variable_chooses_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """``KBACKUP_KAFKA`` names it; without the variable it is the newest."""
    monkeypatch.setenv("KBACKUP_KAFKA", "3.7")
    assert "3.7.2" == downloads.chosen().version

    monkeypatch.delenv("KBACKUP_KAFKA")
    assert downloads.NEWEST == downloads.chosen()


def test_ivy_comes_with_pyspark() -> None:
    """Ivy, which downloads Kafka, is found inside PySpark without any setting."""
    assert ivy_jar().is_file()


def test_without_ivy_the_error_names_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PySpark, the error says that it is missing."""
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    monkeypatch.delenv("SPARK_HOME", raising=False)

    with pytest.raises(LocalServiceError) as caught:
        ivy_jar()

    assert "PySpark, which is not installed" in caught.value.why


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no wait for another try."""
    monkeypatch.setenv("KBACKUP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setattr(downloads, "_PAUSES", (0.0, 0.0))
    return tmp_path / "cache"


def ivy(folder: Path, script: str) -> Java:
    """A program in the place of Java, which runs in the place of Ivy."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Java(folder, "17", "PATH")


def test_without_network_and_cache_the_error_says_so(cache: Path, tmp_path: Path) -> None:
    """A failed download is retried, then reported in one line with its reason and what to do."""
    calls = tmp_path / "calls"
    java = ivy(
        tmp_path,
        f"echo call >>{calls}\necho ':: resolving'\n"
        "echo '  Host repository.example not found. url=https://repository.example/x'\nexit 1",
    )

    with pytest.raises(LocalServiceError) as caught:
        fetch_kafka(java)

    assert len(calls.read_text().splitlines()) == 3
    assert f"Apache Kafka {KAFKA_VERSION} is not in the cache" in caught.value.what
    assert caught.value.why.startswith("Host repository.example not found")
    assert f"{cache}/kafka-{KAFKA_VERSION}" in caught.value.do


def test_an_altered_program_is_not_run(cache: Path, tmp_path: Path) -> None:
    """A program with a wrong checksum stays out of the cache."""
    name = f"apicurio-registry-app-{REGISTRY_VERSION}-all.tar.gz"
    script = (
        f'while [ "$1" != -retrieve ]; do shift; done\necho "another program" > "${{2%/*}}/{name}"'
    )

    with pytest.raises(LocalServiceError, match="could not be downloaded") as caught:
        fetch_registry(ivy(tmp_path, script))

    assert f"missing or altered: {name}" == caught.value.why
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_without_moto_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the error names the one command that installs it."""
    monkeypatch.setattr(servers, "find_spec", lambda _: None)

    with pytest.raises(LocalServiceError) as caught:
        servers.LocalS3()

    assert ".[demo]" in caught.value.do


def test_without_testcontainers_docker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for Docker without its client names the extra and the way without it."""

    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name="testcontainers")

    monkeypatch.setattr(kafka, "import_module", absent)
    monkeypatch.setenv("KBACKUP_KAFKA", "docker")

    with pytest.raises(LocalServiceError) as caught:
        start_kafka()

    assert caught.value.why == "not installed: testcontainers"
    assert ".[docker]" in caught.value.do


def test_an_unknown_kind_of_kafka_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown kind of Kafka is an error, not the default."""
    monkeypatch.setenv("KBACKUP_KAFKA", "dokcer")

    with pytest.raises(ConfigurationError, match="dokcer"):
        start_kafka()
