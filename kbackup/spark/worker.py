"""Start Spark's Python workers on this machine: ``spark.python.daemon.module``.

Spark starts one process of this module and forks a worker from it for each task.  What is imported
here is imported once, and shared in memory by all workers.

The run starts such a process by itself, beside Java (``--ahead SOCKET MODULE...``), so that it has
imported everything by the time Spark wants it.  The process that Spark then starts hands it
everything Spark gave it: arguments, environment, standard streams.  If that does not work, it does
the work itself, half a second later.

Spark also puts archives in front of their path: PySpark as a ZIP, which holds no compiled modules,
and a jar of thousands of entries, which Python lists again for each task.  Left in place they cost
each task half a second of CPU time.
"""

import gc
import json
import os
import runpy
import select
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Final

SOCKET: Final = "KBACKUP_WORKER_SOCKET"
"""Variable that names the socket of the process that was started ahead."""

_ARCHIVES: Final = (".zip", ".jar")

_NEEDED: Final = ("pyspark", "py4j")

_USED_BY_TASKS: Final = (
    "kbackup.restore.task",
    "kbackup.sink.task",
    "pyspark.daemon",
    "pyspark.worker",
)
"""What nearly every task imports; the run names the modules of its own plugins beside them."""

_AHEAD: Final = "import_ahead"
"""The function of a plugin's module that loads what importing it alone leaves for later."""

_NO_THREAD: Final = ("JE_ARROW_MALLOC_CONF", "background_thread:false")
"""Keeps pyarrow from starting a thread when it is imported: a process that forks has none."""

_STREAMS: Final = (0, 1, 2)

_WAITING: Final = ("/bin/sh", ["sh", "-c", "read _", "kbackup.spark.worker"])
"""The process that Spark started, once it has nothing to do but to end with the other one."""

_MESSAGE_BYTES: Final = 2**20


# Where memory comes from has to be decided before Arrow is imported.  Its own choice, mimalloc,
# keeps 4 MB from the start and gives little back.  Measured with a full-record file that is read
# ahead in one process, MB above what the imports take, CPU the same:
#
#     100 B | 1 KB a record        at the peak     afterwards
#     mimalloc                       30 | 28         24 | 28
#     the C library's malloc         17 | 26         12 | 14
#
# The C library has a heap for each of the first threads, eight to a core.  What one thread takes
# and another gives back leaves holes in all of them.  With a Kafka client that writes the 1 KB
# records: 170 MB with many heaps, 115 with two, 90 with one, CPU the same.

_POOL: Final = ("ARROW_DEFAULT_MEMORY_POOL", "system")

_ARENA_MAX: Final = -8
"""``M_ARENA_MAX`` of glibc's ``mallopt``."""

_OWN: Final = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
"""What a user sets the number of heaps by."""


def keep_little() -> None:
    """Have this process, and those it starts, keep little memory; what the user has set stays."""
    os.environ.setdefault(*_POOL)


def share_one_heap() -> None:
    """Have all threads of this process take memory from one heap; what the user has set stays.

    To be called before there is a second thread.  C libraries other than glibc stay as they are.
    """
    import ctypes  # noqa: PLC0415  (commands that only look have no need of it)

    if not any(name in os.environ for name in _OWN):
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def without_archives(path: Sequence[str]) -> list[str]:
    """Return *path* without archives, or as it is where PySpark is nowhere else."""
    folders = [entry for entry in path if not entry.endswith(_ARCHIVES)]
    if all(PathFinder.find_spec(name, folders) for name in _NEEDED):
        return folders
    return list(path)


def main() -> None:
    """Become Spark's daemon, which forks workers until the JVM hangs up."""
    match sys.argv[1:]:
        case ["--ahead", path, *modules]:
            if not _wait_for_spark(path, modules):
                return
        case _:
            path = os.environ.pop(SOCKET, "")
            if path and _handed_over(path):
                return
            _prepare()
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


def _prepare(modules: Sequence[str] = ()) -> None:
    """Import what tasks need, into pages that the workers share."""
    # a garbage collection would write to each object, and give every worker a copy
    sys.path[:] = without_archives(sys.path)
    os.environ.setdefault(*_NO_THREAD)
    keep_little()
    share_one_heap()
    gc.disable()  # what it frees would leave room in frozen pages, where workers write
    for name in (*_USED_BY_TASKS, *modules):
        found = import_module(name)
        if import_ahead := getattr(found, _AHEAD, None):
            import_ahead()
    gc.freeze()
    gc.enable()


def _wait_for_spark(path: str, modules: Sequence[str]) -> bool:
    """Import everything, then take over from Spark; return false if the run ended first."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(1)
        _prepare(modules)
        ready, _, _ = select.select([listening.fileno(), 0], [], [])
        if listening.fileno() not in ready:
            return False
        spark, _ = listening.accept()
    text, streams, _, _ = socket.recv_fds(spark, _MESSAGE_BYTES, len(_STREAMS))
    while not text.endswith(b"\n"):
        more = spark.recv(_MESSAGE_BYTES)
        if not more:
            return False
        text += more
    given = json.loads(text)
    for at, stream in zip(_STREAMS, streams, strict=True):
        os.dup2(stream, at)
        os.close(stream)
    os.environ.clear()
    os.environ.update(given["environment"])
    os.environ.setdefault(*_NO_THREAD)
    sys.argv[1:] = given["arguments"]
    spark.set_inheritable(False)
    globals()["_SPARK"] = spark  # closed with this process, which ends the one that Spark knows
    return True


def _handed_over(path: str) -> bool:
    """Give the process that was started ahead what Spark gave us, and stay until it ends."""
    given = {"arguments": sys.argv[1:], "environment": dict(os.environ)}
    text = json.dumps(given).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as ahead:
        try:
            ahead.connect(path)
            sent = socket.send_fds(ahead, [text], _STREAMS)
            ahead.sendall(text[sent:])
        except OSError:
            return False
        for stream in _STREAMS:  # Spark notices the end of the other process by these
            with suppress(OSError):
                os.close(stream)
        with suppress(OSError):
            os.dup2(ahead.fileno(), 0)
            os.execv(*_WAITING)  # noqa: S606  (Python itself would keep 9 MB)
        ahead.recv(1)
    return True


if __name__ == "__main__":
    main()
