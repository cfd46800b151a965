"""A backup as a Spark data source: ``spark.read.format("kbackup")``.

    from kbackup.query.source import BackupSource

    spark.dataSource.register(BackupSource)
    orders = (
        spark.read.format("kbackup")
        .option("topics", "orders")
        .option("s3.bucket.name", "my-bucket")
        .load()
    )

Its options are kbackup's properties; ``config`` names a configuration file, and environment
variables apply as they do for the commands.  With
``spark.sql.python.filterPushdown.enabled=true``, objects that a condition on ``partition``,
``offset`` or ``timestamp`` excludes are not opened.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, In, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kbackup import config
from kbackup.backup import catalog
from kbackup.backup.file_sets import FileSet
from kbackup.backup.window import EVERYTHING, Window
from kbackup.clock import SystemClock
from kbackup.errors import KbackupError
from kbackup.flow.views import ReadOptions
from kbackup.query import chunks, table
from kbackup.query.chunks import Chunk
from kbackup.records import Facts, TopicPartition
from kbackup.runs import known, wiring
from kbackup.runs.selection import select
from kbackup.stores import StoreSettings, open_store

_OPERATORS: Final[Mapping[str, str]] = {
    "EqualTo": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
"""Spark's names of the comparisons that narrow a window."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

FAILURE: Final = "kbackup-error:"
"""Precedes an error as JSON in the text of the exception for Spark."""


@dataclass(frozen=True, slots=True)
class Found:
    """The backup that a query reads.

    Attributes:
        store: Where the backup is.
        options: How objects are read.
        sets: The objects of each partition, by start offset.
        facts: What is known about the records in them, by key.
        topics: Their names, including topics without an object.
        missing: The keys of objects that were stored and are missing.
    """

    store: StoreSettings
    options: ReadOptions
    sets: Mapping[TopicPartition, Sequence[FileSet]]
    facts: Mapping[str, Facts] = field(default_factory=dict)
    topics: Sequence[str] = ()
    missing: Mapping[TopicPartition, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, settings: config.Settings) -> "Found":
        """List a backup.

        Raises:
            ConfigurationError: If the settings contradict each other.
            IncompleteBackupError: If a requested topic is not in the backup.
            StoreError: If the store does not answer.
        """
        place, options = wiring.store_settings(settings), wiring.reading(settings)
        store, layout = open_store(place), wiring.layout(settings)
        said = known.read(store, layout, SystemClock(), settings.topics, settings.topics_regex)
        found = catalog.read(
            store, layout, options.formats, topics=settings.topics,
            only_format=wiring.only_format(settings),
        )  # fmt: skip
        there = {*found.topics(), *said.topics}
        topics = select(there, settings.topics, settings.topics_regex)
        for topic in topics:
            if topic not in there:
                raise catalog.not_in_backup(topic, found)
        if not topics:
            raise catalog.nothing_there(layout.topics_dir or "the bucket")

        def is_asked(where: TopicPartition) -> bool:
            chosen = settings.partitions
            return where.topic in topics and (chosen is None or where.partition in chosen)

        sets = {
            where: of_partition for where, of_partition in found.sets.items() if is_asked(where)
        }
        missing = {
            where: [one.key or f"{where} {one.first}-{one.last}" for one in lacking]
            for where in filter(is_asked, said.partitions())
            if (lacking := said.ledger(where).missing(found.keys))
        }
        facts = {
            files.main.key: one
            for where, of_partition in sets.items()
            for files in of_partition
            if files.main is not None and (one := said.facts(where, files.main)) is not None
        }
        return cls(place, options, sets, facts, topics, missing)

    def counted(self) -> list[str]:
        """Return the topics with rows whose offsets are shown too low.

        Objects that hold only values store just their first offset.  The others are counted from
        there, although there may be gaps: from compaction, from transactions, or because a
        partition is spread over directories.
        """
        return sorted(
            {
                files.where.topic
                for sets in self.sets.values()
                for files in sets
                if not files.is_whole
                and files.main is not None
                and (known := self.facts.get(files.main.key)) is not None
                and not known.is_dense
            }
        )

    def of_topic(self, topic: str) -> "Found":
        """Return the part of one topic."""
        sets = {where: found for where, found in self.sets.items() if where.topic == topic}
        keys = {files.main.key for found in sets.values() for files in found if files.main}
        facts = {key: one for key, one in self.facts.items() if key in keys}
        return Found(self.store, self.options, sets, facts)

    def chunks(self, window: Window) -> list[Chunk]:
        """Return what has to be read for *window*."""
        return chunks.chunks(self.sets, window, lambda _, file: self.facts.get(file.key))


