"""Joda-Time as the connectors use it: patterns, zones, names and ISO texts.

Moments are ms since the epoch; *local* ms are the wall-clock time of a zone.
Its letters differ from those of ``SimpleDateFormat``: ``Y`` is the year, ``x`` the week-based
year.

The connectors pass the whole ``locale`` to Java's one-argument ``Locale``, so only a bare
language, such as ``fr``, has names; ``fr-FR`` is an unknown language, whose names
are those of Java's root locale.  ``names.tsv`` has what OpenJDK 17 returns for every language of
ISO 639 (``DateFormatSymbols``, data of CLDR 39); libraries with older or newer data differ in about
half of the languages.

Source: Joda-Time 2.13, ``DateTimeFormat.parsePatternTo``, ISO chronology,
``ISODateTimeFormat.dateTimeParser``, ``DateTimeZone.forID``, ``convertLocalToUTC``; storage-common
9bb1f372, ``TimeBasedPartitioner.RecordFieldTimestampExtractor``.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from importlib.resources import files
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

_RENAMED: Final = {"he": "iw", "id": "in", "yi": "ji"}


@dataclass(frozen=True, slots=True)
class LanguageNames:
    """The names of one language, whose code is empty for the root locale.

    January and Monday come first, before noon and before Christ too.
    """

    language: str
    months: tuple[str, ...]
    short_months: tuple[str, ...]
    days: tuple[str, ...]
    short_days: tuple[str, ...]
    halves: tuple[str, ...]
    eras: tuple[str, ...]


@cache
def names_of_locale(text: str) -> LanguageNames:
    """Return the names for the property ``locale``."""
    language = text.lower()
    language = _RENAMED.get(language, language)
    rows = files("kbackup.java").joinpath("names.tsv").read_text("utf-8").splitlines()
    for row in rows:
        name, *columns = row.split("\t")
        if name == language:
            return LanguageNames(name, *(tuple(column.split("|")) for column in columns))
    return names_of_locale("")


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


_OFFSET: Final = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<h>[01]\d|2[0-3])(?::?(?P<m>[0-5]\d)(?::?(?P<s>[0-5]\d))?)?",
    re.ASCII,
)
_UTC: Final = frozenset({"UTC", "UT", "Z", "GMT"})
_FIRST: Final = -62_135_510_400_000
_LAST: Final = 253_370_764_800_000
"""Between these ms ``datetime`` supports zones; one more day on each side is still in its range."""
_CYCLE_MS: Final = _ERA_DAYS * DAY_MS
"""400 years, after which the calendar repeats, and with it a zone's rules."""


@dataclass(frozen=True, slots=True)
class Zone:
    """One time zone: its id as Joda prints it; its rules, or its offset if that is fixed."""

    id: str
    rules: ZoneInfo | None = None
    fixed_ms: int = 0

    def offset(self, ms: int) -> int:
        """Return how many ms local time is ahead of UTC at the moment *ms*."""
        if self.rules is None:
            return self.fixed_ms
        found = self._moment(ms).utcoffset()
        assert found is not None  # noqa: S101  (an aware moment has one)
        return found // timedelta(milliseconds=1)

    def to_utc(self, local_ms: int) -> int:
        """Return the moment at which clocks show *local_ms*.

        If there are two, the first; if clocks skip it, the moment as long after the gap as
        *local_ms* is after its beginning.
        """
        local = self.offset(local_ms)
        offset = self.offset(local_ms - local)
        is_western_gap = local < 0 and self.offset(local_ms - offset) != offset
        return local_ms - (local if local != offset and is_western_gap else offset)

    def abbreviation(self, ms: int) -> str:
        """Return the zone's short name at the moment *ms*, such as ``CET``."""
        return self.id if self.rules is None else self._moment(ms).tzname() or ""

    def _moment(self, ms: int) -> datetime:
        if ms > _LAST:
            ms -= -((_LAST - ms) // _CYCLE_MS) * _CYCLE_MS
        seconds, rest = divmod(max(ms, _FIRST), 1000)
        moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1000)
        return moment.astimezone(self.rules)


