"""The parts of a table over a backup, for the engines that read one: Athena, Hive and Spark.

A format describes what its files are to them (`Files`), a partitioner its directories (`Level`);
`kbackup.inspect` makes a statement of both.  Types are Hive's, which Athena and Spark accept too.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from kbackup.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column: its name in the files, and its type, such as ``array<struct<key:string>>``."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Files:
    """What the files of a format are to the engines.

    Attributes:
        columns: The columns of the rows.
        extensions: How the names of the files end, for every codec.
        source: Spark's name of the format, as in ``USING parquet``; empty where Spark cannot
            read it.
        stored_as: Given an engine, "athena" or "hive", and the names of columns, in lower case,
            that are read from directories instead: the lines of ``CREATE EXTERNAL TABLE`` that
            say how to read a file; empty where the engine cannot.
    """

    columns: Sequence[TableColumn]
    extensions: Sequence[str]
    source: str
    stored_as: Callable[[str, Collection[str]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Level:
    """One level of directories, which is a partition column.

    Attributes:
        column: Its name and type.
        path: Its directory, with ``${name}`` for the value, such as ``year=${year}``.
        projection: Athena's projection properties of its values, by their last part.
        is_hive: Directories are named ``name=value``, so that Hive and Spark find them by
            themselves.
    """

    column: TableColumn
    path: str
    projection: Sequence[tuple[str, str]]
    is_hive: bool = True


def number(name: str, first: int, last: int, digits: int = 0) -> Level:
    """Return the level of a whole number, from *first* to *last*, with at least *digits*."""
    projection = [("type", "integer"), ("range", f"{first},{last}")]
    if digits:
        projection.append(("digits", str(digits)))
    return Level(TableColumn(name, "int"), f"{name}=${{{name}}}", tuple(projection))


def injected(column: TableColumn, directory: str) -> Level:
    """Return a level ``directory=value`` whose values are unknown: each query names them."""
    path = f"{directory}=${{{column.name}}}"
    return Level(column, path, (("type", "injected"),), is_hive=column.name == directory)


def struct(fields: Iterable[tuple[str, str]]) -> str:
    """Return the type of a struct of *fields*, each a name and a type."""
    return f"struct<{','.join(f'{_nested(name)}:{kind}' for name, kind in fields)}>"


def _nested(name: str) -> str:
    """Return the name of a field in a struct, in backquotes unless it is a plain word."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else quoted(name)


def quoted(name: str) -> str:
    """Return a name in backquotes."""
    return f"`{name.replace('`', '``')}`"


def text(value: str) -> str:
    """Return *value* as a literal, in quotes."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def not_a_table(why: str) -> ConfigurationError:
    """Return the error of objects that cannot be a table."""
    return ConfigurationError(
        "the newest object cannot be declared as a table", why,
        "query it with kbackup restore query, which reads any backup",
    )  # fmt: skip
