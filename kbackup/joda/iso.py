"""Texts of dates and times as the connectors' ``RecordField`` extractor reads them.

Source: Joda-Time 2.13, ``ISODateTimeFormat.dateTimeParser``; storage-common 9bb1f372,
``TimeBasedPartitioner.RecordFieldTimestampExtractor``.
"""

import re
from typing import Final

from kbackup.joda import calendar
from kbackup.joda.zones import Zone

_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_TEXT: Final = re.compile(
    r"(?:(?P<year>[+-]?\d{1,9})(?:-W(?P<week>\d\d?)(?:-(?P<weekday>\d))?"
    r"|-(?P<ordinal>\d{3})|-(?P<month>\d\d?)(?:-(?P<day>\d\d?))?)?(?=T|\Z)|(?=T\d))"
    r"(?:T(?:(?P<h>\d\d?)(?::(?P<m>\d\d?)(?::(?P<s>\d\d?))?)?(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?P<offset>Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d(?::?[0-5]\d(?:[.,]?\d{1,3})?)?)?)?)?",
    re.ASCII | re.IGNORECASE,
)
_UNITS: Final = {"h": 3_600_000, "m": 60_000, "s": 1000}


def moment(text: str, zone: Zone) -> int | None:
    """Return ms since the epoch of *text*; None if it is not a time.

    Args:
        text: Up to 19 digits, which are ms themselves, or a date, a time or both by ISO 8601.
        zone: The zone of a text without an offset.
    """
    if _NUMBER.fullmatch(text):
        number = int(text)
        return number if -(2**63) <= number < 2**63 else None
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    days, clock = _days(match), _clock(match)
    if days is None or clock is None:
        return None
    local = days * calendar.DAY_MS + clock
    offset = match["offset"]
    if offset is None:
        return zone.to_utc(local)
    return local - _offset(offset)


def _days(match: re.Match[str]) -> int | None:
    if match["year"] is None:
        return 0
    year = int(match["year"])
    if match["week"] is not None:
        monday = calendar.days(year, 1, 4)
        monday += 1 - calendar.weekday(monday) + 7 * (int(match["week"]) - 1)
        found = monday + int(match["weekday"] or 1) - 1
        is_one = 1 <= int(match["weekday"] or 1) <= 7 and calendar.week(found)[0] == year
        return found if is_one else None
    if match["ordinal"] is not None:
        found = calendar.days(year, 1, 1) + int(match["ordinal"]) - 1
        return found if calendar.date(found).year == year else None
    month, day = int(match["month"] or 1), int(match["day"] or 1)
    if not 1 <= month <= 12:
        return None
    found = calendar.days(year, month, day)
    return found if calendar.date(found) == (year, month, day) else None


def _clock(match: re.Match[str]) -> int | None:
    """Return the ms since midnight; a fraction belongs to the smallest unit in the text."""
    hours, minutes, seconds = (int(match[unit] or 0) for unit in _UNITS)
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    smallest = next((unit for unit in "smh" if match[unit] is not None), None)
    fraction = match["fraction"]
    if fraction is not None and smallest is None:
        return None
    ms = hours * _UNITS["h"] + minutes * _UNITS["m"] + seconds * _UNITS["s"]
    if fraction is not None and smallest is not None:
        ms += int(fraction) * _UNITS[smallest] // 10 ** len(fraction)
    return ms


def _offset(text: str) -> int:
    if text in "Zz":
        return 0
    digits = re.sub(r"\D", "", text).ljust(9, "0")
    ms = sum(
        int(digits[at : at + 2]) * unit for at, unit in zip((0, 2, 4), _UNITS.values(), strict=True)
    ) + int(digits[6:])
    return -ms if text[0] == "-" else ms
