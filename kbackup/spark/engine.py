"""Spark's session, and its tasks.  Imports pyspark only when a run has something to do.

The driver plans units; a task works through its share of them in its own Python worker and
returns a report for each.  Its records never cross into the JVM.
"""

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Generic, TypedDict, TypeVar, Unpack

import kbackup
from kbackup import native_build
from kbackup.errors import Issue, KbackupError, SparkError, StoppedError
from kbackup.events import Event, Plain, to_json
from kbackup.spark.channel import (
    Address,
    ChannelServer,
    NotBegun,
    R,
    Report,
    Task,
    TaskChannel,
    Timings,
    logged,
    sent,
)
from kbackup.spark.java import (
    EngineSettings,
    making,
    task_failed,
)
from kbackup.spark.jvm import Spark, Starting, end_beside, ended

Unit = TypeVar("Unit")
Deal = Callable[[Sequence[Any], int], Sequence[Sequence[Any]]]
"""Makes of units and a number of slots what each Spark task gets."""


class TaskOptions(TypedDict, total=False):
    """How tasks are run, where that matters.

    Attributes:
        slices_per_core: Spark tasks a core; without it several, which evens out their sizes.
        deal: How units are dealt out to tasks; without it `deal`.
        orders: What is put here while tasks run is passed on to all of them.
        timings: Grows by what it took.
        keeps: Leave Spark up for the next tasks, unless these fail.
    """

    slices_per_core: int
    deal: Deal
    orders: SimpleQueue[Plain]
    timings: Timings
    keeps: bool


SLICES_PER_CORE: Final = 4
"""More slices than cores even out partitions of different size; each costs some 10 ms."""

_STALE_S: Final = 3600.0
"""An archive in the making that is older was left by a process that was killed."""


def deal(units: Sequence[Unit], slots: int) -> list[list[Unit]]:
    """Deal *units* out in turn: sorted by size, every share gets large and small ones.

    Returns:
        As many shares as there are slots, or units where those are fewer.
    """
    shares = min(slots, len(units))
    return [list(units[at::shares]) for at in range(shares)]


def discard(_event: Event) -> None:
    """Take the events of tasks that tell nothing before their reports."""


def run(
    task: Task[R],
    units: Sequence[Unit],
    settings: EngineSettings,
    hear: Callable[[Event], None],
    stop: threading.Event,
    *,
    starting: Starting | None = None,
    **options: Unpack[TaskOptions],
) -> list[R | NotBegun]:
    """Run *task* over *units* and return all reports.

    Args:
        task: A module's function, or a `functools.partial` of one.
        units: Plain data, the largest first.
        hear: Called with what tasks report while they run, from another thread.
        stop: When set, tasks are asked to end at their next safe point.
        starting: The Spark to use, on its way already; None starts one.

    Raises:
        SparkError: If Spark does not start, or a task failed beyond its retries.
        StoppedError: If tasks were asked to end and did not within ``stop.timeout``.
    """
    timings, orders = options.get("timings"), options.get("orders")
    began = time.monotonic()
    keeps, is_kept = options.get("keeps", False), False
    starting = starting or Starting(lambda: settings)
    if not starting.is_awaited(stop):
        starting.drop()
        return []
    try:
        spark = starting.spark()
    except SparkError:
        if stop.is_set():
            return []  # the signal that stops the run may have reached the starting JVM too
        raise
    ready, context, is_idle = time.monotonic(), spark.context, False
    try:
        with translated():  # a Spark that was kept may have died since
            host = context.getConf().get("spark.driver.host")
        hub = ChannelServer(host, logged(hear))
        finished, cut_off = threading.Event(), threading.Event()
        watcher = threading.Thread(
            target=_watch,
            args=(context, hub, stop, finished, cut_off, settings, orders),
            daemon=True,
        )
        watcher.start()
        try:
            slices = options.get("slices_per_core") or SLICES_PER_CORE
            job = _Job(task, hub.address, _build())
            with translated(cut_off):
                shares = options.get("deal", deal)(units, context.defaultParallelism * slices)
                found = context.parallelize(shares, len(shares)).mapPartitions(job).collect()
            # a dictionary is the failure of a worker that could not begin
            reports = [
                NotBegun(Issue.from_dict(each)) if isinstance(each, dict) else each
                for each in found
            ]
            is_idle = True
            if not stop.is_set():
                check_whole(reports, len(units))
            is_kept = keeps and bool(reports)
            return reports
        finally:
            finished.set()
            hub.close()
            if timings is not None:
                met = hub.met_at or ready
                timings.add(ready - began, met - ready, time.monotonic() - met)
    finally:
        if not is_kept:
            end_beside(spark, is_idle=is_idle)


