"""Tell the time by one `Clock`, and write times in one way.

A clock is plain data and crosses processes with a job, so a task dates what it writes by the same
one as its driver does, whether that is the host's or one that a test moves.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """The time as a run sees it."""

    def now(self) -> datetime:
        """Return the time of day; aware."""
        ...

    def ms(self) -> int:
        """Return the same in ms since the epoch."""
        ...

    def steady_s(self) -> float:
        """Return seconds by a clock that nobody sets, from any beginning."""
        ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The host's `Clock`."""

    def now(self) -> datetime:
        """Return the time of day."""
        return datetime.now(UTC)

    def ms(self) -> int:
        """Return ms since the epoch."""
        return time.time_ns() // 1_000_000

    def steady_s(self) -> float:
        """Return ``time.monotonic``."""
        return time.monotonic()


@dataclass(frozen=True, slots=True)
class StoppedClock:
    """A `Clock` that stands still: the time of a question about what a bucket holds."""

    moment: datetime

    def now(self) -> datetime:
        """Return the moment."""
        return self.moment

    def ms(self) -> int:
        """Return it in ms since the epoch."""
        return int(self.moment.timestamp() * 1000)

    def steady_s(self) -> float:
        """Return it in seconds since the epoch."""
        return self.moment.timestamp()


def moment_of(ms: float) -> datetime | None:
    """Return *ms* since the epoch as a moment in UTC; None where no calendar has it."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return None


def rfc3339(moment: datetime) -> str:
    """Return an aware *moment* as text; fractions of a second are cut off."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def rfc3339_ms(moment: datetime) -> str:
    """Return an aware *moment* as text with three digits of a second; the rest is cut off."""
    return rfc3339_in_zone(moment.astimezone(UTC))


def shown_ms(ms: int) -> str:
    """Return *ms* since the epoch as text, without the fraction where it is none."""
    moment = moment_of(ms)
    return str(ms) if moment is None else rfc3339_ms(moment).replace(".000Z", "Z")


def rfc3339_in_zone(moment: datetime) -> str:
    """Return an aware *moment* as `rfc3339_ms` does, with its own distance from UTC."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_span(seconds: float) -> str:
    """Return a duration for people: ``24 h``, ``7 d``, ``90 s``."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
