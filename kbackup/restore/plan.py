"""Plan a restore, with what forbids it; planning changes nothing."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kbackup.catalog.identity import BackupIdentity
from kbackup.catalog.listing import FileSet, frozen, object_bytes, object_count
from kbackup.clock import Clock
from kbackup.config import Settings
from kbackup.errors import ConfigurationError, KbackupError, some
from kbackup.events import PartitionCounts, RestoreTopic, TopicPlanned
from kbackup.kafka import Cluster, Connection, Position, Topic
from kbackup.naming.renaming import NOTHING_LEFT, LeftOut, rename
from kbackup.records import Span, TopicPartition
from kbackup.restore import checks, configs
from kbackup.restore.checks import Target, TopicCopy
from kbackup.restore.job import KEEPS_CODECS, ORDER, PartitionMap, RestoreJob, RestoreUnit, Route
from kbackup.restore.resume import Remaining, ResumeState, remaining, resumed
from kbackup.restore.routing import RecordRoutes, Share, routed_from
from kbackup.runs import wiring
from kbackup.runs.backup_state import REMOVED_SINCE, removed_since
from kbackup.runs.context import Agree, confirm
from kbackup.runs.inventory import Inventory
from kbackup.runs.position import Cursor, Lane, RestorePosition, RestoreSource
from kbackup.stores import StoreSettings


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """One topic's restore.

    Attributes:
        action: ``create``, ``append``, ``resume``, ``done`` or ``refuse``.
        records: Number of records in them, None if the ledger does not show it.
        partitions: How many the target has, is created with, or is given by this restore.
        beginnings: Where partitions share targets: units of which only the beginning is committed,
            all of them before the first record is written.
    """

    copy: TopicCopy
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
        return self.action == "append" and self.copy.there.records > 0

    @property
    def grows(self) -> bool:
        """Whether partitions are added to the target."""
        had = self.copy.there.partitions
        return self.action != "refuse" and had is not None and had < self.partitions

    def event(self) -> TopicPlanned:
        """Return the plan's line of this topic."""
        retention_ms = self.config["retention.ms"] if self.action == "create" else None
        return TopicPlanned.of(
            self.copy.source, self.copy.target,
            PartitionCounts(self.copy.partitions, self.copy.there.partitions),
            self.action, self.refusals[0] if self.refusals else None,
            RestoreTopic(self.objects, self.records, self.stored_bytes, retention_ms),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore would do.

    Attributes:
        spans: What each target partition holds before the restore.
        failed: Why topics could not be planned that do not keep the others from being restored.
    """

    topics: tuple[PlannedTopic, ...]
    group: str
    spans: Mapping[TopicPartition, Span]
    failed: Mapping[str, KbackupError] = field(default_factory=dict)
    left_out: LeftOut = NOTHING_LEFT

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


def confirm_adding(plan: RestorePlan, agree: Agree | None, *, is_agreed: bool) -> None:
    """Ask before records are added to topics that have some; `RefusedError` if nobody agrees."""
    if names := ", ".join(topic.copy.target for topic in plan.topics if topic.adds):
        question = f"{names}: not empty. Add the backup's records to it?"
        what = f"{names} is not empty, and adding to it was not confirmed"
        why = "--if-exists append needs a confirmation"
        confirm(agree, question, what, why, is_agreed=is_agreed)


KEPT_CONFIG: Final = ("max.message.bytes", "compression.type")
"""Settings of the source topic that a created target gets.  Not cleanup.policy and retention:
nothing may be deleted before the restore has been looked at."""


def config_of_copy(
    original: Mapping[str, str], given: Mapping[str, str], *, takes_all: bool = False
) -> dict[str, str]:
    """Return settings of a topic to create: nothing restored may be deleted or refused.

    What is *given* wins; *takes_all* takes all of the original's that can do neither.
    """
    kept = {
        name: value
        for name, value in original.items()
        if name in KEPT_CONFIG or (takes_all and not configs.waits_for_settle(name))
    }
    return {**configs.COPY_CONFIG, **kept, **given}


class Planner:
    """Makes plans; holds what every topic's plan needs.

    *only* are the topics to plan, all of which are there; None: all that are asked for.  Those
    *beside* are restored by the same run and not planned now: no two of all these may be written to
    one target.  *missing* is what of the backup is known to be gone, and left out.
    """

    def __init__(
        self,
        inventory: Inventory,
        cluster: Cluster,
        *,
        now_ms: int,
        only: Collection[str] | None = None,
        beside: Collection[str] = (),
        routes: RecordRoutes | None = None,
        backup: BackupIdentity,
        group: str,
    ) -> None:
        self.inventory, self.cluster, self.now_ms = inventory, cluster, now_ms
        self.settings, self.known = inventory.settings, inventory.known
        self.routes, self._only, self._beside = routes, only, beside
        self.backup, self._group = backup, group
        self.missing: list[KbackupError] = []
        self.window = inventory.window
        self.map = PartitionMap(self.settings.partition_map, group)

    def plan(self) -> RestorePlan:
        """Return the plan.

        `ConfigurationError`: a partition was asked for that no topic has.  `IncompleteBackupError`:
        a topic that was asked for is not in the backup.
        """
        names = self.inventory.topics() if self._only is None else sorted(self._only)
        if self._only is None:  # one that follows may wait for a partition
            self._check_partitions(names)
        self.inventory.look_at(names)
        copies, failed = list[TopicCopy](), dict[str, KbackupError]()
        for name in names:
            try:
                copies += self._copies(name)
            except KbackupError as error:
                failed[name] = self._spared(error)
        beside = (*self._beside, *failed)
        others = [TopicCopy(name, to, 1) for name in beside for to in self.targets(name)]
        there = set(self.cluster.topic_names())
        clashes = list(checks.collisions([*copies, *others], there))
        targets = self._targets(copies, there)
        topics = list[PlannedTopic]()
        for copy in copies:
            try:
                topics.append(_TopicPlanner(self, copy, targets).plan(clashes))
            except KbackupError as error:
                failed[copy.source] = self._spared(error)
        left = tuple(topic for topic in topics if topic.copy.source not in failed)
        return RestorePlan(left, self._group, targets.spans, failed, self.inventory.left_out())

    def _spared(self, error: KbackupError) -> KbackupError:
        """Return why a topic cannot be planned, if a restore that follows goes on without it."""
        goes_on = self._only is not None and len({*self._only, *self._beside}) > 1
        if not goes_on or error.concerns_all:
            raise error
        return error

    def sources(self, copy: TopicCopy) -> list[TopicPartition]:
        """Return the partitions of the backup that may have positions of this restore.

        Where they share targets these are all, and not only those with objects that are asked for.
        """
        if self.map.is_same:  # of a topic without any object, what was restored before is known
            wanted = self.inventory.wanted(copy.source)
            return wanted or self.inventory.once_stored(copy.source)
        count = min(copy.partitions, checks.PARTITIONS_BELIEVED)
        every = {TopicPartition(copy.source, partition) for partition in range(count)}
        return sorted(every.union(self.inventory.stored(copy.source)))

    def gone(self, copy: TopicCopy) -> list[KbackupError]:
        """Refuse a backup from which objects or records are known to be gone.

        With ``behavior.on.error`` other than fail they are counted as skipped instead.
        """
        found: list[KbackupError] = []
        for where, findings in self.inventory.findings(copy.source):
            found += checks.known_gone(
                where, copy.target, findings, self.window, self.inventory.known.ledger(where)
            )
        if self.settings.behavior_on_error == "fail":
            return found
        self.missing += found
        return []

    def _check_partitions(self, names: Sequence[str]) -> None:
        """Refuse numbers that no topic has: a restore of nothing would look like a whole one."""
        there = [where for name in names for where in self.inventory.there(name)]
        lacking = set(self.settings.partitions or ()) - {where.partition for where in there}
        if there and lacking:
            most = max(where.partition for where in there)
            raise ConfigurationError(
                f"no topic of the backup has the partitions {','.join(map(str, sorted(lacking)))}",
                f"{some(names)}: the highest is {most}",
                "correct --partitions; kbackup restore list shows what there is",
                property="partitions",
            )

    def _targets(self, copies: Sequence[TopicCopy], there: Collection[str]) -> "_Targets":
        topics = self.cluster.topics({copy.target for copy in copies}.intersection(there))
        wheres = [where for topic in topics.values() for where in topic.wheres]
        sources = (where for copy in copies for where in self.sources(copy))
        # positions first: what another restore writes meanwhile makes a log longer than its
        # position says, and never looks like a target that was emptied
        positions = {
            group: self.cluster.committed(group, wheres)
            for group in {self.map.group_of(where.partition) for where in sources}
        }
        spans = self.cluster.spans(wheres, committed_only=False)
        return _Targets(topics, spans, positions, self.cluster.topic_config(topics))

    def targets(self, name: str) -> Sequence[str]:
        """Return the targets of a topic, as far as they are known without looking at it again."""
        if self.routes is not None:
            return self.routes.targets(name)
        return [rename(name, self.settings.renames)]

    def _copies(self, name: str) -> list[TopicCopy]:
        """Return where records of a topic go: to one other, or to those chosen for each."""
        source = self.known.topics.get(name)
        cluster_id = "" if source is None else source.cluster_id
        known = 0 if source is None else source.partitions or 0
        highest = (where.partition + 1 for where in self.inventory.wanted(name))
        copy = TopicCopy(
            source=name,
            target=rename(name, self.settings.renames),
            partitions=max(known, *highest, 1),
            is_named=name in self.settings.topics,
            is_same_cluster=cluster_id == self.cluster.cluster_id if cluster_id else None,
            known_partitions=known,
            original={} if source is None else source.config,
        )
        targets = self.targets(name)
        if not targets:  # no topic's plan would refuse what is gone, or count it
            for refusal in self.gone(copy):
                raise refusal
        return [
            replace(
                copy,
                target=target,
                is_watched=not self.inventory.is_of_drill  # sinks leave out what a drill creates
                and self.known.watches(target, self.cluster.cluster_id),
            )
            for target in targets
        ]


@dataclass(frozen=True, slots=True)
class _Targets:
    """The targets that exist; positions by group, whoever committed them."""

    topics: Mapping[str, Topic]
    spans: Mapping[TopicPartition, Span]
    positions: Mapping[str, Mapping[TopicPartition, Position]]
    configs: Mapping[str, Mapping[str, str]]


class _TopicPlanner:
    """Plans one topic: a method for each rule."""

    def __init__(self, of: Planner, copy: TopicCopy, targets: _Targets) -> None:
        self._of, self._copy, self._targets = of, copy, targets
        self._there = targets.topics.get(copy.target)
        self._count = of.settings.target_partitions or copy.partitions
        if self._there is not None:
            self._count = self._there.partitions
        self._wanted = of.inventory.wanted(copy.source)
        self._states = {where: self._resumed(where) for where in of.sources(copy)}
        self._refusals: list[KbackupError] = []
        self._warnings: list[tuple[str, str]] = []
        self._units: list[RestoreUnit] = []
        self._sets: list[FileSet] = []
        self._records: int | None = 0

    def plan(self, clashes: Sequence[KbackupError]) -> PlannedTopic:
        """Return the topic's plan; *clashes* are those of all topics."""
        copy = self._copy = replace(self._copy, there=self._target())
        settings, there = self._of.settings, copy.there
        grows = self._of.map.is_same and checks.grows(
            copy, follows=settings.follow, creates=settings.create_topics
        )
        if grows:
            self._count = copy.partitions
        created = config_of_copy(
            copy.original,
            settings.topic_config,
            takes_all=settings.topic_settings == "original",
        )
        config = created if there.partitions is None else there.config or {}
        limit = config.get("max.message.bytes")
        max_message_bytes = None if limit is None else int(limit)
        lost = self._lost()  # which finds the versions that are to be read
        for where in self._wanted:
            self._add(where, config, max_message_bytes)
        self._check_target(clashes, config, max_message_bytes)
        self._check_sizes(config)
        self._check_objects(lost)
        self._check_archived()
        self._explain(grows=grows)
        return PlannedTopic(
            copy=copy,
            units=tuple(self._units),
            action=self._action(),
            config=created,
            refusals=tuple(self._refusals),
            warnings=tuple(self._warnings),
            objects=object_count(self._sets),
            records=self._records,
            stored_bytes=object_bytes(self._sets),
            partitions=self._count,
            beginnings=self._beginnings(),
        )

    def _check_target(
        self,
        clashes: Sequence[KbackupError],
        config: Mapping[str, str],
        max_message_bytes: int | None,
    ) -> None:
        """Compare the target, with the settings that it has or gets, with what it is to take."""
        of, there = self._of, replace(self._copy.there, config=config)
        copy = replace(self._copy, there=there, oldest_timestamp=self._oldest())
        states = self._states.values()
        self._refusals = [
            *(each for each in clashes if each.place.get("topic") == copy.target),
            *(each.refusal for each in states if each.refusal is not None),
            *checks.refusals(copy, of.settings, now_ms=of.now_ms, partitions=self._count),
            *self._refusals,
        ]
        self._warnings += checks.warnings(copy)
        self._warnings += [each.warning for each in states if each.warning is not None]
        self._warnings += checks.small_messages(copy, max_message_bytes)

    def _oldest(self) -> int | None:
        """Return the lowest timestamp of what is to be written; None where it is not known."""
        of = self._of
        if of.routes is not None:
            return of.routes.oldest(self._copy.source, self._copy.target)
        units = [
            [files for files in unit.sets if files.is_whole or files.is_generic]
            for unit in self._units
        ]
        if not any(units):  # records of values alone get the current time
            return of.now_ms
        known = (of.inventory.oldest(sets) for sets in units)
        found = min((time for time in known if time is not None), default=None)
        return None if found is None else max(found, of.window.timestamp_ms.low)

    def _check_sizes(self, config: Mapping[str, str]) -> None:
        """Refuse more partitions or replicas than can be meant, and more bytes than are kept."""
        of, copy = self._of, self._copy
        stored = [unit.size for unit in self._units]
        fullest = max(stored, default=0) if of.map.is_same else sum(stored) // self._count
        there = replace(copy.there, config=config)
        self._refusals += checks.too_large(replace(copy, there=there), fullest)
        if self._wanted:
            self._refusals += checks.unbelievable(copy, self._wanted[-1].partition)
        self._refusals += checks.unreplicable(
            copy, of.settings.replication_factor, of.cluster.brokers
        )

    def _lost(self) -> Sequence[KbackupError] | None:
        """Return what is gone; None for all but one of many targets."""
        is_first = self._of.targets(self._copy.source)[0] == self._copy.target
        return self._of.gone(self._copy) if is_first else None

    def _check_objects(self, lost: Sequence[KbackupError] | None) -> None:
        """Say what is *lost*, cannot be read or was not stored; of many targets one says it."""
        of, source = self._of, self._copy.source
        if lost is None:
            return
        self._refusals += lost
        reading = wiring.reading(of.settings)
        warnings, refusals = checks.unconvertible(source, self._sets, reading)
        self._warnings += warnings
        self._warnings += checks.written_otherwise(of.inventory.heads, source, self._sets, reading)
        self._refusals += refusals + checks.unset(of.inventory.heads, source, self._sets, reading)
        self._warnings += checks.not_stored(
            source,
            of.inventory.sets(source),
            of.inventory.entered,
            had_objects=of.inventory.had_objects(source),
        )
        for at in of.inventory.once_stored(source):
            gone = of.inventory.removed(at)
            if of.settings.as_of is None:
                gone = [files for files in gone if self._is_ahead(files)]
            if gone:
                text = removed_since(at, [files.id for files in gone])
                self._warnings.append((REMOVED_SINCE, text))

    def _is_ahead(self, files: FileSet) -> bool:
        """Whether a restore that goes on would still have read all of a set, or the rest of it."""
        state = self._states.get(files.where)
        if state is None or state.position is None or state.position.total == 0:
            return False
        facts = self._of.inventory.entered(files)
        last = files.begin if facts is None else facts.last_offset
        return last >= state.position.cursor.reached

    def _check_archived(self) -> None:
        """Refuse what is archived, else what only the operator can say how to read."""
        of, copy = self._of, self._copy
        files = (file for unit in self._units for one in unit.sets for file in one.files)
        cold = frozen(of.inventory.store, files)
        self._warnings += cold.warnings(copy.source)
        refusals = cold.refusals(copy.source, copy.target)
        if not (refusals or of.settings.yes_split_on_newline):
            for unit in self._units:
                refusals += checks.splittable(of.inventory.heads, unit.source, unit.sets)
        self._refusals += refusals

    def _explain(self, *, grows: bool) -> None:
        """Say what an operator might not expect of the records that are written."""
        copy, how = self._copy, self._of.map
        if self._wanted and not self._sets and not self._of.window.is_everything:
            text = f"{copy.source}: no object can hold a record that was asked for"
            self._warnings.append(("window_empty", text))
        if self._units and not how.is_same:
            text = ORDER[how.how].format(count=self._count)
            self._warnings.append(("partition_map", f"{copy.target}: {text}"))
        if grows:
            text = f"{copy.target} grows from {copy.there.partitions} to {self._count} partitions"
            self._warnings.append(("partitions_added", f"{text}, as its source did"))

    def _action(self) -> str:
        if self._refusals:
            return "refuse"
        if self._copy.there.partitions is None:
            return "create"
        if not self._copy.there.has_position:
            return "append"
        return "resume" if self._units else "done"

    # partitions

    def _add(
        self, where: TopicPartition, config: Mapping[str, str], max_message_bytes: int | None
    ) -> None:
        routes = self._of.routes
        share = None if routes is None else routes.of(where, self._copy.target)
        sets, records = self._to_read(where, share)
        left = self._left(where, sets, share)
        if left.refusal is not None:
            self._refusals.append(left.refusal)
        if left.sets:
            unit = self._unit(where, sets[0].start_offset)
            self._units.append(replace(
                unit,
                position=self._passing(where, unit.position, share),
                sets=tuple(left.sets),
                before=left.before,
                max_message_bytes=max_message_bytes,
                compression=config.get("compression.type", KEEPS_CODECS),
                window=self._of.window,
                route=None if share is None else Route(
                    routed_from(self._of.settings, self._copy.source), share.counts_rest
                ),
            ))  # fmt: skip
        self._sets += sets
        known = self._records is not None and records is not None
        self._records = (self._records or 0) + (records or 0) if known else None

    def _to_read(
        self, where: TopicPartition, share: Share | None
    ) -> tuple[Sequence[FileSet], int | None]:
        """Return the sets of a partition that are asked for; and how many records, if known."""
        inventory, window = self._of.inventory, self._of.window
        found = inventory.covered(where)
        sets = found.sets
        if share is not None and not self._reads_all(where, share):
            sets = inventory.among(where, share.sets)
        self._refusals += found.refusals()
        if share is None or share.counts_rest:
            self._warnings += found.warnings()
        if window.is_everything:
            return sets, inventory.records(where, sets) if share is None else share.records
        self._refusals += checks.untimed(where, sets, window)
        self._refusals += checks.unplaced(where, sets, window, inventory.facts)
        return inventory.asked_for(sets), None

    def _left(
        self, where: TopicPartition, sets: Sequence[FileSet], share: Share | None
    ) -> Remaining:
        inventory, position = self._of.inventory, self._states[where].position
        own = None if share is None else share.sets
        removed = [] if position is None else inventory.removed(where)
        return remaining(
            inventory.facts_of_begun, sets, position, inventory.cut_of, own, removed,
            inventory.records_below,
        )  # fmt: skip

    def _passing(
        self, where: TopicPartition, position: RestorePosition, share: Share | None
    ) -> RestorePosition:
        """Return a unit's position with what is not in the backup, and what its total counts."""
        before = self._states[where].position
        reached = 0 if before is None else before.cursor.reached
        passing = position.passing(self._of.inventory.absent(where), reached=reached)
        if share is not None and (before is None or before.total == 0):
            passing = replace(passing, is_all=self._reads_all(where, share))
        return passing

    def _reads_all(self, where: TopicPartition, share: Share) -> bool:
        """Whether all sets of a partition are read, not only those with records of the target."""
        position = self._states[where].position
        is_begun = position is not None and position.total != 0 and position.is_all
        return share.counts_rest or is_begun

    def _unit(self, where: TopicPartition, first_offset: int = 0) -> RestoreUnit:
        """Return the task of a partition of the backup without any object: where it begins."""
        how, state, source = self._of.map, self._states[where], self._source(where)
        position, lanes = state.position, state.lanes
        if position is None:  # what it writes comes after what the target holds
            target_id = "" if self._there is None else self._there.topic_id
            position = RestorePosition(source, target_id, Cursor(0, first_offset))
            spans, nothing = self._targets.spans, Span(0, 0)
            ends = {at: spans.get(at, nothing).end_offset for at in self._written(where)}
            lanes = tuple(
                Lane(at, Span(end, end), self._position(where, at)) for at, end in ends.items()
            )
        # the backup may have an id by now
        named = replace(position.source, backup=source.backup, address=source.address)
        return RestoreUnit(
            replace(position, source=named),
            lanes,
            begins=state.position is None,
            group=None if how.is_same else how.group_of(where.partition),
        )

    def _beginnings(self) -> tuple[RestoreUnit, ...]:
        """Return what is to be committed before any record, where partitions share targets."""
        # of all of them: one that gets its first object later has a position then
        if self._of.map.is_same or not self._units:
            return ()
        planned = {unit.source: replace(unit, sets=()) for unit in self._units}
        return tuple(
            planned[where] if where in planned else self._unit(where)
            for where, state in self._states.items()
            if state.position is None
        )

    # the target as it stands

    def _target(self) -> Target:
        """Return the target, and how much it holds that this restore cannot tell from its own."""
        if self._there is None:
            return Target()
        spans, states = self._targets.spans, self._states
        filled = {at: len(spans[at]) for at in self._there.wheres if at in spans}
        known = [state.is_known for state in states.values()]
        if self._of.map.is_same:
            lanes = {self._written(where)[0]: state for where, state in states.items()}
            own = {at for at, state in lanes.items() if state.is_known}
            # a partition that someone else fills matters only if this restore is to write to it
            others = (lanes.keys() if own else filled.keys()) - own
            records = sum(filled.get(at, 0) for at in others)
        else:
            # A restore commits all of its beginnings before its first record.  So a source without
            # a position, once records of others are there, is one whose position was lost: its own
            # records may be there too.
            has_written = any(state.has_written for state in states.values())
            is_doubtful = not all(known) and (has_written or not any(known))
            records = sum(filled.values()) if is_doubtful else 0
        config = self._targets.configs.get(self._there.name)
        return Target(self._there.partitions, records, any(known), config)

    def _source(self, where: TopicPartition) -> RestoreSource:
        settings, how = self._of.settings, self._of.map
        asked = " ".join(filter(None, (wiring.window_name(settings), how.name(self._count))))
        identity = self._of.inventory.identity(where)
        backup = self._of.backup
        return RestoreSource(backup.name, where, identity, asked, backup.address)

    def _written(self, where: TopicPartition) -> list[TopicPartition]:
        return self._of.map.targets(where, self._copy.target, self._count)

    def _resumed(self, where: TopicPartition) -> ResumeState:
        """Return where one partition's restore stands in what it writes to, as far as it exists."""
        spans = self._targets.spans
        found = {
            at: (spans[at], self._position(where, at))
            for at in self._written(where)
            if self._there is not None and at in spans
        }
        topic_id = "" if self._there is None else self._there.topic_id
        group = self._of.map.group_of(where.partition)
        return resumed(self._source(where), group, topic_id, found)

    def _position(self, where: TopicPartition, at: TopicPartition) -> Position | None:
        """Return the position in a target of the group that keeps those of a source."""
        group = self._of.map.group_of(where.partition)
        return self._targets.positions.get(group, {}).get(at)


def job_of(
    settings: Settings,
    kafka: Connection,
    store: StoreSettings,
    *,
    run: str,
    group: str,
    clock: Clock,
) -> RestoreJob:
    """Return what *settings* say of how records are read, changed and written."""
    return RestoreJob(
        run=run,
        kafka=kafka,
        store=store,
        reading=wiring.reading(settings),
        group=group,
        exactly_once=settings.exactly_once,
        on_error=settings.behavior_on_error,
        max_record_bytes=settings.max_record_bytes,
        offset_header=settings.offset_header,
        transforms=settings.transforms,
        is_renamed=settings.rename is not None,
        max_records_per_second=settings.max_records_per_second,
        max_bytes_per_second=settings.max_bytes_per_second,
        layout=wiring.layout(settings),
        clock=clock,
    )
