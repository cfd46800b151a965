"""Waiting for the answers to what a writer has sent."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from record_samples import batch_of

from kbackup.errors import KafkaError
from kbackup.kafka.client import Complaints
from kbackup.kafka.writer import Answers
from kbackup.records import TopicPartition


@dataclass
class Producer:
    """A client that has *left* records to be answered."""

    left: int  # records
    at_once: int  # how many are answered while it polls; a flush answers all
    # what was asked of it, and how many were left then
    calls: list[tuple[str, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return self.left

    def poll(self, _seconds: float) -> None:
        """Answer some."""
        self.calls.append(("poll", self.left))
        self.left = max(0, self.left - self.at_once)

    def flush(self, _seconds: float) -> None:
        """Answer all."""
        self.calls.append(("flush", self.left))
        self.left = 0


def call(_what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Make a call that does not fail."""
    return function(*arguments)


def answers(patience_s: float = 9.0, *, records: int = 40, size: int = 2**18) -> Answers:
    """What waits for *records* of *size* bytes: four of 256 KiB make a request."""
    found = Answers(TopicPartition("t", 0), patience_s, Complaints())
    rows = batch_of([{"value": b"x" * size}])
    for _ in range(records):
        found.expect(rows)
    return found


def test_the_client_is_told_to_flush_when_about_one_request_is_left() -> None:
    """A client that flushes spins until all is answered, so most answers are waited for before."""
    producer = Producer(40, at_once=4)

    answers().flush(producer, call, lambda: False)

    assert [("poll", left) for left in range(40, 4, -4)] + [("flush", 4)] == producer.calls


def test_what_fits_one_request_is_flushed_at_once() -> None:
    """A short transaction does not wait for answers that nobody has asked for."""
    producer = Producer(3, at_once=0)

    answers(records=3).flush(producer, call, lambda: False)

    assert [("flush", 3)] == producer.calls


def test_a_client_without_answers_is_told_to_flush() -> None:
    """Where the guess was wrong, what is left waits for linger.ms only for a moment."""
    producer = Producer(40, at_once=0)

    answers().flush(producer, call, lambda: False)

    assert ("flush", 40) == producer.calls[-1]


def test_a_refused_record_ends_the_wait() -> None:
    """Nothing else of the transaction matters then."""
    producer = Producer(40, at_once=1)

    answers().flush(producer, call, lambda: producer.left < 30)

    assert 29 == producer.left


def test_a_broker_that_answers_nothing_is_given_up() -> None:
    """The error says what was waited for."""
    producer = Producer(40, at_once=0)

    with pytest.raises(KafkaError, match="40 records without an answer"):
        answers(0.01).flush(producer, call, lambda: False)
