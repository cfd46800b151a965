"""One task: partitions' objects to Kafka, each record with the position that says it is there.

Records are acknowledged, then the position is committed, by default both in one transaction; then
progress is shown.

A restore waits for Kafka to take records, and for objects to come; side by side each hides the
other.  Decoding runs outside Python's global lock, so it uses another core where there is one.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from time import monotonic
from typing import Final

import pyarrow as pa

from kbackup.catalog import merging
from kbackup.catalog.listing import FileSet
from kbackup.catalog.merging import Failed, Finished, Skipped, StoredRows
from kbackup.errors import Issue, KbackupError, RefusedError, StoppedError
from kbackup.events import Warned
from kbackup.kafka import Outage, Position, TakenOverError, Writer
from kbackup.records import Prefetch, TopicPartition
from kbackup.restore.job import RestoreJob, RestoreUnit, spread
from kbackup.restore.resume import ResumedValues, chained, unfinished
from kbackup.restore.transaction import (
    FIRST_BYTES,
    OPEN_S,
    Committed,
    Fence,
    Joint,
    JointLine,
    Pace,
    Report,
    Transaction,
    UnitWriter,
    by_writer,
    fence_of,
    next_limit,
    rate_of,
)
from kbackup.restore.transform import Filtered, RecordFilter, malformed_records
from kbackup.runs.dead_letters import DeadLetters
from kbackup.runs.position import NOTHING, Cursor, digest
from kbackup.runs.report import OfRestore, PartitionReport
from kbackup.spark.channel import Line
from kbackup.stores import Store, open_store

TELL_S: Final = 0.5
"""How often a task reports what it has sent beyond what is safe."""


@dataclass(slots=True)
class RestorePartitionTask:
    """One unit's way through the task.

    Attributes:
        job: The run's settings.
        unit: What to restore.
        store: Where the backup is.
        line: To the driver.
        pace: How fast the task may write; None for no limit.
        letters: Takes what is left out; None for nowhere.
        report: How far it is; what it counts is committed.
    """

    job: RestoreJob
    unit: RestoreUnit
    store: Store
    line: Line
    pace: Pace | None = None
    letters: DeadLetters | None = None
    report: PartitionReport[OfRestore] = field(init=False)
    _committed: Committed = field(init=False)
    _open: Transaction = field(init=False)
    _values: FileSet | None = None  # the value set at hand
    _begun: ResumedValues | None = None  # what was read of it, compared with what is restored
    _before: str = ""  # stands for the value sets before it
    _left: list[Issue] = field(default_factory=list)
    _limit_bytes: int = FIRST_BYTES
    _told: float = field(default_factory=monotonic)

    def __post_init__(self) -> None:
        cursor = self.unit.position.cursor
        own = OfRestore(self.unit.target.topic)
        self.report = PartitionReport(self.unit.source, cursor.reached, None, None, own)
        self._committed = Committed(self.job, self.unit)
        self._before = self.unit.before
        self._open = Transaction(NOTHING, cursor)
        self._tally()

    def run(self, writer: UnitWriter) -> None:
        """Restore the unit: read and merge its objects, transform records, write and commit them.

        Raises:
            KbackupError: If it cannot be restored to its end; what is committed is safe.
        """
        records = RecordFilter(self.job, self.unit)
        sets = self._resume(writer)
        if not self.unit.sets:  # nothing but its beginning was to be committed
            return
        with Prefetch(self._read(sets)) as ahead:
            for step in chain.from_iterable(map(self._paced, ahead)):
                self._stop_if_asked(writer)
                match step:
                    case StoredRows(_, files):
                        rows, cursor = self._new_rows(step)
                        if len(rows):
                            found = records.apply(rows, files, writer.record_bytes_max)
                            self._leave_out(writer, found)
                            self._wait(writer, found.batch)
                            zeros = self._send(writer, found.batch)
                            passed = len(rows) if files[0].is_whole else 0
                            self._open.take(found.batch, cursor, passed=passed)
                            self._count(zero_timestamps=zeros, duplicates=step.duplicates)
                            self._tell_now_and_then()
                    case Skipped():
                        self._pass_over(step)
                    case Finished(files):
                        self._finish(files)
                    case Failed(files, error, unread):
                        self._enter(files)
                        self._fail(writer, files, error, unread)
                if self._open.is_full(self._limit_bytes, waits=self.pace is not None):
                    self._commit(writer)
        self._commit(writer)

    # where it begins

    def _resume(self, writer: UnitWriter) -> list[FileSet]:
        """Begin, or continue at the committed position; return the sets that are left.

        Spark tries a task again whose worker died.  What that one committed counts as done.  A run
        that was killed may have left a commit that was completed only now, and another restore may
        have been at work until this one's writer fenced it: this one continues after them.

        Raises:
            RefusedError: If someone else has moved the position since the run was planned, or
                another Schema Registry is given than before.
        """
        unit, found = self.unit, writer.position(self.unit.target)
        sets = [*unit.sets]
        if found != unit.committed:
            self._catch_up(writer, found)
            sets = unfinished(self.store, sets, self._committed.position.cursor.offset)
        elif unit.begins:
            self._commit_position(writer)
        if any(files.is_whole for files in sets):
            self._committed.check_ids()
        cursor = self._committed.position.cursor
        at = next((n for n, files in enumerate(sets) if digest(files.part) == cursor.values), None)
        if at is not None and not sets[at].is_whole:
            self._values, self._begun = sets[at], ResumedValues(sets[at], cursor)
        left = [files for n, files in enumerate(sets) if files.is_whole or n >= (at or 0)]
        if self._committed.is_ours and len(left) < len(unit.sets):
            # some were read to their ends after the last commit
            names = {files.part for files in left}
            ended = [files for files in unit.sets if files.part not in names]
            size = sum(file.size for files in ended for file in files.files)
            count = len(ended) - self._open.done.bad_objects
            self._open.done = replace(self._open.done, objects=count, bytes_read=size)
        self.report = replace(self.report, done=self._open.done, committed=cursor.reached)
        return left

    def _catch_up(self, writer: UnitWriter, found: Position | None) -> None:
        """Continue after what was committed since the run was planned, or refuse a stranger's."""
        committed = self._committed
        done = committed.catch_up(writer, found)
        self._open = Transaction(done, committed.position.cursor)
        self._before = committed.position.cursor.before or ""
        is_mapped = self.unit.group is not None  # onto other partitions than the backup's
        if not is_mapped:
            mine = done.records + (done.commits if self.job.exactly_once else 0)
            own = replace(self.report.own, log_end=committed.lanes[0].log.end_offset - mine)
            self.report = replace(self.report, own=own)
        self._tally()

    # what is read

    def _read(self, sets: Sequence[FileSet]) -> Iterator[merging.Step]:
        """Open and read *sets*, merged by offset."""
        position = self._committed.position
        return merging.steps(
            self.store,
            sets,
            self.job.reads(self.unit.target.topic),
            offset=position.cursor.offset,
            identity=position.source.identity,
            holds_values=True,
            wanted=self.unit.window.offset,
        )

    def _paced(self, step: merging.Step) -> Iterator[merging.Step]:
        """Yield *step*, or parts of it that are each written within about a second."""
        if self.pace is None or not isinstance(step, StoredRows):
            yield step
            return
        count, batch = len(step.batch), step.batch
        at_once = self.pace.rows(count, batch.nbytes)
        for start in range(0, count, at_once):
            end = min(count, start + at_once)
            yield replace(
                step,
                batch=batch.slice(start, end - start),
                end_row=step.end_row and step.end_row - (count - end),
                duplicates=0 if start else step.duplicates,
            )

    def _stop_if_asked(self, writer: UnitWriter) -> None:
        if self.line.is_stopped():
            self._commit(writer)
            offset = self._open.cursor.reached
            raise StoppedError(f"{self.unit.source} stopped at offset {offset}")

    def _new_rows(self, step: StoredRows) -> tuple[pa.RecordBatch, Cursor]:
        """Return the rows that were not written yet, and where the restore is after them."""
        batch, files = step.batch, step.files[0]
        end = batch["offset"][len(batch) - 1].as_py() + 1
        if files.is_whole:
            cursor = self._open.cursor
            return batch, replace(cursor, offset=end, reached=max(cursor.reached, end))
        self._enter(files)
        cursor = self._open.cursor
        content = "" if self._begun is None else self._begun.take(batch, step.end_row)
        rows = batch.slice(max(0, len(batch) - max(0, step.end_row - cursor.rows)))
        # of several directories each counts its own rows; a position never goes back
        return rows, replace(
            cursor, rows=step.end_row, reached=max(cursor.reached, end), before=self._before,
            content=content,
        )  # fmt: skip

    def _enter(self, files: FileSet) -> None:
        """Note that the value set *files* is at hand, and the one before it done."""
        if files.is_whole or files == self._values:
            return
        if self._values is not None:
            self._before = chained(self._before, [self._values])
        self._values = files
        cursor = replace(
            self._open.cursor, values=digest(files.part), rows=0, before=self._before, content=""
        )
        self._open.cursor, self._begun = cursor, ResumedValues(files, cursor)

    def _finish(self, files: FileSet) -> None:
        """Note that a set was read to its end."""
        self._enter(files)
        if self._begun is not None and not files.is_whole:
            self._begun.end()
        self._count(objects=1, bytes_read=sum(file.size for file in files.files))

    # what is left out

    def _leave_out(self, writer: UnitWriter, found: Filtered) -> None:
        """Count and name the records that are not written; raise the error that ends a restore."""
        self._count(**found.counts)
        for error, records in found.left:
            self._skip(error, records)
        if found.error is not None:
            self._commit(writer)  # what was good until here is safe
            raise found.error

    def _pass_over(self, step: Skipped) -> None:
        """Leave out rows that cannot be read, unless that was done before."""
        self._enter(step.files)
        if self._begun is not None and not self._begun.pass_over(step.end_row):
            return
        cursor, lost = self._open.cursor, step.lost
        self._open.passed = None  # so that whoever goes on says so
        is_asked = self.unit.window.offset.meets(lost.offset, lost.offset)
        if is_asked and self.unit.counts_rest:
            self._count(bad_records=lost.records)
            self._skip(lost.error, None)
            self._log("skipped", lost.error, step.files)
        self._open.cursor = replace(
            cursor,
            rows=max(cursor.rows, step.end_row),
            reached=max(cursor.reached, lost.end),
            before=self._before,
        )

    def _fail(
        self, writer: UnitWriter, files: FileSet, error: KbackupError, unread: int | None
    ) -> None:
        """Stop at a bad set, or leave out the rest of it, as ``behavior.on.error`` says.

        One that may hold records of the next one stops it always: those would come twice.
        """
        self._commit(writer)  # what was good until here is safe
        if self.job.on_error == "fail" or isinstance(error, RefusedError):
            raise error
        error = self.unit.left(files, error, unread)
        self._count(bad_objects=1, bad_records=error.place.get("records", 0))
        self._open.passed = None  # how many records it has is not known
        self._skip(error, None)
        self._log("bad_object", error, files)

    def _log(self, code: str, error: KbackupError, files: FileSet) -> None:
        if self.job.on_error == "log":
            self.line.tell(Warned(code, str(error), {"key": files.id}, run=self.job.run))

    def _skip(self, error: KbackupError, records: pa.RecordBatch | None) -> None:
        """Report what is left out, and write it to the topic for that, if there is one."""
        failure = error.issue()
        if self.letters is not None:
            self.letters.send(malformed_records(failure, self.unit.source, records))
        self._left.append(failure)

    def _count(self, **more: int) -> None:
        self._open.count(**more)

    # what is written

    def _wait(self, writer: UnitWriter, batch: pa.RecordBatch) -> None:
        """Wait until records may be written; no transaction waits for long."""
        if self.pace is not None and len(batch):
            is_open = monotonic() - self._open.begun + self.pace.due_s() >= OPEN_S
            if self._open.records and is_open:
                self._commit(writer)
            self.pace.wait(len(batch), batch.nbytes, self.line.is_stopped)
        if not self._open.records:
            self._open.begun = monotonic()

    def _send(self, writer: UnitWriter, batch: pa.RecordBatch) -> int:
        """Send records to their partitions; return how many timestamps were changed."""
        if not len(batch):
            return 0
        targets = [lane.target for lane in self._committed.lanes]
        parts = spread(batch, targets) if len(targets) > 1 else [(targets[0], batch)]
        zeros = 0
        for at, part in parts:
            zeros += writer.write(part, at)
            self._open.send(at, len(part))
        return zeros

    def _commit(self, writer: UnitWriter) -> None:
        """Make all that was written safe, and begin anew."""
        opened = self._open
        if opened.records or opened.cursor.reached != self.report.committed:
            opened.count(commits=len(opened.sent), records=opened.records)
            self._commit_position(writer, opened)
            if opened.records:
                self._limit_bytes = next_limit(self._limit_bytes, monotonic() - opened.begun)
        self.report = replace(self.report, done=opened.done, committed=opened.cursor.reached)
        self._tally()
        passed = opened.passed if opened.passed is None else 0
        self._open = Transaction(opened.done, opened.cursor, passed=passed)
        self._tell_progress()

    def _commit_position(self, writer: UnitWriter, opened: Transaction | None = None) -> None:
        if self.letters is not None:
            self.letters.flush()
        self._committed.commit(writer, opened)

    def _tally(self) -> None:
        """Take into the report what is committed in each partition, and what was left out."""
        skipped = (*self.report.own.skipped, *self._left)
        self._left = []
        own = replace(self.report.own, lanes=self._committed.lanes, skipped=skipped)
        self.report = replace(self.report, own=own)

    def _tell_now_and_then(self) -> None:
        if monotonic() - self._told >= TELL_S:
            self._tell_progress()

    def _tell_progress(self) -> None:
        self._told = monotonic()
        self.line.tell(self.report.progress(self.job.run, self._open.records))


