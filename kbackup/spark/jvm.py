"""Start Spark's JVM beside whatever the run does, connect to it, and end it.

The Python that workers are forked from starts beside it: that takes half a second, with what tasks
import, which is just about what Java needs.
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from kbackup.errors import KbackupError, SparkError
from kbackup.spark import worker
from kbackup.spark.java import (
    EngineSettings,
    JavaProcess,
    class_archive,
    direct_command,
    java_options,
    not_started,
)

_END_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class WaitingDaemon:
    """A process that waits to become Spark's Python daemon."""

    process: subprocess.Popen[bytes]
    folder: Path

    @classmethod
    def start(cls, log: int, modules: Sequence[str] = ()) -> Self | None:
        """Start one; None where that is not possible, for Spark can do without.

        Args:
            log: Descriptor of a file for what it prints.
            modules: What to import beside what all tasks need.
        """
        try:
            folder = Path(tempfile.mkdtemp(prefix="kbackup-py-"))
        except OSError:
            return None
        try:
            process = subprocess.Popen(  # noqa: S603  (this very Python)
                [sys.executable, "-m", worker.__name__, "--ahead", f"{folder}/socket", *modules],
                stdin=subprocess.PIPE,  # when it breaks, the process ends
                stdout=log,
                stderr=log,
                process_group=0,
            )
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        return cls(process, folder)

    @property
    def environment(self) -> Mapping[str, str]:
        """What tells the process that Spark starts where this one is."""
        return {worker.SOCKET: str(self.folder / "socket")}

    def kill(self) -> None:
        """End the process and its workers at once: none is at work."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """End the process if Spark has not taken it over, else wait until Spark has ended it."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


_log = logging.getLogger(__name__)

_CUT_SHORT: Final = b"AOT cache has been truncated"
"""What the JVM says of an ahead-of-time cache that is not whole, and does without."""

_HEAD_BYTES: Final = 2**16
"""What is looked through for that: the JVM opens its cache before anything else."""

_CRASH: Final = "A fatal error has been detected by the Java Runtime"
"""What the JVM says when it crashes, as it does with a class archive that is cut short."""

_JVM_EXIT_S: Final = 180.0
"""The JVM ends within a second, or within a minute of CPU time when it makes an archive."""

