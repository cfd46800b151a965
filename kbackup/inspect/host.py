"""Check this host: the configuration, disk space, the Avro reader, Java and Spark."""

import logging
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, metadata, version
from typing import Any

from kbackup import files, formats
from kbackup.config import Settings
from kbackup.connect import avro_walk
from kbackup.errors import ConfigurationError, KbackupError, SparkError
from kbackup.inspect import Check, failed, not_made
from kbackup.spark.channel import NotBegun, TaskChannel
from kbackup.spark.engine import archive_classes, discard, run
from kbackup.spark.java import EngineSettings, FindJava, Java, claim_archive, class_archive


def is_sink(settings: Settings) -> bool:
    """Whether the configuration can be a sink's: a source connector's has no group."""
    return settings.group is not None and not settings.renames


def losses(settings: Settings) -> Iterator[Check]:
    """Yield a warning for each part of a record that a sink would not keep."""
    if not is_sink(settings) or settings.view == "record":
        return
    if not settings.store_kafka_keys:
        yield _loss("store.kafka.keys", "keys are not stored, so a restore has none")
    if not settings.store_kafka_headers:
        yield _loss("store.kafka.headers", "headers are not stored, so a restore has none")
    form = settings.format_class
    separator = formats.by_name(form).traits.splits_at if form else ""
    if separator:
        text = "a value that contains the separator is read back as two"
        do = "choose --view record, or a separator that no value contains"
        yield Check("configuration", separator, "warn", text, do)
    if settings.behavior_on_null_values == "ignore":
        text = "tombstones are left out, so a restore brings deleted keys back"
        yield Check(
            "configuration", "behavior.on.null.values", "warn", text, "choose --view record"
        )
    text = "the connectors' layout keeps no timestamps, and offsets of first records only"
    yield Check("configuration", "view", "warn", text, "--view record keeps full records")


def _loss(name: str, text: str) -> Check:
    do = f"set {name}=true, or choose --view record"
    return Check("configuration", name, "warn", text, do)


_MIB = 1 << 20


def disk_space(settings: Settings) -> Check:
    """Return whether ``TMPDIR`` is usable and has space for unfinished objects.

    Each core fills one file at a time.
    """
    try:
        folder = files.spool_folder()
    except KbackupError as error:
        return failed("disk", "TMPDIR", error)
    wanted = (os.cpu_count() or 1) * max(settings.rotate_bytes, files.SPOOL_BYTES)
    free = shutil.disk_usage(folder).free
    text = f"{folder} has {free // _MIB} MiB free"
    if free < wanted:
        text += f", and open files may take {wanted // _MIB} MiB"
        return Check("disk", "TMPDIR", "warn", text, "free some, or set TMPDIR to a larger disk")
    return Check("disk", "TMPDIR", "ok", text)


def avro_reader() -> Check:
    """Return how Avro values would be read: nothing but the speed depends on it."""
    name = "Avro reader"
    why = avro_walk.why_not()
    if not why:
        return Check("configuration", name, "ok", "Avro values are read by the C library")
    text = f"Avro values are read by fastavro, at less than a twentieth of the speed: {why}"
    do = "install kbackup where there is a C compiler (cc), or from a wheel for this platform"
    return Check("configuration", name, "warn", text, do)


def package() -> Check | None:
    """Return a failure where another project's package is installed over this one; else None.

    On the package index, ``kbackup`` is another project's, with a module of the same name.
    """
    try:
        stranger = metadata("kbackup")
    except PackageNotFoundError:
        return None
    text = f"kbackup {stranger['Version']} is installed, and belongs to another project"
    do = "pip uninstall kbackup, then install this one again: pip install --force-reinstall"
    return Check("configuration", "package", "fail", text, do, ConfigurationError.code)


