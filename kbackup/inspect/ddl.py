"""Write the statements that create a table of a backup, for Athena, Hive and Spark."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Final

from kbackup import formats, partitioners
from kbackup.catalog import listing
from kbackup.catalog.listing import BackupFile, Catalog
from kbackup.config import Settings
from kbackup.connect.tables import Files, Level, TableColumn, injected, not_a_table, quoted, text
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    IncompleteBackupError,
    RefusedError,
)
from kbackup.formats import DescribesTables
from kbackup.naming import DatedLayout, View
from kbackup.runs import wiring
from kbackup.stores import Store
from kbackup.stores.encrypted import DATA_KEY


@dataclass(frozen=True, slots=True)
class Table:
    """A topic's objects as a table.

    Attributes:
        name: Its name, after that of its database if one is given; both in backquotes.
        files: What they are to the engines.
        columns: The columns that are read from the files: not those from the folders.
        levels: The columns from the folders, outermost first.
        location: URL of the topic's folder, ending in a slash.
        has_others: The same folders have objects that are not rows: keys, headers, or those of
            another layout or format.
        names: What the names of its objects match, where other topics share its folders; empty
            where the folders are its own.
    """

    name: str
    format: str
    files: Files
    columns: Sequence[TableColumn]
    levels: Sequence[Level]
    location: str
    view: View = View.RECORD
    has_others: bool = False
    names: str = ""


def athena(table: Table) -> str:
    """Return the statement for Athena: its partitions are projected, so none must be added.

    If it would read other objects as rows too, or not the format, `ConfigurationError`.
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

    It raises as `athena`, and if Hive does not find the folders.
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
    Folders that it does not find, or a format it cannot read, raise `ConfigurationError`.
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


def _columns(columns: Sequence[TableColumn]) -> str:
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
    """Return the URL as Hadoop's own clients have it."""
    azure = re.sub(r"^az://([^/]+)/([^/]+)", r"abfss://\2@\1.dfs.core.windows.net", url)
    return azure.replace("s3://", "s3a://", 1)


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
        f"it has no reader for files of the {table.format} format",
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
            "use --engine spark, which can leave them out, or back up full records",
        )


def _refuse_foreign_folders(table: Table, engine: str) -> None:
    for level in table.levels:
        if not level.is_hive:
            raise ConfigurationError(
                f"{engine} does not find the folders {level.path}",
                f"it expects folders called {level.column.name}=VALUE",
                "use --engine athena, or query the backup with kbackup restore query",
            )


def levels(
    settings: Settings, columns: Sequence[TableColumn], partitions: int, directories: Sequence[str]
) -> tuple[Level, ...]:
    """Return the partition columns of what a configuration writes, the outermost first.

    A directory's value has the type of its field in *columns*; *directories* are those that exist,
    such as ``year=2026/month=11``.  If a table cannot have them, it raises `ConfigurationError`.
    """
    if settings.directory_delim != "/":
        raise ConfigurationError(
            f"directory.delim {settings.directory_delim!r} makes no folders",
            "the engines find the files of a table by its folders",
            "query the backup with kbackup restore query",
        )
    name = settings.partitioner_class
    partitioner = partitioners.by_name(name, wiring.partitioner_options(settings))
    if not isinstance(partitioner, partitioners.DescribesDirectories):
        raise ConfigurationError(
            f"the partitioner {name} does not describe its folders to query engines",
            "a table needs a column for each level of folders",
            "query the backup with kbackup restore query, or write the statement by hand",
        )
    found = partitioner.levels(columns, directories, partitions)
    affix = settings.s3_schema_partition_affix_type
    if affix == "NONE":
        return tuple(found)
    schema = injected(TableColumn("schema_name", "string"), "schema_name")
    return (schema, *found) if affix == "PREFIX" else (*found, schema)


@dataclass(frozen=True, slots=True)
class Statement:
    """What declares a topic's table for one of `ENGINES`; *table* is its name as *sql* has it."""

    HEAD: ClassVar = {"type": "ddl"}

    topic: str
    table: str
    engine: str
    sql: str


