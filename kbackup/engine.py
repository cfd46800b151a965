"""Spark.  Only this module imports pyspark, and only when a run has something to do.

The driver plans units; a task works through its share of them in its own Python worker and
returns a report for each.  Records never cross into the JVM.
"""

import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeVar

import kbackup
from kbackup.channel import Address, Event, Hub, Line
from kbackup.errors import ConfigurationError, KbackupError, SparkError, StoppedError

_log = logging.getLogger(__name__)

Unit = TypeVar("Unit")
Report = dict[str, Any]
Task = Callable[[Sequence[Any], Line], Iterator[Report]]

DEFAULT_MASTER: Final = "local[*,4]"
"""All cores, a task tried up to four times: plain ``local[*]`` never retries."""

_SLICES_PER_CORE: Final = 4
"""More slices than cores even out partitions of different size; each costs some 10 ms."""

_JVM: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xshare:auto"
"""The JVM only schedules, so it is tuned to start: 3.6 s to a context instead of 6.9 s."""

_CRASH: Final = "A fatal error has been detected by the Java Runtime"
"""What the JVM says when it crashes, as it does with a class archive that is cut short."""

_STALE_S: Final = 3600.0
"""An archive in the making that is older was left by a process that was killed."""

_ENDING: Final = "spark-end"
"""The thread that sees a JVM out."""

_JVM_EXIT_S: Final = 60.0
"""The JVM ends within a second, or within twenty when it makes an archive."""

