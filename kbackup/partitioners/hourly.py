"""``year=2026/month=11/day=22/hour=02``: a directory for each hour of a zone."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from kbackup.partitioners import delimiter
from kbackup.partitioners.time_based import TimeBasedPartitioner, buckets

_PARTS: Final = ("'year'=YYYY", "'month'=MM", "'day'=dd", "'hour'=HH")
_HOUR_MS: Final = 3_600_000


class HourlyPartitioner(TimeBasedPartitioner):
    """A directory for each hour."""

    class_names: ClassVar[tuple[str, ...]] = ("HourlyPartitioner",)

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take zone and language; the rest is given."""
        self._path = delimiter(options).join(_PARTS)
        self._buckets = buckets(self._path, _HOUR_MS, options)
