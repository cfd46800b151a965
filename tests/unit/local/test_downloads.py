"""The cache: whole directories, checked, fetched once."""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kbackup.errors import LocalServiceError
from kbackup.files import cache_directory
from kbackup.local.downloads import (
    checksums,
    damaged,
    fetch_once,
)

SUMS = {"a.jar": hashlib.sha256(b"a").hexdigest(), "b.jar": hashlib.sha256(b"b").hexdigest()}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KBACKUP_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Source:
    """Somewhere to fetch the two jars from, that counts how often it is asked."""

    def __init__(self, **wrong: bytes) -> None:
        self.calls = 0
        self.wrong = wrong

    def __call__(self, target: Path) -> None:
        self.calls += 1
        for name in SUMS:
            (target / name).write_bytes(self.wrong.get(name[0], name[0].encode()))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({"KBACKUP_CACHE_DIR": "/k", "XDG_CACHE_HOME": "/x"}, "/k", id="ours first"),
        pytest.param({"XDG_CACHE_HOME": "/x"}, "/x/kbackup", id="XDG"),
        pytest.param({"XDG_CACHE_HOME": "x"}, "/home/me/.cache/kbackup", id="relative XDG"),
        pytest.param({"KBACKUP_CACHE_DIR": ""}, "/home/me/.cache/kbackup", id="neither"),
    ],
)
def test_the_cache_is_where_the_user_keeps_caches(
    environment: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Downloads go where the user's variables say, and to the usual place without them."""
    for name in ("KBACKUP_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", f"{tmp_path}/home/me")
    for name, value in environment.items():
        monkeypatch.setenv(name, f"{tmp_path}{value}" if value.startswith("/") else value)

    assert Path(f"{tmp_path}{expected}") == cache_directory()
    assert Path(f"{tmp_path}{expected}").is_dir()


def test_an_unusable_cache_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the cache cannot be, the error names it and the variable that moves it."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("KBACKUP_CACHE_DIR", str(tmp_path / "file"))

    with pytest.raises(LocalServiceError) as caught:
        cache_directory()

    assert str(tmp_path / "file") in caught.value.what
    assert "KBACKUP_CACHE_DIR" in caught.value.do


def test_a_second_use_fetches_nothing() -> None:
    """What is in the cache is not downloaded again."""
    source = Source()

    first, second = fetch_once("jars-1", SUMS, source), fetch_once("jars-1", SUMS, source)

    assert (1, first) == (source.calls, second)
    assert damaged(first, SUMS) == []


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda path: path.unlink(), id="file gone"),
        pytest.param(lambda path: path.write_bytes(b"?"), id="file altered"),
        pytest.param(lambda path: path.write_bytes(b""), id="file empty"),
    ],
)
def test_a_damaged_cache_is_fetched_again(harm: Callable[[Path], object], cache: Path) -> None:
    """A jar that is not what it was is never run, but replaced."""
    source = Source()
    harm(fetch_once("jars-1", SUMS, source) / "b.jar")

    directory = fetch_once("jars-1", SUMS, source)

    assert (source.calls, damaged(directory, SUMS)) == (2, [])
    assert {"jars-1", "jars-1.lock"} == {path.name for path in cache.iterdir()}


def test_an_altered_download_never_enters_the_cache(cache: Path) -> None:
    """A download with the wrong checksum is refused by name, and nothing of it stays."""
    with pytest.raises(LocalServiceError) as caught:
        fetch_once("jars-1", SUMS, Source(b=b"evil"))

    assert "b.jar" in caught.value.why
    assert "a.jar" not in caught.value.why
    assert {"jars-1.lock"} == {path.name for path in cache.iterdir()}


def test_two_at_once_download_once() -> None:
    """Two concurrent requests cause one download."""
    source, found = Source(), []
    begun = threading.Barrier(4)

    def ask() -> None:
        begun.wait()
        found.append(fetch_once("jars-1", SUMS, source))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (source.calls, len(found), len(set(found))) == (1, 4, 1)


def test_checksums_are_sha256sum_lines() -> None:
    """The list in the package is what ``sha256sum`` prints, names with blanks and all."""
    expected = {"a.jar": "0" * 64, "b c.jar": "1" * 64}

    assert expected == checksums(f"{'0' * 64}  a.jar\n\n{'1' * 64}  b c.jar\n")
