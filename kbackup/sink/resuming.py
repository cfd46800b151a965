"""What an earlier task of the same run has done: Spark retries a task whose worker died."""

from dataclasses import replace

from kbackup.backup.ledger import place
from kbackup.backup.ledger.rows import SKIPPED, entries
from kbackup.kafka import Position
from kbackup.records import Span, joined
from kbackup.reports import SPANS_MOST, Bookmark, LastObject, OfSink, PartitionReport
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.stores import Store


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
    job: SinkJob, unit: SinkUnit, store: Store, bookmark: Bookmark[LastObject]
) -> tuple[Span, ...]:
    """Return what the task that this one replaces has left out; its own report is lost.

    A visit of a run that follows has its predecessor's report, and needs none.
    """
    is_visit = unit.bookmark is not None and unit.bookmark.run == bookmark.run
    if is_visit or not bookmark.done.bad_records:
        return ()
    where = unit.where
    stream = place.of_topic(store, job.layout, job.routes.topic(where.topic), job.clock)
    return joined(
        entry.span
        for entry in entries(stream.read().rows)
        if entry.kind == SKIPPED and (entry.partition, entry.run) == (where.partition, job.run)
    )[:SPANS_MOST]
