"""Small partitions that share a writer, and a transaction.

A transaction costs the broker and the client as much for one partition as for many.  So units whose
writers would take over from each other take turns with one writer, and what they commit waits until
all of it is committed together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

import pyarrow as pa

from kbackup.channel import Line
from kbackup.engine import deal
from kbackup.events import Plain
from kbackup.kafka import NO_OTHERS, Position, Writer
from kbackup.records import TopicPartition
from kbackup.reports import OfRestore, PartitionReport
from kbackup.restore.job import RestoreJob, RestoreUnit

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
                self._positions |= {lane.target: lane.position() for lane in unit.lanes}
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

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Take in what a unit commits; it waits no longer where it is enough already.

        Raises:
            KafkaError: If the cluster refused; nothing of it is visible.
        """
        self._positions |= positions
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


@dataclass(slots=True)
class Turn:
    """One unit's writer: a `Writer` whose commits wait in the joint transaction."""

    joint: Joint
    target: TopicPartition
    record_bytes_max: int = field(init=False)

    def __post_init__(self) -> None:
        self.record_bytes_max = self.joint.writer.record_bytes_max

    def position(self, where: TopicPartition | None = None) -> Position | None:
        """Return the group's committed position, as it was when all units had begun."""
        return self.joint.position(where or self.target)

    def positions(
        self, wheres: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Position | None]:
        """Return committed positions, as they were when all units had begun."""
        return {where: self.joint.position(where) for where in wheres}

    def write(self, batch: pa.RecordBatch, where: TopicPartition | None = None) -> int:
        """Send the records of *batch* in order."""
        return self.joint.write(batch, where or self.target)

    def commit(
        self,
        position: Position,
        others: Mapping[TopicPartition, Position] = NO_OTHERS,
        where: TopicPartition | None = None,
    ) -> None:
        """Have everything written so far become visible when the joint transaction does."""
        self.joint.commit({where or self.target: position, **others})

    def flush(self) -> None:
        """Wait until the cluster has acknowledged everything written."""
        self.joint.writer.flush()

    def abort(self) -> None:
        """Leave it to whoever has the joint transaction."""

    def close(self) -> None:
        """Leave it to whoever has the joint transaction."""


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
