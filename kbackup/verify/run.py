"""``restore verify``: is it all there, readable and unbroken.

Names and the ledger say what is missing; with ``--deep`` tasks read the objects, and what they
report is judged together with the names.
"""

import functools
import hashlib
import re
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Final, Self

from kbackup.catalog import listing
from kbackup.catalog.claims import Checked
from kbackup.catalog.findings import AGAIN, Finding, PartitionVerdict, again
from kbackup.catalog.judged import JudgedPartition
from kbackup.catalog.judging import Recorded
from kbackup.catalog.ledger.rows import Entry
from kbackup.catalog.listing import OTHER_FORMAT, Catalog, FileSet, not_in_backup, nothing_there
from kbackup.catalog.schemas import NO_SCHEMAS, SchemaIndex
from kbackup.errors import ConfigurationError, CorruptObjectError, counted, form, some
from kbackup.events import Event, Warned
from kbackup.naming import Layout
from kbackup.naming.renaming import select
from kbackup.pipeline.views import ReadOptions
from kbackup.records import Facts, TopicPartition
from kbackup.runs.known import NOTHING, BackupState
from kbackup.runs.locks import STALE_S, Holder
from kbackup.runs.report import HeldUp, Summary
from kbackup.spark import engine
from kbackup.spark.settings import EngineSettings, NotBegun
from kbackup.stores import RememberedHeads, Store
from kbackup.verify.task import VerifyJob, VerifyUnit, verify_task


@dataclass(frozen=True, slots=True)
class Sample:
    """Decides by a hash of the key; nothing but the key of an object changes its part.

    Attributes:
        part: The part to read, from 1.
        parts: How many there are; together they hold every object once.
        percent: How much to read of that, above 0, at most 100.
        seed: Samples of another seed are of other objects.
    """

    part: int = 1
    parts: int = 1
    percent: float = 100.0
    seed: str = ""

    @classmethod
    def parse(cls, part: str | None, sample: str | None, seed: str) -> Self:
        """Read ``--part 1/7`` and ``--sample 5%``.

        Raises:
            ConfigurationError: If one of them is not of that form.
        """
        number, numbers, percent = 1, 1, 100.0
        if part is not None:
            match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", part.strip(), re.ASCII)
            number, numbers = map(int, match.groups()) if match else (0, 0)
            if not 1 <= number <= numbers:
                raise ConfigurationError(
                    f"--part {part} is not a part", do="write the first of seven as 1/7"
                )
        if sample is not None:
            match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,9})?)\s*%?", sample.strip(), re.ASCII)
            percent = float(match.group(1)) if match else 0.0
            if not 0 < percent <= 100:
                raise ConfigurationError(
                    f"--sample {sample} is not a share", do="write one in twenty as 5%"
                )
        return cls(number, numbers, percent, seed)

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self.parts == 1 and self.percent >= 100

    def takes(self, key: str) -> bool:
        """Whether the object with *key* is to be read."""
        if _hash(key) % self.parts != self.part - 1:
            return False
        return self.percent >= 100 or _hash(f"{self.seed}\0{key}") / 2**64 < self.percent / 100


EVERYTHING: Final = Sample()


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


Read = Callable[[Sequence[VerifyUnit]], Iterable[Checked | NotBegun]]
"""Reads units and reports on each: `verify_task` by way of Spark, or here."""

_ERRORS_KEPT: Final = 100
"""Errors the summary names; all are reported as findings."""


_DUPLICATES_NAMED: Final = 20

REBUILD: Final = "rebuild the ledger from the objects: kbackup restore verify --rebuild"


@dataclass(frozen=True, slots=True)
class Notes:
    """What was written down beside the objects.

    Attributes:
        known: What the backup says about itself, read before it is listed.
        locks: Holders of lock objects.
        schemas: The schemas of a registry that were stored, or are lacking.
        held_up: Partitions, by the names they are stored under, with an open transaction.
    """

    known: BackupState = NOTHING
    locks: Iterable[Holder] = ()
    schemas: SchemaIndex = NO_SCHEMAS
    held_up: Mapping[TopicPartition, HeldUp] = field(default_factory=dict)