_LOCAL_DIRS: Final = ("SPARK_LOCAL_DIRS", "LOCAL_DIRS", "MESOS_SANDBOX")
"""Variables that send Spark's files elsewhere than to the folder that is removed with its JVM."""

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
        log: What its JVM printed: an unnamed file.
        workers: The Python that its workers are forked from, None where Spark starts it.
        java: Its JVM, None where Spark's scripts have started it.
        is_ours: Nothing that it does may outlast the run, such as an event log.
    """

    context: Any
    log: Any
    workers: WaitingDaemon | None
    java: JavaProcess | None
    is_ours: bool

    def end(self, *, is_idle: bool = False) -> None:
        """End Spark and its JVM; what goes wrong is logged, for its work is done.

        Args:
            is_idle: No task is at work.
        """
        try:
            if is_idle and self.is_ours and self.java is not None:
                _kill(self.context, self.java)
                if self.workers is not None:
                    self.workers.kill()
            else:
                _stop(self.context)
                _gateway_down()
        except Exception as error:  # noqa: BLE001  (its work is done, whatever it says at its end)
            _log.warning("Spark did not shut down cleanly: %s", error)
        finally:
            self.log.close()
            if self.workers is not None:
                self.workers.close()
            if self.java is not None:
                self.java.clean()


def start(
    settings: EngineSettings, launched: Callable[[JavaProcess], object] = lambda _: None
) -> Spark:
    """Start Spark.

    Args:
        launched: Called with its JVM, once there is one that we started ourselves.

    Raises:
        SparkError: If it does not start.
        NoSpaceError: If there is no room in TMPDIR.
    """
    archive = class_archive(settings)
    try:
        spark = _launch(settings, archive, launched)
    except OSError as error:
        raise not_started(str(error), "") from error
    except SparkError as error:
        if archive is None or _CRASH not in error.why:
            raise
        _log.warning("Java crashed with the class archive %s: starting without it", archive)
        with suppress(OSError):
            archive.unlink()
        return _launch(settings, None, launched)
    if archive is not None and _CUT_SHORT in os.pread(spark.log.fileno(), _HEAD_BYTES, 0):
        _log.warning("Java ignored the class archive %s: it is truncated", archive)
        with suppress(OSError):
            archive.unlink()
    return spark


def _launch(
    settings: EngineSettings, archive: Path | None, launched: Callable[[JavaProcess], object]
) -> Spark:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    import_alike()
    given = {**_CONF, **_local(settings.master), **settings.conf}
    options = " ".join(f'"{option}"' for option in java_options(archive))
    own = settings.conf.get("spark.driver.extraJavaOptions", "")
    log = tempfile.TemporaryFile(prefix="kbackup-spark-")  # noqa: SIM115  (lives as long as the JVM)
    ahead = WaitingDaemon.start(log.fileno(), settings.modules) if _forks_ours(settings) else None
    try:
        command = direct_command(settings, given, archive)
        given["spark.driver.extraJavaOptions"] = f"{options} {own}".strip()
        environment = {} if ahead is None else ahead.environment
        java = None if command is None else JavaProcess.run(command, environment, log)
        if java is not None:
            launched(java)
        context = _context(settings, given, java, log)
    except BaseException:
        if ahead is not None:
            ahead.kill()
        log.close()
        raise
    return Spark(context, log, ahead, java, _is_ours(settings))


def import_alike() -> None:
    """Let the Pythons that this process starts import from its folder only if it does so itself.

    ``python -m`` looks there first: in a checkout, tasks would be those of the checkout, without
    its C libraries, whatever is installed.
    """
    with suppress(FileNotFoundError):  # the folder is gone
        if {"", str(Path.cwd())}.isdisjoint(sys.path):
            os.environ["PYTHONSAFEPATH"] = "1"


def _context(
    settings: EngineSettings,
    given: Mapping[str, str],
    java: JavaProcess | None,
    log: Any,
) -> Any:
    """Return a new ``SparkContext`` on *java*, or on a JVM that Spark's scripts start."""
    # imported while the JVM starts; commands that look need no Spark
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    # py4j logs, with tracebacks, what it also raises, and what a JVM that was ended does not answer
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_py4j)
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        conf = SparkConf(loadDefaults=False).setMaster(settings.master)
        for name, value in given.items():
            conf.set(name, value)
        if java is None:
            with _java_home(settings):
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


@contextmanager
def _java_home(settings: EngineSettings) -> Iterator[None]:
    """Tell Spark's scripts which Java to take; whoever looks for one later finds what there was."""
    before = os.environ.get("JAVA_HOME")
    if settings.java is not None:
        os.environ["JAVA_HOME"] = str(settings.java.home)
    try:
        yield
    finally:
        os.environ.pop("JAVA_HOME", None)
        if before is not None:
            os.environ["JAVA_HOME"] = before


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return not str(record.msg).endswith("while sending command.")


def _give_up(java: JavaProcess | None) -> None:
    """End a JVM that did not become a Spark, and let pyspark forget it: the next is another one."""
    from pyspark import SparkContext  # noqa: PLC0415

    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    if java is not None:
        java.kill()


def _local(master: str) -> dict[str, str]:
    """Only on this machine: no host name has to resolve, and workers come from our process."""
    if not master.startswith("local"):
        return {}
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.daemon.module": "kbackup.spark.worker",
    }


def _forks_ours(settings: EngineSettings) -> bool:
    """Whether Spark would start this very Python with our daemon, here."""
    return (
        settings.is_local
        and os.environ["PYSPARK_PYTHON"] == sys.executable
        and not any(name.startswith("spark.python.") for name in settings.conf)
        and "spark.pyspark.python" not in settings.conf
    )


def _is_ours(settings: EngineSettings) -> bool:
    """Whether Spark leaves nothing behind that an operator has asked for or knows the place of."""
    return not settings.conf and not any(os.environ.get(name) for name in _LOCAL_DIRS)


def _not_started(why: str, log: Any) -> KbackupError:
    log.seek(0)
    return not_started(why, log.read().decode(errors="replace"))


