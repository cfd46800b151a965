"""When a partition is visited, and when it cannot be followed any more."""

import pytest

from kbackup.records import Span, TopicPartition
from kbackup.sink.follow import Look, Watch, changed

WHERE = TopicPartition("orders", 0)


def look(end: int) -> Look:
    """The cluster with a log that ends here."""
    return Look({WHERE: Span(0, end)})


NONE = Look()
GONE = Look(gone=frozenset({"orders"}))


@pytest.mark.parametrize(
    ("before", "now", "code"),
    [
        pytest.param(NONE, look(200), None, id="at first"),
        pytest.param(look(100), look(100), None, id="nothing new"),
        pytest.param(NONE, look(50), None, id="one answer that is behind"),
        pytest.param(look(100), look(50), None, id="one answer that is behind, later"),
        pytest.param(look(50), look(60), "topic_changed", id="cut back"),
        pytest.param(look(100), GONE, None, id="gone for a moment"),
        pytest.param(GONE, GONE, "kafka", id="deleted"),
        pytest.param(look(100), Look(changed=frozenset({"orders"})), "topic_changed", id="anew"),
    ],
)
def test_a_partition_that_cannot_be_followed_says_why(
    before: Look, now: Look, code: str | None
) -> None:
    """
    What one broker's stale answer could look like is believed when it is seen twice.
    """
    error = changed(WHERE, 100, now, before)

    assert code == (None if error is None else error.code)


def test_a_partition_is_visited_when_a_file_is_full_or_a_record_has_waited() -> None:
    """
    Waiting begins with the first record that is seen to wait.
    """
    watch = Watch(position=100, wanted=10)

    due = [
        watch.is_due(100, 0.0, 5.0),
        watch.is_due(103, 1.0, 5.0),
        watch.is_due(103, 5.9, 5.0),
        watch.is_due(103, 6.0, 5.0),
        watch.is_due(110, 6.1, None),
    ]

    assert [False, False, False, True, True] == due
