"""``restore verify``: check that all is there, readable and unbroken.

Names and the ledger say what is missing; with ``--deep`` tasks read the objects, and what they
report is judged together with the names.  `_CHECKS` lists all that is checked.  Before that,
``sink reindex`` and ``sink accept`` make the ledger fit the bucket: `LedgerRepair`.
"""

import functools
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Self

import pyarrow as pa

from kbackup.catalog import listing
from kbackup.catalog.claims import Checked
from kbackup.catalog.findings import AGAIN, Finding, PartitionVerdict, again
from kbackup.catalog.groups import group_stream
from kbackup.catalog.judged import JudgedPartition
from kbackup.catalog.ledger.rows import (
    ACCEPTED,
    KEPT,
    OBJECT,
    OBJECTS,
    REMOVED,
    TOPIC,
    TOPICS,
    Entry,
    PartitionLedger,
    TopicEntry,
    TopicLedger,
    entries,
    of_object,
    table,
    topic_entries,
)
from kbackup.catalog.ledger.stream import Contents, topic_stream, topics_stream
from kbackup.catalog.listing import OTHER_FORMAT, Catalog, earlier_of, not_in_backup, nothing_there
from kbackup.catalog.schemas import NO_SCHEMAS, SchemaIndex
from kbackup.clock import Clock
from kbackup.config.property import moment
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    Issue,
    StoreError,
    counted,
    form,
    some,
)
from kbackup.events import NextCommand, Plain, Warned
from kbackup.naming import Layout
from kbackup.naming.renaming import ALL, TopicFilter
from kbackup.pipeline.views import ReadOptions
from kbackup.records import Span, TopicIdentity, TopicPartition
from kbackup.runs import backup_state
from kbackup.runs.backup_state import NOTHING, BackupState
from kbackup.runs.locks import STALE_S, Holder
from kbackup.runs.report import HeldUp, Summary
from kbackup.spark import engine
from kbackup.spark.channel import NotBegun
from kbackup.spark.java import EngineSettings, FindJava
from kbackup.stores import RememberedHeads, Store, StoreSettings, is_refused
from kbackup.verify.task import EVERYTHING, Sample, VerifyUnit, units_of, verify_task

Read = Callable[[Sequence[VerifyUnit]], Iterable[Checked | NotBegun]]
"""Reads units and reports on each: `verify_task` by way of Spark, or here."""

_ERRORS_KEPT: Final = 100
"""Errors the summary names; all are reported as findings."""


_DUPLICATES_NAMED: Final = 20

WITHOUT_LEDGER: Final = "objects_without_ledger"
"""Counts objects that a sink must have entered once: what was stored beside them nobody knows."""

NOT_ENTERED: Final = "objects_not_entered"
"""Counts objects among those of kbackup that neither the ledger nor their own metadata speak of."""

REBUILD: Final = "rebuild the ledger from the objects: kbackup sink reindex"


@dataclass(frozen=True, slots=True)
class Notes:
    """What was written down beside the objects.

    Attributes:
        known: What the backup says about itself, read before it is listed.
        held_up: Partitions, by the names they are stored under, with an open transaction.
        has_id: The backup has an id: a sink of kbackup has been at work, and has begun a ledger.
        captures: Damaged files of where consumer groups stood.
    """

    known: BackupState = NOTHING
    locks: Iterable[Holder] = ()
    schemas: SchemaIndex = NO_SCHEMAS
    held_up: Mapping[TopicPartition, HeldUp] = field(default_factory=dict)
    has_id: bool = False
    captures: Sequence[Issue] = ()


def verify(
    store: Store,
    layout: Layout,
    options: ReadOptions,
    summary: Summary,
    *,
    now: datetime,
    asked: TopicFilter = ALL,
    notes: Notes = Notes(),
    only_format: str | None = None,
    read: Read | None = None,
    sample: Sample = EVERYTHING,
) -> Iterator[Plain]:
    """Verify a backup; yield warnings, findings, and what is concluded about each partition.

    *summary* takes errors (exit code 7, or 4 for what is not supported), foreign objects (3) and a
    row for each partition.  *now* is for the age of locks; aware.  *read* reads objects whole;
    None goes by names and the ledger alone.

    Raises:
        ConfigurationError: If *asked* leaves every topic out.
        IncompleteBackupError: If a topic of *asked* is neither there nor in the ledger.
    """
    # only the name of the format says what objects of any name are
    named = only_format if layout.is_generic else None
    found = listing.list_backup(
        store, layout, options.formats, topics=asked.names, only_format=named
    )
    known = notes.known
    found = known.left(found)
    if only_format is not None:
        found = found.narrowed(only_format)
    there = {*found.topics(), *known.names}
    chosen = asked.topics(there)
    wheres = sorted(
        where
        for where in {*found.sets, *known.partitions()}
        if where.topic in chosen and asked.has(where.partition)
    )
    backup = _Backup(
        store, layout, options, summary, now, notes, found, asked, chosen, wheres,
        {topic for topic in chosen if topic not in there}, read, sample,
    )  # fmt: skip
    for check in _CHECKS:
        yield from check(backup)


