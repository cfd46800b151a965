"""Which partitions are divided, and who gets which span when."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kbackup.errors import StoppedError, StoreError
from kbackup.events import Event, Plain, Progress, to_json
from kbackup.records import Span, TopicPartition
from kbackup.runs.position import Done
from kbackup.runs.report import OfSink, PartitionReport
from kbackup.sink.job import SinkUnit
from kbackup.sink.spans.messages import (
    DROP,
    NONE,
    TAKE,
    TURN,
    Ask,
    Leaves,
    Over,
    SpanName,
    Waits,
)
from kbackup.sink.spans.scheduler import PARTS_MOST, SpanScheduler, SpanWorker, divide
from kbackup.sink.start import HeldCut

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("others", 0)


def unit(start: int, end: int, where: TopicPartition = ORDERS) -> SinkUnit:
    """A backlog."""
    return SinkUnit(where, Span(start, end))


@pytest.mark.parametrize(
    ("units", "cores", "bounds"),
    [
        ([unit(3, 25)], 2, [[3, 10, 20, 25]]),
        ([unit(3, 25)], 1, []),
        ([unit(0, 10)], 2, []),
        ([unit(0, 40), unit(0, 40, OTHERS)], 2, []),
        ([unit(0, 40), unit(0, 30, OTHERS)], 2, [[0, 10, 20, 30, 40]]),
        ([unit(0, 30), unit(5, 30, OTHERS)], 4, [[0, 10, 20, 30], [5, 10, 20, 30]]),
    ],
    ids=["long", "one core", "short", "even", "uneven", "both"],
)
def test_what_is_longer_than_a_cores_share_is_divided_at_multiples(
    units: Sequence[SinkUnit], cores: int, bounds: list[list[int]]
) -> None:
    """
    Spans meet at multiples, whatever start and end are; what is divided is a matter of lengths.
    """
    found = divide(units, cores, 10)

    spans = [[each.span for each in one] for one in found.divided]
    assert bounds == [[of[0].start_offset, *(each.end_offset for each in of)] for of in spans]
    assert len(units) == len(found.whole) + len(found.divided)


def test_values_that_are_stored_again_are_not_divided() -> None:
    """
    Their cuts are those in the bucket.
    """
    again = SinkUnit(ORDERS, Span(0, 100), held=(HeldCut(Span(0, 7), 1),))

    assert () == divide([again], 4, 10).divided


def test_a_sparse_log_is_divided_into_few_spans() -> None:
    """
    However many offsets are missing, a partition has no more than so many spans.
    """
    (spans,) = divide([unit(5, 10**9)], 2, 10).divided

    assert len(spans) <= PARTS_MOST + 1
    assert all(each.span.end_offset % 10 == 0 for each in spans[:-1])
    assert [each.span.end_offset for each in spans[:-1]] == [
        each.span.start_offset for each in spans[1:]
    ]


class Run:
    """A hand-out of some backlogs, and what it says to each task."""

    def __init__(self, *units: SinkUnit, cores: int = 2) -> None:
        self.desk = SpanScheduler(10)
        self.shares = self.desk.deal(units, cores)

    def said(self, answers: Sequence[tuple[int, Plain]]) -> list[tuple[Any, ...]]:
        """Task, what it is told, and of which span."""
        found = []
        for who, plain in answers:
            order = json.loads(json.dumps(to_json(plain)))
            found.append((who, order["type"], order.get("start")))
        return found

    def tells(self, who: int, message: Plain) -> list[tuple[Any, ...]]:
        """What a task's message makes the driver say."""
        event: Event = json.loads(json.dumps(to_json(message)))
        return self.said(self.desk.heard(who, event))

    def asks(self, who: int, seat: int | None = None) -> list[tuple[Any, ...]]:
        """A task is free."""
        return self.tells(who, Ask(who if seat is None else seat))

    def commits(self, who: int, offset: int) -> list[tuple[Any, ...]]:
        """A task has committed up to *offset*."""
        return self.tells(who, Progress("r", ORDERS, offset, offset, 1, 0))

    def ends(
        self, who: int, start: int, committed: int, error: Exception | None = None
    ) -> list[tuple[Any, ...]]:
        """A task has ended a span."""
        failure = StoreError("full", "full").issue() if error is not None else None
        report = PartitionReport(
            ORDERS, start, start + 10, committed, OfSink(), Done(records=committed), failure
        )
        return self.tells(who, Over("r", report))

    def waits(self, who: int, start: int) -> list[tuple[Any, ...]]:
        """A task can do no more before its turn."""
        return self.tells(who, Waits(SpanName(ORDERS, start)))


def test_each_core_gets_a_seat_and_what_is_not_divided_goes_as_before() -> None:
    """
    Tasks that ask come first; small partitions are dealt out as in any run.
    """
    small = [unit(0, 3, TopicPartition("small", at)) for at in range(3)]
    run = Run(unit(0, 40), *small)

    assert [[SpanWorker(0)], [SpanWorker(1)], [small[0]], [small[1]], [small[2]]] == run.shares


def test_spans_are_handed_out_lowest_first_until_none_is_left() -> None:
    """
    A task that asks gets the lowest span that nobody has.
    """
    run = Run(unit(5, 25))

    assert [(1, TAKE, 5)] == run.asks(1)
    assert [(2, TAKE, 10)] == run.asks(2)
    assert [(3, TAKE, 20)] == run.asks(3)
    assert [(4, NONE, None)] == run.asks(4)


