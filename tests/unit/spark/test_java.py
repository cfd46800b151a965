"""The process of Spark's JVM, played by a program that takes any option and does nothing."""

import os
import resource
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbackup.spark import java as module
from kbackup.spark.java import JavaProcess

_SAID = struct.pack(">ii", 4711, 6) + b"secret"
"""What a JVM leaves in its folder once it listens: its port, and the word that opens it."""


def started(folder: Path) -> JavaProcess:
    """A JVM on its way: it listens once its folder says so."""
    program = folder / "java"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    with (folder / "log").open("wb") as log:
        return JavaProcess.run([str(program)], {}, log)


@pytest.fixture
def java(tmp_path: Path) -> Iterator[JavaProcess]:
    process = started(tmp_path)
    yield process
    process.kill()


def test_a_jvm_that_nobody_needs_ends_at_once(java: JavaProcess) -> None:
    """A restore that is refused does not wait for the Spark that it has begun to start."""
    java.drop()

    with pytest.raises(OSError, match="signal 9"):
        java.gateway(lambda: pytest.fail("connected to a dead JVM"))
    assert not java.folder.exists()


def test_a_folder_that_a_killed_process_has_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in use, or too new to tell, is left alone, and so is one of an earlier version."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("left", "new", "early"):
        (tmp_path / f"kbackup-jvm-{name}").mkdir()
    for name in ("left", "new"):
        (tmp_path / f"kbackup-jvm-{name}" / "owner").touch()
    used = started(tmp_path)
    for folder in (used.folder, *(tmp_path / f"kbackup-jvm-{at}" for at in ("left", "early"))):
        os.utime(folder, (0, 0))
    other = started(tmp_path)

    found = {path.name for path in tmp_path.glob("kbackup-jvm-*")}
    used.kill()
    other.kill()

    assert {
        "kbackup-jvm-new", "kbackup-jvm-early", used.folder.name, other.folder.name
    } == found  # fmt: skip


def test_a_jvm_that_was_dropped_is_not_connected_to(java: JavaProcess) -> None:
    """A JVM that was dropped is never connected to, even if it said where just before."""
    (java.folder / "gateway").write_bytes(_SAID)
    java.drop()

    with pytest.raises(OSError, match="no longer needed"):
        java.gateway(lambda: pytest.fail("connected to a dead JVM"))


def test_a_jvm_that_is_in_use_is_not_dropped(java: JavaProcess) -> None:
    """A JVM in use is not dropped: whoever is connected to it ends it."""
    (java.folder / "gateway").write_bytes(_SAID)
    java.gateway(SimpleNamespace)
    java.drop()

    assert java.process.poll() is None


def test_a_jvm_without_room_for_what_it_has_to_say_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM without room to say where it listens is not started: it would never end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with (tmp_path / "log").open("wb") as log:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                JavaProcess.run(["/bin/false"], {}, log)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert ["log"] == [each.name for each in tmp_path.iterdir()]


def test_a_jvm_that_never_listens_is_given_up(
    java: JavaProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P7: no wait is endless; its main thread may have died while others keep it alive."""
    monkeypatch.setattr(module, "_START_S", 0.0)

    with pytest.raises(OSError, match="did not say where it listens"):
        java.gateway(lambda: pytest.fail("connected to a JVM that does not listen"))
