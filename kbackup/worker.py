"""Where Spark's Python workers on this machine come from: ``spark.python.daemon.module``.

Spark starts one process of this module and forks a worker from it for each task.  What is imported
here is imported once, and shared in memory by all workers.

Spark also puts archives in front of their path: PySpark as a ZIP, which holds no compiled modules,
and a jar of thousands of entries, which Python lists again for each task.  Left in place they cost
each task half a second of CPU time.
"""

import os
import runpy
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Final

_ARCHIVES: Final = (".zip", ".jar")

_NEEDED: Final = ("pyspark", "py4j")

_USED_BY_TASKS: Final = (
    "kbackup.restore.task",
    "kbackup.sink.task",
    "kbackup.formats.parquet",
    "kbackup.stores.file",
    "pyspark.worker",
)
"""What nearly every task imports; the rest comes with the first task that wants it."""


_NO_THREAD: Final = ("JE_ARROW_MALLOC_CONF", "background_thread:false")
"""Keeps pyarrow from starting a thread when it is imported: a process that forks has none."""


def without_archives(path: Sequence[str]) -> list[str]:
    """Return *path* without archives, or as it is where PySpark is nowhere else."""
    folders = [entry for entry in path if not entry.endswith(_ARCHIVES)]
    if all(PathFinder.find_spec(name, folders) for name in _NEEDED):
        return folders
    return list(path)


def main() -> None:
    """Become Spark's daemon, which forks workers until the JVM hangs up."""
    sys.path[:] = without_archives(sys.path)
    os.environ.setdefault(*_NO_THREAD)
    for name in _USED_BY_TASKS:
        import_module(name)
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
