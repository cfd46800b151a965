"""Getting the run lock, waiting for it, and giving it back."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbackup.catalog.identity import BackupIdentity
from kbackup.config import loading
from kbackup.errors import ConfigurationError, LockedError, StoppedError, StoreError
from kbackup.naming import Layout
from kbackup.runs.locks import RunLock, holders
from kbackup.testing import FaultyStore, open_bytes, put_bytes
from tests.support.locking import LAYOUT, ClockedStore, Clocks, holder, lock_keys


def test_the_lock_object_says_who_holds_it(
    store: ClockedStore, lock: Callable[..., RunLock]
) -> None:
    """A lock object says which run, host and process holds it, and since when."""
    with lock("r1"):
        (key,) = lock_keys(store)
        body = json.loads(open_bytes(store, key))

    assert key.startswith("_kbackup/locks/")
    assert {
        "run": "r1", "pid": os.getpid(), "started": "2026-11-21T02:00:00Z",
        "beat": "2026-11-21T02:00:00Z", "purpose": "sink", "names": ["orders"],
        "topics_dir": "topics", "host": os.uname().nodename, "backup": "s3://lake",
    } == {name: value for name, value in body.items() if name not in ("token", "file")}  # fmt: skip


def test_a_lock_is_given_back(store: ClockedStore, lock: Callable[..., RunLock]) -> None:
    """After a run nothing of the lock is in the bucket, and the next run gets it."""
    with lock("r1"):
        pass
    with lock("r2"):
        seen = holder(store)

    assert ("r2", []) == (seen, lock_keys(store))


def test_a_lock_is_given_back_after_a_failure(
    store: ClockedStore, lock: Callable[..., RunLock]
) -> None:
    """A run that fails leaves no lock behind."""
    with pytest.raises(ZeroDivisionError), lock("r1"):
        raise ZeroDivisionError

    assert [] == lock_keys(store)


@pytest.mark.parametrize("host", ["here", "there"], ids=["same lock folder", "another host"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({}, {}, id="alike"),
        pytest.param({"names": ["a", "b"]}, {"names": ("b", "a")}, id="topics in another order"),
        pytest.param(
            {"identity": "https://a|s3://lake"}, {"identity": "https://b|s3://lake"},
            id="one bucket under two endpoints",
        ),
    ],
)  # fmt: skip
def test_the_second_of_two_runs_is_told_at_once(
    store: ClockedStore,
    lock: Callable[..., RunLock],
    clocks: Clocks,
    first: dict[str, Any],
    second: dict[str, Any],
    host: str,
) -> None:
    """It ends with exit code 8, without waiting, names the other, and leaves all as it was."""
    with lock("r1", **first):
        before = [(entry.key, entry.etag) for entry in store.list("")]
        with pytest.raises(LockedError) as caught, lock("r2", host, **second):
            pass
        after = [(entry.key, entry.etag) for entry in store.list("")]

    assert (8, 0.0, before) == (caught.value.exit_code, clocks.seconds, after)
    assert "run r1" in str(caught.value)
    assert f"(pid {os.getpid()})" in str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"purpose": "restore"}, id="another purpose"),
        pytest.param({"names": ["payments"]}, id="other topics"),
        pytest.param({"names": ["orders", "payments"]}, id="more topics"),
        pytest.param({"layout": Layout("other")}, id="another topics.dir"),
    ],
)
def test_different_work_goes_on_side_by_side(
    lock: Callable[..., RunLock], changed: dict[str, Any]
) -> None:
    """Only runs of the same kind over the same topics keep each other out."""
    with lock("r1"), lock("r2", **changed) as second:
        assert not second.is_lost


@pytest.mark.parametrize("host", ["here", "there"])
def test_a_run_may_wait_for_the_lock(
    store: ClockedStore, lock: Callable[..., RunLock], clocks: Clocks, host: str
) -> None:
    """With --lock-timeout a run starts as soon as the other has ended."""
    first = lock("r1")
    first.__enter__()

    def end_after_a_while() -> None:
        if clocks.seconds >= 7 and not first._ended.is_set():
            first.__exit__(None, None, None)

    clocks.while_asleep = end_after_a_while
    with lock("r2", host, timeout_s=60.0):
        seen = holder(store)

    assert "r2" == seen
    assert 7 <= clocks.seconds < 10


@pytest.mark.parametrize("host", ["here", "there"])
def test_waiting_ends(lock: Callable[..., RunLock], clocks: Clocks, host: str) -> None:
    """A run waits for the lock as long as --lock-timeout says, and no longer."""
    with lock("r1") as first:
        clocks.while_asleep = first.beat
        with pytest.raises(LockedError), lock("r2", host, timeout_s=1000.0):
            pass

    assert 1000.0 == clocks.seconds


def test_a_store_that_fails_fails_the_lock(
    store: ClockedStore, lock: Callable[..., RunLock]
) -> None:
    """The error says that it is about the lock, and the file is let go."""
    with pytest.raises(StoreError, match="the run lock cannot be taken"):
        lock("r1", store=FaultyStore("503", store)).__enter__()

    with lock("r2"):
        assert "r2" == holder(store)


@pytest.mark.parametrize(
    ("purpose", "script", "is_advised"),
    [
        pytest.param("restore", "403 ok", True, id="a restore that may only read"),
        pytest.param("restore", "404 404", False, id="no such bucket"),
        pytest.param("sink", "403 ok", False, id="a sink has to write"),
    ],
)
def test_doing_without_the_lock_is_advised_where_it_helps(
    store: ClockedStore, lock: Callable[..., RunLock], purpose: str, script: str, is_advised: bool
) -> None:
    """A store that can be read is enough for a restore, and for nothing else."""
    with pytest.raises(StoreError) as caught:
        lock("r1", purpose=purpose, store=FaultyStore(script, store)).__enter__()

    assert is_advised == ("--no-lock" in caught.value.do)


def test_a_good_run_does_not_fail_over_its_lock(
    store: ClockedStore, lock: Callable[..., RunLock], caplog: pytest.LogCaptureFixture
) -> None:
    """A lock that cannot be given back is logged, and left to go stale."""
    failing = FaultyStore("503", store, methods=frozenset({"delete"}))

    with caplog.at_level(logging.WARNING), lock("r1", store=failing):
        pass

    assert "r1" == holder(store)
    assert "could not be removed" in caplog.text


@pytest.mark.parametrize("what", ["file", "link"])
def test_a_lock_folder_that_cannot_be_used_is_named(
    lock: Callable[..., RunLock], tmp_path: Path, what: str
) -> None:
    """Where no lock file can be made, the error names it and the variable to set."""
    folder = tmp_path / "here"
    if what == "file":
        folder.touch()
    else:
        with lock("r0"):
            (file,) = folder.iterdir()
        file.unlink()
        file.symlink_to(tmp_path / "precious")

    with pytest.raises(ConfigurationError, match=str(folder)) as caught:
        lock("r1").__enter__()

    assert "KBACKUP_LOCK_DIR" in caught.value.do
    assert not (tmp_path / "precious").exists()


def test_the_lock_file_is_in_the_users_cache(
    lock: Callable[..., RunLock], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default, lock files are in the user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    with lock("r1", folder=None):
        found = [path.suffix for path in (tmp_path / "cache/kbackup/locks").iterdir()]

    assert [".lock"] == found


def test_a_run_that_waits_for_the_lock_can_be_stopped(lock: Callable[..., RunLock]) -> None:
    """SIGTERM does not wait for --lock-timeout, and says nothing of a held lock."""
    with (
        lock("r1"),
        pytest.raises(StoppedError),
        lock("r2", "there", timeout_s=600.0, sleep=lambda _: True),
    ):
        pass


def test_a_user_without_a_home_is_told_to_name_a_folder(
    lock: Callable[..., RunLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No folder called "~" is made where the command happens to run."""

    def unknown(_uid: int) -> None:
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)

    with pytest.raises(ConfigurationError, match="no folder for lock files") as caught:
        lock("r1", folder=None)

    assert "KBACKUP_LOCK_DIR" in caught.value.do


