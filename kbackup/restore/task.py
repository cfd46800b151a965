"""One task: a partition's objects to Kafka.

Records are acknowledged, then the position is committed, by default both in one transaction; then
progress is shown.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.backup import merging
from kbackup.backup.catalog import FileSet
from kbackup.backup.merging import BAD, Failed, Finished, Rows
from kbackup.channel import Line
from kbackup.engine import Report
from kbackup.errors import BadRecordError, KbackupError, RefusedError, StoppedError
from kbackup.kafka import Outage, Writer
from kbackup.naming import Layout
from kbackup.records import NO_TIMESTAMP, record_bytes
from kbackup.reports import NOTHING, Restored, RestoreReport
from kbackup.restore.ahead import Ahead
from kbackup.restore.job import RestoreJob, RestoreUnit
from kbackup.restore.mark import Mark, Place, chain, digest
from kbackup.restore.offset_header import with_offset
from kbackup.restore.remaining import unfinished
from kbackup.restore.transforming import Transforming
from kbackup.stores import Store, open_store

TRANSACTION_RECORDS: Final = 500_000
TRANSACTION_BYTES: Final = 64 * 2**20
"""A transaction ends after this many records or bytes: what a kill makes a rerun write again."""

FIRST_BYTES: Final = 8 * 2**20
"""What the first transaction has.  The next ones grow while the cluster is quick, and shrink where
it is slow: one that outlasts the producer's timeout of five minutes is lost, and would be again."""

QUICK_S: Final = 10.0
SLOW_S: Final = 60.0
"""A transaction that takes less, or more, is followed by a larger, or a smaller one."""

_FACTOR: Final = 4
_LEAST_BYTES: Final = 2**18

TELL_S: Final = 0.5
"""How often a task reports what it has sent beyond what is safe."""


SMALL_BYTES: Final = 2**18
"""A partition whose objects have no more is restored side by side with others of its kind."""

SIDE_BY_SIDE: Final = 8
"""How many of those: each mostly waits for the broker, which begins and ends a transaction."""


def put_back(job: RestoreJob, units: Sequence[RestoreUnit], line: Line) -> Iterator[Report]:
    """Work through *units*; a failure is a report, not an exception.

    Large ones go one after the other, then small ones some at a time, each by a writer of its own.

    Memory: what `merging` reads with, few batches and what the client holds unacknowledged; of
    small units their records.
    """
    store = open_store(job.store)
    outage = Outage(job.kafka)

    def report(unit: RestoreUnit) -> Report | None:
        if line.is_stopped():
            return None
        work = Work(job, unit, store, line)
        try:
            outage.check()
            _write(work)
        except KbackupError as error:
            outage.note(error)
            error.place.setdefault("topic", unit.target.topic)
            error.place.setdefault("partition", unit.target.partition)
            work.report = replace(work.report, failure=error.to_dict())
        return work.report.to_dict()

    small = [unit for unit in units if unit.size <= SMALL_BYTES]
    large = [unit for unit in units if unit.size > SMALL_BYTES]
    yield from (found for unit in large if (found := report(unit)) is not None)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield from (found for found in pool.map(report, small) if found is not None)


def _write(work: "Work") -> None:
    job, unit = work.job, work.unit
    writer = job.kafka.writer(
        unit.target,
        job.group,
        exactly_once=job.exactly_once,
        max_message_bytes=unit.max_message_bytes,
    )
    try:
        work.run(writer)
    except BaseException:
        writer.abort()
        raise
    finally:
        writer.close()


