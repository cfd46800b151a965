"""Follow: take one turn after the other until asked to stop, and set aside what fails meanwhile.

What fails is tried again after a pause, so that the rest goes on.  A fault that passes, as of Kafka
or the store, may be over in a moment; any other, as of a record that cannot be stored, will still
be there: a person has to mend it.  Nothing here talks to a server.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from kbackup.clock import Clock
from kbackup.errors import Issue, NoSpaceError
from kbackup.events import Warned
from kbackup.kafka import LogStartMovedError
from kbackup.records import TopicPartition

LONGEST_PAUSE_S: Final = 300.0
"""The longest pause after a fault that passes."""

LONGEST_RARE_PAUSE_S: Final = 3600.0
"""The longest after any other."""

_PASSING_EXITS: Final = frozenset({5, 6})
"""Exit codes of faults that pass: Kafka's, a registry's and the store's."""

_PASSING: Final = frozenset({NoSpaceError.code, LogStartMovedError.code})

_DOUBLINGS_MAX: Final = 16

Subject = str | TopicPartition
"""What is set aside: a topic, a partition, or all there is, which is an empty text."""


def turns(
    is_stopped: Callable[[], bool], wait: Callable[[float], bool], clock: Clock, every_s: float
) -> Iterator[int]:
    """Yield the number of each turn, from 0, until asked to stop.

    From the beginning of one to that of the next are *every_s*, unless it takes longer.
    """
    for number in count():
        if is_stopped():
            return
        began = clock.steady_s()
        yield number
        wait(max(0.0, every_s - (clock.steady_s() - began)))


def is_passing(failure: Issue) -> bool:
    """Whether a fault may be over without anybody's doing."""
    return failure.exit_code in _PASSING_EXITS or failure.code in _PASSING


@dataclass(frozen=True, slots=True)
class Aside:
    """Why something is set aside, and until when.

    Attributes:
        until: When to try again, by the monotonic clock.
    """

    failures: tuple[Issue, ...]
    tries: int
    until: float

    @property
    def is_passing(self) -> bool:
        """Whether all of that may be over without anybody's doing."""
        return all(map(is_passing, self.failures))


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long what fails is left alone: each pause in a row is twice the last.

    The first is *first_s* after a fault that passes, and *first_rare_s* after any other.
    """

    first_s: float
    first_rare_s: float

    def aside(
        self, before: Aside | None, failures: Sequence[Issue], now: float, jitter: float
    ) -> Aside:
        """Return what is set aside for longer where it was *before*.

        Args:
            now: By the monotonic clock.
            jitter: 0 to 1; spreads what failed together over half the pause.
        """
        tries = 1 if before is None else before.tries + 1
        found = Aside(tuple(failures), tries, now)
        first, longest = self.first_rare_s, LONGEST_RARE_PAUSE_S
        if found.is_passing:
            first, longest = self.first_s, LONGEST_PAUSE_S
        pause_s = min(max(first, longest), first * 2.0 ** min(tries - 1, _DOUBLINGS_MAX))
        return Aside(found.failures, tries, now + pause_s * (1 - jitter / 2))


@dataclass(slots=True)
class Asides:
    """All that is set aside."""

    pauses: Backoff
    _held: dict[Subject, Aside] = field(default_factory=dict)

    def add(self, place: Subject, failures: Sequence[Issue], now: float, jitter: float) -> bool:
        """Set *place* aside; return whether that is news.  As `Backoff.aside`."""
        before = self._held.get(place)
        self._held[place] = self.pauses.aside(before, failures, now, jitter)
        codes = [failure.code for failure in failures]
        return before is None or [failure.code for failure in before.failures] != codes

    def remove(self, place: Subject) -> bool:
        """Take *place* up again; return whether it was set aside."""
        return self._held.pop(place, None) is not None

    def holds(self, place: Subject) -> bool:
        """Whether *place* is set aside."""
        return place in self._held

    def rests(self, place: Subject, now: float) -> bool:
        """Whether *place* is set aside and not to be tried yet."""
        held = self._held.get(place)
        return held is not None and now < held.until

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of *topic* that are set aside."""
        return [at for at in self._held if isinstance(at, TopicPartition) and at.topic == topic]

    def gone(self, topics: Collection[str]) -> list[Subject]:
        """Return what is set aside of topics that are none of *topics* any more."""
        return [at for at in self._held if _topic(at) and _topic(at) not in topics]


def _topic(place: Subject) -> str:
    return place.topic if isinstance(place, TopicPartition) else place


def place_of(place: Subject) -> Mapping[str, Any]:
    """Return where what is set aside happened: `kbackup.errors.KbackupError.place`."""
    if isinstance(place, TopicPartition):
        return place.place
    return {"topic": place} if place else {}


def aside_told(run_of: str, place: Subject, failure: Issue | None, run: str) -> Warned:
    """Return what a ``backup`` or ``restore`` tells of *place*: it is set aside, or goes on."""
    all_of = f"the {run_of}"
    if failure is not None:
        code, text = "set_aside", f"{place or all_of} is set aside: {failure}"
    else:
        code, text = "goes_on", f"{place}: {all_of} goes on" if place else f"{all_of} goes on"
    return Warned(code, text, place_of(place), run=run)
