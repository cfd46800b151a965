"""A defect that is put back is found, and within how many scripts of what can meet it."""

from random import Random

import pytest

from tests.simulation.mixed_play import MixedPlay
from tests.simulation.mixed_script import mixture_of
from tests.simulation.planted import MIXED, PLANTED
from tests.simulation.play import Play
from tests.simulation.script import Shape, Step
from tests.simulation.test_mixtures import GATE

TOPICS = dict.fromkeys(("A2", "A8"), (("alpha", 1), ("beta", 1)))
STEPS = {
    "A1": "produce sink restore set_group_back produce sink restore",
    "A2": "produce sink merge",
    "A3": "produce sink restore empty_target restore",
    "A6": "produce sink set_group_back produce sink_slow produce sink sink",
    "A7": "produce sink sink",
    "A8": f"produce sink {'one_of_many ' * 40} delete_object verify",
}
WITHIN = {"A1": 200, "A2": 20, "A3": 20, "A6": 60, "A7": 300, "A8": 20}
"""Scripts after which it has been found."""

FOUND = {
    "A1": 10, "A2": 5, "A3": 2, "A6": 4, "A7": 129, "A8": 0,
    "1": 15, "2": 24, "3": 80, "4": 146, "5": 15, "6": 22, "7": 6, "8": 36, "9": 129, "10": 48,
    "25": 15, "26": 11, "28": 22,
}  # fmt: skip
"""The first that found it, which is tried before the others: most of them find nothing."""


def finds(name: str, number: int) -> bool:
    """Whether a script breaks a promise."""
    rng = Random(f"{name} {number}")
    shape = Shape(TOPICS.get(name, (("alpha", 1),)), rng.choice((3, 50)))
    kinds = [kind.replace("_", " ") for kind in STEPS[name].split()]
    steps = [Step(kind, rng.randrange(10**6)) for kind in kinds]
    return bool(Play(shape).run(steps).violations)


@pytest.mark.parametrize("name", PLANTED)
def test_a_defect_that_is_put_back_is_found(name: str) -> None:
    """Each known defect, put back on purpose, is found by the simulation."""
    with PLANTED[name]():
        found = next((n for n in (FOUND[name], *range(WITHIN[name])) if finds(name, n)), None)

    assert found is not None
    assert not finds(name, found)


def breaks(number: int) -> bool:
    """Whether a mixture shows something wrong."""
    mixture, steps = mixture_of(number)
    return bool(MixedPlay(mixture).run(steps).broken)


@pytest.mark.parametrize("name", MIXED)
def test_a_defect_of_mixtures_that_is_put_back_is_found(name: str) -> None:
    """Each known defect of several layouts, formats, groups or hosts is found by the mixtures."""
    with MIXED[name]():
        found = next((number for number in (FOUND[name], *range(GATE)) if breaks(number)), None)

    assert found is not None
    assert not breaks(found)