@dataclass(slots=True)
class _Backup:
    """What is verified, and what the checks have found so far."""

    store: Store
    layout: Layout
    options: ReadOptions
    summary: Summary
    now: datetime
    notes: Notes
    found: Catalog  # what is listed
    asked: TopicFilter
    topics: Sequence[str]  # those asked for
    partitions: Sequence[TopicPartition]  # theirs, those without any object too
    absent: Collection[str]  # topics that were asked for and are not in the backup
    read: Read | None
    sample: Sample
    findings: list[Finding] = field(default_factory=list)
    reports: dict[str, Checked] = field(default_factory=dict)  # what reading has shown, by set


def _is_every_object_ours(backup: _Backup) -> Iterator[Warned]:
    for key, why in backup.found.foreign:
        yield backup.summary.warn("foreign_object", why, key=key)
    backup.summary.skip("foreign_objects", backup.found.foreign_count)


def _is_anything_left_out(backup: _Backup) -> Iterator[Warned]:
    for code, text in backup.found.left_out():
        yield backup.summary.warn(code, text)
    backup.summary.skip(OTHER_FORMAT, backup.found.ignored)


def _is_every_topic_there(backup: _Backup) -> Iterable[Warned]:
    if backup.absent:
        there = {*backup.found.topics(), *backup.notes.known.names}
        raise not_in_backup(min(backup.absent), there, backup.layout.place)
    if not backup.partitions:
        there = {*backup.found.topics(), *backup.notes.known.names}
        backup.summary.fail(nothing_there(backup.asked, there, backup.layout.place))
    return ()


def _does_the_ledger_say_it_all(backup: _Backup) -> Iterator[Warned]:
    known = backup.notes.known
    for damage in known.all_damage():
        error = CorruptObjectError(damage.what, damage.why, REBUILD, key=damage.what)
        backup.summary.fail(error)
    if unknown := sum(ledger.unknown for ledger in known.ledgers.values()):
        rows = f"{counted(unknown, 'row')} of the ledger {form(unknown, 'is', 'are')}"
        text = f"{rows} of kinds that only a later version of kbackup knows; they are ignored"
        yield backup.summary.warn("unknown_rows", text)
    if unsaid := {one for one in known.ledgers if known.has_entered(one)} - known.topics.keys():
        text = (
            f"the ledger no longer says how many partitions {some(sorted(unsaid))} had, "
            f"nor their settings; {REBUILD}"
        )
        yield backup.summary.warn("no_ledger", text)
    stored = {where.topic for where in backup.found.sets} & {*backup.topics}
    if without := {topic for topic in stored if not known.has_entered(topic)}:
        lost = sum(
            len(sets)
            for where, sets in backup.found.sets.items()
            if where.topic in without
            and (known.has_ledger(where.topic) or (backup.notes.has_id and sets[0].is_whole))
        )
        backup.summary.skip(WITHOUT_LEDGER, lost)
        text = (
            f"the ledger says nothing of {some(sorted(without))}: what is missing shows only where "
            f"it left a gap between other objects; {REBUILD}"
        )
        yield backup.summary.warn("no_ledger", text)


def _can_every_capture_be_read(backup: _Backup) -> Iterable[Warned]:
    for damage in backup.notes.captures:
        error = CorruptObjectError(damage.what, damage.why, damage.do, key=damage.what)
        backup.summary.fail(error)
    return ()


def _is_every_schema_there(backup: _Backup) -> Iterator[Warned]:
    for code, text in backup.notes.schemas.lacking(backup.topics):
        yield backup.summary.warn(code, text)


def _does_a_transaction_hold_it_up(backup: _Backup) -> Iterator[Warned]:
    found = backup.notes.held_up.items()
    yield from backup.summary.held_up(
        {where: each for where, each in found if where.topic in backup.topics}
    )


