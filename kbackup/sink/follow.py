"""``--follow``: back up in a long task that owns some partitions, and visits each when it pays.

No file stays open between two visits.  A partition is visited when enough records wait to fill a
file, or when the oldest has waited long enough for a short one: so each record is read once, and
memory is that of a single run whatever the number of partitions.  One that fails is set aside and
tried again after a pause, so that its neighbours continue; only a cluster that does not answer at
all ends the task.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final
from zlib import crc32

from kbackup.catalog.ledger.rows import GAP, OBJECTS, ranged, table
from kbackup.catalog.ledger.stream import topic_stream
from kbackup.errors import (
    Issue,
    KafkaError,
    KbackupError,
    SparkError,
    StoppedError,
    TopicChangedError,
    TopicDeletedError,
    counted,
)
from kbackup.events import Event, Warned
from kbackup.kafka import PATIENCE_S, Cluster, LogStartMovedError
from kbackup.records import Span, TopicIdentity, TopicPartition, joined, without
from kbackup.runs.following import Aside, Backoff, turns
from kbackup.runs.report import GAPS_MOST, SPANS_MOST, HeldUp, OfSink, PartitionReport
from kbackup.sink.job import BrokersGone, FollowOrder, FollowReport, SinkJob, SinkUnit, recreated
from kbackup.sink.start import outside
from kbackup.sink.storing import TaskClients, connect
from kbackup.sink.task import SinkPartitionTask
from kbackup.spark.channel import TaskChannel


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the cluster finds.

    Attributes:
        logs: What the logs hold, of partitions that answer, up to the last stable offset.
        ends: Where those logs end, behind open transactions.
        changed: Topics that are others of the same name.
        silent: Partitions that cannot be asked, and why.
    """

    logs: Mapping[TopicPartition, Span] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    silent: Mapping[TopicPartition, KbackupError] = field(default_factory=dict)


def _look(cluster: Cluster, followed: Mapping[TopicPartition, TopicIdentity]) -> Look:
    """Look at these partitions; a topic that does not answer keeps no other from it."""
    ids = {where.topic: identity.topic_id for where, identity in followed.items()}
    failures: dict[str, KafkaError] = {}
    topics = cluster.topics(ids, failures)
    now = {name: topic.topic_id for name, topic in topics.items() if topic.topic_id}
    changed = frozenset(name for name, topic_id in now.items() if ids[name] not in ("", topic_id))
    silent: dict[TopicPartition, KbackupError] = {}
    asked = []
    for where in followed:
        topic = topics.get(where.topic)
        if where.topic in failures:
            silent[where] = failures[where.topic]
        elif topic is not None and where.partition in topic.leaderless:
            silent[where] = _leaderless(where)
        elif topic is not None and where.topic not in changed:
            asked.append(where)
    found = _logs(cluster, asked)
    gone = frozenset(ids.keys() - topics.keys() - failures.keys())
    return replace(found, gone=gone, changed=changed, silent={**silent, **found.silent})


def _logs(cluster: Cluster, wheres: Sequence[TopicPartition]) -> Look:
    """Ask for all at once, and topic by topic where one of them is in the way."""
    try:
        ends = cluster.ends(wheres)  # first: what is written meanwhile is behind no transaction
        return Look(cluster.spans(wheres), ends)
    except KafkaError as error:
        if error.is_away:
            raise
        if len({where.topic for where in wheres}) == 1:
            return Look(silent=dict.fromkeys(wheres, error))
    topics = groupby(sorted(wheres), key=lambda where: where.topic)
    found = [_logs(cluster, list(of_topic)) for _, of_topic in topics]
    return Look(
        {where: log for one in found for where, log in one.logs.items()},
        {where: end for one in found for where, end in one.ends.items()},
        silent={where: error for one in found for where, error in one.silent.items()},
    )


def changed(where: TopicPartition, position: int, look: Look, before: Look) -> KbackupError | None:
    """Return why a partition is not the one that was followed; most reasons must be seen twice.

    A broker's answer may be out of date, or come while another broker takes over.
    """
    if where.topic in look.changed:
        return recreated(where.topic)
    if where.topic in look.gone & before.gone:
        return TopicDeletedError(
            f"{where.topic} no longer exists",
            "it was deleted while it was being backed up",
            "what is stored stays as it is; remove the topic from the list, or restore it",
            **where.place,
        )
    ends = [
        max(one.logs[where].end_offset, one.ends.get(where, 0))
        for one in (before, look)
        if where in one.logs
    ]
    if len(ends) == 2 and max(ends) < position:
        return TopicChangedError(
            f"{where} ends at offset {ends[-1]}, but was backed up to {position}",
            "its log was cut back",
            "what is stored stays as it is; check the topic before running again",
            **where.place,
        )
    return None


