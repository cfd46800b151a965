"""What is written together and not committed yet, and how fast.

A transaction costs the broker and the client as much for one partition as for many.  So units whose
writers would take over from each other take turns with one writer, and what they commit waits until
all of it is committed together.

The limits of a run are shared out equally to the tasks that work at the same time, so all of them
together stay below.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from time import monotonic
from typing import Final, Protocol

import pyarrow as pa

from kbackup.errors import RefusedError
from kbackup.events import Plain
from kbackup.kafka import Position, Writer
from kbackup.records import TopicPartition
from kbackup.restore.job import RestoreJob, RestoreUnit
from kbackup.restore.resume import Ids, check_ids, noted_ids
from kbackup.runs.position import NOTHING, Cursor, Done, Lane, RestorePosition
from kbackup.runs.report import OfRestore, PartitionReport
from kbackup.spark.channel import Line
from kbackup.spark.engine import TaskOptions, deal

Report = PartitionReport[OfRestore]


Fence = tuple[str, TopicPartition]
"""What writers share that take over from each other: a group, and what stands for partitions."""


JOINT_BYTES: Final = 8 * 2**20
"""A joint transaction is committed once it has so much, by the size in memory."""


JOINT_S: Final = 10.0
"""Or once it is open for so long: far from the five minutes that end it."""


def fence_of(job: RestoreJob, unit: RestoreUnit) -> Fence:
    """Return what a unit's writer is taken over by."""
    return unit.group or job.group, job.kafka.fence(unit.target)


def by_writer(job: RestoreJob, units: Sequence[RestoreUnit]) -> list[list[RestoreUnit]]:
    """Return the units, those together of which only one at a time can have a writer."""
    found: dict[Fence, list[RestoreUnit]] = {}
    for unit in units:
        found.setdefault(fence_of(job, unit), []).append(unit)
    return list(found.values())


def dealt_by_writer(
    job: RestoreJob, units: Sequence[RestoreUnit], slots: int
) -> list[list[RestoreUnit]]:
    """Deal units out to tasks; each writer is one task's."""
    together = by_writer(job, units)
    together.sort(key=lambda share: sum(unit.size for unit in share), reverse=True)
    return [[unit for share in dealt for unit in share] for dealt in deal(together, slots)]


class UnitWriter(Protocol):
    """What a unit needs of a `Writer`: its own, or what it shares with others."""

    @property
    def record_bytes_max(self) -> int:
        """Size of the largest record that is taken."""
        ...

    def position(self, where: TopicPartition) -> Position | None:
        """Return the group's committed position."""
        ...

    def write(self, batch: pa.RecordBatch, where: TopicPartition) -> int:
        """Send records in order; return how many timestamps were changed."""
        ...

    def commit(
        self, position: Position, others: Mapping[TopicPartition, Position], where: TopicPartition
    ) -> None:
        """Have what was written become visible with a position, and with others."""
        ...


