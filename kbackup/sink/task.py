"""Back up partitions in a task: records from Kafka to objects.

Read, convert, route, rotate, write, store, enter, commit: the objects of a file set are complete,
then they are in the ledger, then the group's offset is committed, then progress is reported.  One
thread reads ahead and one writes files behind, which takes the time of the slowest of them.  The
upload of one file set runs while the next one fills, of the same partition or the next; a
partition's commits stay in order.
"""

import logging
import random
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

import pyarrow as pa

from kbackup import partitioners
from kbackup.batches import BatchError, Batches
from kbackup.batches.decoding import decoded
from kbackup.catalog.ledger.rows import SKIPPED, entries
from kbackup.catalog.ledger.stream import topic_stream
from kbackup.errors import BadRecordError, KbackupError, RegistryError, StoppedError
from kbackup.kafka import Outage, Position, ReadsBatches
from kbackup.naming import View
from kbackup.partitioners import extractors
from kbackup.pipeline.convert import Conversion, convert, route
from kbackup.pipeline.rotate import Append, Cut, Rule, cut, cut_batches
from kbackup.pipeline.rows import BadRecord, Rows
from kbackup.pipeline.write import ClosedFile, OpenFiles, OpenLog, unreadable
from kbackup.records import Prefetch, Span, joined
from kbackup.runs.position import SinkPosition
from kbackup.runs.report import SPANS_MOST, OfSink, PartitionReport
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.rejects import Rejects
from kbackup.sink.storing import (
    ClosedFileSet,
    Placing,
    StoredFileSet,
    Storing,
    TaskClients,
    connect,
    storing,
)
from kbackup.spark.channel import TaskChannel
from kbackup.stores import Names, Store
from kbackup.transforms import Chain

_log: Final = logging.getLogger(__name__)

TELL_S: Final = 0.5
"""How often a task reports what it has read beyond what is safe."""

Item = TypeVar("Item")
Taken_contra = TypeVar("Taken_contra", contravariant=True)


class Filling(Protocol[Taken_contra]):
    """The open files of a partition, of rows or of batches: `OpenFiles`, `OpenLog`."""

    records: int

    def write(self, some: Taken_contra, /) -> None:
        """Add what comes next."""

    def close(self, span: Span) -> list[ClosedFile]:
        """Complete them, and begin anew."""

    def drop(self) -> None:
        """Discard them."""


def back_up(
    job: SinkJob, units: Sequence[SinkUnit], channel: TaskChannel
) -> Iterator[PartitionReport[OfSink]]:
    """Work through *units* one after the other; a failure is a report, not an exception.

    The last cut of a unit is stored and committed beside the units that follow.

    Memory: one reader, one open cut and as much again being stored, whatever the number of units.
    """
    if not units:
        return
    with closing(connect(job, channel)) as clients, storing(job, clients) as cuts:
        outage = Outage(job.kafka)
        try:
            cuts.expect(unit.where for unit in units)
        except KbackupError as error:
            outage.note(error)
        begun: deque[SinkPartitionTask] = deque()
        for unit in units:
            work = SinkPartitionTask(job, unit, clients, channel)
            begun.append(work)
            try:
                outage.check()
                work.begin(cuts)
            except KbackupError as error:
                work.fail(error)
                outage.note(error)
            while begun and begun[0].is_settled():
                yield _finished(begun.popleft(), outage)
            if channel.is_stopped():
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


