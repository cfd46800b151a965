"""What a restore would write where, and what forbids it; nothing is changed while it is made."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kbackup.backup.catalog import Catalog, FileSet, nothing_there
from kbackup.backup.judged import JudgedPartition
from kbackup.backup.reading import facts
from kbackup.backup.recorded import Recorded, record_count
from kbackup.backup.shadowed import without_shadowed
from kbackup.config import Settings
from kbackup.errors import IncompleteBackupError, KbackupError, RefusedError
from kbackup.kafka import Cluster, Position, Topic
from kbackup.naming import View
from kbackup.records import UNKNOWN, Facts, Span, TopicIdentity, TopicPartition
from kbackup.renaming import rename
from kbackup.restore import safety
from kbackup.restore.job import RestoreUnit
from kbackup.restore.mark import Mark, Place, Source
from kbackup.restore.remaining import remaining
from kbackup.restore.safety import Intent, Target
from kbackup.restore.standing import Log, Standing, judge
from kbackup.runs import wiring
from kbackup.runs.selection import select
from kbackup.stores import ObjectHead, Store

LONG_MAX: Final = str(2**63 - 1)

_THREADS: Final = 16

PARTITIONS_BELIEVED: Final = 10_000
"""A backup without run records may name partitions below this without a question."""

KEPT_CONFIG: Final = ("max.message.bytes", "compression.type")
"""Settings of the source topic that a created target gets.  Not cleanup.policy and retention:
nothing may be deleted before the restore has been looked at."""


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """What run records know of a topic, beyond its objects.

    Attributes:
        partitions: Their number when it was backed up; 0 where no record says.
        cluster_id: Of the cluster it was backed up from; empty where no record says.
        config: Its settings then.
    """

    partitions: int = 0
    cluster_id: str = ""
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """One topic's restore.

    Attributes:
        intent: From where to where.
        target: The target as it stands.
        units: What tasks have to do.
        action: ``create``, ``append``, ``resume``, ``done`` or ``refuse``.
        config: Settings of a topic to create.
        refusals: Why nothing may be done.
        warnings: Codes and sentences.
        objects: Number of objects.
        records: Number of records in them, None where names and run records do not tell.
        stored_bytes: Bytes of the objects.
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

    def event(self) -> dict[str, Any]:
        """Return the plan's line of this topic."""
        reason = self.refusals[0] if self.refusals else None
        return {
            "type": "plan_topic",
            "source": self.intent.source,
            "target": self.intent.target,
            "partitions": {"backup": self.intent.partitions, "target": self.target.partitions},
            "action": self.action,
            "reason": None if reason is None else str(reason),
            "code": None if reason is None else reason.code,
            "objects": self.objects,
            "records": self.records,
            "bytes": self.stored_bytes,
            "retention_ms": self.config["retention.ms"] if self.action == "create" else None,
        }


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
        """All reasons not to begin; if there is one, nothing runs."""
        return [error for topic in self.topics for error in topic.refusals]

    def units(self) -> list[RestoreUnit]:
        """Return what tasks have to do, the largest share first."""
        units = [unit for topic in self.topics for unit in topic.units]
        return sorted(units, key=lambda unit: unit.size, reverse=True)