def verify(
    store: Store,
    layout: Layout,
    options: ReadOptions,
    summary: Summary,
    *,
    now: datetime,
    names: Collection[str] = (),
    pattern: str | None = None,
    partitions: Collection[int] | None = None,
    notes: Notes = Notes(),
    only_format: str | None = None,
    read: Read | None = None,
    share: Sample = EVERYTHING,
) -> Iterator[Warned | Finding | PartitionVerdict]:
    """Verify a backup.

    Args:
        store: Where it is.
        layout: How objects are named.
        options: How objects are read, and which siblings values have.
        summary: Takes errors (exit code 7, or 4 for what is not supported), foreign objects
            (3) and a row for each partition.
        now: For the age of locks; aware.
        names: Topics; all where there are none.
        pattern: A Java regular expression for topics, where there are no *names*.
        partitions: Only these of each topic; None for all.
        notes: What was written down beside the objects.
        only_format: Only objects of this format, and their siblings; None for all.
        read: Reads objects whole; None goes by names and the ledger alone.
        share: Which objects are read.

    Yields:
        Warnings, findings, and what is concluded about each partition.

    Raises:
        IncompleteBackupError: If a topic of *names* is neither there nor in the ledger.
        StoreError: If the listing cannot be had whole.
    """
    named = (
        only_format if layout.is_generic else None
    )  # only the name of the format says what it is
    found = listing.list_backup(store, layout, options.formats, topics=names, only_format=named)
    for key, why in found.foreign:
        yield summary.warn("foreign_object", why, key=key)
    summary.skip("foreign_objects", found.foreign_count)
    known = notes.known
    for damage in known.all_damage():
        summary.fail(CorruptObjectError(damage.what, damage.why, REBUILD, key=damage.what))
    entries: Mapping[TopicPartition, Sequence[Recorded]] = known.recorded
    if only_format is not None:
        narrow = found.narrowed(only_format)
        entries = _only(entries, found, narrow)
        found = narrow
    for code, text in found.left_out():
        yield summary.warn(code, text)
    summary.skip(OTHER_FORMAT, found.ignored)
    there = {*found.topics(), *known.topics, *(where.topic for where in entries)}
    chosen = select(there, names, pattern)
    for topic in chosen:
        if topic not in there:
            raise not_in_backup(topic, found)
    for code, text in (*_unsaid(known, found, chosen), *notes.schemas.lacking(chosen)):
        yield summary.warn(code, text)
    yield from summary.held_up(
        {where: each for where, each in notes.held_up.items() if where.topic in chosen}
    )
    wheres = sorted(
        where
        for where in {*found.sets, *known.partitions()}
        if where.topic in chosen and (partitions is None or where.partition in partitions)
    )
    if not wheres:
        summary.fail(nothing_there(layout.topics_dir or "the bucket"))
    units = list(_units(found.sets, wheres, share, known)) if read is not None else []
    reports = _checked(read(units) if read and units else (), summary)
    patterns = {where.topic: sets[0] for where, sets in found.sets.items()}
    told: list[Finding] = []
    for where in wheres:
        part = JudgedPartition(
            where, found.sets.get(where, []), entries.get(where, []), known.gaps(where), reports,
            is_deep=read is not None, ledger=known.ledger(where),
            identity=known.identity(where.topic), present=found.keys,
            heads=RememberedHeads(store),
        )  # fmt: skip
        findings = list(part.findings(store, layout, patterns.get(where.topic)))
        findings += part.overlaps(store, options, findings)
        told += findings
        yield from findings
        for failure in part.failures():
            summary.fail(failure)
        verdict = part.verdict(findings)
        summary.partitions.append(verdict.row())
        yield verdict
    yield from _duplicates(found.sets, reports)
    _fail(summary, [finding for finding in told if finding.is_error])
    yield from _stale(summary, notes.locks, now)
    offsets = again(told)
    if offsets is not None:
        places = offsets.partition(" ")[0]
        how = f"move damaged objects away, then run kbackup sink --repair {places} with the sink's"
        yield summary.warn("repair", f"{AGAIN}: {offsets}; {how} configuration")