@dataclass(slots=True)
class SinkPartitionTask:
    """One unit's way through the task."""

    job: SinkJob
    unit: SinkUnit
    clients: TaskClients
    channel: TaskChannel
    report: PartitionReport[OfSink] = field(init=False)
    _told: float = field(init=False)
    _in_flight: Future[StoredFileSet] | None = None
    _from: int = field(init=False)
    _read: int = 0
    _placing: Placing = field(init=False)

    def __post_init__(self) -> None:
        unit, span = self.unit, self.unit.span
        self._from = span.start_offset
        self._placing = Placing(self.job, unit, self.clients.store, self.channel)
        self._told = self.job.clock.steady_s()
        self.report = PartitionReport(
            unit.where, span.start_offset, span.end_offset, span.start_offset,
            OfSink(unit.commit_metadata),
        )  # fmt: skip

    def fail(self, error: KbackupError) -> None:
        """Put *error*, with its place, into the report."""
        where = self.unit.where
        failure = error.issue().at(**where.place)
        self.report = replace(self.report, failure=failure)

    def run(self) -> None:
        """Back up the unit alone.

        Raises:
            KbackupError: What kept it from its end; *report* shows how far it got.
        """
        with storing(self.job, self.clients) as stores:
            self.begin(stores)
            stores.drain()
        self.finish()

    def begin(self, stores: Storing) -> None:
        """Back the unit up: all is committed when this returns but the last file set."""
        job, unit = self.job, self.unit
        position = stores.position(unit.where)
        self.report = resumed(self.report, job, unit, self.clients.store, position)
        self._from, end = self.report.reached, unit.span.end_offset
        span = Span(self._from, max(self._from, end))
        rejects = Rejects(
            unit.where, job.errors, job.run, self.channel, self.clients.letters,
            is_reported=self.report.done.bad_records > 0,
        )  # fmt: skip
        if job.is_by_batches:
            self._fill(stores, rejects, self._log(stores), cut_batches, self._batches(span))
        else:
            self._fill(stores, rejects, self._files(stores), cut, self._rows(span, rejects))

    def _fill(
        self,
        stores: Storing,
        rejects: Rejects,
        files: Filling[Item],
        cut: Callable[[Iterable[Item], Rule, Callable[[], int]], Iterator[Append[Item] | Cut]],
        stream: Generator[Item, None, None],
    ) -> None:
        """Put what comes into files, and have them stored where *cut* says that they end."""
        job, end = self.job, self.unit.span.end_offset
        rule = replace(job.rule, stored=self._placing.again.spans)
        try:
            with closing(stream) as items:
                for step in cut(items, rule, job.clock.ms):
                    match step:
                        case Append(some, size):
                            files.write(some)
                            self._read += size
                            self._tell_open(files)
                            stores.flush_beside()
                        case Cut(next_offset):
                            self._store_beside(stores, self._closed(files, rejects, next_offset))
            if (files.records and job.flush_tail) or (not files.records and self._from < end):
                closed = self._closed(files, rejects, end)
                self._store_beside(stores, closed, is_last=True)
        except BaseException:
            self.finish()  # what was read before is stored and committed all the same
            raise
        finally:
            files.drop()

    def is_settled(self) -> bool:
        """Whether `finish` need not wait."""
        stored = self._in_flight
        return stored is None or (
            stored.done() and (stored.exception() is not None or stored.result().settled.done())
        )

    def finish(self) -> None:
        """Wait until the file set in flight, if there is one, is committed; report the progress.

        Raises:
            KbackupError: What kept it from being committed.
        """
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is not None:
            stored = in_flight.result()
            stored.settled.result()
            self.report = stored.report
            self._tell_progress(0)

    def _files(self, stores: Storing) -> OpenFiles:
        job, unit, commit_metadata = self.job, self.unit, self.report.own.commit_metadata
        last = None if commit_metadata is None else commit_metadata.key
        views = [Conversion.of(spec, unit.where.topic) for spec in job.views]
        return OpenFiles(
            self._placing.stored_as, views, job.layout, job.spool_bytes, unit.identity,
            self._placing.dates(last), job.rule.tombstones, stores.writer,
        )  # fmt: skip

    def _log(self, stores: Storing) -> OpenLog:
        job, unit = self.job, self.unit
        directory = partitioners.only_directory(
            partitioners.by_name(job.partitioner, job.plugin_options), unit.where
        )
        assert directory is not None  # noqa: S101  (the configuration was refused otherwise)
        return OpenLog(
            self._placing.stored_as, job.views[-1], directory, job.layout, job.spool_bytes,
            unit.identity, stores.writer,
        )  # fmt: skip

    def _batches(self, span: Span) -> Generator[Batches, None, None]:
        """Read the batches of *span*; a registry's schemas are looked for in their records."""
        where, schemas, reader = self.unit.where, self.clients.schemas, self.clients.reader
        assert isinstance(reader, ReadsBatches)  # noqa: S101  (it was asked for)
        with Prefetch(
            reader.batches(where, span), depth=1,
            is_last=lambda some: some.next_offset >= span.end_offset,
        ) as found:  # fmt: skip
            for batches in found:
                if self.channel.is_stopped():
                    raise StoppedError(f"{where} stopped")
                if schemas is not None:
                    try:
                        for rows in decoded(batches):
                            schemas.meet(self.job.routes(where), rows)
                    except BatchError as error:
                        raise unreadable(where, error) from None
                yield batches

    def _readable(self, span: Span) -> Iterator[pa.RecordBatch | BadRecord]:
        """Read the records of *span*; one that cannot be read comes without what it holds."""
        where, reader = self.unit.where, self.clients.reader
        while True:
            try:
                yield from reader.read(where, span)
            except BadRecordError as error:
                offset = error.place.get("offset")
                if offset is None:  # it says of no record that it can be left out
                    raise
                yield BadRecord(offset, error.why, do=error.do)
                span = Span(offset + 1, span.end_offset)
                if not span:
                    return
            else:
                return

    def _rows(self, span: Span, rejects: Rejects) -> Generator[Rows, None, None]:
        """Read, convert and route the records of *span*; bad ones are left out, or end it."""
        job, where, schemas = self.job, self.unit.where, self.clients.schemas
        partitioner = partitioners.by_name(job.partitioner, job.plugin_options)
        extractor = extractors.by_name(job.extractor, job.plugin_options)
        views = [Conversion.of(spec, where.topic) for spec in job.views]
        transforms = Chain(job.transforms) if job.transforms else None
        store = self.clients.store
        names = store if isinstance(store, Names) else None
        with Prefetch(
            self._readable(span), depth=1, is_last=lambda some: _end_of(some) >= span.end_offset
        ) as batches:
            for batch in batches:
                if self.channel.is_stopped():
                    raise StoppedError(f"{where} stopped")
                if isinstance(batch, BadRecord):
                    rejects.leave_out(batch)
                    continue
                converted = self._converted(batch, views, transforms)
                if schemas is not None:  # converters have asked for them: no question twice
                    schemas.meet(job.routes(where), batch)
                for some in converted:
                    now_ms, tombstones = job.clock.ms(), job.rule.tombstones
                    rows = route(
                        some, where, partitioner, extractor, now_ms,
                        affix=job.affix, tombstones=tombstones, names=names,
                    )  # fmt: skip
                    good = rows if job.errors.tolerates else rows.before_bad()
                    rejects.take(batch, good)
                    yield good
                    if good is not rows:
                        rejects.take(batch, replace(rows, left_out=(), filtered=()))

    def _converted(
        self, batch: pa.RecordBatch, views: Sequence[Conversion], transforms: Chain | None
    ) -> list[Rows]:
        """Convert *batch*; a registry's error names the record whose schema was asked for."""
        job, where, attempt = self.job, self.unit.where, 0
        failed_at: float | None = None
        while True:
            try:
                return list(
                    convert(
                        batch, views, nulls=job.nulls, compatibility=job.rule.compatibility,
                        transforms=None if transforms is None else (transforms, where),
                    )
                )  # fmt: skip
            except RegistryError as error:
                attempt += 1
                failed_at = job.clock.steady_s() if failed_at is None else failed_at
                offset = batch["offset"][error.row].as_py()
                what = f"{where} offset {offset}: {error.what}"
                waited_s, jitter = job.clock.steady_s() - failed_at, random.random()  # noqa: S311
                wait_s = job.errors.wait_s(attempt, waited_s, jitter)
                if wait_s is None:
                    raise RegistryError(
                        what, error.why, error.do,
                        **where.place, offset=offset,
                    ) from error  # fmt: skip
                _log.warning("%s: %s; again in %.1f s", what, error.why, wait_s)
                if self.channel.wait(wait_s):
                    raise StoppedError(f"{where} stopped") from error

    def _closed(self, files: Filling[Item], rejects: Rejects, next_offset: int) -> ClosedFileSet:
        """Complete the open files, once those before them are committed."""
        self.finish()
        if self.channel.is_stopped() and next_offset < self.unit.span.end_offset:
            raise StoppedError(f"{self.unit.where} stopped")  # one batch may have many file sets
        rejects.settle()
        closed = ClosedFileSet(
            tuple(files.close(Span(self._from, next_offset))),
            next_offset, self._read, rejects.before(next_offset),
        )  # fmt: skip
        self._from, self._read = next_offset, 0
        return closed

    def _store_beside(
        self, stores: Storing, closed: ClosedFileSet, *, is_last: bool = False
    ) -> None:
        """Have a file set stored, entered and committed, while what follows is read."""
        size = closed.size(self.job.spool_bytes)
        self._in_flight = stores.submit(size, self._store, stores, closed, is_last)

    def _store(self, stores: Storing, closed: ClosedFileSet, is_last: bool) -> StoredFileSet:
        """Store a file set, and settle it; the last one of a unit may wait for those of others."""
        if any(file.spec.view is not View.RECORD for file in closed.files):
            stores.check(self.unit.where, self.report.reached)
        stored = self._placing.place(self.report, closed)
        stores.add(stored)
        if not is_last or stores.is_due():
            stores.flush()
        return stored

    def _tell_open(self, files: Filling[Item]) -> None:
        """Report what is committed, and now and then what has been read but could still be lost."""
        if self.is_settled():
            self.finish()
        if self.job.clock.steady_s() - self._told >= TELL_S:
            self._tell_progress(files.records)

    def _tell_progress(self, open_records: int) -> None:
        self._told = self.job.clock.steady_s()
        self.channel.tell(self.report.progress(self.job.run, open_records))


