"""``restore verify --against source``: compare the backup with the topics that were backed up.

Tasks read the source, a range of offsets each, and take the digest of what each object should
hold, records or the batches as they are.  Where it is the one that was kept when the object was
stored, the object is not read; else its records are compared with the source's one by one.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.batches import Batches
from kbackup.batches.decoding import BatchesDigest
from kbackup.catalog import merging
from kbackup.catalog.claims import Reading
from kbackup.catalog.listing import FileSet, object_bytes, object_count
from kbackup.catalog.merging import Failed, StoredRows
from kbackup.config import Settings
from kbackup.errors import (
    ConfigurationError,
    DiffersError,
    KbackupError,
    RefusedError,
    TopicChangedError,
    form,
    some,
)
from kbackup.kafka import Cluster, Connection, LogStartMovedError, ReadsBatches
from kbackup.kafka.fetch import rows_of
from kbackup.pipeline.rows import RecordsDigest
from kbackup.pipeline.views import ReadOptions
from kbackup.records import SCHEMA, UNKNOWN, Facts, Span, TopicIdentity, TopicPartition, without
from kbackup.runs import wiring
from kbackup.runs.backup_state import BackupState
from kbackup.runs.compare import (
    NOTHING,
    ComparisonPlan,
    Difference,
    PartitionCompared,
    RecordsCompared,
    UnitCompared,
    by_offset,
    check_settings,
    compare,
    incomplete,
)
from kbackup.runs.context import Environment
from kbackup.runs.inventory import Inventory, listed
from kbackup.runs.report import Summary
from kbackup.spark.channel import TaskChannel
from kbackup.stores import (
    Store,
    StoreSettings,
    has_method,
    open_store,
    with_keyed,
)

if TYPE_CHECKING:
    from kbackup.kafka import Reader

OFFSETS_MOST: Final = 1_000_000
"""How many offsets a task compares before it reports."""

BYTES_MOST: Final = 256 * 2**20
"""How many bytes of objects, likewise."""


KEYS_BYTES: Final = 256 * 2**20
"""What keys of a compacted topic may take, of which the source lacks records."""

NO_OFFSETS: Final = Span(0, 0)

_LAST: Final = pa.schema(
    [
        *(SCHEMA.field(name).with_nullable(True) for name in ("key", "offset", "timestamp")),
        pa.field("tombstone", pa.bool_()),
    ]
)  # fmt: skip
"""Of each key the last record that the source lacks."""

_TOMBSTONES_MS: Final = 86_400_000
"""How long Kafka keeps tombstones, if a topic does not say otherwise."""


@dataclass(frozen=True, slots=True)
class SourceJob:
    """One run's settings for its tasks; plain data.

    The reader needs the rights of *group*; *now_ms* tells the age of tombstones.  If it
    *is_strict*, what a compacted topic lacks has to be superseded in it.
    """

    kafka: Connection
    store: StoreSettings
    reading: ReadOptions
    group: str
    is_strict: bool = False
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets that some objects hold together, and no others.

    *digest* is of their records, or batches, as they were in Kafka; None where several objects
    share them, or none was kept.
    """

    sets: tuple[FileSet, ...]
    span: Span
    records: int | None = None
    digest: str | None = None

    @property
    def has_offsets(self) -> bool:
        """Whether the objects say which record has which offset."""
        return all(files.is_whole for files in self.sets)

    @property
    def is_of_batches(self) -> bool:
        """Whether its digest is of batches."""
        return has_method(self.digest, BatchesDigest.METHOD)


@dataclass(frozen=True, slots=True)
class SourceUnit:
    """Offsets of a partition to compare; plain data.

    Attributes:
        stretches: The objects, in order; what lies between them the backup does not hold.
        left_out: Offsets whose records a sink left out, or an operator has removed since.
        log: What the source's log holds.
        is_compacted: Whether the source may leave out records that others have superseded.
        tombstones_ms: How long a compacted topic keeps a tombstone.
    """

    where: TopicPartition
    span: Span
    stretches: tuple[Stretch, ...]
    left_out: tuple[Span, ...] = ()
    log: Span = NO_OFFSETS
    is_compacted: bool = False
    identity: TopicIdentity = UNKNOWN
    tombstones_ms: int = 0


