"""The run lock, with time as an argument."""

import json
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kbackup import config
from kbackup.errors import ConfigurationError, LockedError, StoppedError, StoreError
from kbackup.naming import Layout
from kbackup.runs.locks import RunLock, holders
from kbackup.stores import ObjectHead, StoreSettings
from kbackup.stores.memory import MemoryStore
from kbackup.testing import FaultyStore, open_bytes, put_bytes

LAYOUT = Layout()
START = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)


class Clocks:
    """A host's clock, which may be wrong, the store's, and one that only goes on."""

    def __init__(self) -> None:
        self.host, self.store, self.seconds = START, START, 0.0
        self.while_asleep: Callable[[], None] = lambda: None

    def pass_by(self, seconds: float) -> None:
        self.seconds += seconds
        self.host += timedelta(seconds=seconds)
        self.store += timedelta(seconds=seconds)

    def sleep(self, seconds: float) -> None:
        self.pass_by(seconds)
        self.while_asleep()


class ClockedStore(MemoryStore):
    """A store in memory whose clock is set by the test."""

    def __init__(self, clocks: Clocks) -> None:
        super().__init__(StoreSettings(f"memory://{uuid4()}"))
        self._clocks = clocks
        self._times: dict[str, tuple[str, datetime]] = {}

    def head(self, key: str) -> ObjectHead | None:
        found = super().head(key)
        if found is None:
            return None
        return ObjectHead(found.size, self._stored(key, found.etag), found.etag, found.metadata)

    def put(self, key: str, *args: Any, **named: Any) -> bool:
        done = super().put(key, *args, **named)
        self.head(key)
        return done

    def _stored(self, key: str, etag: str) -> datetime:
        if self._times.get(key, ("",))[0] != etag:
            self._times[key] = (etag, self._clocks.store)
        return self._times[key][1]


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def store(clocks: Clocks) -> ClockedStore:
    return ClockedStore(clocks)


@pytest.fixture
def lock(store: ClockedStore, clocks: Clocks, tmp_path: Path) -> Callable[..., RunLock]:
    """Return a maker of locks; *host* is a folder of lock files of its own."""

    def make(run: str = "r1", host: str = "here", **changed: Any) -> RunLock:
        named = {
            "store": store, "layout": LAYOUT, "purpose": "sink", "names": ["orders"],
            "identity": "s3://lake", "timeout_s": 0.0, "folder": tmp_path / host, "run": run,
            "now": lambda: clocks.host, "sleep": clocks.sleep, "monotonic": lambda: clocks.seconds,
            **changed,
        }  # fmt: skip
        return RunLock(**named)

    return make


def crash(lock: RunLock) -> RunLock:
    """Take the lock and die: the kernel gives the file back, and nobody the object."""
    lock.__enter__()
    lock._file.release()
    lock._ended.set()
    return lock


def lock_keys(store: MemoryStore) -> list[str]:
    return [entry.key for entry in store.list("")]


def holder(store: MemoryStore) -> str | None:
    found = [json.loads(open_bytes(store, key))["run"] for key in lock_keys(store)]
    return found[0] if found else None


def test_the_lock_object_says_who_holds_it(
    store: ClockedStore, lock: Callable[..., RunLock]
) -> None:
    """
    Who looks into the bucket sees which run, host and process has the lock, and since when.
    """
    with lock("r1"):
        (key,) = lock_keys(store)
        body = json.loads(open_bytes(store, key))

    assert key.startswith("_kbackup/locks/")
    assert {
        "run": "r1", "pid": os.getpid(), "started": "2026-11-21T02:00:00Z",
        "beat": "2026-11-21T02:00:00Z", "purpose": "sink", "names": ["orders"],
        "topics_dir": "topics", "host": os.uname().nodename,
    } == {name: value for name, value in body.items() if name not in ("token", "file")}  # fmt: skip


