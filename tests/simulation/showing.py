"""What to print of a history that breaks a promise: the fewest steps that still do, and the end."""

from collections.abc import Sequence
from time import monotonic

from tests.simulation.events import Begun, Ended, Event, Produced, Stored, TargetShows, Touched
from tests.simulation.play import Play
from tests.simulation.script import Shape, Step

_TRIES_S = 20.0
_SHOWN = 40


def smallest(shape: Shape, steps: Sequence[Step], promise: str) -> list[Step]:
    """Return as few of *steps* as still break *promise*; what is found in a minute."""
    kept, width = list(steps), max(1, len(steps) // 2)
    deadline = monotonic() + _TRIES_S
    while True:
        at = 0
        while at < len(kept) and monotonic() < deadline:
            fewer = kept[:at] + kept[at + width :]
            broken = Play(shape).run(fewer).violations if fewer else []
            if broken and broken[0][1].promise == promise:
                kept = fewer
            else:
                at += width
        if width == 1 or monotonic() >= deadline:
            return kept
        width //= 2


def described(seed: int, shape: Shape, steps: Sequence[Step]) -> str:
    """Return how to see a broken promise again, and the smallest history of it."""
    promise = Play(shape).run(steps).violations[0][1].promise
    small = smallest(shape, steps, promise)
    play = Play(shape).run(small)
    lines = [
        f"seed {seed} breaks a promise; again: pytest tests/simulation --seed {seed}",
        f"{shape}",
        f"steps: {', '.join(map(str, small))}",
        *(
            line(event)
            for event in play.history[-_SHOWN:]
            if not isinstance(event, Begun | Touched)
        ),
        *(f"BROKEN {violation}" for _, violation in play.violations),
    ]
    return "\n".join(text[:600] for text in lines)


def line(event: Event) -> str:
    """An event in one line."""
    match event:
        case Stored():
            offsets = None if event.rows is None else [row.offset for row in event.rows]
            return f"stored by {event.by}: {event.key} {offsets}"
        case Produced():
            return f"produced: {event.where} {event.rows[0].offset} to {event.rows[-1].offset}"
        case TargetShows():
            names = [(row.name or b"").decode() for row in event.rows]
            return f"{event.target} shows {names}"
        case Ended():
            return (
                f"{event.kind} ended with {event.code}: {event.text[-300:] if event.code else ''}"
            )
    return str(event)
