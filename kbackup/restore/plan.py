"""Plan a restore, with what forbids it; planning changes nothing."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kbackup.catalog.listing import FileSet, frozen
from kbackup.catalog.reading import EVERYTHING, Window
from kbackup.config import Settings
from kbackup.errors import KbackupError, RefusedError
from kbackup.events import PartitionCounts, RestoreTopic, TopicPlanned
from kbackup.kafka import Cluster, Position, Topic
from kbackup.naming import Layout
from kbackup.naming.renaming import rename
from kbackup.records import Span, TopicPartition
from kbackup.restore import checks, settle
from kbackup.restore.checks import (
    PARTITIONS_BELIEVED,
    Intent,
    Target,
    indivisible,
    known_gone,
    not_stored,
    splittable,
    unbelievable,
    unconvertible,
)
from kbackup.restore.inventory import Inventory
from kbackup.restore.job import ORDER, Lane, PartitionMap, RestoreUnit
from kbackup.restore.resume import Log, ResumeState, judge, remaining, united
from kbackup.restore.routing import Shares, routed_from
from kbackup.runs import wiring
from kbackup.runs.known import BackupState
from kbackup.runs.position import BackupSource, CommitMetadata, Cursor, Mark
from kbackup.stores import Store


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """One topic's restore.

    Attributes:
        intent: From where to where.
        target: The target as it stands.
        units: What tasks have to do.
        action: ``create``, ``append``, ``resume``, ``done`` or ``refuse``.
        config: Settings of a topic to create.
        refusals: Why nothing may be written.
        warnings: Codes and sentences.
        objects: Number of objects.
        records: Number of records in them, None if names and run records do not show it.
        stored_bytes: Bytes of the objects.
        partitions: How many the target has, is created with, or is given by this restore.
        beginnings: Where partitions share targets: units of which only the beginning is committed,
            all of them before the first record is written.
    """

    intent: Intent
    target: Target
    units: tuple[RestoreUnit, ...]
    action: str
    config: Mapping[str, str]
    refusals: tuple[KbackupError, ...]
    warnings: tuple[tuple[str, str], ...]
    objects: int
    records: int | None
    stored_bytes: int
    partitions: int
    beginnings: tuple[RestoreUnit, ...] = ()

    @property
    def adds(self) -> bool:
        """Whether records would be added to those of somebody else."""
        return self.action == "append" and self.target.records > 0

    @property
    def grows(self) -> bool:
        """Whether partitions are added to the target."""
        had = self.target.partitions
        return self.action != "refuse" and had is not None and had < self.partitions

    def event(self) -> TopicPlanned:
        """Return the plan's line of this topic."""
        retention_ms = self.config["retention.ms"] if self.action == "create" else None
        return TopicPlanned.of(
            self.intent.source, self.intent.target,
            PartitionCounts(self.intent.partitions, self.target.partitions),
            self.action, self.refusals[0] if self.refusals else None,
            RestoreTopic(self.objects, self.records, self.stored_bytes, retention_ms),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore would do.

    Attributes:
        topics: One entry a topic.
        group: The consumer group that keeps the positions.
        spans: What each target partition holds before the restore.
    """

    topics: tuple[PlannedTopic, ...]
    group: str
    spans: Mapping[TopicPartition, Span]

    @property
    def refusals(self) -> list[KbackupError]:
        """All reasons not to begin; if there is any, nothing runs."""
        return [error for topic in self.topics for error in topic.refusals]

    @property
    def groups(self) -> list[str]:
        """The groups that keep positions: the restore's, or one for each partition of a backup."""
        beginnings = (unit for topic in self.topics for unit in topic.beginnings)
        own = {unit.group for unit in (*self.units(), *beginnings)}
        return sorted(self.group if group is None else group for group in own)

    def units(self) -> list[RestoreUnit]:
        """Return what tasks have to do, the largest share first."""
        units = [unit for topic in self.topics for unit in topic.units]
        return sorted(units, key=lambda unit: unit.size, reverse=True)


def confirm(plan: RestorePlan, agree: Callable[[str], bool] | None, *, is_agreed: bool) -> None:
    """Ask before records are added to topics that have some already.

    Args:
        plan: What is to be done.
        agree: Asks a person; None where nobody can be asked.
        is_agreed: Somebody agreed in advance.

    Raises:
        RefusedError: If nobody agrees.
    """
    added = [topic.intent.target for topic in plan.topics if topic.adds]
    if not added or is_agreed:
        return
    names = ", ".join(added)
    if agree is None or not agree(f"{names}: not empty. Add the backup's records to it?"):
        raise RefusedError(
            f"{names} is not empty, and adding to it was not confirmed",
            "--if-exists append needs a confirmation",
            "--yes confirms in advance",
        )


@dataclass(frozen=True, slots=True)
class Held:
    """The targets that exist.

    Attributes:
        topics: By name.
        spans: What each of their partitions holds, open transactions included.
        positions: The positions of each group in them, whoever committed these.
        configs: Settings, as far as they may be read.
    """

    topics: Mapping[str, Topic]
    spans: Mapping[TopicPartition, Span]
    positions: Mapping[str, Mapping[TopicPartition, Position]]
    configs: Mapping[str, Mapping[str, str]]

    def log(self, where: TopicPartition) -> Log | None:
        """Return a target partition, None where there is none yet."""
        topic, span = self.topics.get(where.topic), self.spans.get(where)
        return None if topic is None or span is None else Log(where, topic.topic_id, span)

    def position(self, group: str, where: TopicPartition) -> Position | None:
        """Return a group's position, None where it has none."""
        return self.positions.get(group, {}).get(where)

    def target(self, name: str, standings: Mapping[TopicPartition, ResumeState]) -> Target:
        """Return a target topic as it stands, each partition of which has one source.

        Args:
            name: The topic.
            standings: Where the restore stands in the partitions that it is to write to.
        """
        if name not in self.topics:
            return Target()
        own = {
            where
            for where, standing in standings.items()
            if standing.bookmark is not None or standing.refusal is not None
        }
        # a partition that someone else fills matters only if this restore is to write to it
        others = (standings.keys() if own else self._spans(name).keys()) - own
        filled = sum(len(self.spans[where]) for where in others if where.topic == name)
        partitions = self.topics[name].partitions
        return Target(partitions, filled, bool(own), self.configs.get(name))

    def shared_target(
        self, name: str, standings: Collection[ResumeState], *, has_written: bool
    ) -> Target:
        """Return a target topic as it stands, whose partitions have several sources.

        A restore commits all of its beginnings before its first record.  So a source without a
        position, once records of others are there, is one whose position was lost: its own
        records may be there too.

        Args:
            name: The topic.
            standings: Where the restore of each partition of the backup stands.
            has_written: Whether any of them has written records.
        """
        if name not in self.topics:
            return Target()
        known = [each.bookmark is not None or each.refusal is not None for each in standings]
        filled = 0
        if not all(known) and (has_written or not any(known)):
            filled = sum(map(len, self._spans(name).values()))
        return Target(self.topics[name].partitions, filled, any(known), self.configs.get(name))

    def _spans(self, name: str) -> dict[TopicPartition, Span]:
        """Return what the partitions of a topic hold that is there."""
        count = self.topics[name].partitions
        wheres = (TopicPartition(name, partition) for partition in range(count))
        return {where: self.spans[where] for where in wheres if where in self.spans}

    def bookmark(
        self, standing: ResumeState, source: BackupSource, where: TopicPartition, first_offset: int
    ) -> CommitMetadata[Mark]:
        """Return the bookmark that a restore continues from, or begins with.

        Args:
            standing: Where the restore stands.
            source: What is restored.
            where: The target partition.
            first_offset: Of the backup.
        """
        log = self.log(where)
        found = standing.bookmark
        if found is None:  # what it writes comes after what the target holds
            end = 0 if log is None else log.span.end_offset
            topic = self.topics.get(where.topic)  # which may lack the partition still
            target_id = "" if topic is None else topic.topic_id
            return CommitMetadata(Mark(source, target_id, Span(end, end), Cursor(0, first_offset)))
        if found.of.log is None and log is not None:  # an early version did not keep it
            return replace(found, of=replace(found.of, log=log.span))
        return found


class Lanes:
    """The partitions of one target, and which of the backup's go to each of them.

    Args:
        topic: The target.
        count: How many partitions it has, or is created with.
        held: What the targets hold.
        partition_map: Which partitions go where.
        sources: What is restored; where partitions share targets, all partitions of the backup.
        layout: How objects are named.

    Attributes:
        count: How many partitions the target has, or is created with.
    """

    def __init__(
        self,
        topic: str,
        count: int,
        held: Held,
        partition_map: PartitionMap,
        sources: Mapping[TopicPartition, BackupSource],
        layout: Layout,
    ) -> None:
        self._topic, self.count = topic, count
        self._held, self._map, self._sources = held, partition_map, sources
        self._found = {where: self._judged(where, layout) for where in sources}
        self._standings = {
            where: united(found) if found else ResumeState() for where, found in self._found.items()
        }

    @property
    def standings(self) -> Collection[ResumeState]:
        """Where the restore of each partition of the backup stands."""
        return self._standings.values()

    def standing(self, where: TopicPartition) -> ResumeState:
        """Return where the restore of a partition of the backup stands."""
        return self._standings[where]

    def target(self) -> Target:
        """Return the target as it stands."""
        found = [each for lanes in self._found.values() for each in lanes.values()]
        if not self._map.is_same:
            has_written = any(each.has_written for each in found)
            return self._held.shared_target(self._topic, self.standings, has_written=has_written)
        return self._held.target(
            self._topic, {at: each for lanes in self._found.values() for at, each in lanes.items()}
        )

    def unit(
        self,
        where: TopicPartition,
        sets: Sequence[FileSet] = (),
        *,
        first_offset: int = 0,
        before: str = "",
        max_message_bytes: int | None = None,
        window: Window = EVERYTHING,
    ) -> RestoreUnit:
        """Return what a task has to do for a partition of the backup.

        Args:
            where: The partition.
            sets: What is left of it.
            first_offset: Of the backup.
            before: Digest of the value sets that are done.
            max_message_bytes: Largest record the target takes; None for what the broker says.
            window: Which of the records are restored.
        """
        group, source = self._map.group_of(where.partition), self._sources[where]
        begins = self._standings[where].bookmark is None
        found = {} if begins else self._found[where]
        home, *others = (
            Lane(
                at,
                self._held.bookmark(found.get(at, ResumeState()), source, at, first_offset),
                self._held.position(group, at),
            )
            for at in self._targets(where)
        )
        return RestoreUnit(
            home.target, tuple(sets), home.bookmark, home.committed, begins, before,
            max_message_bytes, window, None if self._map.is_same else group, tuple(others),
        )  # fmt: skip

    def beginnings(self, units: Collection[RestoreUnit]) -> tuple[RestoreUnit, ...]:
        """Return the beginnings to commit before any record of *units* is written.

        They are those of all partitions that share targets, with objects or without: one that gets
        its first object later has a position then.
        """
        if self._map.is_same or not units:
            return ()
        planned = {unit.source: replace(unit, sets=()) for unit in units}
        return tuple(
            planned[where] if where in planned else self.unit(where)
            for where, standing in self._standings.items()
            if standing.bookmark is None
        )

    def _targets(self, where: TopicPartition) -> list[TopicPartition]:
        return self._map.targets(where, self._topic, self.count)

    def _judged(self, where: TopicPartition, layout: Layout) -> dict[TopicPartition, ResumeState]:
        """Return where one partition's restore stands in each that it writes to and that exists."""
        group = self._map.group_of(where.partition)
        logs = (self._held.log(at) for at in self._targets(where))
        return {
            log.where: judge(
                self._held.position(group, log.where), self._sources[where], log,
                group=group, layout=layout,
            )
            for log in logs
            if log is not None
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """What one partition adds to the plan of its topic.

    Attributes:
        sets: What of the backup is asked for.
        unit: What of it a task has to do; None for nothing.
        records: Records in *sets*; None where that is not known before they are read.
        refusals: Why nothing may be written.
        warnings: Codes and sentences.
    """

    sets: Sequence[FileSet]
    unit: RestoreUnit | None
    records: int | None
    refusals: Sequence[KbackupError]
    warnings: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class PartitionPlanner:
    """Plans partitions one by one.

    Attributes:
        settings: The configuration.
        inventory: What the backup holds.
        window: Which of the records are asked for.
        shares: Which topics the transforms choose, where they choose one for each record.
    """

    settings: Settings
    inventory: Inventory
    window: Window
    shares: Shares | None

    def plan(
        self, where: TopicPartition, target: str, lanes: Lanes, max_message_bytes: int | None
    ) -> PlannedPartition:
        """Return what a partition adds to the plan of one topic.

        Args:
            where: The partition of the backup.
            target: The topic that is written to.
            lanes: Its partitions, and where the restore stands in them.
            max_message_bytes: Largest record that it takes; None for what the broker says.
        """
        facts = self.inventory.facts
        found = self.inventory.covered(where)
        sets = found.sets
        share = None if self.shares is None else self.shares.of(where, target)
        bookmark = lanes.standing(where).bookmark
        mark = None if bookmark is None else bookmark.of
        begun = None if mark is None or mark.total == 0 else mark
        reads_all = share is None or share.counts_rest or (begun is not None and begun.is_all)
        if share is not None and not reads_all:
            sets = self.inventory.among(where, share.sets)
        warnings: list[tuple[str, str]] = []
        refusals = found.refusals()
        if share is None or share.counts_rest:
            warnings += found.warnings()
        records = self.inventory.records(where, sets) if share is None else share.records
        if not self.window.is_everything:
            records = None  # not known before they are read
            refusals += indivisible(where, sets, self.window, facts)
            sets = [files for files in sets if self.window.takes(files, facts(files))]
        own = None if share is None else share.sets
        gone = [] if mark is None or not mark.place.values else self.inventory.removed(where)
        gone = [files for files in gone if self.window.takes(files, facts(files))]
        left = remaining(
            self.inventory.facts_of_begun, sets, mark, self.inventory.cut_of, own, gone
        )
        if left.refusal is not None:
            refusals.append(left.refusal)
        unit = None
        if left.sets:
            unit = lanes.unit(
                where,
                tuple(self.inventory.digested(files) for files in left.sets),
                first_offset=sets[0].start_offset,
                before=left.before,
                max_message_bytes=max_message_bytes,
                window=self.window,
            )
        if unit is not None and share is not None:
            unit = replace(
                unit, routed_from=routed_from(self.settings, where.topic),
                counts_rest=share.counts_rest,
            )  # fmt: skip
            if begun is None:
                unit = unit.reading(is_all=reads_all)
        return PlannedPartition(sets, unit, records, refusals, warnings)


KEPT_CONFIG: Final = ("max.message.bytes", "compression.type")
"""Settings of the source topic that a created target gets.  Not cleanup.policy and retention:
nothing may be deleted before the restore has been looked at."""


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """What a backup says of a topic, beyond its objects.

    Attributes:
        partitions: Their number when it was backed up; 0 where it is not known.
        cluster_id: Of the cluster it was backed up from; empty where it is not known.
        config: Its settings then.
    """

    partitions: int = 0
    cluster_id: str = ""
    config: Mapping[str, str] = field(default_factory=dict)


def source_of(known: BackupState, topic: str) -> SourceTopic:
    """Return what a backup says of a topic, beyond its objects."""
    entry = known.topics.get(topic)
    if entry is None:
        return SourceTopic()
    return SourceTopic(entry.partitions or 0, entry.cluster_id, entry.config)


def config_of_copy(
    source: SourceTopic, given: Mapping[str, str], *, original: bool = False
) -> dict[str, str]:
    """Return settings of a topic to create: nothing restored may be deleted or refused.

    Args:
        source: The topic that was backed up.
        given: The operator's settings, which win.
        original: Take all of the source's settings that can do neither.
    """
    kept = {
        name: value
        for name, value in source.config.items()
        if name in KEPT_CONFIG or (original and not settle.waits_for_settle(name))
    }
    return {**settle.COPY_CONFIG, **kept, **given}


class Planner:
    """Makes plans; holds what every topic's plan needs."""

    def __init__(
        self,
        *,
        settings: Settings,
        cluster: Cluster,
        store: Store,
        inventory: Inventory,
        known: BackupState,
        now_ms: int,
        only: Collection[str] | None = None,
        beside: Collection[str] = (),
        shares: Shares | None = None,
    ) -> None:
        """Take everything that a plan depends on.

        Args:
            settings: The configuration.
            cluster: The target.
            store: Where the backup is.
            inventory: What the backup holds.
            known: What the backup says about itself, read before it was listed.
            now_ms: The time, ms since the epoch.
            only: The topics to plan, all of which are there; None plans all that are asked for.
            beside: Topics that the same run restores and that are not planned now: no two of all
                these may be written to one target.
            shares: Which topics the transforms choose, where they choose one for each record.
        """
        self._shares = shares
        self._only, self._beside = only, beside
        self._settings, self._cluster, self._store = settings, cluster, store
        self._known, self._now_ms = known, now_ms
        self._inventory = inventory
        self.missing: list[KbackupError] = []
        self._group, self._window = wiring.restore_group(settings), wiring.window(settings)
        self._map = PartitionMap(settings.partition_map, self._group)
        self._partitions = PartitionPlanner(settings, inventory, self._window, shares)

    def plan(self) -> RestorePlan:
        """Return the plan.

        Raises:
            IncompleteBackupError: If a topic that was asked for is not in the backup.
            KafkaError: If the cluster does not answer.
            StoreError: If the store does not.
        """
        names = self._inventory.topics() if self._only is None else sorted(self._only)
        self._inventory.look_at(names)
        intents = [intent for name in names for intent in self._intents(name)]
        there = set(self._cluster.topic_names())
        existing = self._cluster.topics({intent.target for intent in intents} & there)
        wheres = [
            TopicPartition(topic.name, partition)
            for topic in existing.values()
            for partition in range(topic.partitions)
        ]
        # positions first: what another restore writes meanwhile makes a log longer than its
        # position says, and never looks like a target that was emptied
        positions = {
            group: self._cluster.committed(group, wheres) for group in self._groups(intents)
        }
        held = Held(
            existing,
            self._cluster.spans(wheres, committed_only=False),
            positions,
            self._cluster.topic_config(existing),
        )
        others = [intent for name in self._beside for intent in self._named(name)]
        clashes = list(checks.collisions([*intents, *others], there))
        topics = [self._topic(intent, held, clashes) for intent in intents]
        return RestorePlan(tuple(topics), self._group, held.spans)

    def _groups(self, intents: Sequence[Intent]) -> set[str]:
        """Return all groups that may keep positions of this restore."""
        wheres = (where for intent in intents for where in self._sources(intent))
        return {self._map.group_of(where.partition) for where in wheres}

    def _sources(self, intent: Intent) -> list[TopicPartition]:
        """Return the partitions of the backup that may have positions of this restore.

        Where they share targets these are all, and not only those with objects that are asked for.
        """
        if self._map.is_same:  # of a topic without any object, what was restored before is known
            wanted = self._inventory.wanted(intent.source)
            return wanted or self._inventory.once_stored(intent.source)
        count = min(intent.partitions, PARTITIONS_BELIEVED)
        every = {TopicPartition(intent.source, partition) for partition in range(count)}
        return sorted(every.union(self._inventory.stored(intent.source)))

    def _named(self, name: str) -> list[Intent]:
        """Return what is known of a topic's restore without looking at it again."""
        if self._shares is not None:
            return [Intent(name, target, 1) for target in self._shares.targets(name)]
        return [Intent(name, rename(name, self._settings.renames), 1)]

    def _intents(self, name: str) -> list[Intent]:
        """Return where records of a topic go: to one other, or to those chosen for each.

        Raises:
            IncompleteBackupError: If none is chosen, and what is gone would have chosen some.
        """
        intent, shares = self._intent(name), self._shares
        if shares is None:
            return [intent]
        targets = shares.targets(name)
        if not targets:  # no topic's plan would refuse what is gone, or count it
            for refusal in self._missing(intent):
                raise refusal
        return [
            replace(
                intent, target=target, oldest_timestamp=shares.oldest(name, target),
                is_watched=self._known.watches(target, self._cluster.cluster_id),
            )
            for target in targets
        ]  # fmt: skip

    def _intent(self, name: str) -> Intent:
        source = source_of(self._known, name)
        wheres = self._inventory.wanted(name)
        target = rename(name, self._settings.renames)
        same = None
        if source.cluster_id:
            same = source.cluster_id == self._cluster.cluster_id
        return Intent(
            source=name,
            target=target,
            partitions=max(source.partitions, *(where.partition + 1 for where in wheres), 1),
            is_named=name in self._settings.topics,
            is_same_cluster=same,
            is_watched=self._known.watches(target, self._cluster.cluster_id),
            oldest_timestamp=self._inventory.oldest(name),
            message_bytes=int(source.config.get("max.message.bytes", checks.MESSAGE_BYTES)),
        )

    def _source(self, where: TopicPartition, count: int) -> BackupSource:
        """Return what is restored of a partition, into a topic of *count* partitions."""
        identity = self._inventory.identity(where)
        asked = " ".join(filter(None, (wiring.asked(self._settings), self._map.name(count))))
        return BackupSource(wiring.backup_id(self._settings), where, identity, asked)

    def _lanes(self, intent: Intent, held: Held) -> Lanes:
        """Return where this restore stands in the partitions that it is to write to."""
        there = held.topics.get(intent.target)
        count = self._settings.target_partitions or intent.partitions
        count = count if there is None else there.partitions
        return Lanes(
            intent.target, count, held, self._map,
            {where: self._source(where, count) for where in self._sources(intent)},
            wiring.layout(self._settings),
        )  # fmt: skip

    def _topic(self, intent: Intent, held: Held, clashes: Sequence[KbackupError]) -> PlannedTopic:
        settings = self._settings
        lanes = self._lanes(intent, held)
        target = lanes.target()
        grows = self._map.is_same and checks.grows(
            intent, target, follows=settings.follow, creates=settings.create_topics
        )
        count = intent.partitions if grows else lanes.count
        refusals = [error for error in clashes if error.place.get("topic") == intent.target]
        refusals += [each.refusal for each in lanes.standings if each.refusal is not None]
        source = source_of(self._known, intent.source)
        created = config_of_copy(
            source, settings.topic_config, original=settings.topic_settings == "original"
        )
        config = created if target.partitions is None else target.config or {}
        ready = replace(target, config=config)
        refusals += checks.refusals(
            intent,
            ready,
            if_exists=settings.if_exists,
            creates=settings.create_topics,
            allows_same_topic=settings.allow_same_topic,
            now_ms=self._now_ms,
            partitions=count,
            keeps_partitions=self._map.is_same,
            is_compacted="compact" in source.config.get("cleanup.policy", ""),
        )
        warnings = [
            (code, f"{intent.target} {text}") for code, text in checks.warnings(intent, ready)
        ]
        warnings += [each.warning for each in lanes.standings if each.warning is not None]
        limit = config.get("max.message.bytes")
        max_bytes = None if limit is None else int(limit)
        warnings += checks.small_messages(intent, max_bytes)
        parts = [
            self._partitions.plan(where, intent.target, lanes, max_bytes)
            for where in self._inventory.wanted(intent.source)
        ]
        units = [part.unit for part in parts if part.unit is not None]
        chosen = [files for part in parts for files in part.sets]
        refusals += [refusal for part in parts for refusal in part.refusals]
        warnings += [warning for part in parts for warning in part.warnings]
        objects = sum(len(files.files) for files in chosen)
        stored = sum(file.size for files in chosen for file in files.files)
        wheres = self._inventory.wanted(intent.source)
        if wheres:
            refusals += unbelievable(intent, wheres[-1].partition, source.partitions)
        refusals += checks.unreplicable(
            intent, target, settings.replication_factor, self._cluster.brokers
        )
        if self._shares is None or intent.target == self._shares.targets(intent.source)[0]:
            refusals += self._missing(intent)  # said once
            own, unreadable = unconvertible(intent.source, chosen, wiring.reading(settings))
            warnings += own
            refusals += unreadable
            warnings += not_stored(
                intent.source,
                self._inventory.sets(intent.source),
                self._inventory.entered,
                had_objects=self._inventory.had_objects(intent.source),
            )
        cold = frozen(
            self._store, (file for unit in units for one in unit.sets for file in one.files)
        )
        warnings += cold.warnings(intent.source)
        refusals += cold.refusals(intent.source, intent.target) or self._splittable(units)
        if wheres and not objects and not self._window.is_everything:
            text = f"{intent.source}: no object can hold a record that was asked for"
            warnings.append(("window_empty", text))
        if units and not self._map.is_same:
            text = ORDER[self._map.how].format(count=count)
            warnings.append(("partition_map", f"{intent.target}: {text}"))
        if grows:
            text = f"grows from {target.partitions} to {count} partitions, as its source did"
            warnings.append(("partitions_added", f"{intent.target} {text}"))
        action = _action(target, has_units=bool(units), is_refused=bool(refusals))
        return PlannedTopic(
            intent, target, tuple(units), action, created, tuple(refusals),
            tuple(warnings), objects, _total(part.records for part in parts), stored,
            count, lanes.beginnings(units),
        )  # fmt: skip

    def _splittable(self, units: Sequence[RestoreUnit]) -> list[KbackupError]:
        if self._settings.yes_split_on_newline:
            return []
        heads = self._inventory.heads
        return [refusal for unit in units for refusal in splittable(heads, unit.source, unit.sets)]

    def _missing(self, intent: Intent) -> list[KbackupError]:
        """Refuse a backup from which objects or records are known to be gone.

        With ``behavior.on.error`` other than fail they are counted as skipped instead.
        """
        found: list[KbackupError] = []
        for where, findings in self._inventory.findings(intent.source):
            found += known_gone(where, intent.target, findings, self._window)
        self.missing += [] if self._settings.behavior_on_error == "fail" else found
        return found if self._settings.behavior_on_error == "fail" else []


def _total(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)


def _action(target: Target, *, has_units: bool, is_refused: bool) -> str:
    if is_refused:
        return "refuse"
    if target.partitions is None:
        return "create"
    if not target.has_position:
        return "append"
    return "resume" if has_units else "done"
