"""Hand out the spans of shared partitions: who works on what, and whose turn it is.

It decides and does nothing: it takes what tasks say, and returns what to tell them.  So long as
some task is there to ask or to wait, a run goes on: a span that a dead task leaves behind is given
to the next one that asks, and where no one does, to one that waits for just this span.

Spans meet where every run ends a file, so the same files are made however many tasks there are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kbackup.errors import StoppedError
from kbackup.events import Event, Plain, Progress, from_json
from kbackup.records import Span, TopicPartition, joined
from kbackup.runs.report import SPANS_MOST, OfSink, PartitionReport
from kbackup.sink.job import SinkUnit
from kbackup.sink.spans.messages import (
    ASK,
    LEAVES,
    OVER,
    WAITS,
    Drop,
    LeaseGranted,
    Nothing,
    Over,
    SpanName,
    Take,
)
from kbackup.spark import engine

EVERY: Final = 1_000_000
"""Every run ends files of full records at multiples of this many offsets: as ``flush.size`` does
by itself where no offset is missing."""

PARTS_MOST: Final = 256
"""Spans of one partition; where there would be more they are longer, in whole multiples."""


@dataclass(frozen=True, slots=True)
class Division:
    """What the tasks of a run have to do.

    Attributes:
        whole: The partitions that one task each works on, the largest share first.
        divided: The spans of each other partition, in order.
    """

    whole: tuple[SinkUnit, ...]
    divided: tuple[tuple[SinkUnit, ...], ...] = ()


def divide(units: Sequence[SinkUnit], cores: int, every: int | None) -> Division:
    """Divide what is longer than one core's share of the run.

    Args:
        units: The largest first.
        cores: Tasks that may run at a time.
        every: Where spans may meet; None: nowhere.
    """
    if every is None:
        return Division(tuple(units))
    share = max(every, sum(len(unit.span) for unit in units) / max(1, cores))
    is_long = [len(unit.span) > share and not unit.held for unit in units]
    return Division(
        tuple(unit for unit, long in zip(units, is_long, strict=True) if not long),
        tuple(tuple(spans(unit, every)) for unit, long in zip(units, is_long, strict=True) if long),
    )


def spans(unit: SinkUnit, every: int) -> Iterator[SinkUnit]:
    """Yield the spans of *unit*; what was committed beside its start belongs to the first."""
    length = every * -(-len(unit.span) // (every * PARTS_MOST))
    start, end = unit.span.start_offset, unit.span.end_offset
    while start < end:
        stop = min(end, (start // length + 1) * length)
        is_first = start == unit.span.start_offset
        bookmark = unit.bookmark if is_first else None
        yield replace(unit, span=Span(start, stop), bookmark=bookmark)
        start = stop


Saying = tuple[int, Plain]
"""Something to tell a task, by the number of its line."""


@dataclass(frozen=True, slots=True)
class SpanWorker:
    """What Spark gives a task that asks for spans, in place of units.

    Attributes:
        number: Which of these tasks it is; one that Spark runs again has the same.
    """

    number: int


@dataclass(slots=True)
class _Piece:
    """A span, and who works on it.

    Attributes:
        unit: The span.
        owner: The line of the task that has it; None if nobody has.
        waits: Its task can do no more before its turn.
        is_told: Its task knows that its turn has come.
        is_over: It is stored and committed to its end.
    """

    unit: SinkUnit
    owner: int | None = None
    waits: bool = False
    is_told: bool = False
    is_over: bool = False

    def release(self) -> None:
        """Let the next task that asks have it."""
        self.owner, self.waits, self.is_told = None, False, False


@dataclass(slots=True)
class _Lane:
    """A divided partition.

    Attributes:
        pieces: Its spans, in order.
        reached: The position that the run has committed, or that it began from.
        reports: What tasks have said of spans that they ended.
        has_ended: It failed; nothing more of it is handed out.
        called: The task that was told to come for the lowest span.
    """

    pieces: list[_Piece]
    reached: int
    reports: list[PartitionReport[OfSink]] = field(default_factory=list)
    has_ended: bool = False
    called: int | None = None

    @property
    def where(self) -> TopicPartition:
        """The partition."""
        return self.pieces[0].unit.where

    def free(self) -> Iterator[_Piece]:
        """Yield the spans that nobody works on, lowest first."""
        if not self.has_ended:
            yield from (each for each in self.pieces if each.owner is None and not each.is_over)

    def owned(self) -> list[_Piece]:
        """Return the spans that tasks work on, lowest first."""
        return [each for each in self.pieces if each.owner is not None]

    def has_turn(self, piece: _Piece) -> bool:
        """Whether everything before *piece* is committed."""
        return self.reached >= piece.unit.span.start_offset

    @property
    def stands(self) -> bool:
        """Whether nobody works on the lowest span that is not over."""
        lowest = next((each for each in self.pieces if not each.is_over), None)
        return lowest is not None and lowest.owner is None

    def advance(self, offset: int) -> list[Saying]:
        """Take a committed position; return whom to tell that it is their turn."""
        self.reached = max(self.reached, offset)
        said: list[Saying] = []
        for piece in self.owned():
            if self.has_turn(piece) and not piece.is_told:
                piece.is_told = True
                said.append((_owner(piece), LeaseGranted(SpanName.of(piece.unit))))
        return said + self.call()

    def call(self) -> list[Saying]:
        """Where tasks wait for a span that nobody has, tell the last of them to come for it."""
        waiting = [each for each in self.owned() if each.waits and not each.is_told]
        if self.has_ended or not self.stands or self.called is not None or not waiting:
            return []
        last = waiting[-1]
        self.called = owner = _owner(last)
        last.release()
        return [(owner, Drop(SpanName.of(last.unit)))]

    def end(self) -> list[Saying]:
        """Hand out nothing more; return whom to tell: those whose turn does not come any more."""
        self.has_ended = True
        said: list[Saying] = []
        for piece in self.owned():
            if piece.is_told:  # its last cut is on its way
                continue
            said.append((_owner(piece), Drop(SpanName.of(piece.unit))))
            piece.release()
        return said

    def report(self) -> PartitionReport[OfSink] | None:
        """Return what has become of the partition, None if no task has said anything of it."""
        if not self.reports:
            return None
        furthest = max(self.reports, key=lambda each: (each.reached, each.done.records))
        failure = next((each.failure for each in self.reports if each.failure is not None), None)
        if failure is None and not all(piece.is_over for piece in self.pieces):
            place = {"topic": self.where.topic, "partition": self.where.partition}
            failure = StoppedError(f"{self.where} stopped").issue().at(**place)
        skipped = joined(span for each in self.reports for span in each.own.skipped)
        return replace(
            furthest,
            end=self.pieces[-1].unit.span.end_offset,
            failure=failure,
            own=replace(furthest.own, skipped=skipped[:SPANS_MOST]),
        )


class SpanScheduler:
    """Divides the backlogs of one run, and hands out their spans: an `engine.Scheduler`.

    Args:
        every: Where spans may meet; None: nothing is divided.
    """

    def __init__(self, every: int | None) -> None:
        self._every = every
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._seats: dict[int, int] = {}
        self._replaced: set[int] = set()

    def deal(self, units: Sequence[SinkUnit], cores: int) -> list[list[Any]]:
        """Return what each Spark task gets: a seat for each core, and the undivided units."""
        found = divide(units, cores, self._every)
        self._lanes = {
            spans[0].where: _Lane([_Piece(span) for span in spans], spans[0].span.start_offset)
            for spans in found.divided
        }
        seats = min(cores, sum(map(len, found.divided)))
        whole = engine.deal(found.whole, cores * engine.SLICES_PER_CORE)
        return [*([SpanWorker(number)] for number in range(seats)), *whole]

    def heard(self, who: int, event: Event) -> list[Saying]:
        """Take what a task says; return what to tell whom."""
        match event["type"]:
            case type if type == ASK:
                return self._asked(who, event["seat"])
            case type if type == WAITS:
                return self._waits(who, SpanName.from_dict(event))
            case type if type == OVER:
                return self._over(who, Over.from_dict(event).report)
            case type if type == LEAVES:
                return [*self.left(who), (who, Nothing())]
            case "progress":
                return self._progress(event)
        return []

    def left(self, who: int) -> list[Saying]:
        """Take back what a task has that is gone; return what to tell whom."""
        said: list[Saying] = []
        for lane in self._lanes.values():
            for piece in lane.owned():
                if piece.owner == who:
                    piece.release()
            if lane.called == who:
                lane.called = None
            said += lane.call()
        return said

    def reports(self) -> list[PartitionReport[OfSink]]:
        """Return one report for each divided partition of which anything is known."""
        found = (lane.report() for lane in self._lanes.values())
        return [report for report in found if report is not None]

    def _asked(self, who: int, seat: int) -> list[Saying]:
        if who in self._replaced:  # it was taken for dead, or has died since it asked
            return [(who, Nothing())]
        before = self._seats.get(seat, who)
        self._seats[seat] = who
        said: list[Saying] = []
        if before != who:
            self._replaced.add(before)
            owned = [each for lane in self._lanes.values() for each in lane.owned()]
            lost = [each.unit for each in owned if each.owner == before and not each.is_told]
            said = [(before, Drop(SpanName.of(unit))) for unit in lost]
            said += self.left(before)
        lanes = [lane for lane in self._lanes.values() if any(lane.free())]
        if not lanes:
            return [*said, (who, Nothing())]
        # a span that others wait for before all, else the partition with the fewest tasks
        lane = min(lanes, key=lambda one: (one.called != who, not one.stands, len(one.owned())))
        piece = next(lane.free())
        piece.owner, piece.is_told = who, lane.has_turn(piece)
        for each in self._lanes.values():
            if each is lane or each.called == who:
                each.called = None
        given = Take(piece.unit, piece is lane.pieces[0], piece.is_told)
        return [*said, (who, given), *(each for one in self._lanes.values() for each in one.call())]

    def _waits(self, who: int, span: SpanName) -> list[Saying]:
        found = self._piece(who, span)
        if found is None:  # its turn would never come
            return [(who, Drop(span))]
        lane, piece = found
        piece.waits = True
        return lane.call()

    def _progress(self, event: Mapping[str, Any]) -> list[Saying]:
        said = from_json(event)
        lane = self._lanes.get(said.where) if isinstance(said, Progress) else None
        if lane is None or not isinstance(said, Progress) or said.committed is None:
            return []
        return lane.advance(said.committed)

    def _over(self, who: int, report: PartitionReport[OfSink]) -> list[Saying]:
        found = self._piece(who, SpanName(report.where, report.start or 0))
        if found is None:  # a task that was taken for dead; another one has its span
            return []
        lane, piece = found
        lane.reports.append(report)
        piece.release()
        piece.is_over = report.failure is None
        if report.failure is not None:
            return lane.end()
        return lane.advance(report.reached)

    def _piece(self, who: int, span: SpanName) -> tuple[_Lane, _Piece] | None:
        """Return a span that is this task's."""
        lane = self._lanes.get(span.where)
        for piece in () if lane is None else lane.pieces:
            if piece.unit.span.start_offset == span.start and piece.owner == who:
                assert lane is not None  # noqa: S101
                return lane, piece
        return None


def _owner(piece: _Piece) -> int:
    assert piece.owner is not None  # noqa: S101  (only spans that have one are looked at)
    return piece.owner
