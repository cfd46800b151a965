"""While the oldest objects go, nothing else does, and nothing looks lost."""

import pytest

from tests.simulation.expiring import ExpiringPlay, expiring_of
from tests.simulation.nights import tonight
from tests.simulation.showing import line

CHUNK = 25
GATE = 25
NIGHT = 2_000


def play_all(seeds: range) -> int:
    """Play numbers; fail at the first that shows something wrong; return what was deleted."""
    deleted = 0
    for seed in seeds:
        shape, steps = expiring_of(seed)
        play = ExpiringPlay(shape).play(steps)
        deleted += len(play.deleted)
        if play.broken:
            shown = [line(event)[:600] for event in play.history]
            text = [f"expiring {seed}: {shape}", *shown[-200:], *play.broken]
            pytest.fail("\n".join(text), pytrace=False)
    return deleted


@pytest.mark.parametrize("first", range(0, GATE, CHUNK))
def test_what_has_had_its_time_goes_and_nothing_else(first: int) -> None:
    """Killed anywhere, beside sinks, restores without a lock, and rules of the bucket."""
    assert play_all(range(first, first + CHUNK)) > CHUNK


@pytest.mark.nightly
@pytest.mark.parametrize("first", tonight(range(GATE, NIGHT, CHUNK)))
def test_what_has_had_its_time_goes_for_longer(first: int) -> None:
    """So it is for eighty times as many."""
    play_all(range(first, first + CHUNK))
