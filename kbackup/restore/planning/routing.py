"""Which topics records go to where transforms choose one for each: plain data."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Final, Self

from kbackup.catalog.listing import frozen
from kbackup.config import Settings
from kbackup.errors import ConfigurationError, Failure, RefusedError
from kbackup.naming.renaming import rename
from kbackup.records import TopicPartition
from kbackup.restore.job import RestoreUnit
from kbackup.restore.planning.inventory import Inventory
from kbackup.runs import wiring
from kbackup.runs.position import BackupSource, CommitMetadata, Cursor, Mark
from kbackup.stores import Store


def to_survey(settings: Settings, inventory: Inventory, topics: Sequence[str]) -> list[RestoreUnit]:
    """Return all that is asked for, a unit a partition; nothing of it is to be written.

    Args:
        settings: The configuration.
        inventory: What it holds.
        topics: Of which topics.

    Raises:
        ConfigurationError: If schemas are to be registered: their subjects are not known yet.
    """
    if wiring.schema_registry(settings) is not None:
        raise ConfigurationError(
            "schemas cannot be registered where a transform chooses a topic for each record",
            "their subjects are named after topics, which are known once the records are read",
            "leave the Schema Registry out: records keep the ids of their schemas",
        )
    window, units = wiring.window(settings), list[RestoreUnit]()
    inventory.look_at(topics)
    for name in topics:
        wheres = inventory.wanted(name)
        chosen = {where: inventory.covered(where).sets for where in wheres}
        if not window.is_everything:
            chosen = {
                where: [files for files in sets if window.takes(files, inventory.facts(files))]
                for where, sets in chosen.items()
            }
        for where, sets in chosen.items():
            source = BackupSource(wiring.backup_id(settings), where, inventory.identity(where))
            bookmark = CommitMetadata(Mark(source, "", None, Cursor(0, 0)))
            at = TopicPartition(name, where.partition)
            seen = routed_from(settings, name)
            units.append(RestoreUnit(at, tuple(sets), bookmark, window=window, routed_from=seen))
    return units


def check_archived(store: Store, units: Iterable[RestoreUnit]) -> None:
    """Check that what is to be read can be read; units of one topic come together.

    Raises:
        RefusedError: If some of it is archived.
        StoreError: If the store does not answer.
    """
    for name, its in groupby(units, lambda unit: unit.source.topic):
        files = (file for unit in its for one in unit.sets for file in one.files)
        for refusal in frozen(store, files).refusals(name, name):
            raise refusal


def routed_from(settings: Settings, name: str) -> str:
    """Return the name of a topic that transforms see which choose a topic for each record.

    ``RegexRouter`` is one of them; ``--rename`` takes its place, and comes before them.
    """
    return name if settings.rename is None else rename(name, settings.renames)


TOPICS_MOST: Final = 10_000
"""Topics that the records of one may go to; more are a mistake, such as a topic for each order."""


@dataclass(frozen=True, slots=True)
class RoutedRecords:
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


NOTHING: Final = RoutedRecords(0, 0, None, frozenset())


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
    shares: Mapping[str, RoutedRecords] = field(default_factory=dict)
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

    found: Mapping[TopicPartition, Mapping[str, RoutedRecords]] = field(default_factory=dict)
    _by_target: dict[str, dict[str, list[RoutedRecords]]] = field(
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

    def of(self, where: TopicPartition, target: str) -> RoutedRecords:
        """Return what goes from a partition to a topic; it may be nothing."""
        return self.found.get(where, {}).get(target, NOTHING)

    def of_target(self, topic: str, target: str) -> list[RoutedRecords]:
        """Return what goes from one topic to another, of all partitions."""
        return self._by_target.get(topic, {}).get(target, [])

    def oldest(self, topic: str, target: str) -> int | None:
        """Return the lowest timestamp of what goes from one topic to another."""
        times = [share.oldest for share in self.of_target(topic, target)]
        return min((time for time in times if time is not None), default=None)


def with_home(shares: Mapping[str, RoutedRecords]) -> dict[str, RoutedRecords]:
    """Return the shares of a partition, of which one counts what has no topic.

    It is the same one in every run: that of the first record that has a topic.
    """
    found = dict(shares)
    if found and not any(share.counts_rest for share in found.values()):
        home = min(found, key=lambda name: (found[name].first, name))
        found[home] = replace(found[home], counts_rest=True)
    return found


def added(before: RoutedRecords, more: RoutedRecords) -> RoutedRecords:
    """Return what goes to a topic from objects of which some were read before."""
    times = [time for time in (before.oldest, more.oldest) if time is not None]
    return RoutedRecords(
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
