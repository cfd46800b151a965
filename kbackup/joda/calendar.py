"""Days to dates and back, for every year: ``datetime`` covers only 1 to 9999."""

from typing import Final, NamedTuple

DAY_MS: Final = 86_400_000
_ERA_DAYS: Final = 146_097
"""Days of 400 years, after which the calendar repeats, weekdays too."""
_EPOCH: Final = 719_468
"""Days from 0000-03-01 to 1970-01-01."""


class Date(NamedTuple):
    """A day of the proleptic Gregorian calendar; the year before 1 is 0."""

    year: int
    month: int
    day: int


def date(days: int) -> Date:
    """Return the date that is *days* after 1970-01-01.

    Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    """
    era, rest = divmod(days + _EPOCH, _ERA_DAYS)
    year = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    day_of_year = rest - (365 * year + year // 4 - year // 100)
    at = (5 * day_of_year + 2) // 153
    month = at + 3 if at < 10 else at - 9
    return Date(year + era * 400 + (month <= 2), month, day_of_year - (153 * at + 2) // 5 + 1)


def days(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01 to a date; the inverse of `date`."""
    year -= month <= 2
    era, rest = divmod(year, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * _ERA_DAYS + rest * 365 + rest // 4 - rest // 100 + day_of_year - _EPOCH


def weekday(at: int) -> int:
    """Return 1 for Monday to 7 for Sunday, of the day that is *at* days after 1970-01-01."""
    return (at + 3) % 7 + 1


def week(at: int) -> tuple[int, int]:
    """Return the ISO year and week of the day that is *at* days after 1970-01-01."""
    thursday = at - weekday(at) + 4
    year = date(thursday).year
    return year, (thursday - days(year, 1, 1)) // 7 + 1
