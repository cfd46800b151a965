"""Write records together with the position that covers them, within the limits of speed.

A position says where the restore stands, what this run has written, and which ids the schemas have.
Restored records have the ids of the registry that was given then.  With another registry, the rest
would get other ids, and nobody could read both.  Each position holds some of the ids, because the
URL of a registry says little: it may change, and a registry may be set up anew under the same one.

A transaction costs the broker and the client as much for one partition as for many.  So units whose
writers would take over from each other take turns with one writer, and what they commit waits until
all of it is committed together.

The limits of a run are shared out equally to the tasks that work at the same time, so all of them
together stay below.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from time import monotonic
from typing import Final

import pyarrow as pa

from kbackup.batches import Batches
from kbackup.catalog.translated import TranslatedEntry, Translation, TranslationLog
from kbackup.errors import KbackupError, RefusedError
from kbackup.events import Plain
from kbackup.kafka import Position, TargetWriter, WritesBatches
from kbackup.records import Span, TopicPartition, batch_bytes
from kbackup.restore.job import RestoreJob, RestoreUnit, spread
from kbackup.runs.dead_letters import DeadLetters
from kbackup.runs.position import NOTHING, Cursor, Done, Lane, RestorePosition
from kbackup.runs.report import OfRestore, PartitionReport
from kbackup.spark.channel import TaskChannel
from kbackup.spark.engine import TaskOptions, deal

Report = PartitionReport[OfRestore]

Ids = Mapping[str, Mapping[int, int]]
"""By part, "key" or "value": the id in the target of each of the backup's."""

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

OPEN_S: Final = 30.0
"""How long a transaction stays open that has to wait: far from the five minutes that end it."""


