"""One task: partitions' objects to Kafka.

Records are acknowledged, then the position is committed, by default both in one transaction; then
progress is shown.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from kbackup.channel import Line
from kbackup.errors import KbackupError
from kbackup.kafka import Outage, TakenOverError, Writer
from kbackup.records import TopicPartition
from kbackup.restore.job import RestoreJob, RestoreUnit
from kbackup.restore.pace import Pace, rate_of
from kbackup.restore.tasks.joint import Fence, Joint, JointLine, Report, Turn, by_writer, fence_of
from kbackup.restore.tasks.work import Work
from kbackup.runs.letters import DeadLetters
from kbackup.stores import Store, open_store

SMALL_BYTES: Final = 2**18
"""A partition whose objects have no more shares a writer and transactions with others of its kind,
and is restored side by side with those of other writers."""

SIDE_BY_SIDE: Final = 16
"""How many writers of those: each mostly waits for the broker, which begins and ends a transaction.
"""


def put_back(job: RestoreJob, units: Sequence[RestoreUnit], line: Line) -> Iterator[Report]:
    """Work through *units*; a failure is a report, not an exception.

    Large ones go one after the other, each by a writer of its own, then small ones: those that
    share a writer in turn, some writers at a time.  Writers that would take over from each other
    never work at the same time.

    Memory: what `merging` reads with, few batches and what the client holds unacknowledged; of
    small units their records.
    """
    rate = rate_of(job)
    pace = Pace(rate, units[0].writers) if rate.is_limited and units else None
    task = _Task(job, open_store(job.store), line, pace, Outage(job.kafka))
    small = [unit for unit in units if unit.size <= SMALL_BYTES]
    large = [unit for unit in units if unit.size > SMALL_BYTES]
    yield from (found for unit in large if (found := task.alone(unit)) is not None)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for reports in pool.map(task.together, by_writer(job, small)):
            yield from reports


@dataclass(frozen=True, slots=True)
class _Task:
    """What the units of a task share.

    Attributes:
        job: The run's settings.
        store: Where the backup is.
        line: To the driver.
        pace: How fast the task may write; None for no limit.
        outage: Whether no broker answers.
        taken: The writers that another restore has taken over.
    """

    job: RestoreJob
    store: Store
    line: Line
    pace: Pace | None
    outage: Outage
    taken: dict[Fence, TakenOverError] = field(default_factory=dict)

    def alone(self, unit: RestoreUnit) -> Report | None:
        """Restore a unit by a writer of its own; None where the run was stopped before.

        Where another restore has taken over a writer, it is at work on all partitions of that one:
        to open another would take over from it in turn.
        """
        if self.line.is_stopped():
            return None
        if (taken := self.taken.get(self._fence(unit))) is not None:
            return self._lost(unit, taken)
        topic = self.job.error_topic
        letters = None if topic is None else DeadLetters(self.job.kafka, self.job.group, topic)
        work = Work(self.job, unit, self.store, self.line, self.pace, letters)
        try:
            self.outage.check()
            _write(work)
        except KbackupError as error:
            self._failed(work, error)
        return work.report

    def together(self, units: Sequence[RestoreUnit]) -> list[Report]:
        """Restore units by one writer, and those alone that have kept others from being committed.

        Where positions are no part of a transaction, writing is slowed down, or dead letters are to
        be written before a position is committed, nothing is to wait for others.
        """
        job = self.job
        waits = job.exactly_once and self.pace is None and job.error_topic is None
        safe = self._joint(units) if waits and len(units) > 1 else {}
        left = [unit for unit in units if unit.target not in safe]
        again = [found for unit in left if (found := self.alone(unit)) is not None]
        return [*safe.values(), *again]

    def _joint(self, units: Sequence[RestoreUnit]) -> dict[TopicPartition, Report]:
        """Restore units in joint transactions, as far as nothing is in the way.

        Returns:
            What became of those that are settled, by target.
        """
        if self.line.is_stopped():
            return {}
        try:
            self.outage.check()
            writer = _writer(self.job, units[0], is_spread=True)
        except KbackupError as error:  # each unit alone says why it cannot be restored
            self._note(units[0], error)
            return {}
        joint = Joint(writer, self.line)
        try:
            for unit in joint.begin(units):
                if self.line.is_stopped():
                    break
                work = Work(self.job, unit, self.store, JointLine(joint, self.line))
                try:
                    work.run(Turn(joint, unit.target))
                except KbackupError as error:
                    if joint.is_dirty:
                        raise
                    self._failed(work, error)
                joint.end(unit.target, work.report)
            joint.settle()
        except KbackupError as error:  # nothing of the open transaction is visible
            self._note(units[0], error)
        finally:
            writer.abort()
            writer.close()
        return joint.settled

    def _lost(self, unit: RestoreUnit, error: TakenOverError) -> Report:
        """Return what there is to report of a unit that another restore has taken over."""
        work = Work(self.job, unit, self.store, self.line)
        own = TakenOverError(f"{unit.target}: writing records", error.why, error.do)
        self._failed(work, own)
        return work.report

    def _failed(self, work: Work, error: KbackupError) -> None:
        self._note(work.unit, error)
        error.place.setdefault("topic", work.unit.target.topic)
        error.place.setdefault("partition", work.unit.target.partition)
        work.report = replace(work.report, failure=error.failure())

    def _note(self, unit: RestoreUnit, error: KbackupError) -> None:
        """Remember what an error means for units that are still to come."""
        if isinstance(error, TakenOverError):
            self.taken[self._fence(unit)] = error
        else:
            self.outage.note(error)

    def _fence(self, unit: RestoreUnit) -> Fence:
        return fence_of(self.job, unit)


def _write(work: Work) -> None:
    writer = _writer(work.job, work.unit, is_spread=len(work.unit.lanes) > 1)
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


def _writer(job: RestoreJob, unit: RestoreUnit, *, is_spread: bool) -> Writer:
    return job.kafka.writer(
        unit.target,
        unit.group or job.group,
        exactly_once=job.exactly_once,
        max_message_bytes=unit.max_message_bytes,
        is_spread=is_spread,
    )
