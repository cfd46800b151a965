"""One unit's way through a sink task: read, cut, write, store, enter, commit.

A unit whose turn has not come is read ahead: its files are held, and nothing of it is stored, said
or committed.

The upload of one cut runs while the next one fills, of the same partition or the next; a
partition's commits stay in order.
"""

import functools
import logging
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from kbackup.backup.ledger.objects import passed
from kbackup.channel import Line
from kbackup.errors import KbackupError, StoppedError
from kbackup.events import ObjectStored
from kbackup.flow.convert import Conversion
from kbackup.flow.cut import Append, Cut, cut
from kbackup.flow.write import OpenFiles
from kbackup.kafka import Position
from kbackup.records import Span, TopicPartition, joined
from kbackup.reports import SPANS_MOST, Bookmark, LastObject, OfSink, PartitionReport
from kbackup.sink.clients import Clients, storing
from kbackup.sink.held import Again
from kbackup.sink.intake import Intake
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.placing import Placing
from kbackup.sink.rejects import Rejects
from kbackup.sink.resuming import resumed
from kbackup.sink.spans.ahead import Ahead, ClosedCut
from kbackup.sink.spans.turn import AT_ONCE, Turn
from kbackup.sink.storing import StoredCut, Storing

_log: Final = logging.getLogger(__name__)

TELL_S: Final = 0.5
"""How often a task reports what it has read beyond what is safe."""