def _leaderless(where: TopicPartition) -> KafkaError:
    return KafkaError(
        f"{where} has no leader",
        "the brokers that hold it are down",
        "start them; the other partitions go on",
        **where.place,
    )


PAUSES: Final = Backoff(first_s=1.0, first_rare_s=600.0)

SILENCE_S: Final = 30.0
"""How long a partition may stay unanswered, while others answer, before it is reported."""

_NOTHING: Final = Span(0, 0)


@dataclass(slots=True)
class Watch:
    """What a task knows of one partition.

    Attributes:
        begun: What it was followed from.
        size: Records that fill a file.
    """

    report: PartitionReport[OfSink]
    begun: SinkUnit
    size: int
    _log: Span = _NOTHING
    _end: int = 0
    _wanted: int = 0
    _waiting_since: float | None = None
    _silent_since: float | None = None
    _lost: Issue | None = None
    _aside: Aside | None = None
    _failed_at: int = 0  # where the log began then: it may have left a bad record behind since
    _seen_at: float = 0.0
    _mark: tuple[int, float] | None = None

    @classmethod
    def begin(cls, unit: SinkUnit, size: int) -> "Watch":
        """Follow a partition from the start of *unit*; files are full with *size* records."""
        span = unit.span
        start = span.start_offset
        own = OfSink(unit.commit_metadata)
        report = PartitionReport(unit.where, start, span.end_offset, start, own)
        return cls(report, unit, size, _wanted=size)

    @property
    def backlog(self) -> int:
        """Offsets to back up, as of the last look."""
        return self._log.end_offset - self.report.reached

    @property
    def is_full(self) -> bool:
        """Whether enough waits to fill a file."""
        return self.backlog >= self._wanted

    def see(self, look: Look, before: Look, now: float, clock: float) -> None:
        """Take in a look at the cluster.

        Args:
            now: By the monotonic clock.
            clock: The same in seconds since the epoch.
        """
        where, committed = self.report.where, self.report.reached
        if self._lost is None or self._lost.code != TopicChangedError.code:  # that is for good
            error = changed(where, committed, look, before) or self._silence(look, now)
            self._lost = None if error is None else self._placed(error)
        log = look.logs.get(where)
        if log is not None and self._lost is None:
            self._log, self._seen_at = log, clock
            self._end = max(log.end_offset, look.ends.get(where, 0))
            if self.backlog <= 0:
                self._waiting_since = None
            elif self._waiting_since is None:
                self._waiting_since = now
            self.report = replace(
                self.report,
                end=max(committed, log.end_offset),
                held_up=HeldUp.of(log, self._end, clock),
            )
            self._backed_up(self._until(clock))
        self._say()

    def is_due(self, now: float, idle_s: float | None) -> bool:
        """Whether to visit: a file can be filled, or a record has waited *idle_s* seconds."""
        if self._lost is not None or self.backlog <= 0:
            return False
        if self._aside is not None:
            has_moved = not self._aside.is_passing and self._log.start_offset > self._failed_at
            return now >= self._aside.until or has_moved
        waited = now - (now if self._waiting_since is None else self._waiting_since)
        return self.is_full or (idle_s is not None and waited >= idle_s)

    def unit(self) -> SinkUnit:
        """Return what the next visit has to do."""
        span = Span(self.report.reached, self._log.end_offset)
        return replace(self.begun, span=span, commit_metadata=self.report.own.commit_metadata)

    def visited(
        self,
        visit: PartitionReport[OfSink],
        error: KbackupError | None,
        now: float,
        jitter: float,
    ) -> None:
        """Take in the outcome of a visit.

        Args:
            visit: Its report, which counts what the whole run has done.
            now: By the monotonic clock.
        """
        mine = self.report
        if visit.reached > mine.reached:
            self._waiting_since = None
        done = visit.done
        if error is not None and visit.reached == mine.reached:
            done = mine.done  # a visit that failed at once has not read what was done before it
        last = mine.done.last if done.last is None else done.last
        own = OfSink(
            visit.own.commit_metadata,
            (*mine.own.gaps, *visit.own.gaps)[-GAPS_MOST:],
            joined((*mine.own.skipped, *visit.own.skipped))[:SPANS_MOST],
            mine.own.until,
        )
        done = replace(done, last=last)
        self.report = replace(visit, start=mine.start, done=done, own=own, held_up=mine.held_up)
        if self.report.reached >= self._end:
            self._backed_up(self._seen_at)
            self._mark = None
        if error is None:
            self._aside = None
            left = self.backlog
            self._wanted = self.size if left < self.size else left + self.size
        elif not isinstance(error, StoppedError):
            failures = [self._placed(error)]
            self._aside = PAUSES.aside(self._aside, failures, now, jitter)
            self._failed_at = self._log.start_offset
            self._wanted = self.size
        self._say()
        if isinstance(error, StoppedError) and self.report.failure is None:
            self.report = replace(self.report, failure=self._placed(error))

    def _silence(self, look: Look, now: float) -> KbackupError | None:
        """Return why the partition cannot be asked, once that has lasted."""
        error = look.silent.get(self.report.where)
        if error is None:
            self._silent_since = None
            return None
        if self._silent_since is None:
            self._silent_since = now
        return error if now - self._silent_since >= SILENCE_S else None

    def _until(self, clock: float) -> float | None:
        """Return up to when everything that was written to the partition is backed up."""
        # all there was at a look is safe once the offset that was its end is committed
        committed, end = self.report.reached, self._end
        until = self.report.own.until
        if self._mark is not None and committed >= self._mark[0]:
            until, self._mark = self._mark[1], None
        if committed >= end:
            return clock
        if self._mark is None:
            self._mark = end, clock
        return until

    def _backed_up(self, until: float | None) -> None:
        self.report = replace(self.report, own=replace(self.report.own, until=until))

    def _say(self) -> None:
        failure = self._lost or (None if self._aside is None else self._aside.failures[0])
        self.report = replace(self.report, failure=failure)

    def _placed(self, error: KbackupError) -> Issue:
        where = self.report.where
        return error.issue().at(**where.place)


