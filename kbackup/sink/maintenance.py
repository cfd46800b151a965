"""``sink repair``: write objects that are missing or damaged again from Kafka.

The cut of each object is read again, and only that.  Its files close where they did, whatever the
rules of rotation say now, so the objects get the same names and records.  The group that keeps the
sink's position is not touched: a group of this run alone is what the tasks commit to.
"""

import functools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from kbackup.catalog import listing
from kbackup.catalog.claims import sha256_of
from kbackup.catalog.identity import BackupIdentity
from kbackup.catalog.ledger.rows import Entry, PartitionLedger, is_main, order
from kbackup.catalog.listing import Catalog
from kbackup.config import Settings
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    IncompleteBackupError,
    KbackupError,
    ObjectKeyError,
    RefusedError,
    StoreError,
)
from kbackup.events import INLINE, Ended, Planned, Tell
from kbackup.kafka import Cluster
from kbackup.naming import Layout, Place
from kbackup.naming.renaming import ALL, TopicFilter
from kbackup.records import UNKNOWN, Facts, Span, TopicIdentity, TopicPartition
from kbackup.runs import backup_state, wiring
from kbackup.runs.backup_state import BackupState
from kbackup.runs.context import Environment, RunContext, Stop
from kbackup.runs.history import Estimate
from kbackup.runs.locks import RunLock, all_locked
from kbackup.runs.report import Summary
from kbackup.sink import accounting, schemas
from kbackup.sink.job import recreated
from kbackup.sink.plan import SinkPartitionPlan, job_of, locked
from kbackup.sink.start import Evidence, Start, StoredCut, stored_cuts
from kbackup.sink.task import back_up
from kbackup.stores import Store, UnfinishedUpload, Uploads

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Repair:
    """One cut to write again.

    Attributes:
        at: Its partition and offsets, as a task is given them.
        keys: The objects it had, as far as the ledger says.
        first: Offset of its first record then; None where the ledger does not say.
    """

    at: SinkPartitionPlan
    keys: tuple[str, ...]
    first: int | None = None


class RepairRun:
    """One repair, from settings to summary: an `RunCommand`."""

    def __init__(
        self, settings: Settings, tell: Tell, stop: Stop, environment: Environment
    ) -> None:
        self._frame = RunContext.of("sink", settings, tell, stop, environment)
        self._summary = self._frame.summary

    def __call__(self) -> Ended:
        """Run to the end; what fails is in the summary, and nothing is raised but usage errors."""
        wiring.check_batches(self._frame.settings)
        if self._frame.settings.follow:
            raise ConfigurationError(
                "sink repair cannot be used with --follow",
                "a repair ends once the objects are written",
                "stop the sink that follows, repair, and start it again",
            )
        settings = self._frame.settings
        if settings.topics or not settings.renames:  # else the cluster has to say what there is
            _places(settings, [place.topic for place in settings.repair])
        return self._frame(self)

    @property
    def locks(self) -> Sequence[str]:
        """The topics: no sink may write them meanwhile."""
        return locked(self._frame.settings)

    def group(self, _cluster: Cluster, backup: BackupIdentity) -> str:
        """Return the sink's group, which a repair leaves alone."""
        return wiring.group(self._frame.settings, backup, "sink")

    def preview(self, cluster: Cluster, store: Store) -> None:
        """Report what would be written."""
        found = self._plan(cluster, store)
        self._summary.partitions = [accounting.row_of(repair.at).shown() for repair in found]
        self._summary.facts |= accounting.estimated(
            [repair.at for repair in found], store, self._frame.layout, self._frame.started
        )

    def work(self, cluster: Cluster, store: Store, lock: RunLock | None) -> bool:
        """Write the objects again; no record is left, since nothing new is backed up.

        Raises:
            TopicsLockedError: If a sink works on a topic of these.
        """
        if lock is not None:
            settings = self._frame.settings
            routes = wiring.routes(settings)
            places = _places(settings, cluster.topic_names())
            if left := lock.claim({routes.topic(place.topic) for place in places}):
                raise all_locked(left)
        self._frame.environment.run_tasks.begin()
        for number, repairs in enumerate(_rounds(self._plan(cluster, store))):
            self._write(repairs, number, store)
        return False

    def record(self, store: Store) -> None:
        """Leave none."""

    def finish(self) -> Ended:
        """Return the summary."""
        return self._frame.finish()

    def _plan(self, cluster: Cluster, store: Store) -> list[Repair]:
        """Return what is to be written; a place that cannot be is an error of its own."""
        settings = self._frame.settings
        plan = _RepairPlanner(settings, self._frame.environment, cluster, store)
        found = []
        for place in dict.fromkeys(_places(settings, cluster.topic_names())):
            try:
                found.append(plan.repair(place))
            except IncompleteBackupError as error:
                self._summary.fail(error)
        self._frame.tell(Planned([accounting.planned_row(repair.at) for repair in found]))
        return found

    def _write(self, repairs: Sequence[Repair], number: int, store: Store) -> None:
        frame = self._frame
        if frame.stop.is_set():
            return
        job = job_of(frame, f"{frame.group}-repair-{frame.run}-{number}", schemas.NO_SCHEMAS)
        units = [unit for repair in repairs if (unit := repair.at.unit()) is not None]
        errors = replace(job.errors, topic=None)  # the sink has written its dead letters
        job = replace(job, flush_tail=True, points=False, errors=errors)
        task = functools.partial(back_up, job)
        of_partition = {repair.at.where: repair for repair in repairs}
        for report in frame.begun(frame.tasks(task, units, frame.hear)):
            repair = of_partition[report.where]
            row = accounting.after(accounting.row_of(repair.at), report)
            self._summary.partitions.append(row.shown())
            if report.failure is not None:
                self._summary.fail(report.failure)
            else:
                self._check(repair, store, report.done.first)

    def _check(self, repair: Repair, store: Store, first: int | None) -> None:
        """Report objects that are not there, or not whole: a store keeps what it has."""
        where = repair.at.where
        is_thinned = repair.first is not None and (first is None or first > repair.first)
        for key in repair.keys:
            try:
                _check_object(store, key, _THINNED if is_thinned else _RENAMED)
            except KbackupError as error:
                error.place |= where.place
                self._summary.fail(error)


