"""Where Spark's Python workers come from."""

import subprocess
import sys
from pathlib import Path

from kbackup.worker import without_archives


def test_archives_leave_the_path_where_pyspark_is_installed() -> None:
    """
    Workers import PySpark's compiled modules, not a ZIP's sources.
    """
    folders = [entry for entry in sys.path if not entry.endswith(".zip")]

    assert folders == without_archives(["/spark/pyspark.zip", "/jars/core.jar", *folders])


def test_archives_stay_where_pyspark_is_nowhere_else() -> None:
    """
    A worker that has PySpark from Spark alone still finds it.
    """
    path = ["/spark/pyspark.zip", "/nothing/here"]

    assert path == without_archives(path)


def test_what_is_imported_before_workers_are_forked_starts_no_thread() -> None:
    """
    A process that is forked has one thread: another one could hold a lock for ever.
    """
    program = (
        "import os, runpy, kbackup.worker\n"
        "runpy.run_module = lambda *_, **__: None\n"
        "kbackup.worker.main()\n"
        "print(len(os.listdir('/proc/self/task')))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert Path("/proc/self/task").exists()
    assert "1" == done.stdout.strip()
