import pytest

from kbackup.stores.s3.requests import LONGEST_WAIT_S, Attempts


def failing(times: int) -> list[Exception | str]:
    return [*(OSError(str(n)) for n in range(times)), "done"]


def play(script: list[Exception | str]) -> str:
    step = script.pop(0)
    if isinstance(step, Exception):
        raise step
    return step


def test_waits_grow_and_are_jittered() -> None:
    """Before retry n between half of the base times 2**(n - 1) and all of it."""
    waits: list[float] = []
    script = failing(4)

    found = Attempts(5, 200, waits.append).run(lambda: play(script), "a", str)

    assert "done" == found
    assert [True] * 4 == [0.1 * 2**n <= wait <= 0.2 * 2**n for n, wait in enumerate(waits)]


def test_no_wait_is_endless() -> None:
    """No wait grows without limit, whatever the base or the number of attempts."""
    waits: list[float] = []
    script = failing(12)

    Attempts(13, 3_600_000, waits.append).run(lambda: play(script), "a", str)

    assert max(waits) <= LONGEST_WAIT_S


@pytest.mark.parametrize(
    ("total", "waits"),
    [pytest.param(1, 0, id="no retry"), pytest.param(3, 2, id="in all, not more")],
)
def test_attempts_are_counted_in_all(total: int, waits: int) -> None:
    """Three attempts are one and two retries; the last error is the one that is raised."""
    waited: list[float] = []
    script = failing(9)

    with pytest.raises(OSError, match=str(total - 1)):
        Attempts(total, 1, waited.append).run(lambda: play(script), "a", str)

    assert waits == len(waited)


def test_what_is_not_transient_is_raised_at_once() -> None:
    """An error that waiting cannot cure is raised at once."""
    waited: list[float] = []
    script = failing(1)

    with pytest.raises(OSError, match="0"):
        Attempts(3, 1, waited.append).run(lambda: play(script), "a", lambda _: None)

    assert [] == waited
