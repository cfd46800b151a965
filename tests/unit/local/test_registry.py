"""The Schema Registry's program, which is downloaded once."""

from pathlib import Path

import pytest

from kbackup.errors import LocalServiceError
from kbackup.local import downloads
from kbackup.spark.java import Java
from tests.support.apicurio import REGISTRY_VERSION, fetch_registry


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("KBACKUP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setattr(downloads, "_PAUSES", ())
    return tmp_path / "cache"


def java(folder: Path, script: str) -> Java:
    """A program in the place of Java, which runs in the place of Ivy."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Java(folder, "17", "PATH")


def test_an_altered_program_is_not_run(cache: Path, tmp_path: Path) -> None:
    """A program with a wrong checksum stays out of the cache."""
    name = f"apicurio-registry-app-{REGISTRY_VERSION}-all.tar.gz"
    script = (
        f'while [ "$1" != -retrieve ]; do shift; done\necho "another program" > "${{2%/*}}/{name}"'
    )

    with pytest.raises(LocalServiceError, match="could not be downloaded") as caught:
        fetch_registry(java(tmp_path, script))

    assert f"missing or altered: {name}" == caught.value.why
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_without_a_network_it_says_what_to_do(cache: Path, tmp_path: Path) -> None:
    """The error names the directory that can be copied from another machine."""
    with pytest.raises(LocalServiceError, match="could not be downloaded") as caught:
        fetch_registry(java(tmp_path, "exit 1"))

    assert f"{cache}/apicurio-registry-{REGISTRY_VERSION}" in caught.value.do
