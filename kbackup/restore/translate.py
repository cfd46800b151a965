"""Translate an offset of the backup to that of the restored topic where a consumer goes on.

R is what a restore wrote from one partition of the backup to one of the target, in order.  For S,
the next offset to read there, it is the target's offset of the first record of R at S or behind it;
if there is none, where a consumer stands that has read all of R: behind the marker of the last
transaction, so that its lag is 0.

Rows say where each transaction's records stand (`kbackup.catalog.translated`); within one, records
below S are counted in the backup.  Where a row is missing, or records of others lie between, they
are counted in the target too.  Nothing is interpolated, and the record that is found is compared
with the backup's.

By time, where nothing tells it exactly, a group goes on at the first record of the target that is
not older than the first one that it had not read.  Of several partitions of the backup that share
one of the target the oldest such record counts.  Records whose times do not follow their offsets
may be read again, or not at all.
"""

import logging
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.catalog.groups import GroupEntry
from kbackup.catalog.listing import FileSet
from kbackup.clock import shown_ms
from kbackup.errors import CorruptObjectError, KbackupError, RefusedError
from kbackup.kafka import Cluster, Reader, deletes_older_than
from kbackup.naming.renaming import rename
from kbackup.records import NO_TIMESTAMP, Span, TopicIdentity, TopicPartition
from kbackup.restore.job import RestoreJob
from kbackup.restore.restored import (
    BY_HAND,
    NotRestored,
    Restored,
    RestoredPartition,
    end_of_written,
    removed_since,
    written,
)
from kbackup.runs.compare import are_same, untimed
from kbackup.runs.inventory import Inventory
from kbackup.stores import Store

_log: Final = logging.getLogger(__name__)

_GONE: Final = "objects that the restore had read are no longer in the backup"

BY_TIME: Final = "--by-time goes by the records' times: it may repeat some, or skip some"


class InexactError(RefusedError):
    """An offset cannot be translated exactly; by the time of the record there it may be."""


class NotReachedError(RefusedError):
    """The restore has not come to an offset yet."""


@dataclass(frozen=True, slots=True)
class Translated:
    """Where a consumer goes on in a restored partition.

    Attributes:
        lost: How many records to be read the target has deleted already.
        note: What is to be said of it, in words; empty for nothing.
        is_approximate: It goes by time: some records may be read again, or not at all.
        written: When the record there was written, in ms since the epoch; None where that is not
            known.
    """

    offset: int
    lost: int = 0
    note: str = ""
    is_approximate: bool = False
    written: int | None = None