class BackupSource(DataSource):  # type: ignore[misc]  # pyspark has no types
    """A backup, or the topics that its options select."""

    found: Found | None = None
    """The contents of a bucket that was listed already; None to list it when needed."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kbackup"

    @classmethod
    def over(cls, found: Found) -> "type[BackupSource]":
        """Return the source of a bucket that was listed already."""

        class Known(cls):  # type: ignore[misc,valid-type]  # defined here, it travels by value
            pass

        Known.found = found
        return Known

    def schema(self) -> str:
        """Return the columns."""
        return table.COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader.

        Raises:
            KbackupError: If the options are wrong, or the backup cannot be listed.
        """
        found = self.found
        if found is None:
            found = Found.read(_settings(self.options))
        return Reader(found, to_arrow_schema(schema, timezone="UTC"))


class Reader(DataSourceReader):  # type: ignore[misc]
    """Reads what a query's conditions select, a chunk in each task."""

    def __init__(self, found: Found, schema: pa.Schema) -> None:
        self._found, self._schema = found, schema
        self._window = EVERYTHING

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Use the conditions that narrow the window; Spark applies all of them to the rows too."""
        self._window = of_conditions(list(_conditions(filters)))
        return filters

    def partitions(self) -> list[InputPartition]:
        """Return the chunks."""
        return [InputPartition(chunk) for chunk in self._found.chunks(self._window)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a chunk.

        Raises:
            RuntimeError: With the error as JSON, see `FAILURE`.
        """
        if partition.value is None:  # Spark's own, if there is no chunk
            return
        try:
            store = open_store(self._found.store)
            yield from table.rows(store, partition.value, self._found.options, self._schema)
        except KbackupError as error:
            raise RuntimeError(FAILURE + json.dumps(error.to_dict()) + "\n") from error


def _settings(options: MutableMapping[str, str]) -> config.Settings:
    given = dict(options)
    files = [Path(text) for text in given.pop("config", "").split(",") if text]
    given.pop("path", None)
    return config.load("query", options=given, files=files, environ=os.environ).settings


def of_conditions(conditions: list[tuple[str, str, Any]]) -> Window:
    """Return a window that includes everything that *conditions* select.

    Args:
        conditions: Column, operator and number each; for ``in``, several numbers.
    """
    window = EVERYTHING
    for column, operator, value in conditions:
        if operator == "in" and column == "partition":
            window = window.among(frozenset(value))
        elif operator != "in":
            window = window.narrowed(column, operator, value)
    return window


def _conditions(filters: Iterable[Filter]) -> Iterator[tuple[str, str, Any]]:
    for one in filters:
        attribute = ".".join(getattr(one, "attribute", ()))
        if isinstance(one, In) and attribute == "partition":
            yield attribute, "in", [value for value in one.value if value is not None]
        elif (operator := _OPERATORS.get(type(one).__name__)) is not None:
            value: Any = one.value
            if isinstance(value, datetime):
                value = _milliseconds(value, up=operator in ("<", "<="))
            if isinstance(value, int):
                yield attribute, operator, value


def _milliseconds(moment: datetime, *, up: bool) -> int:
    """Return a moment in Kafka's ms; one between two numbers is rounded outwards."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    micros = (aware - _EPOCH) // timedelta(microseconds=1)
    return -(-micros // 1000) if up else micros // 1000
