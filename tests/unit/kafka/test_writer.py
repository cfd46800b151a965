"""What the writer hands to the client."""

from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st
from record_samples import batch_of

from kbackup.kafka.writer import _headers, unwrapped, without_zero_timestamps
from kbackup.records import SCHEMA

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


@pytest.mark.parametrize("count", [pytest.param(n, id=f"{n} on each record") for n in range(4)])
def test_as_many_headers_on_each_record(count: int) -> None:
    """Records that all have the same headers get the same result as any others."""
    rows: list[Headers] = [
        [(f"name{at}", b"%d-%d" % (row, at)) for at in range(count)] for row in range(5)
    ]

    assert [row or None for row in rows] == list(_headers(column(rows)))


def test_what_python_makes_of_the_clients_exception_is_undone() -> None:
    """A fatal error that arises during a callback is reported as itself."""
    fenced = KafkaException(KafkaError(KafkaError._FENCED))
    wrapped = SystemError("returned a result with an exception set")
    wrapped.__cause__ = fenced

    lost = unwrapped(SystemError("returned NULL without setting an exception"))

    assert (fenced, fenced) == (unwrapped(fenced), unwrapped(wrapped))
    assert KafkaError._FATAL == lost.args[0].code()


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