def source_task(
    job: SourceJob, units: Sequence[SourceUnit], channel: TaskChannel
) -> Iterator[UnitCompared]:
    """Compare *units* one after the other; a failure is a report, not an exception.

    Memory: few batches of the source, and where digests differ those objects that overlap.
    """
    store = open_store(job.store)
    by_batches = any(one.is_of_batches for unit in units for one in unit.stretches)
    with closing(job.kafka.reader(job.group, by_batches=by_batches)) as reader:
        for unit in units:
            work = _Comparison(job, unit, store, reader)
            try:
                work.run()
            except KbackupError as error:
                work.report = replace(work.report, failure=error.issue())
            yield work.report
            if channel.is_stopped():
                return


class _Comparison:
    """The comparison of one unit, and what it has shown so far."""

    def __init__(self, job: SourceJob, unit: SourceUnit, store: Store, reader: "Reader") -> None:
        self._job, self._unit, self._store, self._reader = job, unit, store, reader
        self._start = unit.log.start_offset
        self._lacking = _Lacking()
        self.report = UnitCompared(unit.where)

    def run(self) -> None:
        """Compare what digests prove, then the rest record by record."""
        for stretch in self._unproven():
            if stretch.has_offsets:
                self._merge(stretch)
            else:
                self._judge_values(stretch)
        if self._job.is_strict:
            self._count(self._lost())

    def _lost(self) -> RecordsCompared:
        """Return the records that compaction had no reason to remove."""
        first = self._lacking.first
        if first is None:
            return NOTHING
        if self._lacking.is_large:
            self._unclear("it lacks records of more keys than --strict can hold in memory")
            return NOTHING
        later = Span(max(first + 1, self._start), self._unit.log.end_offset)
        if len(later):
            with closing(self._reader.read(self._unit.where, later)) as batches:
                for batch in batches:
                    self._lacking.pass_on(batch)
        # the last of a key needs a later one there, or is a tombstone that is old enough
        lost = self._lacking.lost(self._job.now_ms - self._unit.tombstones_ms, self._start)
        self.report = replace(self.report, compacted=self.report.compacted - len(lost))
        return by_offset([lost], ())

    def _unproven(self) -> list[Stretch]:
        """Read the source once; return what no digest has proved."""
        stretches = self._unit.stretches
        while True:
            digests = {
                at: _Digests(one, self._store) for at, one in enumerate(stretches) if one.digest
            }
            try:
                for span, is_of_batches in self._parts():
                    if is_of_batches:
                        for batches in self._batches(span):
                            self._feed_batches(batches, digests)
                        continue
                    for batch in self._source(span):
                        self._feed(batch, digests)
                break
            except LogStartMovedError:
                self.report = UnitCompared(self._unit.where)
                self._find_start()
        left = []
        for at, stretch in enumerate(stretches):
            if at in digests and digests[at].prove:
                proved = RecordsCompared(same=stretch.records or 0)
                self._count(proved, proven=object_count(stretch.sets))
            else:
                left.append(stretch)
        return left

    def _parts(self) -> Iterator[tuple[Span, bool]]:
        """Yield the offsets to read, and whether their batches are compared as they are."""
        start, asks = self._unit.span.start_offset, isinstance(self._reader, ReadsBatches)
        for is_of_batches, alike in groupby(
            self._unit.stretches, lambda one: asks and one.is_of_batches
        ):
            if is_of_batches:
                first, *more = alike
                span = Span(first.span.start_offset, [first, *more][-1].span.end_offset)
                yield Span(start, span.start_offset), False
                yield span, True
                start = span.end_offset
        yield Span(start, self._unit.span.end_offset), False

    def _find_start(self) -> None:
        """Begin where the log now does: retention has gone on."""
        where = self._unit.where
        self._start = self._job.kafka.cluster().spans([where])[where].start_offset

    def _feed(self, batch: pa.RecordBatch, digests: Mapping[int, "_Digests"]) -> None:
        """Take a batch of the source into the digest of each stretch; count what is in none."""
        first, last = batch["offset"][0].as_py(), batch["offset"][-1].as_py()
        at = 0
        for number, stretch in enumerate(self._unit.stretches):
            span = stretch.span
            if span.end_offset <= first or last < span.start_offset:
                continue
            begin, end = (_rows_below(batch, one) for one in (span.start_offset, span.end_offset))
            self._count(by_offset((), [batch.slice(at, begin - at)]))
            if number in digests:
                digests[number].add(batch.slice(begin, end - begin))
            at = end
        self._count(by_offset((), [batch.slice(at)]))

    def _feed_batches(self, batches: Batches, digests: Mapping[int, "_Digests"]) -> None:
        """Take batches into the digest of the stretch that each begins in."""
        for number, stretch in enumerate(self._unit.stretches):
            at, below = batches.headers["base_offset"], stretch.span
            is_before = pc.less(at, below.start_offset)
            self._count_rows(batches.where(is_before))
            is_in = pc.and_(pc.invert(is_before), pc.less(at, below.end_offset))
            if number in digests:
                digests[number].add_batches(batches.where(is_in))
            batches = batches.where(pc.greater_equal(at, below.end_offset))
        self._count_rows(batches)

    def _count_rows(self, batches: Batches) -> None:
        """Count the records of batches that begin in no stretch."""
        for rows in rows_of(self._unit.where, batches):
            self._count(by_offset((), [_without(rows, self._unit.left_out)]))

    def _merge(self, stretch: Stretch) -> None:
        start = max(stretch.span.start_offset, self._start)
        if start >= stretch.span.end_offset:
            self._count(NOTHING, expired=stretch.records or 0)
            return
        span = Span(start, stretch.span.end_offset)
        try:
            source = self._source(span)
            lacking = self._lacking.take if self._job.is_strict else len
            found = by_offset(
                self._stored(stretch, span), source, lacking if self._unit.is_compacted else None
            )
        except LogStartMovedError:
            self._find_start()
            self._merge(stretch)
            return
        seen = found.same + found.different + found.backup_only
        expired = max(0, (stretch.records or 0) - seen) if start > stretch.span.start_offset else 0
        compacted = found.backup_only if self._unit.is_compacted else 0
        found = replace(found, backup_only=found.backup_only - compacted)
        self._count(found, expired=expired, compacted=compacted)

    def _judge_values(self, stretch: Stretch) -> None:
        """Say what can be said of values without offsets, whose digest is another one, or none."""
        offsets = f"offsets {stretch.span.start_offset} to {stretch.span.end_offset - 1}"
        if self._start >= stretch.span.end_offset:
            self._count(NOTHING, expired=stretch.records or 0)
        elif stretch.digest is None:
            self._unclear(f"{offsets} are values without offsets, and no digest of them was kept")
        elif self._unit.is_compacted or self._start > stretch.span.start_offset:
            self._unclear(f"{offsets} are values without offsets, some of which the source lacks")
        else:
            what = f"{offsets}: their digest"
            named = Difference(stretch.span.start_offset, None, what)
            self._count(RecordsCompared(different=1, named=(named,)))

    def _held(self, span: Span) -> Span:
        """Return what of *span* the log may still hold."""
        return Span(min(max(span.start_offset, self._start), span.end_offset), span.end_offset)

    def _batches(self, span: Span) -> Iterator[Batches]:
        """Yield what the source holds as it is."""
        assert isinstance(self._reader, ReadsBatches)  # noqa: S101  (`_parts` has looked)
        if len(wanted := self._held(span)):
            with closing(self._reader.batches(self._unit.where, wanted)) as found:
                yield from found

    def _source(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Yield what the source holds, without what the backup has left out."""
        if not len(wanted := self._held(span)):
            return
        with closing(self._reader.read(self._unit.where, wanted)) as batches:
            for batch in batches:
                if len(kept := _without(batch, self._unit.left_out)):
                    yield kept

    def _stored(self, stretch: Stretch, span: Span) -> Iterator[pa.RecordBatch]:
        reading = Reading(self._store, self._job.reading, self._unit.identity)
        found = merging.steps(reading, stretch.sets, offset=span.start_offset)
        for step in found:
            if isinstance(step, Failed):
                raise step.error
            if isinstance(step, StoredRows):
                yield step.batch.slice(0, _rows_below(step.batch, span.end_offset))

    def _count(
        self, found: RecordsCompared, *, expired: int = 0, compacted: int = 0, proven: int = 0
    ) -> None:
        self.report = replace(
            self.report,
            compared=self.report.compared + found,
            expired=self.report.expired + expired,
            compacted=self.report.compacted + compacted,
            proven=self.report.proven + proven,
        )

    def _unclear(self, why: str) -> None:
        self.report = replace(self.report, unclear=self.report.unclear or why)


class _Lacking:
    """Records that a compacted source lacks: of each key the last one."""

    def __init__(self) -> None:
        self._last = _LAST.empty_table()
        self._taken: list[pa.RecordBatch] = []
        self._later: list[pa.RecordBatch] = []

    @property
    def first(self) -> int | None:
        """The lowest offset of what no later record supersedes so far; None where all are."""
        self._fold()
        lowest: int | None = pc.min(self._last["offset"]).as_py()
        return lowest

    @property
    def is_large(self) -> bool:
        """Whether there are more keys than are held."""
        return bool(self._last.nbytes > KEYS_BYTES)

    def take(self, rows: pa.RecordBatch) -> None:
        """Take records that the source lacks, in order, as long as there is room."""
        if self.is_large:
            return
        columns = [rows["key"], rows["offset"], rows["timestamp"], rows["value"].is_null()]
        self._taken.append(pa.RecordBatch.from_arrays(columns, schema=_LAST))
        if sum(map(len, self._taken)) > OFFSETS_MOST:
            self._fold()

    def _fold(self) -> None:
        if self._taken:
            every = pa.concat_tables([self._last, pa.Table.from_batches(self._taken)])
            last = [(name, "last") for name in _LAST.names[1:]]
            found = every.group_by("key", use_threads=False).aggregate(last)
            self._last, self._taken = found.rename_columns(_LAST.names), []

    def pass_on(self, rows: pa.RecordBatch) -> None:
        """Take records of the source: what they supersede is not lost."""
        self._later.append(rows.select(["key", "offset"]))
        if sum(map(len, self._later)) > OFFSETS_MOST:
            self._supersede()

    def _supersede(self) -> None:
        later = pa.Table.from_batches(self._later)
        at = pc.index_in(later["key"], value_set=self._last["key"].combine_chunks())
        is_later = pc.greater(later["offset"], self._last["offset"].take(at))
        gone = at.filter(pc.and_(later["key"].is_valid(), pc.fill_null(is_later, fill_value=False)))
        rows = pa.array(range(len(self._last)), pa.int32())
        self._last = self._last.filter(pc.invert(pc.is_in(rows, value_set=pc.unique(gone))))
        self._later = []

    def lost(self, before_ms: int, start: int) -> pa.RecordBatch:
        """Return the offsets of what is lost, from *start* on; not tombstones before a time."""
        if self._later:
            self._supersede()
        is_old = pc.and_(self._last["tombstone"], pc.less(self._last["timestamp"], before_ms))
        is_ended = pc.and_(is_old, self._last["key"].is_valid())
        offsets = self._last.filter(pc.invert(is_ended))["offset"].combine_chunks()
        offsets = offsets.filter(pc.greater_equal(offsets, start))
        return pa.RecordBatch.from_arrays([offsets.sort()], names=["offset"])


class _Digests:
    """Of the source's records in a stretch; of values also without those that have none."""

    def __init__(self, stretch: Stretch, store: Store) -> None:
        self._stretch, self._store, self._all = stretch, store, RecordsDigest()
        # ``behavior.on.null.values=ignore`` leaves these out
        self._valued = None if stretch.has_offsets else RecordsDigest()
        self._batches = BatchesDigest()

    def add_batches(self, batches: Batches) -> None:
        self._batches.add(batches)

    def add(self, batch: pa.RecordBatch) -> None:
        self._all.add(batch)
        if self._valued is not None:
            self._valued.add(batch.filter(batch["value"].is_valid()))

    @property
    def prove(self) -> bool:
        texts = (each.text for each in (self._all, self._valued, self._batches) if each)
        return self._stretch.digest in with_keyed(self._store, texts)


def _without(batch: pa.RecordBatch, spans: Iterable[Span]) -> pa.RecordBatch:
    """Return the rows whose offsets are in none of *spans*."""
    for span in spans:
        before = pc.less(batch["offset"], span.start_offset)
        batch = batch.filter(pc.or_(before, pc.greater_equal(batch["offset"], span.end_offset)))
    return batch


def _rows_below(batch: pa.RecordBatch, offset: int) -> int:
    number: int = pc.sum(pc.less(batch["offset"], offset), min_count=0).as_py()
    return number


def verify_against_source(
    settings: Settings,
    environment: Environment,
    known: BackupState,
    summary: Summary,
    stop: threading.Event,
    *,
    is_strict: bool = False,
) -> Iterator[PartitionCompared]:
    """Compare a backup with the topics that it is of; yield what was found of each partition.

    What is compared ends where the backup ends, and where the source's last stable offset is now.
    *summary* takes differences (exit code 7), and what could not be compared (3).  If it
    *is_strict*, what a compacted topic lacks has to be superseded by a later record of its key.
    """
    if settings.transforms:
        raise ConfigurationError(
            "the source cannot be compared",
            "with transforms, what a sink stores is not what it reads",
            "leave transforms out if no sink has used them; else compare the target",
            property="transforms",
        )
    cluster, store = environment.kafka.cluster(), open_store(environment.store)
    inventory = Inventory(settings, store, listed(settings, store, settings.topics, known), known)
    planned = _ComparisonPlanner(inventory, cluster, is_strict=is_strict).plan()
    job = SourceJob(
        environment.kafka, environment.store, wiring.reading(settings),
        settings.group or "kbackup-verify", is_strict, environment.clock.ms(),
    )  # fmt: skip
    yield from compare(environment, partial(source_task, job), planned, summary, stop)


class _ComparisonPlanner:
    def __init__(self, inventory: Inventory, cluster: Cluster, *, is_strict: bool) -> None:
        self._inventory, self._cluster, self._is_strict = inventory, cluster, is_strict
        self._known, self._asked = inventory.known, inventory.settings.asked
        self._tombstones_ms: dict[str, int] = {}

    def plan(self) -> list[ComparisonPlan[SourceUnit]]:
        """Return the partitions of the topics that are asked for, each with its units."""
        topics = self._inventory.topics()
        there = self._cluster.topics(topics)
        if lacking := [name for name in topics if name not in there]:
            raise RefusedError(
                f"{some(lacking)} cannot be compared: the cluster has no such "
                f"{form(len(lacking), 'topic')}",
                f"{form(len(lacking), 'it was', 'they were')} deleted, or this is not the cluster "
                "that was backed up",
                "give the source: -k HOST:PORT; or choose topics: -t",
            )
        for topic in there.values():
            now = TopicIdentity(self._cluster.cluster_id, topic.topic_id)
            if now.conflicts(self._known.identity(topic.name)):
                raise TopicChangedError(
                    f"{topic.name} is not the topic that was backed up: it has another id",
                    "it was deleted and created again, or this is another cluster",
                    "give the cluster that was backed up: -k HOST:PORT",
                    topic=topic.name,
                )
        wheres = [
            where
            for topic in there.values()
            for number in range(topic.partitions)
            if self._asked.has((where := TopicPartition(topic.name, number)).partition)
        ]
        self._check_partitions(topics, wheres)
        spans, configs = self._cluster.spans(wheres), self._cluster.topic_config(there)
        check_settings(there, configs)
        for name in there:
            kept = configs.get(name, {}).get("delete.retention.ms", _TOMBSTONES_MS)
            self._tombstones_ms[name] = int(kept)
        then = {name: one.config for name, one in self._known.topics.items()}
        is_compacted = {
            name: any(
                "compact" in config.get(name, {}).get("cleanup.policy", "")
                for config in (configs, then)
            )
            for name in there
        }
        return [
            self._partition(where, spans[where], is_compacted=is_compacted[where.topic])
            for where in wheres
        ]

    def _check_partitions(self, topics: Sequence[str], wheres: Sequence[TopicPartition]) -> None:
        """Refuse what would look like a comparison of all: partitions that are lacking, or none."""
        stored = (where for topic in topics for where in self._inventory.wanted(topic))
        if lacking := [where for where in stored if where not in wheres]:
            raise RefusedError(
                f"{some(list(map(str, lacking)), 3)} cannot be compared: the cluster lacks it",
                "the topic was created again, or this is not the cluster that was backed up",
                "give the source: -k HOST:PORT",
            )
        if not wheres:
            raise RefusedError(
                f"no partition of {some(topics)} is chosen", "no topic has such a partition",
                "correct --partitions",
            )  # fmt: skip

    def _partition(
        self, where: TopicPartition, source: Span, *, is_compacted: bool
    ) -> ComparisonPlan[SourceUnit]:
        if missing := self._inventory.missing(where):
            return incomplete(PartitionCompared(where, None), missing)
        sets = self._inventory.covered(where).sets
        if not sets:
            return ComparisonPlan(PartitionCompared(where, None, behind=len(source)))
        said = [(files, self._inventory.facts(files)) for files in sets]
        silent = [files.id for files, known in said if known is None]
        if silent:
            why = f"{some(silent, 3)}: neither ledger nor object says which offsets it holds"
            return ComparisonPlan(PartitionCompared(where, None, why=why))
        stretches = _stretches([(files, known) for files, known in said if known is not None])
        end = stretches[-1].span.end_offset
        failure = None
        if source.end_offset < end and (log_end := self._cluster.ends([where])[where]) < end:
            failure = DiffersError(
                f"{where} ends at offset {log_end}, the backup at {end}",
                "the source has lost records: an unclean leader election does that",
                "keep the backup: it holds what the source has lost", **where.place,
            )  # fmt: skip
        behind = max(0, source.end_offset - max(end, source.start_offset))
        ahead = Span(source.start_offset, min(stretches[0].span.start_offset, source.end_offset))
        before = sum(map(len, without(ahead, self._left_out(where))))
        return ComparisonPlan(
            PartitionCompared(where, None, before=before, behind=behind),
            [*self._units(where, stretches, source, is_compacted=is_compacted)],
            failure,
        )

    def _units(
        self,
        where: TopicPartition,
        stretches: Sequence[Stretch],
        source: Span,
        *,
        is_compacted: bool,
    ) -> Iterator[SourceUnit]:
        out = self._left_out(where)
        held: list[Stretch] = []
        first = stretches[0].span.start_offset

        def unit(end: int) -> SourceUnit:
            span = Span(first, end)
            between = tuple(one for one in out if one.start_offset < end and first < one.end_offset)
            return SourceUnit(
                where, span, tuple(held), between, source, is_compacted,
                self._known.identity(where.topic), self._tombstones_ms.get(where.topic, 0),
            )  # fmt: skip

        for stretch in stretches:
            size = sum(object_bytes(one.sets) for one in (*held, stretch))
            is_full = stretch.span.end_offset - first > OFFSETS_MOST or size > BYTES_MOST
            # what supersedes a record may be anywhere behind it
            if held and is_full and not (is_compacted and self._is_strict):
                yield unit(stretch.span.start_offset)
                held, first = [], stretch.span.start_offset
            held.append(stretch)
        yield unit(stretches[-1].span.end_offset)

    def _left_out(self, where: TopicPartition) -> list[Span]:
        """Return the offsets whose records a sink left out, or an operator has removed since."""
        ledger = self._known.ledger(where)
        gone = [*ledger.accepted, *ledger.marked.values()]
        return [*ledger.skipped, *(entry.span for entry in gone)]


_METHODS: Final = RecordsDigest.METHOD, BatchesDigest.METHOD


def _stretches(said: Sequence[tuple[FileSet, Facts]]) -> list[Stretch]:
    """Return objects with the offsets that they hold, those together that overlap."""
    found: list[Stretch] = []
    for files, known in sorted(said, key=lambda one: (one[1].first_offset, one[0].id)):
        span = Span(known.first_offset, known.last_offset + 1)
        is_known = files.only is None and has_method(known.digest, _METHODS)
        one = Stretch((files,), span, known.records, known.digest if is_known else None)
        if found and span.start_offset < found[-1].span.end_offset:
            before = found.pop()
            end = max(span.end_offset, before.span.end_offset)
            one = Stretch((*before.sets, files), Span(before.span.start_offset, end))
        found.append(one)
    return found
