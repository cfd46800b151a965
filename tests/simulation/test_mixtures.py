"""Whatever is mixed over the same offsets: nothing is lost, doubled or called sound that is not."""

from collections import Counter

import pytest

from tests.simulation.mixed_play import MixedPlay
from tests.simulation.mixed_script import mixture_of
from tests.simulation.showing import line

CHUNK = 25
GATE = 500
NIGHT = 5_000

OPEN: frozenset[int] = frozenset()
"""Known to break, and not mended."""


def play_all(seeds: range) -> Counter[int]:
    """Play numbers; fail at the first that shows something wrong; return how restores ended."""
    codes: Counter[int] = Counter()
    for seed in (seed for seed in seeds if seed not in OPEN or len(seeds) == 1):
        mixture, steps = mixture_of(seed)
        play = MixedPlay(mixture).run(steps)
        codes.update(play.restored)
        if play.broken:
            shown = [line(event)[:600] for event in play.history]
            text = [f"mixture {seed}: {mixture}", *shown, *play.broken]
            pytest.fail("\n".join(text), pytrace=False)
    return codes


@pytest.mark.parametrize("first", range(0, GATE, CHUNK))
def test_mixtures_are_restored_or_named(first: int, pytestconfig: pytest.Config) -> None:
    """Whatever has stored over the same offsets, a restore that ends well brings each once."""
    seed = pytestconfig.getoption("--mixture", None)
    if seed is not None:
        play_all(range(seed, seed + 1) if first == 0 else range(0))
        return

    codes = play_all(range(first, first + CHUNK))

    assert codes[0] > codes.total() / 2


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(GATE, NIGHT, CHUNK))
def test_mixtures_are_restored_or_named_for_longer(first: int) -> None:
    """So it is for ten times as many."""
    play_all(range(first, first + CHUNK))
