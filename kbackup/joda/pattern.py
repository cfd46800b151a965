"""``path.format``: a Joda-Time pattern, compiled once, that formats moments.

Its letters differ from those of ``SimpleDateFormat``: ``Y`` is the year, ``x`` the week-based
year.  Source: Joda-Time 2.13, ``DateTimeFormat.parsePatternTo``, ISO chronology.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from kbackup.joda import calendar
from kbackup.joda.names import Names
from kbackup.joda.zones import Zone, offset_text

_TOKEN: Final = re.compile(r"([A-Za-z])\1*|(?:'[^']*(?:'|\Z)|[^A-Za-z'])+")
"""A run of one letter, or literal text: quoted, with '' for a quote, or without letters."""


@dataclass(frozen=True)
class _Moment:
    """A moment in a zone.

    Attributes:
        utc: ms since the epoch.
        local: ms of local time.
        zone: The zone.
    """

    utc: int
    local: int
    zone: Zone

    @cached_property
    def days(self) -> int:
        return self.local // calendar.DAY_MS

    @cached_property
    def date(self) -> calendar.Date:
        return calendar.date(self.days)

    @property
    def ms(self) -> int:
        return self.local % calendar.DAY_MS

    @property
    def hour(self) -> int:
        return self.ms // 3_600_000

    @property
    def year_of_era(self) -> int:
        return self.date.year if self.date.year > 0 else 1 - self.date.year


_Print = Callable[[_Moment], str]
_COUNTED: Final[dict[str, Callable[[_Moment], int]]] = {
    "d": lambda at: at.date.day,
    "D": lambda at: at.days - calendar.days(at.date.year, 1, 1) + 1,
    "e": lambda at: calendar.weekday(at.days),
    "w": lambda at: calendar.week(at.days)[1],
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
    """A pattern with the words of one language; `printed` formats a moment.

    Attributes:
        text: The pattern as given.
        names: The names of months and days.
    """

    text: str
    names: Names

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


def _part(token: str, names: Names) -> _Print:
    """Compile one token.

    Raises:
        ValueError: If its letter has no meaning, or its words are not known here.
    """
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


def _year(letter: str, width: int, _names: Names) -> _Print | None:
    year: dict[str, Callable[[_Moment], int]] = {
        "y": lambda at: at.date.year,
        "Y": lambda at: at.year_of_era,
        "x": lambda at: calendar.week(at.days)[0],
    }
    if letter not in year:
        return None
    if width == 2:
        two = year["x" if letter == "x" else "y"]
        return lambda at: f"{abs(two(at)) % 100:02d}"
    return lambda at: _number(year[letter](at), width)


def _word(letter: str, width: int, names: Names) -> _Print | None:
    months = names.months if width > 3 else names.short_months
    days = names.days if width > 3 else names.short_days
    words: dict[str, _Print] = {
        "M": lambda at: months[at.date.month - 1],
        "E": lambda at: days[calendar.weekday(at.days) - 1],
        "a": lambda at: names.halves[at.hour // 12],
        "G": lambda at: names.eras[at.date.year > 0],
        "S": lambda at: f"{at.ms % 1000:03d}".ljust(width, "0")[:width],
    }
    if letter == "M" and width < 3:
        return lambda at: _number(at.date.month, width)
    return words.get(letter)


def _zone(letter: str, width: int, names: Names) -> _Print | None:
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
