"""Numbers as people read them: grouped digits, sizes, times, counts.

JSON and log lines have plain digits; these are for tables and sentences.
"""

from typing import Final

from kbackup.errors import form

THIN: Final = "\u2009"
"""The thin space between groups of digits."""

UNKNOWN: Final = "?"

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_THOUSANDS: Final = ("", "k", "M", "G", "T")


def digits(number: int | None) -> str:
    """Return *number* in groups of three digits, ``?`` where it is unknown."""
    return UNKNOWN if number is None else f"{number:,}".replace(",", THIN)


def size(count: int | None, space: str = " ") -> str:
    """Return a number of bytes in the unit that leaves one to four digits: ``1.2 GiB``."""
    if count is None:
        return UNKNOWN
    return _scaled(count, 1024, _UNITS, space)


def rate(per_second: float) -> str:
    """Return a rate in few characters: ``42.9k``."""
    if per_second < 1000:
        return f"{per_second:.0f}"
    scaled, power = per_second, 0
    while scaled >= 999.95 and power < len(_THOUSANDS) - 1:
        scaled, power = scaled / 1000, power + 1
    return f"{scaled:.1f}{_THOUSANDS[power]}"


def duration(seconds: float | None) -> str:
    """Return a time span to the second: ``1:44``, ``26:03:09``."""
    if seconds is None:
        return UNKNOWN
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def count(number: int | None, noun: str) -> str:
    """Return *number* with its noun, in the plural where it is not one: ``2 objects``."""
    return f"{digits(number)} {form(number, noun)}"


def _scaled(count: int, step: int, units: tuple[str, ...], space: str) -> str:
    value, power = float(count), 0
    while value >= step - 0.5 and power < len(units) - 1:
        value, power = value / step, power + 1
    shown = f"{value:.1f}" if power and value < 9.95 else f"{value:.0f}"
    return f"{shown}{space}{units[power]}"
