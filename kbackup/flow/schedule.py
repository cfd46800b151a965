"""Boundaries of the wall clock at which files close: ``rotate.schedule.interval.ms``."""

from dataclasses import dataclass

from kbackup.joda import zones
from kbackup.joda.calendar import DAY_MS


@dataclass(frozen=True, slots=True)
class Schedule:
    """Every *interval_ms* from local midnight on; the last slot of a day may be short.

    Attributes:
        interval_ms: ms, at least 1.
        timezone: A zone that `zones.by_id` knows.
    """

    interval_ms: int
    timezone: str

    def next(self, now_ms: int) -> int:
        """Return the first boundary after *now_ms*, both in ms since the epoch.

        Days of 23 and 25 hours are honoured.  Source: storage-common 9bb1f372,
        ``DateTimeUtils.getNextTimeAdjustedByDay``.
        """
        zone = zones.by_id(self.timezone)
        day = (now_ms + zone.offset(now_ms)) // DAY_MS
        start, end = (zone.to_utc(at * DAY_MS) for at in (day, day + 1))
        slot = (now_ms - start) // self.interval_ms + 1
        return min(start + slot * self.interval_ms, end)
