"""The run lock between processes: overlaps, kills, pauses (rows D1, D2, D4 and D6)."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kbackup.stores import StoreSettings, open_store

PROGRAM = """
import sys, time
from pathlib import Path
from kbackup.runs import locks
from kbackup.errors import LockedError
from kbackup.naming import Layout
from kbackup.stores import StoreSettings, open_store
url, folder, run, locks.BEAT_S, timeout_s = *sys.argv[1:4], float(sys.argv[4]), float(sys.argv[5])
lock = locks.RunLock(open_store(StoreSettings(url)), Layout(), "sink", ["orders"], identity=url,
                     folder=Path(folder), timeout_s=timeout_s, run=run)
print("ready", flush=True)
sys.stdin.readline()
try:
    with lock:
        print("held", flush=True)
        sys.stdin.readline()
        deadline = time.monotonic() + (60 if locks.BEAT_S < 1 else 0)
        while not lock.is_lost and time.monotonic() < deadline:
            time.sleep(0.05)
        print("lost" if lock.is_lost else "kept", flush=True)
except LockedError as error:
    print("locked", error, flush=True)
    sys.exit(error.exit_code)
"""


class Contender:
    """A process that wants the lock, led line by line."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert "ready" == self.says()

    def go_on(self) -> "Contender":
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


@pytest.fixture
def start(place: Path, tmp_path: Path) -> Iterator[Callable[..., Contender]]:
    """Return a starter of contenders; *host* is a folder of lock files of its own."""
    with ExitStack() as stack:

        def begin(
            run: str, host: str = "here", beat_s: float = 60.0, timeout_s: float = 0.0
        ) -> Contender:
            arguments = [place.as_uri(), str(tmp_path / host), run, str(beat_s), str(timeout_s)]
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return Contender(process)

        yield begin


def objects(place: Path) -> list[str]:
    return [entry.key for entry in open_store(StoreSettings(place.as_uri())).list("")]


def make_stale(place: Path) -> None:
    """Let the lock object be as old as if its holder had been silent for ten minutes."""
    (path,) = (place / "_kbackup" / "locks").iterdir()
    past = time.time() - 600
    os.utime(path, (past, past))


@pytest.mark.parametrize("host", ["here", "there"])
def test_the_second_process_is_told_at_once(start: Callable[..., Contender], host: str) -> None:
    """Two crons overlap, on one host or on two: the second ends with 8, and waits for nothing."""
    first, second = start("r1"), start("r2", host)
    first.go_on().says()

    began = time.monotonic()
    said = second.go_on().says()
    took = time.monotonic() - began

    assert said.startswith("locked")
    assert "run r1" in said
    assert 8 == second.process.wait(60)
    assert took < 30
    assert "kept" == first.go_on().says()


@pytest.mark.parametrize("host", ["here", "there"])
def test_a_waiting_process_gets_the_lock(start: Callable[..., Contender], host: str) -> None:
    """A run that waits for the lock continues when the other run has ended."""
    first, second = start("r1"), start("r2", host, timeout_s=60.0)
    first.go_on().says()
    second.go_on()

    first.go_on().says()

    assert ("held", 0) == (second.says(), first.process.wait(60))


def test_a_killed_run_is_followed_at_once_on_its_host(
    start: Callable[..., Contender], place: Path
) -> None:
    """After kill -9 the next run on the same host starts, and leaves no lock behind."""
    first, second = start("r1"), start("r2")
    first.go_on().says()
    first.kill()

    began = time.monotonic()
    said = second.go_on().says()
    took = time.monotonic() - began
    last = second.go_on().says()

    assert ("held", "kept", 0) == (said, last, second.process.wait(60))
    assert took < 30
    assert [] == objects(place)


def test_a_killed_run_is_followed_later_on_another_host(
    start: Callable[..., Contender], place: Path
) -> None:
    """Another host cannot know that the first is dead: it waits until the lock is stale."""
    first, second, third = start("r1"), start("r2", "there"), start("r3", "there")
    first.go_on().says()
    first.kill()

    early = second.go_on().says()
    make_stale(place)
    late = third.go_on().says()

    assert early.startswith("locked")
    assert "held" == late


def test_a_paused_run_learns_that_it_lost_the_lock(
    start: Callable[..., Contender], place: Path
) -> None:
    """A run that was suspended for minutes leaves the lock to its new holder."""
    first, second, third = start("r1", beat_s=0.2), start("r2", "there"), start("r3", "elsewhere")
    first.go_on().says()
    first.process.send_signal(signal.SIGSTOP)
    make_stale(place)

    said = second.go_on().says()
    first.process.send_signal(signal.SIGCONT)
    woken = first.go_on().says()

    assert ("held", "lost", 0) == (said, woken, first.process.wait(60))
    assert third.go_on().says().startswith("locked")
    assert "kept" == second.go_on().says()


def test_of_many_that_start_at_once_one_gets_the_lock(
    start: Callable[..., Contender], place: Path
) -> None:
    """If many hosts find a stale lock at the same moment, exactly one gets it."""
    dead = start("r0")
    dead.go_on().says()
    dead.kill()
    make_stale(place)
    many = [start(f"r{number}", f"host {number}") for number in range(1, 5)]

    for one in many:
        one.go_on()
    said = sorted(one.says().partition(" ")[0] for one in many)

    assert ["held", "locked", "locked", "locked"] == said
