"""Points in time as options take them."""

import pytest

from kbackup.config.parsing import moment


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-11-21T02:00:00Z", 1_795_226_400_000),
        ("2026-11-21T03:00:00+01:00", 1_795_226_400_000),
        ("2026-11-21", 1_795_219_200_000),
        ("1795226400000", 1_795_226_400_000),
        ("-100000000000", -100_000_000_000),
    ],
)
def test_a_time_is_a_date_or_milliseconds(text: str, ms: int) -> None:
    """
    A time may be a date, a date and time, or milliseconds; without a zone it is UTC.
    """
    assert ms == moment(text)


@pytest.mark.parametrize("text", ["1795226400", "179522640", "-1795226400"])
def test_seconds_are_refused(text: str) -> None:
    """
    A number that looks like seconds is refused: as milliseconds it would mean January 1970.
    """
    with pytest.raises(ValueError, match="looks like seconds"):
        moment(text)


@pytest.mark.parametrize("text", ["", "yesterday", "12", "2026-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """
    Text that is not a time is refused with an example.
    """
    with pytest.raises(ValueError, match="2026-11-21T02:00:00Z"):
        moment(text)
