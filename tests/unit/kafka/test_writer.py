"""What the writer hands to the client, keeps until it is acknowledged, and waits for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException
from hypothesis import given
from hypothesis import strategies as st
from record_samples import batch_of

from kbackup.errors import KafkaError
from kbackup.kafka import KafkaSettings, TakenOverError
from kbackup.kafka.client import Complaints, Lending
from kbackup.kafka.writer import (
    BATCH_BYTES,
    BATCHES,
    LINGER_MS,
    SPREAD_BYTES,
    SPREAD_LINGER_MS,
    Answers,
    _headers,
    limits,
    meaning,
    unwrapped,
    without_zero_timestamps,
)
from kbackup.records import SCHEMA, TopicPartition

Headers = list[tuple[str, bytes | None]]

HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3)


def column(rows: list[Headers]) -> pa.Array:
    """The rows as the column of a batch."""
    dicts: list[Any] = [[{"key": k, "value": v} for k, v in row] for row in rows]
    return pa.array(dicts, SCHEMA.field("headers").type)


@given(st.lists(HEADERS, max_size=6), st.integers(0, 6))
def test_headers_stay_with_their_record(rows: list[Headers], start: int) -> None:
    """Each record gets its own headers in their order, of a part of a batch too."""
    found = list(_headers(column(rows).slice(start)))

    assert [row or None for row in rows[start:]] == found


def test_what_python_makes_of_the_clients_exception_is_undone() -> None:
    """A fatal error that arises during a callback is reported as itself."""
    fenced = KafkaException(Code(Code._FENCED))
    wrapped = SystemError("returned a result with an exception set")
    wrapped.__cause__ = fenced

    lost = unwrapped(SystemError("returned NULL without setting an exception"))

    assert (fenced, fenced) == (unwrapped(fenced), unwrapped(wrapped))
    assert Code._FATAL == lost.args[0].code()


def test_timestamps_of_zero_are_counted_and_kept_as_near_as_the_client_can() -> None:
    """The client takes 0 for "now"; -1, null and all others stay as they are."""
    times = [0, 1, -1, None, 0, 1_700_000_000_000]
    batch = batch_of([{"timestamp": at} for at in times])

    changed, count = without_zero_timestamps(batch)

    assert 2 == count
    assert [1, 1, -1, None, 1, 1_700_000_000_000] == changed["timestamp"].to_pylist()


def test_a_batch_without_zero_timestamps_is_passed_on_as_it_is() -> None:
    """A batch without zero timestamps is passed on without a copy."""
    batch = batch_of([{}, {}])

    assert (batch, 0) == without_zero_timestamps(batch)


SIZES = (1, 20_000, BATCH_BYTES - 1, BATCH_BYTES, 2**26, 2**28)


@pytest.mark.parametrize("is_spread", [False, True])
@pytest.mark.parametrize("operators", [{}, {"batch.size": "8000000"}])
@pytest.mark.parametrize("most", [*SIZES, None])
def test_a_batch_fills_beside_the_largest_record(
    most: int | None, operators: dict[str, str], is_spread: bool
) -> None:
    """No batch waits for room that only its own records take: it would wait for linger.ms."""
    largest = most or 2**26

    found = limits(largest, most, operators, is_spread=is_spread)

    batch = int({**found, **operators}["batch.size"])
    assert largest + batch <= found["queue.buffering.max.kbytes"] * 1024


def test_a_batch_fills_whatever_number_of_records_it_has() -> None:
    """A larger batch.num.messages of the operator's has room twice: on its way, and waiting."""
    found = limits(1, None, {"batch.num.messages": "1000000"}, is_spread=False)

    assert found["queue.buffering.max.messages"] == 2_000_000


def test_a_writer_to_one_partition_keeps_little_and_waits_for_full_batches() -> None:
    """What waits longer than linger.ms for the partition's one request makes the client spin."""
    one, several = (limits(1, None, {}, is_spread=spread) for spread in (False, True))

    assert BATCHES * BATCH_BYTES // 1024 + 1 == one["queue.buffering.max.kbytes"]
    assert SPREAD_BYTES // 1024 + 1 == several["queue.buffering.max.kbytes"]
    assert one["linger.ms"] > 10 * several["linger.ms"]


@pytest.mark.parametrize(
    ("operators", "waits"),
    [
        ({"queue.buffering.max.messages": "9999"}, False),
        ({"queue.buffering.max.messages": "10000"}, True),
        ({"queue.buffering.max.messages": "0"}, True),
        ({"queue.buffering.max.messages": "90000", "batch.num.messages": "100000"}, False),
        ({"queue.buffering.max.kbytes": "2047"}, False),
        ({"queue.buffering.max.kbytes": "2048"}, True),
        ({"queue.buffering.max.kbytes": "2048", "batch.size": "8000000"}, False),
        ({"delivery.timeout.ms": "500"}, False),
        ({"message.timeout.ms": "501"}, True),
        ({"message.timeout.ms": "0"}, True),
    ],
)
def test_no_record_waits_for_a_batch_that_cannot_be_full(
    operators: dict[str, str], waits: bool
) -> None:
    """In a small or impatient queue records wait as briefly as those to several partitions."""
    found = limits(BATCH_BYTES, BATCH_BYTES, operators, is_spread=False)

    assert (LINGER_MS if waits else SPREAD_LINGER_MS) == found["linger.ms"]


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


def test_writers_of_a_group_share_its_positions_until_the_last_has_left() -> None:
    """Who borrows the same group's positions has the same client; the last to leave closes it."""
    lending = Lending()
    settings, same = (KafkaSettings("127.0.0.1:1", consumer={"log_level": "0"}) for _ in range(2))
    first, second = lending.borrow(settings, "g"), lending.borrow(same, "g")
    others = [lending.borrow(settings, "h"), lending.borrow(settings, "g", alone=True)]

    lending.give_back(first)
    second.for_transaction()  # which a closed client refuses
    third = lending.borrow(settings, "g")
    lending.give_back(second)
    lending.give_back(third)
    later = lending.borrow(settings, "g")

    assert first is second is third
    assert 4 == len({id(each) for each in (first, *others, later)})
    for each in (*others, later):
        lending.give_back(each)


@pytest.mark.parametrize(
    ("open_s", "ended"), [pytest.param(None, False, id="new"), pytest.param(312.0, True, id="old")]
)
def test_the_cluster_may_have_ended_a_transaction_that_was_open_too_long(
    open_s: float | None, *, ended: bool
) -> None:
    """The client's error is that of another restore taking over; the age says what it may be."""
    fenced = KafkaException(Code(Code._FENCED))
    where = TopicPartition("orders", 70)

    error = meaning(where, "sending its position", fenced, Complaints(), None, open_s)

    assert isinstance(error, TakenOverError)
    assert (True, ended) == ("another restore" in error.why, "open for 312 s" in error.why)