def _places(settings: Settings, there: Iterable[str]) -> list[Place]:
    """Return what to repair, by the topics' names in Kafka: they may be given as in the bucket."""
    routes = wiring.routes(settings)
    chosen = settings.asked.topics(sorted(there))
    found, others = [], []
    for place in settings.repair:
        topics = [name for name in chosen if place.topic in (name, routes.topic(name))]
        if len(topics) > 1:
            raise ConfigurationError(
                f"{place} names two topics: {' and '.join(topics)}",
                "one has this name in Kafka, the other in the bucket",
                "repair them one after the other, with --topics for the one that is meant",
            )
        if topics:
            found.append(place._replace(topic=topics[0]))
        elif settings.asked.topics([place.topic]) == [place.topic]:
            found.append(place)  # the cluster may have lost it: that is for the plan to say
        else:
            others.append(place.topic)
    if others:
        raise ConfigurationError(
            "repair names topics that this sink does not back up: "
            f"{', '.join(sorted(set(others)))}",
            "this run's lock would not stop the sink that does, which may be writing them now",
            "repair with that sink's configuration",
        )
    return found


_RENAMED: Final = (
    "its records were written again under other names: the sink's settings have changed since",
    "check the partition with kbackup restore verify",
)
_THINNED: Final = (
    "its first record, after which it is named, was removed by compaction or retention",
    "what is left of it is stored; accept it with kbackup sink accept",
)


def _check_object(store: Store, key: str, lacking: tuple[str, str]) -> None:
    """Check that an object is there, or say what *lacking* says, and holds what was stored."""
    head = store.head(key)
    if head is None:
        raise IncompleteBackupError(key, *lacking)
    facts = Facts.from_metadata(head.metadata)
    with store.open(key) as body:
        if facts is not None and sha256_of(body) != facts.sha256:
            raise CorruptObjectError(
                key,
                "its bytes do not match its sha256, and a repair never replaces an object",
                "move it away, then run this again",
            )


