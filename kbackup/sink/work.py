"""One unit's way through a sink task: read, cut, write, store, enter, commit.

The upload of one cut runs while the next one fills, of the same partition or the next; a
partition's commits stay in order.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Final

from kbackup.backup.ledger.objects import passed
from kbackup.backup.ledger.rows import TOMBSTONES, Entry, stored
from kbackup.channel import Line
from kbackup.errors import KbackupError, StoppedError
from kbackup.events import ObjectStored
from kbackup.flow.convert import Conversion
from kbackup.flow.cut import Append, Cut, cut
from kbackup.flow.write import ClosedFile, OpenFiles
from kbackup.kafka import Position
from kbackup.records import Facts, Span, TopicPartition, joined
from kbackup.reports import SPANS_MOST, Bookmark, LastObject, OfSink, PartitionReport
from kbackup.sink.clients import Clients, storing
from kbackup.sink.dated import UploadDates, keep_indexed, point
from kbackup.sink.held import Again
from kbackup.sink.intake import Intake
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.keep import keep
from kbackup.sink.rejects import LeftOut, Rejects
from kbackup.sink.resuming import resumed
from kbackup.sink.storing import StoredCut, Storing

TELL_S: Final = 0.5
"""How often a task reports what it has read beyond what is safe."""


@dataclass(slots=True)
class Work:
    """One unit's way through the task.

    Attributes:
        report: Its result so far.
    """

    job: SinkJob
    unit: SinkUnit
    clients: Clients
    line: Line
    report: PartitionReport[OfSink] = field(init=False)
    _told: float = field(init=False)
    _last: Future["_Stored"] | None = None
    _read: int = 0
    _rejects: Rejects = field(init=False)
    _again: Again = field(init=False)
    _stored_as: TopicPartition = field(init=False)

    def __post_init__(self) -> None:
        unit, span = self.unit, self.unit.span
        job, clients = self.job, self.clients
        self._stored_as = job.routes(unit.where)
        self._rejects = Rejects(unit.where, job.errors, job.run, self.line, clients.letters)
        self._again = Again(unit.where, unit.held)
        self._told = self.job.clock.steady_s()
        self.report = PartitionReport(
            unit.where, span.start_offset, span.end_offset, span.start_offset,
            OfSink(unit.bookmark),
        )  # fmt: skip

    def fail(self, error: KbackupError) -> None:
        """Put *error*, with its place, into the report."""
        where = self.unit.where
        failure = error.failure().at(topic=where.topic, partition=where.partition)
        self.report = replace(self.report, failure=failure)

    def run(self) -> None:
        """Back up the unit alone.

        Raises:
            KbackupError: What kept it from its end; *report* shows how far it got.
        """
        with storing(self.job, self.clients) as cuts:
            self.begin(cuts)
            cuts.drain()
        self.finish()

    def is_settled(self) -> bool:
        """Whether `finish` need not wait."""
        return self._last is None or (
            self._last.done()
            and (self._last.exception() is not None or self._last.result().cut.settled.done())
        )

    def finish(self) -> None:
        """Take in the outcome of the last cut.

        Raises:
            KbackupError: What kept it from being committed.
        """
        if self._last is not None:
            self._take(self._last.result())

    def begin(self, cuts: Storing) -> None:
        """Read the unit to its end, and commit all but its last cut.

        Raises:
            KbackupError: What kept it from its end; *report* shows how far it got.
        """
        job, unit = self.job, self.unit
        position = cuts.position(unit.where)
        self.report = resumed(self.report, job, unit, self.clients.store, position)
        start = self.report.reached  # of the open cut
        span = Span(start, max(start, unit.span.end_offset))
        views = [Conversion.of(spec, self.unit.where.topic) for spec in self.job.views]
        intake = Intake(
            job, unit.where, self.clients.reader, self._rejects, self.line, self.clients.schemas
        )
        files = OpenFiles(
            self._stored_as, views, self.job.layout, self.job.spool_bytes, self.unit.identity,
            self._dates(), self.job.rule.tombstones,
        )  # fmt: skip
        upload: Future[None] | None = None
        try:
            rule = replace(self.job.rule, stored=self._again.spans)
            for step in cut(intake.rows(span, views), rule, self.job.clock.ms):
                match step:
                    case Append(rows, size):
                        files.write(rows)
                        self._read += size
                        self._tell_open(files)
                        cuts.flush_beside()
                    case Cut(next_offset):
                        _finish(upload)
                        upload = None
                        if self.line.is_stopped():  # one batch may have many cuts
                            raise StoppedError(f"{unit.where} stopped")
                        self._rejects.settle()
                        closed = files.close(Span(start, next_offset))
                        upload = cuts.submit(
                            self._bytes(closed), self._commit, cuts, closed, next_offset,
                            *self._taken(next_offset),
                        )  # fmt: skip
                        start = next_offset
            _finish(upload)
            upload = None
            end = span.end_offset
            closed = []
            if files.records and self.job.flush_tail:
                closed = files.close(Span(start, end))
            if closed or (not files.records and self.report.reached < end):
                self._rejects.settle()
                self._last = cuts.submit(
                    self._bytes(closed), self._store, cuts, closed, end, *self._taken(end)
                )
        finally:
            files.drop()
            _finish(upload)

    def _bytes(self, files: Sequence[ClosedFile]) -> int:
        """Return how much memory files take until they are stored, at most."""
        return sum(min(file.body.size, self.job.spool_bytes) for file in files)

    def _taken(self, next_offset: int) -> tuple[int, LeftOut]:
        """Return bytes read since the last cut, and what was left out before *next_offset*."""
        taken = self._read, self._rejects.before(next_offset)
        self._read = 0
        return taken

    def _commit(
        self, cuts: Storing, files: list[ClosedFile], next_offset: int, read: int, lacks: LeftOut
    ) -> None:
        """Do all that is left to do for a cut: `_store`."""
        stored = self._store(cuts, files, next_offset, read, lacks)
        cuts.flush()
        self._take(stored)

    def _take(self, stored: "_Stored") -> None:
        """Report the unit's progress after a cut is committed.

        Raises:
            KbackupError: If it is not.
        """
        stored.cut.settled.result()
        self.report = stored.after
        self._tell_progress(0)

    def _store(
        self, cuts: Storing, files: list[ClosedFile], next_offset: int, read: int, lacks: LeftOut
    ) -> "_Stored":
        """Store the files of one cut, and have it entered into the ledger and committed.

        Args:
            cuts: Takes the cut once its files are stored.
            files: The cut's, in the order to store them.
            next_offset: The first offset after it.
            read: Bytes of the records read for it.
            lacks: What was left out of it.
        """
        report, ends_with = self.report, None
        done = report.done
        done = replace(
            done,
            bytes_read=done.bytes_read + read,
            nulls=done.nulls + lacks.nulls,
            filtered=done.filtered + lacks.filtered,
            bad_records=done.bad_records + lacks.bad_records,
        )
        now_ms = self.job.clock.ms()
        rows = lacks.entries(self.unit.where, self.job.run, now_ms)
        if not files and report.reached < next_offset:
            span = Span(report.reached, next_offset)
            rows.append(passed(self.unit.where, span, self.job.run, now_ms))
        mains = [file for file in files if file.is_main]
        if mains:
            end = max(file.facts.last_offset for file in mains) + 1
            held = Span(min(file.facts.first_offset for file in mains), end)
            keys = [file.key for file in mains]
            self._again.check(self.clients.store, held, next_offset, keys)
        for file in files:
            try:
                facts = self._keep(file)
            finally:
                file.body.close()
            rows.append(self._row(file, facts))
            done = replace(
                done, objects=done.objects + 1, bytes_stored=done.bytes_stored + file.body.size
            )
            if file.is_main:
                first = file.facts.first_offset if done.first is None else done.first
                done = replace(done, records=done.records + file.facts.records, first=first)
                if ends_with is None or ends_with[1] < facts.last_offset:
                    ends_with = file.key, facts.last_offset
            self.line.tell(ObjectStored(self.job.run, file.key, file.facts, file.body.size))
        stands = report.own.bookmark
        last = LastObject() if stands is None else stands.of
        if ends_with is not None:
            last, done = LastObject(*ends_with), replace(done, last=ends_with[1])
        again_to = self._again.to(next_offset)
        last = replace(last, identity=self.unit.identity, again_to=again_to)
        bookmark = Bookmark(last, self.job.run, done)
        entry = StoredCut(
            self.unit.where,
            rows,
            Position(next_offset, bookmark.to_metadata()),
            self._stored_as.topic,
        )
        cuts.add(entry)
        if cuts.is_due():
            cuts.flush()
        skipped = joined((*report.own.skipped, *lacks.bad))[:SPANS_MOST]
        own = replace(report.own, bookmark=bookmark, skipped=skipped)
        return _Stored(entry, replace(report, committed=next_offset, done=done, own=own))

    def _dates(self) -> Callable[[int], str] | None:
        """Return what gives files the dates of their upload, None where none have them."""
        job, bookmark = self.job, self.report.own.bookmark
        if not job.layout.is_dated:
            return None
        last = None if bookmark is None else bookmark.of.key
        return UploadDates(self.clients.store, job.layout, self._stored_as, job.clock, last).of

    def _keep(self, file: ClosedFile) -> Facts:
        """Store a file with all that belongs beside it; return what is there now."""
        store = self.clients.store
        if file.index is None:
            return keep(store, file)
        facts = keep_indexed(store, file)
        if self.job.points:
            point(store, self.job.layout, self._stored_as, file.index)
        return facts

    def _row(self, file: ClosedFile, facts: Facts) -> Entry:
        """Return what the ledger is to say of a file whose object has *facts* now."""
        size = file.body.size
        if facts != file.facts:  # a longer object was there already
            head = self.clients.store.head(file.key)
            size = size if head is None else head.size
        view = TOMBSTONES if file.is_tombstones else file.spec.view
        return stored(
            self.unit.where, file.key, view, facts, size, file.cut.span, self.job.run,
            self.job.clock.ms(),
        )  # fmt: skip

    def _tell_open(self, files: OpenFiles) -> None:
        """Report now and then what has been read but could still be lost."""
        if self.job.clock.steady_s() - self._told >= TELL_S:
            self._tell_progress(files.records)

    def _tell_progress(self, open_records: int) -> None:
        self._told = self.job.clock.steady_s()
        self.line.tell(self.report.progress(self.job.run, open_records))


@dataclass(frozen=True, slots=True)
class _Stored:
    """A cut that is stored, and the report that holds once it is committed."""

    cut: StoredCut
    after: PartitionReport[OfSink]


def _finish(upload: Future[None] | None) -> None:
    if upload is not None:
        upload.result()