SMALL_BYTES: Final = 2**18
"""A partition whose objects have no more shares a writer and transactions with others of its kind,
and is restored side by side with those of other writers."""


SIDE_BY_SIDE: Final = 16
"""How many writers of those: each mostly waits for the broker, which begins and ends a transaction.
"""


def put_back(job: RestoreJob, units: Sequence[RestoreUnit], line: Line) -> Iterator[Report]:
    """Work through *units*; a failure is a report, not an exception.

    Large ones go one after the other, each by a writer of its own, then small ones: those that
    share a writer in turn, some writers at a time.  Writers that would take over from each other
    never work at the same time.

    Memory: what `merging` reads with, few batches and what the client holds unacknowledged; of
    small units their records.
    """
    rate = rate_of(job)
    pace = Pace(rate, units[0].writers) if rate.is_limited and units else None
    task = _Task(job, open_store(job.store), line, pace, Outage(job.kafka))
    small = [unit for unit in units if unit.size <= SMALL_BYTES]
    large = [unit for unit in units if unit.size > SMALL_BYTES]
    yield from (found for unit in large if (found := task.alone(unit)) is not None)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for reports in pool.map(task.together, by_writer(job, small)):
            yield from reports


@dataclass(frozen=True, slots=True)
class _Task:
    """What the units of a task share."""

    job: RestoreJob
    store: Store
    line: Line
    pace: Pace | None
    outage: Outage
    taken: dict[Fence, TakenOverError] = field(default_factory=dict)

    def alone(self, unit: RestoreUnit) -> Report | None:
        """Restore a unit by a writer of its own; None where the run was stopped before."""
        # who has taken over a writer is at work on all of its partitions: to open another one
        # would take over from it in turn
        if self.line.is_stopped():
            return None
        if (taken := self.taken.get(self._fence(unit))) is not None:
            return self._lost(unit, taken)
        topic = self.job.error_topic
        letters = None if topic is None else DeadLetters(self.job.kafka, self.job.group, topic)
        work = RestorePartitionTask(self.job, unit, self.store, self.line, self.pace, letters)
        try:
            self.outage.check()
            _write(work)
        except KbackupError as error:
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
        if self.line.is_stopped():
            return {}
        try:
            self.outage.check()
            writer = _writer(self.job, units[0], is_spread=True)
        except KbackupError as error:  # each unit alone says why it cannot be restored
            self._note(units[0], error)
            return {}
        joint = Joint(writer, self.line)
        try:
            for unit in joint.begin(units):
                if self.line.is_stopped():
                    break
                work = RestorePartitionTask(self.job, unit, self.store, JointLine(joint, self.line))
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
        work = RestorePartitionTask(self.job, unit, self.store, self.line)
        own = TakenOverError(f"{unit.target}: writing records", error.why, error.do)
        self._failed(work, own)
        return work.report

    def _failed(self, work: RestorePartitionTask, error: KbackupError) -> None:
        self._note(work.unit, error)
        error.place.setdefault("topic", work.unit.target.topic)
        error.place.setdefault("partition", work.unit.target.partition)
        work.report = replace(work.report, failure=error.issue())

    def _note(self, unit: RestoreUnit, error: KbackupError) -> None:
        """Remember what an error means for units that are still to come."""
        if isinstance(error, TakenOverError):
            self.taken[self._fence(unit)] = error
        else:
            self.outage.note(error)

    def _fence(self, unit: RestoreUnit) -> Fence:
        return fence_of(self.job, unit)


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


def _writer(job: RestoreJob, unit: RestoreUnit, *, is_spread: bool) -> Writer:
    return job.kafka.writer(
        unit.target,
        unit.group or job.group,
        exactly_once=job.exactly_once,
        max_message_bytes=unit.max_message_bytes,
        is_spread=is_spread,
    )