def next_limit(limit: int, seconds: float) -> int:
    """Return how many bytes the transaction has that follows one of *limit* bytes."""
    if seconds > SLOW_S:
        return max(_LEAST_BYTES, limit // _FACTOR)
    return min(TRANSACTION_BYTES, limit * _FACTOR) if seconds < QUICK_S else limit


Made = Callable[[Callable[[TopicPartition], Span | None]], Mapping[TopicPartition, Position]]
"""Makes a unit's positions, by target, once all is acknowledged: of `TargetWriter.written`."""


_log: Final = logging.getLogger(__name__)


class PartitionWriter:
    """Writes the records of one unit, and commits its position with them.

    Args:
        writer: One of its own, or the unit's turn with one.
        log: Takes the translation rows that a position has no room for.

    Attributes:
        position: Where the restore stands, as it is committed.
        lanes: The partitions that are written to, in order, with what is committed in each.
        done: What the run has done, with what is not committed; but for its records.
        cursor: Where a commit would leave the restore.
        passed: Full records of the backup since the last commit; None: not known.
        begun: Clock of the first record since then.
    """

    def __init__(
        self,
        job: RestoreJob,
        unit: RestoreUnit,
        writer: "TargetWriter | SharedWriter",
        letters: DeadLetters | None,
        log: TranslationLog,
    ) -> None:
        self._job, self._unit, self._writer, self._letters = job, unit, writer, letters
        self._log = log
        # of what is sent: the offsets in the backup, None where not all have one of their own
        self._source: Span | None = None
        self._uncommitted: tuple[Span, int] | None = None  # the same, and how many records
        self.position, self.lanes = unit.position, unit.lanes
        self.done, self.cursor = NOTHING, unit.position.cursor
        self.passed: int | None = 0
        self.begun = 0.0
        self._sent: dict[TopicPartition, int] = {}
        self._bytes, self._limit_bytes = 0, FIRST_BYTES

    @property
    def records(self) -> int:
        """How many were sent since the last commit."""
        return sum(self._sent.values())

    @property
    def is_ours(self) -> bool:
        """Whether it was this run that committed the position."""
        return self.position.run == self._job.committer

    def begin(self) -> bool:
        """Begin, or take what was committed since the run was planned; return whether any was.

        Spark tries a task again whose worker died.  What that one committed counts as done.  A run
        that was killed may have left a commit that was completed only now, and another restore may
        have been at work until this one's writer fenced it: this one continues after them.

        Raises:
            RefusedError: If someone else has moved the position since.
        """
        found = self._writer.position(self._unit.target)
        if found != self._unit.committed:
            self._catch_up(found)
            return True
        if self._unit.begins:
            self._commit()
        return False

    def _catch_up(self, found: Position | None) -> None:
        moved: list[tuple[RestorePosition, Lane]] = []
        for lane in self.lanes:
            is_first = lane.target == self._unit.target
            now = found if is_first else self._writer.position(lane.target)
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
        self.cursor = self.position.cursor
        if not self.is_ours:
            self.lanes = tuple(replace(lane, records=0, commits=0) for lane in self.lanes)
            return
        self.done = replace(
            self.position.done,
            records=sum(lane.records for lane in self.lanes),
            commits=sum(lane.commits for lane in self.lanes),
        )

    def _is_followed(self, lane: Lane, position: RestorePosition, now: Lane) -> bool:
        """Whether what is committed in *lane* now is of the same restore into the same log."""
        is_same_log = now.log.start_offset == lane.log.start_offset
        return is_same_log and position.follows(self.position)

    def check_ids(self) -> None:
        """Check that the rest gets the ids of what is restored, by the same Schema Registry."""
        now, before = self._ids or {}, self.position.ids
        if before is None:  # no registry was given: records have the ids of the backup
            has_written = self.position.total is None or self.position.total > 0
            before = tuple(
                (part, old, old) for part, known in now.items() for old in known if has_written
            )
        for part, old, then in before:
            new = now.get(part, _NO_SCHEMAS).get(old, old)
            if new != then:
                where = self._unit.source
                raise RefusedError(
                    f"{where}: schema {old} of the {part}s would get another id than before",
                    f"it is {then} in the records that are restored, and would be {new} in the "
                    "rest",
                    "give --schema-registry-url as when this restore began, and not if it was not "
                    "given then; or restore into a new topic with --rename",
                    **where.place,
                )

    def count(self, **more: int) -> None:
        """Add to what has been done."""
        self.done += Done(**more)

    def write(self, batch: pa.RecordBatch, cursor: Cursor, *, passed: int) -> None:
        """Send records, ``records.SCHEMA``, to their partitions; there may be none.

        Args:
            cursor: Where the restore is once they are committed.
            passed: Full records of the backup that they come from.
        """
        targets = [lane.target for lane in self.lanes]
        parts = spread(batch, targets) if len(targets) > 1 else [(targets[0], batch)]
        is_first = not self.records
        for at, part in parts if len(batch) else ():
            if not self.records:
                self.begun = monotonic()
            zeros = self._writer.write(part, at)
            self.count(zero_timestamps=zeros, bytes_written=batch_bytes(part))
            self._sent[at] = self._sent.get(at, 0) + len(part)
        span = None
        if len(batch):
            offsets = batch["offset"]
            span = Span(offsets[0].as_py(), offsets[len(batch) - 1].as_py() + 1)
        self._note(cursor, batch.nbytes, passed, span, is_first=is_first)

    def write_batches(self, batches: Batches, cursor: Cursor) -> None:
        """Send full records in the batches that they are stored in, to the only partition."""
        target, records, is_first = self._unit.target, batches.records, not self.records
        if is_first:
            self.begun = monotonic()
        assert isinstance(self._writer, WritesBatches)  # noqa: S101  (whoever calls has asked)
        self._writer.write_batches(batches, target)
        self.count(as_stored=batches.bytes, bytes_written=batches.bytes)
        self._sent[target] = self._sent.get(target, 0) + records
        span = Span(batches.first_offset, batches.next_offset)
        self._note(cursor, batches.bytes, records, span, is_first=is_first)

    def _note(
        self, cursor: Cursor, size: int, passed: int, span: Span | None, *, is_first: bool
    ) -> None:
        """Note what was sent: of which offsets in the backup, and whether as the first of all."""
        self.cursor, self._bytes = cursor, self._bytes + size
        self.passed = None if self.passed is None else self.passed + passed
        if span is None:
            return
        begun = span.start_offset if self.done.first is None else self.done.first
        self.done = replace(self.done, first=begun, last=span.end_offset - 1)
        start = span if is_first or self._source is None else self._source
        is_known = passed and (is_first or self._source is not None)
        self._source = Span(start.start_offset, span.end_offset) if is_known else None

    def is_full(self, *, waits: bool) -> bool:
        """Whether to commit; what *waits* for its turn to be written is not open for long."""
        is_large = self.records >= TRANSACTION_RECORDS or self._bytes >= self._limit_bytes
        return is_large or (waits and self.is_late(0.0))

    def is_late(self, more_s: float) -> bool:
        """Whether what is written would be open for too long after so many seconds."""
        return self.records > 0 and monotonic() - self.begun + more_s >= OPEN_S

    def commit(self) -> None:
        """Make all that was written safe, and the position after it."""
        records = self.records
        if records or self.cursor.reached != self.position.cursor.reached:
            self.count(commits=len(self._sent), records=records)
            total = self.position.total
            self.position = replace(
                self.position,
                cursor=self.cursor,
                total=None if total is None or self.passed is None else total + self.passed,
                ids=_noted_ids(self.position, self._ids),
                run=self._job.committer,
                done=self.done,
            )
            self.lanes = tuple(
                lane.wrote(self._sent.get(lane.target, 0), leaves_marker=self._job.exactly_once)
                for lane in self.lanes
            )
            if records and self._source is not None:
                self._uncommitted = self._source, records
            self._commit()
        if records:
            self._limit_bytes = next_limit(self._limit_bytes, monotonic() - self.begun)
        self._sent, self._bytes = {}, 0
        self.passed = None if self.passed is None else 0

    def _commit(self) -> None:
        if self._letters is not None:
            self._letters.flush()  # what is left out is safe before the position after it
        targets = [lane.target for lane in self.lanes]
        if isinstance(self._writer, SharedWriter):
            self._writer.commit(targets, self._made)
            return
        self._writer.flush()
        positions = dict(self._made(self._writer.written))
        self._writer.commit(positions.pop(targets[0]), positions, targets[0])

    def _made(
        self, written: Callable[[TopicPartition], Span | None]
    ) -> Mapping[TopicPartition, Position]:
        """Return what to commit in each of the partitions, with what was written there."""
        if self._unit.is_translated:
            self._translate(written(self._unit.target))
        return {lane.target: self.position.position(lane) for lane in self.lanes}

    def _translate(self, target: Span | None) -> None:
        """Note which offsets of the target have those that were written."""
        uncommitted, self._uncommitted = self._uncommitted, None
        if uncommitted is None or target is None:
            return
        source, records = uncommitted
        row = Translation(
            source.start_offset, source.end_offset - 1, records,
            target.start_offset, target.end_offset - 1,
        )  # fmt: skip
        before = self.position
        self.position = replace(before, translated=(*before.translated, row))
        if not self.position.has_room(self.lanes[0]):
            # it is committed, so it is true; a kill in between stores it twice, which counts once
            self._keep(before)
            self.position = replace(before, translated=(row,))
            if not self.position.has_room(self.lanes[0]):
                self.position = replace(before, translated=())

    def _keep(self, position: RestorePosition) -> None:
        """Store rows that are committed; without them they are counted where they are needed."""
        target = self._unit.target
        try:
            self._log.append(target.topic, translated(target, position))
        except KbackupError as error:  # a bucket may be read-only
            _log.info("translation rows of %s are not stored: %s", target, error)

    @property
    def _ids(self) -> Ids | None:
        """The ids of the topic's schemas in the target; None where no registry is given."""
        return self._job.schema_ids.get(self._unit.source.topic)


def translated(target: TopicPartition, position: RestorePosition) -> list[TranslatedEntry]:
    """Return the translation rows of a position as they are stored."""
    source = position.source.where
    return [
        TranslatedEntry(
            target.partition, position.target_id, source.topic, source.partition,
            row.first, row.last, row.records, row.target_first, row.target_last, position.run,
        )
        for row in position.translated
    ]  # fmt: skip


_HALF: Final = 8
"""Ids that a position holds of the lowest, and of the highest; a broker takes 4,096 bytes."""

_NO_SCHEMAS: Final[Mapping[int, int]] = {}


def _noted_ids(
    position: RestorePosition, ids: Ids | None
) -> tuple[tuple[str, int, int], ...] | None:
    """Return a position's `RestorePosition.ids` after a commit with *ids*; it keeps what it has."""
    if position.ids or ids is None:
        return position.ids
    every = sorted((part, old, new) for part, known in ids.items() for old, new in known.items())
    return tuple(every if len(every) <= 2 * _HALF else every[:_HALF] + every[-_HALF:])


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


class SharedWriter(TaskChannel):
    """What several units have written by one writer, and what they would commit and report.

    Attributes:
        is_dirty: Nothing can be settled: records were written that no unit has committed, or what
            was written could not be committed.
        settled: What became of units all of whose commits the cluster has, by target.
    """

    def __init__(self, writer: TargetWriter, channel: TaskChannel) -> None:
        super().__init__(None)
        self.writer, self.is_dirty = writer, False
        self._found: dict[TopicPartition, Position | None] = {}
        self._channel = channel
        self._positions: dict[TopicPartition, Position] = {}
        self._made: dict[TopicPartition, Made] = {}  # by the first partition of a unit
        self._committed: set[TopicPartition] = set()
        self._written: set[TopicPartition] = set()
        self._events: list[Plain] = []
        self._ended: dict[TopicPartition, Report] = {}
        self.settled: dict[TopicPartition, Report] = {}
        self._bytes, self._begun = 0, 0.0

    @property
    def record_bytes_max(self) -> int:
        """Size of the largest record that is taken; batches are not: small units go by records."""
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
        if where in self._committed and where in self._written and not self.is_dirty:
            self.settle()  # a unit counts its transactions, by what they leave in the log
        if not self._bytes:
            self._begun = monotonic()
        self.is_dirty = True
        self._written.add(where)
        self._bytes += batch.nbytes
        return self.writer.write(batch, where)

    def commit(self, targets: Sequence[TopicPartition], made: Made) -> None:
        """Take in what a unit commits; it waits no longer where it is enough already."""
        self._made[targets[0]] = made
        self._committed |= {*targets}
        self.is_dirty = False
        if self.is_full:
            self.settle()

    def tell(self, event: Plain) -> None:
        """Take in what a unit reports; the driver hears of it with the next commit."""
        self._events.append(event)

    def is_stopped(self) -> bool:
        """Whether the task should end at its next safe point."""
        return self._channel.is_stopped()

    def end(self, target: TopicPartition, report: Report) -> None:
        """Take in what became of a unit; it is true once all that it commits is committed."""
        self._ended[target] = report
        if self.is_full or not self._made:
            self.settle()

    def settle(self) -> None:
        """Commit what all units have committed; if the cluster refuses, none of it is visible."""
        if self._positions or self._made:
            self.is_dirty = True
            self.writer.flush()
            for made in self._made.values():
                self._positions |= made(self.writer.written)
            (where, position), *others = self._positions.items()
            self.writer.commit(position, dict(others), where)
            self.is_dirty = False
        for event in self._events:
            self._channel.tell(event)
        self.settled |= self._ended
        self._positions, self._made, self._events, self._ended = {}, {}, [], {}
        self._committed, self._written, self._bytes = set(), set(), 0


_NAP_S: Final = 0.5
"""How long one wait lasts until a stop is looked for."""


@dataclass(slots=True)
class RateLimit:
    """One task's share of what may be written in a second; safe from several threads at once.

    Of *records* and *bytes*, as they are in memory, None is no limit.
    """

    records: int | None = None
    bytes: int | None = None
    writers: int = 1
    steady_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _free_s: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def rows(self, records: int, size: int) -> int:
        """Return how many rows to write at once: those of about a second, one at least."""
        seconds = self._seconds(records, size)
        return records if seconds <= 1 else max(1, int(records / seconds))

    def due_s(self) -> float:
        """Return in how many seconds the next records may be written."""
        return max(0.0, self._free_s - self.steady_s())

    def wait(self, records: int, size: int, is_stopped: Callable[[], bool]) -> None:
        """Wait until these records may be written, or until asked to stop."""
        with self._lock:
            begins = max(self._free_s, self.steady_s())
            self._free_s = begins + self._seconds(records, size)
        while (left := begins - self.steady_s()) > 0 and not is_stopped():
            self.sleep(min(left, _NAP_S))

    def _seconds(self, records: int, size: int) -> float:
        by_records = 0.0 if self.records is None else records / self.records
        by_bytes = 0.0 if self.bytes is None else size / self.bytes
        return max(by_records, by_bytes) * self.writers


def task_options(job: RestoreJob) -> TaskOptions:
    """Return how the tasks of a restore are run: with a limit as many as work at the same time."""
    dealt = partial(dealt_by_writer, job)
    if not job.is_limited:
        return TaskOptions(deal=dealt)
    return TaskOptions(deal=lambda units, slots: shared(dealt(units, slots)), slices_per_core=1)


def shared(shares: Sequence[Sequence[RestoreUnit]]) -> list[list[RestoreUnit]]:
    """Tell the units of tasks that work at the same time how many these are."""
    return [[replace(unit, writers=len(shares)) for unit in share] for share in shares]