@cache
def zone_by_id(name: str) -> Zone:
    """Return the zone with Joda's id *name*; ``ValueError`` if there is none, and case matters."""
    if name in _UTC:
        return Zone("Etc/GMT" if name == "GMT" else "UTC")
    match = _OFFSET.fullmatch(name)
    if match is not None:
        ms = sum(
            int(match[part] or 0) * unit
            for part, unit in (("h", 3_600_000), ("m", 60_000), ("s", 1000))
        )
        ms = -ms if match["sign"] == "-" else ms
        return Zone("UTC") if ms == 0 else Zone(_offset_text(ms), fixed_ms=ms)
    if name not in _names():
        raise ValueError("expected a time zone such as UTC, Europe/Berlin or +02:00")
    return Zone(name, ZoneInfo(name))


def offset_text(ms: int, colon: str) -> str:
    """Return an offset as hours and minutes: ``-0700`` or ``-07:00``."""
    hours, minutes = divmod(abs(ms) // 60_000, 60)
    return f"{'-' if ms < 0 else '+'}{hours:02d}{colon}{minutes:02d}"


def _offset_text(ms: int) -> str:
    seconds = abs(ms) // 1000 % 60
    return offset_text(ms, ":") + (f":{seconds:02d}" if seconds else "")


@cache
def _names() -> frozenset[str]:
    """Return the names of the tz database; some file systems ignore their case."""
    listed = files("tzdata").joinpath("zones").read_text("ascii").split()
    return frozenset(listed) - {"Factory"}


_TOKEN: Final = re.compile(r"([A-Za-z])\1*|(?:'[^']*(?:'|\Z)|[^A-Za-z'])+")
"""A run of one letter, or literal text: quoted, with '' for a quote, or without letters."""


@dataclass(frozen=True)
class _Moment:
    """A moment in a zone: ms since the epoch, and of local time."""

    utc: int
    local: int
    zone: Zone

    @cached_property
    def days(self) -> int:
        return self.local // DAY_MS

    @cached_property
    def date(self) -> Date:
        return date(self.days)

    @property
    def ms(self) -> int:
        return self.local % DAY_MS

    @property
    def hour(self) -> int:
        return self.ms // 3_600_000

    @property
    def year_of_era(self) -> int:
        return self.date.year if self.date.year > 0 else 1 - self.date.year


_Print = Callable[[_Moment], str]
_COUNTED: Final[dict[str, Callable[[_Moment], int]]] = {
    "d": lambda at: at.date.day,
    "D": lambda at: at.days - days(at.date.year, 1, 1) + 1,
    "e": lambda at: weekday(at.days),
    "w": lambda at: week(at.days)[1],
    "H": lambda at: at.hour,
    "k": lambda at: at.hour or 24,
    "K": lambda at: at.hour % 12,
    "h": lambda at: at.hour % 12 or 12,
    "m": lambda at: at.ms // 60_000 % 60,
    "s": lambda at: at.ms // 1000 % 60,
    "C": lambda at: at.year_of_era // 100,
}  # fmt: skip
"""Letters that print a number, with at least as many digits as there are letters."""


@dataclass(frozen=True)
class Pattern:
    """A pattern with the words of one language; `printed` formats a moment."""

    text: str
    names: LanguageNames

    def __post_init__(self) -> None:
        _ = self._parts

    @cached_property
    def _parts(self) -> tuple[_Print, ...]:
        if not self.text:
            raise ValueError("expected a pattern such as 'year'=YYYY/'month'=MM/'day'=dd")
        return tuple(_part(token[0], self.names) for token in _TOKEN.finditer(self.text))

    def printed(self, ms: int, zone: Zone) -> str:
        """Return the text of the moment *ms* in *zone*."""
        moment = _Moment(ms, ms + zone.offset(ms), zone)
        return "".join(part(moment) for part in self._parts)


def _part(token: str, names: LanguageNames) -> _Print:
    """Compile one token."""
    letter, width = token[0], len(token)
    if re.match(r"[A-Za-z]", letter, re.ASCII) is None:
        text = _literal(token)
        return lambda _: text
    if letter in _COUNTED:
        count = _COUNTED[letter]
        return lambda at: _number(count(at), width)
    for kinds in (_year, _word, _zone):
        part = kinds(letter, width, names)
        if part is not None:
            return part
    raise ValueError(f"illegal pattern component: {token}")


def _year(letter: str, width: int, _names: LanguageNames) -> _Print | None:
    year: dict[str, Callable[[_Moment], int]] = {
        "y": lambda at: at.date.year,
        "Y": lambda at: at.year_of_era,
        "x": lambda at: week(at.days)[0],
    }
    if letter not in year:
        return None
    if width == 2:
        two = year["x" if letter == "x" else "y"]
        return lambda at: f"{abs(two(at)) % 100:02d}"
    return lambda at: _number(year[letter](at), width)


def _word(letter: str, width: int, names: LanguageNames) -> _Print | None:
    months = names.months if width > 3 else names.short_months
    days = names.days if width > 3 else names.short_days
    words: dict[str, _Print] = {
        "M": lambda at: months[at.date.month - 1],
        "E": lambda at: days[weekday(at.days) - 1],
        "a": lambda at: names.halves[at.hour // 12],
        "G": lambda at: names.eras[at.date.year > 0],
        "S": lambda at: f"{at.ms % 1000:03d}".ljust(width, "0")[:width],
    }
    if letter == "M" and width < 3:
        return lambda at: _number(at.date.month, width)
    return words.get(letter)


def _zone(letter: str, width: int, names: LanguageNames) -> _Print | None:
    match letter:
        case "Z" if width > 2:
            return lambda at: at.zone.id
        case "Z":
            return lambda at: offset_text(at.zone.offset(at.utc), ":" * (width - 1))
        case "z" if width > 3 or names.language != "en":
            raise ValueError(
                "names of time zones (z) are known in English, and short, alone: write ZZZ, the "
                "zone's id, or Z, its offset"
            )
        case "z":
            return lambda at: at.zone.abbreviation(at.utc)
    return None


def _literal(token: str) -> str:
    """Return what a token of literal text prints: without quotes, two of them as one."""
    return re.sub(r"''|'", lambda quote: "'" if quote[0] == "''" else "", token)


def _number(value: int, width: int) -> str:
    return f"-{-value:0{width}d}" if value < 0 else f"{value:0{width}d}"


_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_TEXT: Final = re.compile(
    r"(?:(?P<year>[+-]?\d{1,9})(?:-W(?P<week>\d\d?)(?:-(?P<weekday>\d))?"
    r"|-(?P<ordinal>\d{3})|-(?P<month>\d\d?)(?:-(?P<day>\d\d?))?)?(?=T|\Z)|(?=T\d))"
    r"(?:T(?:(?P<h>\d\d?)(?::(?P<m>\d\d?)(?::(?P<s>\d\d?))?)?(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?P<offset>Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d(?::?[0-5]\d(?:[.,]?\d{1,3})?)?)?)?)?",
    re.ASCII | re.IGNORECASE,
)
_UNITS: Final = {"h": 3_600_000, "m": 60_000, "s": 1000}


def parse_iso(text: str, zone: Zone) -> int | None:
    """Return ms since the epoch of a date, a time or both by ISO 8601; None if *text* is not one.

    Up to 19 digits are ms themselves.  *zone* is that of a text without an offset.
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
    local = days * DAY_MS + clock
    offset = match["offset"]
    if offset is None:
        return zone.to_utc(local)
    return local - _offset(offset)


def _days(match: re.Match[str]) -> int | None:
    if match["year"] is None:
        return 0
    year = int(match["year"])
    if match["week"] is not None:
        monday = days(year, 1, 4)
        monday += 1 - weekday(monday) + 7 * (int(match["week"]) - 1)
        found = monday + int(match["weekday"] or 1) - 1
        is_one = 1 <= int(match["weekday"] or 1) <= 7 and week(found)[0] == year
        return found if is_one else None
    if match["ordinal"] is not None:
        found = days(year, 1, 1) + int(match["ordinal"]) - 1
        return found if date(found).year == year else None
    month, day = int(match["month"] or 1), int(match["day"] or 1)
    if not 1 <= month <= 12:
        return None
    found = days(year, month, day)
    return found if date(found) == (year, month, day) else None


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