@dataclass(slots=True)
class Work:
    """One unit's way through the task.

    Attributes:
        job: The run's settings.
        unit: What to restore.
        store: Where the backup is.
        line: To the driver.
        report: How far it is; what it counts is committed.
    """

    job: RestoreJob
    unit: RestoreUnit
    store: Store
    line: Line
    report: RestoreReport = field(init=False)
    _mark: Mark = field(init=False)
    _open: "_Open" = field(init=False)
    _values: FileSet | None = None
    _before: str = ""
    _limit_bytes: int = FIRST_BYTES
    _told: float = field(default_factory=monotonic)
    _transforming: Transforming | None = None

    def __post_init__(self) -> None:
        self.report = RestoreReport(self.unit.source, self.unit.target.topic)
        self._mark, self._before = self.unit.mark, self.unit.before
        self._open = _Open(Restored(), self._mark.place)

    def run(self, writer: Writer) -> None:
        """Restore the unit.

        Raises:
            KbackupError: If it cannot be restored to its end; what is committed is safe.
        """
        if self.job.transforms:
            self._transforming = Transforming(self.job, self.unit)
        sets = self._resume(writer)
        steps = merging.steps(
            self.store,
            sets,
            replace(self.job.reading, topic=self.unit.target.topic),
            offset=self._mark.place.offset,
            identity=self._mark.source.identity,
            holds_values=True,
        )
        with Ahead(steps) as ahead:
            for step in ahead:
                self._take(writer, step)
        self._commit(writer)

    def _resume(self, writer: Writer) -> list[FileSet]:
        """Begin, or go on at the committed position; return the sets that are left.

        Spark tries a task again whose worker died.  What that one committed counts as done.  A run
        that was killed may have left a commit that was completed only now, and another restore may
        have been at work until this one's writer fenced it: this one goes on after them.

        Raises:
            RefusedError: If somebody else has moved the position since the run was planned.
        """
        unit, found = self.unit, writer.position()
        sets: Sequence[FileSet] = unit.sets
        if found == unit.committed:
            if unit.begins:
                writer.commit(unit.mark.position())
        else:
            mark = None if found is None else Mark.read(found, Layout())
            if mark is None or not mark.follows(unit.mark):
                raise RefusedError(
                    f"the position of group {self.job.group} in {unit.target} has been moved",
                    "another restore or another tool did so while this run was starting",
                    "let one restore at a time write to a topic, then run the command again",
                )
            self._mark = mark
            self._open = _Open(mark.done if mark.run == self.job.run else NOTHING, mark.place)
            self._before = mark.place.before or ""
            if mark.log is not None:
                done = self._open.done
                mine = done.records + (done.commits if self.job.exactly_once else 0)
                self.report = replace(self.report, log_end=mark.log.end_offset - mine)
            sets = unfinished(self.store, sets, mark.place.offset)
        place = self._mark.place
        at = next((n for n, files in enumerate(sets) if digest(files.id) == place.values), 0)
        if sets and digest(sets[at].id) == place.values and not sets[at].is_whole:
            self._values = sets[at]
        left = [files for n, files in enumerate(sets) if files.is_whole or n >= at]
        is_ours = self._mark.run == self.job.run
        if is_ours and len(left) < len(
            unit.sets
        ):  # some were read to their ends after the last commit
            names = {files.id for files in left}
            ended = [files for files in unit.sets if files.id not in names]
            size = sum(file.size for files in ended for file in files.files)
            count = len(ended) - self._open.done.bad_objects
            self._open.done = replace(self._open.done, objects=count, bytes_read=size)
        self.report = replace(self.report, done=self._open.done, committed=place.reached)
        return left

    def _take(self, writer: Writer, step: merging.Step) -> None:
        if self.line.is_stopped():
            self._commit(writer)
            offset = self._open.place.reached
            raise StoppedError(f"{self.unit.source} stopped at offset {offset}")
        match step:
            case Rows():
                self._rows(writer, step)
            case Finished(files):
                self._enter(files)
                size = sum(file.size for file in files.files)
                self._open.count(objects=1, bytes_read=size)
            case Failed(files, error):
                self._enter(files)
                self._fail(writer, files, error)
        if self._open.records >= TRANSACTION_RECORDS or self._open.bytes >= self._limit_bytes:
            self._commit(writer)

    def _enter(self, files: FileSet) -> None:
        """Note that the value set *files* is at hand, and the one before it done."""
        if files.is_whole or files == self._values:
            return
        if self._values is not None:
            self._before = chain(self._before, [self._values])
        self._values = files
        place = self._open.place
        self._open.place = replace(place, values=digest(files.id), rows=0, before=self._before)

    def _rows(self, writer: Writer, step: Rows) -> None:
        """Write the rows that were not written yet."""
        place, batch = self._open.place, step.batch
        files = step.files[0]
        if files.is_whole:
            end = batch["offset"][len(batch) - 1].as_py() + 1
            after = replace(place, offset=end, reached=max(place.reached, end))
        else:
            self._enter(files)
            place = self._open.place
            batch = batch.slice(max(0, len(batch) - max(0, step.end_row - place.rows)))
            if not len(batch):
                return
            # of several directories each counts its own rows; a position never goes back
            reached = max(place.reached, batch["offset"][len(batch) - 1].as_py() + 1)
            after = replace(place, rows=step.end_row, reached=reached, before=self._before)
        try:
            asked = self._changed(self._asked(batch))
            if self.job.offset_header is not None and len(asked):
                asked = with_offset(asked, self.job.offset_header)
            good = self._without_giants(asked, step, writer.record_bytes_max)
        except BAD:
            self._commit(writer)  # what was good until here is safe
            raise
        if not self._open.records:
            self._open.begun = monotonic()
        zeros = writer.write(good) if len(good) else 0
        self._open.take(good, after, passed=len(batch) if files.is_whole else 0)
        self._open.count(zero_timestamps=zeros, duplicates=step.duplicates)
        if monotonic() - self._told >= TELL_S:
            self._tell_progress()

    def _asked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records that are asked for, and count those of which that cannot be said."""
        window = self.unit.window
        if window.is_everything:
            return batch
        if window.has_times:
            untimed = batch.filter(pc.equal(batch["timestamp"], NO_TIMESTAMP))
            if len(untimed):
                error = BadRecordError(
                    f"{self.unit.source}: {len(untimed)} records from offset "
                    f"{untimed['offset'][0].as_py()} on have no timestamp",
                    "--from-time and --to-time cannot place them: they are left out",
                )
                self._open.count(bad_records=len(untimed))
                self._skip(error.to_dict())
        return window.rows(batch)

    def _changed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Apply the transforms; what they cannot take is left out as ``behavior.on.error`` says."""
        if self._transforming is None or not len(batch):
            return batch
        found = self._transforming(batch)
        if found.bad:
            errors = [each.error(self.unit.source) for each in found.bad]
            if self.job.on_error == "fail":
                raise errors[0]
            self._open.count(bad_records=len(errors))
            for error in errors:
                self._skip(error.to_dict())
        self._open.count(filtered=found.filtered)
        return found.batch

    def _without_giants(self, batch: pa.RecordBatch, step: Rows, target_max: int) -> pa.RecordBatch:
        """Leave out records that the target cannot take, as ``behavior.on.error`` says."""
        limit = min(self.job.max_record_bytes, target_max)
        sizes = record_bytes(batch)
        is_giant = pc.greater(sizes, limit)
        if not pc.any(is_giant).as_py():
            return batch
        row = pc.index(is_giant, True).as_py()
        offset = batch["offset"][row].as_py()
        among = step.files[0].id if len(step.files) == 1 else f"{len(step.files)} objects"
        error = BadRecordError(
            f"{self.unit.source} offset {offset} in {among}",
            f"a record of {sizes[row].as_py()} bytes; the limit is {limit}",
            f"raise max.message.bytes of {self.unit.target.topic}, or --max-record-bytes",
            row=row,
            offset=offset,
        )
        if self.job.on_error == "fail":
            raise error
        self._open.count(bad_records=pc.sum(is_giant).as_py())
        self._skip(error.to_dict())
        return batch.filter(pc.invert(is_giant))

    def _fail(self, writer: Writer, files: FileSet, error: KbackupError) -> None:
        """Stop at a bad set, or leave out the rest of it, as ``behavior.on.error`` says."""
        self._commit(writer)  # what was good until here is safe
        if self.job.on_error == "fail":
            raise error
        entry = error.to_dict() | {"key": files.id}
        self._open.count(bad_objects=1)
        self._open.passed = None  # how many records it has is not known
        self._skip(entry)
        if self.job.on_error == "log":
            self.line.tell(
                {
                    "type": "warning", "run": self.job.run, "code": "bad_object",
                    "key": files.id, "text": f"{error}; the rest of it is skipped",
                }
            )  # fmt: skip

    def _skip(self, entry: dict[str, object]) -> None:
        self.report = replace(self.report, skipped=(*self.report.skipped, entry))

    def _commit(self, writer: Writer) -> None:
        """Make all that was written safe, and begin anew."""
        opened = self._open
        if opened.records or opened.place.reached != self.report.committed:
            commits = int(bool(opened.records))
            opened.count(commits=commits, records=opened.records)
            markers = commits if self.job.exactly_once else 0
            self._mark = self._mark.moved(
                opened.place,
                passed=opened.passed,
                log_grew=opened.records + markers,
                run=self.job.run,
                done=opened.done,
            )
            writer.commit(self._mark.position())
            if opened.records:
                self._limit_bytes = next_limit(self._limit_bytes, monotonic() - opened.begun)
        self.report = replace(self.report, done=opened.done, committed=opened.place.reached)
        passed = opened.passed if opened.passed is None else 0
        self._open = _Open(opened.done, opened.place, passed=passed)
        self._tell_progress()

    def _tell_progress(self) -> None:
        self._told = monotonic()
        self.line.tell(self.report.progress(self.job.run, self._open.records))


