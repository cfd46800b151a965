"""The statements that create a table, in the dialect of each engine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kbackup.errors import ConfigurationError
from kbackup.naming import View
from kbackup.table_parts import Column, Files, Level, quoted, text


@dataclass(frozen=True, slots=True)
class Table:
    """A topic's objects as a table.

    Attributes:
        name: Its name, after that of its database if one is given; both in backquotes.
        format: The name of the files' format.
        files: What they are to the engines.
        columns: The columns that are read from the files: not those from the folders.
        levels: The columns from the folders, outermost first.
        location: URL of the topic's folder, ending in a slash.
        view: The part of the records that the rows hold.
        has_others: The same folders have objects that are not rows: keys, headers, or those of
            another layout or format.
        names: What the names of its objects match, where other topics share its folders; empty
            where the folders are its own.
    """

    name: str
    format: str
    files: Files
    columns: Sequence[Column]
    levels: Sequence[Level]
    location: str
    view: View = View.RECORD
    has_others: bool = False
    names: str = ""


def athena(table: Table) -> str:
    """Return the statement for Athena: its partitions are projected, so none must be added.

    Raises:
        ConfigurationError: If Athena would read other objects as rows too, or cannot read the
            format.
    """
    _refuse_others(table, "Athena")
    lines = [*_external(table, table.levels), *_stored_as(table, "Athena")]
    properties = {"projection.enabled": "true"}
    for level in table.levels:
        for name, value in level.projection:
            properties[f"projection.{level.column.name}.{name}"] = value
    path = "/".join(level.path for level in table.levels)
    properties["storage.location.template"] = f"{table.location}{path}/"
    return _ended([*lines, _location(table.location), *_properties(properties)])


def hive(table: Table) -> str:
    """Return the statements for Hive; the second one finds the partitions that are there.

    Raises:
        ConfigurationError: If Hive would read other objects as rows too, does not find the
            folders, or cannot read the format.
    """
    _refuse_others(table, "Hive")
    _refuse_foreign_folders(table, "Hive")
    lines = [*_external(table, table.levels), *_stored_as(table, "Hive")]
    statement = _ended([*lines, _location(_s3a(table.location))])
    return f"{statement}\n\n{_repair(table)}"


def spark(table: Table) -> str:
    """Return the statements for Spark SQL.

    Spark reads every object of a table that its catalog keeps.  Where some are no rows, it is a
    view of the session, which goes by the names of the objects; its partitions need no finding.

    Raises:
        ConfigurationError: If Spark does not find the folders, or cannot read the format.
    """
    _refuse_foreign_folders(table, "Spark")
    if not table.files.source:
        raise _unreadable(table, "Spark")
    rows = _columns([*table.columns, *(level.column for level in table.levels)])
    if table.has_others:
        name = table.name.rpartition(".")[2]  # no database has a view of a session
        root = _s3a(table.location)
        if table.names:
            place = (
                f"path {text(root)}, pathGlobFilter '{_glob(table)}', recursiveFileLookup 'true'"
            )
        else:  # other folders, as of tombstones, would contradict those of the rows
            folders = f"{root}{table.levels[0].column.name}=*"
            place = f"path {text(folders)}, basePath {text(root)}, pathGlobFilter '{_glob(table)}'"
        head = f"CREATE OR REPLACE TEMPORARY VIEW {name} ("
        return _ended([head, rows, ")", f"USING {table.files.source}", f"OPTIONS ({place})"])
    names = ", ".join(quoted(level.column.name) for level in table.levels)
    lines = [f"CREATE TABLE {table.name} (", rows, ")", f"USING {table.files.source}"]
    lines += [f"PARTITIONED BY ({names})", _location(_s3a(table.location))]
    return f"{_ended(lines)}\n\n{_repair(table)}"


ENGINES: Final[Mapping[str, Callable[[Table], str]]] = MappingProxyType(
    {"athena": athena, "hive": hive, "spark": spark}
)
"""The engines, by the words of ``--engine``."""


def _external(table: Table, levels: Sequence[Level]) -> Iterator[str]:
    yield f"CREATE EXTERNAL TABLE {table.name} ("
    yield _columns(table.columns)
    yield ")"
    yield "PARTITIONED BY ("
    yield _columns([level.column for level in levels])
    yield ")"


def _columns(columns: Sequence[Column]) -> str:
    return ",\n".join(f"  {quoted(one.name)} {one.type}" for one in columns)


def _stored_as(table: Table, engine: str) -> Sequence[str]:
    away = {level.column.name.lower() for level in table.levels}
    lines = table.files.stored_as(engine.lower(), away)
    if not lines:
        raise _unreadable(table, engine)
    return lines


def _properties(properties: Mapping[str, str]) -> Iterator[str]:
    rows = [f"  '{name}' = {text(value)}" for name, value in properties.items()]
    yield "TBLPROPERTIES ("
    yield ",\n".join(rows)
    yield ")"


def _location(url: str) -> str:
    return f"LOCATION {text(url)}"


def _s3a(url: str) -> str:
    """Return the URL as Hadoop's own client has it."""
    return url.replace("s3://", "s3a://", 1)


def _repair(table: Table) -> str:
    return f"MSCK REPAIR TABLE {table.name};"


def _glob(table: Table) -> str:
    """Return what the names of the objects match that are rows, however they are compressed."""
    if table.names:
        return table.names
    part = View.RECORD if table.view is View.RECORD else ""
    return f"*[0-9]{part}{{{','.join(table.files.extensions)}}}"


def _ended(lines: Sequence[str]) -> str:
    return "\n".join(lines) + ";"


def _unreadable(table: Table, engine: str) -> ConfigurationError:
    return ConfigurationError(
        f"{engine} cannot read the files of {table.name}",
        f"files of the {table.format} format have no reader there",
        "query the backup with kbackup restore query",
    )


def _refuse_others(table: Table, engine: str) -> None:
    others = "keys, headers or objects of another format"
    if table.names:
        others = "indexes and the objects of other topics"
    if table.has_others:
        raise ConfigurationError(
            f"{engine} would read other objects as rows of {table.name}",
            f"{others} are in the same folders, and it reads every object there",
            "take --engine spark, which can leave them out, or back up whole records",
        )


def _refuse_foreign_folders(table: Table, engine: str) -> None:
    for level in table.levels:
        if not level.is_hive:
            raise ConfigurationError(
                f"{engine} does not find the folders {level.path}",
                f"it wants folders called {level.column.name}=VALUE",
                "take --engine athena, or query the backup with kbackup restore query",
            )
