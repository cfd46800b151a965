"""The time: one way to ask for it, for drivers and tasks alike.

It is plain data and crosses processes with a job, so a task dates what it writes by the same clock
as its driver does, whether that is the host's or one that a test moves.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
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
