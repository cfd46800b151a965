"""``year=2026/month=11/day=22``: a directory for each day of a zone."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from kbackup.partitioners import delimiter
from kbackup.partitioners.time_based import TimeBasedPartitioner, buckets

_PARTS: Final = ("'year'=YYYY", "'month'=MM", "'day'=dd")
_DAY_MS: Final = 86_400_000


class DailyPartitioner(TimeBasedPartitioner):
    """A directory for each day, of 24 hours of local time."""

    class_names: ClassVar[tuple[str, ...]] = ("DailyPartitioner",)

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take zone and language; the rest is given."""
        self._path = delimiter(options).join(_PARTS)
        self._buckets = buckets(self._path, _DAY_MS, options)
