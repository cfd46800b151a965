"""A backup that a thousand runs have worked on."""

import pytest

from tests.simulation.nights import tonight
from tests.simulation.script import long_script_of
from tests.simulation.test_seeds import NIGHT, play_one

EVERY = 100
"""One number in this many plays a year."""

YEARS = 1
"""Of which the gate plays so many: a year takes as long as 50 numbers of `test_seeds`."""


@pytest.mark.parametrize("seed", range(0, YEARS * EVERY, EVERY))
def test_the_promises_hold_for_a_year(seed: int, pytestconfig: pytest.Config) -> None:
    """A thousand runs later everything is as true as after the first, at the same price."""
    if pytestconfig.getoption("--seed", None) in (None, seed):
        play_one(seed, *long_script_of(seed))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", tonight(range(YEARS * EVERY, NIGHT, EVERY)))
def test_the_promises_hold_for_more_years(seed: int, pytestconfig: pytest.Config) -> None:
    """The promises hold for fifty times as many."""
    if pytestconfig.getoption("--seed", None) in (None, seed):
        play_one(seed, *long_script_of(seed))
