"""What is tried again, at the bounds; all else is in ``tests/fault/test_s3_retries.py``."""

import pytest

from kbackup.stores.s3.requests import LONGEST_WAIT_S, Attempts


@pytest.mark.parametrize("total", [1, 13])
def test_no_wait_is_endless(total: int) -> None:
    """No wait grows without limit, and attempts are counted in all: one is no retry."""
    waits: list[float] = []
    script = iter(range(99))

    def fail() -> None:
        raise OSError(next(script))

    with pytest.raises(OSError, match=str(total - 1)):
        Attempts(total, 3_600_000, waits.append).run(fail, "a", str)

    assert total - 1 == len(waits)
    assert max(waits, default=0) <= LONGEST_WAIT_S