def _unsaid(
    known: BackupState, found: Catalog, chosen: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield code and text of warnings about what the ledger does not say to this version."""
    if unknown := sum(ledger.unknown for ledger in known.ledgers.values()):
        rows = f"{counted(unknown, 'row')} of the ledger {form(unknown, 'is', 'are')}"
        text = f"{rows} of kinds that only a later version of kbackup knows; they are ignored"
        yield "unknown_rows", text
    told = {where.topic for where in known.recorded}
    without = {where.topic for where in found.sets} & set(chosen)
    if without := {topic for topic in without - told if not known.has_ledger(topic)}:
        text = (
            f"the ledger says nothing of {some(sorted(without))}: what is missing shows only where "
            f"it left a gap between other objects; {REBUILD}"
        )
        yield "no_ledger", text


def _only(
    entries: Mapping[TopicPartition, Sequence[Recorded]], found: Catalog, narrow: Catalog
) -> dict[TopicPartition, Sequence[Recorded]]:
    """Return the runs whose objects are all in *narrow*; it cannot know what others lack."""

    def is_whole(where: TopicPartition, entry: Recorded) -> bool:
        sets, kept = found.sets.get(where, []), narrow.sets.get(where, [])
        return len(sets[entry.among(sets)]) == len(kept[entry.among(kept)])

    kept = {
        where: [entry for entry in of_partition if is_whole(where, entry)]
        for where, of_partition in entries.items()
    }
    return {where: of_partition for where, of_partition in kept.items() if of_partition}


def on_spark(
    job: VerifyJob,
    settings: EngineSettings,
    hear: Callable[[Event], None],
    stop: threading.Event,
) -> Read:
    """Return how tasks on Spark read; nothing is started before there is something to read."""
    task = functools.partial(verify_task, job)
    return lambda units: engine.run(task, units, settings, hear, stop)


def _checked(found: Iterable[Checked | NotBegun], summary: Summary) -> dict[str, Checked]:
    """Return what reading has shown, by set; a task that could not begin fails the run."""
    reports = {}
    for each in found:
        if isinstance(each, NotBegun):
            summary.fail(each.failure)
        else:
            reports[each.id] = each
    return reports


def _units(
    sets: Mapping[TopicPartition, Sequence[FileSet]],
    wheres: Iterable[TopicPartition],
    share: Sample,
    known: BackupState,
) -> Iterator[VerifyUnit]:
    """Return what to read, the largest first, each with the next sets of its directory."""
    units = []
    for where in wheres:
        after: defaultdict[tuple[str, bool], deque[FileSet]] = defaultdict(deque)
        objects = known.ledger(where).objects
        of_partition = sets.get(where, ())
        for number, files in reversed([*enumerate(of_partition)]):
            place = files.encoded_partition, files.is_whole
            if share.takes(files.id):
                row = None if files.main is None else objects.get(files.main.key)
                stored = None if row is None else row.facts
                later = (of_partition[at] for at in range(number + 1, len(of_partition)))
                across = tuple(_across(files, later, objects))
                units.append(VerifyUnit(files, _reached(after[place], stored), across, stored))
            after[place].appendleft(files)
    yield from sorted(units, key=lambda unit: unit.size, reverse=True)


def _reached(after: Iterable[FileSet], stored: Facts | None) -> tuple[FileSet, ...]:
    """Return the sets of *after* that one before them may reach into: the first, or more."""
    if stored is None:
        return tuple(islice(after, 1))
    found: list[FileSet] = []
    for files in after:
        if found and files.start_offset > stored.last_offset:
            break
        found.append(files)
    return tuple(found)


def _across(
    files: FileSet, later: Iterable[FileSet], rows: Mapping[str, Entry]
) -> Iterator[FileSet]:
    """Yield the sets of *later* in other directories that *files* may have records in common with.

    The ledger says where it ends, and which sets are of its cut.
    """
    row = rows.get(files.id)
    if row is None or row.cut is None or not files.is_whole:
        return
    for one in later:
        if one.start_offset >= row.span.end_offset:
            return
        other = rows.get(one.id)
        is_beside = one.encoded_partition == files.encoded_partition
        if one.is_whole and not is_beside and (other is None or other.cut != row.cut):
            yield one


def _duplicates(
    sets: Mapping[TopicPartition, Sequence[FileSet]], reports: Mapping[str, Checked]
) -> Iterator[Finding]:
    """Report objects with the same bytes: a copy in the wrong place may look like a good object."""
    seen: dict[str, str] = {}
    left = _DUPLICATES_NAMED
    for where in sorted(sets):
        for files in sets[where]:
            report = reports.get(files.id)
            if report is None or report.sha256 is None or files.main is None:
                continue
            other = seen.setdefault(report.sha256, files.main.key)
            if other != files.main.key and left:
                text = f"the same bytes as {other}"
                yield Finding("duplicate", where, files.main.key, text=text, is_error=False)
                left -= 1


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


def _stale(summary: Summary, locks: Iterable[Holder], now: datetime) -> Iterator[Warned]:
    for holder in locks:
        age = (now - holder.modified).total_seconds()
        if age > STALE_S:
            text = f"a lock of {holder} is stale: no heartbeat for {age:.0f} s"
            yield summary.warn("stale_lock", text)