def test_a_lock_is_given_back(store: ClockedStore, lock: Callable[..., RunLock]) -> None:
    """
    After a run nothing of the lock is in the bucket, and the next run gets it.
    """
    with lock("r1"):
        pass
    with lock("r2"):
        seen = holder(store)

    assert ("r2", []) == (seen, lock_keys(store))


def test_a_lock_is_given_back_after_a_failure(
    store: ClockedStore, lock: Callable[..., RunLock]
) -> None:
    """
    A run that fails leaves no lock behind.
    """
    with pytest.raises(ZeroDivisionError), lock("r1"):
        raise ZeroDivisionError

    assert [] == lock_keys(store)


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("here", id="same lock folder"),
        pytest.param("there", id="another host or lock folder"),
    ],
)
def test_the_second_of_two_runs_is_told_at_once(
    lock: Callable[..., RunLock], clocks: Clocks, host: str
) -> None:
    """
    A run that overlaps another one ends with exit code 8, without waiting, naming the other.
    """
    with lock("r1"), pytest.raises(LockedError) as caught, lock("r2", host):
        pass

    assert (8, 0.0) == (caught.value.exit_code, clocks.seconds)
    assert "run r1" in str(caught.value)
    assert f"(pid {os.getpid()})" in str(caught.value)


@pytest.mark.parametrize("host", ["here", "there"])
def test_a_refused_run_leaves_the_lock_alone(
    store: ClockedStore, lock: Callable[..., RunLock], host: str
) -> None:
    """
    Whoever did not get the lock does not give it back either, nor leaves anything else.
    """
    with lock("r1"):
        before = [(entry.key, entry.etag) for entry in store.list("")]
        with pytest.raises(LockedError), lock("r2", host):
            pass
        after = [(entry.key, entry.etag) for entry in store.list("")]

    assert before == after


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
    """
    Only runs of the same kind over the same topics keep each other out.
    """
    with lock("r1"), lock("r2", **changed) as second:
        assert not second.is_lost


@pytest.mark.parametrize("host", ["here", "there"])
def test_names_have_no_order(lock: Callable[..., RunLock], host: str) -> None:
    """
    The same topics named in another order are the same backup.
    """
    with (
        lock("r1", names=["a", "b"]),
        pytest.raises(LockedError),
        lock("r2", host, names=("b", "a")),
    ):
        pass


def test_one_bucket_under_two_endpoints_is_one_bucket(lock: Callable[..., RunLock]) -> None:
    """
    Two hosts that reach the bucket by different names keep each other out.
    """
    with (
        lock("r1", identity="https://a|s3://lake"),
        pytest.raises(LockedError),
        lock("r2", "there", identity="https://b|s3://lake"),
    ):
        pass


@pytest.mark.parametrize("host", ["here", "there"])
def test_a_run_may_wait_for_the_lock(
    store: ClockedStore, lock: Callable[..., RunLock], clocks: Clocks, host: str
) -> None:
    """
    With --lock-timeout a run starts as soon as the other has ended.
    """
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
    """
    A run waits for the lock as long as --lock-timeout says, and no longer.
    """
    with lock("r1") as first:
        clocks.while_asleep = first.beat
        with pytest.raises(LockedError), lock("r2", host, timeout_s=1000.0):
            pass

    assert 1000.0 == clocks.seconds


@pytest.mark.parametrize(
    ("silent_s", "holds"),
    [
        pytest.param(0, "r1", id="just now"),
        pytest.param(299, "r1", id="almost five minutes"),
        pytest.param(300, "r2", id="five minutes"),
        pytest.param(86_400, "r2", id="a day"),
    ],
)
def test_a_silent_lock_of_another_host_is_taken_over_after_five_minutes(
    store: ClockedStore,
    lock: Callable[..., RunLock],
    clocks: Clocks,
    caplog: pytest.LogCaptureFixture,
    silent_s: float,
    holds: str,
) -> None:
    """
    A host that died keeps nobody out for longer than five minutes, and the takeover is logged.
    """
    crash(lock("r1", "there"))
    clocks.pass_by(silent_s)

    with caplog.at_level(logging.WARNING):
        try:
            with lock("r2"):
                seen = holder(store)
        except LockedError:
            seen = holder(store)

    assert (holds, holds == "r2") == (seen, "no heartbeat from run r1" in caplog.text)


