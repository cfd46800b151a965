"""Calls that may never return."""

import threading

import pytest

from kbackup.kafka.deadline import within


def test_a_call_that_returns_in_time_is_a_call() -> None:
    """
    Its arguments, its result and its failure are those of the function.
    """
    with pytest.raises(ZeroDivisionError):
        within(60, lambda: 1 // 0)

    assert 5 == within(60, lambda a, b: a + b, 2, 3)


def test_a_call_that_does_not_return_is_given_up() -> None:
    """
    Whoever waits for it goes on; the call itself stays where it is.
    """
    end, ended = threading.Event(), threading.Event()

    with pytest.raises(TimeoutError):
        within(0.01, lambda: (end.wait(), ended.set()))

    assert not ended.is_set()
    end.set()
    assert ended.wait(60)
