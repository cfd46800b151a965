"""Where a planned partition's group is set before anything is read."""

from dataclasses import replace

import pytest

from kbackup.kafka import Position
from kbackup.records import Span, TopicPartition
from kbackup.runs.position import Done, SinkPosition
from kbackup.sink.plan import SinkPartitionPlan
from kbackup.sink.start import Evidence, decide

WHERE = TopicPartition("orders", 0)
BOOKMARK = SinkPosition("topics/orders/x", 499, run="r1", done=Done(records=500))
KEPT = BOOKMARK.position(500)


def planned(seen: Evidence) -> SinkPartitionPlan:
    """A partition of which this is known."""
    return SinkPartitionPlan(WHERE, seen, decide(WHERE, seen, reset="earliest"))


@pytest.mark.parametrize("end", [1000, 1500])
def test_the_group_goes_on_behind_what_has_expired(end: int) -> None:
    """A gap is committed whether or not records are left, so the next run does not repeat it."""
    at = planned(Evidence(Span(1000, end), KEPT, True, has_objects=True))
    unit = at.unit()

    assert BOOKMARK.position(1000) == at.position()
    commit_metadata = None if unit is None else unit.commit_metadata
    assert (None if end == 1000 else replace(BOOKMARK, at=1000)) == commit_metadata


def test_a_group_whose_object_is_not_known_is_believed_behind_a_gap() -> None:
    """If the group's offset has expired it is set to the log's start, and claims no object."""
    at = planned(Evidence(Span(1000, 1500), None, stored_to=500, has_objects=True))

    position = at.position()

    assert position is not None
    assert SinkPosition().position(1000) == position


def test_a_group_too_far_ahead_is_set_back() -> None:
    """The bucket's end counts, and what was kept with the offset does not."""
    at = planned(Evidence(Span(0, 1500), Position(900), stored_to=500, has_objects=True))
    unit = at.unit()

    assert Position(500) == at.position()
    assert unit is not None
    assert (500, None) == (unit.span.start_offset, unit.commit_metadata)


def test_a_group_without_an_offset_gets_one_though_nothing_is_new() -> None:
    """The next run then has nothing to warn of; the bucket is still compared with it."""
    at = planned(Evidence(Span(0, 500), None, stored_to=500, has_objects=True))

    assert at.unit() is None
    assert Position(500) == at.position()
    again = planned(Evidence(Span(0, 500), at.position(), stored_to=500, has_objects=True))
    assert again.start is not None
    assert ((), None) == (again.start.warnings, again.position())
    more = planned(Evidence(Span(0, 600), None, stored_to=500, has_objects=True))
    assert more.unit() is not None
    assert more.position() is None


def test_a_group_that_was_set_back_before_the_log_start_is_moved_there() -> None:
    """The group is set forward past expired offsets, so that no later run finds them out again."""
    seen = Evidence(
        Span(1000, 1500), Position(500), stored_to=1500, has_objects=True, kept=(Span(0, 1500),)
    )
    position = planned(seen).position()

    assert position is not None
    assert 1000 == position.offset


def test_a_task_that_follows_learns_what_the_bucket_holds_of_what_it_reads() -> None:
    """What retention takes of it while a group that was set back catches up is no gap."""
    kept = Span(0, 20), Span(40, 100)
    unit = planned(Evidence(Span(0, 150), Position(50), has_objects=True, kept=kept)).followed()

    assert unit is not None
    assert (Span(40, 100),) == unit.kept
