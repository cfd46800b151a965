"""The JVM of a run, and what it prints."""

import io
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from kbackup.errors import SparkError
from kbackup.spark import jvm
from kbackup.spark.java import EngineSettings


class Dead:
    """A JVM that has died."""

    def gateway(self, *_: Any) -> Any:
        """Find nobody there."""
        raise ConnectionResetError("reset by peer")

    def kill(self) -> None:
        """Do nothing more."""


def test_the_client_of_the_jvm_prints_nothing_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An error is raised once, and a JVM that was ended on purpose is not an error."""
    dead: Any = Dead()

    with pytest.raises(SparkError):
        jvm._context(EngineSettings("local"), {}, dead, io.BytesIO())

    logging.getLogger("py4j.clientserver").error("no answer")
    logging.error("Exception while sending command.")
    logging.error("another")
    assert ["another"] == caplog.messages


def test_objects_of_a_jvm_that_is_ended_ask_it_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java objects may be collected at any time without finding the connection broken."""
    client = SimpleNamespace(is_connected=True)
    gateway = SimpleNamespace(_gateway_client=client, close=lambda: None)
    server = SimpleNamespace(shutdown=lambda: None)
    context = SimpleNamespace(_accumulatorServer=server, _jsc=object(), stop=lambda: None)
    asked: list[bool] = []
    java: Any = SimpleNamespace(kill=lambda: asked.append(client.is_connected))
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    monkeypatch.setattr(SparkContext, "_jvm", None)

    jvm._kill(context, java)

    assert [False] == asked


@pytest.mark.parametrize("is_shared", [False, True])
def test_tasks_import_from_where_the_driver_does(
    is_shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a run starts in a checkout, its tasks are those of the kbackup that was started."""
    (tmp_path / "kbackup.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, *([str(tmp_path)] if is_shared else [])])
    monkeypatch.setenv("PYTHONSAFEPATH", "")

    jvm.import_alike()
    code = "import kbackup; print(kbackup.__file__)"
    found = subprocess.check_output([sys.executable, "-c", code], text=True).strip()

    assert is_shared == (found == str(tmp_path / "kbackup.py"))