class Joint:
    """What several units have written by one writer, and what they would commit.

    Args:
        writer: Writes to all of their partitions.
        line: To the driver, which hears of nothing that is not safe.

    Attributes:
        is_dirty: Nothing can be settled: records were written that no unit has committed, or what
            was written could not be committed.
        settled: What became of units all of whose commits the cluster has, by target.
    """

    def __init__(self, writer: Writer, line: Line) -> None:
        self.writer, self.is_dirty = writer, False
        self._found: dict[TopicPartition, Position | None] = {}
        self._line = line
        self._positions: dict[TopicPartition, Position] = {}
        self._written: set[TopicPartition] = set()
        self._events: list[Plain] = []
        self._ended: dict[TopicPartition, Report] = {}
        self.settled: dict[TopicPartition, Report] = {}
        self._bytes, self._begun = 0, 0.0

    @property
    def record_bytes_max(self) -> int:
        """Size of the largest record that the writer takes."""
        return self.writer.record_bytes_max

    @property
    def is_full(self) -> bool:
        """Whether what was committed should not wait any longer."""
        is_late = bool(self._bytes) and monotonic() - self._begun >= JOINT_S
        return self._bytes >= JOINT_BYTES or is_late

    def begin(self, units: Sequence[RestoreUnit]) -> list[RestoreUnit]:
        """Commit the beginnings of all units; return the units as they are then.

        A restore that is killed leaves records of a transaction that was open.  A partition with
        such records and without a position would be one that others have written to.
        """
        targets = [lane.target for unit in units for lane in unit.lanes]
        self._found = {**self.writer.positions(targets)}
        begun = []
        for unit in units:
            is_new = unit.begins and all(
                self.position(lane.target) == lane.committed for lane in unit.lanes
            )
            if is_new:
                self._positions |= unit.positions()
            begun.append(unit.begun() if is_new else unit)
        self._found |= self._positions
        self.settle()
        return begun

    def position(self, where: TopicPartition) -> Position | None:
        """Return the group's position, as it was when all units had begun."""
        return self._found[where] if where in self._found else self.writer.position(where)

    def write(self, batch: pa.RecordBatch, where: TopicPartition) -> int:
        """Write records of a unit."""
        if where in self._positions and where in self._written and not self.is_dirty:
            self.settle()  # a unit counts its transactions, by what they leave in the log
        if not self._bytes:
            self._begun = monotonic()
        self.is_dirty = True
        self._written.add(where)
        self._bytes += batch.nbytes
        return self.writer.write(batch, where)

    def commit(
        self, position: Position, others: Mapping[TopicPartition, Position], where: TopicPartition
    ) -> None:
        """Take in what a unit commits; it waits no longer where it is enough already.

        Raises:
            KafkaError: If the cluster refused; nothing of it is visible.
        """
        self._positions |= {where: position, **others}
        self.is_dirty = False
        if self.is_full:
            self.settle()

    def tell(self, event: Plain) -> None:
        """Take in what a unit reports; the driver hears of it with the next commit."""
        self._events.append(event)

    def end(self, target: TopicPartition, report: Report) -> None:
        """Take in what became of a unit; it is true once all that it commits is committed.

        Raises:
            KafkaError: If the cluster refused; nothing that waited is visible.
        """
        self._ended[target] = report
        if self.is_full or not self._positions:
            self.settle()

    def settle(self) -> None:
        """Commit what all units have committed.

        Raises:
            KafkaError: If the cluster refused; nothing of it is visible.
        """
        if self._positions:
            (where, position), *others = self._positions.items()
            self.is_dirty = True
            self.writer.commit(position, dict(others), where)
            self.is_dirty = False
        for event in self._events:
            self._line.tell(event)
        self.settled |= self._ended
        self._positions, self._events, self._ended = {}, [], {}
        self._written, self._bytes = set(), 0


class JointLine(Line):
    """A unit's line to the driver; what it says waits for the joint transaction."""

    def __init__(self, joint: Joint, line: Line) -> None:
        super().__init__(None)
        self._joint, self._line = joint, line

    def tell(self, event: Plain) -> None:
        """Send *event* once it is true."""
        self._joint.tell(event)

    def is_stopped(self) -> bool:
        """Whether the task should end at its next safe point."""
        return self._line.is_stopped()


TRANSACTION_RECORDS: Final = 500_000


TRANSACTION_BYTES: Final = 64 * 2**20
"""A transaction ends after this many records or bytes: what a kill makes a rerun write again."""


FIRST_BYTES: Final = 8 * 2**20
"""What the first transaction has.  The next ones grow while the cluster is quick, and shrink where
it is slow: one that outlasts the producer's timeout of five minutes is lost, and would be again."""


QUICK_S: Final = 10.0


SLOW_S: Final = 60.0
"""A transaction that takes less, or more, is followed by a larger, or a smaller one."""


_FACTOR: Final = 4


_LEAST_BYTES: Final = 2**18


