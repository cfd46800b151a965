"""One task: a partition's objects to Kafka.

Records are acknowledged, then the position is committed, by default both in one transaction; then
progress is shown.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from kbackup.channel import Line
from kbackup.errors import KbackupError
from kbackup.kafka import Outage
from kbackup.reports import OfRestore, PartitionReport
from kbackup.restore.job import RestoreJob, RestoreUnit
from kbackup.restore.pace import Pace, rate_of
from kbackup.restore.work import Work
from kbackup.runs.letters import DeadLetters
from kbackup.stores import open_store

SMALL_BYTES: Final = 2**18
"""A partition whose objects have no more is restored side by side with others of its kind."""

SIDE_BY_SIDE: Final = 8
"""How many of those: each mostly waits for the broker, which begins and ends a transaction."""


def put_back(
    job: RestoreJob, units: Sequence[RestoreUnit], line: Line
) -> Iterator[PartitionReport[OfRestore]]:
    """Work through *units*; a failure is a report, not an exception.

    Large ones go one after the other, then small ones some at a time, each by a writer of its own.

    Memory: what `merging` reads with, few batches and what the client holds unacknowledged; of
    small units their records.
    """
    store = open_store(job.store)
    rate = rate_of(job)
    pace = Pace(rate, units[0].writers) if rate.is_limited and units else None
    outage = Outage(job.kafka)

    def report(unit: RestoreUnit) -> PartitionReport[OfRestore] | None:
        if line.is_stopped():
            return None
        topic = job.error_topic
        letters = None if topic is None else DeadLetters(job.kafka, job.group, topic)
        work = Work(job, unit, store, line, pace, letters)
        try:
            outage.check()
            _write(work)
        except KbackupError as error:
            outage.note(error)
            error.place.setdefault("topic", unit.target.topic)
            error.place.setdefault("partition", unit.target.partition)
            work.report = replace(work.report, failure=error.failure())
        return work.report

    small = [unit for unit in units if unit.size <= SMALL_BYTES]
    large = [unit for unit in units if unit.size > SMALL_BYTES]
    yield from (found for unit in large if (found := report(unit)) is not None)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield from (found for found in pool.map(report, small) if found is not None)


def _write(work: "Work") -> None:
    job, unit = work.job, work.unit
    writer = job.kafka.writer(
        unit.target,
        unit.group or job.group,
        exactly_once=job.exactly_once,
        max_message_bytes=unit.max_message_bytes,
    )
    try:
        work.run(writer)
        if work.letters is not None:
            work.letters.flush()
    except BaseException:
        writer.abort()
        raise
    finally:
        writer.close()
        if work.letters is not None:
            work.letters.close()
