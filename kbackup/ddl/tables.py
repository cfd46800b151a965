"""The tables of a backup: what its newest objects hold, and what its configuration writes."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO, Final

import pyarrow.parquet as pq

from kbackup import formats
from kbackup.backup import catalog
from kbackup.backup.catalog import Catalog
from kbackup.backup.file_sets import BackupFile
from kbackup.config import Settings
from kbackup.ddl.columns import Column, not_a_table, of_avro, of_json, of_parquet, quoted, without
from kbackup.ddl.directories import levels
from kbackup.ddl.statement import ENGINES, Table
from kbackup.errors import ConfigurationError, IncompleteBackupError
from kbackup.events import Event
from kbackup.formats.avro_blocks import BlockReader
from kbackup.naming import View
from kbackup.records import TopicPartition
from kbackup.runs import wiring
from kbackup.runs.selection import select
from kbackup.stores import Store

LINES: Final = 1000
"""Records of JSON that are looked at for their fields."""


def statements(
    settings: Settings, store: Store, engine: str, database: str | None
) -> Iterator[Event]:
    """Yield a statement for each topic, as a line.

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
        sql = ENGINES[engine](table)
        yield {"type": "ddl", "topic": topic, "table": name, "engine": engine, "sql": sql}


def _table(settings: Settings, store: Store, found: Catalog, topic: str, name: str) -> Table:
    view = View.RECORD if settings.view == "record" else View.VALUE
    wheres = found.partitions(topic)
    sets = [one for where in wheres for one in found.sets[where]]
    mains = [one.main for one in sets if one.main is not None and one.main.view is view]
    mains = [file for file in mains if settings.format_class in (None, file.format)]
    if not mains:
        raise _nothing(topic, settings.url)
    newest = max(mains, key=lambda file: (file.modified, file.key))
    if wiring.layout(settings).is_dated:
        return _of_lines(settings, store, newest, topic, name)
    rows = sum(file.format == newest.format for file in mains)
    with store.open(newest.key) as body:
        held, avro = _columns(newest, body, settings)
    folders = sorted({one.encoded_partition for one in sets})
    found_levels = levels(settings, held, _partitions(wheres), folders)
    said = [level.column.name for level in found_levels]
    prefix = wiring.layout(settings).prefix(topic)
    return Table(
        name,
        newest.format,
        without(held, said),
        found_levels,
        f"{settings.url.rstrip('/')}/{prefix}",
        view,
        rows < sum(len(one.files) for one in sets),
        "" if avro is None else _avro_without(avro, said),
    )


def _of_lines(settings: Settings, store: Store, newest: BackupFile, topic: str, name: str) -> Table:
    """Return a topic of a dated layout: lines of JSON objects, or of text."""
    layout, options = wiring.layout(settings), wiring.format_options(settings)
    with store.open(newest.key) as body:
        batches = formats.by_name(newest.format).read(body, View.VALUE, newest.extension, options)
        rows = (value for batch in batches for value in batch.column(0).to_pylist())
        lines = [value.decode(errors="replace") for value in islice(rows, LINES)]
    try:
        held, kind = of_json(lines), "json"
    except (ConfigurationError, ValueError):
        held, kind = (Column("value", "string"),), "text"
    return Table(
        name,
        kind,
        held,
        (),
        f"{settings.url.rstrip('/')}/{layout.prefix()}",
        View.VALUE,
        has_others=True,
        names=layout.names_glob(topic, newest.extension),
    )


def _partitions(wheres: Sequence[TopicPartition]) -> int:
    return max(where.partition for where in wheres) + 1


def _columns(
    file: BackupFile, body: BinaryIO, settings: Settings
) -> tuple[tuple[Column, ...], Any]:
    """Return what a file holds, and its schema if it is one of Avro."""
    options = wiring.format_options(settings)
    match file.format:
        case "parquet":
            return of_parquet(pq.read_schema(body)), None
        case "avro":
            schema = json.loads(BlockReader(body, options.max_record_bytes).schema)
            return of_avro(schema), schema
        case "json" if file.view is View.VALUE:
            batches = formats.by_name("json").read(body, file.view, file.extension, options)
            rows = (text for batch in batches for text in batch.column(0).to_pylist())
            return of_json(text for text in islice(rows, LINES) if text is not None), None
    raise not_a_table(f"its format is {file.format}")


def _avro_without(schema: dict[str, Any], names: Sequence[str]) -> str:
    away = {name.lower() for name in names}
    kept = [one for one in schema["fields"] if one["name"].lower() not in away]
    return json.dumps({**schema, "fields": kept}, separators=(",", ":"))


def _nothing(topic: str, url: str) -> IncompleteBackupError:
    return IncompleteBackupError(
        f"there is no object of {topic} in {url} yet",
        "the columns of a table follow from what its objects hold",
        "run kbackup sink first, or correct topics and topics.dir",
    )
