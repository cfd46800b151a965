"""What a command takes, all the processes it starts counted: wall time, CPU time, memory.

Linux only.  The meter is a process of its own: whatever it starts becomes its descendant and stays
so when a process in between dies (``PR_SET_CHILD_SUBREAPER``).  Memory is the sum of proportional
set sizes, in which a page shared by several processes counts once.
"""

import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count
from typing import BinaryIO, Final

import psutil

SAMPLES_PER_SECOND: Final = 10

_MEMORY_SAMPLES: Final = 5
"""Every how many samples memory is one of them: the kernel walks all pages for it, which at each
took a tenth of two cores beside a run of several processes, and less beside the peer's one."""

_SUBREAPER: Final = 36
_FORKS: Final = ["-m", "kbackup.spark.worker"]
"""How the process was started that Spark's Python workers are forked from."""

_STRAGGLERS_S: Final = 15.0
"""How long what a command left running may go on until it is no longer waited for."""


class MeasuredCommandError(Exception):
    """A command that was measured ended with another code than 0."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a command took.

    Attributes:
        wall_s: From the start of the first process to the end of the last command.
        cpu_s: User and system time of all processes.
        task_cpu_s: That of Spark's Python workers, which do the tasks, alone; 0 without Spark.
        peak_bytes: The most memory they had together in any sample.
        outputs: What each command printed to stdout.
    """

    wall_s: float
    cpu_s: float
    task_cpu_s: float
    peak_bytes: int
    outputs: list[str]


def measure(commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> Usage:
    """Run *commands* side by side and return what they took.

    Raises:
        MeasuredCommandError: If one of them fails; with the end of its output.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.process_tree"],
        input=json.dumps(list(map(list, commands))),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise MeasuredCommandError(done.stderr.strip()[-3000:])
    return Usage(**json.loads(done.stdout))


def _meter(commands: Sequence[Sequence[str]]) -> Usage:
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="kbackup-bench-") as folder:
        files = [_file(folder) for _ in commands]
        errors = [_file(folder) for _ in commands]
        began = time.monotonic()
        processes = [
            subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
            for command, out, err in zip(commands, files, errors, strict=True)
        ]
        ends: list[float] = []

        def wait(process: subprocess.Popen[bytes]) -> None:
            process.wait()
            ends.append(time.monotonic())

        waiters = [threading.Thread(target=wait, args=(process,)) for process in processes]
        for waiter in waiters:
            waiter.start()
        peak = 0
        seconds: dict[psutil.Process, float] = {}  # equal where id and start time are
        workers: set[psutil.Process] = set()
        for sample in count():
            if not any(waiter.is_alive() for waiter in waiters):
                break
            now_running = _sampled(seconds, workers)
            if sample % _MEMORY_SAMPLES == 0:
                peak = max(peak, sum(map(_memory, now_running)))
            running = [waiter for waiter in waiters if waiter.is_alive()]
            if running:
                running[0].join(1 / SAMPLES_PER_SECOND)
        for process, out, err in zip(processes, files, errors, strict=True):
            if process.returncode != 0:
                text = _text(err) + _text(out)
                sys.exit(f"{process.args!r} ended with {process.returncode}: {text[-2000:]}")
        _reap_stragglers()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        # the kernel forgets the children of a process that does not wait for them, as Spark's
        # daemon; the samples miss the last tenth of a second of each
        cpu = max(used.ru_utime + used.ru_stime, sum(seconds.values()))
        tasks = sum(seconds[worker] for worker in workers)
        return Usage(max(ends) - began, cpu, tasks, peak, [_text(file) for file in files])


def _sampled(
    seconds: dict[psutil.Process, float], workers: set[psutil.Process]
) -> list[psutil.Process]:
    """Note each process's CPU time so far, and which of them are *workers*; return them."""
    found = psutil.Process().children(recursive=True)
    for process in found:
        with suppress(psutil.Error):  # it ended between two looks
            if process not in seconds and is_worker(process):
                workers.add(process)
            spent = process.cpu_times()
            seconds[process] = spent.user + spent.system
    return found


def _memory(process: psutil.Process) -> int:
    """Return the bytes of a process; 0 once it has ended."""
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def is_worker(process: psutil.Process) -> bool:
    """Return whether *process* is a fork of the one that Spark's Python workers come from."""
    parent = process.parent()
    return parent is not None and all(each.cmdline()[1:3] == _FORKS for each in (parent, process))


def _reap_stragglers() -> None:
    """Wait for orphans, so that their time counts."""
    deadline = time.monotonic() + _STRAGGLERS_S
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.05)
        except ChildProcessError:
            return


def _file(folder: str) -> BinaryIO:
    return tempfile.TemporaryFile(dir=folder)


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


if __name__ == "__main__":
    print(json.dumps(asdict(_meter(json.load(sys.stdin)))))