def statements(
    settings: Settings, store: Store, engine: str, database: str | None
) -> Iterator[Statement]:
    """Yield a statement for each topic, for tables in *database* or the current one.

    `IncompleteBackupError`: a topic has no object yet.  `ConfigurationError`: it cannot be declared
    as a table.  `RefusedError`: its objects are encrypted.
    """
    layout, options = wiring.layout(settings), wiring.format_options(settings)
    wanted = [wiring.routes(settings).topic(name) for name in settings.topics]
    found = listing.list_backup(store, layout, options, topics=wanted)
    names = replace(settings.asked, names=wanted).topics(found.topics())
    if not names:
        raise _nothing("topics", settings.url)
    for topic in names:
        name = ".".join(map(quoted, filter(None, [database, re.sub(r"\W", "_", topic).lower()])))
        table = _table(settings, store, found, topic, name)
        yield Statement(topic, name, engine, ENGINES[engine](table))


def _table(settings: Settings, store: Store, found: Catalog, topic: str, name: str) -> Table:
    view = View.RECORD if settings.view == "record" else View.VALUE
    wheres = found.partitions(topic)
    sets = [one for where in wheres for one in found.sets[where]]
    mains = [one.main for one in sets if one.main is not None and one.main.view is view]
    others = {file.format for file in mains}
    mains = [file for file in mains if settings.format_class in (None, file.format)]
    if not mains and others:
        raise ConfigurationError(
            f"no object of {topic} is of the {settings.format_class} format",
            f"its objects are of the format {', '.join(sorted(others))}",
            "set format.class, or query them with kbackup restore query, which reads any backup",
        )
    if not mains:
        raise _nothing(topic, settings.url)
    newest = max(mains, key=lambda file: (file.modified, file.key))
    head = store.head(newest.key)
    if head is not None and DATA_KEY in head.metadata:
        raise RefusedError(
            f"{topic} is encrypted",
            "no engine that reads the objects itself can decrypt them",
            "query the backup with kbackup restore query",
            key=newest.key,
        )
    layout = wiring.layout(settings)
    files = _files(settings, store, newest)
    root = settings.url.rstrip("/")
    if isinstance(layout, DatedLayout):  # topics share the folders
        names = layout.names_glob(topic, newest.extension)
        if names is None:
            raise ConfigurationError(
                f"no table can hold {topic} alone",
                "object.name.template puts the topic into a folder, and a table's files are chosen "
                "by their names",
                "query the backup with kbackup restore query",
            )
        place = f"{root}/{layout.prefix()}"
        return Table(name, newest.format, files, files.columns, (), place, view, True, names)
    rows = sum(file.format == newest.format for file in mains)
    folders = sorted({one.encoded_partition for one in sets if not one.is_tombstones})
    found_levels = levels(settings, files.columns, wheres[-1].partition + 1, folders)
    away = {level.column.name.lower() for level in found_levels}
    return Table(
        name,
        newest.format,
        files,
        [one for one in files.columns if one.name.lower() not in away],
        found_levels,
        f"{root}/{layout.prefix(topic)}",
        view,
        rows < sum(len(one.files) for one in sets),
    )


def _files(settings: Settings, store: Store, newest: BackupFile) -> Files:
    """Return what the newest file is to the engines, as its format has it."""
    form = formats.by_name(newest.format)
    if not isinstance(form, DescribesTables):
        raise not_a_table(f"no query engine reads files of the {newest.format} format")
    with store.open(newest.key) as body:
        try:
            return form.table(body, newest.view, newest.extension, wiring.format_options(settings))
        except (CorruptObjectError, ConfigurationError) as error:
            what, key = f"{newest.key}: {error.what}", newest.key
            raise type(error)(what, error.why, error.do, key=key) from error


def _nothing(topic: str, url: str) -> IncompleteBackupError:
    return IncompleteBackupError(
        f"there is no object of {topic} in {url} yet",
        "the columns of a table follow from what its objects hold",
        "run kbackup sink first, or correct topics and topics.dir",
    )
