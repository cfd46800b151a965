"""The options of directories by time."""

from typing import Final

from kbackup.options import integer, text

LOCALE: Final = text(
    "locale",
    "Language of the names of months and days in directories by time; a bare language has names.",
    commands="sink",
    example="en",
    is_required=True,
)
PATH_FORMAT: Final = text(
    "path.format",
    "Pattern of Joda-Time by which directories are named.",
    commands="sink",
    example="'year'=YYYY/'month'=MM/'day'=dd",
    is_required=True,
)
DURATION: Final = integer(
    "partition.duration.ms",
    "Span of time in ms that shares a directory; no more than the smallest unit of path.format.",
    -1,
    commands="sink",
    example="3600000",
    is_required=True,
)

OPTIONS: Final = (LOCALE,)
"""The options of days and hours."""
ALL_OPTIONS: Final = (LOCALE, PATH_FORMAT, DURATION)
"""The options of spans of any length."""