_CONF: Final = {
    "spark.app.name": "kbackup",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.speculation": "false",
    "spark.python.worker.faulthandler.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class Jvm:
    """A Java that can run Spark.

    Attributes:
        home: Its ``JAVA_HOME``.
        class_archive: Where the classes that Spark loads are kept ready for it, once
            `archive_classes` has made the file; None for nowhere.
    """

    home: str
    class_archive: Path | None = None


FindJvm = Callable[[], Jvm]
"""Finds a Java, called only when Spark is needed: it takes a moment."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What Spark is given.

    Attributes:
        master: A Spark master URL, as it is.
        conf: Spark properties, as they are; they win over ours.
        jvm: The Java to start, None for what the environment says.
        stop_timeout_s: How long tasks may take to end after they were asked to.
    """

    master: str = DEFAULT_MASTER
    conf: Mapping[str, str] = field(default_factory=dict)
    jvm: Jvm | None = None
    stop_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if str(self.conf.get("spark.speculation", "false")).lower() == "true":
            raise ConfigurationError(
                "spark.speculation=true",
                "two copies of one task would work on the same partition",
                "leave it off",
            )


@dataclass(slots=True)
class Timings:
    """Where the time of a run with Spark went, summed over its jobs.

    Attributes:
        spark_start_s: Seconds until Spark took work.
        worker_start_s: Seconds from then until the first task ran in a Python worker.
        work_s: Seconds from there to the last report.
    """

    spark_start_s: float = 0.0
    worker_start_s: float = 0.0
    work_s: float = 0.0

    def to_dict(self) -> dict[str, float]:
        """Return the seconds by name, rounded to what a clock beside them would show."""
        return {name: round(seconds, 2) for name, seconds in asdict(self).items()}


def run(
    task: Task,
    units: Sequence[Unit],
    settings: EngineSettings,
    hear: Callable[[Event], None],
    stop: threading.Event,
    *,
    slices_per_core: int | None = None,
    timings: Timings | None = None,
) -> list[Report]:
    """Run *task* over *units* and return all reports.

    Args:
        task: A module's function, from units and the line to the driver to reports.
        units: Plain data, the largest first.
        settings: What Spark is given.
        hear: Called with what tasks tell while they run, from another thread.
        stop: When set, tasks are asked to end at their next safe point.
        slices_per_core: Spark tasks a core; None for several, which evens out their sizes.
        timings: Grows by what this took.

    Raises:
        SparkError: If Spark does not start, or a task failed beyond its retries.
    """
    _ended()
    began = time.monotonic()
    try:
        context, log = _start(settings)
    except SparkError:
        if stop.is_set():
            return []  # the signal that stops the run may have reached the starting JVM too
        raise
    ready = time.monotonic()
    try:
        host = context.getConf().get("spark.driver.host")
        hub = Hub(host, hear)
        finished = threading.Event()
        watcher = threading.Thread(
            target=_watch, args=(context, hub, stop, finished, settings), daemon=True
        )
        watcher.start()
        try:
            count = context.defaultParallelism * (slices_per_core or _SLICES_PER_CORE)
            shares = deal(units, min(count, len(units)))
            job = _Job(task, hub.address, kbackup.__version__)
            reports = _collect(context.parallelize(shares, len(shares)).mapPartitions(job))
            if not stop.is_set():
                check_whole(reports, len(units))
            return reports
        finally:
            finished.set()
            hub.close()
            if timings is not None:
                met = hub.met_at or ready
                timings.spark_start_s += ready - began
                timings.worker_start_s += met - ready
                timings.work_s += time.monotonic() - met
    finally:
        _end_beside(context, log)


def archive_classes(settings: EngineSettings, task: Task) -> Path:
    """Make the class archive of the settings' Java, from what one small job loads.

    It holds the classes as the JVM wants them in memory, 70 MB, and saves every later run the
    time to load and check them.

    Returns:
        Where it is.

    Raises:
        SparkError: If Spark does not start, or its Java cannot make one.
    """
    if settings.jvm is None or settings.jvm.class_archive is None:
        raise SparkError("no class archive was made", "HOME is not set", "set KBACKUP_CACHE_DIR")
    archive = settings.jvm.class_archive
    scratch = archive.with_name(f"{archive.name}.{os.getpid()}")
    given = settings.conf.get("spark.driver.extraJavaOptions", "")
    options = f'{given} "-XX:ArchiveClassesAtExit={scratch}"'
    recording = replace(
        settings,
        conf={**settings.conf, "spark.driver.extraJavaOptions": options},
        jvm=replace(settings.jvm, class_archive=None),
    )
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        for left in archive.parent.glob("classes-*.jsa.*"):
            if left.stat().st_mtime < time.time() - _STALE_S:
                left.unlink(missing_ok=True)
        run(task, [0], recording, lambda _: None, threading.Event(), slices_per_core=1)
        _ended()
        with scratch.open("rb") as made:
            os.fsync(made.fileno())
        scratch.replace(archive)
    except FileNotFoundError as error:
        raise SparkError(
            "no class archive was made",
            f"this Java cannot make one, or may not, or has no room in {archive.parent}",
            "look at that folder, or use another Java 17 or newer",
        ) from error
    except OSError as error:
        raise SparkError(f"{archive} cannot be written", str(error), "") from error
    finally:
        with suppress(OSError):
            scratch.unlink()
    return archive


def deal(units: Sequence[Unit], shares: int) -> list[list[Unit]]:
    """Deal *units* out in turn: sorted by size, every share gets large and small ones."""
    return [list(units[at::shares]) for at in range(shares)]


class _Job:
    """What Spark pickles; runs in the Python worker."""

    def __init__(self, task: Task, address: Address, version: str) -> None:
        self._task, self._address, self._version = task, address, version

    def __call__(self, shares: Iterator[Sequence[Any]]) -> Iterator[Report]:
        if kbackup.__version__ != self._version:
            error = SparkError(
                "driver and workers have different versions of kbackup",
                f"driver {self._version}, worker {kbackup.__version__}",
                "install the same version everywhere",
            )
            yield {"failure": error.to_dict()}
            return
        with Line(self._address) as line:
            for units in shares:
                yield from self._task(units, line)


def class_archive(settings: EngineSettings) -> Path | None:
    """Return the class archive of the settings' Java, None where there is none to be read."""
    archive = None if settings.jvm is None else settings.jvm.class_archive
    try:
        is_there = archive is not None and archive.is_file() and os.access(archive, os.R_OK)
    except OSError:
        return None
    return archive if is_there else None


def _start(settings: EngineSettings) -> tuple[Any, Any]:
    archive = class_archive(settings)
    try:
        return _launch(settings, archive)
    except SparkError as error:
        if archive is None or _CRASH not in error.why:
            raise
        _log.warning("Java crashed with the class archive %s: starting without it", archive)
        with suppress(OSError):  # the doctor makes another one
            archive.unlink()
        return _launch(settings, None)


def _launch(settings: EngineSettings, archive: Path | None) -> tuple[Any, Any]:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  (commands that look need no Spark)
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if settings.jvm is not None:
        os.environ["JAVA_HOME"] = settings.jvm.home
    conf = SparkConf().setMaster(settings.master)
    for name, value in {**_CONF, **_local(settings.master), **settings.conf}.items():
        conf.set(name, value)
    conf.set("spark.driver.extraJavaOptions", _java_options(settings, archive))
    on_interrupt = signal.getsignal(signal.SIGINT)
    log = tempfile.TemporaryFile(prefix="kbackup-spark-")  # noqa: SIM115  (lives as long as the JVM)
    try:
        gateway: Any = launch_gateway(conf, {"stderr": log, "stdout": log})
        context = SparkContext(conf=conf, gateway=gateway)
    except (PySparkException, OSError, ValueError) as error:
        raise _not_started(str(error), log) from error
    except Exception as error:  # py4j's errors have no common class worth importing it for
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  (it is dead)
        raise _not_started(f"{type(error).__name__}: {error}", log) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, on_interrupt)  # pyspark puts its own in its place
    return context, log


