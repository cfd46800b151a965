"""A script of the second family, made from a number."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from tests.simulation.script import Step

_SCHEMAS: Final = {"value_converter": "json", "value_converter_schemas_enable": True}
FORMATS: Final[dict[str, dict[str, Any]]] = {
    "full": {},
    "json": {"format_class": "json"},
    "gzip": {"format_class": "json", "s3_compression_type": "gzip"},
    "bytes": {"format_class": "bytes"},
    "log": {"format_class": "log"},
    "avro": {"format_class": "avro", **_SCHEMAS},
    "parquet": {"format_class": "parquet", **_SCHEMAS},
}
SIDES: Final = ("keys", "headers")
IN_JSON: Final = {f"{name}_format_class": "json" for name in SIDES}
"""What is beside values where all files are compressed, which Avro's are not."""

DIRECTORIES: Final[dict[str, dict[str, Any]]] = {
    "partition": {},
    "hour": {
        "partitioner_class": "hourly", "timestamp_extractor": "record", "locale": "en",
        "timezone": "UTC",
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mixture:
    """What stays the same throughout a script of this family."""

    partitions: int  # of the topic
    formats: tuple[str, ...]  # those that sinks write, by names of `FORMATS`
    directories: tuple[str, ...]  # where they put objects, by names of `DIRECTORIES`
    groups: tuple[str, ...]  # those of sinks
    hours: int  # over how many hours records' times are spread
    is_connected: bool  # whether a connector writes to the same directory
    has_locks: bool  # whether runs take locks
    is_meddled: bool  # whether people change objects and the ledger
    # whether records have keys and headers, which sinks of values store beside them or not
    has_sides: bool = False
    is_raw: bool = False  # whether restores send batches as they are stored, however small
    is_encrypted: bool = False  # whether kbackup encrypts, beside what a connector stores as it is
    is_transformed: bool = False  # whether the connector changes values, and leaves records out

    @property
    def has_schemas(self) -> bool:
        """Whether records bring their schemas, as some formats need it."""
        return not {"avro", "parquet"}.isdisjoint(self.formats)


STEPS: Final = {
    "produce": 24, "abort": 3, "open": 2, "close": 3, "sink": 30, "died": 8, "restore": 6,
    "again": 3, "verify": 3, "two at once": 5, "set back": 4, "set ahead": 3, "put back": 3,
    "forget": 3, "hang": 1, "grow": 2, "later": 1,
}  # fmt: skip
MEDDLING: Final = {
    "lose ledger": 3, "lose metadata": 3, "move copy": 2, "delete": 2, "recreate": 1, "expire": 1,
    "accept": 1, "mend": 6, "refused": 2,
}  # fmt: skip


def mixture_of(seed: int) -> tuple[Mixture, list[Step]]:
    """The script that a number stands for."""
    rng = Random(f"mixture {seed}")
    mixture = Mixture(
        rng.choice((1, 1, 2)),
        tuple(rng.sample(("full", "json", "gzip", "bytes"), rng.choice((1, 2, 2, 3)))),
        ("partition",) if rng.random() < 0.7 else tuple(rng.sample([*DIRECTORIES], 2)),
        ("a", "b")[: rng.choice((1, 2, 2))],
        rng.choice((1, 1, 3)),
        rng.random() < 0.3,
        rng.random() < 0.4,
        rng.random() < 0.5,
    )
    weights = STEPS | (MEDDLING if mixture.is_meddled else {})
    if mixture.is_connected:  # what is aborted leaves gaps, so that a count of rows tells no end
        weights["abort"] = 12
    kinds = rng.choices([*weights], [*weights.values()], k=rng.randint(3, 9))
    first = ["produce", "connect" if mixture.is_connected else "sink"]
    steps = [Step(kind, rng.randrange(10**6)) for kind in [*first, *kinds, "final"]]
    for _ in range(2 if mixture.is_connected else 0):
        at = rng.randint(2, len(steps) - 1)
        steps.insert(at, Step(rng.choice(("connect", "go over")), rng.randrange(10**6)))
    return _varied(seed, mixture, steps)


_LATER: Final = {"follow": 0.1, "standby": 0.1, "only": 0.1}


def _varied(seed: int, mixture: Mixture, steps: list[Step]) -> tuple[Mixture, list[Step]]:
    """Give a mixture what came to this family later; most of each stays as it was."""
    rng = Random(f"more of mixture {seed}")
    formats = list(mixture.formats)
    if rng.random() < 0.33:
        another = rng.choice(("log", "avro", "parquet"))
        if len(formats) > 2 or rng.random() < 0.2:
            formats[rng.randrange(len(formats))] = another
        else:
            formats.append(another)
    mixture = replace(
        mixture,
        formats=tuple(formats),
        has_sides=rng.random() < 0.2,
        is_raw="log" in formats and rng.random() < 0.5,
        is_encrypted=seed % 10 == 3,
    )
    for kind, chance in _LATER.items():
        if rng.random() < chance:
            steps.insert(rng.randint(2, len(steps) - 1), Step(kind, rng.randrange(10**6)))
    return _transformed(seed, mixture, steps)


def _transformed(seed: int, mixture: Mixture, steps: list[Step]) -> tuple[Mixture, list[Step]]:
    """Let some connectors have transforms, and sinks of full records take over from them."""
    rng = Random(f"transforms of mixture {seed}")
    if not mixture.is_connected or rng.random() < 0.5:
        return mixture, steps
    for at in range(rng.randint(1, 2)):
        begin = 2 if not at else rng.randint(3, len(steps) - 1)
        steps.insert(begin, Step("take over", rng.randrange(10**6)))
    return replace(mixture, is_transformed=True), steps
