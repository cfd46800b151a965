"""Patterns, zones, names and texts of times: what Joda-Time 2.14.1 on OpenJDK 17 answers."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.java import joda
from kbackup.java.joda import Pattern
from kbackup.partitioners.time_based import Buckets

MOMENT = 1_700_000_000_123
NEW_YORK = joda.zone_by_id("America/New_York")
ENGLISH = joda.names_of_locale("en")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("Z", "-0500"),
        ("ZZ", "-05:00"),
        ("ZZZ", "America/New_York"),
        ("z", "EST"),
        ("S", "1"),
        ("SS", "12"),
        ("SSSSS", "12300"),
        ("C", "20"),
        ("K-KK-a", "5-05-PM"),
        ("eee", "002"),
        ("EEEEE-MMMMM", "Tuesday-November"),
        ("x-xx-xxxx", "2023-23-2023"),
        ("www", "046"),
        ("Y''''Y", "2023''2023"),
        ("'it''s' yy", "it's 23"),
    ],
)
def test_each_letter_prints_what_joda_prints(pattern: str, expected: str) -> None:
    """Patterns are read as Joda-Time reads them: letters are counted, and quotes are respected."""
    assert expected == Pattern(pattern, ENGLISH).printed(MOMENT, NEW_YORK)


def test_a_week_has_a_year_of_its_own() -> None:
    """New Year 2021 was in the last week of 2020."""
    assert "2020-20-53 2021-21" == Pattern("x-xx-w y-yy", ENGLISH).printed(
        1_609_502_400_000, NEW_YORK
    )


@pytest.mark.parametrize("pattern", ["", "yyyy-b", "A", "yyyy-Q", "yyyy-L", "zzzz"])
def test_a_pattern_that_means_nothing_is_refused(pattern: str) -> None:
    """A pattern without a meaning is refused."""
    with pytest.raises(ValueError, match=r"illegal pattern|expected a pattern|names of time zones"):
        Pattern(pattern, ENGLISH)


@pytest.mark.parametrize(
    ("locale", "expected"),
    [
        ("fr", "nov./mardi"),
        ("FR", "nov./mardi"),
        ("de", "Nov./Dienstag"),
        ("ru", "нояб./вторник"),
        ("fr-FR", "Nov/Tue"),
        ("", "Nov/Tue"),
    ],
)
def test_only_a_bare_language_has_names(locale: str, expected: str) -> None:
    """With a region the connectors print the root locale's names, and so does kbackup."""
    assert expected == Pattern("MMM/EEEE", joda.names_of_locale(locale)).printed(MOMENT, NEW_YORK)


@pytest.mark.parametrize(
    ("name", "id_", "offset_s"),
    [
        ("UT", "UTC", 0),
        ("Z", "UTC", 0),
        ("GMT", "Etc/GMT", 0),
        ("GMT+02:00", "+02:00", 7200),
        ("+0200", "+02:00", 7200),
        ("+02", "+02:00", 7200),
        ("-05:30", "-05:30", -19800),
        ("+02:30:15", "+02:30:15", 9015),
        ("-00:00", "UTC", 0),
        ("EST5EDT", "EST5EDT", -18000),
    ],
)
def test_zones_have_jodas_names(name: str, id_: str, offset_s: int) -> None:
    """Names of the tz database and offsets, with the id that Joda prints."""
    zone = joda.zone_by_id(name)

    assert (id_, offset_s * 1000) == (zone.id, zone.offset(MOMENT))


@pytest.mark.parametrize(
    "name",
    ["", "utc", "PST", "+2", "+24:00", "GMT+2", "UTC-3", "posixrules", "../UTC", "europe/berlin"],
)
def test_what_joda_does_not_know_is_no_zone(name: str) -> None:
    """A zone that Joda-Time does not know is refused, even if the file system has such a file."""
    with pytest.raises(ValueError, match="expected a time zone"):
        joda.zone_by_id(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2015-04-02T01:00:00.000-07:00", 1427961600000),
        ("2015-04-02", 1427932800000),
        ("2015-W14-4", 1427932800000),
        ("2015-092", 1427932800000),
        ("T10:00", 36000000),
        ("2015-04-02T01:00:00,5Z", 1427936400500),
        ("2015t10.5z", 1420108200000),
        ("20150402", 20150402),
        ("-1", -1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None),
        ("10:00", None),
        ("2015-04-02 01:00", None),
        ("2015-02-29", None),
        ("2015-W54-1", None),
        ("2015-04-02T24:00", None),
        ("def", None),
        ("", None),
    ],
)
def test_texts_are_read_as_iso_8601(text: str, expected: int | None) -> None:
    """Digits alone are milliseconds; text that is not a time has no time."""
    assert expected == joda.parse_iso(text, joda.zone_by_id("UTC"))


def test_a_text_without_offset_is_local_time() -> None:
    """A text without an offset is local time in the configured zone."""
    assert 1427950800000 == joda.parse_iso("2015-04-02T01:00:00", NEW_YORK)


@given(st.integers(-(10**8), 10**8))
def test_dates_and_days_are_inverse(days: int) -> None:
    """Every day has exactly one date, in every year."""
    assert days == joda.days(*joda.date(days))


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_a_column_prints_what_each_moment_does(times: list[int | None]) -> None:
    """Whatever moments are in a batch, each has the directory that it has alone; null has none."""
    pattern = Pattern("yyyy-MM-dd'T'HH", ENGLISH)
    buckets = Buckets(3_600_000, pattern, NEW_YORK)

    each = [buckets.printed(pa.array([at], pa.int64()))[0].as_py() for at in times]

    assert each == buckets.printed(pa.array(times, pa.int64())).to_pylist()


def test_a_batch_across_the_change_of_clocks() -> None:
    """The hours before, in and after the night on which clocks go back."""
    pattern = Pattern("HH Z", ENGLISH)
    start = 1_730_610_000_000  # 01:00 in New York, the first of two
    times = pa.array(
        [start + minutes * 60_000 for minutes in (-1, 0, 59, 60, 119, 120)], pa.int64()
    )

    found = Buckets(3_600_000, pattern, NEW_YORK).printed(times).to_pylist()

    assert ["00 -0400", "01 -0400", "01 -0400", "01 -0400", "01 -0400", "02 -0500"] == found
