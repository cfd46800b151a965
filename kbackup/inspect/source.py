"""A backup as a Spark data source: ``spark.read.format("kbackup")``.

from kbackup.inspect.source import BackupSource

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
``offset`` or ``timestamp`` excludes are not opened.  With a ``schema`` of fewer columns, such as
``.schema("offset bigint, key binary")``, others are not read.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, In, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kbackup import config
from kbackup.catalog.claims import Reading
from kbackup.catalog.covered import within
from kbackup.catalog.listing import (
    EVERYTHING,
    FactsOf,
    FileSet,
    Interval,
    Window,
    object_bytes,
)
from kbackup.catalog.merging import records
from kbackup.clock import SystemClock
from kbackup.config import loading
from kbackup.errors import ConfigurationError, KbackupError
from kbackup.events import to_json
from kbackup.pipeline.views import ReadOptions
from kbackup.records import (
    NO_TIMESTAMP,
    UNKNOWN,
    Facts,
    TimestampType,
    TopicIdentity,
    TopicPartition,
)
from kbackup.runs import backup_state, wiring
from kbackup.runs.inventory import Inventory, listed
from kbackup.stores import StoreSettings, open_store

CHUNK_BYTES: Final = 64 * 2**20
"""The approximate size of a chunk, if its objects allow it."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Objects of a partition, in offset order, that share no record with another chunk.

    If it *is_apart*, nor with each other.
    """

    where: TopicPartition
    sets: tuple[FileSet, ...]
    is_apart: bool = False
    identity: TopicIdentity = UNKNOWN


def chunks_of(
    found: Mapping[TopicPartition, Sequence[FileSet]],
    facts: FactsOf,
    size: int = CHUNK_BYTES,
) -> list[Chunk]:
    """Return *found*, what to read of each partition in order, in chunks of *size* bytes or more.

    A partition is divided only where earlier objects are known to end before the next one begins.
    If nothing is known about them, as in a connector's bucket, they are one chunk.
    """
    return [
        chunk
        for where, sets in sorted(found.items())
        for chunk in _divided(where, sets, facts, size)
    ]


def _divided(
    where: TopicPartition, sets: Sequence[FileSet], facts: FactsOf, size: int
) -> Iterator[Chunk]:
    held: list[FileSet] = []
    end: int | None = -1  # the last offset of what is held; None if unknown
    held_bytes, is_apart = 0, True
    for files, is_alone in apart(sets, facts):
        if held_bytes >= size and end is not None and end < files.start_offset:
            yield Chunk(where, tuple(held), is_apart)
            held, end, held_bytes, is_apart = [], -1, 0, True
        held.append(files)
        held_bytes += object_bytes([files])
        known, is_apart = facts(files), is_apart and is_alone
        end = None if end is None or known is None else max(end, known.last_offset)
    if held:
        yield Chunk(where, tuple(held), is_apart)


def apart(sets: Sequence[FileSet], facts: FactsOf) -> Iterator[tuple[FileSet, bool]]:
    """Yield each set, in order, and whether it is known to share no record with another one.

    Values never do: `kbackup.catalog.covered` has seen to that.
    """
    begins = [*(files.start_offset for files in sets if files.is_whole), None][1:]
    following, end = iter(begins), -math.inf
    for files in sets:
        if not files.is_whole:
            yield files, True
            continue
        known, begin = facts(files), next(following)
        last = math.inf if known is None else known.last_offset
        yield files, end < files.start_offset and (begin is None or last < begin)
        end = max(end, last)


COLUMNS: Final[Mapping[str, str]] = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestamp_type": "string",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key: string, value: binary>>",
}
"""The table's columns and their types, in Spark's terms.  A timestamp is null if the record has
none, or its layout does not store it; a null value is a tombstone."""


def ddl(columns: Iterable[str]) -> str:
    """Return the schema of some of `COLUMNS`, in Spark's terms."""
    return ", ".join(f"{name} {COLUMNS[name]}" for name in columns)


_MOST_MS: Final = (2**63 - 1) // 1000
"""Spark counts microseconds: what is beyond is not a timestamp there."""

_WORDS: Final = pa.array([TimestampType.word(number) for number in range(3)], pa.string())


