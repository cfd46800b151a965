"""One task: a partition's records from Kafka to objects.

Read, convert, route, cut, write, store, enter, commit: the objects of a cut are complete, then they
are in the ledger, then the group's offset is committed, then progress is reported.  The upload of
one cut runs while the next one fills, of the same partition or the next; a partition's commits stay
in order.
"""

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

from kbackup.errors import KbackupError
from kbackup.kafka import Outage
from kbackup.runs.report import OfSink, PartitionReport
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.spans.scheduler import SpanWorker
from kbackup.sink.spans.worker import back_up_spans
from kbackup.sink.storing import connect, storing
from kbackup.sink.work import SinkPartitionTask
from kbackup.spark.channel import Line

_log: Final = logging.getLogger(__name__)


def back_up(
    job: SinkJob, units: Sequence[SinkUnit | SpanWorker], line: Line
) -> Iterator[PartitionReport[OfSink]]:
    """Work through *units* one after the other; a failure is a report, not an exception.

    A seat is a way to others: the driver hands them out, and hears what becomes of them.

    The last cut of a unit is stored and committed beside the units that follow.

    Memory: one reader, one open cut and as much again being stored, whatever the number of units.
    """
    for seat in units:
        if isinstance(seat, SpanWorker):
            back_up_spans(job, seat, line)
    yield from _whole(job, [unit for unit in units if isinstance(unit, SinkUnit)], line)


def _whole(
    job: SinkJob, units: Sequence[SinkUnit], line: Line
) -> Iterator[PartitionReport[OfSink]]:
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