@pytest.mark.parametrize(
    ("wrong_by", "silent_s", "is_taken"),
    [
        pytest.param(timedelta(days=3), 10, False, id="ours is three days ahead"),
        pytest.param(timedelta(days=-3), 10, False, id="ours is three days behind"),
        pytest.param(timedelta(days=3), 301, True, id="ahead, and the lock is stale"),
        pytest.param(timedelta(days=-3), 301, True, id="behind, and the lock is stale"),
    ],
)
def test_a_wrong_clock_takes_no_lock_away(
    lock: Callable[..., RunLock],
    clocks: Clocks,
    wrong_by: timedelta,
    silent_s: float,
    is_taken: bool,
) -> None:
    """
    However wrong a host's clock is, it takes over what is stale and nothing else.
    """
    crash(lock("r1", "there"))
    clocks.pass_by(silent_s)
    clocks.host += wrong_by

    try:
        with lock("r2"):
            taken = True
    except LockedError:
        taken = False

    assert is_taken == taken


def test_a_heartbeat_keeps_the_lock(lock: Callable[..., RunLock], clocks: Clocks) -> None:
    """
    A run of hours keeps its lock.
    """
    with lock("r1") as first:
        for _ in range(60):
            clocks.pass_by(60)
            first.beat()
        with pytest.raises(LockedError) as caught, lock("r2", "there"):
            pass

    assert "its last heartbeat was 0 s ago" in str(caught.value)


