"""``restore verify --against target``: compare restored topics with what the backup holds.

What a restore should have written is read from the backup as the restore has read it, transforms
and all, and compared with what stands in the target, record by record, in order.  The rows of
translation (`kbackup.catalog.translated`) cut a partition into parts that tasks compare side by
side; where there are none, a partition is one part.
"""

import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kbackup.batches import Batches, Kept
from kbackup.catalog.ledger.rows import Entry
from kbackup.catalog.listing import FileSet, Window
from kbackup.catalog.merging import StoredBatches
from kbackup.catalog.reading import unpacked
from kbackup.catalog.translated import Translation
from kbackup.config import Settings
from kbackup.errors import DiffersError, KbackupError, RefusedError, counted, some
from kbackup.kafka import ReadsBatches
from kbackup.kafka.fetch import rows_of
from kbackup.records import Span, TopicPartition, replaced
from kbackup.restore.job import RestoreJob, has_batches
from kbackup.restore.restored import (
    NotRestored,
    Restored,
    RestoredPartition,
    removed_since,
    why_spread,
    written,
)
from kbackup.runs.compare import (
    ComparisonPlan,
    InBatches,
    Part,
    PartitionCompared,
    UnitCompared,
    by_offset,
    check_settings,
    compare,
    in_order,
    incomplete,
    names_of,
    untimed,
)
from kbackup.runs.context import Environment
from kbackup.runs.inventory import Inventory
from kbackup.runs.report import Summary
from kbackup.spark.channel import TaskChannel
from kbackup.stores import Store, open_store

if TYPE_CHECKING:
    from kbackup.kafka import Reader

RECORDS_MOST: Final = 1_000_000
"""How many records a task compares before it reports."""

_NEXT: Final = 2
"""How far the first record of a transaction stands behind the last one of the one before."""


@dataclass(frozen=True, slots=True)
class TargetUnit:
    """Part of a restored partition to compare; plain data.

    Attributes:
        expired: How many records at its beginning the target has deleted.
        removed: How many at its beginning were removed from the backup since.
        is_open: Whether what follows the last record of the backup may have been written since.
    """

    of: RestoredPartition
    window: Window
    offsets: Span
    target: Span
    expired: int = 0
    removed: int = 0
    is_open: bool = False


def target_task(
    job: RestoreJob, units: Sequence[TargetUnit], channel: TaskChannel
) -> Iterator[UnitCompared]:
    """Compare *units* one after the other; a failure is a report, not an exception.

    Memory: few batches of either side.
    """
    store = open_store(job.store)
    # the client library cuts names of headers at a NUL, and batches that were sent have them whole
    by_batches = any(has_batches(unit.of.sets) for unit in units)
    with closing(job.kafka.reader(job.group, by_batches=by_batches)) as reader:
        for unit in units:
            try:
                yield _compared(job, unit, store, reader)
            except KbackupError as error:
                yield UnitCompared(unit.of.source, failure=error.issue())
            if channel.is_stopped():
                return


def _compared(job: RestoreJob, unit: TargetUnit, store: Store, reader: "Reader") -> UnitCompared:
    of, left, kept = unit.of, NotRestored(), None
    is_whole = not (of.is_compacted or unit.expired or unit.removed)
    if is_whole and isinstance(reader, ReadsBatches) and job.keeps_batches(of.unit(unit.window)):
        kept = Kept(job.max_record_bytes)
    backup = written(store, job, of, unit.window, unit.offsets, left, kept)
    mine = _behind(_as_kept(job, of, backup), unit.expired)
    with closing(_there(reader, unit, in_batches=kept is not None)) as there:
        theirs = _behind(there, unit.removed)
        if not of.is_compacted:
            found, compacted = in_order(mine, theirs, may_follow=unit.is_open), 0
        else:
            found = by_offset(_placed(mine, of, unit.expired), theirs, lacking=len)
            found, compacted = replace(found, backup_only=0), found.backup_only
    return UnitCompared(
        of.source, found, unit.expired, compacted, bad_objects=frozenset(left.objects),
        bad_records=left.records,
    )  # fmt: skip


def _as_kept(
    job: RestoreJob, of: RestoredPartition, found: Iterable[pa.RecordBatch | StoredBatches]
) -> Iterator[Part]:
    """Yield what was written as it is compared."""
    reading = job.reads(of.target.topic)

    def rows(files: FileSet, batches: Batches) -> Iterator[pa.RecordBatch]:
        return map(of.as_kept, unpacked(files, batches, reading))

    for each in found:
        if isinstance(each, StoredBatches):
            yield InBatches(each.batches, partial(rows, each.files))
        else:
            yield of.as_kept(each)


