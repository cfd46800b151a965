"""How the cuts of one partition become objects: under which dates, kept with what beside them.

What is to be said of a cut then, by the ledger, the group's position and the report, goes with it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kbackup.backup.ledger.objects import passed
from kbackup.backup.ledger.rows import TOMBSTONES, Entry, stored
from kbackup.channel import Line
from kbackup.events import ObjectStored
from kbackup.flow.write import ClosedFile
from kbackup.records import Facts, Span, TopicPartition, joined
from kbackup.reports import SPANS_MOST, Bookmark, LastObject, OfSink, PartitionReport
from kbackup.sink.dated import UploadDates, keep_indexed, point
from kbackup.sink.held import Again
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.keep import keep
from kbackup.sink.spans.ahead import ClosedCut
from kbackup.sink.storing import StoredCut
from kbackup.stores import Store


@dataclass(frozen=True, slots=True)
class Placed:
    """A cut that is stored, and the report that holds once it is committed."""

    cut: StoredCut
    after: PartitionReport[OfSink]


@dataclass(slots=True)
class Placing:
    """Where the objects of a partition go.

    Attributes:
        job: The run's settings.
        unit: The partition, and what the bucket holds of it.
        store: Where to.
        line: To the driver, which hears of each object.
        stored_as: The name under which the partition is stored.
        again: What of it is stored a second time.
    """

    job: SinkJob
    unit: SinkUnit
    store: Store
    line: Line
    stored_as: TopicPartition = field(init=False)
    again: Again = field(init=False)

    def __post_init__(self) -> None:
        self.stored_as = self.job.routes(self.unit.where)
        self.again = Again(self.unit.where, self.unit.held)

    def dates(self, last_key: str | None) -> Callable[[int], str] | None:
        """Return what gives files the dates of their upload, None where none have them.

        Args:
            last_key: The object that was stored last, None if there is none.
        """
        job = self.job
        if not job.layout.is_dated:
            return None
        return UploadDates(self.store, job.layout, self.stored_as, job.clock, last_key).of

    def place(self, report: PartitionReport[OfSink], closed: ClosedCut) -> Placed:
        """Store the files of a cut; it is neither entered into the ledger nor committed yet.

        Args:
            report: What holds before it.
            closed: The cut.

        Raises:
            KbackupError: As `kbackup.sink.keep.keep`.
        """
        where = self.unit.where
        ends_with: LastObject | None = None
        files, next_offset, lacks = closed.files, closed.next_offset, closed.lacks
        done = report.done
        done = replace(
            done, bytes_read=done.bytes_read + closed.read, nulls=done.nulls + lacks.nulls,
            filtered=done.filtered + lacks.filtered,
            bad_records=done.bad_records + lacks.bad_records,
        )  # fmt: skip
        now_ms = self.job.clock.ms()
        rows = lacks.entries(where, self.job.run, now_ms)
        if not files and report.reached < next_offset:
            span = Span(report.reached, next_offset)
            rows.append(passed(where, span, self.job.run, now_ms))
        mains = [file for file in files if file.is_main]
        if mains:
            end = max(file.facts.last_offset for file in mains) + 1
            held = Span(min(file.facts.first_offset for file in mains), end)
            keys = [file.key for file in mains]
            self.again.check(self.store, held, next_offset, keys)
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
                if ends_with is None or (ends_with.last_offset or 0) < facts.last_offset:
                    ends_with = LastObject(file.key, facts.last_offset, size=rows[-1].bytes)
            self.line.tell(ObjectStored(self.job.run, file.key, file.facts, file.body.size))
        stands = report.own.bookmark
        last = LastObject() if stands is None else stands.of
        if ends_with is not None:
            last, done = ends_with, replace(done, last=ends_with.last_offset)
        again_to = self.again.to(next_offset)
        last = replace(last, identity=self.unit.identity, again_to=again_to)
        bookmark = Bookmark(last, self.job.run, done, next_offset)
        position = bookmark.position(next_offset)
        cut = StoredCut(where, rows, position, self.stored_as.topic)
        skipped = joined((*report.own.skipped, *lacks.bad))[:SPANS_MOST]
        own = replace(report.own, bookmark=bookmark, skipped=skipped)
        return Placed(cut, replace(report, committed=next_offset, done=done, own=own))

    def _keep(self, file: ClosedFile) -> Facts:
        """Store a file with all that belongs beside it; return what is there now."""
        if file.index is None:
            return keep(self.store, file, self.job.layout)
        facts = keep_indexed(self.store, file, self.job.layout)
        if self.job.points:
            point(self.store, self.job.layout, self.stored_as, file.index)
        return facts

    def _row(self, file: ClosedFile, facts: Facts) -> Entry:
        """Return what the ledger is to say of a file whose object has *facts* now."""
        size = file.body.size
        if facts != file.facts:  # a longer object was there already
            head = self.store.head(file.key)
            size = size if head is None else head.size
        view = TOMBSTONES if file.is_tombstones else file.spec.view
        return stored(
            self.unit.where, file.key, view, facts, size, file.cut.span, self.job.run,
            self.job.clock.ms(),
        )  # fmt: skip
