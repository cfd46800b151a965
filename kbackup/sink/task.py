"""One task: a partition's records from Kafka to objects.

Read, convert, route, cut, write, store, enter, commit: the objects of a cut are complete, then they
are in the ledger, then the group's offset is committed, then progress is reported.  The upload of
one cut runs while the next one fills, of the same partition or the next; a partition's commits stay
in order.
"""

import functools
import logging
import random
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from kbackup import partitioners
from kbackup.catalog.ledger.rows import SKIPPED, entries
from kbackup.catalog.ledger.stream import topic_stream
from kbackup.errors import KbackupError, RegistryError, StoppedError
from kbackup.kafka import Outage, Position, Reader
from kbackup.naming import View
from kbackup.partitioners import extractors
from kbackup.pipeline.convert import Conversion, convert
from kbackup.pipeline.rotate import Append, Cut, cut
from kbackup.pipeline.route import route
from kbackup.pipeline.rows import Rows
from kbackup.pipeline.write import OpenFiles
from kbackup.records import Span, TopicPartition, joined
from kbackup.runs.position import CommitMetadata, LastObject
from kbackup.runs.report import SPANS_MOST, OfSink, PartitionReport
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.rejects import Rejects
from kbackup.sink.schemas import SchemaKeeper
from kbackup.sink.spans.lease import AT_ONCE, ClosedCut, Lease, ReadAhead
from kbackup.sink.storing import Placed, Placing, Storing, TaskClients, connect, storing
from kbackup.spark.channel import Line
from kbackup.stores import Store
from kbackup.transforms.chain import Chain


def back_up(
    job: SinkJob, units: Sequence[SinkUnit], line: Line
) -> Iterator[PartitionReport[OfSink]]:
    """Work through *units* one after the other; a failure is a report, not an exception.

    The last cut of a unit is stored and committed beside the units that follow.

    Memory: one reader, one open cut and as much again being stored, whatever the number of units.
    """
    if not units:
        return
    with closing(connect(job, line)) as clients, storing(job, clients) as cuts:
        outage = Outage(job.kafka)
        try:
            cuts.expect(unit.where for unit in units)
        except KbackupError as error:
            outage.note(error)
        begun: deque[SinkPartitionTask] = deque()
        for unit in units:
            work = SinkPartitionTask(job, unit, clients, line)
            begun.append(work)
            try:
                outage.check()
                work.begin(cuts)
            except KbackupError as error:
                work.fail(error)
                outage.note(error)
            while begun and begun[0].is_settled():
                yield _finished(begun.popleft(), outage)
            if line.is_stopped():
                break
        cuts.drain()
        for work in begun:
            yield _finished(work, outage)


def _finished(work: "SinkPartitionTask", outage: Outage) -> PartitionReport[OfSink]:
    try:
        work.finish()
    except KbackupError as error:
        work.fail(error)
        outage.note(error)
    return work.report


_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Intake:
    """Where the rows of one partition come from.

    Attributes:
        job: The run's settings.
        where: The partition.
        reader: Reads it.
        rejects: Takes the records that do not fit.
        line: Says when to stop.
        schemas: Stores the schemas that records name; None where no registry is known.
    """

    job: SinkJob
    where: TopicPartition
    reader: Reader
    rejects: Rejects
    line: Line
    schemas: SchemaKeeper | None = None

    def rows(self, span: Span, views: Sequence[Conversion]) -> Generator[Rows, None, None]:
        """Read, convert and route the records of *span*; bad ones are left out, or end it.

        Raises:
            BadRecordError: After all rows before that record.
            StoppedError: When asked to stop.
        """
        partitioner = partitioners.by_name(self.job.partitioner, self.job.plugin_options)
        extractor = extractors.by_name(self.job.extractor, self.job.plugin_options)
        transforms = (Chain(self.job.transforms), self.where) if self.job.transforms else None
        with closing(self.reader.read(self.where, span)) as batches:  # another may follow
            for batch in batches:
                if self.line.is_stopped():
                    raise StoppedError(f"{self.where} stopped")
                found = self._converted(batch, views, transforms)
                if (
                    self.schemas is not None
                ):  # its converters have asked for them: no question twice
                    self.schemas.meet(self.job.routes(self.where), batch)
                for converted in found:
                    now_ms = self.job.clock.ms()
                    rows = route(
                        converted,
                        self.where,
                        partitioner,
                        extractor,
                        now_ms,
                        affix=self.job.affix,
                        tombstones=self.job.rule.tombstones,
                    )
                    if self.job.errors.tolerates:
                        self.rejects.take(batch, rows)
                        yield rows
                    else:
                        before = rows.before_bad()
                        self.rejects.take(batch, before)
                        yield before
                        self.rejects.take(batch, replace(rows, left_out=(), filtered=()))

    def _converted(
        self,
        batch: pa.RecordBatch,
        views: Sequence[Conversion],
        transforms: tuple[Chain, TopicPartition] | None,
    ) -> list[Rows]:
        """Convert *batch*; a registry's error names the record whose schema was asked for.

        Raises:
            RegistryError: If it does not answer for as long as it is to be asked.
            StoppedError: When asked to stop meanwhile.
        """
        clock, where, attempt = self.job.clock, self.where, 0
        failed_at: float | None = None
        while True:
            try:
                return list(
                    convert(
                        batch,
                        views,
                        nulls=self.job.nulls,
                        compatibility=self.job.rule.compatibility,
                        transforms=transforms,
                    )
                )
            except RegistryError as error:
                attempt += 1
                failed_at = clock.steady_s() if failed_at is None else failed_at
                offset = batch["offset"][error.row].as_py()
                what = f"{where} offset {offset}: {error.what}"
                waited_s, jitter = clock.steady_s() - failed_at, random.random()  # noqa: S311
                wait_s = self.job.errors.wait_s(attempt, waited_s, jitter)
                if wait_s is None:
                    raise RegistryError(
                        what, error.why, error.do,
                        topic=where.topic, partition=where.partition, offset=offset,
                    ) from error  # fmt: skip
                _log.warning("%s: %s; again in %.1f s", what, error.why, wait_s)
                if self.line.wait(wait_s):
                    raise StoppedError(f"{where} stopped") from error