def _there(reader: "Reader", unit: TargetUnit, *, in_batches: bool) -> Generator[Part, None, None]:
    """Yield what the target has as it is compared."""
    of, span = unit.of, unit.target

    def rows(batches: Batches) -> Iterator[pa.RecordBatch]:
        return (of.as_kept(untimed(each)) for each in rows_of(of.target, batches, span))

    if not len(span):
        return
    if not (in_batches and isinstance(reader, ReadsBatches)):
        with closing(reader.read(of.target, span)) as found:
            yield from (of.as_kept(untimed(each)) for each in found)
        return
    with closing(reader.batches(of.target, span)) as batches:
        for some in batches:
            if some.next_offset <= span.end_offset:
                yield InBatches(some, rows)
            else:
                yield from rows(some)


def _behind(parts: Iterable[Part], number: int) -> Iterator[Part]:
    """Yield parts without so many records at their beginning; if any, these come as rows."""
    for part in parts:
        if number and not isinstance(part, InBatches):
            passed = min(number, len(part))
            number -= passed
            part = part.slice(passed)  # noqa: PLW2901
        yield part


def _placed(
    batches: Iterable[pa.RecordBatch], of: RestoredPartition, passed: int
) -> Iterator[pa.RecordBatch]:
    """Yield records with the offsets that rows say they have in the target."""
    stood = [pa.arange(row.target_first, row.target_last + 1) for row in of.rows]
    offsets = pa.concat_arrays(stood).slice(passed)
    for batch in batches:
        if len(batch) > len(offsets):
            break
        yield replaced(batch, "offset", offsets.slice(0, len(batch)))
        offsets = offsets.slice(len(batch))
    else:
        if not len(offsets):
            return
    raise DiffersError(
        f"{of.target} got a different number of records than the backup holds",
        "the backup has changed since it was restored",
        "verify the backup: kbackup restore verify --deep", **of.target.place,
    )  # fmt: skip


def verify_against_target(
    settings: Settings,
    environment: Environment,
    summary: Summary,
    stop: threading.Event,
    inventory: Inventory | None = None,
) -> Iterator[PartitionCompared]:
    """Compare what a restore has written with the backup; `KbackupError` if nothing can be.

    *summary* takes differences (exit code 7), and what could not be compared (3).  *inventory* is
    what the restore was given; None: what is there.
    """
    if (why := why_spread(settings)) is not None:
        raise RefusedError(
            "this restore cannot be compared", why, "compare it with a program of your own"
        )
    store, cluster = open_store(environment.store), environment.kafka.cluster()
    restored = Restored(settings, environment.kafka, store, environment.clock, cluster, inventory)
    check_settings(restored.targets, restored.configs)
    planned = [
        _planned(restored, where, _missing(restored, where, summary))
        for topic in restored.inventory.topics()
        for where in restored.inventory.there(topic)
        if settings.asked.has(where.partition)
    ]
    if not planned:
        topics = restored.inventory.topics()
        raise RefusedError(
            f"no partition of {some(topics)} is chosen", "no topic has such a partition",
            "correct --partitions",
        )  # fmt: skip
    _note_ids(restored, [each.row.where for each in planned], summary)
    task = partial(target_task, replace(restored.job, store=environment.store))
    yield from compare(environment, task, planned, summary, stop)


def _note_ids(restored: Restored, wheres: Sequence[TopicPartition], summary: Summary) -> None:
    """Say of which copies only what follows the ids of schemas is compared."""
    found = (restored.partition(where) for where in wheres)
    topics = {of.target.topic for of in found if of is not None and of.position.ids is not None}
    if topics:
        text = "the restore wrote the ids of the target's registry, which were not compared"
        summary.warn("schema_ids_not_compared", f"{some(sorted(topics))}: {text}")


def _missing(restored: Restored, where: TopicPartition, summary: Summary) -> list[Entry]:
    """Return what the backup lacks; a restore that left it out is compared without it, counted."""
    missing = restored.inventory.missing(where)
    if not missing or restored.job.on_error == "fail":
        return missing
    summary.skip("missing_objects", len(missing))
    text = f"{where}: {names_of(missing)} missing; left out"
    summary.warn("missing_object", text, **where.place)
    return []