def _is_every_partition_whole(backup: _Backup) -> Iterator[Finding | PartitionVerdict]:
    """Read objects where that is asked for, and judge each partition: `JudgedPartition`."""
    sets, known, summary = backup.found.sets, backup.notes.known, backup.summary
    if backup.read is not None:
        units = list(units_of(sets, backup.partitions, backup.sample, known.ledger))
        backup.reports = _checked(backup.read(units) if units else (), summary)
    for where in backup.partitions:
        part = JudgedPartition(
            where, sets.get(where, []), backup.reports, is_deep=backup.read is not None,
            ledger=known.ledger(where),
            identity=known.identity(where.topic), present=backup.found.keys,
            heads=RememberedHeads(backup.store),
        )  # fmt: skip
        findings = list(part.findings(backup.store, backup.layout, backup.options.formats))
        findings += part.overlaps(backup.store, backup.options, findings)
        findings = _with_earlier(backup.store, part.ledger, findings)
        backup.findings += findings
        yield from findings
        for failure in part.failures():
            summary.fail(failure)
        verdict = part.verdict(findings)
        summary.partitions.append(verdict)
        yield verdict
    _fail(summary, [finding for finding in backup.findings if finding.is_error])


def _with_earlier(
    store: Store, ledger: PartitionLedger, findings: Sequence[Finding]
) -> list[Finding]:
    """Return findings that say of each object whether a version is there that was stored."""
    of_others = (one.key or "" for one in findings if one.is_of_other)
    rows = {key: ledger.objects[key] for key in of_others if key in ledger.objects}
    found: Collection[str] = rows.keys()
    begin, end = "", ", and restores read it"
    try:
        found = earlier_of(store, rows.values()).keys()
    except StoreError as error:
        if not is_refused(error):
            raise
        begin, end = "whether ", f" is not known: {error}; {error.do}"

    def told(finding: Finding) -> Finding:
        if not finding.is_of_other or finding.key not in found:
            return finding
        what = "a delete marker" if finding.code == "missing_object" else "another object"
        text = f"{begin}what was stored is still there under {what}{end}"
        return replace(finding, text=f"{finding.error().why}; {text}")

    return [told(finding) for finding in findings]


def _is_every_object_vouched_for(backup: _Backup) -> Iterator[Warned]:
    """Ask which objects are there without a word: kbackup's say what they hold, and are entered."""
    lacking = []
    for where in backup.partitions:
        ledger, sets = backup.notes.known.ledger(where), backup.found.sets.get(where, [])
        begin = min((entry.first for entry in ledger.objects.values()), default=None)
        for files in sets:
            report, main = backup.reports.get(files.id), files.main
            if begin is None or report is None or main is None or files.start_offset < begin:
                continue  # another tool was at work before a first sink
            if not report.says_what and main.key not in ledger.objects:
                lacking.append(main.key)
    if lacking:
        backup.summary.skip(NOT_ENTERED, len(lacking))
        text = (
            f"{some(lacking, 3)}: neither the ledger nor any metadata says what was stored there; "
            f"check whether it is what belongs there, then {REBUILD}"
        )
        yield backup.summary.warn("not_entered", text, key=lacking[0])


def _is_an_object_there_twice(backup: _Backup) -> Iterator[Finding]:
    """A copy in the wrong place may look like a good object."""
    seen: dict[str, str] = {}
    left = _DUPLICATES_NAMED
    for where, sets in sorted(backup.found.sets.items()):
        for files in sets:
            report = backup.reports.get(files.id)
            if report is None or report.sha256 is None or files.main is None:
                continue
            other = seen.setdefault(report.sha256, files.main.key)
            if other != files.main.key and left:
                text = f"the same bytes as {other}"
                yield Finding("duplicate", where, files.main.key, text=text, level="note")
                left -= 1


def _is_a_lock_left_behind(backup: _Backup) -> Iterator[Warned]:
    for holder in backup.notes.locks:
        age = (backup.now - holder.modified).total_seconds()
        if age > STALE_S:
            text = f"a lock of {holder} is stale: no heartbeat for {age:.0f} s"
            yield backup.summary.warn("stale_lock", text)


def _can_it_be_repaired(backup: _Backup) -> Iterator[Warned]:
    offsets = again(backup.findings)
    if offsets is not None:
        line = f"kbackup sink repair {offsets.partition(' ')[0]} --config FILE"
        purpose = "move damaged objects away; then, with the sink's configuration as FILE:"
        backup.summary.facts["remaining"] = [NextCommand(purpose, line)]
        yield backup.summary.warn("repair", f"{AGAIN}: {offsets}")


