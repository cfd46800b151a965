"""The engine's pure parts; Spark itself is met in the integration tests."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JError

from kbackup.errors import (
    ConfigurationError,
    Issue,
    KafkaError,
    KbackupError,
    SparkError,
    StoppedError,
)
from kbackup.spark.channel import TaskChannel
from kbackup.spark.engine import deal, run, translated
from kbackup.spark.java import EngineSettings
from kbackup.spark.jvm import Starting, ended


@given(st.lists(st.integers()), st.integers(1, 9))
def test_units_are_dealt_once_and_evenly(units: list[int], shares: int) -> None:
    """Every unit is in one share, no share has two more than another, and none is empty."""
    dealt = deal(units, shares)

    assert sorted(units) == sorted(unit for share in dealt for unit in share)
    sizes = [len(share) for share in dealt]
    assert min(len(units), shares) == len(sizes)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


def test_speculative_execution_is_refused() -> None:
    """Speculative execution is refused: two copies of one task would work on one partition."""
    with pytest.raises(ConfigurationError, match=r"spark\.speculation=true"):
        EngineSettings(conf={"spark.speculation": "true"})


@pytest.mark.parametrize(
    ("is_cut_off", "expected"),
    [pytest.param(True, StoppedError, id="ended here"), pytest.param(False, SparkError, id="not")],
)
def test_a_job_that_was_ended_after_a_signal_is_no_failure_of_spark(
    is_cut_off: bool, expected: type[KbackupError]
) -> None:
    """If a stopped run does not end in time, the operator is not sent to look for a fault."""
    cut_off = threading.Event()
    if is_cut_off:
        cut_off.set()

    with pytest.raises(expected), translated(cut_off):
        raise Py4JError("[SPARK_JOB_CANCELLED] Job 0 cancelled")


@dataclass(frozen=True)
class Told:
    """What a task says of one unit: an `engine.Report`."""

    failure: Issue | None = None


def report(error: KbackupError | None = None) -> Told:
    """What a task says of one unit."""
    return Told(None if error is None else error.issue())


def job(reports: list[Told]) -> Any:
    """A `SparkContext` whose job comes to these reports."""
    found = SimpleNamespace(
        defaultParallelism=1, collect=lambda: reports, get=lambda _: "127.0.0.1"
    )
    found.getConf = found.parallelize = found.mapPartitions = lambda *_: found
    return found


def ran(reports: list[Told], *, is_stopped: bool = False) -> list[Any]:
    """Run two units in a Spark that comes to these reports."""
    spark = SimpleNamespace(context=job(reports), end=lambda **_: None)
    up: Any = SimpleNamespace(is_awaited=lambda _: True, spark=lambda: spark)
    stop = threading.Event()
    if is_stopped:
        stop.set()
    task: Any = None
    return run(task, [1, 2], EngineSettings(), lambda _: None, stop, starting=up)


STOPPED = [
    pytest.param([report(), report(StoppedError("orders-0 stopped"))], id="in a unit"),
    pytest.param([report()], id="between two units"),
]


@pytest.mark.parametrize("reports", STOPPED)
def test_tasks_that_stopped_without_being_asked_are_a_failure(reports: list[Told]) -> None:
    """A task that has lost its line assumes a dead driver; unfinished work is not a success."""
    with pytest.raises(SparkError, match="before their work was done"):
        ran(reports)

    assert reports == ran(reports, is_stopped=True)


@pytest.mark.parametrize("after_s", [0.0, 0.2])
def test_a_run_that_is_stopped_before_spark_is_up_ends_at_once(after_s: float) -> None:
    """A run that is to stop does not wait for Spark, whose JVM may take a minute."""
    gate, stop, came = threading.Event(), threading.Event(), list[bool]()

    def settings() -> EngineSettings:
        came.append(gate.wait(30))
        raise SparkError("Spark did not start", "nobody asked for it", "ask")

    def task(_: Sequence[int], __: TaskChannel) -> Iterator[Told]:
        raise AssertionError("there is no Spark for it")

    threading.Timer(after_s, stop.set).start()
    reports = run(task, [1], EngineSettings(), lambda _: None, stop, starting=Starting(settings))
    gate.set()
    ended()

    assert ([], [True]) == (reports, came)


@pytest.mark.parametrize(
    "reports", [[report(), report()], [report(KafkaError("no broker"))]], ids=["all", "a failure"]
)
def test_tasks_that_say_what_became_of_their_units_are_believed(reports: list[Told]) -> None:
    """A failure that was reported is not reported twice."""
    assert reports == ran(reports)