def resumed(
    report: PartitionReport[OfSink],
    job: SinkJob,
    unit: SinkUnit,
    store: Store,
    position: Position | None,
) -> PartitionReport[OfSink]:
    """Return *report* with what that task has committed, which is not read again.

    Args:
        report: Of a unit that has not begun.
        job: The run's settings.
        unit: The unit.
        store: Where the ledger is.
        position: Of the group in the unit's partition.
    """
    bookmark = LastObject.beside(position)
    if position is None or bookmark is None or bookmark.run != job.run:
        return report
    return replace(
        report,
        committed=max(unit.span.start_offset, position.offset),
        done=bookmark.done,
        own=replace(report.own, bookmark=bookmark, skipped=_skipped(job, unit, store, bookmark)),
    )


def _skipped(
    job: SinkJob, unit: SinkUnit, store: Store, bookmark: CommitMetadata[LastObject]
) -> tuple[Span, ...]:
    """Return what the task that this one replaces has left out; its own report is lost.

    A visit of a run that follows has its predecessor's report, and needs none.
    """
    is_visit = unit.bookmark is not None and unit.bookmark.run == bookmark.run
    if is_visit or not bookmark.done.bad_records:
        return ()
    where = unit.where
    stream = topic_stream(store, job.layout, job.routes.topic(where.topic), job.clock)
    return joined(
        entry.span
        for entry in entries(stream.read().rows)
        if entry.kind == SKIPPED and (entry.partition, entry.run) == (where.partition, job.run)
    )[:SPANS_MOST]


TELL_S: Final = 0.5
"""How often a task reports what it has read beyond what is safe."""


@dataclass(slots=True)
class SinkPartitionTask:
    """One unit's way through the task.

    Attributes:
        turn: When its files may be stored; until then they are held.
        report: Its result so far.
        has_begun: Its turn has come: *report* is true, and what fails has failed for good.
    """

    job: SinkJob
    unit: SinkUnit
    clients: TaskClients
    line: Line
    turn: Lease = AT_ONCE
    report: PartitionReport[OfSink] = field(init=False)
    has_begun: bool = False
    _told: float = field(init=False)
    _upload: Future[None] | None = None
    _last: Future[Placed] | None = None
    _from: int = field(init=False)
    _read: int = 0
    _rejects: Rejects | None = None
    _ahead: ReadAhead = field(default_factory=ReadAhead)
    _placing: Placing = field(init=False)

    def __post_init__(self) -> None:
        unit, span = self.unit, self.unit.span
        self._from = span.start_offset
        self._placing = Placing(self.job, unit, self.clients.store, self.line)
        self._told = self.job.clock.steady_s()
        self.report = PartitionReport(
            unit.where, span.start_offset, span.end_offset, span.start_offset,
            OfSink(unit.bookmark),
        )  # fmt: skip

    def fail(self, error: KbackupError) -> None:
        """Put *error*, with its place, into the report."""
        where = self.unit.where
        failure = error.issue().at(topic=where.topic, partition=where.partition)
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
            self._placing.stored_as, views, job.layout, job.spool_bytes, unit.identity,
            self._placing.dates(last), job.rule.tombstones,
        )  # fmt: skip
        rule = replace(job.rule, stored=self._placing.again.spans)
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

    def _take(self, stored: Placed) -> None:
        """Report the unit's progress after a cut is committed.

        Raises:
            KbackupError: If it is not.
        """
        stored.cut.settled.result()
        self.report = stored.after
        self._tell_progress(0)

    def _store(self, cuts: Storing, closed: ClosedCut) -> Placed:
        """Store the files of one cut, and have it entered into the ledger and committed."""
        if any(file.spec.view is not View.RECORD for file in closed.files):
            cuts.check(self.unit.where, self.report.reached)
        placed = self._placing.place(self.report, closed)
        cuts.add(placed.cut)
        if cuts.is_due():
            cuts.flush()
        return placed

    def _tell_open(self, files: OpenFiles) -> None:
        """Report now and then what has been read but could still be lost."""
        if self.has_begun and self.job.clock.steady_s() - self._told >= TELL_S:
            self._tell_progress(files.records)

    def _tell_progress(self, open_records: int) -> None:
        self._told = self.job.clock.steady_s()
        self.line.tell(self.report.progress(self.job.run, open_records))


class _ElsewhereError(Exception):
    """The group is further on in a unit than where reading began: read again from there."""
