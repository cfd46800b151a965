"""A clock that a test moves by hand."""

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass
class HandClock:
    """A `kbackup.clock.Clock`."""

    at_ms: float = 1_800_000_000_000  # what it shows, in ms since the epoch
    ahead_ms: float = 0  # how far its time of day is ahead of that; what has passed is not

    def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        self.at_ms += seconds * 1000

    def now(self) -> datetime:
        """As the clock shows it."""
        return datetime.fromtimestamp((self.at_ms + self.ahead_ms) / 1000, UTC)

    def ms(self) -> int:
        """As the clock shows it."""
        return int(self.at_ms + self.ahead_ms)

    def steady_s(self) -> float:
        """As the clock shows it."""
        return self.at_ms / 1000
