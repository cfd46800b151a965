"""Boundaries of the wall clock at which files close: ``rotate.schedule.interval.ms``."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True)
class Schedule:
    """Every *interval_ms* from local midnight on; the last slot of a day may be short.

    Attributes:
        interval_ms: ms, at least 1.
        timezone: An IANA name.
    """

    interval_ms: int
    timezone: str

    def next(self, now_ms: int) -> int:
        """Return the first boundary after *now_ms*, both in ms since the epoch.

        Days of 23 and 25 hours are honoured.  Source: storage-common 9bb1f372,
        ``DateTimeUtils.getNextTimeAdjustedByDay``.
        """
        zone = ZoneInfo(self.timezone)
        today = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(zone).date()
        start, end = (
            int(datetime.combine(day, datetime.min.time(), zone).timestamp()) * 1000
            for day in (today, today + timedelta(days=1))
        )
        slot = (now_ms - start) // self.interval_ms + 1
        return min(start + slot * self.interval_ms, end)