_CHECKS: Final[Sequence[Callable[[_Backup], Iterable[Plain]]]] = (
    _is_every_object_ours,
    _is_anything_left_out,
    _is_every_topic_there,
    _does_the_ledger_say_it_all,
    _can_every_capture_be_read,
    _is_every_schema_there,
    _does_a_transaction_hold_it_up,
    _is_every_partition_whole,
    _is_every_object_vouched_for,
    _is_an_object_there_twice,
    _is_a_lock_left_behind,
    _can_it_be_repaired,
)
"""What is checked, in the order in which it is reported."""


def on_spark(
    place: StoreSettings,
    reading: ReadOptions,
    settings: EngineSettings,
    find_java: FindJava,
    stop: threading.Event,
) -> Read:
    """Return how tasks on Spark read; neither Java nor Spark is needed for nothing to read."""
    task = functools.partial(verify_task, place, reading)

    def read(units: Sequence[VerifyUnit]) -> Iterable[Checked | NotBegun]:
        return engine.run(task, units, replace(settings, java=find_java()), engine.discard, stop)

    return read


def _checked(found: Iterable[Checked | NotBegun], summary: Summary) -> dict[str, Checked]:
    """Return what reading has shown, by set; a task that could not begin fails the run."""
    reports = {}
    for each in found:
        if isinstance(each, NotBegun):
            summary.fail(each.failure)
        else:
            reports[each.id] = each
    return reports


def _fail(summary: Summary, errors: Sequence[Finding]) -> None:
    """Name damage first: what is left unnamed must not decide the exit code."""
    ordered = sorted(errors, key=lambda finding: not finding.is_damage)
    for finding in ordered[:_ERRORS_KEPT]:
        summary.fail(finding.error())
    unnamed = len(errors) - _ERRORS_KEPT
    if unnamed > 0:
        are = form(unnamed, "is", "are")
        text = f"{counted(unnamed, 'more error')} {are} reported as findings only"
        summary.warn("more_errors", text)


_ABOUT_OBJECTS: Final = frozenset({OBJECT, ACCEPTED, REMOVED, KEPT})