def _local(master: str) -> dict[str, str]:
    """Alone on this machine: no host name has to resolve, and workers come from our process."""
    if not master.startswith("local"):
        return {}
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.daemon.module": "kbackup.worker",
    }


def _java_options(settings: EngineSettings, archive: Path | None) -> str:
    quiet = files("kbackup") / "log4j2.properties"
    options = [_JVM, f'"-Dlog4j2.configurationFile={quiet}"']
    options.append(f'"-XX:ErrorFile={tempfile.gettempdir()}/kbackup-java-%p.log"')
    if archive is not None:
        options.append(f'"-XX:SharedArchiveFile={archive}"')  # of another Java it is passed over
    options.append(settings.conf.get("spark.driver.extraJavaOptions", ""))
    return " ".join(options).strip()


def _not_started(why: str, log: Any) -> SparkError:
    log.seek(0)
    text = log.read().decode(errors="replace").strip().splitlines()
    causes = [line for line in text if "xception: " in line and not line.lstrip().startswith("at ")]
    telling = [line for line in text if "rror" in line or "xception" in line or "nable" in line]
    reason = next(iter([*causes, *telling, *text[-1:]]), why)
    return SparkError(
        "Spark did not start", reason.strip()[:500], "run kbackup doctor; --debug shows all of it"
    )


def _watch(
    context: Any, hub: Hub, stop: threading.Event, finished: threading.Event, settings: Any
) -> None:
    """Pass a stop on to the tasks, and end the job when they do not end in time."""
    while not finished.is_set():
        if stop.wait(0.1):
            hub.stop()
            if not finished.wait(settings.stop_timeout_s):
                context.cancelAllJobs()
            return


def _collect(reports: Any) -> list[Report]:
    from py4j.protocol import Py4JError  # noqa: PLC0415

    try:
        found: list[Report] = reports.collect()
    except Py4JError as error:
        text = str(getattr(error, "java_exception", error))
        raise SparkError("a Spark task failed beyond its retries", reason(text)) from error
    except (OSError, KbackupError) as error:
        raise SparkError("the line to Spark broke", str(error)) from error
    return found


def reason(text: str) -> str:
    """Pick the sentence that matters out of a Java stack trace with a Python one inside."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [
        line
        for line in lines
        if line.partition(":")[0].endswith(("Error", "Exception")) and not line.startswith("at ")
    ]
    chosen = python[-1] if python else next(iter(lines), "no reason given")
    return chosen[:500]


def check_whole(reports: Sequence[Report], units: int) -> None:
    """Refuse reports of tasks that stopped although nobody asked them to.

    A task whose line to the driver breaks takes the driver for dead, and stops.

    Raises:
        SparkError: If something was left undone and no report says why.
    """
    failures = [report["failure"]["code"] for report in reports if "failure" in report]
    stopped = failures.count(StoppedError.code)
    if stopped or (len(reports) < units and not failures):
        raise SparkError(
            "tasks stopped before their work was done",
            f"{max(stopped, units - len(reports))} of {units} lost their line to the driver",
            "run the same command again: it goes on from the committed offsets",
        )


def _end_beside(context: Any, log: Any) -> None:
    """End Spark and its JVM, which takes 0.4 s, while the run does what is left to do.

    The interpreter waits for the thread before it exits, and the next `run` does.
    """
    thread = threading.Thread(target=_end, args=(context, log), name=_ENDING)
    thread.start()


def _ended() -> None:
    """Return when no earlier JVM of this process is ending any more."""
    for thread in threading.enumerate():
        if thread.name == _ENDING:
            thread.join()


def _end(context: Any, log: Any) -> None:
    try:
        _stop(context)
        _gateway_down()
    except Exception as error:  # noqa: BLE001  (its work is done, whatever it says at its end)
        _log.warning("Spark did not end in good order: %s", error)
    finally:
        log.close()


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
