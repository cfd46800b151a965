"""What directories named by time are to the engines that read tables."""

import re
from collections.abc import Sequence
from typing import Final

from kbackup.errors import ConfigurationError
from kbackup.partitioners.time_options import PATH_FORMAT
from kbackup.table_parts import Column, Level, number

_UNITS: Final = {
    "Y": "YEARS",
    "y": "YEARS",
    "M": "MONTHS",
    "d": "DAYS",
    "H": "HOURS",
    "m": "MINUTES",
}
"""Joda's letters for units that Athena can project, coarsest first, with Athena's names."""

_RANGES: Final = {"M": (1, 12), "d": (1, 31), "H": (0, 23), "m": (0, 59)}
YEARS_AHEAD: Final = 10
"""How far beyond the newest directory a projection of years extends."""


def levels(pattern: str, directories: Sequence[str]) -> tuple[Level, ...]:
    """Return the levels of a pattern: a number per directory, or one date for all of them."""
    parts = [_TOKEN.fullmatch(part) for part in pattern.strip("/").split("/")]
    if all(parts):
        return tuple(
            _time_number(part["name"], part["letters"], directories) for part in parts if part
        )
    return (_date(pattern.strip("/"), directories),)


_TOKEN: Final = re.compile(
    r"'(?P<name>[A-Za-z_]\w*)(='|'=)(?P<letters>YYYY|yyyy|MM?|dd?|HH?|mm?)", re.ASCII
)
"""One directory with a name and a number: ``'month'=MM`` or, equivalently, ``'month='MM``."""


def _time_number(name: str, letters: str, directories: Sequence[str]) -> Level:
    if letters[0] in "Yy":
        found = re.findall(
            rf"(?:^|/){re.escape(name)}=(\d{{4}})(?=/|$)", "\n".join(directories), re.MULTILINE
        )
        years = sorted(map(int, found)) or [2020]
        return number(name, years[0], years[-1] + YEARS_AHEAD)
    return number(name, *_RANGES[letters[0]], digits=len(letters) if len(letters) > 1 else 0)


def _date(pattern: str, directories: Sequence[str]) -> Level:
    """Return one column for all directories, which Athena formats like their names."""
    bare = re.sub(r"'[^']*'", "", pattern)
    letters = dict.fromkeys(re.findall(r"[A-Za-z]", bare))
    if not letters or not letters.keys() <= _UNITS.keys() or "''" in pattern:
        raise ConfigurationError(
            f"{PATH_FORMAT.name} {pattern} cannot be declared",
            "Athena counts only years (YYYY), months (MM), days (dd), hours (HH) and minutes (mm)",
            "query the backup with kbackup restore query, or write the statement by hand",
        )
    unit = list(_UNITS.values())[max(list(_UNITS).index(letter) for letter in letters)]
    # Joda's Y is the year, SimpleDateFormat's is the week-based year
    quoted = re.split(r"('[^']*')", pattern)
    text = "".join(one if one.startswith("'") else one.replace("Y", "y") for one in quoted)
    projection = (
        ("type", "date"), ("range", f"{min(directories, default='NOW-10YEARS')},NOW+1YEARS"),
        ("format", text), ("interval", "1"), ("interval.unit", unit),
    )  # fmt: skip
    return Level(Column("dt", "string"), "${dt}", projection, is_hive=False)
