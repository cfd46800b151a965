"""What an audit takes for a difference."""

import pytest

from kbackup.errors import KafkaError
from kbackup.records import Span, TopicPartition
from kbackup.restore.target import TargetCount, Written, audit

WHERE = TopicPartition("copy", 0)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(Span(0, 62), True, id="records and one marker a transaction"),
        pytest.param(Span(10, 62), True, id="what was there before has been deleted"),
        pytest.param(Span(11, 62), False, id="a written record has been deleted"),
        pytest.param(Span(0, 63), False, id="an aborted transaction, or a stranger"),
        pytest.param(Span(0, 61), False, id="the log was cut back"),
    ],
)
def test_only_a_log_that_moved_as_expected_is_not_counted(after: Span, expected: bool) -> None:
    """A log that grew exactly as expected is not read again."""
    assert expected == Written(WHERE, 50, 2, before=10, after=after, end=after.end_offset).is_plain


def test_only_what_is_still_there_is_counted() -> None:
    """Only records that are still there are counted, from the log's start on."""
    assert Span(30, 62) == Written(WHERE, 50, 2, before=10, after=Span(30, 62), end=62).span


@pytest.mark.parametrize(
    ("counted", "exactly_once", "is_difference", "repeated"),
    [
        pytest.param(50, True, False, (), id="as written"),
        pytest.param(51, True, True, (), id="more"),
        pytest.param(49, True, True, (), id="fewer"),
        pytest.param(51, False, False, ((WHERE, 1),), id="more, without transactions"),
        pytest.param(49, False, True, (), id="fewer, without transactions"),
    ],
)
def test_a_count_that_differs_is_an_error(
    counted: int, exactly_once: bool, is_difference: bool, repeated: tuple[object, ...]
) -> None:
    """Without transactions a task that was tried again may repeat records, which is told."""
    written = [Written(WHERE, 50, 2, before=10, after=Span(0, 70), end=70)]

    found = audit(written, lambda _: [TargetCount(WHERE, counted)], exactly_once=exactly_once)

    assert ("counted", is_difference, repeated) == (found.how, bool(found.issues), found.repeated)


def test_a_partition_that_was_not_counted_is_no_difference() -> None:
    """A partition that could not be counted is reported with the reason, not as a difference."""
    written = [Written(WHERE, 50, 2, before=10, after=Span(0, 70), end=70)]
    failure = KafkaError("no broker answers").issue()

    found = audit(written, lambda _: [TargetCount(WHERE, failure=failure)], exactly_once=True)

    assert ("not made", (failure,)) == (found.how, found.issues)


def test_records_behind_an_open_transaction_are_not_called_lost() -> None:
    """Records hidden by another producer's open transaction are reported as such."""
    written = Written(WHERE, 50, 2, before=10, after=Span(0, 10), end=70)

    found = written.difference(0, exactly_once=True)

    assert "open transaction hides" in str(found)


def test_what_is_not_seen_is_not_said_to_be_missing() -> None:
    """A log that is said to end before what was acknowledged is an error of the cluster, exit 5."""
    seen = Written(WHERE, 50, 2, before=10, after=Span(0, 62), end=62)
    old = Written(WHERE, 50, 2, before=10, after=Span(0, 10), end=10)

    assert seen.unseen() is None
    error = old.unseen()

    assert error is not None
    assert ("end_not_seen", 5) == (error.code, error.exit_code)
    assert (True, False) == (seen.is_seen, old.is_seen)
