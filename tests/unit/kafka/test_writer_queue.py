"""What a producer keeps until it is acknowledged."""

import pytest

from kbackup.kafka.writer import (
    BATCH_BYTES,
    BATCHES,
    LINGER_MS,
    SPREAD_BYTES,
    SPREAD_LINGER_MS,
    limits,
)

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
