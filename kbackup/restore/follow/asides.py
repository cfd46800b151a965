"""What a restore that follows has set aside because it failed, and when each is tried again.

Nothing here reads a clock or talks to anybody.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from kbackup.errors import Failure
from kbackup.records import TopicPartition
from kbackup.runs.pauses import growing_s

LONGEST_PAUSE_S: Final = 300.0
"""The longest pause after a fault that passes, as those of Kafka and the store do."""

LONGEST_RARE_PAUSE_S: Final = 3600.0
"""The longest after any other: a person has to mend it."""

_PASSING: Final = frozenset({5, 6})
"""Exit codes of faults that pass: Kafka's, a registry's and the store's."""

Subject = str | TopicPartition
"""What is set aside: a topic of the backup, one of its partitions, or `BUCKET`."""

BUCKET: Final = ""
"""What is set aside where the bucket cannot be listed, or the cluster not be asked."""


@dataclass(frozen=True, slots=True)
class _Aside:
    failures: tuple[Failure, ...]
    count: int
    until: float


@dataclass(slots=True)
class Asides:
    """What is set aside.

    Attributes:
        first_s: The first pause, in seconds.
    """

    first_s: float
    _held: dict[Subject, _Aside] = field(default_factory=dict)

    def add(self, place: Subject, failures: Sequence[Failure], now: float, jitter: float) -> bool:
        """Set *place* aside, for longer where it has failed before; return whether that is news.

        Args:
            place: What has failed.
            failures: What it failed with; one or more.
            now: By the monotonic clock.
            jitter: 0 to 1, as `growing_s` takes it.
        """
        before = self._held.get(place)
        count = 1 if before is None else before.count + 1
        passes = all(failure.exit_code in _PASSING for failure in failures)
        longest_s = max(self.first_s, LONGEST_PAUSE_S if passes else LONGEST_RARE_PAUSE_S)
        pause_s = growing_s(count, self.first_s, longest_s, jitter)
        self._held[place] = _Aside(tuple(failures), count, now + pause_s)
        return before is None or _codes(before.failures) != _codes(failures)

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


def _codes(failures: Sequence[Failure]) -> list[str]:
    return [failure.code for failure in failures]