@dataclass(slots=True)
class Transaction:
    """What has been done and is not committed yet.

    Attributes:
        done: What the run has done, with what is not committed; but for its records.
        cursor: Where a commit would leave the restore.
        passed: Full records of the backup since the last commit; None: not known.
        records: Records sent since the last commit.
        sent: Of these, how many to each partition.
        bytes: Their size in memory.
        begun: Clock of the first of them.
    """

    done: Done
    cursor: Cursor
    passed: int | None = 0
    records: int = 0
    sent: dict[TopicPartition, int] = field(default_factory=dict)
    bytes: int = 0
    begun: float = 0.0

    def count(self, **more: int) -> None:
        """Add to what has been done."""
        self.done = replace(self.done, **{n: getattr(self.done, n) + by for n, by in more.items()})

    def is_full(self, limit_bytes: int, *, waits: bool) -> bool:
        """Whether to commit it; one that *waits* for its turn to write is not open for long."""
        is_late = waits and monotonic() - self.begun >= OPEN_S
        is_large = self.records >= TRANSACTION_RECORDS or self.bytes >= limit_bytes
        return is_large or (is_late and self.records > 0)

    def send(self, where: TopicPartition, records: int) -> None:
        """Note records that were sent to a partition."""
        self.sent[where] = self.sent.get(where, 0) + records

    def take(self, batch: pa.RecordBatch, cursor: Cursor, *, passed: int) -> None:
        """Take in records that were sent, which lead to *cursor*."""
        self.cursor = cursor
        self.passed = None if self.passed is None else self.passed + passed
        self.records += len(batch)
        self.bytes += batch.nbytes
        if len(batch):
            first, last = (batch["offset"][at].as_py() for at in (0, len(batch) - 1))
            begun = first if self.done.first is None else self.done.first
            self.done = replace(self.done, first=begun, last=last)


