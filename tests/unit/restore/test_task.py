"""What a restore changes, and how much it commits at once."""

import pytest

from kbackup.restore.transaction import FIRST_BYTES, TRANSACTION_BYTES, next_limit


def test_transactions_grow_while_the_cluster_is_quick() -> None:
    """Transactions grow from a few small ones to the size that costs least."""
    limits = [FIRST_BYTES]
    for _ in range(4):
        limits.append(next_limit(limits[-1], 1.0))

    assert limits == sorted(limits)
    assert [TRANSACTION_BYTES] * 2 == limits[-2:]


@pytest.mark.parametrize("bytes_per_s", [20_000, 100_000, 1_000_000, 50_000_000])
def test_a_slow_cluster_gets_transactions_that_end_in_time(bytes_per_s: int) -> None:
    """From the second one on, none comes near the five minutes after which it would be aborted."""
    limit, seconds = FIRST_BYTES, []
    for _ in range(20):
        seconds.append(limit / bytes_per_s)
        limit = next_limit(limit, seconds[-1])

    assert max(seconds[2:]) < 150