def _stop(context: Any) -> None:
    """Stop Spark without the second that its accumulators, which nobody here uses, take to end."""
    accumulators, context._accumulatorServer = context._accumulatorServer, None  # noqa: SLF001
    accumulators.handle_error = lambda *_: None  # the JVM hangs up first, which it would print
    context.stop()
    threading.Thread(target=accumulators.shutdown, daemon=True).start()


def _kill(context: Any, java: JavaProcess) -> None:
    """End Spark at once: with no task at work it has nothing to finish."""
    from pyspark import SparkContext  # noqa: PLC0415

    accumulators, context._accumulatorServer = context._accumulatorServer, None  # noqa: SLF001
    accumulators.handle_error = lambda *_: None
    gateway, context._jsc = SparkContext._gateway, None  # noqa: SLF001
    gateway._gateway_client.is_connected = False  # noqa: SLF001  (what is collected asks nobody now)
    java.kill()
    context.stop()
    gateway.close()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
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


_LOOK_S: Final = 0.05
"""How often a run that waits for Spark looks whether it is to stop."""

_ENDING: Final = "spark-end"
"""The thread that sees a JVM out."""


class Starting:
    """A Spark on its way.

    Args:
        settings: Returns what Spark is given; called in another thread, for finding a Java takes
            a moment too.
    """

    def __init__(self, settings: Callable[[], EngineSettings]) -> None:
        self._settings = settings
        self._spark: Spark | None = None
        self._error: BaseException | None = None
        self._java: JavaProcess | None = None
        self._is_dropped = False
        self._earlier = _endings()  # before this one can be dropped, which would wait for itself
        self._thread = threading.Thread(target=self._start, name="spark-start")
        self._thread.start()

    def _start(self) -> None:
        for thread in self._earlier:
            thread.join()
        try:
            self._spark = start(self._settings(), self._launched)
        except BaseException as error:  # noqa: BLE001  (raised again where Spark is asked for)
            self._error = error

    def _launched(self, java: JavaProcess) -> None:
        self._java = java
        if self._is_dropped:
            java.drop()

    def is_awaited(self, stop: threading.Event) -> bool:
        """Wait for Spark, or until nobody needs it any more.

        Returns:
            Whether Spark is still needed; it may have failed to start.
        """
        while self._thread.is_alive() and not stop.is_set():
            self._thread.join(_LOOK_S)
        return not stop.is_set()

    def spark(self) -> Spark:
        """Return it once it takes work; the caller has to end it.

        Raises:
            SparkError: If it did not start.
            KbackupError: If there is no Java for it.
        """
        self._thread.join()
        if self._spark is None:
            assert self._error is not None  # noqa: S101  (the thread leaves one of the two)
            raise self._error
        return self._spark

    def drop(self) -> None:
        """End it unused: at once if it has just begun to start, else in the background."""
        self._is_dropped = True
        if self._java is not None:
            self._java.drop()
        _in_background(self._drop)

    def kill(self) -> None:
        """End its JVM at once, whatever it does, and wait until it has ended."""
        if self._java is not None:
            with suppress(ProcessLookupError):
                # with the process that Java has making an ahead-of-time cache for it
                os.killpg(self._java.process.pid, signal.SIGKILL)
        ended()

    def _drop(self) -> None:
        try:
            self.spark().end(is_idle=True)
        except KbackupError:
            return  # nobody needed it


def end_beside(spark: Spark, *, is_idle: bool) -> None:
    """End Spark and its JVM, which may take 0.4 s, while the run finishes its own work."""
    _in_background(partial(spark.end, is_idle=is_idle))


def _in_background(end: Callable[[], None]) -> None:
    """Run *end* in a thread that the next start waits for, and the interpreter's exit too."""
    threading.Thread(target=end, name=_ENDING).start()


def ended(stop: threading.Event | None = None) -> bool:
    """Wait until every earlier JVM of this process has ended.

    Args:
        stop: When set, nothing is waited for.

    Returns:
        Whether they have.
    """
    for thread in _endings():
        while thread.is_alive():
            if stop is not None and stop.is_set():
                return False
            thread.join(None if stop is None else _LOOK_S)
    return True


def _endings() -> list[threading.Thread]:
    """Return the threads that see JVMs out."""
    this = threading.current_thread()
    return [one for one in threading.enumerate() if one.name == _ENDING and one is not this]