POLL_S: Final = 1.0
"""How often the end offsets are asked for."""

REPORT_S: Final = 10.0
"""How often the driver gets each partition's progress."""


@dataclass(frozen=True, slots=True)
class TaskShare:
    """One task's part of a run.

    Attributes:
        count: How many there are, for the whole run.
    """

    index: int
    count: int
    units: tuple[SinkUnit, ...]

    def owns(self, where: TopicPartition) -> bool:
        """Whether a partition added later belongs to this task: exactly one task says so."""
        return crc32(str(where).encode()) % self.count == self.index


def deal(units: Sequence[SinkUnit], slots: int) -> list[list[TaskShare]]:
    """Give every slot a share, even an empty one: partitions may come later."""
    return [[TaskShare(at, slots, tuple(units[at::slots]))] for at in range(slots)]


def follow(
    job: SinkJob, idle_ms: int, shares: Sequence[TaskShare], channel: TaskChannel
) -> Iterator[PartitionReport[OfSink]]:
    """Back up a share's partitions until asked to stop; yields one report each, at the end.

    A task that has lost its connection to the driver fails, so that Spark runs it again: its
    reports would get lost, it would not learn of newcomers, and no other task has its partitions.

    Args:
        job: What tasks need to know; with its ``flush_tail`` a short file is closed when a
            record has waited *idle_ms*, without it only full files are written.

    Raises:
        SparkError: If the channel to the driver is lost.
    """
    (share,) = shares
    idle_s = idle_ms / 1000 if job.flush_tail else None
    following = FollowedPartitions(job, share, idle_s, channel)
    try:
        if not channel.is_lost():
            following.run()
    finally:
        following.close()
    if channel.is_lost():
        raise SparkError(
            "a task lost its connection to the driver",
            f"no other task follows its {counted(len(following.watches), 'partition')}",
            "run the same command again: it continues from the committed offsets",
        )
    for watch in following.watches.values():
        yield watch.report