class Planner:
    """Makes plans; holds what every topic's plan needs."""

    def __init__(
        self,
        *,
        settings: Settings,
        cluster: Cluster,
        store: Store,
        catalog: Catalog,
        sources: Mapping[str, SourceTopic],
        watched: Iterable[str],
        recorded: Mapping[TopicPartition, Sequence[Recorded]],
        now_ms: int,
    ) -> None:
        """Take everything that a plan depends on.

        Args:
            settings: The configuration.
            cluster: The target.
            store: Where the backup lies.
            catalog: What lies there.
            sources: What run records know of the topics.
            watched: Topics of the target cluster that a sink backs up, by the run records.
            recorded: What run records say was stored of each partition.
            now_ms: The time, ms since the epoch.
        """
        self._settings, self._cluster, self._store = settings, cluster, store
        self._catalog, self._sources = catalog, sources
        self._watched, self._now_ms = frozenset(watched), now_ms
        self._recorded = recorded
        self.missing: list[KbackupError] = []
        self._first: dict[TopicPartition, ObjectHead | None] = {}
        self._group = wiring.restore_group(settings)

    def plan(self) -> RestorePlan:
        """Return the plan.

        Raises:
            IncompleteBackupError: If a topic that was asked for is not in the backup.
            KafkaError: If the cluster does not answer.
            StoreError: If the store does not.
        """
        settings = self._settings
        names = select(self._catalog.topics(), settings.topics, settings.topics_regex)
        place = f"{settings.url}/{settings.topics_dir}"
        if not names:
            raise nothing_there(place)
        for name in names:
            if not self._catalog.partitions(name):
                raise IncompleteBackupError(
                    f"topic {name} is not in the backup",
                    f"no object of it lies under {place}",
                    "see what is there: kbackup restore topics",
                    topic=name,
                )
        intents = [self._intent(name) for name in names]
        existing = self._cluster.topics(
            {intent.target for intent in intents} & set(self._cluster.topic_names())
        )
        wheres = [
            TopicPartition(topic.name, partition)
            for topic in existing.values()
            for partition in range(topic.partitions)
        ]
        held = _Held(
            existing,
            self._cluster.spans(wheres, committed_only=False),
            self._cluster.committed(self._group, wheres),
            self._cluster.topic_config(existing),
        )
        clashes = list(safety.collisions(intents))
        topics = [self._topic(intent, held, clashes) for intent in intents]
        return RestorePlan(tuple(topics), self._group, held.spans)

    def _intent(self, name: str) -> Intent:
        source = self._sources.get(name, SourceTopic())
        wheres = self._catalog.partitions(name)
        self._look_at(wheres)
        target = rename(name, self._settings.renames)
        same = None
        if source.cluster_id:
            same = source.cluster_id == self._cluster.cluster_id
        return Intent(
            source=name,
            target=target,
            partitions=max(source.partitions, wheres[-1].partition + 1),
            is_named=name in self._settings.topics,
            is_same_cluster=same,
            is_watched=target in self._watched,
            oldest_timestamp=self._oldest(wheres),
        )

    def _look_at(self, wheres: Sequence[TopicPartition]) -> None:
        """Ask each partition's first object what it says of itself."""

        def head(where: TopicPartition) -> ObjectHead | None:
            return self._store.head(self._catalog.sets[where][0].files[0].key)

        with ThreadPoolExecutor(_THREADS) as pool:
            self._first.update(zip(wheres, pool.map(head, wheres), strict=True))

    def _oldest(self, wheres: Sequence[TopicPartition]) -> int | None:
        """Lowest timestamp of each partition's first object: old enough to judge retention by."""
        heads = [self._first[where] for where in wheres]
        known = [Facts.from_metadata(head.metadata) for head in heads if head is not None]
        times = [each.min_timestamp for each in known if each is not None]
        return min((time for time in times if time is not None), default=None)

    def _source(self, where: TopicPartition) -> Source:
        head = self._first[where]
        identity = UNKNOWN if head is None else TopicIdentity.from_metadata(head.metadata)
        return Source(wiring.backup_id(self._settings), where, identity)

    def _standings(self, intent: Intent, held: "_Held") -> dict[TopicPartition, Standing]:
        """Return where this restore stands in each partition of an existing target."""
        topic = held.topics.get(intent.target)
        if topic is None:
            return {}
        found = {}
        for where in self._catalog.partitions(intent.source):
            target = TopicPartition(intent.target, where.partition)
            if target in held.spans and self._is_wanted(where):
                log = Log(target, topic.topic_id, held.spans[target])
                found[target] = judge(
                    held.positions.get(target), self._source(where), log, group=self._group,
                    layout=wiring.layout(self._settings),
                )  # fmt: skip
        return found

    def _topic(
        self, intent: Intent, held: "_Held", clashes: Sequence[KbackupError]
    ) -> PlannedTopic:
        settings = self._settings
        standings = self._standings(intent, held)
        target = held.target(intent.target, standings)
        refusals = [error for error in clashes if error.place.get("topic") == intent.target]
        refusals += [each.refusal for each in standings.values() if each.refusal is not None]
        refusals += safety.refusals(
            intent,
            target,
            if_exists=settings.if_exists,
            creates=settings.create_topics,
            allows_same_topic=settings.allow_same_topic,
            now_ms=self._now_ms,
        )
        warnings = [
            (code, f"{intent.target} {text}") for code, text in safety.warnings(intent, target)
        ]
        warnings += [each.warning for each in standings.values() if each.warning is not None]
        config = self._config(intent) if target.partitions is None else target.config or {}
        limit = config.get("max.message.bytes")
        units, objects, stored = [], 0, 0
        counts: list[int | None] = []
        for where in self._catalog.partitions(intent.source):
            if not self._is_wanted(where):
                continue
            sets, shadowed = self._chosen(where)
            if shadowed:
                text = f"{where}: {shadowed} value objects are in the whole-record objects too"
                warnings.append(("shadowed", text))
            refusals += self._splittable(where, sets)
            objects += sum(len(files.files) for files in sets)
            stored += sum(file.size for files in sets for file in files.files)
            counts.append(record_count(sets, self._recorded.get(where, ())))
            at = TopicPartition(intent.target, where.partition)
            standing = standings.get(at, Standing())
            left = remaining(self._store, sets, standing.mark)
            if left.refusal is not None:
                refusals.append(left.refusal)
            if left.sets:
                mark = standing.mark
                units.append(
                    RestoreUnit(
                        at,
                        left.sets,
                        self._begin(where, at, sets, held) if mark is None else held.kept(mark, at),
                        None if mark is None else held.positions[at],
                        left.before,
                        None if limit is None else int(limit),
                    )
                )
        refusals += self._unbelievable(intent)
        refusals += self._unreplicable(intent, target)
        refusals += self._missing(intent)
        warnings += self._lacks(intent)
        action = _action(target, has_units=bool(units), is_refused=bool(refusals))
        return PlannedTopic(
            intent, target, tuple(units), action, self._config(intent), tuple(refusals),
            tuple(warnings), objects, _total(counts), stored,
        )  # fmt: skip

    def _begin(
        self, where: TopicPartition, target: TopicPartition, sets: Sequence[FileSet], held: "_Held"
    ) -> Mark:
        """Return where a restore of *where* begins: at the end of what the target holds."""
        end = held.spans[target].end_offset if target in held.spans else 0
        topic = held.topics.get(target.topic)
        return Mark(
            self._source(where),
            "" if topic is None else topic.topic_id,
            Span(end, end),
            Place(0, sets[0].start_offset),
        )

    def _chosen(self, where: TopicPartition) -> tuple[list[FileSet], int]:
        """Return the sets to restore, and how many are left out: whole records cover them."""
        sets = self._catalog.sets[where]
        kept = without_shadowed(sets, self._last_of)
        return kept, len(sets) - len(kept)

    def _last_of(self, files: FileSet) -> int | None:
        known = None if files.main is None else facts(self._store, files.main)
        return None if known is None else known.last_offset

    def _unreplicable(self, intent: Intent, target: Target) -> list[KbackupError]:
        """Refuse what the cluster would refuse when the topic is created."""
        factor, brokers = self._settings.replication_factor, self._cluster.brokers
        if target.partitions is not None or factor is None or factor <= brokers:
            return []
        return [
            RefusedError(
                f"{intent.target} cannot be created with --replication-factor {factor}",
                f"the cluster has {brokers} broker{'s' if brokers > 1 else ''}",
                "give fewer, or leave it to the cluster's default",
                topic=intent.target,
            )
        ]

    def _unbelievable(self, intent: Intent) -> list[KbackupError]:
        """Refuse a partition number that only a planted or mistaken name can have."""
        highest = self._catalog.partitions(intent.source)[-1].partition
        known = self._sources.get(intent.source, SourceTopic()).partitions
        if highest < known or (not known and highest < PARTITIONS_BELIEVED):
            return []
        says = f"run records say {known}" if known else "no run record says so"
        return [
            RefusedError(
                f"{intent.source}: an object's name says that there is a partition {highest}",
                f"{says}; the target would get {highest + 1} partitions",
                "look at that object; move it away, or restore with --partitions",
                topic=intent.target,
            )
        ]

    def _missing(self, intent: Intent) -> list[KbackupError]:
        """Refuse a backup of which objects are gone that a run is known to have stored.

        With ``behavior.on.error`` other than fail they are counted as skipped instead.
        """
        found: list[KbackupError] = []
        sets = self._catalog.sets
        for where in sorted({*self._recorded, *sets}):
            if where.topic != intent.source or not self._is_wanted(where):
                continue
            judged = JudgedPartition(
                where, sets.get(where, []), self._recorded.get(where, []), (), {}, is_deep=False
            )
            pattern = sets[self._catalog.partitions(where.topic)[0]][0]
            reading = wiring.reading(self._settings)
            layout = wiring.layout(self._settings)
            for finding in judged.findings(self._store, layout, reading, pattern):
                if finding.is_error and finding.code == "missing_object":
                    first, last = finding.offsets or (None, None)
                    found.append(
                        IncompleteBackupError(
                            f"{where}: {finding.key or 'an object'} is missing",
                            f"a run stored it; it holds offsets {first} to {last}",
                            "back these offsets up again, or --behavior-on-error log",
                            topic=intent.target,
                            offsets=list(finding.offsets or ()),
                        )
                    )
        self.missing += [] if self._settings.behavior_on_error == "fail" else found
        return found if self._settings.behavior_on_error == "fail" else []

    def _is_wanted(self, where: TopicPartition) -> bool:
        return self._settings.partitions is None or where.partition in self._settings.partitions

    def _splittable(self, where: TopicPartition, sets: Sequence[FileSet]) -> list[KbackupError]:
        """Refuse to split byte-array files of another tool where nobody agreed to it."""
        if self._settings.yes_split_on_newline:
            return []
        asked = set()
        for files in sets:
            for file in files.files:
                if file.format != "bytes" or file.view in asked:
                    continue
                asked.add(file.view)  # who wrote one of them wrote all
                if facts(self._store, file) is None:
                    what = "keys" if file.view is View.KEY else "values"
                    return [
                        RefusedError(
                            f"{where}: {file.key} may hold {what} that contain the separator",
                            "another tool wrote it, and nothing says how many records it has",
                            f"--yes-split-on-newline, if none of the {what} contains it",
                            topic=where.topic,
                        )
                    ]
        return []

    def _lacks(self, intent: Intent) -> list[tuple[str, str]]:
        """Say once what the connectors' layout has not stored of a topic."""
        sets = [
            files for where in self._catalog.partitions(intent.source)
            for files in self._catalog.sets[where] if not files.is_whole
        ]  # fmt: skip
        if not sets:
            return []
        lacking = []
        if all(files.keys is None for files in sets):
            lacking.append(("no_keys", "keys were not stored: records will have no key"))
        if all(files.headers is None for files in sets):
            lacking.append(("no_headers", "headers were not stored: records will have none"))
        lacking.append(("no_timestamps", "timestamps were not stored: records get the time of now"))
        return [(code, f"{intent.source}: {text}") for code, text in lacking]

    def _config(self, intent: Intent) -> dict[str, str]:
        """Settings of a topic to create: nothing that is restored may be deleted or refused."""
        source = self._sources.get(intent.source, SourceTopic()).config
        return {
            "retention.ms": "-1",
            "cleanup.policy": "delete",
            "message.timestamp.type": "CreateTime",
            "message.timestamp.before.max.ms": LONG_MAX,
            "message.timestamp.after.max.ms": LONG_MAX,
            **{name: source[name] for name in KEPT_CONFIG if name in source},
            **self._settings.topic_config,
        }


@dataclass(frozen=True, slots=True)
class _Held:
    """What the target cluster holds before the restore."""

    topics: Mapping[str, Topic]
    spans: Mapping[TopicPartition, Span]
    positions: Mapping[TopicPartition, Position]
    configs: Mapping[str, Mapping[str, str]]

    def target(self, name: str, standings: Mapping[TopicPartition, Standing]) -> Target:
        """Return a target topic as it stands."""
        if name not in self.topics:
            return Target()
        own = {
            where
            for where, standing in standings.items()
            if standing.mark is not None or standing.refusal is not None
        }
        # a partition that somebody else fills matters once this restore is to write to it
        others = (standings if own else self.spans).keys() - own
        filled = sum(len(self.spans[where]) for where in others if where.topic == name)
        partitions = self.topics[name].partitions
        return Target(partitions, filled, bool(own), self.configs.get(name))

    def kept(self, mark: Mark, target: TopicPartition) -> Mark:
        """Return *mark* with where the log stands, if an early version did not keep it."""
        return mark if mark.log is not None else replace(mark, log=self.spans[target])


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
