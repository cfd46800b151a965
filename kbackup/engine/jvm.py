"""Spark's JVM: started, connected to, and ended."""

import logging
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kbackup.engine.ahead import Ahead
from kbackup.engine.archive import class_archive
from kbackup.engine.command import direct_command, java_options
from kbackup.engine.complaints import exit_sentence, not_started
from kbackup.engine.settings import EngineSettings
from kbackup.errors import KbackupError, SparkError

_log = logging.getLogger(__name__)

_CUT_SHORT: Final = b"AOT cache has been truncated"
"""What the JVM says of an ahead-of-time cache that is not whole, and does without."""

_HEAD_BYTES: Final = 2**16
"""What is looked through for that: the JVM opens its cache before anything else."""

_CRASH: Final = "A fatal error has been detected by the Java Runtime"
"""What the JVM says when it crashes, as it does with a class archive that is cut short."""

_JVM_EXIT_S: Final = 180.0
"""The JVM ends within a second, or within a minute of CPU time when it makes an archive."""

_LOOK_S: Final = 0.005
_SAID: Final = "gateway"

_CONF: Final = {
    "spark.app.name": "kbackup",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.speculation": "false",
    "spark.python.worker.faulthandler.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class Spark:
    """A Spark that takes work.

    Attributes:
        context: Its ``SparkContext``.
        log: What its JVM printed: an unnamed file.
        workers: The Python that its workers are forked from, None where Spark starts it.
    """

    context: Any
    log: Any
    workers: Ahead | None

    def end(self) -> None:
        """End Spark and its JVM; what goes wrong is logged, for its work is done."""
        try:
            _stop(self.context)
            _gateway_down()
        except Exception as error:  # noqa: BLE001  (its work is done, whatever it says at its end)
            _log.warning("Spark did not end in good order: %s", error)
        finally:
            self.log.close()
            if self.workers is not None:
                self.workers.close()


def start(settings: EngineSettings) -> Spark:
    """Start Spark.

    Raises:
        SparkError: If it does not start.
        NoSpaceError: If there is no room in TMPDIR.
    """
    archive = class_archive(settings)
    try:
        spark = _launch(settings, archive)
    except OSError as error:
        raise not_started(str(error), "") from error
    except SparkError as error:
        if archive is None or _CRASH not in error.why:
            raise
        _log.warning("Java crashed with the class archive %s: starting without it", archive)
        with suppress(OSError):  # the doctor makes another one
            archive.unlink()
        return _launch(settings, None)
    if archive is not None and _CUT_SHORT in os.pread(spark.log.fileno(), _HEAD_BYTES, 0):
        _log.warning("Java did without the class archive %s: it is cut short", archive)
        with suppress(OSError):
            archive.unlink()
    return spark


def _launch(settings: EngineSettings, archive: Path | None) -> Spark:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if settings.jvm is not None:
        os.environ["JAVA_HOME"] = settings.jvm.home
    given = {**_CONF, **_local(settings.master), **settings.conf}
    options = " ".join(f'"{option}"' for option in java_options(archive))
    own = settings.conf.get("spark.driver.extraJavaOptions", "")
    log = tempfile.TemporaryFile(prefix="kbackup-spark-")  # noqa: SIM115  (lives as long as the JVM)
    ahead = Ahead.start(log.fileno()) if _forks_ours(settings) else None
    try:
        command = direct_command(settings, given, archive)
        given["spark.driver.extraJavaOptions"] = f"{options} {own}".strip()
        environment = {} if ahead is None else ahead.environment
        context = _context(settings.master, given, command, environment, log)
    except BaseException:
        if ahead is not None:
            ahead.close()
        raise
    return Spark(context, log, ahead)


def _context(
    master: str,
    given: Mapping[str, str],
    command: Sequence[str] | None,
    environment: Mapping[str, str],
    log: Any,
) -> Any:
    """Return a new ``SparkContext`` on a new JVM."""
    java = None if command is None else _Java.run(command, environment, log)
    # imported while the JVM starts; commands that look need no Spark
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        conf = SparkConf(loadDefaults=False).setMaster(master)
        for name, value in given.items():
            conf.set(name, value)
        if java is None:
            gateway: Any = launch_gateway(conf, {"stderr": log, "stdout": log})
        else:
            gateway = java.gateway(launch_gateway)
        context = SparkContext(conf=conf, gateway=gateway)
    except Exception as error:  # py4j's errors have no common class worth importing it for
        why = str(error)  # of some it asks the JVM, which is still there
        if not isinstance(error, (PySparkException, OSError, ValueError)):
            why = f"{type(error).__name__}: {why}"
        _give_up(java)
        raise _not_started(why, log) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, on_interrupt)  # pyspark puts its own in its place
    return context


