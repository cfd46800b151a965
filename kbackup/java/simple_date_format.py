"""Java's ``SimpleDateFormat`` in UTC and English: times to text by column, and text to times.

Its letters are not Joda's: ``u`` is the day of the week, ``S`` a number of milliseconds and no
fraction, ``Y`` the year that weeks belong to.  Weeks begin on Sunday, and the first one has the
first of January in it, as in the US locale that most workers run under.

Times before 15 October 1582, where Java changes to the Julian calendar, and after the year 9999
are refused.

Source: documentation of ``java.text.SimpleDateFormat``, Java 17.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.java import joda
from kbackup.java.joda import DAY_MS

FIRST_MS: Final = -12_219_292_800_000
LAST_MS: Final = 253_402_300_799_999
"""The first and the last time that can be formatted."""

_TOKEN: Final = re.compile(
    r"(?P<letter>[A-Za-z])(?P=letter)*"
    r"|'(?P<quoted>(?:[^']|'')*)'|(?P<plain>[^A-Za-z']+)"
)
_MONTHS: Final = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
]  # fmt: skip
_DAYS: Final = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
_OFFSET: Final = re.compile(r"([+-])(\d\d?):?(\d\d)?")

_Column = Callable[[pa.Array], pa.Array]


def _names(words: list[str], at: pa.Array, count: int) -> pa.StringArray:
    found = words if count > 3 else [word[:3] for word in words]
    return pa.array(found, pa.string()).take(at)


def _saturday(times: pa.Array) -> pa.Array:
    """Return the last day of each time's week."""
    left = pc.subtract(6, pc.day_of_week(times, week_start=7))
    days = pc.add(_days(times), left)
    return pc.multiply(days, DAY_MS).cast(pa.timestamp("ms"))


def _days(times: pa.Array) -> pa.Int64Array:
    return pc.divide(pc.floor_temporal(times, unit="day").cast(pa.int64()), DAY_MS)


def _hour12(times: pa.Array, zero: int) -> pa.Array:
    hour = pc.hour(times)
    hour = pc.subtract(hour, pc.multiply(pc.divide(hour, 12), 12))
    return pc.if_else(pc.equal(hour, 0), zero, hour)


def _week_in_month(times: pa.Array) -> pa.Array:
    first = pc.floor_temporal(times, unit="month")
    days = pc.add(pc.day(times), pc.day_of_week(first, week_start=7))
    return pc.add(pc.divide(pc.subtract(days, 1), 7), 1)


_NUMBERS: Final[dict[str, _Column]] = {
    "d": pc.day,
    "D": pc.day_of_year,
    "F": lambda times: pc.add(pc.divide(pc.subtract(pc.day(times), 1), 7), 1),
    "w": lambda times: pc.add(pc.divide(pc.subtract(pc.day_of_year(_saturday(times)), 1), 7), 1),
    "W": _week_in_month,
    "u": lambda times: pc.day_of_week(times, count_from_zero=False),
    "H": pc.hour,
    "k": lambda times: pc.if_else(pc.equal(pc.hour(times), 0), 24, pc.hour(times)),
    "K": partial(_hour12, zero=0),
    "h": partial(_hour12, zero=12),
    "m": pc.minute,
    "s": pc.second,
    "S": pc.millisecond,
}