@dataclass(slots=True)
class _RepairPlanner:
    settings: Settings
    environment: Environment
    cluster: Cluster
    store: Store
    _known: dict[str, tuple[BackupState, Catalog]] = field(default_factory=dict)

    def repair(self, place: Place) -> Repair:
        """Return what to write again."""
        where = TopicPartition(place.topic, place.partition)
        topic = self.cluster.topics([place.topic]).get(place.topic)
        if topic is None or place.partition >= topic.partitions:
            raise _not_possible(where, place.offset, "the cluster does not have this partition")
        name = wiring.routes(self.settings).topic(place.topic)
        said, found = self._of(name)
        identity = TopicIdentity(self.cluster.cluster_id, topic.topic_id)
        stored = TopicPartition(name, place.partition)
        told = [said.identity(name), *self._identities(found, stored, place.offset)]
        if any(one.conflicts(identity) for one in told):
            raise recreated(place.topic, name)
        ledger = said.ledger(stored)
        # a sink that enters objects enters their topic too; a row that was built anew names none
        if ledger.objects and all(one == UNKNOWN for one in told):
            raise RefusedError(
                f"{name}: it is no longer known which topic was backed up",
                "what the ledger said of it is lost, and so are the objects that could tell: this "
                "could be another topic of its name",
                "put the ledger's files back from a copy of the bucket",
                topic=name,
            )
        rows = _rows_at(ledger.objects.values(), place.offset)
        if any(row.key in ledger.marked for row in rows):
            raise RefusedError(
                f"{where}: the object that begins at offset {place.offset} is not written again",
                "kbackup sink expire removed it on purpose",
                "kbackup sink expire --undo takes that back, as long as the object is there",
                **where.place,
            )
        span = _span(rows) or self._span_by_names(found, ledger, stored, place.offset)
        if span is None:
            why = "it is not known where it ended" if rows else "no object is known to begin there"
            raise _not_possible(where, place.offset, why)
        log = self.cluster.spans([where])[where]
        if log.start_offset > span.start_offset or log.end_offset < span.end_offset:
            why = (
                f"it needs offsets {span.start_offset} to {span.end_offset - 1}, and Kafka has "
                f"{log.start_offset} to {log.end_offset - 1}"
            )
            raise _not_possible(where, place.offset, why)
        extension = wiring.views(self.settings)[-1].extension()
        there = stored_cuts(ledger, found.keys, extension)
        none = StoredCut(span, 0, is_whole=False)
        cut = next((cut for cut in there if cut.span == span and cut.is_same), none)
        seen = Evidence(span, held=(cut,))
        at = SinkPartitionPlan(where, seen, Start(span.start_offset), identity=identity)
        first = min((row.first for row in _mains(rows)), default=None)
        return Repair(at, tuple(row.key for row in rows if row.key is not None), first)

    def _of(self, name: str) -> tuple[BackupState, Catalog]:
        if name not in self._known:
            layout = wiring.layout(self.settings)
            asked = TopicFilter([name])
            said = backup_state.read(self.store, layout, self.environment.clock, asked)
            options = wiring.format_options(self.settings)
            found = listing.list_backup(self.store, layout, options, topics=[name])
            self._known[name] = said, found
        return self._known[name]

    def _identities(
        self, found: Catalog, stored: TopicPartition, offset: int
    ) -> Iterator[TopicIdentity]:
        """Yield which topics the objects around *offset*, or the topic's others, are of."""
        wheres = [stored] if found.sets.get(stored) else found.partitions(stored.topic)
        for where in wheres:
            sets = found.sets[where]
            before = [files for files in sets if files.start_offset < offset]
            after = [files for files in sets if files.start_offset >= offset]
            for files in (*before[-1:], *after[:1]):
                head = self.store.head(files.files[0].key)
                yield TopicIdentity.from_metadata({} if head is None else head.metadata)

    def _span_by_names(
        self, found: Catalog, ledger: PartitionLedger, stored: TopicPartition, offset: int
    ) -> Span | None:
        """Return the cut of an object, by its metadata, or by the next name of a lone directory."""
        sets = found.sets.get(stored, [])
        mains = {files.main.key: files.start_offset for files in sets if files.main is not None}
        here = [key for key, start in mains.items() if start == offset]
        head = self.store.head(here[0]) if here else None
        facts = None if head is None else Facts.from_metadata(head.metadata)
        if facts is not None:
            return Span(offset, facts.last_offset + 1)
        # names of objects that are gone bound it too: coverage is of what is there
        mains |= {row.key or "": row.first for row in _mains(ledger.objects.values())}
        layout = wiring.layout(self.settings)
        directories = {key.rpartition(layout.directory_delim)[0] for key in mains}
        if len(directories) > 1 and not layout.is_dated:
            return None
        later = [start for start in mains.values() if start > offset]
        return Span(offset, min(later)) if offset in mains.values() and later else None


