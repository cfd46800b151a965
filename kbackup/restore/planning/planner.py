"""Plan a restore, with what forbids it; planning changes nothing."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kbackup.catalog.listing import frozen
from kbackup.config import Settings
from kbackup.errors import KbackupError
from kbackup.kafka import Cluster
from kbackup.naming.renaming import rename
from kbackup.records import TopicPartition
from kbackup.restore import settle
from kbackup.restore.job import RestoreUnit
from kbackup.restore.partition_map import ORDER, PartitionMap
from kbackup.restore.planning import safety
from kbackup.restore.planning.inventory import (
    PARTITIONS_BELIEVED,
    Inventory,
    known_gone,
    not_stored,
    splittable,
    unbelievable,
    unconvertible,
)
from kbackup.restore.planning.plan import Held, Lanes, PartitionPlanner, PlannedTopic, RestorePlan
from kbackup.restore.planning.routing import Shares
from kbackup.restore.planning.safety import Intent, Target
from kbackup.runs import wiring
from kbackup.runs.known import BackupState
from kbackup.runs.position import BackupSource
from kbackup.stores import Store

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
        clashes = list(safety.collisions([*intents, *others], there))
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
            message_bytes=int(source.config.get("max.message.bytes", safety.MESSAGE_BYTES)),
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
        grows = self._map.is_same and safety.grows(
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
        refusals += safety.refusals(
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
            (code, f"{intent.target} {text}") for code, text in safety.warnings(intent, ready)
        ]
        warnings += [each.warning for each in lanes.standings if each.warning is not None]
        limit = config.get("max.message.bytes")
        max_bytes = None if limit is None else int(limit)
        warnings += safety.small_messages(intent, max_bytes)
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
        refusals += safety.unreplicable(
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