def _end_of(some: pa.RecordBatch | BadRecord) -> int:
    """Return the offset after what was read; 0 where that is nothing."""
    if isinstance(some, BadRecord):
        return some.offset + 1
    return int(some["offset"][-1].as_py()) + 1 if len(some) else 0


def resumed(
    report: PartitionReport[OfSink],
    job: SinkJob,
    unit: SinkUnit,
    store: Store,
    position: Position | None,
) -> PartitionReport[OfSink]:
    """Return *report* with what that task has committed, which is not read again."""
    commit_metadata = SinkPosition.beside(position)
    if position is None or commit_metadata is None or commit_metadata.run != job.run:
        return report
    return replace(
        report,
        committed=max(unit.span.start_offset, position.offset),
        done=commit_metadata.done,
        own=replace(
            report.own,
            commit_metadata=commit_metadata,
            skipped=_skipped(job, unit, store, commit_metadata),
        ),
    )


def _skipped(
    job: SinkJob, unit: SinkUnit, store: Store, commit_metadata: SinkPosition
) -> tuple[Span, ...]:
    """Return what the task that this one replaces has left out; its own report is lost."""
    is_visit = unit.commit_metadata is not None and unit.commit_metadata.run == commit_metadata.run
    if is_visit or not commit_metadata.done.bad_records:
        return ()
    where = unit.where
    stream = topic_stream(store, job.layout, job.routes.topic(where.topic), job.clock)
    return joined(
        entry.span
        for entry in entries(stream.read().rows)
        if entry.kind == SKIPPED and (entry.partition, entry.run) == (where.partition, job.run)
    )[:SPANS_MOST]
