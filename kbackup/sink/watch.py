"""One followed partition: when to visit it, and when to leave it alone for a while.

A partition that fails is set aside and tried again after a pause, so that its neighbours continue.
Nothing here reads a clock or talks to a server.
"""

from dataclasses import dataclass, replace
from typing import Final

from kbackup.errors import (
    Failure,
    KafkaError,
    KbackupError,
    NoSpaceError,
    RegistryError,
    StoppedError,
    StoreError,
    TopicChangedError,
)
from kbackup.kafka import LogStartMovedError
from kbackup.records import Span, TopicIdentity, joined
from kbackup.reports import GAPS_MOST, SPANS_MOST, HeldUp, OfSink, PartitionReport
from kbackup.runs.pauses import growing_s
from kbackup.sink.held import HeldCut
from kbackup.sink.job import SinkUnit
from kbackup.sink.look import Look, changed

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 300.0
"""Pauses after a transient fault, as of Kafka or the store: each is twice the last."""

FIRST_RARE_PAUSE_S: Final = 600.0
LONGEST_RARE_PAUSE_S: Final = 3600.0
"""Pauses after any other fault: a record that cannot be stored will still be there in a second."""

SILENCE_S: Final = 30.0
"""How long a partition may stay unanswered, while others answer, before it is reported."""

_NOTHING: Final = Span(0, 0)

_PASSING: Final = (KafkaError, RegistryError, StoreError, NoSpaceError, LogStartMovedError)


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a partition is set aside after a visit, and until when.

    Attributes:
        failure: What the last visit failed with: an error would keep all that it met.
        passes: The fault is transient.
        visits: How many have failed in a row.
        until: When to try again, by the monotonic clock.
        log_start: Where the log began: once it has moved on, a bad record may be gone.
    """

    failure: Failure
    passes: bool
    visits: int
    until: float
    log_start: int

    def is_over(self, now: float, log_start: int) -> bool:
        """Whether another visit may help."""
        return now >= self.until or (not self.passes and log_start > self.log_start)


def pause_s(visits: int, jitter: float, *, passes: bool) -> float:
    """Return how long to leave a partition alone after *visits* failed visits in a row.

    Args:
        visits: 1 or more.
        jitter: 0 to 1; spreads partitions that failed together over half the pause.
        passes: The fault is transient.
    """
    first, longest = FIRST_RARE_PAUSE_S, LONGEST_RARE_PAUSE_S
    if passes:
        first, longest = FIRST_PAUSE_S, LONGEST_PAUSE_S
    return growing_s(visits, first, longest, jitter)


@dataclass(slots=True)
class Watch:
    """What a task knows of one partition.

    Attributes:
        report: How far its backup is.
        identity: Which topic it is of.
        size: Records that fill a file.
        held: The cuts of values that are stored a second time.
        kept: Offsets that are in the bucket, or known to be nowhere: no gap if they expire.
    """

    report: PartitionReport[OfSink]
    identity: TopicIdentity
    size: int
    held: tuple[HeldCut, ...] = ()
    kept: tuple[Span, ...] = ()
    _log: Span = _NOTHING
    _end: int = 0
    _wanted: int = 0
    _waiting_since: float | None = None
    _silent_since: float | None = None
    _lost: Failure | None = None
    _pause: Pause | None = None
    _seen_at: float = 0.0
    _mark: tuple[int, float] | None = None

    @classmethod
    def begin(cls, unit: SinkUnit, size: int) -> "Watch":
        """Follow a partition from the start of *unit*; files are full with *size* records."""
        span = unit.span
        start = span.start_offset
        own = OfSink(unit.bookmark)
        report = PartitionReport(unit.where, start, span.end_offset, start, own)
        return cls(report, unit.identity, size, unit.held, unit.kept, _wanted=size)

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
            look: The newest.
            before: The one before it.
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
            self._wait(now)
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
        if self._pause is not None:
            return self._pause.is_over(now, self._log.start_offset)
        waited = now - (now if self._waiting_since is None else self._waiting_since)
        return self.is_full or (idle_s is not None and waited >= idle_s)

    def unit(self) -> SinkUnit:
        """Return what the next visit has to do."""
        where, bookmark = self.report.where, self.report.own.bookmark
        span = Span(self.report.reached, self._log.end_offset)
        return SinkUnit(where, span, bookmark, self.identity, self.held)

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
            error: What ended it early.
            now: By the monotonic clock.
            jitter: As `pause_s` takes it.
        """
        mine = self.report
        if visit.reached > mine.reached:
            self._waiting_since = None
        done = visit.done
        if error is not None and visit.reached == mine.reached:
            done = mine.done  # a visit that failed at once has not read what was done before it
        last = mine.done.last if done.last is None else done.last
        own = OfSink(
            visit.own.bookmark,
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
            self._pause = None
            left = self.backlog
            self._wanted = self.size if left < self.size else left + self.size
        elif not isinstance(error, StoppedError):
            visits = 1 if self._pause is None else self._pause.visits + 1
            passes = isinstance(error, _PASSING)
            until = now + pause_s(visits, jitter, passes=passes)
            log_start = self._log.start_offset
            self._pause = Pause(self._placed(error), passes, visits, until, log_start)
            self._wanted = self.size
        self._say()
        if isinstance(error, StoppedError) and self.report.failure is None:
            self.report = replace(self.report, failure=self._placed(error))

    def give_up(self, error: KbackupError) -> None:
        """Take in that the cluster is away, which ends the run."""
        self.report = replace(self.report, failure=error.failure())

    def _silence(self, look: Look, now: float) -> KbackupError | None:
        """Return why the partition cannot be asked, once that has lasted."""
        error = look.silent.get(self.report.where)
        if error is None:
            self._silent_since = None
            return None
        if self._silent_since is None:
            self._silent_since = now
        return error if now - self._silent_since >= SILENCE_S else None

    def _wait(self, now: float) -> None:
        if self.backlog <= 0:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now

    def _until(self, clock: float) -> float | None:
        """Return up to when everything that was written to the partition is backed up.

        All there was at a look is safe once the offset that was its end is committed.
        """
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
        """Put into the report up to when everything is backed up."""
        self.report = replace(self.report, own=replace(self.report.own, until=until))

    def _say(self) -> None:
        """Put into the report why the partition is stalled, if it is."""
        failure = self._lost or (None if self._pause is None else self._pause.failure)
        self.report = replace(self.report, failure=failure)

    def _placed(self, error: KbackupError) -> Failure:
        where = self.report.where
        return error.failure().at(topic=where.topic, partition=where.partition)
