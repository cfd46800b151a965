"""Time zones by Joda's ids: names of the tz database, ``UTC``, and fixed offsets.

Source: Joda-Time 2.13, ``DateTimeZone.forID``, ``convertLocalToUTC``.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

_OFFSET: Final = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<h>[01]\d|2[0-3])(?::?(?P<m>[0-5]\d)(?::?(?P<s>[0-5]\d))?)?",
    re.ASCII,
)
_UTC: Final = frozenset({"UTC", "UT", "Z", "GMT"})
_FIRST: Final = -62_135_510_400_000
_LAST: Final = 253_370_764_800_000
"""Between these ms ``datetime`` supports zones; one more day on each side is still in its range."""
_CYCLE_MS: Final = 146_097 * 86_400_000
"""400 years, after which the calendar repeats, and with it a zone's rules."""


@dataclass(frozen=True, slots=True)
class Zone:
    """One time zone.

    Attributes:
        id: As Joda prints it.
        rules: From the tz database; None if the offset is fixed.
        fixed_ms: The offset if it is fixed.
    """

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
def by_id(name: str) -> Zone:
    """Return the zone with Joda's id *name*; case matters.

    Raises:
        ValueError: If there is none.
    """
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
