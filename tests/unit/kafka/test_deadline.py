"""Calls that may never return."""

import threading

import pytest

from kbackup.kafka.client import within


def test_a_call_that_returns_in_time_is_a_call() -> None:
    """A call that returns in time keeps its arguments, result and exception."""
    with pytest.raises(ZeroDivisionError):
        within(60, lambda: 1 // 0)

    assert 5 == within(60, lambda a, b: a + b, 2, 3)


def test_a_call_that_does_not_return_is_given_up() -> None:
    """A call that does not return is abandoned, and its caller continues."""
    end, ended = threading.Event(), threading.Event()

    with pytest.raises(TimeoutError):
        within(0.01, lambda: (end.wait(), ended.set()))

    assert not ended.is_set()
    end.set()
    assert ended.wait(60)