@dataclass(slots=True)
class _Open:
    """What has been done and is not committed yet.

    Attributes:
        done: What the run has done, with what is not committed; but for its records.
        place: Where a commit would leave the restore.
        passed: Whole records of the backup since the last commit; None: not known.
        records: Records sent since the last commit.
        bytes: Their size in memory.
        begun: Clock of the first of them.
    """

    done: Restored
    place: Place
    passed: int | None = 0
    records: int = 0
    bytes: int = 0
    begun: float = 0.0

    def count(self, **more: int) -> None:
        """Add to what has been done."""
        self.done = replace(self.done, **{n: getattr(self.done, n) + by for n, by in more.items()})

    def take(self, batch: pa.RecordBatch, place: Place, *, passed: int) -> None:
        """Take in records that were sent, which lead to *place*."""
        self.place = place
        self.passed = None if self.passed is None else self.passed + passed
        self.records += len(batch)
        self.bytes += batch.nbytes
        if len(batch):
            first, last = (batch["offset"][at].as_py() for at in (0, len(batch) - 1))
            begun = first if self.done.first is None else self.done.first
            self.done = replace(self.done, first=begun, last=last)


def next_limit(limit: int, seconds: float) -> int:
    """Return how many bytes the transaction has that follows one of *limit* bytes."""
    if seconds > SLOW_S:
        return max(_LEAST_BYTES, limit // _FACTOR)
    return min(TRANSACTION_BYTES, limit * _FACTOR) if seconds < QUICK_S else limit
