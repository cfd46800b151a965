"""A script of steps, made from a number.

Each step draws from a number of its own, so a step can be left out and the others stay as they
are: that is how a history that breaks a promise is made small.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Final

TOPICS = ("alpha", "beta")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens, and the number its dice begin with."""

    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}#{self.seed}"


@dataclass(frozen=True, slots=True)
class Shape:
    """What stays the same throughout a script."""

    topics: tuple[tuple[str, int], ...]  # what is backed up, with the number of partitions
    flush_size: int  # records a file
    flush_on_stop: bool = True  # whether a run closes its last short file
    exactly_once: bool = True  # how a restore writes
    # one group for sink and restore, as some operators set it; None for one each
    group: str | None = None
    # over how many directories records are spread, by their timestamps; 0: by partition
    hours: int = 0
    timestamp_type: int = 1  # who sets timestamps: 1 the producer, 2 the broker
    values_only: bool = False  # whether objects hold values alone, as the connectors' do
    # whether restores choose partitions by a map, which gives each partition of the backup a group
    # of its own
    is_mapped: bool = False
    is_keyed: bool = False  # whether that map goes by the records' keys
    # whether sinks leave out, by a transform, the records that have a header ``h``
    leaves_out: bool = False
    is_routed: bool = False  # whether sinks store topics under other names
    # whether records without a value are dead letters; only with *values_only*
    has_letters: bool = False
    # whether the clocks of hosts are a day apart; what is said of times is not judged
    is_apart: bool = False
    # of how many sinks one stores batches as they are; 0: none does
    in_batches: int = 0


HOSTS: Final = (timedelta(), timedelta(days=1), timedelta(days=-1))
"""By how much their clocks are wrong."""

WEIGHTS = {
    "produce": 26, "sink": 24, "sink unsaid": 2, "sink slow": 2, "restore": 12, "verify": 5,
    "expire": 4, "compact": 2,
    "recreate": 1, "set group back": 2, "set group ahead": 1, "forget group": 3,
    "empty target": 2, "empty target in part": 1, "recreate target": 1, "delete object": 1,
    "copy object": 1, "two at once": 5, "add partition": 1, "merge": 2, "idle": 2,
    "forget restore": 1,
}  # fmt: skip


def script_of(seed: int) -> tuple[Shape, list[Step]]:
    """The script that a number stands for."""
    rng = Random(f"script {seed}")
    topics = TOPICS[: rng.choice((1, 1, 2))]
    shape = Shape(
        tuple((name, rng.choice((1, 1, 2))) for name in topics),
        rng.choice((1, 2, 3, 4, 5, 6, 50)),
        flush_on_stop=rng.random() < 0.8,
        exactly_once=rng.random() < 0.85,
        group="mine" if rng.random() < 0.08 else None,
    )
    kinds = rng.choices([*WEIGHTS], [*WEIGHTS.values()], k=rng.randint(5, 14))
    steps = [Step(kind, rng.randrange(10**6)) for kind in ["produce", "sink", *kinds, "final"]]
    return _varied(seed, shape, steps)


def _varied(seed: int, shape: Shape, steps: list[Step]) -> tuple[Shape, list[Step]]:
    """Give a script what came to the simulation later; most of each stays as it was."""
    rng = Random(f"more of script {seed}")
    if rng.random() < 0.25:
        shape = replace(shape, hours=rng.choice((2, 3)))
    if rng.random() < 0.15:
        shape = replace(shape, timestamp_type=2)
    if Random(f"layout of script {seed}").random() < 0.15:
        shape = replace(shape, values_only=True)
    if Random(f"map of script {seed}").random() < 0.06:
        shape = replace(shape, is_mapped=True)
    chances = Random(f"transforms of script {seed}")
    shape = replace(
        shape,
        leaves_out=chances.random() < 0.1,
        is_routed=chances.random() < 0.1,
        is_keyed=chances.random() < 0.06 and not (shape.is_mapped or shape.values_only),
        has_letters=chances.random() < 0.4 and shape.values_only,
    )
    shape = replace(shape, is_apart=Random(f"clocks of script {seed}").random() < 0.25)
    spans = Random(f"spans of script {seed}")
    if spans.random() < 0.12:
        shape = replace(shape, flush_size=spans.choice((2, 3, 5)))
    for kind, chance in {"follow": 0.35, "three at once": 0.12, "status": 0.5}.items():
        if rng.random() < chance:
            at = rng.randint(2, len(steps) - 1)
            steps = [*steps[:at], Step(kind, rng.randrange(10**6)), *steps[at:]]
    standby = Random(f"standby of script {seed}")
    if standby.random() < 0.05:
        at = standby.randint(2, len(steps) - 1)
        steps = [*steps[:at], Step("standby", standby.randrange(10**6)), *steps[at:]]
    return shape, steps


def long_script_of(seed: int, runs: int = 1000) -> tuple[Shape, list[Step]]:
    """A year: as `script_of`, with many runs in the middle."""
    rng = Random(f"long script {seed}")
    shape, steps = script_of(seed)
    shape = replace(shape, topics=(("alpha", 1), ("beta", 1)))
    year = [Step("one of many", rng.randrange(10**6)) for _ in range(runs)]
    return shape, [*steps[:-1], *year, *script_of(seed + 1)[1]]