class SimpleDateFormat:
    """One pattern, parsed once.

    Raises:
        ValueError: If it is not a pattern.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._tokens: list[tuple[str, int] | str] = []
        at = 0
        while at < len(pattern):
            token = _TOKEN.match(pattern, at)
            if token is None:
                raise ValueError(f"the quote at character {at} of {pattern!r} is not closed")
            at = token.end()
            letter = token["letter"]
            if letter is None:
                quoted = token["quoted"]
                self._tokens.append(
                    token["plain"] if quoted is None else quoted.replace("''", "'") or "'"
                )
            elif letter in _NUMBERS or letter in "GyYMLEazZX":
                if letter == "X" and len(token[0]) > 3:
                    raise ValueError(f"{token[0]} is too long: X, XX or XXX")
                self._tokens.append((letter, len(token[0])))
            else:
                raise ValueError(f"{letter!r} is not a letter of SimpleDateFormat")
        self._parts = re.compile(self._regex(), re.IGNORECASE)

    def texts(self, ms: pa.Int64Array) -> pa.StringArray:
        """Return the text of each time, from `FIRST_MS` to `LAST_MS`; null for null."""
        times = ms.cast(pa.timestamp("ms"))
        parts = [
            token if isinstance(token, str) else _text(times, *token) for token in self._tokens
        ]
        if all(isinstance(part, str) for part in parts):
            parts.append(pc.if_else(ms.is_valid(), "", pa.scalar(None, pa.string())))
        return pc.binary_join_element_wise(*parts, "")

    def ms(self, text: str) -> int:
        """Return the time at the beginning of *text*; the rest is ignored, as in Java.

        Raises:
            ValueError: If it does not fit the pattern, or its meaning depends on when or where
                it is read.
        """
        match = self._parts.match(text)
        if match is None:
            raise ValueError(f"{text!r} does not fit the pattern {self.pattern!r}")
        found = {
            token[0]: match[f"p{at}"]
            for at, token in enumerate(self._tokens)
            if not isinstance(token, str)
        }
        if doubtful := sorted(found.keys() & set("wWFuY")):
            raise ValueError(f"the pattern {self.pattern!r} is read with {doubtful[0]!r}")
        ms = _date_ms(found, text) + _clock_ms(found) - _zone_ms(found)
        if not FIRST_MS <= ms <= LAST_MS:
            raise ValueError(f"{text!r} is before 15 October 1582 or after the year 9999")
        return ms

    def _regex(self) -> str:
        pieces = []
        for at, token in enumerate(self._tokens):
            if isinstance(token, str):
                pieces.append(re.escape(token))
                continue
            after = self._tokens[at + 1] if at + 1 < len(self._tokens) else ""
            abuts = not isinstance(after, str) and _is_number(*after)
            pieces.append(f"(?P<p{at}>{_piece(*token, abuts=abuts)})")
        return "".join(pieces)


def _is_number(letter: str, count: int) -> bool:
    return letter in _NUMBERS or letter in "yY" or (letter in "ML" and count < 3)


def _piece(letter: str, count: int, *, abuts: bool) -> str:
    if _is_number(letter, count):
        return rf"\d{{{count}}}" if abuts else r"[ \t]*\d+"
    months = "|".join(f"{name}|{name[:3]}" for name in _MONTHS)
    zone = r"(?:GMT|UTC)?[+-]\d\d?:?\d\d|GMT|UTC|Coordinated Universal Time|Greenwich Mean Time"
    return {
        "M": months,
        "L": months,
        "E": "|".join(f"{name}|{name[:3]}" for name in _DAYS),
        "a": "AM|PM",
        "G": "AD|BC",
        "X": r"Z|[+-]\d\d(?::?\d\d)?",
    }.get(letter, zone)


def _text(times: pa.Array, letter: str, count: int) -> pa.StringArray:
    if letter in _NUMBERS:
        return _padded(_NUMBERS[letter](times), count)
    match letter:
        case "y" | "Y":
            year = pc.year(times if letter == "y" else _saturday(times))
            if count == 2:
                year = pc.subtract(year, pc.multiply(pc.divide(year, 100), 100))
            found = _padded(year, count)
        case "M" | "L" if count < 3:
            found = _padded(pc.month(times), count)
        case "M" | "L":
            found = _names(_MONTHS, pc.subtract(pc.month(times), 1), count)
        case "E":
            found = _names(_DAYS, pc.day_of_week(times, week_start=7), count)
        case "a":
            found = pc.if_else(pc.less(pc.hour(times), 12), "AM", "PM")
        case _:
            long = "Coordinated Universal Time" if count > 3 else "UTC"
            fixed = {"G": "AD", "z": long, "Z": "+0000", "X": "Z"}[letter]
            found = pc.if_else(times.is_valid(), fixed, pa.scalar(None, pa.string()))
    return found


def _padded(number: pa.Array, count: int) -> pa.StringArray:
    text = number.cast(pa.string())
    return pc.utf8_lpad(text, count, "0") if count > 1 else text


def _date_ms(found: dict[str, str], text: str) -> int:
    year = 1970
    if "y" in found:
        digits = found["y"].strip()
        if len(digits) == 2:
            raise ValueError(f"the year of two digits in {text!r} depends on when it is read")
        year = int(digits)
    if found.get("G", "").upper() == "BC":
        raise ValueError(f"{text!r} is before 15 October 1582")
    word = found.get("M") or found.get("L") or "1"
    stripped = word.strip()
    if stripped.isdigit():
        month = int(stripped)
    else:
        month = [name[:3].lower() for name in _MONTHS].index(stripped[:3].lower()) + 1
    more, month = divmod(month - 1, 12)  # lenient: month 13 is the next January
    if not 0 <= year + more <= 9999:
        raise ValueError(f"{text!r} is before 15 October 1582 or after the year 9999")
    day = int(found.get("D") or found.get("d") or 1)
    first = joda.days(year + more, 1 if "D" in found else month + 1, 1)
    return (first + day - 1) * DAY_MS


def _clock_ms(found: dict[str, str]) -> int:
    hour = int(found.get("H", 0))
    if "k" in found:
        hour = int(found["k"]) % 24
    if "K" in found or "h" in found:
        hour = int(found.get("K", found.get("h", 0))) % 12
        hour += 12 * (found.get("a", "").upper() == "PM")
    minute, second, ms = (int(found.get(letter, 0)) for letter in "msS")
    return ((hour * 60 + minute) * 60 + second) * 1000 + ms


def _zone_ms(found: dict[str, str]) -> int:
    text = found.get("X") or found.get("Z") or found.get("z") or ""
    match = _OFFSET.search(text)
    if match is None:
        return 0
    minutes = int(match[2]) * 60 + int(match[3] or 0)
    return minutes * 60_000 * (-1 if match[1] == "-" else 1)