@dataclass(frozen=True, slots=True)
class _Java:
    """A JVM that we started ourselves, and the folder in which it says where it listens."""

    process: subprocess.Popen[bytes]
    folder: Path

    @classmethod
    def run(cls, command: Sequence[str], environment: Mapping[str, str], log: Any) -> "_Java":
        folder = Path(tempfile.mkdtemp(prefix="kbackup-jvm-"))
        said = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / _SAID)}
        try:
            process = subprocess.Popen(  # noqa: S603  (a Java that was found, options of ours)
                list(command),
                stdin=subprocess.PIPE,  # when it breaks, the JVM ends
                stdout=log,
                stderr=log,
                env={**os.environ, **environment, **said},
                process_group=0,  # Ctrl-C is for the run, which then ends the JVM
            )
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return cls(process, folder)

    def gateway(self, connect: Callable[[], Any]) -> Any:
        """Return pyspark's connection to the JVM, once it listens.

        Raises:
            OSError: If the JVM ended first.
        """
        try:
            while not (self.folder / _SAID).is_file():  # it appears whole, by a rename
                if self.process.poll() is not None:
                    raise OSError(exit_sentence(self.process.returncode))
                time.sleep(_LOOK_S)
            said = (self.folder / _SAID).read_bytes()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
        port, length = struct.unpack(">ii", said[:8])
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(port),
                       "PYSPARK_GATEWAY_SECRET": said[8 : 8 + length].decode()}  # fmt: skip
        try:  # this is how pyspark is told that there is a JVM already
            gateway = connect()
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        gateway.proc = self.process
        return gateway

    def kill(self) -> None:
        """End a JVM that nobody is connected to."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _give_up(java: _Java | None) -> None:
    """End a JVM that did not become a Spark, and let pyspark forget it: the next is another one."""
    from pyspark import SparkContext  # noqa: PLC0415

    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    if java is not None:
        java.kill()


def _local(master: str) -> dict[str, str]:
    """Alone on this machine: no host name has to resolve, and workers come from our process."""
    if not master.startswith("local"):
        return {}
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.daemon.module": "kbackup.worker",
    }


def _forks_ours(settings: EngineSettings) -> bool:
    """Whether Spark would start this very Python with our daemon, here."""
    return (
        settings.is_local
        and os.environ["PYSPARK_PYTHON"] == sys.executable
        and not any(name.startswith("spark.python.") for name in settings.conf)
        and "spark.pyspark.python" not in settings.conf
    )


def _not_started(why: str, log: Any) -> KbackupError:
    log.seek(0)
    return not_started(why, log.read().decode(errors="replace"))


def _stop(context: Any) -> None:
    """Stop Spark without the second that its accumulators, which nobody here uses, take to end."""
    accumulators, context._accumulatorServer = context._accumulatorServer, None  # noqa: SLF001
    accumulators.handle_error = lambda *_: None  # the JVM hangs up first, which it would print
    context.stop()
    threading.Thread(target=accumulators.shutdown, daemon=True).start()


def _gateway_down() -> None:
    """End the JVM with the run, so that a second run in this process starts its own."""
    from pyspark import SparkContext  # noqa: PLC0415

    gateway = SparkContext._gateway  # noqa: SLF001
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    if process is not None:
        process.stdin.close()
        process.wait(_JVM_EXIT_S)
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