class Translator:
    """Translates offsets of partitions that one restore has written.

    Attributes:
        left: What the restore has left out, as far as it was come across.
    """

    def __init__(self, job: RestoreJob, inventory: Inventory, store: Store) -> None:
        self._job, self._inventory, self._store = job, inventory, store
        self._found: dict[tuple[TopicPartition, int], Translated | KbackupError] = {}
        self._gone: dict[TopicPartition, Sequence[Span]] = {}
        self._reader: Reader | None = None
        self._stored = self._there = _NOTHING
        self.left = NotRestored()

    def close(self) -> None:
        """Leave the cluster."""
        if self._reader is not None:
            self._reader.close()

    def translate(self, of: RestoredPartition, offset: int) -> Translated:
        """Return where a consumer goes on that was to read *offset* next.

        `RefusedError`: that cannot be told.  `CorruptObjectError`: the target does not hold what
        the backup says.
        """
        key = of.target, offset
        if key not in self._found:
            try:
                self._found[key] = self._translate(of, offset)
            except (RefusedError, CorruptObjectError) as error:  # others may pass
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, KbackupError):
            raise found
        return found

    def moment(self, of: RestoredPartition, offset: int) -> int | None:
        """Return the time of the first record that a consumer had not read; None: it had read all.

        `RefusedError`: it has none, or the restore has not come so far.
        """
        check_reached(of, offset)
        found = self._next(of, offset, offset)[1]
        ms, why = None, "its objects hold no times of records"
        if self._lacks(of, offset, of.position.cursor.reached if found is None else _offset(found)):
            why = _GONE
        elif found is None:
            return None
        else:
            ms = _time(found)
        if ms is None:
            raise _timeless(of, offset, why)
        return ms

    def _translate(self, of: RestoredPartition, offset: int) -> Translated:
        _check(of, offset)
        base, reached = _base(of, offset), of.position.cursor.reached
        beyond = max(0, offset - max(reached, of.end or 0))
        note = f"{beyond} beyond the backup" if beyond else ""
        is_whole = self._inventory.window.is_everything
        if is_whole and (early := min((one.begin for one in of.sets), default=0) - offset) > 0:
            note = f"{early} before the backup"
        below, record = self._next(of, base.offset, offset)
        if self._lacks(of, offset, reached if record is None else _offset(record)):
            if not base.is_exact or base.offset < offset:
                raise _inexact(of, offset, _GONE)
            return self._proved(of, base.target, offset, None, f"not compared: {_GONE}")
        if record is None:
            end = end_of_written(of.lane, of.rows)
            if of.span.end_offset < end:
                raise _differs(of, offset, f"it ends before offset {end}")
            behind = self._first(of, max(end, of.span.start_offset))
            at = of.span.end_offset if behind is None else _offset(behind)
            return Translated(at, note=note)
        if self._lacks(of, base.offset, offset):
            return self._proved(of, self._from_end(of, offset), offset, record, note)
        if base.is_exact:
            return self._proved(of, base.target + below, offset, record, note)
        found = self._nth(of, base.target, below, offset)
        if found is None or not _is(found, record, of):
            if of.is_compacted:
                why = f"records of {of.target} cannot be counted: compaction may have taken some"
                raise _inexact(of, offset, why)
            raise _differs(of, offset, "it was written to by others, or records of it are gone")
        return Translated(_offset(found), note=note, written=_time(record))

    def _from_end(self, of: RestoredPartition, offset: int) -> int:
        """Return where a record of R stands, counted from the end of its row."""
        rows = (row for row in of.rows if row.first <= offset <= row.last and row.is_contiguous)
        row = next(rows, None)
        if row is None or self._lacks(of, offset, row.last + 1):
            raise _inexact(of, offset, f"records before it cannot be counted: {_GONE}")
        return row.target_last + 1 - sum(map(len, self._restored(of, offset, row.last + 1)))

    def _lacks(self, of: RestoredPartition, start: int, end: int) -> bool:
        """Whether R has, or may have, records between two offsets that the backup has no more."""
        if of.source not in self._gone:
            self._gone[of.source] = [*self._no_longer_there(of)]
        gone = self._gone[of.source]
        return any(max(start, one.start_offset) < min(end, one.end_offset) for one in gone)

    def _no_longer_there(self, of: RestoredPartition) -> Iterator[Span]:
        """Yield offsets of what R was read from and was removed, is missing, or got shorter."""
        inventory, reached = self._inventory, of.position.cursor.reached
        absent = of.position.absent or ()
        for files in removed_since(inventory, of):
            known = inventory.entered(files)
            yield Span(files.begin, reached if known is None else known.last_offset + 1)
        spans = [entry.span for entry in inventory.missing(of.source)]
        last = of.rows[-1].last + 1 if of.rows else reached
        if of.end is not None and of.end < last:
            spans.append(Span(of.end, last))
        for span in spans:
            if not any(span.start_offset in one for one in absent):
                yield span

    def _proved(
        self, of: RestoredPartition, at: int, offset: int, record: pa.RecordBatch | None, note: str
    ) -> Translated:
        """Return *at*, once the record there is seen to be that of the backup, if it has it."""
        if at < of.span.start_offset:
            lost = of.span.start_offset - at
            return Translated(of.span.start_offset, lost, f"{lost} deleted in the target")
        found = self._first(of, at)
        if found is None and not of.is_compacted:
            raise _differs(of, offset, f"it ends before offset {at}")
        is_there = found is not None and _offset(found) == at  # else it was compacted away
        if record is not None and found is not None and is_there and not _is(found, record, of):
            raise _differs(of, offset, f"offset {at} holds another record")
        return Translated(at, note=note, written=None if record is None else _time(record))

    def _next(
        self, of: RestoredPartition, start: int, offset: int
    ) -> tuple[int, pa.RecordBatch | None]:
        """Return how many records of R lie from *start* to *offset*, and the first one behind."""
        if start == offset and (known := self._stored.first(of.source, offset)) is not None:
            return 0, known
        below, self._stored = 0, _NOTHING
        for batch in self._restored(of, start, of.position.cursor.reached):
            number = _below(batch, offset)
            below += number
            if number < len(batch):
                self._stored = _LastRead(of.source, offset, batch.slice(number))
                return below, batch.slice(number, 1)
        return below, None

    def _nth(
        self, of: RestoredPartition, start: int, below: int, offset: int
    ) -> pa.RecordBatch | None:
        """Return the record of the target that so many follow from an offset to it."""
        if start < of.span.start_offset:
            why = f"{of.target} has deleted what is before {of.span.start_offset}"
            raise _inexact(of, offset, f"{why}, so records cannot be counted")
        # records of others are counted too: then it is another one than that of the backup
        for batch in self._records(of, start):
            if below < len(batch):
                return batch.slice(below, 1)
            below -= len(batch)
        return None

    def _records(self, of: RestoredPartition, start: int) -> Generator[pa.RecordBatch, None, None]:
        span = Span(start, of.span.end_offset)
        if not len(span):
            return
        if self._reader is None:
            self._reader = self._job.kafka.reader(self._job.group)
        with closing(self._reader.read(of.target, span)) as batches:
            yield from batches

    def _first(self, of: RestoredPartition, start: int) -> pa.RecordBatch | None:
        """Return the first record of the target from an offset on; None where there is none."""
        if (known := self._there.first(of.target, start)) is not None:
            return known
        self._there = _NOTHING
        with closing(self._records(of, start)) as batches:
            for batch in batches:
                self._there = _LastRead(of.target, start, batch)
                return batch.slice(0, 1)
        return None

    def _restored(self, of: RestoredPartition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield records of R with offsets of the backup in a range, as they were written."""
        sets = [files for files in of.sets if self._reaches(files, start) and files.begin < end]
        of, window, offsets = replace(of, sets=sets), self._inventory.window, Span(start, end)
        return written(self._store, self._job, of, window, offsets, self.left)

    def _reaches(self, files: FileSet, start: int) -> bool:
        known = self._inventory.entered(files)
        return known is None or known.last_offset is None or known.last_offset >= start


@dataclass(frozen=True, slots=True)
class _LastRead:
    """What was read last: all records of a partition from *start* to the last one of *batch*."""

    where: TopicPartition | None  # one of the backup, of which that is R, or of the target
    start: int
    batch: pa.RecordBatch | None

    def first(self, where: TopicPartition, offset: int) -> pa.RecordBatch | None:
        """Return the first record from an offset on; None where that was not read."""
        if self.batch is None or where != self.where or offset < self.start:
            return None
        number = _below(self.batch, offset)
        return self.batch.slice(number, 1) if number < len(self.batch) else None


_NOTHING: Final = _LastRead(None, 0, None)


def _below(batch: pa.RecordBatch, offset: int) -> int:
    """Return how many records of a batch are below an offset."""
    return pc.sum(pc.less(batch["offset"], offset)).as_py() or 0


@dataclass(frozen=True, slots=True)
class _Base:
    """From where records are counted: those of R below *offset* stand before *target*."""

    offset: int
    target: int
    is_exact: bool  # the n-th record of R from there on is the n-th offset


def _base(of: RestoredPartition, offset: int) -> _Base:
    """Return the nearest place before an offset that a row knows."""
    following = bisect_right(of.rows, offset, key=lambda row: row.first)
    row = of.rows[following - 1] if following else None
    if row is not None and offset <= row.last:
        if row.is_contiguous and row.is_dense:
            return _Base(offset, row.target_first + offset - row.first, is_exact=True)
        return _Base(row.first, row.target_first, is_exact=row.is_contiguous)
    behind = of.rows[following] if following < len(of.rows) else None
    start = 0 if row is None else row.last + 1
    target = of.lane.log.start_offset if row is None else row.target_last + 1
    if behind is not None and behind.target_first - target <= (0 if row is None else 1):
        # nothing but a marker lies between, so no row is missing
        return _Base(behind.first, behind.target_first, is_exact=behind.is_contiguous)
    return _Base(start, target, is_exact=False)


def _check(of: RestoredPartition, offset: int) -> None:
    """Refuse an offset that the restore has not come to, and records without offsets."""
    check_reached(of, offset)
    if any(not files.is_whole for files in of.sets):
        why = "its objects hold values without offsets, so none is certain"
        raise _inexact(of, offset, why)
    if any(one.last >= two.first for one, two in pairwise(of.rows)):
        raise _inexact(of, offset, "two restores have written the same offsets of the backup")


def check_reached(of: RestoredPartition, offset: int) -> None:
    """Refuse an offset that the restore has not come to."""
    reached = of.position.cursor.reached
    if offset > reached and (of.end is None or of.end > reached):
        raise NotReachedError(
            f"{of.source}: the restore has not reached offset {offset} yet",
            f"it has restored what is before {reached}",
            "run the restore again, to its end, then this command",
            **of.source.place,
        )  # fmt: skip


def _inexact(of: RestoredPartition, offset: int, why: str) -> InexactError:
    what = f"{of.source}: offset {offset} cannot be translated"
    return InexactError(what, why, BY_TIME, **of.source.place)


def _timeless(of: RestoredPartition, offset: int, why: str) -> RefusedError:
    what = f"{of.source}: offset {offset} cannot be translated by time"
    return RefusedError(what, why, BY_HAND, **of.source.place)


def _offset(record: pa.RecordBatch) -> int:
    offset: int = record["offset"][0].as_py()
    return offset


def _time(record: pa.RecordBatch) -> int | None:
    ms: int | None = record["timestamp"][0].as_py()
    return None if ms == NO_TIMESTAMP else ms


def _is(found: pa.RecordBatch, record: pa.RecordBatch, of: RestoredPartition) -> bool:
    """Whether a record of the target is that of the backup, as far as it could be kept."""
    return are_same(of.as_kept(record), of.as_kept(untimed(found)))


def _differs(of: RestoredPartition, offset: int, why: str) -> KbackupError:
    return CorruptObjectError(
        f"{of.target}: it does not hold what follows offset {offset} of {of.source}",
        why,
        "compare it with the backup; restore into a new topic if it was written by others",
        **of.target.place,
    )  # fmt: skip


Placed = tuple[GroupEntry, TopicPartition, Translated | KbackupError]
"""Where a group stood, the partition of the target, and where it goes on there, or why not."""

Learned = dict[tuple[TopicPartition, str, int], Translated]
"""Offsets of the backup that are translated, by the target's partition, and its topic's id."""


class GroupView:
    """Translates offsets of groups.

    Args:
        by_time: Go by the times of records where nothing tells it exactly.
        known: What another one has learned of the same restore, earlier.

    Attributes:
        group: The restore's own, which keeps its positions.
        damage: Files that cannot be read, of what the restore is known by.
        topics: All topics of the backup, those that are not asked for too.
        learned: What this one has been asked, as far as the answer holds later too.
    """

    def __init__(
        self, restored: Restored, cluster: Cluster, store: Store, *, by_time: bool = False,
        known: Learned | None = None,
    ) -> None:  # fmt: skip
        self._restored, self._cluster, self._by_time = restored, cluster, by_time
        self._translator = Translator(restored.job, restored.inventory, store)
        self.damage, self.group = restored.damage, restored.map.group
        self.topics = sorted(restored.inventory.known.names)
        self._known, self.learned = known or {}, Learned()

    @property
    def bad_objects(self) -> int:
        """How many objects the restore has left out of those that were read here."""
        return len(self._translator.left.objects)

    def close(self) -> None:
        """Leave the cluster."""
        self._translator.close()

    def look_up(self, rows: Iterable[GroupEntry]) -> None:
        """Translate offsets as they follow each other, so that what is read serves the next too."""
        found = {(row.where, row.offset or 0): row for row in rows if self._restored.map.is_same}
        for (where, offset), row in sorted(found.items(), key=lambda each: each[0]):
            try:
                at = self._restored.target(where)
                of = self._partition(row, at)
                if of is not None:
                    self._exact(of, at, offset)
            except (RefusedError, CorruptObjectError):  # of this one alone
                continue
            except KbackupError as error:
                _log.info("no offsets are translated ahead: %s", error)
                return

    def translated(self, rows: Sequence[GroupEntry]) -> Iterator[Placed]:
        """Yield where a group goes on, or why that cannot be told, in partitions of the target.

        *rows* say where it stood in the partitions of one topic; each is yielded with what it comes
        to.
        """
        if not self._restored.map.is_same:
            yield from self._spread(rows)
            return
        for row in rows:
            at = self._restored.target(row.where)
            try:
                yield row, at, self._translate(row, at)
            except KbackupError as error:
                yield row, at, error

    def _translate(self, row: GroupEntry, at: TopicPartition) -> Translated:
        of, offset = self._partition(row, at), row.offset or 0
        if of is None:
            return self._begins(at, "nothing of it is in the backup")
        try:
            found = self._exact(of, at, offset)
        except InexactError:
            if not self._by_time:
                raise
            near, begin = self._at_time(at, self._moment(of, offset)), of.lane.log.start_offset
            return near if near.offset >= begin else replace(near, offset=begin)
        if not found.note:  # else it may be told better once the copy has more
            self.learned[at, of.position.target_id, offset] = found
        return found

    def _exact(self, of: RestoredPartition, at: TopicPartition, offset: int) -> Translated:
        found = self._known.get((at, of.position.target_id, offset))
        if found is None or found.offset < of.span.start_offset:
            found = self._translator.translate(of, offset)
        return found

    def _partition(self, row: GroupEntry, at: TopicPartition) -> RestoredPartition | None:
        """Return what was restored of a partition that a group stood in; None: nothing of it is."""
        if at not in self._restored.spans:
            raise RefusedError(
                f"there is no {at} to set an offset in",
                "it has not been restored to this cluster",
                "give the renaming that the restore was given, or restore it first",
                **at.place,
            )  # fmt: skip
        of = self._restored.partition(row.where)
        stood = TopicIdentity(row.cluster_id or "", row.topic_id or "")
        if of is not None and stood.conflicts(of.position.source.identity):
            raise RefusedError(
                f"{row.where}: group {row.group} had its offset in another topic of this name",
                "the topic was deleted and created again between the backup and the capture",
                "run the sink again, then restore, then this command",
                **row.where.place,
            )  # fmt: skip
        return of

    def added(self, topic: str) -> Iterator[tuple[TopicPartition, Translated]]:
        """Yield partitions of the target that the source never had: all of them is unread."""
        entry = self._restored.inventory.known.topics.get(topic)
        there = self._restored.targets.get(rename(topic, self._restored.settings.renames))
        had = None if entry is None else entry.partitions
        if not self._restored.map.is_same or had is None or there is None:
            return
        for partition in range(had, there.partitions):
            at = TopicPartition(there.name, partition)
            yield at, self._begins(at, "the source has no such partition")

    def unread(self, at: TopicPartition, offset: int) -> int:
        """Return the lag that Kafka shows of a group that stands there.

        It counts what open transactions have written, too.
        """
        return max(0, self._ends[at] - offset)

    def keeps_ms(self, topic: str) -> int | None:
        """Return for how long a topic of the backup kept records; None: for ever, or unknown."""
        entry = self._restored.inventory.known.topics.get(topic)
        return None if entry is None else deletes_older_than(entry.config)

    @cached_property
    def _ends(self) -> dict[TopicPartition, int]:
        return self._cluster.ends([*self._restored.spans])

    def _begins(self, at: TopicPartition, note: str) -> Translated:
        return Translated(self._restored.spans[at].start_offset, note=note)

    # by time

    def _spread(self, rows: Sequence[GroupEntry]) -> Iterator[Placed]:
        """Yield where a group goes on whose partitions of the backup share those of the target."""
        oldest: dict[TopicPartition, tuple[int | None, GroupEntry]] = {}
        for row in rows:
            ats = self._restored.spread(row.where)
            try:
                of = self._partition(row, ats[0])
                moment = None if of is None else self._moment(of, row.offset or 0)
            except KbackupError as error:
                yield row, ats[0], error
                continue
            for at in ats:
                least = oldest[at][0] if at in oldest else None
                # None: there is no record to be read
                is_older = moment is not None and (least is None or moment < least)
                if at not in oldest or is_older:
                    oldest[at] = moment, replace(row, metadata=None)  # which is about that one
        for at, (moment, row) in sorted(oldest.items(), key=lambda each: each[0]):
            yield row, at, self._at_time(at, moment)

    def _moment(self, of: RestoredPartition, offset: int) -> int | None:
        """Return the time to go by; None: all was read."""
        if not self._restored.has_times(of.target.topic):
            why = f"{of.target.topic} keeps the time of each append: message.timestamp.type"
            raise _timeless(of, offset, why)
        return self._translator.moment(of, offset)

    def _at_time(self, at: TopicPartition, moment: int | None) -> Translated:
        span = self._restored.spans[at]
        if moment is None:
            return _near(span.end_offset, "approximate: all of the backup was read")
        found = self._cluster.first_since({at: moment}).get(at, span.end_offset)
        note = f"approximate, by time {shown_ms(moment)}: may repeat or skip"
        return _near(min(max(found, span.start_offset), span.end_offset), note)


def _near(offset: int, note: str) -> Translated:
    return Translated(offset, note=note, is_approximate=True)
