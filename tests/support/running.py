"""A command that is watched, stopped or killed while it works."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from tests.support.command import Kbackup, Result

PATIENCE_S = 240.0
"""Machines are shared: what is sure to come may take this long."""

SHOWN = 300
"""Lines of each stream that a failure shows: where twenty threads stand takes most of them."""


def wait_until(is_so: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> None:
    """Return as soon as *is_so*; fail, saying *what* did not come, after *seconds*."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not come within {seconds:.0f} s"
        time.sleep(0.02)


class Running:
    """``kbackup ... --json`` at work; its lines are read as they come."""

    def __init__(self, kbackup: Kbackup, *words: str) -> None:
        self.kbackup = kbackup
        self.process = kbackup.start(*words, "--json")
        self.pid = self.process.pid
        self._out: list[str] = []
        self._err: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in (
                (self.process.stdout, self._out),
                (self.process.stderr, self._err),
            )
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Any, lines: list[str]) -> None:
        with stream:
            for line in stream:
                lines.append(line)  # noqa: PERF402  (seen while it grows)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The JSON lines of one type so far."""
        whole = [line for line in list(self._out) if line.endswith("\n")]
        return [line for line in map(json.loads, whole) if line["type"] == kind]

    def wait_for(self, kind: str, count: int = 1) -> None:
        """Wait for *count* lines of a type; it must not end before."""
        text = f'"type":"{kind}"'

        def there() -> bool:
            if sum(text in line for line in list(self._out)) >= count:
                return True
            assert not self.is_over, f"it ended: {''.join(self._out)}\n{''.join(self._err)}"
            return False

        wait_until(there, f"line {count} of type {kind}")

    def show_tail(self) -> None:
        """Show the last lines of both streams: pytest prints them where a test has failed.

        A command that is still at work is ended, and says where each of its threads was.
        """
        if not self.is_over:
            self.signal(signal.SIGABRT)
            with suppress(subprocess.TimeoutExpired):
                self.finish(10)
        for name, lines in (("stdout", self._out), ("stderr", self._err)):
            sys.stderr.write(f"--- {name} of the command, {len(lines)} lines\n")
            sys.stderr.writelines(lines[-SHOWN:])

    def members(self) -> list[psutil.Process]:
        """Processes of its session that still run: the driver, the JVM, Python workers."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        return found

    def workers(self) -> list[psutil.Process]:
        """Python workers of Spark: children of its daemon."""
        named = {}
        for process in self.members():
            try:
                named[process.pid] = (process, process.ppid(), " ".join(process.cmdline()))
            except psutil.NoSuchProcess:
                continue
        return [
            process
            for process, parent, words in named.values()
            if "kbackup.spark.worker" in words
            and "kbackup.spark.worker" in named.get(parent, (0, 0, ""))[2]
        ]

    def signal(self, number: int) -> None:
        """Send a signal to the command alone, as cron or an operator does."""
        self.process.send_signal(number)

    def signal_all(self, number: int) -> None:
        """Send a signal to every process of the session."""
        for process in self.members():
            process.send_signal(number)

    def kill_group(self) -> None:
        """``kill -9`` of the process group."""
        os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def finish(self, timeout: float = PATIENCE_S) -> Result:
        """Wait for its end."""
        self.process.wait(timeout)
        for reader in self._readers:
            reader.join(timeout)
        return Result(self.process.returncode, "".join(self._out), "".join(self._err))

    def leave_nothing(self) -> None:
        """Fail if a process of the session is left after a while."""
        wait_until(lambda: not self.members(), f"the end of all of session {self.pid}", 30)


@contextmanager
def running(kbackup: Kbackup, *words: str) -> Iterator[Running]:
    """Start a command; nothing of it is left behind, whatever the test does."""
    command = Running(kbackup, *words)
    try:
        yield command
    except BaseException:
        command.show_tail()
        raise
    finally:
        for process in command.members():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        command.process.wait(PATIENCE_S)


def ended(kbackup: Kbackup, *words: str, expect: int = 0) -> Result:
    """Run a command to its end; no process of it may be left, and nothing in its TMPDIR."""
    with TemporaryDirectory(prefix="tmpdir-") as folder:
        with running(kbackup.with_environment(TMPDIR=folder), *words) as command:
            result = command.finish(300)
            command.leave_nothing()
        left = [each.name for each in Path(folder).iterdir()]
        assert not left, f"left in its TMPDIR: {left}"
    assert expect == result.code, f"{result.stdout}\n{result.stderr}"
    return result
