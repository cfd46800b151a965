"""A lock whose holder is silent, dead or suspended, and who gets it then."""

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from kbackup.errors import LockedError
from kbackup.runs.locks import RunLock
from kbackup.testing import put_bytes
from tests.support.locking import ClockedStore, Clocks, crash, holder, lock_keys


@pytest.mark.parametrize("wrong_by", [0, 3, -3], ids="our clock is {} days ahead".format)
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
    wrong_by: int,
) -> None:
    """A host that died keeps nobody out for longer, and a wrong clock takes no lock away."""
    crash(lock("r1", "there"))
    clocks.pass_by(silent_s)
    clocks.host += timedelta(days=wrong_by)

    with caplog.at_level(logging.WARNING):
        try:
            with lock("r2"):
                seen = holder(store)
        except LockedError:
            seen = holder(store)

    assert (holds, holds == "r2") == (seen, "no heartbeat from run r1" in caplog.text)


def test_a_heartbeat_keeps_the_lock(lock: Callable[..., RunLock], clocks: Clocks) -> None:
    """A heartbeat keeps the lock of a run that takes hours."""
    with lock("r1") as first:
        for _ in range(60):
            clocks.pass_by(60)
            first.beat()
        with pytest.raises(LockedError) as caught, lock("r2", "there"):
            pass

    assert "its last heartbeat was 0 s ago" in str(caught.value)


@pytest.mark.parametrize(
    "identity",
    [
        pytest.param("s3://lake", id="of the same name"),
        pytest.param("7f3a90c1", id="that began before the backup had an id"),
    ],
)
def test_a_dead_run_of_this_host_is_replaced_at_once(
    store: ClockedStore,
    lock: Callable[..., RunLock],
    clocks: Clocks,
    caplog: pytest.LogCaptureFixture,
    identity: str,
) -> None:
    """After a kill -9 the same host goes on without waiting for the lock to go stale."""
    crash(lock("r1"))

    with caplog.at_level(logging.WARNING), lock("r2", identity=identity):
        seen = holder(store)

    assert "r2" == seen
    assert clocks.seconds < 1
    assert "run r1" in caplog.text


def test_a_lock_file_that_was_removed_proves_nothing(
    lock: Callable[..., RunLock], tmp_path: Path
) -> None:
    """A recreated lock file is not the one that the holder has: the holder may be alive."""
    with lock("r1"):
        for file in (tmp_path / "here").iterdir():
            file.unlink()
        with pytest.raises(LockedError), lock("r2"):
            pass


def test_of_two_that_take_over_at_once_one_wins(
    store: ClockedStore, lock: Callable[..., RunLock], clocks: Clocks
) -> None:
    """If two hosts find a stale lock in the same second, one gets it and the other is refused."""
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
    """A run that slept too long learns that it lost the lock, and leaves it alone."""
    with lock("r1", "there") as first:
        clocks.pass_by(400)
        with lock("r2") as second:
            first.beat()
            first.__exit__(None, None, None)
            left = holder(store)
            second.beat()
            seen = holder(store)

    assert ("r2", "r2", True, False) == (left, seen, first.is_lost, second.is_lost)


def test_a_lock_object_that_vanished_is_made_again(
    store: ClockedStore, lock: Callable[..., RunLock]
) -> None:
    """A lock that somebody deleted from the bucket is back with the next heartbeat."""
    with lock("r1") as first:
        store.delete(lock_keys(store)[0])
        first.beat()
        seen = holder(store)

    assert ("r1", False) == (seen, first.is_lost)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_lock_object_is_held_until_it_is_stale(
    store: ClockedStore, lock: Callable[..., RunLock], clocks: Clocks, body: bytes
) -> None:
    """A lock that cannot be read keeps others out like any lock, and no longer."""
    with lock("r1", "there"):
        key = lock_keys(store)[0]
    put_bytes(store, key, body)

    with pytest.raises(LockedError), lock("r2"):
        pass
    clocks.pass_by(300)
    with lock("r3"):
        seen = holder(store)

    assert "r3" == seen
