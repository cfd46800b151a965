"""The tables of a backup: what its newest objects hold, and what its configuration writes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from kbackup import formats
from kbackup.backup import catalog
from kbackup.backup.catalog import Catalog
from kbackup.backup.file_sets import BackupFile
from kbackup.config import Settings
from kbackup.ddl.directories import levels
from kbackup.ddl.statement import ENGINES, Table
from kbackup.errors import ConfigurationError, IncompleteBackupError
from kbackup.events import Event
from kbackup.naming import View
from kbackup.records import TopicPartition
from kbackup.runs import wiring
from kbackup.runs.selection import select
from kbackup.stores import Store
from kbackup.table_parts import Files, not_a_table, quoted


@dataclass(frozen=True, slots=True)
class Statement:
    """What declares a topic's table.

    Attributes:
        topic: The topic.
        table: The table's name, as the statement has it.
        engine: One of `ENGINES`.
        sql: The statement.
    """

    topic: str
    table: str
    engine: str
    sql: str

    def to_dict(self) -> Event:
        """Return it as a line of ``--json``."""
        return {"type": "ddl", **asdict(self)}


def statements(
    settings: Settings, store: Store, engine: str, database: str | None
) -> Iterator[Statement]:
    """Yield a statement for each topic.

    Args:
        settings: What writes the backup.
        store: Where it is.
        engine: One of `ENGINES`.
        database: The database of the tables; None for the current one.

    Raises:
        IncompleteBackupError: If a topic has no object yet.
        ConfigurationError: If a topic cannot be declared as a table.
        StoreError: If the store does not answer.
    """
    layout, options = wiring.layout(settings), wiring.format_options(settings)
    wanted = [wiring.routes(settings).topic(name) for name in settings.topics]
    found = catalog.read(store, layout, options, topics=wanted)
    names = select(found.topics(), wanted, settings.topics_regex)
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
    mains = [file for file in mains if settings.format_class in (None, file.format)]
    if not mains:
        raise _nothing(topic, settings.url)
    newest = max(mains, key=lambda file: (file.modified, file.key))
    layout = wiring.layout(settings)
    files = _files(settings, store, newest)
    root = settings.url.rstrip("/")
    if layout.is_dated:  # topics share the folders
        names = layout.names_glob(topic, newest.extension)
        if names is None:
            raise ConfigurationError(
                f"no table can be of {topic} alone",
                "object.name.template puts the topic into a folder, and a table's files are chosen "
                "by their names",
                "query the backup with kbackup restore query",
            )
        place = f"{root}/{layout.prefix()}"
        return Table(name, newest.format, files, files.columns, (), place, view, True, names)
    rows = sum(file.format == newest.format for file in mains)
    folders = sorted({one.encoded_partition for one in sets if not one.is_tombstones})
    found_levels = levels(settings, files.columns, _partitions(wheres), folders)
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
    table = getattr(formats.by_name(newest.format), "table", None)
    if table is None:
        raise not_a_table(f"no query engine reads files of the {newest.format} format")
    with store.open(newest.key) as body:
        found: Files = table(body, newest.view, newest.extension, wiring.format_options(settings))
    return found


def _partitions(wheres: Sequence[TopicPartition]) -> int:
    return max(where.partition for where in wheres) + 1


def _nothing(topic: str, url: str) -> IncompleteBackupError:
    return IncompleteBackupError(
        f"there is no object of {topic} in {url} yet",
        "the columns of a table follow from what its objects hold",
        "run kbackup sink first, or correct topics and topics.dir",
    )