def _mains(rows: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the rows of objects of values, of full records, or of tombstones."""
    return (row for row in rows if row.key is not None and is_main(row))


def _rows_at(rows: Iterable[Entry], offset: int) -> list[Entry]:
    every = [row for row in rows if row.key is not None]
    begun = [row for row in _mains(every) if offset in (row.first, row.cut_start)]
    if not begun:
        return []
    newest = max(begun, key=order)
    if newest.cut is None:
        return [row for row in every if row.first == newest.first]
    return [row for row in every if row.cut == newest.cut]


def _span(rows: Sequence[Entry]) -> Span | None:
    if not rows:
        return None
    cut = rows[0].cut
    if cut is not None:
        return Span(cut[0], cut[1])
    if any(row.last is None for row in rows):  # another tool wrote it
        return None
    return Span(min(row.first for row in rows), max(row.span.end_offset for row in rows))


def _rounds(repairs: Iterable[Repair]) -> list[list[Repair]]:
    """Return *repairs* so that each round has at most one of a partition, and none twice."""
    rounds: list[dict[TopicPartition, Repair]] = []
    seen: set[tuple[Any, ...]] = set()
    for repair in repairs:
        where, span = repair.at.where, repair.at.seen.log
        if (where, span) in seen:
            continue
        seen.add((where, span))
        free = next((one for one in rounds if where not in one), None)
        if free is None:
            rounds.append(free := {})
        free[where] = repair
    return [list(one.values()) for one in rounds]


def _not_possible(where: TopicPartition, offset: int, why: str) -> IncompleteBackupError:
    return IncompleteBackupError(
        f"{where}: the object that begins at offset {offset} cannot be written again",
        why,
        "kbackup restore verify names the objects; what is lost for good can be accepted: "
        "kbackup sink accept",
        **where.place,
    )


@dataclass(frozen=True, slots=True)
class Pruned:
    """An upload that is aborted, or would be.

    Attributes:
        key: The object that it would have become.
    """

    HEAD: ClassVar = {"type": "upload"}

    key: str
    where: TopicPartition = field(metadata=INLINE)
    begun: datetime


def prune(
    store: Store,
    layout: Layout,
    summary: Summary,
    *,
    now: datetime,
    older_than_s: float,
    asked: TopicFilter = ALL,
    is_dry: bool = False,
) -> Iterator[Pruned]:
    """Abort the unfinished uploads of a backup's objects.

    Those of other keys below ``topics.dir`` are left alone, and so are younger ones: a run may be
    at work on them.

    Args:
        summary: Gets the counts, and of a dry run what aborting takes.
        older_than_s: How long ago an upload must have been begun.

    Raises:
        ConfigurationError: If the store has no such uploads.
    """
    if not isinstance(store, Uploads):
        raise ConfigurationError(
            "this store cannot list unfinished uploads",
            do="only S3 does; in Google's, let a lifecycle rule abort them; others clean up",
        )
    limit = now - timedelta(seconds=older_than_s)
    found = {
        one: where
        for one in store.unfinished(layout.prefix())
        if (where := _where(layout, one)) is not None
    }
    chosen = set(asked.topics({where.topic for where in found.values()}))
    old, younger = list[UnfinishedUpload](), 0
    for one, where in found.items():
        if where.topic not in chosen or not asked.has(where.partition):
            continue
        if one.begun >= limit:
            younger += 1
            continue
        if not is_dry:
            store.abort(one)
        old.append(one)
        yield Pruned(one.key, where, one.begun)
    aborted = 0 if is_dry else len(old)
    summary.facts |= {"aborted": aborted, "found": len(old), "younger": younger}
    if is_dry and old:
        summary.facts["estimate"] = Estimate(_stored_bytes(store, old), len(old), None)


def _stored_bytes(store: Uploads, uploads: Sequence[UnfinishedUpload]) -> int | None:
    """Return how much of *uploads* is there; None where it may not be asked for."""
    try:
        return sum(map(store.stored_bytes, uploads))
    except StoreError as error:
        _log.info("the size of unfinished uploads is not known: %s", error)
        return None


def _where(layout: Layout, upload: UnfinishedUpload) -> TopicPartition | None:
    """Return the partition of the object that it would have become; None for others."""
    try:
        key = layout.parse(upload.key)
    except ObjectKeyError:
        return None
    return TopicPartition(key.topic, key.partition)
