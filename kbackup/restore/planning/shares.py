"""Which topics records go to where transforms choose one for each: plain data, made by `survey`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final, Self

from kbackup.errors import Failure, RefusedError
from kbackup.records import TopicPartition

TOPICS_MOST: Final = 10_000
"""Topics that the records of one may go to; more are a mistake, such as a topic for each order."""


@dataclass(frozen=True, slots=True)
class Share:
    """The records of one partition of a backup that go to one topic.

    Attributes:
        records: How many.
        first: The offset of the first one.
        oldest: Their lowest timestamp, ms since the epoch; None where none has one.
        sets: The sets that hold them.
        counts_rest: What has no topic is counted with them.
    """

    records: int
    first: int
    oldest: int | None
    sets: frozenset[str]
    counts_rest: bool = False


NOTHING: Final = Share(0, 0, None, frozenset())


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What reading one partition of a backup has shown: the report of a task.

    Attributes:
        where: The partition.
        shares: What goes to each topic.
        bad_records: Records that have no topic, where no record has one: else the writing tasks
            count them.
        bad_objects: Objects that cannot be read, likewise.
        skipped: What is wrong with the first of either.
        failure: What kept the task from finding out; None if nothing has.
    """

    where: TopicPartition
    shares: Mapping[str, Share] = field(default_factory=dict)
    bad_records: int = 0
    bad_objects: int = 0
    skipped: tuple[Failure, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Shares:
    """Where the records of a backup go.

    Attributes:
        found: By partition of the backup and topic.
    """

    found: Mapping[TopicPartition, Mapping[str, Share]] = field(default_factory=dict)
    _by_target: dict[str, dict[str, list[Share]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    _targets: dict[str, tuple[str, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        pairs = (
            (at.topic, target, share)
            for at, shares in self.found.items()
            for target, share in shares.items()
        )
        for topic, target, share in sorted(pairs, key=itemgetter(0, 1)):
            self._by_target.setdefault(topic, {}).setdefault(target, []).append(share)
        self._targets.update((topic, tuple(found)) for topic, found in self._by_target.items())

    @classmethod
    def of_reports(cls, reports: Iterable[Surveyed]) -> Self:
        """Return what tasks have found.

        Raises:
            RefusedError: If the records of one topic would go to more than `TOPICS_MOST`.
        """
        found = cls({report.where: with_home(report.shares) for report in reports})
        for topic in {where.topic for where in found.found}:
            check(topic, len(found.targets(topic)))
        return found

    def targets(self, topic: str) -> tuple[str, ...]:
        """Return the topics that records of *topic* go to, by name; the plan of each asks."""
        return self._targets.get(topic, ())

    def of(self, where: TopicPartition, target: str) -> Share:
        """Return what goes from a partition to a topic; it may be nothing."""
        return self.found.get(where, {}).get(target, NOTHING)

    def of_target(self, topic: str, target: str) -> list[Share]:
        """Return what goes from one topic to another, of all partitions."""
        return self._by_target.get(topic, {}).get(target, [])

    def oldest(self, topic: str, target: str) -> int | None:
        """Return the lowest timestamp of what goes from one topic to another."""
        times = [share.oldest for share in self.of_target(topic, target)]
        return min((time for time in times if time is not None), default=None)


def with_home(shares: Mapping[str, Share]) -> dict[str, Share]:
    """Return the shares of a partition, of which one counts what has no topic.

    It is the same one in every run: that of the first record that has a topic.
    """
    found = dict(shares)
    if found and not any(share.counts_rest for share in found.values()):
        home = min(found, key=lambda name: (found[name].first, name))
        found[home] = replace(found[home], counts_rest=True)
    return found


def added(before: Share, more: Share) -> Share:
    """Return what goes to a topic from objects of which some were read before."""
    times = [time for time in (before.oldest, more.oldest) if time is not None]
    return Share(
        before.records + more.records,
        min(before.first, more.first),
        min(times, default=None),
        before.sets | more.sets,
        before.counts_rest,
    )


def check(topic: str, count: int) -> None:
    """Refuse more than `TOPICS_MOST` topics for the records of one."""
    if count > TOPICS_MOST:
        raise RefusedError(
            f"the records of {topic} would go to more than {TOPICS_MOST} topics",
            "the transforms choose a topic by something that differs from record to record",
            "choose a field with fewer values, or a longer stretch of time",
            topic=topic,
        )
