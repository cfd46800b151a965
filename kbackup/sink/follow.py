"""``--follow``: a long-running task that owns some partitions and visits each when it pays off.

No file stays open between two visits.  A partition is visited when enough records wait to fill a
file, or when the oldest has waited long enough for a short one: so each record is read once, and
memory is that of a single run whatever the number of partitions.  One that fails is set aside and
tried again later; only a cluster that does not answer at all ends the task.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from zlib import crc32

from kbackup.backup.ledger import objects, place
from kbackup.backup.ledger.rows import OBJECTS, table
from kbackup.channel import Line
from kbackup.errors import KafkaError, KbackupError, SparkError
from kbackup.events import Event, Warned
from kbackup.kafka import PATIENCE_S, LogStartMovedError
from kbackup.plurals import counted
from kbackup.records import Span, TopicPartition, without
from kbackup.reports import OfSink, PartitionReport
from kbackup.sink.clients import Clients, connect
from kbackup.sink.held import around, unreachable
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.look import Look, Lookout
from kbackup.sink.messages import ADOPT, Examined, GaveUp
from kbackup.sink.watch import Watch
from kbackup.sink.work import Work

POLL_S: Final = 1.0
"""How often the end offsets are asked for."""

REPORT_S: Final = 10.0
"""How often the driver gets each partition's progress."""


@dataclass(frozen=True, slots=True)
class Share:
    """One task's part of a run.

    Attributes:
        index: Which, from 0.
        count: How many there are, for the whole run.
        units: The partitions it has from the start.
    """

    index: int
    count: int
    units: tuple[SinkUnit, ...]

    def owns(self, where: TopicPartition) -> bool:
        """Whether a partition added later belongs to this task: exactly one task says so."""
        return crc32(str(where).encode()) % self.count == self.index


def deal(units: Sequence[SinkUnit], slots: int) -> list[list[Share]]:
    """Give every slot a share, even an empty one: partitions may come later."""
    return [[Share(at, slots, tuple(units[at::slots]))] for at in range(slots)]


def follow(
    job: SinkJob, idle_ms: int, shares: Sequence[Share], line: Line
) -> Iterator[PartitionReport[OfSink]]:
    """Back up a share's partitions until asked to stop; yields one report each, at the end.

    A task that has lost its connection to the driver fails, so that Spark runs it again: its
    reports would get lost, it would not learn of newcomers, and no other task has its partitions.

    Args:
        job: What tasks need to know; with its ``flush_tail`` a short file is closed when a
            record has waited *idle_ms*, without it only full files are written.
        idle_ms: How long a record may wait.
        shares: One.
        line: To the driver.

    Raises:
        SparkError: If the line to the driver is lost.
    """
    (share,) = shares
    idle_s = idle_ms / 1000 if job.flush_tail else None
    following = Following(job, share, idle_s, line)
    try:
        if not line.is_lost():
            following.run()
    finally:
        following.close()
    if line.is_lost():
        raise SparkError(
            "a task lost its connection to the driver",
            f"no other task follows its {counted(len(following.watches), 'partition')}",
            "run the same command again: it continues from the committed offsets",
        )
    for watch in following.watches.values():
        yield watch.report