def next_limit(limit: int, seconds: float) -> int:
    """Return how many bytes the transaction has that follows one of *limit* bytes."""
    if seconds > SLOW_S:
        return max(_LEAST_BYTES, limit // _FACTOR)
    return min(TRANSACTION_BYTES, limit * _FACTOR) if seconds < QUICK_S else limit


class Committed:
    """What the last commit of a unit says.

    Args:
        job: The run's settings.
        unit: Whose it is; it begins as it was planned.

    Attributes:
        position: Where the restore stands.
        lanes: The partitions that it writes to, in order.
    """

    def __init__(self, job: RestoreJob, unit: RestoreUnit) -> None:
        self._job, self._unit = job, unit
        self.position, self.lanes = unit.position, unit.lanes

    @property
    def is_ours(self) -> bool:
        """Whether it was this run that committed it."""
        return self.position.run == self._job.committer

    def check_ids(self) -> None:
        """Check that the rest gets the ids of what is restored.

        Raises:
            RefusedError: If it does not: another Schema Registry is given than before.
        """
        check_ids(self.position, self._ids)

    def catch_up(self, writer: UnitWriter, found: Position | None) -> Done:
        """Take what was committed since the run was planned.

        Args:
            writer: Knows the positions.
            found: The one in the unit's target.

        Returns:
            What of it this run has done, in a task that died.

        Raises:
            RefusedError: If that is not of this restore.
        """
        moved: list[tuple[RestorePosition, Lane]] = []
        for lane in self.lanes:
            now = found if lane.target == self._unit.target else writer.position(lane.target)
            read = None if now is None else RestorePosition.read(lane.target, now)
            if read is None or not self._is_followed(lane, *read):
                group = self._unit.group or self._job.group
                raise RefusedError(
                    f"the position of group {group} in {lane.target} has been moved",
                    "another restore or another tool moved it while this run was starting",
                    "let one restore at a time write to a topic, then run the command again",
                )
            moved.append(read)
        self.position, self.lanes = moved[0][0], tuple(lane for _, lane in moved)
        if not self.is_ours:
            self.lanes = tuple(replace(lane, records=0, commits=0) for lane in self.lanes)
            return NOTHING
        return replace(
            self.position.done,
            records=sum(lane.records for lane in self.lanes),
            commits=sum(lane.commits for lane in self.lanes),
        )

    def _is_followed(self, lane: Lane, position: RestorePosition, now: Lane) -> bool:
        """Whether what is committed in *lane* now is of the same restore into the same log."""
        is_same_log = now.log.start_offset == lane.log.start_offset
        return is_same_log and position.follows(self.position)

    def commit(self, writer: UnitWriter, opened: Transaction | None = None) -> None:
        """Have the cluster keep it, with what was written.

        Args:
            writer: Commits.
            opened: What was written; None where only the beginning is committed.

        Raises:
            KafkaError: If the cluster refused.
        """
        if opened is not None:
            self._move(opened)
        where = self._unit.target
        positions = {lane.target: self.position.position(lane) for lane in self.lanes}
        writer.commit(positions.pop(where), positions, where)

    def _move(self, opened: Transaction) -> None:
        """Go on to where *opened* leads."""
        total, passed = self.position.total, opened.passed
        self.position = replace(
            self.position,
            cursor=opened.cursor,
            total=None if total is None or passed is None else total + passed,
            ids=noted_ids(self.position, self._ids),
            run=self._job.committer,
            done=opened.done,
        )
        self.lanes = tuple(
            lane.wrote(opened.sent.get(lane.target, 0), leaves_marker=self._job.exactly_once)
            for lane in self.lanes
        )

    @property
    def _ids(self) -> Ids | None:
        """The ids of the topic's schemas in the target; None where no registry is given."""
        return self._job.schema_ids.get(self._unit.source.topic)


OPEN_S: Final = 30.0
"""How long a transaction stays open that has to wait: far from the five minutes that end it."""


_NAP_S: Final = 0.5
"""How long one wait lasts until a stop is looked for."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How much may be written in a second.

    Attributes:
        records: At most so many; None for no limit.
        bytes: At most so many, as records take in memory; None for no limit.
    """

    records: int | None = None
    bytes: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.records is not None or self.bytes is not None

    def seconds(self, records: int, size: int) -> float:
        """Return how long so many records, of *size* bytes, take at least."""
        by_records = 0.0 if self.records is None else records / self.records
        return max(by_records, 0.0 if self.bytes is None else size / self.bytes)


@dataclass(slots=True)
class Pace:
    """One task's share of a rate; safe to use from several threads at once.

    Attributes:
        rate: The rate of the run.
        writers: How many tasks share it.
        steady_s: The monotonic clock.
        sleep: Waits so many seconds.
    """

    rate: Rate
    writers: int = 1
    steady_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _free_s: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def rows(self, records: int, size: int) -> int:
        """Return how many rows of a batch to write at once: those of about a second, one at least.

        Args:
            records: Rows of the batch.
            size: Its bytes.
        """
        seconds = self.rate.seconds(records, size) * self.writers
        return records if seconds <= 1 else max(1, int(records / seconds))

    def due_s(self) -> float:
        """Return in how many seconds the next records may be written."""
        return max(0.0, self._free_s - self.steady_s())

    def wait(self, records: int, size: int, is_stopped: Callable[[], bool]) -> None:
        """Wait until these records may be written, or until asked to stop."""
        with self._lock:
            begins = max(self._free_s, self.steady_s())
            self._free_s = begins + self.rate.seconds(records, size) * self.writers
        while (left := begins - self.steady_s()) > 0 and not is_stopped():
            self.sleep(min(left, _NAP_S))


def rate_of(job: RestoreJob) -> Rate:
    """Return the rate that a run is limited to."""
    return Rate(job.max_records_per_second, job.max_bytes_per_second)


def manner(job: RestoreJob) -> TaskOptions:
    """Return how the tasks of a restore are run: with a limit as many as work at the same time."""
    dealt = partial(dealt_by_writer, job)
    if not rate_of(job).is_limited:
        return TaskOptions(deal=dealt)
    return TaskOptions(deal=lambda units, slots: shared(dealt(units, slots)), slices_per_core=1)


def shared(shares: Sequence[Sequence[RestoreUnit]]) -> list[list[RestoreUnit]]:
    """Tell the units of tasks that work at the same time how many these are."""
    return [[replace(unit, writers=len(shares)) for unit in share] for share in shares]
