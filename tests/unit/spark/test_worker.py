"""Where Spark's Python workers come from."""

import json
import os
import platform
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from kbackup.spark.jvm import WaitingDaemon
from kbackup.spark.worker import SOCKET, without_archives
from tests.support.own_process import measured


def test_archives_leave_the_path_where_pyspark_is_installed() -> None:
    """Workers import PySpark's compiled modules, not a ZIP's sources."""
    folders = [entry for entry in sys.path if not entry.endswith(".zip")]

    assert folders == without_archives(["/spark/pyspark.zip", "/jars/core.jar", *folders])


def test_archives_stay_where_pyspark_is_nowhere_else() -> None:
    """A worker that has PySpark from Spark alone still finds it."""
    path = ["/spark/pyspark.zip", "/nothing/here"]

    assert path == without_archives(path)


@pytest.fixture(scope="module")
def prepared() -> dict[str, Any]:
    """What a process has become that is about to fork workers: threads, frozen objects, modules."""
    program = (
        "import gc, json, os, runpy, sys, kbackup.spark.worker\n"
        "runpy.run_module = lambda *_, **__: None\n"
        "kbackup.spark.worker.main()\n"
        "threads = len(os.listdir('/proc/self/task'))\n"
        "kept = [gc.isenabled(), gc.get_freeze_count() > len(gc.get_objects())]\n"
        "import pyarrow\n"
        "pool = pyarrow.default_memory_pool().backend_name\n"
        "print(json.dumps([threads, kept, pool, list(sys.modules)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return dict(zip(("threads", "kept", "pool", "modules"), json.loads(done.stdout), strict=True))


def test_what_is_imported_before_workers_are_forked_starts_no_thread(
    prepared: dict[str, Any],
) -> None:
    """A process that is forked has one thread: another one could hold a lock for ever."""
    assert Path("/proc/self/task").exists()
    assert 1 == prepared["threads"]


def test_a_garbage_collection_in_a_worker_does_not_copy_what_workers_share(
    prepared: dict[str, Any],
) -> None:
    """Collections look at no object from before the fork, and are made."""
    assert [True, True] == prepared["kept"]


_HEAPS = """\
import ctypes, sys, threading, kbackup.spark.worker
kbackup.spark.worker._USED_BY_TASKS = ()
kbackup.spark.worker._prepare()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
for _ in range(4):
    thread = threading.Thread(target=lambda: libc.malloc(5000))
    thread.start()
    thread.join()
out = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, out)
libc.fclose(out)
print(open(sys.argv[1]).read().count("<heap nr="))
"""


@pytest.mark.skipif("glibc" not in platform.libc_ver()[0], reason="glibc counts its heaps")
@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        pytest.param({}, 1, 1, id="ours"),
        pytest.param({"MALLOC_ARENA_MAX": "8"}, 2, 8, id="own"),
    ],
)
def test_the_threads_of_a_worker_share_a_heap_unless_more_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    given: dict[str, str],
    least: int,
    most: int,
) -> None:
    """What one thread reads ahead and another gives back leaves no holes in several heaps."""
    script = tmp_path / "heaps.py"
    script.write_text(_HEAPS)
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    heaps = measured(str(script), str(tmp_path / "info.xml"))

    assert least <= heaps <= most


def test_arrow_gives_memory_back_in_workers(prepared: dict[str, Any]) -> None:
    """Arrow's memory in workers is the C library's, so that what is freed returns."""
    assert "system" == prepared["pool"]


@pytest.mark.parametrize(
    "library",
    [
        "asyncio", "boto3", "click", "fastavro", "google", "kbackup.config", "numpy", "pandas",
        "pyarrow.dataset", "rich",
    ],
)  # fmt: skip
def test_workers_do_not_share_what_few_tasks_use(prepared: dict[str, Any], library: str) -> None:
    """What only the driver, a plugin or a store needs is not in the memory of every worker."""
    assert "kbackup.restore.task" in prepared["modules"]
    assert not [
        name for name in prepared["modules"] if name == library or name.startswith(f"{library}.")
    ]


DAEMON = [sys.executable, "-m", "kbackup.spark.worker", "pyspark.worker"]


def forked(daemon: "subprocess.Popen[bytes]") -> int:
    """Do what Spark does: read the port from the daemon, connect, and learn the worker's pid."""
    assert daemon.stdout is not None
    (port,) = struct.unpack(">i", daemon.stdout.read(4))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        (pid,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    return int(pid)


def test_workers_are_forked_from_the_process_that_was_started_ahead() -> None:
    """What Spark starts hands its streams over, gives memory back, and ends with Spark."""
    with tempfile.TemporaryFile() as log:
        ahead = WaitingDaemon.start(log.fileno())
        assert ahead is not None
        try:
            while not (ahead.folder / "socket").exists():
                assert ahead.process.poll() is None
            with subprocess.Popen(
                DAEMON, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env={**os.environ, **ahead.environment, "PYTHON_WORKER_FACTORY_SECRET": "x"},
            ) as daemon:  # fmt: skip
                pid = forked(daemon)
                while Path(f"/proc/{daemon.pid}/comm").read_text() != "sh\n":
                    assert daemon.poll() is None
                assert daemon.stdin is not None
                daemon.stdin.close()

                assert ahead.process.pid != pid
                assert ahead.process.wait(60) is not None
                assert daemon.wait(60) is not None
        finally:
            ahead.close()

    assert not ahead.folder.exists()


def test_a_process_that_was_started_ahead_in_vain_ends_with_the_run() -> None:
    """Nothing is left behind where the run turns out to have nothing to do."""
    with tempfile.TemporaryFile() as log:
        ahead = WaitingDaemon.start(log.fileno())
        assert ahead is not None

        ahead.close()

    assert ahead.process.returncode is not None  # by itself, or killed where that takes too long
    assert not ahead.folder.exists()


def test_spark_gets_its_daemon_where_the_one_started_ahead_is_gone(tmp_path: Path) -> None:
    """Starting ahead saves time, and nothing depends on it."""
    with subprocess.Popen(
        DAEMON, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, SOCKET: str(tmp_path / "gone"), "PYTHON_WORKER_FACTORY_SECRET": "x"},
    ) as daemon:  # fmt: skip
        pid = forked(daemon)
        assert daemon.stdin is not None
        daemon.stdin.close()

        assert daemon.pid != pid
        assert daemon.wait(60) is not None


_FIRST_CLIENT = """\
import os, sys, kbackup.spark.worker
kbackup.spark.worker._USED_BY_TASKS = ()
kbackup.spark.worker._prepare(["kbackup.stores.s3"])
opened = []
sys.addaudithook(lambda event, found: opened.append(str(found[0])) if event == "open" else None)
from kbackup.stores import StoreSettings, open_store
keys = {"aws.access.key.id": "a", "aws.secret.access.key": "b", "s3.region": "eu-west-1"}
open_store(StoreSettings("s3://bucket", "http://127.0.0.1:1", keys))
modules = [path for path in opened if path.endswith(".pyc") and "boto" in path]
read = [path for path in opened if "botocore/data/s3" in path]
print(len(os.listdir("/proc/self/task")) * 1000 + len(modules) * 100 + len(read))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_a_worker_imports_nothing_for_its_first_request_to_s3(tmp_path: Path) -> None:
    """boto3 and S3's description are loaded once for all workers, and start no thread."""
    script = tmp_path / "first.py"
    script.write_text(_FIRST_CLIENT)

    assert 1000 == measured(str(script))
