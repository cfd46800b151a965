"""When what is set aside is tried again."""

import pytest

from kbackup.errors import BadRecordError, KafkaError, KbackupError, NoSpaceError
from kbackup.runs.following import LONGEST_PAUSE_S, LONGEST_RARE_PAUSE_S, Aside, Backoff

PAUSES = Backoff(first_s=1.0, first_rare_s=600.0)


@pytest.mark.parametrize(
    ("errors", "first", "longest"),
    [
        pytest.param([KafkaError("away")], 1.0, LONGEST_PAUSE_S, id="passes"),
        pytest.param([NoSpaceError("full")], 1.0, LONGEST_PAUSE_S, id="a full disk passes"),
        pytest.param([BadRecordError("bad")], 600.0, LONGEST_RARE_PAUSE_S, id="stays"),
        pytest.param(
            [KafkaError("away"), BadRecordError("bad")], 600.0, LONGEST_RARE_PAUSE_S, id="one stays"
        ),
    ],
)
def test_pauses_grow_to_a_limit_and_are_spread(
    errors: list[KbackupError], first: float, longest: float
) -> None:
    """What passes is tried again within seconds, the rest within minutes; neither is hammered."""
    failures = [error.issue() for error in errors]
    pauses, aside = [], None
    for _ in range(39):
        aside = PAUSES.aside(aside, failures, 100.0, 0.0)
        pauses.append(aside.until - 100.0)

    assert (first, 2 * first, longest) == (pauses[0], pauses[1], pauses[-1])
    assert pauses == sorted(pauses)
    assert pauses[0] / 2 == PAUSES.aside(None, failures, 0.0, 1.0).until


def test_an_interval_beyond_the_longest_pause_is_the_pause() -> None:
    """Who lists the bucket once in an hour does not try more often what has failed."""
    hourly = Backoff(first_s=7200.0, first_rare_s=7200.0)
    failures = (KafkaError("away").issue(),)

    assert 7200.0 == hourly.aside(Aside(failures, 5, 0.0), failures, 0.0, 0.0).until