def archive_classes(settings: EngineSettings, task: Task[Report], stop: threading.Event) -> Path:
    """Make the class archive of the settings' Java, from what one small job loads.

    It holds the classes as the JVM wants them in memory, 68 to 84 MB, and saves every later run the
    time to load and check them.

    Args:
        stop: When set, the JVM is ended at once, and nothing is left of it.

    Raises:
        SparkError: If Spark does not start, or its Java cannot make one.
        StoppedError: If it was stopped.
    """
    if settings.java is None or settings.java.class_archive is None:
        raise SparkError("no class archive was made", "HOME is not set", "set KBACKUP_CACHE_DIR")
    archive = settings.java.class_archive
    scratch = archive.with_name(f"{archive.name}.{os.getpid()}")
    given = settings.conf.get("spark.driver.extraJavaOptions", "")
    options = f'{given} "{making(archive)}={scratch}"'
    recording = replace(
        settings,
        conf={**settings.conf, "spark.driver.extraJavaOptions": options},
        java=replace(settings.java, class_archive=None),
    )
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        for left in archive.parent.glob("classes-*.*.*"):
            with suppress(FileNotFoundError):  # its own process has moved it since
                if left.stat().st_mtime < time.time() - _STALE_S:
                    left.unlink()
        starting = Starting(lambda: recording)
        run(task, [0], recording, lambda _: None, stop, starting=starting, slices_per_core=1)
        if not ended(stop) or stop.is_set():
            starting.kill()
            raise StoppedError("no class archive was made", "it was stopped")
        with scratch.open("rb") as made:
            os.fsync(made.fileno())
        scratch.replace(archive)
    except FileNotFoundError as error:
        raise SparkError(
            "no class archive was made",
            f"this Java cannot make one, is not allowed to, or has no space in {archive.parent}",
            "check that folder, or use another Java 17 or newer",
        ) from error
    except OSError as error:
        raise SparkError(f"{archive} cannot be written", str(error), "") from error
    finally:
        with suppress(OSError):
            scratch.unlink()
    return archive


class _Job(Generic[R]):
    """What Spark pickles; runs in the Python worker."""

    def __init__(self, task: Task[R], address: Address, build: str) -> None:
        self._task, self._address, self._build = task, address, build

    def __call__(self, shares: Iterator[Sequence[Any]]) -> Iterator[R | dict[str, Any]]:
        if _build() != self._build:
            error = SparkError(
                "driver and workers have different versions of kbackup",
                f"driver {self._build}, worker {_build()}",
                "install the same version everywhere",
            )
            yield to_json(error.issue())  # which any version understands
            return
        with TaskChannel(self._address) as channel, sent(channel):
            for units in shares:
                yield from self._task(units, channel)


def _build() -> str:
    """Return the version and a digest of the sources: two checkouts may have one version."""
    return f"{kbackup.__version__} {native_build.source_digest()}"


def _watch(
    context: Any,
    hub: ChannelServer,
    stop: threading.Event,
    finished: threading.Event,
    cut_off: threading.Event,
    settings: Any,
    orders: SimpleQueue[Plain] | None,
) -> None:
    """Pass orders and a stop on to the tasks, and end the job when they do not end in time."""
    while not finished.is_set():
        while orders is not None and not orders.empty():
            hub.order(orders.get())
        if stop.wait(0.1):
            hub.stop()
            if not finished.wait(settings.stop_timeout_s):
                cut_off.set()
                context.cancelAllJobs()
            return


@contextmanager
def translated(cut_off: threading.Event | None = None) -> Iterator[None]:
    """Raise what Spark says as an error of ours.

    Args:
        cut_off: Set if this process has ended the job, which is no failure of Spark's.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415

    try:
        yield
    except Py4JError as error:
        if cut_off is not None and cut_off.is_set():
            raise StoppedError("tasks did not end within stop.timeout") from error
        text = str(getattr(error, "java_exception", error))
        raise task_failed(text) from error
    except (OSError, KbackupError) as error:
        raise SparkError("the connection to Spark broke", str(error)) from error


def check_whole(reports: Sequence[Report], units: int) -> None:
    """Refuse reports of tasks that stopped although nobody asked them to.

    A task whose connection to the driver breaks takes the driver for dead, and stops.

    Raises:
        SparkError: If something was left undone and no report says why.
    """
    failures = [report.failure.code for report in reports if report.failure is not None]
    stopped = failures.count(StoppedError.code)
    if stopped or (len(reports) < units and not failures):
        raise SparkError(
            "tasks stopped before their work was done",
            f"{max(stopped, units - len(reports))} of {units} lost their connection to the driver",
            "run the same command again: it continues from the committed offsets",
        )


_CONF: Final = {
    "spark.driver.memory": "2g",  # joins and sorts are the JVM's own work, on this machine
    "spark.driver.maxResultSize": "256m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.shuffle.partitions": "8",
}


@contextmanager
def session(settings: EngineSettings) -> Iterator[Callable[[], Any]]:
    """Start a ``SparkSession`` on a JVM of its own, beside what the caller does; times are UTC.

    Yields:
        What waits for it and returns it, once; it raises `SparkError` if Spark does not start.
    """
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)  # errors are raised
    with tempfile.TemporaryDirectory(prefix="kbackup-sql-") as folder:
        conf = {**_CONF, "spark.sql.warehouse.dir": folder, **settings.conf}
        given = replace(settings, conf=conf)
        starting, taken = Starting(lambda: given), list[Spark]()
        # the other thread imports it too: whoever asks for a part of it first gets half of it
        import pyspark  # noqa: F401, PLC0415

        def begun() -> Any:
            from pyspark.sql import SparkSession  # noqa: PLC0415

            taken.append(starting.spark())
            return SparkSession(taken[0].context)

        try:
            yield begun
        finally:
            if taken:
                from pyspark.sql import SparkSession  # noqa: PLC0415

                SparkSession._instantiatedSession = None  # noqa: SLF001  (the next has its own)
                SparkSession._activeSession = None  # noqa: SLF001
                end_beside(taken[0], is_idle=False)
            else:
                starting.drop()
