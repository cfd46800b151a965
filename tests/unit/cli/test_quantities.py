import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.cli.options import seconds, whole_days
from kbackup.cli.terminal import count, digits, duration, rate, size
from kbackup.errors import ConfigurationError


@given(st.integers())
def test_grouped_digits_are_the_number(number: int) -> None:
    """Grouping the digits of a number adds thin spaces and nothing else."""
    assert number == int(digits(number).replace("\u2009", ""))


@given(st.integers(0, 2**62), st.integers(0, 2**62))
def test_larger_is_not_shown_as_smaller(one: int, other: int) -> None:
    """Sizes sort as their numbers do, whatever the unit."""
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]

    def key(number: int) -> tuple[int, float]:
        value, unit = size(number).split()
        return units.index(unit), float(value)

    assert key(min(one, other)) <= key(max(one, other))


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        pytest.param(digits(None), "?", id="unknown number"),
        pytest.param(digits(5996554), "5\u2009996\u2009554", id="number"),
        pytest.param(size(None), "?", id="unknown size"),
        pytest.param(size(0), "0 B", id="nothing"),
        pytest.param(size(1023), "1023 B", id="largest number of bytes"),
        pytest.param(size(1024), "1.0 KiB", id="one unit"),
        pytest.param(size(1024**2 - 1), "1.0 MiB", id="rounded up to the next unit"),
        pytest.param(size(421527552), "402 MiB", id="no fraction"),
        pytest.param(size(1503238553, space=""), "1.4GiB", id="in a log line"),
        pytest.param(duration(None), "?", id="unknown time"),
        pytest.param(duration(0.4), "0:00", id="no time"),
        pytest.param(duration(157.3), "2:37", id="minutes"),
        pytest.param(duration(59.6), "1:00", id="rounded up to the next minute"),
        pytest.param(duration(93789), "26:03:09", id="hours"),
        pytest.param(rate(18), "18", id="low rate"),
        pytest.param(rate(42873.0), "42.9k", id="high rate"),
        pytest.param(rate(999_990.0), "1.0M", id="rounded up to the next letter"),
        pytest.param(count(1, "object"), "1 object", id="one"),
        pytest.param(count(0, "object"), "0 objects", id="none"),
        pytest.param(count(None, "object"), "? objects", id="unknown count"),
    ],
)
def test_as_people_read_it(shown: str, expected: str) -> None:
    """Numbers are as short as they can be and no shorter."""
    assert expected == shown


@pytest.mark.parametrize(("text", "days"), [("14", 14), ("14d", 14), ("48h", 2)])
def test_days_are_a_duration_too(text: str, days: int) -> None:
    """Who writes 14d in one option may write it in all."""
    assert days == whole_days("--days", text)


@pytest.mark.parametrize("text", ["0", "36h", "a week"])
def test_a_day_is_the_least(text: str) -> None:
    """S3 counts in days, so parts of one are refused."""
    with pytest.raises(ConfigurationError, match=f"--days {text} is"):
        whole_days("--days", text)


@pytest.mark.parametrize("text", ["", " "])
def test_a_blank_is_seen(text: str) -> None:
    """As an unset shell variable leaves it."""
    with pytest.raises(ConfigurationError, match=f"--max-age '{text}' is not a duration"):
        seconds("--max-age", text)
