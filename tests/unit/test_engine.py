"""The engine's pure parts; Spark itself is met in the integration tests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.engine import EngineSettings, deal, reason
from kbackup.errors import ConfigurationError


@given(st.lists(st.integers()), st.integers(1, 9))
def test_units_are_dealt_once_and_evenly(units: list[int], shares: int) -> None:
    """
    Every unit is in one share, and no share has two more than another.
    """
    dealt = deal(units, shares)

    assert sorted(units) == sorted(unit for share in dealt for unit in share)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


def test_speculative_execution_is_refused() -> None:
    """
    Two copies of one task would work on one partition.
    """
    with pytest.raises(ConfigurationError, match=r"spark\.speculation=true"):
        EngineSettings(conf={"spark.speculation": "true"})


def test_the_reason_of_a_failed_task_is_its_python_error() -> None:
    """
    Nobody wants to read two stack traces at three in the morning.
    """
    text = """org.apache.spark.SparkException: Job aborted due to stage failure
    at org.apache.spark.Foo.bar(Foo.scala:1)
Traceback (most recent call last):
  File "worker.py", line 1, in main
ValueError: the thing that broke
    at org.apache.spark.api.python.BasePythonRunner"""

    assert "ValueError: the thing that broke" == reason(text)
