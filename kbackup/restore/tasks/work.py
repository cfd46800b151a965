"""One unit's way through a restore task: its records to Kafka, its position with them.

Records are acknowledged, then the position is committed, by default both in one transaction; then
progress is shown.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

import pyarrow as pa

from kbackup.backup import merging
from kbackup.backup.file_sets import FileSet
from kbackup.backup.merging import Failed, Finished, Rows
from kbackup.channel import Line
from kbackup.errors import BadRecordError, KbackupError, RefusedError, StoppedError
from kbackup.events import Warned
from kbackup.kafka import Position, Writer
from kbackup.naming import Layout
from kbackup.records import TopicPartition
from kbackup.reports import (
    NOTHING,
    Bookmark,
    Mark,
    OfRestore,
    PartitionReport,
    WrittenTo,
    digest,
)
from kbackup.restore.chain import chain
from kbackup.restore.job import Lane, RestoreJob, RestoreUnit
from kbackup.restore.pace import OPEN_S, Pace
from kbackup.restore.partition_map import spread
from kbackup.restore.remaining import unfinished
from kbackup.restore.schemas import same_ids
from kbackup.restore.tasks import malformed
from kbackup.restore.tasks.ahead import Ahead
from kbackup.restore.tasks.begun import Begun
from kbackup.restore.tasks.sieve import Sieve
from kbackup.restore.tasks.transaction import (
    FIRST_BYTES,
    TRANSACTION_RECORDS,
    Transaction,
    next_limit,
)
from kbackup.runs.letters import DeadLetters
from kbackup.stores import Store

TELL_S: Final = 0.5
"""How often a task reports what it has sent beyond what is safe."""


@dataclass(slots=True)
class Work:
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
    _lanes: dict[TopicPartition, Lane] = field(init=False)
    _written: dict[TopicPartition, WrittenTo] = field(init=False)
    _open: Transaction = field(init=False)
    _sieve: Sieve = field(init=False)
    _values: FileSet | None = None
    _begun: Begun | None = None
    _before: str = ""
    _limit_bytes: int = FIRST_BYTES
    _told: float = field(default_factory=monotonic)

    def __post_init__(self) -> None:
        place = self.unit.bookmark.of.place
        own = OfRestore(self.unit.target.topic)
        self.report = PartitionReport(self.unit.source, place.reached, None, None, own)
        self._lanes = {lane.target: lane for lane in self.unit.lanes}
        self._written = {at: WrittenTo(at.partition) for at in self._lanes}
        self._before = self.unit.before
        self._open = Transaction(NOTHING, place)
        self._tally()

    def run(self, writer: Writer) -> None:
        """Restore the unit.

        Raises:
            KbackupError: If it cannot be restored to its end; what is committed is safe.
        """
        self._sieve = Sieve(self.job, self.unit, self._count, self._skip)
        sets = self._resume(writer)
        if not self.unit.sets:  # nothing but its beginning was to be committed
            return
        steps = merging.steps(
            self.store,
            sets,
            replace(self.job.reading, topic=self.unit.target.topic),
            offset=self._mark.place.offset,
            identity=self._mark.source.identity,
            holds_values=True,
            wanted=self.unit.window.offset,
        )
        with Ahead(steps) as ahead:
            for step in ahead:
                for part in self._parts(step):
                    self._take(writer, part)
        self._commit(writer)

    def _resume(self, writer: Writer) -> list[FileSet]:
        """Begin, or continue at the committed position; return the sets that are left.

        Spark tries a task again whose worker died.  What that one committed counts as done.  A run
        that was killed may have left a commit that was completed only now, and another restore may
        have been at work until this one's writer fenced it: this one continues after them.

        Raises:
            RefusedError: If someone else has moved the position since the run was planned, or
                another Schema Registry is given than before.
        """
        unit, found = self.unit, writer.position()
        sets = [*unit.sets]
        if found == unit.committed:
            if unit.begins:
                self._commit_marks(writer)
        else:
            self._follow(writer, found)
            sets = unfinished(self.store, sets, self._mark.place.offset)
        if any(files.is_whole for files in sets):
            same_ids.check(self._mark, self._ids)
        place = self._mark.place
        at = next((n for n, files in enumerate(sets) if digest(files.id) == place.values), 0)
        if sets and digest(sets[at].id) == place.values and not sets[at].is_whole:
            self._values, self._begun = sets[at], Begun(sets[at], place)
        left = [files for n, files in enumerate(sets) if files.is_whole or n >= at]
        is_ours = self._lanes[unit.target].bookmark.run == self.job.committer
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

    def _parts(self, step: merging.Step) -> Iterator[merging.Step]:
        """Yield *step*, or parts of it that are each written within about a second."""
        if self.pace is None or not isinstance(step, Rows):
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

    def _follow(self, writer: Writer, found: Position | None) -> None:
        """Continue after what was committed since the run was planned.

        Raises:
            RefusedError: If that is not of this restore.
        """
        moved: dict[TopicPartition, Bookmark[Mark]] = {}
        for at, lane in self._lanes.items():
            now = found if at == self.unit.target else writer.position(at)
            bookmark = None if now is None else Mark.read(now, Layout())
            if bookmark is None or not bookmark.of.follows(lane.bookmark.of):
                raise RefusedError(
                    f"the position of group {self._group} in {at} has been moved",
                    "another restore or another tool moved it while this run was starting",
                    "let one restore at a time write to a topic, then run the command again",
                )
            moved[at] = bookmark
        self._lanes = {at: replace(lane, bookmark=moved[at]) for at, lane in self._lanes.items()}
        bookmark, done = moved[self.unit.target], NOTHING
        if bookmark.run == self.job.committer:
            ours = {at: each.done for at, each in moved.items()}
            self._written = {
                at: WrittenTo(at.partition, each.records, each.commits) for at, each in ours.items()
            }
            done = replace(
                bookmark.done,
                records=sum(each.records for each in ours.values()),
                commits=sum(each.commits for each in ours.values()),
            )
        mark = bookmark.of
        self._open = Transaction(done, mark.place)
        self._before = mark.place.before or ""
        if mark.log is not None and not self._is_mapped:
            mine = done.records + (done.commits if self.job.exactly_once else 0)
            own = replace(self.report.own, log_end=mark.log.end_offset - mine)
            self.report = replace(self.report, own=own)

    @property
    def _mark(self) -> Mark:
        """Where the restore stands, as the last commit has it."""
        return self._lanes[self.unit.target].bookmark.of

    @property
    def _ids(self) -> same_ids.Ids | None:
        """The ids of the topic's schemas in the target; None where no registry is given."""
        return self.job.schema_ids.get(self.unit.source.topic)

    @property
    def _group(self) -> str:
        return self.unit.group or self.job.group

    @property
    def _is_mapped(self) -> bool:
        """Whether partitions of the target are not those of the backup."""
        return self.unit.group is not None

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
                if self._begun is not None and not files.is_whole:
                    self._begun.end()
                size = sum(file.size for file in files.files)
                self._count(objects=1, bytes_read=size)
            case Failed(files, error):
                self._enter(files)
                self._fail(writer, files, error)
        opened = self._open
        is_late = self.pace is not None and monotonic() - opened.begun >= OPEN_S
        if (
            opened.records >= TRANSACTION_RECORDS
            or opened.bytes >= self._limit_bytes
            or (opened.records and is_late)
        ):
            self._commit(writer)

    def _enter(self, files: FileSet) -> None:
        """Note that the value set *files* is at hand, and the one before it done."""
        if files.is_whole or files == self._values:
            return
        if self._values is not None:
            self._before = chain(self._before, [self._values])
        self._values = files
        place = self._open.place
        place = replace(place, values=digest(files.id), rows=0, before=self._before, content="")
        self._open.place, self._begun = place, Begun(files, place)

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
            content = "" if self._begun is None else self._begun.take(batch, step.end_row)
            batch = batch.slice(max(0, len(batch) - max(0, step.end_row - place.rows)))
            if not len(batch):
                return
            # of several directories each counts its own rows; a position never goes back
            reached = max(place.reached, batch["offset"][len(batch) - 1].as_py() + 1)
            after = replace(
                place, rows=step.end_row, reached=reached, before=self._before, content=content
            )
        try:
            good = self._sieve.sift(batch, step.files, writer.record_bytes_max)
        except BadRecordError:
            self._commit(writer)  # what was good until here is safe
            raise
        if self.pace is not None and len(good):
            is_open = monotonic() - self._open.begun + self.pace.due_s() >= OPEN_S
            if self._open.records and is_open:  # no transaction waits for long
                self._commit(writer)
            self.pace.wait(len(good), good.nbytes, self.line.is_stopped)
        if not self._open.records:
            self._open.begun = monotonic()
        zeros = self._send(writer, good) if len(good) else 0
        self._open.take(good, after, passed=len(batch) if files.is_whole else 0)
        self._count(zero_timestamps=zeros, duplicates=step.duplicates)
        if monotonic() - self._told >= TELL_S:
            self._tell_progress()

    def _send(self, writer: Writer, batch: pa.RecordBatch) -> int:
        """Send records to their partitions; return how many timestamps were changed."""
        targets = list(self._lanes)
        parts = spread(batch, targets) if len(targets) > 1 else [(targets[0], batch)]
        zeros = 0
        for at, part in parts:
            zeros += writer.write(part, at)
            self._open.send(at, len(part))
        return zeros

    def _fail(self, writer: Writer, files: FileSet, error: KbackupError) -> None:
        """Stop at a bad set, or leave out the rest of it, as ``behavior.on.error`` says."""
        self._commit(writer)  # what was good until here is safe
        if self.job.on_error == "fail":
            raise error
        self._count(bad_objects=1)
        self._open.passed = None  # how many records it has is not known
        self._skip(error, None, key=files.id)
        if self.job.on_error == "log":
            text = f"{error}; the rest of it is skipped"
            self.line.tell(Warned("bad_object", text, self.job.run, {"key": files.id}))

    def _count(self, **more: int) -> None:
        self._open.count(**more)

    def _skip(self, error: KbackupError, records: pa.RecordBatch | None, **more: str) -> None:
        """Report what is left out, and write it to the topic for that, if there is one."""
        failure = error.failure()
        failure = replace(failure, place={**failure.place, **more})
        if self.letters is not None:
            self.letters.send(malformed.letters(failure, self.unit.source, records))
        own = replace(self.report.own, skipped=(*self.report.own.skipped, failure))
        self.report = replace(self.report, own=own)

    def _commit(self, writer: Writer) -> None:
        """Make all that was written safe, and begin anew."""
        opened = self._open
        if opened.records or opened.place.reached != self.report.committed:
            opened.count(commits=len(opened.sent), records=opened.records)
            for at in self._lanes:
                self._move(at, opened)
            self._commit_marks(writer)
            if opened.records:
                self._limit_bytes = next_limit(self._limit_bytes, monotonic() - opened.begun)
        self.report = replace(self.report, done=opened.done, committed=opened.place.reached)
        self._tally()
        passed = opened.passed if opened.passed is None else 0
        self._open = Transaction(opened.done, opened.place, passed=passed)
        self._tell_progress()

    def _move(self, at: TopicPartition, opened: Transaction) -> None:
        """Take what is to be committed into what one partition's position says."""
        sent = opened.sent.get(at, 0)
        commits = int(bool(sent))  # a transaction leaves a marker where it has written
        before = self._written[at]
        written = WrittenTo(at.partition, before.records + sent, before.commits + commits)
        self._written[at] = written
        mark = self._lanes[at].bookmark.of.moved(
            opened.place,
            passed=opened.passed,
            log_grew=sent + (commits if self.job.exactly_once else 0),
        )
        mark = replace(mark, ids=same_ids.noted(mark, self._ids))
        done = replace(opened.done, records=written.records, commits=written.commits)
        bookmark = Bookmark(mark, self.job.committer, done)
        self._lanes[at] = replace(self._lanes[at], bookmark=bookmark)

    def _commit_marks(self, writer: Writer) -> None:
        if self.letters is not None:
            self.letters.flush()
        positions = {at: lane.position() for at, lane in self._lanes.items()}
        writer.commit(positions.pop(self.unit.target), positions)

    def _tally(self) -> None:
        """Take into the report what is committed in each partition."""
        own = replace(self.report.own, lanes=tuple(self._written.values()))
        self.report = replace(self.report, own=own)

    def _tell_progress(self) -> None:
        self._told = monotonic()
        self.line.tell(self.report.progress(self.job.run, self._open.records))
