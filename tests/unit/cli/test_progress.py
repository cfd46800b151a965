from typing import Any

import pytest

from kbackup.cli.progress import ProgressTable
from kbackup.events import Planned
from tests.support.ended import progress as news
from tests.support.ended import row


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def planned(**fields: Any) -> tuple[Clock, ProgressTable]:
    """Return the progress of a run that has planned one partition, and its clock."""
    progress = ProgressTable(clock := Clock())
    progress.tell(Planned([row(**{"start": 0, "committed": 0} | fields)]))
    return clock, progress


def test_progress_is_of_this_run() -> None:
    """A run that continues at offset 900 of 1000 starts at 0 %, not at 90 %."""
    _, progress = planned(start=900, end=1000, committed=900)

    before = progress.rows()[0].fraction
    progress.tell(news(committed=950, end=1000))

    assert (0.0, 0.5) == (before, progress.rows()[0].fraction)


@pytest.mark.parametrize(
    ("fields", "fraction", "is_done"),
    [
        pytest.param({"end": 10, "committed": None}, 0.0, False, id="not begun"),
        pytest.param({"end": 10, "committed": 10}, 1.0, True, id="done"),
        pytest.param({"start": 7, "end": 7, "committed": 7}, 1.0, True, id="nothing to do"),
        pytest.param({"end": None, "committed": 10}, None, False, id="no end"),
        pytest.param({"end": 10, "committed": 0}, 0.0, False, id="offset 0"),
        pytest.param(
            {"committed": 5, "planned_objects": 4, "objects": 1}, 0.25, False, id="by objects"
        ),
    ],
)
def test_how_far_a_partition_is(
    fields: dict[str, Any], fraction: float | None, is_done: bool
) -> None:
    """100 % is shown only when everything is safe, and no percentage is shown without an end."""
    _, progress = planned(**fields)

    (found,) = progress.rows()

    assert (fraction, is_done) == (found.fraction, found.is_done)


def test_the_rate_forgets() -> None:
    """The rate is that of the last seconds, so a run that hangs is seen to hang."""
    clock, progress = planned(end=10**6)
    for _ in range(20):
        clock.now += 1
        done = int(clock.now - 100) * 1000
        progress.tell(news(committed=done, end=10**6, records=done))

    while_moving = progress.totals().records_per_s
    clock.now += 60

    assert (1000.0, 0.0) == (while_moving, progress.totals().records_per_s)


def test_time_left_follows_from_what_is_safe() -> None:
    """The estimate counts committed offsets, in all partitions."""
    clock = Clock()
    progress = ProgressTable(clock)
    rows = [row(start=0, end=1000, committed=0), row(partition=1, start=0, end=3000)]
    progress.tell(Planned(rows))
    progress.tell(news(partition=1, committed=1, records=1))
    clock.now += 10
    progress.tell(news(committed=1000, end=1000, records=1000))
    progress.tell(news(partition=1, committed=1001, records=1001))

    totals = progress.totals()

    assert (2, 1, 2001, 19.99) == (totals.partitions, totals.done, totals.records, totals.left_s)


def test_what_is_read_and_not_safe_yet_moves_the_rate_and_not_the_bar() -> None:
    """While a first file is being filled, the run shows progress and the time left."""
    clock, progress = planned(end=20_000)
    for _ in range(14):
        clock.now += 1
        waiting = int(clock.now - 100) * 1000
        progress.tell(news(committed=0, records=0, open=waiting))

    (found,), totals = progress.rows(), progress.totals()

    assert (0.0, 1000.0) == (found.fraction, found.rates(clock.now)[0])
    assert (0, 1000.0, 6.0) == (totals.records, totals.records_per_s, totals.left_s)


def test_a_file_that_becomes_safe_does_not_move_the_rate() -> None:
    """A commit moves records from read to safe without changing the rate."""
    clock, progress = planned(end=9000)
    clock.now += 1
    progress.tell(news(committed=0, records=0, open=1000))
    clock.now += 1
    progress.tell(news(committed=1000, records=1000, open=0))

    assert 500.0 == progress.totals().records_per_s


def test_a_restore_by_objects_shows_what_was_sent() -> None:
    """Records that are not acknowledged yet move the rate; objects alone tell how much is left."""
    clock, progress = planned(planned_objects=4)
    clock.now += 2
    progress.tell(news(objects=1, records=100, open=100))
    clock.now += 10
    progress.tell(news(objects=2, records=1100, open=100))

    totals = progress.totals()

    assert (100.0, 20.0) == (totals.records_per_s, totals.left_s)


def test_a_time_to_go_that_cannot_be_known_yet_is_not_told() -> None:
    """The first record of a slow start said ~49 hours of a run of seconds; later it is told."""
    clock, progress = planned(end=100_000)
    found = {}
    for seconds, committed in ((2, 1), (11, 2), (13, 3), (14, 10_000), (24, 50_000)):
        clock.now = 100 + seconds
        progress.tell(news(committed=committed, end=100_000, records=committed))
        found[seconds] = progress.totals().left_s

    assert {2: None, 11: None, 13: None, 14: 108.0, 24: 12.5} == {
        at: None if left is None else round(left, 1) for at, left in found.items()
    }


def test_without_an_end_nothing_is_estimated() -> None:
    """A run that follows never says when it will be done."""
    clock = Clock()
    progress = ProgressTable(clock)
    for committed in (0, 500):
        clock.now += 1
        progress.tell(news(committed=committed, records=committed))

    assert None is progress.totals().left_s
