"""One task: a partition's records from Kafka to objects.

Read, convert, route, cut, write, store, enter, commit: the objects of a cut are complete, then they
are in the ledger, then the group's offset is committed, then progress is reported.  The upload of
one cut runs beside the filling of the next one, of the same partition or of the next; a partition's
commits stay in order.
"""

import logging
import random
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from kbackup import engine, extractors, partitioners
from kbackup.backup.ledger import place
from kbackup.backup.ledger.objects import passed
from kbackup.backup.ledger.rows import SKIPPED, Entry, entries, stored
from kbackup.channel import Line
from kbackup.errors import KbackupError, RegistryError, StoppedError
from kbackup.flow.convert import Conversion, convert
from kbackup.flow.cut import Append, Cut, cut
from kbackup.flow.route import route
from kbackup.flow.rows import Rows
from kbackup.flow.write import ClosedFile, OpenFiles
from kbackup.kafka import Outage, Position, Positions, Reader
from kbackup.records import Facts, Span, TopicPartition, joined
from kbackup.reports import SPANS_MOST, Bookmark, PartitionReport
from kbackup.sink.dead_letters import DeadLetters
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.keep import keep
from kbackup.sink.rejects import LeftOut, Rejects
from kbackup.sink.storing import StoredCut, Storing
from kbackup.stores import Store, open_store
from kbackup.transforms.chain import Chain

_log: Final = logging.getLogger(__name__)

TELL_S: Final = 0.5
"""How often a task tells what it has read beyond what is safe."""


@dataclass(frozen=True, slots=True)
class Clients:
    """What a task talks to: made once, and used for all its partitions.

    Attributes:
        store: Where objects go.
        positions: Where the group's positions are kept.
        reader: Where records come from.
        letters: Where records go that are left out; None for nowhere.
    """

    store: Store
    positions: Positions
    reader: Reader
    letters: DeadLetters | None = None

    def close(self) -> None:
        """Leave the cluster."""
        self.positions.close()
        self.reader.close()
        if self.letters is not None:
            self.letters.close()


def connect(job: SinkJob, instead_of: Clients | None = None) -> Clients:
    """Open the clients of a task.

    Args:
        job: What they are for.
        instead_of: These are closed, but for their store, which is kept.
    """
    if instead_of is not None:
        instead_of.close()
    store = open_store(job.store) if instead_of is None else instead_of.store
    topic = job.errors.topic
    letters = None if topic is None else DeadLetters(job.kafka, job.group, topic)
    return Clients(store, job.kafka.positions(job.group), job.kafka.reader(job.group), letters)


def storing(job: SinkJob, clients: Clients) -> Storing:
    """Open what takes the cuts of a task."""
    limit_bytes = job.spool_bytes * len(job.views)
    return Storing(clients.store, job.layout, clients.positions, job.clock, limit_bytes)


def back_up(job: SinkJob, units: Sequence[SinkUnit], line: Line) -> Iterator[engine.Report]:
    """Work through *units* one after the other; a failure is a report, not an exception.

    The last cut of a unit is stored and committed beside the units that follow.

    Memory: one reader, one open cut and as much again being stored, whatever the number of units.
    """
    with closing(connect(job)) as clients, storing(job, clients) as cuts:
        outage = Outage(job.kafka)
        try:
            cuts.expect(unit.where for unit in units)
        except KbackupError as error:
            outage.note(error)
        begun: deque[Work] = deque()
        for unit in units:
            work = Work(job, unit, clients, line)
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


def _finished(work: "Work", outage: Outage) -> engine.Report:
    try:
        work.finish()
    except KbackupError as error:
        work.fail(error)
        outage.note(error)
    return work.report.to_dict()


