"""Restore partitions in a task: objects to Kafka, each record with the position that covers it.

Records are acknowledged, then the position is committed, by default both in one transaction; then
progress is shown.

A restore waits for Kafka to take records, and for objects to come; side by side each hides the
other.  Decoding runs outside Python's global lock, so it uses another core where there is one.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from time import monotonic, sleep
from typing import Final

import pyarrow as pa

from kbackup.batches import Kept
from kbackup.catalog import merging
from kbackup.catalog.claims import Reading
from kbackup.catalog.listing import FileSet, object_bytes, object_count
from kbackup.catalog.merging import Failed, Finished, Skipped, StoredBatches, StoredRows
from kbackup.catalog.translated import TranslationLog
from kbackup.errors import Issue, KafkaError, KbackupError, RefusedError, StoppedError
from kbackup.events import Warned
from kbackup.kafka import (
    PATIENCE_S,
    BrokenOffError,
    Outage,
    TakenOverError,
    TargetWriter,
    WritesBatches,
)
from kbackup.records import DEPTH, Prefetch, Span, TopicPartition
from kbackup.restore.job import RestoreJob, RestoreUnit, has_batches
from kbackup.restore.resume import ResumedValues, chained, unfinished
from kbackup.restore.transaction import (
    Fence,
    PartitionWriter,
    RateLimit,
    Report,
    SharedWriter,
    by_writer,
    fence_of,
)
from kbackup.restore.transform import Filtered, RecordFilter, malformed_records
from kbackup.runs.dead_letters import DeadLetters
from kbackup.runs.position import Cursor, digest
from kbackup.runs.report import OfRestore, PartitionReport
from kbackup.spark.channel import TaskChannel
from kbackup.stores import Store, open_store

_log: Final = logging.getLogger(__name__)

_PAUSE_S: Final = 0.2
"""How long a broker is left alone before another writer goes on."""

TELL_S: Final = 0.5
"""How often a task reports what it has sent beyond what is safe."""


class RestorePartitionTask:
    """One unit's way through the task, not faster than its *pace*.

    What its *report* counts is committed; *skipped* is what another writer left out that could not
    go on.  Unless it goes *by_records*, it *sends_batches* as they are stored, where it can.
    """

    def __init__(
        self,
        job: RestoreJob,
        unit: RestoreUnit,
        store: Store,
        channel: TaskChannel,
        pace: RateLimit | None = None,
        letters: DeadLetters | None = None,
        skipped: tuple[Issue, ...] = (),
        *,
        by_records: bool = False,
    ) -> None:
        self._by_records, self.sends_batches = by_records, False
        self.job, self.unit, self.letters = job, unit, letters
        self._store, self._channel, self._pace = store, channel, pace
        own = OfRestore(unit.target.topic, lanes=unit.lanes, skipped=skipped)
        self.report = PartitionReport(unit.source, unit.position.cursor.reached, None, None, own)
        self._out: PartitionWriter  # once it runs
        self._values: FileSet | None = None  # the value set at hand
        self._begun: ResumedValues | None = None  # what was read of it, as it was restored
        self._before = unit.before  # stands for the value sets before it
        self._left: list[Issue] = []
        self._sent: list[tuple[Span, tuple[FileSet, ...]]] = []  # of what is not committed
        self._told = monotonic()

    def run(self, writer: TargetWriter | SharedWriter) -> None:
        """Restore the unit: read and merge its objects, transform, write and commit records.

        Whatever is raised, what is committed is safe.
        """
        records = RecordFilter(self.job, self.unit)
        log = TranslationLog(self._store, self.job.layout, self.job.group, self.job.clock)
        out = self._out = PartitionWriter(self.job, self.unit, writer, self.letters, log)
        sets = self._resume()
        if not self.unit.sets:  # nothing but its beginning was to be committed
            return
        is_able = isinstance(writer, WritesBatches) and not self._by_records
        self.sends_batches = is_able and self.job.keeps_batches(self.unit)
        depth = 0 if self.unit.size <= SMALL_BYTES else DEPTH  # the others are side by side
        kept = self.unit.kept if self.sends_batches else None
        with Prefetch(self._read(sets, kept), depth) as ahead:
            for step in chain.from_iterable(map(self._paced, ahead)):
                self._stop_if_asked()
                match step:
                    case StoredRows(_, files):
                        rows, cursor = self._new_rows(step)
                        if len(rows):
                            found = records.apply(rows, files, writer.record_bytes_max)
                            self._leave_out(found)
                            self._wait(found.batch)
                            self._sending(found.batch["offset"], files)
                            passed = len(rows) if files[0].is_whole else 0
                            out.write(found.batch, cursor, passed=passed)
                            out.count(duplicates=step.duplicates)
                    case StoredBatches(batches, files):
                        end = batches.next_offset
                        self._sent.append((Span(batches.first_offset, end), (files,)))
                        reached = max(out.cursor.reached, end)
                        out.write_batches(batches, replace(out.cursor, offset=end, reached=reached))
                    case Skipped():
                        self._pass_over(step)
                    case Finished(files):
                        self._finish(files)
                    case Failed(files, error, unread):
                        self._enter(files)
                        self._fail(files, error, unread)
                if out.is_full(waits=self._pace is not None):
                    self._commit()
                elif monotonic() - self._told >= TELL_S:
                    self._tell_progress()
        self._commit()

    # where it begins

    def _resume(self) -> list[FileSet]:
        """Begin, or continue at the committed position; return the sets that are left."""
        unit, out, sets = self.unit, self._out, [*self.unit.sets]
        if out.begin():
            sets = unfinished(self._store, sets, out.cursor.offset)
            self._before = out.cursor.before
            self._note_end()
        if any(files.is_whole for files in sets):
            out.check_ids()
        at = next((n for n, one in enumerate(sets) if digest(one.part) == out.cursor.values), None)
        if at is not None and not sets[at].is_whole:
            self._values, self._begun = sets[at], ResumedValues(sets[at], out.cursor)
        left = [files for n, files in enumerate(sets) if files.is_whole or n >= (at or 0)]
        if out.is_ours and len(left) < len(unit.sets):
            # some were read to their ends after the last commit
            names = {files.part for files in left}
            ended = [files for files in unit.sets if files.part not in names]
            count = object_count(ended) - out.done.bad_objects
            out.done = replace(out.done, objects=count, bytes_read=object_bytes(ended))
        self._report()
        return left

    def _note_end(self) -> None:
        """Note where the target's log ended before this run's records, by a newer position."""
        if self.unit.group is not None:  # several partitions of the backup write to it
            return
        mine = self._out.done.records + (self._out.done.commits if self.job.exactly_once else 0)
        own = replace(self.report.own, log_end=self._out.lanes[0].log.end_offset - mine)
        self.report = replace(self.report, own=own)

    # what is read

    def _read(self, sets: Sequence[FileSet], kept: Kept | None) -> Iterator[merging.Step]:
        identity = self._out.position.source.identity
        reading = Reading(self._store, self.job.reads(self.unit.target.topic), identity)
        return merging.steps(
            reading, sets, offset=self._out.cursor.offset, holds_values=True,
            wanted=self.unit.window.offset, kept=kept,
        )  # fmt: skip

    def _paced(self, step: merging.Step) -> Iterator[merging.Step]:
        """Yield *step*, or parts of it that are each written within about a second."""
        if self._pace is None or not isinstance(step, StoredRows):
            yield step
            return
        count, batch = len(step.batch), step.batch
        at_once = self._pace.rows(count, batch.nbytes)
        for start in range(0, count, at_once):
            end = min(count, start + at_once)
            yield replace(
                step,
                batch=batch.slice(start, end - start),
                end_row=step.end_row and step.end_row - (count - end),
                duplicates=0 if start else step.duplicates,
            )

    def _stop_if_asked(self) -> None:
        if self._channel.is_stopped():
            self._commit()
            raise StoppedError(f"{self.unit.source} stopped at offset {self._out.cursor.reached}")

    def _new_rows(self, step: StoredRows) -> tuple[pa.RecordBatch, Cursor]:
        """Return the rows that were not written yet, and where the restore is after them."""
        batch, files = step.batch, step.files[0]
        self._enter(files)
        cursor, end = self._out.cursor, batch["offset"][len(batch) - 1].as_py() + 1
        reached = max(cursor.reached, end)  # of several directories each counts its own rows
        if files.is_whole:
            return batch, replace(cursor, offset=end, reached=reached)
        content = "" if self._begun is None else self._begun.take(batch, step.end_row)
        rows = batch.slice(max(0, len(batch) - max(0, step.end_row - cursor.rows)))
        return rows, replace(
            cursor, rows=step.end_row, reached=reached, before=self._before, content=content
        )

    def _enter(self, files: FileSet) -> None:
        """Note that the value set *files* is at hand, and the one before it done."""
        if files.is_whole or files == self._values:
            return
        if self._values is not None:
            self._before = chained(self._before, [self._values])
        self._values = files
        cursor = replace(self._out.cursor, values=digest(files.part), rows=0, before=self._before)
        self._out.cursor = replace(cursor, content="", sizes=files.sizes)
        self._begun = ResumedValues(files, self._out.cursor)

    def _finish(self, files: FileSet) -> None:
        self._enter(files)
        if self._begun is not None and not files.is_whole:
            self._begun.end()
        self._out.count(objects=object_count([files]), bytes_read=object_bytes([files]))

    # what is left out

    def _leave_out(self, found: Filtered) -> None:
        """Count and name the records that are not written; raise the error that ends a restore."""
        self._out.count(**found.counts)
        for error, records in found.left:
            self._skip(error, records)
        if found.error is not None:
            self._commit()  # what was good until here is safe
            raise found.error

    def _pass_over(self, step: Skipped) -> None:
        """Leave out rows that cannot be read, unless that was done before."""
        self._enter(step.files)
        if self._begun is not None and not self._begun.pass_over(step.end_row):
            return
        lost = step.lost
        self._out.passed = None  # so that whoever goes on says so
        is_asked = self.unit.window.offset.meets(lost.offset, lost.offset)
        if is_asked and self.unit.counts_rest:
            self._out.count(bad_records=lost.records)
            self._skip(lost.error, None)
            self._log("skipped", lost.error, step.files)
        self._out.cursor = replace(
            self._out.cursor,
            rows=max(self._out.cursor.rows, step.end_row),
            reached=max(self._out.cursor.reached, lost.end),
            before=self._before,
        )

    def _fail(self, files: FileSet, error: KbackupError, unread: int | None) -> None:
        """Stop at a bad set, or leave out the rest of it, as ``behavior.on.error`` says."""
        self._commit()  # what was good until here is safe
        # one that is refused may hold records of the next one: those would come twice
        if self.job.on_error == "fail" or isinstance(error, RefusedError):
            raise error
        error = self.unit.left(files, error, unread)
        self._out.count(
            objects=len(files.files) - 1,
            bad_objects=1,
            bad_records=error.place.get("records", 0),
        )
        self._out.passed = None  # how many records it has is not known
        self._skip(error, None)
        self._log("bad_object", error, files)

    def _log(self, code: str, error: KbackupError, files: FileSet) -> None:
        if self.job.on_error == "log":
            self._channel.tell(Warned(code, str(error), {"key": files.id}, run=self.job.run))

    def _skip(self, error: KbackupError, records: pa.RecordBatch | None) -> None:
        """Report what is left out, and write it to the topic for that, if there is one."""
        failure = error.issue()
        if self.letters is not None:
            self.letters.send(malformed_records(failure, self.unit.source, records))
        self._left.append(failure)

    # what is written

    def _sending(self, offsets: pa.Int64Array, files: tuple[FileSet, ...]) -> None:
        if len(offsets):
            self._sent.append((Span(offsets[0].as_py(), offsets[-1].as_py() + 1), files))

    def named(self, error: KbackupError) -> Issue:
        """Return what failed, with what may hold the record that *error* names."""
        found, offset = error.issue(), error.place.get("offset")
        sent = (files for span, files in self._sent if offset is not None and offset in span)
        keys = dict.fromkeys(one.id for files in sent for one in files)
        if not keys or "key" in found.place:
            return found
        key, *others = keys
        named = replace(found, what=f"{found.what}, in {' or '.join(keys)}")
        return named if others else named.at(key=key)

    def _wait(self, batch: pa.RecordBatch) -> None:
        """Wait until records may be written; no transaction waits for long."""
        if self._pace is not None and len(batch):
            if self._out.is_late(self._pace.due_s()):
                self._commit()
            self._pace.wait(len(batch), batch.nbytes, self._channel.is_stopped)

    def _commit(self) -> None:
        self._out.commit()
        self._sent = []
        self._report()
        self._tell_progress()

    def _report(self) -> None:
        out, report = self._out, self.report
        own = replace(report.own, lanes=out.lanes, skipped=(*report.own.skipped, *self._left))
        self.report = replace(report, done=out.done, committed=out.cursor.reached, own=own)
        self._left = []

    def _tell_progress(self) -> None:
        self._told = monotonic()
        self._channel.tell(self.report.progress(self.job.run, self._out.records))


SMALL_BYTES: Final = 2**18
"""A partition whose objects have no more shares a writer and transactions with others of its kind,
and is restored side by side with those of other writers."""

SIDE_BY_SIDE: Final = 16
"""How many writers of those: each mostly waits for the broker, which begins and ends a transaction.
"""


def bytes_as_stored(job: RestoreJob, units: Iterable[RestoreUnit]) -> int:
    """Return how many bytes are in objects whose batches may be written as they are stored."""
    large = (unit for unit in units if unit.size > SMALL_BYTES and job.keeps_batches(unit))
    sets = (files for unit in large for files in unit.sets)
    return object_bytes([files for files in sets if has_batches([files])])


def put_back(
    job: RestoreJob, units: Sequence[RestoreUnit], channel: TaskChannel
) -> Iterator[Report]:
    """Work through *units*; a failure is a report, not an exception.

    Large ones go one after the other, each by a writer of its own, then small ones: those that
    share a writer in turn, some writers at a time.  Writers that would take over from each other
    never work at the same time.

    Memory: what `merging` reads with, few batches and what the client holds unacknowledged; of
    small units their records.
    """
    pace = None
    if units and job.is_limited:
        pace = RateLimit(job.max_records_per_second, job.max_bytes_per_second, units[0].writers)
    task = _Task(job, open_store(job.store), channel, pace, Outage(job.kafka))
    small = [unit for unit in units if unit.size <= SMALL_BYTES]
    large = [unit for unit in units if unit.size > SMALL_BYTES]
    yield from (found for unit in large if (found := task.alone(unit)) is not None)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for reports in pool.map(task.together, by_writer(job, small)):
            yield from reports


@dataclass(frozen=True, slots=True)
class _Task:
    job: RestoreJob
    store: Store
    channel: TaskChannel
    pace: RateLimit | None
    outage: Outage
    taken: dict[Fence, TakenOverError] = field(default_factory=dict)

    def alone(self, unit: RestoreUnit) -> Report | None:
        """Restore a unit by a writer of its own; None where the run was stopped before."""
        # who has taken over a writer is at work on all of its partitions: to open another one
        # would take over from it in turn
        if self.channel.is_stopped():
            return None
        if (taken := self.taken.get(fence_of(self.job, unit))) is not None:
            return self._lost(unit, taken)
        topic = self.job.error_topic
        reached, since = -1, monotonic()
        skipped, by_records = tuple[Issue, ...](), False
        while True:
            letters = None if topic is None else DeadLetters(self.job.kafka, self.job.group, topic)
            work = RestorePartitionTask(
                self.job, unit, self.store, self.channel, self.pace, letters, skipped,
                by_records=by_records,
            )  # fmt: skip
            try:
                self.outage.check()
                _write(work)
            except BrokenOffError as error:
                # another writer goes on from what is committed, as long as that gets anywhere
                if work.report.committed is not None and work.report.committed > reached:
                    reached, since = work.report.committed, monotonic()
                skipped = work.report.own.skipped
                if monotonic() - since < PATIENCE_S:
                    _log.warning("%s; going on from the committed position", error)
                    sleep(_PAUSE_S)
                    continue
                self._failed(work, error)
            except KbackupError as error:
                if work.sends_batches and type(error) is KafkaError and not error.is_away:
                    # a broker unpacks batches too: by their records it turns out what is bad
                    _log.warning("%s; going on by records", error)
                    skipped, by_records = work.report.own.skipped, True
                    continue
                self._failed(work, error)
            return work.report

    def together(self, units: Sequence[RestoreUnit]) -> list[Report]:
        """Restore units by one writer, and each alone that keeps others from being committed."""
        # nothing waits for others where positions are no part of a transaction, writing is slowed
        # down, or dead letters come before a position
        job = self.job
        waits = job.exactly_once and self.pace is None and job.error_topic is None
        safe = self._joint(units) if waits and len(units) > 1 else {}
        left = [unit for unit in units if unit.target not in safe]
        again = [found for unit in left if (found := self.alone(unit)) is not None]
        return [*safe.values(), *again]

    def _joint(self, units: Sequence[RestoreUnit]) -> dict[TopicPartition, Report]:
        """Restore units in joint transactions, as far as nothing is in the way."""
        if self.channel.is_stopped():
            return {}
        try:
            self.outage.check()
            writer = _writer(self.job, units[0], is_spread=True)
        except KbackupError as error:  # each unit alone says why it cannot be restored
            self._note(units[0], error)
            return {}
        joint = SharedWriter(writer, self.channel)
        try:
            for unit in joint.begin(units):
                if self.channel.is_stopped():
                    break
                work = RestorePartitionTask(self.job, unit, self.store, joint)
                try:
                    work.run(joint)
                except KbackupError as error:
                    if joint.is_dirty:
                        raise
                    self._failed(work, error)
                joint.end(unit.target, work.report)
            joint.settle()
        except KbackupError as error:  # nothing of the open transaction is visible
            self._note(units[0], error)
        finally:
            writer.abort()
            writer.close()
        return joint.settled

    def _lost(self, unit: RestoreUnit, error: TakenOverError) -> Report:
        """Return what there is to report of a unit that another restore has taken over."""
        work = RestorePartitionTask(self.job, unit, self.store, self.channel)
        own = TakenOverError(f"{unit.target}: writing records", error.why, error.do)
        self._failed(work, own)
        return work.report

    def _failed(self, work: RestorePartitionTask, error: KbackupError) -> None:
        self._note(work.unit, error)
        failure = work.named(error).at(**work.unit.target.place)
        work.report = replace(work.report, failure=failure)

    def _note(self, unit: RestoreUnit, error: KbackupError) -> None:
        """Remember what an error means for units that are still to come."""
        if isinstance(error, TakenOverError):
            self.taken[fence_of(self.job, unit)] = error
        else:
            self.outage.note(error)


def _write(work: RestorePartitionTask) -> None:
    writer = _writer(work.job, work.unit, is_spread=len(work.unit.lanes) > 1)
    try:
        work.run(writer)
        if work.letters is not None:
            work.letters.flush()
    except BaseException:
        writer.abort()
        raise
    finally:
        writer.close()
        if work.letters is not None:
            work.letters.close()


def _writer(job: RestoreJob, unit: RestoreUnit, *, is_spread: bool) -> TargetWriter:
    return job.kafka.writer(
        unit.target,
        unit.group or job.group,
        exactly_once=job.exactly_once,
        max_message_bytes=unit.max_message_bytes,
        is_spread=is_spread,
    )
