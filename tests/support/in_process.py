"""The command in one process, its tasks in threads: no JVM, no worker.

For tests of what a run does with a real Kafka and S3, not of the processes that it consists of.
`InProcess` runs it in the test's own; ``python -m tests.support.in_process`` is one that can be
watched, stopped and killed.  Many are started, so this imports no more than a command does: what
else is needed is imported where it is.
"""

import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from kbackup.cli import main, root
from kbackup.runs import context
from kbackup.spark import engine
from kbackup.spark.channel import ChannelServer, TaskChannel
from tests.support.command import Kbackup, Result
from tests.support.waits import shortened

CORES = 2

WITHOUT_SPARK = "tests.support.in_process"
"""The module of a `Kbackup` that is a process of its own and starts in a second."""


def in_one_process(kbackup: Kbackup) -> Kbackup:
    """Return the same command without Spark."""
    return replace(kbackup, module=WITHOUT_SPARK)


class InProcess(Kbackup):
    """``kbackup`` with an environment; what is started or watched is a process all the same."""

    def __call__(self, *words: str, timeout: float = 480) -> Result:
        """Run a command to its end."""
        from click.testing import CliRunner

        del timeout  # pytest's
        own = {name: None for name in os.environ if name.startswith("KBACKUP_")}
        runner = CliRunner(env={**own, **self.environment})
        with tasks_in_threads():
            result = runner.invoke(root, words, prog_name="kbackup")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Result(result.exit_code, result.stdout, result.stderr)


@contextmanager
def tasks_in_threads() -> Iterator[None]:
    with patch.object(context, "OnSpark", InThreads), patch.object(engine, "run", _run):
        yield


class InThreads:
    """Runs tasks as Spark does, in this process: a `runs.environment.RunTasks`."""

    def __init__(self, *_: Any) -> None:
        """Take what Spark is given."""

    def begin(self) -> None:
        """There is nothing to start."""

    def end(self) -> None:
        """There is nothing to end."""

    def __call__(self, task: Any, units: Sequence[Any], hear: Any, stop: Any, **more: Any) -> Any:
        """Return all reports."""
        return _run(task, units, None, hear, stop, **more)


def _run(
    task: Any,
    units: Sequence[Any],
    _settings: Any,
    hear: Callable[[Any], None],
    stop: threading.Event,
    **options: Any,
) -> list[Any]:
    """Run a task over units: `spark.engine.run`."""
    from pyspark import cloudpickle

    orders = options.get("orders")
    hub = ChannelServer("127.0.0.1", hear)
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.05):
            while orders is not None and not orders.empty():
                hub.order(orders.get())
            if stop.is_set():
                hub.stop()
                return

    def work(share: bytes) -> list[Any]:
        mine, given = pickle.loads(share)  # as it crosses processes
        with TaskChannel(hub.address) as line:
            return list(mine(given, line))

    watcher = threading.Thread(target=watch)
    watcher.start()
    slots = CORES * (options.get("slices_per_core") or 4)
    shares = [
        cloudpickle.dumps((task, share)) for share in options.get("deal", engine.deal)(units, slots)
    ]
    try:
        with ThreadPoolExecutor(CORES) as pool:
            return [report for found in pool.map(work, shares) for report in found]
    finally:
        is_over.set()
        watcher.join()
        hub.close()


@contextmanager
def _its_commands_too() -> Iterator[None]:
    """Let the demo start its commands as it was started itself."""
    from kbackup.cli.prepare import Foreground

    call = Foreground.call

    def called(self: Foreground, command: Sequence[str], environment: Mapping[str, str]) -> int:
        own = [WITHOUT_SPARK if word == "kbackup" else word for word in command if word != "-P"]
        return call(self, own, environment)

    with patch.object(Foreground, "call", called):
        yield


if __name__ == "__main__":
    is_demo = sys.argv[1:2] == ["demo"]
    with tasks_in_threads(), _its_commands_too() if is_demo else nullcontext(), shortened():
        main()