def test_who_holds_locks_can_be_seen(store: ClockedStore, lock: Callable[..., RunLock]) -> None:
    """Only the locks of one purpose in one topics.dir are listed."""
    put_bytes(store, "_kbackup/locks/README", b"hands off")
    with (
        lock("r1"),
        lock("r2", names=["payments"]),
        lock("r3", purpose="restore"),
        lock("r4", layout=Layout("other")),
    ):
        found = sorted(one.body["run"] for one in holders(store, LAYOUT, "sink"))

    assert ["r1", "r2"] == found


@pytest.mark.parametrize(
    ("given", "locked"),
    [
        pytest.param({}, True, id="locked unless told otherwise"),
        pytest.param({"KBACKUP_NO_LOCK": "true"}, False, id="without"),
    ],
)
def test_the_lock_is_as_the_settings_say(
    store: ClockedStore, tmp_path: Path, given: dict[str, str], locked: bool
) -> None:
    """Lock files are where the operator wants them, and --no-lock leaves no trace."""
    environ = {"KBACKUP_LOCK_DIR": str(tmp_path / "mine"), **given}
    options = {"store_url": "file:///backup", "topics": "orders", "bootstrap_servers": "broker:1"}
    settings = loading.load("sink", options=options, files=[], environ=environ).settings

    with RunLock.for_settings(
        settings, BackupIdentity("here"), store, LAYOUT, "sink", ["orders"], "r1"
    ):
        found = (bool(lock_keys(store)), (tmp_path / "mine").exists())

    assert (locked, locked) == found