def test_a_turn_comes_when_everything_before_it_is_committed() -> None:
    """
    Only a commit up to its start gives a span its turn, and its task hears of it once.
    """
    run = Run(unit(0, 40))
    run.asks(1), run.asks(2)

    assert [] == run.commits(1, 9)
    assert [(2, TURN, 10)] == run.commits(1, 10)
    assert [] == run.ends(1, 0, 10)
    assert [(1, TAKE, 20)] == run.asks(1)
    assert [(1, TURN, 20)] == run.ends(2, 10, 20)


def test_a_dead_tasks_spans_go_to_the_next_one_that_asks() -> None:
    """
    They are the lowest, so they are given first, with the turn that has come.
    """
    run = Run(unit(0, 40))
    run.asks(1), run.asks(2)

    assert [] == run.said(run.desk.left(1))
    assert [(3, TAKE, 0)] == run.asks(3, seat=1)


def test_a_task_that_waits_for_a_dead_one_comes_for_its_span() -> None:
    """
    Where nobody asks, the run does not stand still: one that waits gives up what it has read, and
    only one.
    """
    run = Run(unit(0, 40), cores=3)
    run.asks(1), run.asks(2), run.asks(3)
    run.waits(2, 10), run.waits(3, 20)

    assert [(3, DROP, 20)] == run.said(run.desk.left(1))
    assert [] == run.waits(2, 10)
    assert [(3, TAKE, 0)] == run.asks(3)
    assert [(4, TAKE, 20)] == run.asks(4, seat=1)


def test_a_task_that_begins_to_wait_for_a_dead_one_comes_for_its_span() -> None:
    """
    It makes no difference whether it waited before or after the other died.
    """
    run = Run(unit(0, 40))
    run.asks(1), run.asks(2)
    run.desk.left(1)

    assert [(2, DROP, 10)] == run.waits(2, 10)


def test_a_task_that_is_run_again_replaces_one_whose_end_nobody_saw() -> None:
    """
    Its machine may be gone without having hung up; what it still says counts for nothing.
    """
    run = Run(unit(0, 40))
    run.asks(1, seat=0)

    assert [(9, TAKE, 0)] == run.asks(9, seat=0)
    assert [] == run.ends(1, 0, 3, StoreError("late", ""))
    assert [(2, TAKE, 10)] == run.asks(2, seat=1)


def test_a_task_that_was_taken_for_dead_takes_nothing_from_the_one_in_its_place() -> None:
    """
    If it lives after all, or what it said last comes late, it gets nothing more; where it waits
    for a turn, it is told that none comes.
    """
    run = Run(unit(0, 40))
    run.asks(2, seat=1), run.asks(1, seat=0)

    assert [(1, DROP, 10), (9, TAKE, 10)] == run.asks(9, seat=0)
    assert [(1, NONE, None)] == run.asks(1, seat=0)
    assert [(1, DROP, 10)] == run.waits(1, 10)
    assert [(9, TURN, 10)] == run.ends(2, 0, 10)


@pytest.mark.parametrize("is_late", [False, True], ids=["it waited before", "it says so late"])
def test_a_task_that_stores_in_its_turn_is_not_called_away(is_late: bool) -> None:
    """
    Where a task dies between its last commit and its report, the next one stores already: two
    would store its span, and each would find that the other had overtaken it.
    """
    run = Run(unit(0, 40))
    run.asks(1), run.asks(2)
    if not is_late:
        run.waits(2, 10)
    assert [(2, TURN, 10)] == run.commits(1, 10)
    if is_late:
        run.waits(2, 10)

    assert [] == run.said(run.desk.left(1))
    assert [(3, TAKE, 0)] == run.asks(3, seat=1)
    assert [(3, TAKE, 20)] == [*run.ends(3, 0, 10), *run.asks(3, seat=1)]


def test_a_span_that_fails_ends_its_partition() -> None:
    """
    The tasks that wait are told, nothing more of it is handed out, and there is one report.
    """
    run = Run(unit(0, 40))
    run.asks(1), run.asks(2)

    assert [(2, DROP, 10)] == run.ends(1, 0, 7, StoreError("full", ""))
    assert [(2, NONE, None)] == run.asks(2)
    (report,) = run.desk.reports()
    assert report.failure is not None
    assert ("store", 7, 40) == (report.failure.code, report.committed, report.end)


def test_the_reports_of_all_spans_become_one() -> None:
    """
    It is that of the last one, which counts what the run has done in the partition.
    """
    run = Run(unit(0, 20))
    run.asks(1), run.asks(2)
    run.ends(1, 0, 10), run.ends(2, 10, 20)

    (report,) = run.desk.reports()

    assert (20, 20, 20, None) == (
        report.end, report.committed, report.done.records, report.failure,
    )  # fmt: skip


def test_a_partition_that_is_not_done_is_never_reported_as_done() -> None:
    """
    Where tasks left without a failure, such as at a stop, the report says that it was stopped;
    where nobody has done anything, there is no report.
    """
    run = Run(unit(0, 20))
    assert [] == run.desk.reports()
    run.asks(1), run.ends(1, 0, 10)
    run.asks(2)
    assert [(2, NONE, None)] == run.tells(2, Leaves())

    (report,) = run.desk.reports()

    assert report.failure is not None
    assert (StoppedError.code, 10) == (report.failure.code, report.committed)


def test_partitions_share_the_tasks() -> None:
    """
    A task that asks works where the fewest do.
    """
    run = Run(unit(0, 40), unit(0, 30, OTHERS), cores=4)

    given = [to_json(run.desk.heard(who, to_json(Ask(who)))[0][1]) for who in range(4)]

    assert ["orders", "others", "orders", "others"] == [each["topic"] for each in given]
