"""Whatever happens, in whatever order: the promises hold."""

from dataclasses import replace

import pytest

from tests.simulation.nights import tonight
from tests.simulation.play import Play
from tests.simulation.product import KafkaSettings, batches_as_stored
from tests.simulation.script import Shape, Step, script_of
from tests.simulation.showing import described

CHUNK = 50
GATE = 500
NIGHT = 10_000

REMEMBERED = (3_835, 7_153, 7_966, 8_261)
"""Seeds beyond the gate's that a night found to break a promise, and that hold since."""


def play_all(seeds: range) -> None:
    """Play numbers; fail at the first that breaks a promise."""
    for seed in seeds:
        play_one(seed, *script_of(seed))


def play_one(seed: int, shape: Shape, steps: list[Step]) -> None:
    """Play a script; fail with the smallest part of it that breaks a promise."""
    if Play(shape).run(steps).violations:
        pytest.fail(described(seed, shape, steps), pytrace=False)


@pytest.mark.parametrize("first", range(0, GATE, CHUNK))
def test_the_promises_hold(first: int, pytestconfig: pytest.Config) -> None:
    """Nothing is lost or untrue, under kills, lost answers, zombies and what people do."""
    seed = pytestconfig.getoption("--seed", None)
    if seed is None:
        play_all(range(first, first + CHUNK))
    elif first == 0:
        play_all(range(seed, seed + 1))


@pytest.mark.parametrize("seed", REMEMBERED)
def test_the_promises_hold_where_they_once_broke(seed: int) -> None:
    """What a night has found stays found."""
    play_one(seed, *script_of(seed))


@pytest.mark.parametrize(
    "first",
    [
        0,
        *(
            pytest.param(at, marks=pytest.mark.nightly)
            for at in tonight(range(CHUNK, 2 * GATE, CHUNK))
        ),
    ],
)
def test_the_promises_hold_of_batches(first: int) -> None:
    """So they do where each run, or every other, stores batches; restores send them as stored."""
    if why := KafkaSettings("nowhere").without_batches():
        pytest.skip(why)
    for seed in range(first, first + CHUNK):
        shape, steps = script_of(seed)
        plain = replace(
            shape, hours=0, values_only=False, leaves_out=False, has_letters=False,
            in_batches=1 if any(step.kind == "standby" for step in steps) else 2,
        )  # fmt: skip
        with batches_as_stored():
            play_one(seed, plain, steps)


@pytest.mark.nightly
@pytest.mark.parametrize("first", tonight(range(GATE, NIGHT, CHUNK)))
def test_the_promises_hold_for_longer(first: int) -> None:
    """The promises hold for twenty times as many seeds."""
    play_all(range(first, first + CHUNK))