def _planned(
    restored: Restored, where: TopicPartition, missing: Sequence[Entry]
) -> ComparisonPlan[TargetUnit]:
    """Return what to compare of a partition of the backup, if this restore has written it there."""
    at = restored.target(where)
    row = PartitionCompared(where, at.topic)
    window, of = restored.inventory.window, restored.partition(where)
    if missing or of is None:
        return incomplete(row, missing) if missing else ComparisonPlan(row)

    def unclear(why: str) -> ComparisonPlan[TargetUnit]:
        return ComparisonPlan(replace(row, why=why))

    reached, deleted = of.position.cursor.reached, of.span.start_offset
    if of.end is not None:
        row = replace(row, left=max(0, of.end - reached))
    if (why := _why_unclear(of)) is not None:
        return unclear(why)
    rows = [one for one in of.rows if one.target_last >= deleted]
    gone = [one for one in of.rows if one.target_last < deleted]
    first = expired = 0
    if deleted > of.lane.log.start_offset:
        if not rows and gone and gone[-1].last + 1 >= reached:
            return ComparisonPlan(replace(row, expired=sum(one.records for one in gone)))
        if not _says_what_is_gone(rows, gone, deleted):
            why = f"the target has deleted what is before offset {deleted}, "
            why += "and no translation row says what"
            return unclear(why)
        first, expired = rows[0].first, max(0, deleted - rows[0].target_first)
        row = replace(row, expired=sum(one.records for one in gone))
    since = removed_since(restored.inventory, of)
    removed, start = 0, of.lane.log.start_offset
    if since and (not of.sets or first < of.sets[0].begin):
        is_cut = bool(first or expired) or of.is_compacted
        count = None if is_cut else _records(restored, of, since, window)
        passed = [one for one in rows if one.last < of.sets[0].begin] if of.sets else []
        told = sum(one.records for one in passed)
        if count is None or count < told:  # less was stored in place of what it had read
            why = f"{counted(len(since), 'object')} that it had read, removed on purpose since, and"
            return unclear(f"the backup lacks {why} what the target has of them is not known")
        first = of.sets[0].begin
        rows, removed = rows[len(passed) :], count - told
        start = rows[0].target_first if passed and rows else start
    is_open = not (rows and rows[-1].last + 1 >= reached)
    end = of.span.end_offset if is_open else min(rows[-1].target_last + 1, of.span.end_offset)
    # behind the last record stands the marker of its transaction
    row = replace(row, behind=max(0, of.span.end_offset - end - restored.job.exactly_once))
    units = _units(
        restored, of, Span(first, reached), Span(start, end), rows,
        expired=expired, removed=removed, is_open=is_open,
    )  # fmt: skip
    return ComparisonPlan(row, [*units])


def _why_unclear(of: RestoredPartition) -> str | None:
    """Return why nothing says which records of the target are whose; None if something does."""
    is_at_end = of.end is not None and of.position.cursor.reached >= of.end
    if any(not files.is_whole for files in of.sets) and not is_at_end:
        why = (
            "the restore is still running"
            if of.end is not None
            else "it is not known where they end"
        )
        return f"its values have no offsets, and {why}"
    if of.is_compacted and not (of.rows and all(one.is_contiguous for one in of.rows)):
        return "the target is compacted, and no translation row says what it held"
    return None


def _records(
    restored: Restored, of: RestoredPartition, removed: Sequence[FileSet], window: Window
) -> int | None:
    """Return how many records *removed* sets had that the target got before all others."""
    known = [restored.inventory.entered(files) for files in removed]
    spans = [Span(one.first_offset, one.last_offset + 1) for one in known if one is not None]
    is_plain = window.is_everything and not restored.settings.transforms
    is_head = bool(of.sets) and spans[-1:] and spans[-1].end_offset <= of.sets[0].begin
    are_apart = all(one.end_offset <= two.start_offset for one, two in pairwise(spans))
    if not (is_plain and is_head and are_apart and len(spans) == len(removed)):
        return None
    return sum(one.records for one in known if one is not None)


def _says_what_is_gone(
    rows: Sequence[Translation], gone: Sequence[Translation], deleted: int
) -> bool:
    """Whether it is known which record is the first that was not *deleted*."""
    if not rows or not rows[0].is_contiguous:
        return False
    is_within = rows[0].target_first <= deleted
    # between two rows stands nothing but a marker, or a row is missing
    return is_within or bool(gone and rows[0].target_first - gone[-1].target_last <= _NEXT)


def _units(
    restored: Restored,
    of: RestoredPartition,
    offsets: Span,
    target: Span,
    rows: Sequence[Translation],
    *,
    expired: int,
    removed: int,
    is_open: bool,
) -> Iterator[TargetUnit]:
    """Cut what is compared of both sides into units, in order; each row's records are in one."""
    entered = restored.inventory.entered
    groups: list[list[Translation]] = [[]]
    records = 0
    for row in rows:
        if groups[-1] and records + row.records > RECORDS_MOST:
            groups.append([])
            records = 0
        groups[-1].append(row)
        records += row.records
    start, first = max(target.start_offset, of.span.start_offset), offsets.start_offset
    for number, group in enumerate(groups):
        following = groups[number + 1] if number + 1 < len(groups) else None
        end = offsets.end_offset if following is None else following[0].first
        stop = target.end_offset if following is None else following[0].target_first
        sets = [
            files
            for files in of.sets
            if files.begin < end
            and ((known := entered(files)) is None or known.last_offset >= first)
        ]
        yield TargetUnit(
            replace(of, rows=tuple(group), sets=sets),
            restored.inventory.window, Span(first, end),
            Span(min(start, stop), stop), expired if number == 0 else 0,
            removed if number == 0 else 0, is_open and following is None,
        )  # fmt: skip
        first, start = end, stop