def test_a_dead_run_of_this_host_is_replaced_at_once(
    store: ClockedStore,
    lock: Callable[..., RunLock],
    clocks: Clocks,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    After a kill -9 the same host goes on without waiting for the lock to go stale.
    """
    crash(lock("r1"))

    with caplog.at_level(logging.WARNING), lock("r2"):
        seen = holder(store)

    assert "r2" == seen
    assert clocks.seconds < 1
    assert "run r1" in caplog.text


def test_a_lock_file_that_was_removed_proves_nothing(
    lock: Callable[..., RunLock], tmp_path: Path
) -> None:
    """
    A recreated lock file is not the one that the holder has: the holder may be alive.
    """
    with lock("r1"):
        for file in (tmp_path / "here").iterdir():
            file.unlink()
        with pytest.raises(LockedError), lock("r2"):
            pass


def test_of_two_that_take_over_at_once_one_wins(
    store: ClockedStore, lock: Callable[..., RunLock], clocks: Clocks
) -> None:
    """
    If two hosts find a stale lock in the same second, one gets it and the other is refused.
    """
    crash(lock("r1", "there"))
    clocks.pass_by(400)
    other = lock("r3", "elsewhere")

    def other_writes_too() -> None:
        clocks.while_asleep = lambda: None
        other._object.replace()

    clocks.while_asleep = other_writes_too
    with pytest.raises(LockedError) as caught, lock("r2"):
        pass

    assert "run r3" in str(caught.value)
    assert "r3" == holder(store)


def test_a_lock_that_was_taken_over_is_lost(
    store: ClockedStore, lock: Callable[..., RunLock], clocks: Clocks
) -> None:
    """
    A run that slept too long learns that it lost the lock, and neither takes it back nor away.
    """
    with lock("r1", "there") as first:
        clocks.pass_by(400)
        with lock("r2") as second:
            first.beat()
            first.__exit__(None, None, None)
            second.beat()
            seen = holder(store)

    assert ("r2", True, False) == (seen, first.is_lost, second.is_lost)


def test_a_lock_object_that_vanished_is_made_again(
    store: ClockedStore, lock: Callable[..., RunLock]
) -> None:
    """
    A lock that somebody deleted from the bucket is back with the next heartbeat.
    """
    with lock("r1") as first:
        store.delete(lock_keys(store)[0])
        first.beat()
        seen = holder(store)

    assert ("r1", False) == (seen, first.is_lost)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_lock_object_is_held_until_it_is_stale(
    store: ClockedStore, lock: Callable[..., RunLock], clocks: Clocks, body: bytes
) -> None:
    """
    A lock that cannot be read keeps others out like any lock, and no longer.
    """
    with lock("r1", "there"):
        key = lock_keys(store)[0]
    put_bytes(store, key, body)

    with pytest.raises(LockedError), lock("r2"):
        pass
    clocks.pass_by(300)
    with lock("r3"):
        seen = holder(store)

    assert "r3" == seen


def test_a_store_that_fails_fails_the_lock(
    store: ClockedStore, lock: Callable[..., RunLock]
) -> None:
    """
    The error says that it is about the lock, and the file is let go.
    """
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
    """
    A store that can be read is enough for a restore, and for nothing else.
    """
    with pytest.raises(StoreError) as caught:
        lock("r1", purpose=purpose, store=FaultyStore(script, store)).__enter__()

    assert is_advised == ("--no-lock" in caught.value.do)


def test_a_good_run_does_not_fail_over_its_lock(
    store: ClockedStore, lock: Callable[..., RunLock], caplog: pytest.LogCaptureFixture
) -> None:
    """
    A lock that cannot be given back is logged, and left to go stale.
    """
    failing = FaultyStore("503", store, methods=frozenset({"delete"}))

    with caplog.at_level(logging.WARNING), lock("r1", store=failing):
        pass

    assert "r1" == holder(store)
    assert "could not be removed" in caplog.text


@pytest.mark.parametrize("what", ["file", "link"])
def test_a_lock_folder_that_cannot_be_used_is_named(
    lock: Callable[..., RunLock], tmp_path: Path, what: str
) -> None:
    """
    Where no lock file can be made, the error names it and the variable to set.
    """
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
    """
    By default, lock files are in the user's cache folder.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    with lock("r1", folder=None):
        found = [path.suffix for path in (tmp_path / "cache/kbackup/locks").iterdir()]

    assert [".lock"] == found


def test_a_run_that_waits_for_the_lock_can_be_stopped(lock: Callable[..., RunLock]) -> None:
    """
    SIGTERM does not wait for --lock-timeout, and says nothing of a held lock.
    """
    with (
        lock("r1"),
        pytest.raises(StoppedError),
        lock("r2", "there", timeout_s=600.0, sleep=lambda _: True),
    ):
        pass


def test_a_user_without_a_home_is_told_to_name_a_folder(
    lock: Callable[..., RunLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    No folder called "~" is made where the command happens to run.
    """

    def unknown(_uid: int) -> None:
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)

    with pytest.raises(ConfigurationError, match="no folder for lock files") as caught:
        lock("r1", folder=None)

    assert "KBACKUP_LOCK_DIR" in caught.value.do


def test_who_holds_locks_can_be_seen(store: ClockedStore, lock: Callable[..., RunLock]) -> None:
    """
    Only the locks of one purpose in one topics.dir are listed.
    """
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
    """
    Lock files are where the operator wants them, and --no-lock leaves no trace.
    """
    environ = {"KBACKUP_LOCK_DIR": str(tmp_path / "mine"), **given}
    options = {"store_url": "file:///backup", "topics": "orders", "bootstrap_servers": "broker:1"}
    settings = config.load("sink", options=options, files=[], environ=environ).settings

    with RunLock.for_settings(settings, store, LAYOUT, "sink", ["orders"], "r1"):
        found = (bool(lock_keys(store)), (tmp_path / "mine").exists())

    assert (locked, locked) == found
