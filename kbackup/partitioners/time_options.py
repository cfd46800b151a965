"""The options of directories by time."""

import re
from collections.abc import Callable
from typing import Final

from kbackup.options import Suspicion, integer, text


def _bare(pattern: str) -> str:
    """Return *pattern* without the text between its quotes."""
    return re.sub(r"'[^']*'", "", pattern)


def _has(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.search(pattern, _bare(text)) is not None


def _swaps_month(text: str) -> bool:
    """Whether ``mm`` (minutes) stands where a month would: no hour before it."""
    return "mm" in _bare(text) and "H" not in _bare(text).partition("mm")[0]


def _is_open(text: str) -> bool:
    """Whether a quote lacks its end: two quotes are a quote, or begin and end a text."""
    return text.count("'") % 2 == 1


def _below(pattern: str) -> None:
    """Refuse a pattern whose directories leave the topic's."""
    if {level.replace("'", "").strip() for level in pattern.split("/")} & {".", ".."}:
        raise ValueError("expected directories below the topic's: no level may be . or ..")


LOCALE: Final = text(
    "locale",
    "Language of month and day names in time-based directories; without a region, such as de.",
    commands="sink",
    example="en",
    is_required=True,
    suspicions=(
        Suspicion(
            lambda text: re.search(r"[-_]", text) is not None or text.isupper(),
            "only a bare language has an effect; with a region the root locale's names are used",
            "write en, not en-US, unless the objects that exist were written so",
        ),
    ),
)
PATH_FORMAT: Final = text(
    "path.format",
    "Joda-Time pattern for the names of directories.",
    commands="sink",
    example="'year'=YYYY/'month'=MM/'day'=dd",
    is_required=True,
    check=_below,
    suspicions=(
        Suspicion(_swaps_month, "mm is minutes, and no hour is before it", "MM?"),
        Suspicion(_has("DD"), "DD is the day of the year", "dd?"),
        Suspicion(
            _has("(?=.*Y)(?=.*w)"),
            "YYYY is the calendar year; the year that weeks belong to is xxxx",
            "xxxx?",
        ),
        Suspicion(
            _is_open,
            "a quote has no end, so all that follows it is text, and no time",
            "write a quote before and after each text: 'year'=YYYY",
        ),
    ),
)
DURATION: Final = integer(
    "partition.duration.ms",
    "Milliseconds of time that share a directory; at most the smallest unit of path.format.",
    -1,
    commands="sink",
    example="3600000",
    is_required=True,
)

OPTIONS: Final = (LOCALE,)
"""The options of days and hours."""
ALL_OPTIONS: Final = (LOCALE, PATH_FORMAT, DURATION)
"""The options of spans of any length."""