@dataclass(slots=True)
class Work:
    """One unit's way through the task.

    Attributes:
        turn: When its files may be stored; until then they are held.
        report: Its result so far.
        has_begun: Its turn has come: *report* is true, and what fails has failed for good.
    """

    job: SinkJob
    unit: SinkUnit
    clients: Clients
    line: Line
    turn: Turn = AT_ONCE
    report: PartitionReport[OfSink] = field(init=False)
    has_begun: bool = False
    _told: float = field(init=False)
    _upload: Future[None] | None = None
    _last: Future["_Stored"] | None = None
    _from: int = field(init=False)
    _read: int = 0
    _rejects: Rejects | None = None
    _ahead: Ahead = field(default_factory=Ahead)
    _again: Again = field(init=False)
    _stored_as: TopicPartition = field(init=False)
    _placing: Placing = field(init=False)

    def __post_init__(self) -> None:
        unit, span = self.unit, self.unit.span
        self._stored_as, self._from = self.job.routes(unit.where), span.start_offset
        self._again = Again(unit.where, unit.held)
        self._placing = Placing(self.job, self.clients.store, unit.where, self._stored_as)
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
        if self._upload is not None and not self._upload.done():
            return False
        return self._last is None or (
            self._last.done()
            and (self._last.exception() is not None or self._last.result().cut.settled.done())
        )

    def finish(self) -> None:
        """Take in the outcome of the last cut.

        Raises:
            KbackupError: What kept it from being committed.
        """
        self._finish_upload()
        if self._last is not None:
            self._take(self._last.result())

    def begin(self, cuts: Storing) -> None:
        """Read the unit to its end, and commit all but its last cut.

        What fails before the unit's turn is tried again in its turn.

        Raises:
            KbackupError: What kept it from its end; *report* shows how far it got.
            DroppedError: If the unit is no longer this task's.
        """
        try:
            with suppress(_ElsewhereError):
                if self.turn.has_come():
                    self._come(cuts)
            while not self._has_read(cuts):
                with suppress(_ElsewhereError):
                    self._come(cuts)
            if not self.turn.is_of_span:
                self._finish_upload()
        except BaseException:
            self._finish_upload()
            raise
        finally:
            self._ahead.drop()

    def _has_read(self, cuts: Storing) -> bool:
        """Read on to the unit's end; return whether nothing kept it from there before its turn."""
        try:
            self._read_on(cuts)
        except _ElsewhereError:
            return False
        except StoppedError:
            raise
        except KbackupError as error:
            if self.has_begun:
                raise
            _log.info("%s: %s; again in its turn", self.unit.where, error)
            return False
        return True

    def _read_on(self, cuts: Storing) -> None:
        job, unit = self.job, self.unit
        self._read = 0
        rejects = self._rejects = Rejects(
            unit.where, job.errors, job.run, self.line, self.clients.letters,
            functools.partial(self._come, cuts), self.report.done.bad_records > 0,
        )  # fmt: skip
        span = Span(self._from, max(self._from, unit.span.end_offset))
        views = [Conversion.of(spec, unit.where.topic) for spec in job.views]
        intake = Intake(
            job, unit.where, self.clients.reader, rejects, self.line, self.clients.schemas
        )
        bookmark = self.report.own.bookmark
        last = None if bookmark is None else bookmark.of.key
        files = OpenFiles(
            self._stored_as, views, job.layout, job.spool_bytes, unit.identity,
            self._placing.dates(last), job.rule.tombstones,
        )  # fmt: skip
        rule = replace(job.rule, stored=self._again.spans)
        try:
            with closing(intake.rows(span, views)) as rows:
                for step in cut(rows, rule, job.clock.ms, span):
                    if not self.has_begun and self.turn.has_come():
                        self._come(cuts)
                    match step:
                        case Append(some, size):
                            files.write(some)
                            self._read += size
                            self._tell_open(files)
                            cuts.flush_beside()
                        case Cut(next_offset):
                            self._finish_upload()
                            if self.line.is_stopped():  # one batch may have many cuts
                                raise StoppedError(f"{unit.where} stopped")
                            self._close(cuts, files, rejects, next_offset)
            end = span.end_offset
            if (files.records and job.flush_tail) or (not files.records and self._from < end):
                self._close(cuts, files, rejects, end, is_last=True)
            if not self.has_begun:
                self._come(cuts)
        finally:
            files.drop()

    def _close(
        self,
        cuts: Storing,
        files: OpenFiles,
        rejects: Rejects,
        next_offset: int,
        *,
        is_last: bool = False,
    ) -> None:
        """End a cut: store its files, or hold them before the unit's turn."""
        self._finish_upload()
        rejects.settle()
        closed = ClosedCut(
            tuple(files.close(Span(self._from, next_offset))),
            next_offset, self._read, rejects.before(next_offset),
        )  # fmt: skip
        self._read = 0
        if self.has_begun:
            self._from = next_offset
            self._send(cuts, closed, is_last=is_last)
            return
        self._ahead.add(closed)
        self._from = next_offset
        if self._ahead.is_full:
            self._come(cuts)

    def _come(self, cuts: Storing) -> None:
        """Wait for the unit's turn, and store what is held.

        Raises:
            _ElsewhereError: If the group is not where reading began: read on from there.
        """
        if self.has_begun:
            return
        self.turn.wait()
        self.has_begun = True
        position = cuts.position(self.unit.where)
        self.turn.check(position, self.job.run)
        self.report = resumed(self.report, self.job, self.unit, self.clients.store, position)
        if self.report.reached != self.unit.span.start_offset:
            self._ahead.drop()
            self._from = self.report.reached
            raise _ElsewhereError
        if self._rejects is not None:
            self._rejects.is_reported = self.report.done.bad_records > 0
        while self._ahead:
            self._finish_upload()  # before the next cut is in no one's hands
            if self.line.is_stopped():
                raise StoppedError(f"{self.unit.where} stopped")
            self._send(cuts, self._ahead.pop())

    def _send(self, cuts: Storing, closed: ClosedCut, *, is_last: bool = False) -> None:
        """Store a cut beside what follows; others may wait for the last one of a span."""
        size = sum(min(file.body.size, self.job.spool_bytes) for file in closed.files)
        if is_last and not self.turn.is_of_span:
            self._last = cuts.submit(size, self._store, cuts, closed)
        else:
            self._upload = cuts.submit(size, self._commit, cuts, closed)

    def _finish_upload(self) -> None:
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.result()

    def _commit(self, cuts: Storing, closed: ClosedCut) -> None:
        """Do all that is left to do for a cut: `_store`."""
        stored = self._store(cuts, closed)
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

    def _store(self, cuts: Storing, closed: ClosedCut) -> "_Stored":
        """Store the files of one cut, and have it entered into the ledger and committed."""
        report, ends_with = self.report, None
        files, next_offset, lacks = closed.files, closed.next_offset, closed.lacks
        done = report.done
        done = replace(
            done, bytes_read=done.bytes_read + closed.read, nulls=done.nulls + lacks.nulls,
            filtered=done.filtered + lacks.filtered,
            bad_records=done.bad_records + lacks.bad_records,
        )  # fmt: skip
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
                facts = self._placing.keep(file)
            finally:
                file.body.close()
            rows.append(self._placing.row(file, facts))
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
        position = Position(next_offset, bookmark.to_metadata())
        entry = StoredCut(self.unit.where, rows, position, self._stored_as.topic)
        cuts.add(entry)
        if cuts.is_due():
            cuts.flush()
        skipped = joined((*report.own.skipped, *lacks.bad))[:SPANS_MOST]
        own = replace(report.own, bookmark=bookmark, skipped=skipped)
        return _Stored(entry, replace(report, committed=next_offset, done=done, own=own))

    def _tell_open(self, files: OpenFiles) -> None:
        """Report now and then what has been read but could still be lost."""
        if self.has_begun and self.job.clock.steady_s() - self._told >= TELL_S:
            self._tell_progress(files.records)

    def _tell_progress(self, open_records: int) -> None:
        self._told = self.job.clock.steady_s()
        self.line.tell(self.report.progress(self.job.run, open_records))


@dataclass(frozen=True, slots=True)
class _Stored:
    """A cut that is stored, and the report that holds once it is committed."""

    cut: StoredCut
    after: PartitionReport[OfSink]


class _ElsewhereError(Exception):
    """The group is further on in a unit than where reading began: read again from there."""