@dataclass(slots=True)
class Following:
    """The partitions of one task.

    Attributes:
        job: What tasks need to know.
        share: The task's part of the run.
        idle_s: How long a record may wait; None: until a file is full.
        line: To the driver.
        watches: What is known of each partition.
    """

    job: SinkJob
    share: Share
    idle_s: float | None
    line: Line
    watches: dict[TopicPartition, Watch] = field(default_factory=dict)
    _look: Lookout = field(init=False)
    _clients: Clients | None = None
    _before: Look = field(default_factory=Look)
    _told: float = 0.0
    _boundary: int | None = None
    _scheduled: set[TopicPartition] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._look = Lookout(self.job.kafka)
        for unit in self.share.units:
            self._adopt(unit)

    def run(self) -> None:
        """Visit partitions until asked to stop, or until no broker answers."""
        heard = self.job.clock.steady_s()
        while not self.line.is_stopped():
            for order in self.line.orders():
                self.take(order)
            try:
                self.turn()
            except KafkaError as error:
                if self.job.clock.steady_s() - heard > PATIENCE_S:
                    self._give_up(error)
                    return
            else:
                heard = self.job.clock.steady_s()
            self.line.wait(POLL_S)

    def take(self, order: Event) -> None:
        """Take an order from the driver; ignore one for another task, or one taken before."""
        if order["type"] == ADOPT:
            unit = SinkUnit.from_dict(order)
            if self.share.owns(unit.where):
                self._adopt(unit)

    def turn(self) -> None:
        """Examine the cluster once, and visit what is due.

        Raises:
            KafkaError: If no broker answers.
        """
        look = self._look({at: watch.identity for at, watch in self.watches.items()})
        before, self._before = self._before, look
        now, clock = self.job.clock.steady_s(), self.job.clock.ms() / 1000
        for watch in self.watches.values():
            known = watch.report.failure
            watch.see(look, before, now, clock)
            failure = watch.report.failure
            if (failure and failure.code) != (known and known.code):
                self._report(watch)
        self._pass_boundary()
        for where, watch in self.watches.items():
            if self.line.is_stopped():
                break
            idle_s = 0.0 if where in self._scheduled else self.idle_s
            if watch.is_due(self.job.clock.steady_s(), idle_s) and not self._visit(watch):
                break  # before others wait as long for a broker, check whether any answers
        if self.job.clock.steady_s() - self._told >= REPORT_S:
            self._told = self.job.clock.steady_s()
            for watch in self.watches.values():
                self._report(watch)

    def close(self) -> None:
        """Leave the cluster."""
        if self._clients is not None:
            self._clients.close()
            self._clients = None

    def _adopt(self, unit: SinkUnit) -> None:
        if unit.where not in self.watches:
            size = max(1, self.job.rule.records or 1)
            self.watches[unit.where] = Watch.begin(unit, size)

    def _pass_boundary(self) -> None:
        """At a boundary of ``rotate.schedule.interval.ms``, make everything that waits due."""
        if (schedule := self.job.rule.schedule) is None:
            return
        # not what is later than the last one: a clock that was ahead may be set back by a day
        before, self._boundary = self._boundary, schedule.next(self.job.clock.ms())
        if before not in (None, self._boundary):
            waits = (where for where, watch in self.watches.items() if watch.backlog > 0)
            self._scheduled.update(waits)

    def _visit(self, watch: Watch) -> bool:
        """Back up what waits in a partition; return whether Kafka did its part."""
        if self._clients is None:
            self._clients = connect(self.job, self.line)
        where = watch.report.where
        flush_tail = where in self._scheduled or (self.job.flush_tail and not watch.is_full)
        job = replace(self.job, flush_tail=flush_tail)
        work = Work(job, watch.unit(), self._clients, self.line)
        error: KbackupError | None = None
        try:
            work.run()
        except KbackupError as caught:
            error = caught
        report = work.report
        if isinstance(error, LogStartMovedError):
            try:
                moved = self._moved(watch, report.reached)
                gaps = self._gaps(watch, moved)
            except KbackupError as other:
                error = other
            else:
                if len(moved):
                    own = replace(report.own, gaps=gaps)
                    report, error = replace(report, committed=moved.end_offset, own=own), None
        if error is None:
            self._scheduled.discard(where)
        watch.visited(report, error, self.job.clock.steady_s(), random.random())  # noqa: S311  (spreads retries)
        self._report(watch)
        if isinstance(error, KafkaError):
            self._clients = connect(self.job, self.line, self._clients)
            return False
        return True

    def _moved(self, watch: Watch, position: int) -> Span:
        """Return from where to where the backup goes on; empty where nothing has expired.

        Never in the middle of a cut of values that is stored a second time: where the log has lost
        the beginning of one, and the bucket has all of it, after it.

        Raises:
            RefusedError: If the bucket lacks some of that cut.
        """
        where = watch.report.where
        log = self._look({where: watch.identity}).logs.get(where)
        start = position if log is None else log.start_offset
        cut = around(watch.held, start)
        if cut is None or start <= position:
            return Span(position, max(position, start))
        if not cut.is_whole:
            raise unreachable(where, cut, start)
        return Span(position, cut.end)

    def _gaps(self, watch: Watch, moved: Span) -> tuple[Span, ...]:
        """Write down what expired before it was read, and return it: what the bucket lacks of it.

        Recorded at once: the next commit is after it, and no later run would find it.
        """
        assert self._clients is not None  # noqa: S101  (a visit has just used them)
        where = watch.report.where
        held = (cut.span for cut in watch.held if cut.is_whole and cut.objects)
        gaps = without(moved, [*held, *watch.kept])
        for gap in gaps:
            row = objects.gap(where, gap, self.job.run, self.job.clock.ms())
            stream = place.of_topic(
                self._clients.store,
                self.job.layout,
                self.job.routes.topic(where.topic),
                self.job.clock,
            )
            stream.append(table([row], OBJECTS))
            text = f"{where}: offsets {gap.start_offset} to {gap.end_offset - 1} have expired"
            self.line.tell(Warned("gap", text, self.job.run))
        return gaps

    def _report(self, watch: Watch) -> None:
        self.line.tell(Examined(self.job.run, watch.report))

    def _give_up(self, error: KafkaError) -> None:
        for watch in self.watches.values():
            watch.give_up(error)
            self._report(watch)
        self.line.tell(GaveUp(self.job.run))
