"""The statements that create a table, in the dialect of each engine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kbackup.ddl.columns import Column, quoted
from kbackup.ddl.directories import Level
from kbackup.errors import ConfigurationError
from kbackup.formats import parquet
from kbackup.naming import View

_INPUT: Final = "org.apache.hadoop.hive.ql.io.avro.AvroContainer{}Format"
_EXTENSIONS: Final = {
    "parquet": tuple(parquet.EXTENSIONS.values()),
    "avro": (".avro",),
    "json": (".json", ".json.gz"),
}
_JSON: Final = {
    "athena": "org.openx.data.jsonserde.JsonSerDe",
    "hive": "org.apache.hive.hcatalog.data.JsonSerDe",
}


@dataclass(frozen=True, slots=True)
class Table:
    """A topic's objects as a table.

    Attributes:
        name: Its name, after that of its database if one is given; both in backquotes.
        format: The files' format: ``parquet``, ``avro``, ``json`` or ``text``.
        columns: The columns in the files, without those from the folders.
        levels: The columns from the folders, outermost first.
        location: URL of the topic's folder, ending in a slash.
        view: The part of the records that the rows hold.
        has_others: The same folders have objects that are not rows: keys, headers, or those of
            another layout or format.
        names: What the names of its objects match, where other topics share its folders; empty
            where the folders are its own.
        avro_schema: The schema of Avro files, in JSON, without the columns from the folders.
    """

    name: str
    format: str
    columns: Sequence[Column]
    levels: Sequence[Level]
    location: str
    view: View = View.RECORD
    has_others: bool = False
    names: str = ""
    avro_schema: str = ""


def athena(table: Table) -> str:
    """Return the statement for Athena: its partitions are projected, so none must be added.

    Raises:
        ConfigurationError: If Athena would read other objects as rows too.
    """
    _refuse_others(table, "Athena")
    properties = {"projection.enabled": "true"}
    for level in table.levels:
        for name, value in level.projection:
            properties[f"projection.{level.column.name}.{name}"] = value
    path = "/".join(level.path for level in table.levels)
    properties["storage.location.template"] = f"{table.location}{path}/"
    lines = [*_external(table, table.levels), *_stored_as(table, "athena")]
    return _ended([*lines, _location(table.location), *_properties(properties)])


def hive(table: Table) -> str:
    """Return the statements for Hive; the second one finds the partitions that are there.

    Raises:
        ConfigurationError: If Hive would read other objects as rows too, or does not find folders.
    """
    _refuse_others(table, "Hive")
    _refuse_foreign_folders(table, "Hive")
    lines = [*_external(table, table.levels), *_stored_as(table, "hive")]
    statement = _ended([*lines, _location(_s3a(table.location))])
    return f"{statement}\n\n{_repair(table)}"


def spark(table: Table) -> str:
    """Return the statements for Spark SQL.

    Spark reads every object of a table that its catalog keeps.  Where some are no rows, it is a
    view of the session, which goes by the names of the objects; its partitions need no finding.

    Raises:
        ConfigurationError: If Spark does not find folders.
    """
    _refuse_foreign_folders(table, "Spark")
    rows = _columns([*table.columns, *(level.column for level in table.levels)])
    if table.has_others:
        name = table.name.rpartition(".")[2]  # no database has a view of a session
        place = f"path '{_text(_s3a(table.location))}', pathGlobFilter '{_glob(table)}'"
        if table.names:
            place += ", recursiveFileLookup 'true'"
        head = f"CREATE OR REPLACE TEMPORARY VIEW {name} ("
        return _ended([head, rows, ")", f"USING {table.format}", f"OPTIONS ({place})"])
    names = ", ".join(quoted(level.column.name) for level in table.levels)
    lines = [f"CREATE TABLE {table.name} (", rows, ")", f"USING {table.format}"]
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


def _stored_as(table: Table, engine: str) -> Iterator[str]:
    match table.format:
        case "parquet":
            yield "STORED AS PARQUET"
        case "json":
            yield f"ROW FORMAT SERDE '{_JSON[engine]}'"
            yield "STORED AS TEXTFILE"
        case _:
            yield "ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.avro.AvroSerDe'"
            literal = _text(table.avro_schema)
            yield f"WITH SERDEPROPERTIES ('avro.schema.literal' = '{literal}')"
            yield f"STORED AS INPUTFORMAT '{_INPUT.format('Input')}'"
            yield f"OUTPUTFORMAT '{_INPUT.format('Output')}'"


def _properties(properties: Mapping[str, str]) -> Iterator[str]:
    rows = [f"  '{name}' = '{_text(value)}'" for name, value in properties.items()]
    yield "TBLPROPERTIES ("
    yield ",\n".join(rows)
    yield ")"


def _location(url: str) -> str:
    return f"LOCATION '{_text(url)}'"


def _s3a(url: str) -> str:
    """Return the URL as Hadoop's own client has it."""
    return url.replace("s3://", "s3a://", 1)


def _text(text: str) -> str:
    """Return *text* as it stands between quotes."""
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _repair(table: Table) -> str:
    return f"MSCK REPAIR TABLE {table.name};"


def _glob(table: Table) -> str:
    """Return what the names of the objects match that are rows, however they are compressed."""
    if table.names:
        return table.names
    if table.view is View.RECORD:
        return f"*[0-9]{View.RECORD}.*{table.format}"
    return f"*[0-9]{{{','.join(_EXTENSIONS[table.format])}}}"


def _ended(lines: Sequence[str]) -> str:
    return "\n".join(lines) + ";"


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
                "take --engine athena, or ask the backup with kbackup restore query",
            )
