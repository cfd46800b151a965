"""Patterns of Java's ``SimpleDateFormat``: text of times, and times of text."""

import pyarrow as pa
import pytest

from kbackup.java.simple_date_format import FIRST_MS, LAST_MS, SimpleDateFormat

T = 1_700_000_000_123  # Tuesday, 14 November 2023, 22:13:20.123 UTC


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "2023-11-14T22:13:20.123Z", id="ISO"),
        pytest.param("yyyyMMdd", "20231114", id="digits"),
        pytest.param("yy y yyyyyy", "23 2023 002023", id="years"),
        pytest.param("M MM MMM MMMM LLLL", "11 11 Nov November November", id="months"),
        pytest.param("E EEEE u", "Tue Tuesday 2", id="days of the week"),
        pytest.param("D F w W YYYY", "318 2 46 3 2023", id="counted"),
        pytest.param("H k K h a", "22 22 10 10 PM", id="hours"),
        pytest.param("S SSSSSS", "123 000123", id="milliseconds are a number"),
        pytest.param("z zzzz Z X XXX G", "UTC Coordinated Universal Time +0000 Z Z AD", id="zone"),
        pytest.param("'o''clock' ''", "o'clock '", id="quotes"),
    ],
)
def test_a_time_becomes_text(pattern: str, expected: str) -> None:
    """As Java writes it in UTC; null stays null."""
    found = SimpleDateFormat(pattern).texts(pa.array([T, None], pa.int64()))

    assert [expected, None] == found.to_pylist()


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        pytest.param(0, "1970-01-01 00 24 12 AM", id="the epoch, at midnight"),
        pytest.param(-1, "1969-12-31 23 23 11 PM", id="before the epoch"),
        pytest.param(FIRST_MS, "1582-10-15 00 24 12 AM", id="the first"),
        pytest.param(LAST_MS, "9999-12-31 23 23 11 PM", id="the last"),
    ],
)
def test_the_ends_of_days_and_of_times(ms: int, expected: str) -> None:
    """Midnight is hour 0, 24 or 12, as the pattern's letter has it in Java."""
    found = SimpleDateFormat("yyyy-MM-dd HH kk hh a").texts(pa.array([ms], pa.int64()))

    assert [expected] == found.to_pylist()


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        pytest.param("2022-12-31", "2022 53 5", id="a Saturday ends the year and its week"),
        pytest.param("2023-01-01", "2023 1 1", id="a Sunday begins both"),
        pytest.param("2024-12-29", "2025 1 5", id="a week with the first of January"),
    ],
)
def test_weeks_begin_on_sunday(day: str, expected: str) -> None:
    """The first week has the first of January in it, as in the US locale."""
    ms = SimpleDateFormat("yyyy-MM-dd").ms(day)

    assert [expected] == SimpleDateFormat("YYYY w W").texts(pa.array([ms])).to_pylist()


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        pytest.param("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "2023-11-14T22:13:20.123Z", T, id="ISO"),
        pytest.param("yyyyMMddHHmmssSSS", "20231114221320123", T, id="digits"),
        pytest.param("d MMM yyyy h:mm:ss.S a", "14 nov 2023 10:13:20.123 pm", T, id="words"),
        pytest.param("yyyy-MM-dd HH:mm Z", "1970-01-01 02:00 +0130", 1_800_000, id="an offset"),
        pytest.param("yyyy-MM-dd HH:mmX", "1970-01-01 00:00-01", 3_600_000, id="west"),
        pytest.param("yyyy-MM-dd", "1970-01-02 and more", 86_400_000, id="the rest is ignored"),
        pytest.param("yyyy-MM-dd", "1969-13-01", 0, id="lenient: month 13"),
        pytest.param("yyyy DDD", "1970 002", 86_400_000, id="the day of the year"),
        pytest.param("HH:mm", "00:01", 60_000, id="no date is the epoch"),
    ],
)
def test_text_becomes_a_time(pattern: str, text: str, expected: int) -> None:
    """Text is read as a time as leniently as Java reads it."""
    assert expected == SimpleDateFormat(pattern).ms(text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        pytest.param("yyyy-MM-dd", "14.11.2023", id="another form"),
        pytest.param("yyyy-MM-dd", "", id="empty"),
        pytest.param("yy-MM-dd", "23-11-14", id="which century depends on today"),
        pytest.param("YYYY-ww", "2023-46", id="weeks"),
        pytest.param("yyyy-MM-dd", "1066-10-14", id="Julian"),
    ],
)
def test_text_that_is_no_time_is_refused(pattern: str, text: str) -> None:
    """Text that is no time is refused; nothing is guessed."""
    with pytest.raises(ValueError, match=r"."):
        SimpleDateFormat(pattern).ms(text)


@pytest.mark.parametrize("pattern", ["yyyy-bb", "'open", "XXXX", "T"])
def test_what_java_refuses_is_refused(pattern: str) -> None:
    """A pattern that Java refuses is refused before a record is read."""
    with pytest.raises(ValueError, match=r"."):
        SimpleDateFormat(pattern)