@dataclass(slots=True)
class Work:
    """One unit's way through the task.

    Attributes:
        report: What has come of it so far.
    """

    job: SinkJob
    unit: SinkUnit
    clients: Clients
    line: Line
    report: PartitionReport = field(init=False)
    _told: float = field(init=False)
    _last: Future["_Stored"] | None = None
    _read: int = 0
    _rejects: Rejects = field(init=False)

    def __post_init__(self) -> None:
        unit, span = self.unit, self.unit.span
        job, clients = self.job, self.clients
        self._rejects = Rejects(unit.where, job.errors, job.run, self.line, clients.letters)
        self._told = self.job.clock.steady_s()
        self.report = PartitionReport(
            unit.where, span.start_offset, span.end_offset, span.start_offset,
            bookmark=unit.bookmark,
        )  # fmt: skip

    def fail(self, error: KbackupError) -> None:
        """Put *error*, with its place, into the report."""
        error.place.setdefault("topic", self.unit.where.topic)
        error.place.setdefault("partition", self.unit.where.partition)
        self.report = replace(self.report, failure=error.to_dict())

    def run(self) -> None:
        """Back the unit up, and nothing beside it.

        Raises:
            KbackupError: What kept it from its end; *report* says how far it came.
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
        """Take over what has become of the last cut.

        Raises:
            KbackupError: What kept it from being committed.
        """
        if self._last is not None:
            self._take(self._last.result())

    def begin(self, cuts: Storing) -> None:
        """Read the unit to its end, and commit all but its last cut.

        Raises:
            KbackupError: What kept it from its end; *report* says how far it came.
        """
        span = self._resumed(cuts, self.unit.span)
        views = [Conversion.of(spec, self.unit.where.topic) for spec in self.job.views]
        files = OpenFiles(
            self.unit.where, views, self.job.layout, self.job.spool_bytes, self.unit.identity
        )
        start = span.start_offset  # of the open cut
        upload: Future[None] | None = None
        try:
            for step in cut(self._rows(span, views), self.job.rule, self.job.clock.ms):
                match step:
                    case Append(rows, size):
                        files.write(rows)
                        self._read += size
                        self._tell_open(files)
                        cuts.flush_beside()
                    case Cut(next_offset):
                        _finish(upload)
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
            if closed or (not files.records and self.report.committed < end):
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

    def _resumed(self, cuts: Storing, span: Span) -> Span:
        """Return what is left to do: all, or what an earlier task of this run has not committed.

        Spark tries a task again whose worker died.  What that one committed is not read again,
        and counts as done.
        """
        position = cuts.position(self.unit.where)
        bookmark = None if position is None else Bookmark.from_metadata(position.metadata)
        if position is None or bookmark is None or bookmark.run != self.job.run:
            return span
        start = max(span.start_offset, position.offset)
        self.report = replace(
            self.report,
            committed=start,
            done=bookmark.done,
            last=bookmark.last_offset if bookmark.done.records else None,
            skipped=self._skipped_before(bookmark),
            bookmark=bookmark,
        )
        return Span(start, max(start, span.end_offset))

    def _skipped_before(self, bookmark: Bookmark) -> tuple[Span, ...]:
        """Return what a task that this one replaces has left out; its own report is lost.

        A visit of a run that follows has its predecessor's report, and needs none.
        """
        unit = self.unit
        is_visit = unit.bookmark is not None and unit.bookmark.run == bookmark.run
        if is_visit or not bookmark.done.bad_records:
            return ()
        where = unit.where
        stream = place.of_topic(self.clients.store, self.job.layout, where.topic, self.job.clock)
        return joined(
            entry.span
            for entry in entries(stream.read().rows)
            if entry.kind == SKIPPED
            and (entry.partition, entry.run) == (where.partition, self.job.run)
        )[:SPANS_MOST]

    def _rows(self, span: Span, views: Sequence[Conversion]) -> Iterator[Rows]:
        """Read, convert and route the records of *span*; bad ones are left out, or end it.

        Raises:
            BadRecordError: After all rows before that record.
            StoppedError: When asked to stop.
        """
        where = self.unit.where
        partitioner = partitioners.by_name(self.job.partitioner, self.job.plugin_options)
        extractor = extractors.by_name(self.job.extractor, self.job.plugin_options)
        transforms = (Chain(self.job.transforms), where) if self.job.transforms else None
        for batch in self.clients.reader.read(where, span):
            if self.line.is_stopped():
                raise StoppedError(f"{where} stopped")
            for converted in self._converted(batch, views, transforms):
                now_ms = self.job.clock.ms()
                affix = self.job.affix
                rows = route(converted, where, partitioner, extractor, now_ms, affix=affix)
                if self.job.errors.tolerates:
                    self._rejects.take(batch, rows)
                    yield rows
                else:
                    before = rows.before_bad()
                    self._rejects.take(batch, before)
                    yield before
                    self._rejects.take(batch, replace(rows, left_out=(), filtered=()))

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
        clock, where, attempt = self.job.clock, self.unit.where, 0
        failed_at: float | None = None
        while True:
            try:
                return list(
                    convert(
                        batch,
                        views,
                        leaves_out_nulls=self.job.drops_nulls,
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
        """Tell how far the unit is now that a cut is committed.

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
        if not files and report.committed < next_offset:
            span = Span(report.committed, next_offset)
            rows.append(passed(self.unit.where, span, self.job.run, now_ms))
        for file in files:
            try:
                facts = keep(self.clients.store, file)
            finally:
                file.body.close()
            rows.append(self._row(file, facts))
            done = replace(
                done, objects=done.objects + 1, bytes_stored=done.bytes_stored + file.body.size
            )
            if file.spec is self.job.views[-1]:
                first = file.facts.first_offset if done.first is None else done.first
                done = replace(done, records=done.records + file.facts.records, first=first)
                if ends_with is None or ends_with[1] < facts.last_offset:
                    ends_with = file.key, facts.last_offset
            self.line.tell(_object_event(self.job.run, file))
        stands = report.bookmark or Bookmark()
        if ends_with is not None:
            stands, report = Bookmark(*ends_with), replace(report, last=ends_with[1])
        bookmark = replace(stands, run=self.job.run, done=done, identity=self.unit.identity)
        entry = StoredCut(self.unit.where, rows, Position(next_offset, bookmark.to_metadata()))
        cuts.add(entry)
        if cuts.is_due():
            cuts.flush()
        skipped = joined((*report.skipped, *lacks.bad))[:SPANS_MOST]
        after = replace(
            report, committed=next_offset, done=done, skipped=skipped, bookmark=bookmark
        )
        return _Stored(entry, after)

    def _row(self, file: ClosedFile, facts: Facts) -> Entry:
        """Return what the ledger is to say of a file whose object has *facts* now."""
        size = file.body.size
        if facts != file.facts:  # a longer object was there already
            head = self.clients.store.head(file.key)
            size = size if head is None else head.size
        return stored(
            self.unit.where, file.key, file.spec.view, facts, size, file.cut.span, self.job.run,
            self.job.clock.ms(),
        )  # fmt: skip

    def _tell_open(self, files: OpenFiles) -> None:
        """Tell now and then what has been read and could still be lost."""
        if self.job.clock.steady_s() - self._told >= TELL_S:
            self._tell_progress(files.records)

    def _tell_progress(self, open_records: int) -> None:
        self._told = self.job.clock.steady_s()
        self.line.tell(self.report.progress(self.job.run, open_records))


@dataclass(frozen=True, slots=True)
class _Stored:
    """A cut that is stored, and the report that holds once it is committed."""

    cut: StoredCut
    after: PartitionReport


def _finish(upload: Future[None] | None) -> None:
    if upload is not None:
        upload.result()


def _object_event(run: str, file: ClosedFile) -> dict[str, Any]:
    facts = file.facts
    return {
        "type": "object", "run": run, "key": file.key, "first": facts.first_offset,
        "last": facts.last_offset, "records": facts.records, "bytes": file.body.size,
        "min_timestamp": facts.min_timestamp, "max_timestamp": facts.max_timestamp,
        "sha256": facts.sha256,
    }  # fmt: skip
