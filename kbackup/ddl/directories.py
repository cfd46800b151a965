"""The partition columns of a backup's table, from its folders."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kbackup.config import Settings
from kbackup.ddl.columns import Column
from kbackup.errors import ConfigurationError

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

_FIXED: Final = {
    "daily": "'year'=YYYY/'month'=MM/'day'=dd",
    "hourly": "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH",
}


@dataclass(frozen=True, slots=True)
class Level:
    """One partition column.

    Attributes:
        column: Its name and type.
        path: Its folder, with ``${name}`` for the value, such as ``year=${year}``.
        projection: Athena's projection properties of its values, by their last part.
        is_hive: Folders are named ``name=value``, so that Hive and Spark find them by themselves.
    """

    column: Column
    path: str
    projection: tuple[tuple[str, str], ...]
    is_hive: bool = True


def levels(
    settings: Settings, columns: Sequence[Column], partitions: int, directories: Sequence[str]
) -> tuple[Level, ...]:
    """Return the partition columns of what a configuration writes, the outermost first.

    Args:
        settings: The configuration.
        columns: The files' columns: a folder's value has the type of its field.
        partitions: The topic's number of partitions.
        directories: Existing folders, such as ``year=2026/month=11``, with slashes.

    Raises:
        ConfigurationError: If they cannot be the folders of a table.
    """
    if settings.directory_delim != "/":
        raise ConfigurationError(
            f"directory.delim {settings.directory_delim!r} makes no folders",
            "the engines find the files of a table by its folders",
            "ask the backup with kbackup restore query",
        )
    name = settings.partitioner_class
    options = settings.options_of("partitioners")
    found: tuple[Level, ...]
    if name == "default":
        found = (_number("partition", 0, max(0, partitions - 1)),)
    elif name == "field":
        found = tuple(_field(one, columns) for one in options["partition.field.name"])
    elif name in _FIXED or name == "time":
        found = _by_time(_FIXED.get(name) or str(options["path.format"]), directories)
    else:
        raise ConfigurationError(
            f"partitioner.class {name} is not known here",
            "nothing says what its folders mean", "write the statement by hand",
        )  # fmt: skip
    affix = settings.s3_schema_partition_affix_type
    if affix == "NONE":
        return found
    schema = _injected(Column("schema_name", "string"), "schema_name")
    return (schema, *found) if affix == "PREFIX" else (*found, schema)


def _number(name: str, first: int, last: int, digits: int = 0) -> Level:
    told = [("type", "integer"), ("range", f"{first},{last}")]
    if digits:
        told.append(("digits", str(digits)))
    return Level(Column(name, "int"), f"{name}=${{{name}}}", tuple(told))


def _injected(column: Column, folder: str) -> Level:
    """Return a level whose values cannot be predicted: each query names them."""
    return Level(column, f"{folder}=${{{column.name}}}", (("type", "injected"),))


def _field(name: str, columns: Sequence[Column]) -> Level:
    type_of: Callable[[str], str] = {one.name: one.type for one in columns}.get  # type: ignore[assignment]
    kind = type_of(name) or "string"
    is_whole = kind in {"tinyint", "smallint", "int", "bigint"}
    column = Column(re.sub(r"\W", "_", name), kind if is_whole else "string")
    level = _injected(column, name)
    return replace(level, is_hive=column.name == name)


def _by_time(pattern: str, directories: Sequence[str]) -> tuple[Level, ...]:
    """Return the levels of a pattern: a number per folder, or one date for all of them."""
    parts = [_TOKEN.fullmatch(part) for part in pattern.strip("/").split("/")]
    if all(parts):
        return tuple(
            _time_number(part["name"], part["letters"], directories) for part in parts if part
        )
    return (_date(pattern.strip("/"), directories),)


_TOKEN: Final = re.compile(
    r"'(?P<name>[A-Za-z_]\w*)(='|'=)(?P<letters>YYYY|yyyy|MM?|dd?|HH?|mm?)", re.ASCII
)
"""One folder with a name and a number: ``'month'=MM`` or, equivalently, ``'month='MM``."""


def _time_number(name: str, letters: str, directories: Sequence[str]) -> Level:
    if letters[0] in "Yy":
        found = re.findall(
            rf"(?:^|/){re.escape(name)}=(\d{{4}})(?=/|$)", "\n".join(directories), re.MULTILINE
        )
        years = sorted(map(int, found)) or [2020]
        return _number(name, years[0], years[-1] + YEARS_AHEAD)
    return _number(name, *_RANGES[letters[0]], digits=len(letters) if len(letters) > 1 else 0)


def _date(pattern: str, directories: Sequence[str]) -> Level:
    """Return one column for all folders, which Athena formats like their names."""
    bare = re.sub(r"'[^']*'", "", pattern)
    letters = dict.fromkeys(re.findall(r"[A-Za-z]", bare))
    if not letters or not letters.keys() <= _UNITS.keys() or "''" in pattern:
        raise ConfigurationError(
            f"path.format {pattern} cannot be declared",
            "Athena counts years (YYYY), months (MM), days (dd), hours (HH) and minutes (mm) alone",
            "ask the backup with kbackup restore query, or write the statement by hand",
        )
    unit = list(_UNITS.values())[max(list(_UNITS).index(letter) for letter in letters)]
    # Joda's Y is the year, SimpleDateFormat's is the week-based year
    quoted = re.split(r"('[^']*')", pattern)
    text = "".join(one if one.startswith("'") else one.replace("Y", "y") for one in quoted)
    told = (
        ("type", "date"), ("range", f"{min(directories, default='NOW-10YEARS')},NOW+1YEARS"),
        ("format", text), ("interval", "1"), ("interval.unit", unit),
    )  # fmt: skip
    return Level(Column("dt", "string"), "${dt}", told, is_hive=False)