@dataclass(slots=True)
class FollowedPartitions:
    """The partitions of one task.

    Attributes:
        idle_s: How long a record may wait; None: until a file is full.
    """

    job: SinkJob
    share: TaskShare
    idle_s: float | None
    channel: TaskChannel
    watches: dict[TopicPartition, Watch] = field(default_factory=dict)
    _cluster: Cluster | None = None  # one client as long as it answers
    _clients: TaskClients | None = None
    _before: Look = field(default_factory=Look)
    _told: float = 0.0
    _boundary: int | None = None
    _scheduled: set[TopicPartition] = field(default_factory=set)

    def __post_init__(self) -> None:
        for unit in self.share.units:
            self._adopt(unit)

    def run(self) -> None:
        """Visit partitions until asked to stop, or until no broker answers."""
        heard = self.job.clock.steady_s()
        for _ in turns(self.channel.is_stopped, self.channel.wait, self.job.clock, POLL_S):
            for order in self.channel.orders():
                self.take(order)
            try:
                self.turn()
            except KafkaError as error:
                if self.job.clock.steady_s() - heard > PATIENCE_S:
                    self._give_up(error)
                    return
            else:
                heard = self.job.clock.steady_s()

    def take(self, order: Event) -> None:
        """Take an order from the driver; ignore one for another task, or one taken before."""
        if order["type"] == FollowOrder.TYPE:
            unit = FollowOrder.from_dict(order).unit
            if self.share.owns(unit.where):
                self._adopt(unit)

    def turn(self) -> None:
        """Examine the cluster once, and visit what is due.

        Raises:
            KafkaError: If no broker answers.
        """
        look = self._look({at: watch.begun.identity for at, watch in self.watches.items()})
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
            if self.channel.is_stopped():
                break
            idle_s = 0.0 if where in self._scheduled else self.idle_s
            if watch.is_due(self.job.clock.steady_s(), idle_s) and not self._visit(watch):
                break  # before others wait as long for a broker, check whether any answers
        if self.job.clock.steady_s() - self._told >= REPORT_S:
            self._told = self.job.clock.steady_s()
            for watch in self.watches.values():
                self._report(watch)

    def _look(self, followed: Mapping[TopicPartition, TopicIdentity]) -> Look:
        if not followed:
            return Look()
        try:
            self._cluster = self._cluster or self.job.kafka.cluster()
            return _look(self._cluster, followed)
        except KafkaError:
            self._cluster = None  # its client may keep asking a broker that was restarted
            raise

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
            self._clients = connect(self.job, self.channel)
        where = watch.report.where
        flush_tail = where in self._scheduled or (self.job.flush_tail and not watch.is_full)
        job = replace(self.job, flush_tail=flush_tail)
        work = SinkPartitionTask(job, watch.unit(), self._clients, self.channel)
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
            self._clients = connect(self.job, self.channel, self._clients)
            return False
        return True

    def _moved(self, watch: Watch, position: int) -> Span:
        """Return from where to where the backup goes on; empty where nothing has expired."""
        # never in the middle of a cut of values that the bucket has all of: after it
        where = watch.report.where
        log = self._look({where: watch.begun.identity}).logs.get(where)
        if log is None or log.start_offset <= position:
            return Span(position, position)
        start = log.start_offset
        return Span(position, outside(where, watch.begun.held, start, start))

    def _gaps(self, watch: Watch, moved: Span) -> tuple[Span, ...]:
        """Write down what expired before it was read, and return it: what the bucket lacks."""
        # at once: the next commit is after it, and no later run would find it
        assert self._clients is not None  # noqa: S101  (a visit has just used them)
        where = watch.report.where
        held = (cut.span for cut in watch.begun.held if cut.is_whole and cut.objects)
        gaps = without(moved, [*held, *watch.begun.kept])
        for gap in gaps:
            row = ranged(GAP, where, gap, self.job.run, self.job.clock.ms())
            stream = topic_stream(
                self._clients.store,
                self.job.layout,
                self.job.routes.topic(where.topic),
                self.job.clock,
            )
            stream.append(table([row], OBJECTS))
            text = f"{where}: offsets {gap.start_offset} to {gap.end_offset - 1} have expired"
            self.channel.tell(Warned("gap", text, run=self.job.run))
        return gaps

    def _report(self, watch: Watch) -> None:
        self.channel.tell(FollowReport(watch.report))

    def _give_up(self, error: KafkaError) -> None:
        for watch in self.watches.values():
            watch.report = replace(watch.report, failure=error.issue())
            self._report(watch)
        self.channel.tell(BrokersGone())