def spark_checks(
    find_java: FindJava,
    settings: EngineSettings,
    *,
    starts: bool,
    stop: threading.Event,
) -> Iterator[Check]:
    """Yield the checks of Java, which *find_java* finds or raises `JavaNotFoundError`, and Spark.

    *starts* runs a job of one task, which costs some seconds.
    """
    java: Java | None = None
    try:
        java = find_java()
    except KbackupError as error:
        yield failed("spark", "java", error)
    else:
        yield _java(java)
    package = _package()
    yield package
    if not starts:
        return
    if java is None or package.level == "fail":
        yield not_made("spark", "start", "something it needs is missing")
    else:
        ready = replace(settings, java=java)
        start = _start(ready, stop)
        if start.level == "fail" and (archive := class_archive(ready)) is not None:
            with suppress(OSError):  # it may be damaged: try again without it
                archive.unlink()
            start = _start(ready, stop)
        yield start
        if start.level == "ok" and not stop.is_set():
            yield _classes(ready, stop)


def _java(java: Java) -> Check:
    text = f"{java.version}, from {java.origin}"
    if not any(name.startswith("JAVA_HOME") for name in java.passed_over):
        return Check("spark", "java", "ok", text)
    text += f"; passed over: {'; '.join(java.passed_over)}"
    return Check("spark", "java", "warn", text, "correct JAVA_HOME, or unset it")


def _package() -> Check:
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        do = "install kbackup again from its checkout or wheel: pip install --force-reinstall"
        return Check("spark", "pyspark", "fail", "not installed", do, SparkError.code)
    text = f"{found}, with Python {platform.python_version()}"
    if home := os.environ.get("SPARK_HOME"):
        text += f"; SPARK_HOME={home} is used in its place"
    return Check("spark", "pyspark", "ok", text)


def keep_classes(java: Java) -> None:
    """Make the archive as the doctor's first run on a machine does; for benchmarks and tests."""
    settings = EngineSettings(java=java)
    if class_archive(settings) is None:
        archive_classes(settings, answer, threading.Event())


def first_archive(
    settings: EngineSettings, stop: threading.Event, say: Callable[[str], object]
) -> None:
    """Make the class archive after a run, where there is none and nobody has tried yet.

    *say* takes a line before the work, which takes 12 s or more, and another one if it failed.
    """
    if not claim_archive(settings):
        return
    say("Preparing Spark to start faster next time (once, 12 s or more; Ctrl-C skips it)")
    logging.disable()  # what could be said of it is said here
    try:
        archive_classes(settings, answer, stop)
    except KbackupError as error:
        say(f"Spark starts as before: {error.why}; kbackup doctor tries again")
    finally:
        logging.disable(logging.NOTSET)


def _classes(settings: EngineSettings, stop: threading.Event) -> Check:
    """Make the archive that lets Spark start faster, if there is none yet."""
    if (archive := class_archive(settings)) is not None:
        return Check("spark", "class archive", "ok", f"present: {archive}")
    try:
        archive = archive_classes(settings, answer, stop)
    except KbackupError as error:
        claim_archive(settings)  # no run tries again what the doctor has tried
        text = f"none, so Spark starts more slowly: {error.why}"
        return Check("spark", "class archive", "ok", text)
    return Check(
        "spark", "class archive", "ok", f"made, Spark starts faster from now on: {archive}"
    )


def _start(settings: EngineSettings, stop: threading.Event) -> Check:
    began = time.monotonic()
    try:
        reports = run(answer, [0], settings, discard, stop, slices_per_core=1)
    except KbackupError as error:
        do = error.do.removeprefix("run kbackup doctor; ")
        return Check("spark", "start", "fail", str(error), do, error.code)
    if not reports and stop.is_set():
        return not_made("spark", "start", "the doctor was stopped before")
    seconds = time.monotonic() - began
    found = set()
    for report in reports:
        if isinstance(report, NotBegun):
            return failed("spark", "start", report.failure.error())
        found.add(report.python)
    workers = ", ".join(sorted(found))
    text = f"{settings.master} started in {seconds:.1f} s and ran a task, with Python {workers}"
    return Check("spark", "start", "ok", text)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What the trial of a worker returns; one that answers has not failed."""

    python: str
    failure: None = None


def answer(units: Sequence[Any], channel: TaskChannel) -> Iterator[TrialResult]:  # noqa: ARG001
    """Run on a worker, in place of a task: return which Python this is."""
    for _ in units:
        yield TrialResult(platform.python_version())