_RANGE: Final = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,10}):(\d{1,19})-(\d{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What was removed on purpose: ranges, and all that was stored before *before_ms*."""

    ranges: Sequence[tuple[TopicPartition, Span]] = ()
    before_ms: int | None = None

    @classmethod
    def parse(cls, ranges: Sequence[str], before: str | None) -> Self:
        """Read ``TOPIC:PARTITION:FIRST-LAST``, repeated, and a time; else `ConfigurationError`."""
        found = []
        for text in ranges:
            match = _RANGE.fullmatch(text.strip())
            if match is None or int(match[3]) > int(match[4]):
                raise ConfigurationError(
                    f"{text} is not a range of offsets",
                    do="write orders:0:4200-4299 for offsets 4200 to 4299 of orders, partition 0",
                )
            where = TopicPartition(match[1], int(match[2]))
            found.append((where, Span(int(match[3]), int(match[4]) + 1)))
        try:
            before_ms = None if before is None else moment(before)
        except ValueError as error:
            raise ConfigurationError(
                f"{before} is not a time",
                str(error),
                "write it as 2026-11-21, or with its time and zone",
            ) from error
        return cls(found, before_ms)

    def __bool__(self) -> bool:
        return bool(self.ranges) or self.before_ms is not None

    def takes(self, where: TopicPartition, entry: Entry) -> bool:
        """Whether a missing object is accepted as such."""
        if self.before_ms is not None and entry.time < self.before_ms:
            return True
        return any(
            at == where and span.start_offset <= entry.first
            and entry.span.end_offset <= span.end_offset
            for at, span in self.ranges
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LedgerRepair:
    """What is written into the ledger of a backup before it is verified."""

    store: Store
    layout: Layout
    reading: ReadOptions
    summary: Summary
    clock: Clock
    asked: TopicFilter = ALL

    def rebuild(self, *, only_new: bool = False) -> Iterator[Warned]:
        """Rebuild the ledger from the objects; if *only_new*, of topics that have none.

        What can still be read of it is kept, also of objects that are not there: they are missing
        until someone accepts that.  If no topic is there, it raises `IncompleteBackupError`.
        """
        said = backup_state.read(self.store, self.layout, self.clock, self.asked)
        found = self._listed()
        there = {*found.topics(), *said.names}
        topics = [name for name in self.asked.topics(there) if name in there]
        if not topics:
            raise nothing_there(self.asked, there, self.layout.place)
        if only_new:
            topics = [name for name in topics if not said.has_ledger(name)]
        for topic in topics:
            yield self._rebuild(topic, found, has_times=not only_new)
        captures = group_stream(self.store, self.layout, self.clock)
        if not only_new and captures.read().damage:
            captures.rewrite(lambda before: before.rows)
            text = "captures of consumer groups that cannot be read are left out from now on"
            yield self.summary.warn("captures_left_out", text)
        if topics:
            stream = topics_stream(self.store, self.layout, self.clock)
            stream.rewrite(lambda before: self._topics(before, topics, found, said))

    def accept(self, acceptance: Acceptance) -> Iterator[Warned]:
        """Enter what is missing and was removed on purpose; it raises as `rebuild`.

        A topic that is named and not there, or not asked for, raises `ConfigurationError`.
        """
        yield from self.rebuild(only_new=True)  # what has no ledger has nowhere to enter it
        said = backup_state.read(self.store, self.layout, self.clock, self.asked)
        found = self._listed()
        there = sorted({*found.topics(), *said.names})
        for where, span in acceptance.ranges:
            if where.topic not in there:
                last = span.end_offset - 1
                named = f"{where.topic}:{where.partition}:{span.start_offset}-{last}"
                raise ConfigurationError(
                    f"{named} cannot be accepted",
                    f"{where.topic} is not among the topics of the backup: {some(there)}",
                    "correct its name, or -t",
                )
        taken: defaultdict[str, list[Entry]] = defaultdict(list)
        for where in sorted(said.partitions()):
            for entry in said.ledger(where).missing(found.keys):
                if acceptance.takes(where, entry):
                    row = of_object(ACCEPTED, entry, self.summary.run, self.clock.ms())
                    taken[where.topic].append(row)
        for topic, rows in taken.items():
            stream = topic_stream(self.store, self.layout, topic, self.clock)
            stream.append(table(rows, OBJECTS))
            text = f"{topic}: {counted(len(rows), 'missing object')} "
            text += f"{form(len(rows), 'is', 'are')} accepted as removed on purpose"
            yield self.summary.warn("accepted_missing", text, topic=topic)
        if not taken:
            yield self.summary.warn("accepted_missing", "none of the named objects is missing")

    def _listed(self) -> Catalog:
        return listing.list_backup(
            self.store, self.layout, self.reading.formats, topics=self.asked.names
        )

    def _rebuild(self, topic: str, found: Catalog, *, has_times: bool) -> Warned:
        def rows(before: Contents) -> pa.Table:
            said = [*entries(before.rows)]
            ledger = TopicLedger.of(said).partitions.values()
            # what is to be deleted stays as it was entered: it may be there in part alone
            there = found.keys.difference(*(at.marked for at in ledger))
            kept = [
                one for one in said if one.kind not in _ABOUT_OBJECTS or one.key not in there
            ]  # (what is there again was not accepted as removed)
            had = {one.key: one for one in said if one.kind == OBJECT}
            again = (
                one.instead_of(had[one.key]) if one.key in had else one
                for one in backup_state.listed(self.store, found, topic, there, has_times=has_times)
            )
            return table([*kept, *again], OBJECTS)

        topic_stream(self.store, self.layout, topic, self.clock).rewrite(rows)
        text = f"{topic}: the ledger was rebuilt from its objects"
        return self.summary.warn("ledger_rebuilt", text, topic=topic)

    def _topics(
        self, before: Contents, topics: Collection[str], found: Catalog, said: BackupState
    ) -> pa.Table:
        rows = topic_entries(before.rows)
        kept = [one for one in rows if one.is_possible or one.topic not in topics]
        entered = {one.topic for one in kept if one.kind == TOPIC}
        fresh = [self._topic(name, found, said) for name in topics if name not in entered]
        return table([*kept, *fresh], TOPICS)

    def _topic(self, name: str, found: Catalog, said: BackupState) -> TopicEntry:
        """Return what is known of a topic that the ledger does not speak of."""
        wheres = found.partitions(name)
        entry = said.topics.get(name)
        if entry is None or entry.partitions is None:
            entered = (where for where in said.partitions() if where.topic == name)
            count = max((where.partition for where in (*wheres, *entered)), default=-1) + 1
            entry = replace(entry or TopicEntry(TOPIC, name), partitions=count)
        heads = (self.store.head(found.sets[where][-1].files[0].key) for where in wheres)
        head = next((head for head in heads if head is not None), None)
        own = TopicIdentity.from_metadata({} if head is None else head.metadata)
        if own.topic_id:
            entry = replace(entry, cluster_id=own.cluster_id, topic_id=own.topic_id)
        return replace(entry, kind=TOPIC, run=self.summary.run, time=self.clock.ms())