def table_rows(reading: Reading, chunk: Chunk, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a chunk in offset order, in the columns of *schema*, some of `COLUMNS`.

    If an object is bad, it raises `KbackupError`; what was yielded before is intact.
    """
    if chunk.is_apart:  # else records are compared, of which nothing may be left out
        wanted = frozenset({"offset", *schema.names})
        reading = reading.by(formats=replace(reading.options.formats, columns=wanted))
    for batch in records(reading, chunk.sets):
        yield _shown(batch, chunk.where, schema)


def _shown(batch: pa.RecordBatch, where: TopicPartition, schema: pa.Schema) -> pa.RecordBatch:
    columns = [_column(field.name, batch, where).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(name: str, batch: pa.RecordBatch, where: TopicPartition) -> pa.Array:
    match name:
        case "topic":
            return pa.repeat(pa.scalar(where.topic, pa.string()), len(batch))
        case "partition":
            return pa.repeat(pa.scalar(where.partition, pa.int32()), len(batch))
        case "timestamp":
            return _moments(batch["timestamp"])
        case "timestamp_type":
            return _words(batch["timestamp_type"])
    return batch[name]


def _words(kinds: pa.Array) -> pa.Array:
    is_known = pc.and_(pc.greater_equal(kinds, 0), pc.less(kinds, len(_WORDS)))
    return _WORDS.take(pc.if_else(is_known, kinds, 0))


def _moments(timestamps: pa.Array) -> pa.Array:
    is_one = pc.and_(
        pc.not_equal(timestamps, NO_TIMESTAMP),
        pc.and_(pc.less_equal(timestamps, _MOST_MS), pc.greater_equal(timestamps, -_MOST_MS)),
    )
    known = pc.if_else(is_one, timestamps, pa.scalar(None, pa.int64()))
    return known.cast(pa.timestamp("ms", "UTC"))


@dataclass(frozen=True, slots=True)
class Counted:
    """Records, one at *offset*, that a query need not tell from each other: nobody reads them."""

    where: TopicPartition
    offset: int
    records: int = 0
    objects: int = 0

    def rows(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield as many rows, all of them the same, of topic, partition and offset alone."""
        for done in range(0, self.records, _AT_ONCE):
            count = min(_AT_ONCE, self.records - done)
            offsets = pa.repeat(pa.scalar(self.offset, pa.int64()), count)
            yield _shown(pa.record_batch([offsets], ["offset"]), self.where, schema)


_AT_ONCE: Final = 2**16


OPERATORS: Final[Mapping[str, str]] = {
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
        sets: What a restore reads of each partition, in order.
        facts: What is known about the records in them, by key.
        topics: Their names, including topics without an object.
        missing: The keys of objects that were stored and are missing.
        known: Records beside those of *sets*, which nobody reads.
    """

    store: StoreSettings
    options: ReadOptions
    sets: Mapping[TopicPartition, Sequence[FileSet]]
    facts: Mapping[str, Facts] = field(default_factory=dict)
    topics: Sequence[str] = ()
    missing: Mapping[TopicPartition, Sequence[str]] = field(default_factory=dict)
    identities: Mapping[str, TopicIdentity] = field(default_factory=dict)
    known: Sequence[Counted] = ()

    @classmethod
    def read(
        cls,
        settings: config.Settings,
        chosen: Callable[[Sequence[str]], Sequence[str]] = lambda topics: topics,
    ) -> "Found":
        """List a backup, and decide what to read of the topics *chosen* of it, as a restore does.

        Raises:
            ConfigurationError: If the settings contradict each other.
            IncompleteBackupError: If a requested topic is not in the backup.
            RefusedError: If it is not known which objects to read, so that a restore is refused.
        """
        place, options = wiring.store_settings(settings), wiring.reading(settings)
        store = open_store(place)
        said = backup_state.read(store, wiring.layout(settings), SystemClock(), settings.asked)
        found = Inventory(settings, store, listed(settings, store, settings.topics, said), said)
        topics = list(chosen(found.topics()))
        sets, facts = dict[TopicPartition, Sequence[FileSet]](), dict[str, Facts]()
        for where in (where for topic in topics for where in found.wanted(topic)):
            decided = found.covered(where)
            for refusal in decided.refusals():
                raise refusal
            sets[where] = decided.sets
            facts |= decided.stated()
        missing = {
            where: [one.key or f"{where} {one.first}-{one.last}" for one in lacking]
            for where in (where for topic in topics for where in found.there(topic))
            if settings.asked.has(where.partition)
            and (lacking := said.ledger(where).missing(found.catalog.keys))
        }
        facts |= {
            files.id: one
            for of_partition in sets.values()
            for files in of_partition
            if (one := found.entered(files)) is not None
        }
        identities = {topic: said.identity(topic) for topic in topics}
        return cls(place, options, sets, facts, topics, missing, identities)

    def by_facts(self, comparisons: Iterable[tuple[str, int]]) -> "Found":
        """Return it with the records of whole objects counted, as far as they are known.

        *comparisons* are operators and numbers, each true of all offsets of one that is not read,
        or of none.
        """
        counted: dict[tuple[Any, ...], Counted] = {}
        rest: dict[TopicPartition, list[FileSet]] = {where: [] for where in self.sets}
        intervals = [Interval().narrowed(*one) for one in comparisons]
        for where, sets in self.sets.items():
            for files, is_alone in apart(sets, self._known):
                span = self._span(files) if is_alone and where not in self.missing else None
                if span is None or any(one.divides(*span) for one in intervals):
                    rest[where].append(files)
                    continue
                alike = where, *(one.meets(*span) for one in intervals)
                before = counted.get(alike, Counted(where, span[0]))
                records = before.records + self.facts[files.id].records
                counted[alike] = replace(before, records=records, objects=before.objects + 1)
        return replace(self, sets=rest, known=tuple(counted.values()))

    def _known(self, files: FileSet) -> Facts | None:
        return self.facts.get(files.id)

    def _span(self, files: FileSet) -> tuple[int, int] | None:
        """Return the first and the last offset of a set's rows, as they are shown, if all are."""
        known = self._known(files)
        if known is None or known.first_offset != files.start_offset or files.only is not None:
            return None
        last = known.last_offset if files.is_whole else files.start_offset + known.records - 1
        is_within = files.bound is None or last < files.bound
        return (files.start_offset, last) if is_within and not files.is_generic else None

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
        return replace(self, sets=sets, facts=facts)

    def chunks(self, window: Window) -> list[Chunk]:
        """Return what has to be read for *window*."""
        store = open_store(self.store)
        sets = {
            where: within(store, of_partition, window, self._known)
            for where, of_partition in self.sets.items()
            if window.has(where.partition)
        }
        return [
            replace(chunk, identity=self.identities.get(chunk.where.topic, UNKNOWN))
            for chunk in chunks_of(sets, self._known)
        ]


class BackupSource(DataSource):  # type: ignore[misc]  # pyspark has no types
    """A backup, or the topics that its options select."""

    found: Found | None = None
    """The contents of a bucket that was listed already; None to list it when needed."""
    known_as = "kbackup"
    """Spark looks a source up by this when it plans, which may be after another was registered."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return cls.known_as

    @classmethod
    def over(cls, found: Found, name: str) -> "type[BackupSource]":
        """Return the source of a bucket that was listed already, under a name of its own."""

        class Known(cls):  # type: ignore[misc,valid-type]  # defined here, it travels by value
            pass

        Known.found, Known.known_as = found, name
        return Known

    def schema(self) -> str:
        """Return the columns."""
        return ddl(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of some columns: only these are read.

        Raises:
            KbackupError: If there is no such column, the options are wrong, or the backup cannot
                be listed.
        """
        if unknown := sorted({*schema.names}.difference(COLUMNS)):
            raise ConfigurationError(
                f"a backup has no column {unknown[0]}", f"its columns are {', '.join(COLUMNS)}"
            )
        found = self.found
        if found is None:
            found = Found.read(_settings(self.options))
        return QueryReader(found, to_arrow_schema(schema, timezone="UTC"))


class QueryReader(DataSourceReader):  # type: ignore[misc]
    """Reads what a query's conditions select, a chunk in each task."""

    def __init__(self, found: Found, schema: pa.Schema) -> None:
        self._found, self._schema = found, schema
        self._window = EVERYTHING

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Use the conditions that narrow the window; Spark applies all of them to the rows too."""
        self._window = of_conditions(list(_conditions(filters)))
        return filters

    def partitions(self) -> list[InputPartition]:
        """Return the chunks, and what was counted."""
        parts = [*self._found.chunks(self._window), *self._found.known]
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one of them; `RuntimeError` has the error as JSON, see `FAILURE`."""
        if partition.value is None:  # Spark's own, if there is no chunk
            return
        if isinstance(partition.value, Counted):
            yield from partition.value.rows(self._schema)
            return
        try:
            found, chunk = self._found, partition.value
            reading = Reading(open_store(found.store), found.options, chunk.identity)
            yield from table_rows(reading, chunk, self._schema)
        except KbackupError as error:
            raise RuntimeError(FAILURE + json.dumps(to_json(error.issue())) + "\n") from error


def _settings(options: MutableMapping[str, str]) -> config.Settings:
    given = dict(options)
    files = [Path(text) for text in given.pop("config", "").split(",") if text]
    given.pop("path", None)
    return loading.load("query", options=given, files=files, environ=os.environ).settings


def of_conditions(conditions: list[tuple[str, str, Any]]) -> Window:
    """Return a window of all that *conditions* select: column, operator, number (``in``: some)."""
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
        elif (operator := OPERATORS.get(type(one).__name__)) is not None:
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
