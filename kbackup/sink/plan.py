"""Plan a run of the sink; planning changes nothing."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kbackup import partitioners, plugins
from kbackup.catalog import drills
from kbackup.catalog.identity import BackupIdentity
from kbackup.clock import Clock
from kbackup.config import Settings
from kbackup.errors import (
    ConfigurationError,
    IllegalTopicNameError,
    KafkaError,
    KbackupError,
    ObjectKeyError,
    counted,
    form,
    some,
)
from kbackup.kafka import Cluster, Position, Topic, check_idle
from kbackup.naming import OFFSET_MAX, ObjectKey, View, check_topic
from kbackup.naming.renaming import NOTHING_LEFT, LeftOut, Routes, TopicFilter
from kbackup.partitioners import Partitioner
from kbackup.records import UNKNOWN, Span, TopicIdentity, TopicPartition
from kbackup.runs import backup_state, history, wiring
from kbackup.runs.backup_state import NOTHING, BackupState
from kbackup.runs.context import RunContext
from kbackup.runs.history import Selection
from kbackup.runs.position import SinkPosition
from kbackup.runs.report import HeldUp
from kbackup.sink.evidence import gather
from kbackup.sink.job import SinkJob, SinkUnit, recreated
from kbackup.sink.rejects import ErrorPolicy
from kbackup.sink.schemas import SchemaSource
from kbackup.sink.start import Evidence, Inherited, Start, StoredAgain, StoredCut, decide, onward
from kbackup.stores import Store


def locked(settings: Settings) -> list[str]:
    """Return what one sink at a time works on: the topics, or the patterns."""
    return settings.asked.words or [""]


def selection(settings: Settings) -> Selection:
    """Return what a sink is asked for, and its summary speaks of."""
    only = settings.partitions
    return tuple(locked(settings)), None if only is None else frozenset(only)


def job_of(frame: RunContext, group: str, schemas: SchemaSource) -> SinkJob:
    """Return the job of a run's tasks."""
    frame.begin_encryption()
    settings, environment = frame.settings, frame.environment
    return SinkJob(
        run=frame.run,
        kafka=environment.kafka,
        store=environment.store,
        layout=wiring.layout(settings),
        clock=environment.clock,
        views=wiring.views(settings),
        partitioner=settings.partitioner_class,
        rule=wiring.rule(settings),
        extractor=settings.timestamp_extractor,
        affix=wiring.affix(settings),
        transforms=settings.transforms,
        routes=wiring.routes(settings),
        plugin_options=wiring.partitioner_options(settings),
        group=group,
        flush_tail=settings.flush_on_stop,
        nulls=wiring.nulls(settings),
        errors=replace(error_policy(settings), is_secret=environment.store.is_secret),
        schemas=schemas,
        backup=frame.backup.id,
    )


def error_policy(settings: Settings) -> ErrorPolicy:
    """Return what becomes of bad records; without tolerance no dead letter is written."""
    tolerates = settings.errors_tolerance == "all"
    stages = {"KEY": settings.key_converter, "VALUE": settings.value_converter}
    return ErrorPolicy(
        tolerates=tolerates,
        topic=settings.errors_deadletterqueue_topic_name if tolerates else None,
        has_context=settings.errors_deadletterqueue_context_headers_enable,
        takes_nulls=settings.report_null_values_to_dlq,
        reports_all=settings.errors_log_enable,
        reports_time=settings.errors_log_include_messages,
        connector=settings.name or "kbackup",
        classes={
            f"{part}_CONVERTER": plugins.java_class("converters", name)
            for part, name in stages.items()
            if name is not None
        },
        retry_s=settings.errors_retry_timeout / 1000,
        longest_wait_s=settings.errors_retry_delay_max_ms / 1000,
    )


@dataclass(frozen=True, slots=True)
class SinkPartitionPlan:
    """One partition: where its backup continues, or why it cannot.

    Attributes:
        seen: What group, bucket and log show.
        start: Where to continue; None with *refusal*.
        keeps_start: A later run would begin elsewhere if nothing said where this one did.
    """

    where: TopicPartition
    seen: Evidence
    start: Start | None
    refusal: KbackupError | None = None
    identity: TopicIdentity = UNKNOWN
    keeps_start: bool = False
    backup: str = ""

    @property
    def state(self) -> str:
        """One word for people: what is to be done, or why there is nothing."""
        if self.start is None:
            return "refused"
        if self.start.offset < self.seen.log.end_offset:
            return "to do"
        if self.seen.held_up is not None:
            return "held up"
        if len(self.seen.log) == 0:
            return "emptied" if self.seen.log.end_offset else "empty"
        return "up to date"

    @property
    def left_at(self) -> int | None:
        """Where another tool has left the group; None where it is kbackup's, or has no offset."""
        at = self.seen.committed
        return None if at is None or SinkPosition.read(at.metadata) is not None else at.offset

    def unit(self) -> SinkUnit | None:
        """Return what a task has to do, None where there is nothing."""
        if self.start is None or self.start.offset >= self.seen.log.end_offset:
            return None
        stands = self.position() or self.seen.committed
        keeps = stands is not None and stands.offset == self.start.offset
        commit_metadata = SinkPosition.beside(stands) if keeps else None
        span = Span(self.start.offset, self.seen.log.end_offset)
        return SinkUnit(self.where, span, commit_metadata, self.identity, self._held())

    def _held(self) -> tuple[StoredCut, ...]:
        """Return the cuts of values in the bucket that are stored a second time."""
        return () if self.start is None else onward(self.seen.again, self.start.offset)

    def followed(self) -> SinkUnit | None:
        """Return what a task that follows begins with, None where there is nothing to begin."""
        if self.start is None:
            return None
        if (unit := self.unit()) is not None:
            start = self.start.offset
            kept = tuple(span for span in self.seen.kept if span.end_offset > start)
            return replace(unit, kept=kept)
        commit_metadata = SinkPosition.beside(self.seen.committed)
        start = self.start.offset
        return SinkUnit(self.where, Span(start, start), commit_metadata, self.identity)

    def position(self) -> Position | None:
        """Return what to set the group to before anything is read; None if it is right.

        It is set back where it is too far ahead, and forward past what has expired: the next run
        need not find that out again.
        """
        if self.start is None:
            return None
        committed = self.seen.committed
        is_left_behind = committed is not None and committed.offset < self.start.offset
        if self.start.expired or is_left_behind:
            if (
                self.seen.is_confirmed
                and (commit_metadata := SinkPosition.beside(committed)) is not None
            ):
                return commit_metadata.position(self.start.offset)
            if not self.start.expired and self.seen.has_objects:
                return Position(self.start.offset)  # the next run compares it with the bucket
            again_to = StoredAgain(self.where, self._held()).to(self.start.offset)
            return self._empty(self.start.offset, again_to)
        if self.start.moves_group:
            return Position(self.start.offset)
        return self._first() if committed is None else self._counted(committed)

    def _first(self) -> Position | None:
        """Return the first position of a group that has none, where it needs one at once."""
        assert self.start is not None  # noqa: S101
        is_new = not self.seen.has_objects
        if is_new and (self.start.offset > self.seen.log.start_offset or self.keeps_start):
            # the next run has to begin here too, whether or not there was anything to store
            return self._empty(self.start.offset)
        # else every run that has nothing to do would have to warn of where it begins
        is_told = self.start.warnings and self.start.offset >= self.seen.log.end_offset
        return Position(self.start.offset) if is_told else None

    def _empty(self, offset: int, again_to: int | None = None) -> Position:
        """Return a position before which nothing has been stored."""
        last = SinkPosition(identity=self.identity, again_to=again_to, backup=self.backup)
        # of this run too, which retention overtook
        before = SinkPosition.beside(self.seen.committed)
        kept = last if before is None else replace(last, run=before.run, done=before.done)
        return kept.position(offset)

    def _counted(self, committed: Position) -> Position | None:
        """Return the group's own position with the object that was found to end there."""
        # the next run then need only see that the object is there
        left = self.seen.inherited
        if not isinstance(left, Inherited) or left.counted[0].start_offset >= committed.offset:
            return None  # what is to be written again is not what was stored last
        last = SinkPosition(left.counted[0].key, identity=self.identity, backup=self.backup)
        return last.position(committed.offset)


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What a run would do.

    Attributes:
        topics: The topics, as the cluster has them.
        partitions: Each partition of theirs that was asked for.
        known: What the backup says about itself.
    """

    topics: Mapping[str, Topic]
    partitions: tuple[SinkPartitionPlan, ...]
    group: str
    known: BackupState = NOTHING
    left_out: LeftOut = NOTHING_LEFT

    def units(self) -> list[SinkUnit]:
        """Return what tasks have to do, the largest share first."""
        units = [unit for at in self.partitions if (unit := at.unit()) is not None]
        return sorted(units, key=lambda unit: len(unit.span), reverse=True)

    def reaching(self, logs: Mapping[TopicPartition, Span]) -> "SinkPlan":
        """Return the plan of a run that goes on to where these logs end now."""

        def later(at: SinkPartitionPlan) -> SinkPartitionPlan:
            if at.where not in logs or at.seen.held_up is not None:
                return at
            before = at.seen.log
            end = max(before.end_offset, logs[at.where].end_offset)
            return replace(at, seen=replace(at.seen, log=Span(before.start_offset, end)))

        return replace(self, partitions=tuple(map(later, self.partitions)))


def check_keys(settings: Settings, wheres: Sequence[TopicPartition]) -> None:
    """Refuse a layout in which some partition's keys could not be stored, before anything is.

    Raises:
        ConfigurationError: Naming the key.
    """
    layout, partitioner = wiring.layout(settings), _partitioner(settings)
    for where in map(wiring.routes(settings), wheres):
        encoded = partitioners.only_directory(partitioner, where) or "any"
        for spec in wiring.views(settings):
            parts = ObjectKey(
                where.topic, where.partition, OFFSET_MAX, encoded, spec.extension(), spec.view
            )
            try:
                layout.key(parts)
            except ObjectKeyError as error:
                raise ConfigurationError(
                    f"objects of {where} cannot be stored as {error.key[:200]}",
                    error.why,
                    "choose another topics.dir, directory.delim or file.delim",
                ) from error


def clashing_names(
    routes: Routes, topics: Collection[str], taken: Collection[str]
) -> dict[str, KbackupError]:
    """Return the topics that cannot be stored under the names they get, and why.

    Args:
        taken: Those that the run backs up already.

    Raises:
        ConfigurationError: As `Routes` raises it.
    """
    named: dict[str, list[str]] = {}
    for topic in sorted({*taken, *topics}):
        named.setdefault(routes.topic(topic), []).append(topic)
    found: dict[str, KbackupError] = {}
    for stored, sources in named.items():
        try:
            check_topic(stored, "correct regex and replacement of the transforms")
        except IllegalTopicNameError as error:
            found |= dict.fromkeys(sources, error)
        if len(sources) > 1:
            clash = ConfigurationError(
                f"{', '.join(sources[:-1])} and {sources[-1]} would both be stored as {stored}",
                "the transforms give them one name, so their objects would have the same keys",
                "keep a part of the name that tells them apart, as replacement=copy_of_$0 does",
                property="transforms",
            )
            found |= dict.fromkeys(sources, clash)
    return {topic: error for topic, error in found.items() if topic not in taken}


def next_keys(settings: Settings) -> Callable[[TopicPartition, Span], str | None]:
    """Return what gives the key of the first object of a span, if it begins with a record.

    None where the records' own directory, time or schema decides.
    """
    layout, partitioner = wiring.layout(settings), _partitioner(settings)
    spec, routes = wiring.views(settings)[-1], wiring.routes(settings)

    def key(where: TopicPartition, span: Span) -> str | None:
        directory = partitioners.only_directory(partitioner, where)
        is_affixed = settings.s3_schema_partition_affix_type != "NONE"
        if directory is None or is_affixed or layout.is_dated:
            return None
        topic = routes.topic(where.topic)
        parts = ObjectKey(
            topic, where.partition, span.start_offset, directory, spec.extension(), spec.view
        )
        return layout.key(parts)

    return key


def _partitioner(settings: Settings) -> Partitioner:
    return partitioners.by_name(settings.partitioner_class, wiring.partitioner_options(settings))


Claim = Callable[[Collection[str]], Collection[str]]
"""Takes topics, and returns those of them that other runs work on."""


def no_others(_topics: Collection[str]) -> Collection[str]:
    """Return nothing: without a lock nobody knows of other runs."""
    return ()


def make_plan(
    settings: Settings,
    cluster: Cluster,
    store: Store,
    clock: Clock,
    reached: Mapping[TopicPartition, int] | None = None,
    likely: Callable[[], object] | None = None,
    claim: Claim = no_others,
    backup: BackupIdentity | None = None,
) -> SinkPlan:
    """Plan a run.

    Args:
        reached: Where the run stands in partitions that it plans a second time.
        likely: Called as soon as it looks as if there were something to do.
        claim: Takes the names in the bucket of what is to be backed up; returns those that are
            left to other runs.
        backup: Which backup it is; None for what its address says.

    Raises:
        GroupActiveError: If someone else works with the group.
        ConfigurationError: If the configuration leaves out every topic, and none is waited for; or
            no topic has a partition that is asked for.
        KafkaError: If a topic does not exist, or the cluster does not answer.
    """
    available = _available(settings, cluster)
    if settings.dry_run or not settings.follow:
        settings.asked.check_exclusion(available)
    of_drills = topics_of_drills(settings, cluster, store)
    names = [name for name in settings.asked.topics(available) if name not in of_drills]
    topics = cluster.topics(names)
    missing = [name for name in names if name not in topics and name in settings.topics]
    if missing:
        raise KafkaError(
            f"{form(len(missing), 'topic')} {some(missing)} {form(len(missing), 'does', 'do')} not "
            "exist",
            f"the cluster has {counted(len(cluster.topic_names()), 'topic')} that this principal "
            "may see",
            "correct topics, or create what is missing",
        )
    topics = _claimed(settings, topics, claim)
    wheres = partitions_of(topics, settings.asked)
    lacking = set(settings.partitions or ()) - {where.partition for where in wheres}
    if topics and lacking:
        raise ConfigurationError(
            f"no topic has the partitions {','.join(map(str, sorted(lacking)))}",
            f"{some(names)}: at most {max(t.partitions for t in topics.values())} each",
            "correct --partitions",
        )
    planner = _SinkPlanner(settings, cluster, store, clock, backup or wiring.address(settings))
    plan = planner.plan(topics, wheres, reached=reached, likely=likely)
    left_out = settings.asked.left_out(cluster.topic_names())
    return replace(plan, left_out=replace(left_out, drills=of_drills))


def plan_more(
    settings: Settings,
    cluster: Cluster,
    store: Store,
    clock: Clock,
    already: Mapping[TopicPartition, TopicIdentity],
    claim: Claim = no_others,
    backup: BackupIdentity | None = None,
) -> SinkPlan:
    """Plan what has appeared since a run began: topics that match now, partitions that were added.

    They are backed up from their beginning, whatever ``auto.offset.reset`` says: what is written
    to them is newer than the run.

    Args:
        already: The partitions that the run has planned before.

    Raises:
        KbackupError: As `make_plan`, but for topics that do not exist: those may have been deleted.
    """
    names = {*settings.asked.topics(_available(settings, cluster))}
    topics = cluster.topics(names.difference(topics_of_drills(settings, cluster, store)))
    ids = {where.topic: identity.topic_id for where, identity in already.items()}
    wheres = [
        where
        for where in partitions_of(topics, settings.asked)
        if where not in already and ids.get(where.topic, "") in ("", topics[where.topic].topic_id)
    ]
    new = {where.topic: topics[where.topic] for where in wheres}
    fresh = {name: topic for name, topic in new.items() if name not in ids}
    if fresh:
        kept = _claimed(settings, fresh, claim)
        new = {name: topic for name, topic in new.items() if name in ids or name in kept}
        wheres = [where for where in wheres if where.topic in new]
    backup = backup or wiring.address(settings)
    if not wheres:
        return SinkPlan({}, (), wiring.group(settings, backup, "sink"))
    planner = _SinkPlanner(settings, cluster, store, clock, backup)
    plan = planner.plan(new, wheres, reset="earliest", taken={*ids})
    keeps_start = settings.auto_offset_reset != "earliest"
    return replace(
        plan, partitions=tuple(replace(at, keeps_start=keeps_start) for at in plan.partitions)
    )


def _claimed(settings: Settings, topics: Mapping[str, Topic], claim: Claim) -> dict[str, Topic]:
    routes = wiring.routes(settings)
    left = claim([routes.topic(name) for name in topics])
    return {name: topic for name, topic in topics.items() if routes.topic(name) not in left}


def _available(settings: Settings, cluster: Cluster) -> list[str]:
    """Return the topics there are; a pattern never takes its own dead letter topic."""
    letters = settings.errors_deadletterqueue_topic_name
    return [name for name in cluster.topic_names() if name != letters]


def topics_of_drills(settings: Settings, cluster: Cluster, store: Store) -> list[str]:
    """Return the topics of drills that are there: the drill that made one will delete it.

    Raises:
        CorruptObjectError: If what a drill has stored about them cannot be read.
    """
    # names of the cluster first: a drill stores its own before they are there
    maybe = [name for name in cluster.topic_names() if name.startswith(drills.PREFIX)]
    if not maybe:
        return []
    return sorted(drills.scratch_topics(store, wiring.layout(settings)).intersection(maybe))


def partitions_of(topics: Mapping[str, Topic], asked: TopicFilter) -> list[TopicPartition]:
    """Return the partitions of *topics* that are *asked* for."""
    every = (where for topic in topics.values() for where in topic.wheres)
    return [where for where in every if asked.has(where.partition)]


@dataclass(frozen=True, slots=True)
class _SinkPlanner:
    settings: Settings
    cluster: Cluster
    store: Store
    clock: Clock
    backup: BackupIdentity

    def plan(
        self,
        topics: Mapping[str, Topic],
        wheres: Sequence[TopicPartition],
        *,
        reached: Mapping[TopicPartition, int] | None = None,
        reset: str | None = None,
        likely: Callable[[], object] | None = None,
        taken: Collection[str] | None = None,
    ) -> SinkPlan:
        """Plan *wheres* of *topics*; the other arguments are those of `make_plan`."""
        settings, cluster, backup = self.settings, self.cluster, self.backup
        routes = wiring.routes(settings)
        refusals = clashing_names(routes, topics, taken or ())
        # of those that come beside others, one whose name clashes is left out alone
        if refusals and taken is None:
            raise next(iter(refusals.values()))
        check_keys(settings, [at for at in wheres if at.topic not in refusals])
        group = wiring.group(settings, backup, "sink")
        check_idle(cluster, group)
        committed = cluster.committed(group, wheres)
        ends = cluster.ends(wheres)  # first: what is written meanwhile is behind no transaction
        logs = cluster.spans(wheres)
        if likely is not None and any(_waits(logs[at], committed.get(at)) for at in wheres):
            likely()
        said = backup_state.read_topics(self.store, wiring.layout(settings), self.clock)
        held_up = self._held_up(logs, ends)
        evidence = {
            where: replace(
                seen, reached=(reached or {}).get(where), held_up=held_up.get(routes(where))
            )
            for where, seen in self._evidence(said, logs, committed).items()
        }
        identities = {
            name: TopicIdentity(cluster.cluster_id, topic.topic_id)
            for name, topic in topics.items()
        }
        strangers = _strangers(said, identities, evidence, routes)
        refusals = {at: recreated(at, routes.topic(at)) for at in strangers} | refusals
        reset = reset or settings.auto_offset_reset
        planned = tuple(
            SinkPartitionPlan(where, evidence[where], None, refusals[where.topic])
            if where.topic in refusals
            else _plan_partition(where, evidence[where], reset, identities[where.topic], backup.id)
            for where in wheres
        )
        return SinkPlan(topics, planned, group, said)

    def _evidence(
        self,
        said: BackupState,
        logs: Mapping[TopicPartition, Span],
        committed: Mapping[TopicPartition, Position],
    ) -> dict[TopicPartition, Evidence]:
        """Return what group, bucket and log show; the bucket has topics by their names there."""
        settings, routes = self.settings, wiring.routes(self.settings)
        last = wiring.views(settings)[-1]
        found = gather(
            self.store, wiring.layout(settings), self.clock,
            {routes(where): log for where, log in logs.items()},
            {routes(where): position for where, position in committed.items()}, said,
            options=wiring.format_options(settings), cut_records=settings.flush_size,
            values=last.extension() if last.view is View.VALUE else None, backup=self.backup.id,
        )  # fmt: skip
        return {where: found[routes(where)] for where in logs}

    def _held_up(
        self, logs: Mapping[TopicPartition, Span], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, HeldUp]:
        """Return what open transactions hold up, by names in the bucket, and since when."""
        now, routes = self.clock.now().timestamp(), wiring.routes(self.settings)
        found = {
            routes(where): seen
            for where, log in logs.items()
            if (seen := HeldUp.of(log, ends[where], now)) is not None
        }
        if not found:
            return {}
        layout, asked = wiring.layout(self.settings), selection(self.settings)
        earlier = history.kept_success(self.store, layout, asked).held_up
        return {where: seen.after(earlier.get(where)) for where, seen in found.items()}


def _waits(log: Span, committed: Position | None) -> bool:
    """Whether records wait to be backed up, judging by log and group only."""
    start = log.start_offset if committed is None else max(log.start_offset, committed.offset)
    return start < log.end_offset


def _strangers(
    said: BackupState,
    identities: Mapping[str, TopicIdentity],
    evidence: Mapping[TopicPartition, Evidence],
    routes: Routes,
) -> set[str]:
    """Return the topics that are not the ones that were backed up, by their ids."""
    by_ledger = {
        name
        for name, identity in identities.items()
        if (entry := said.topics.get(routes.topic(name))) is not None
        and identity.conflicts(entry.identity)
    }
    return by_ledger | {
        where.topic
        for where, seen in evidence.items()
        if any(identities[where.topic].conflicts(one) for one in seen.identities)
    }


def _plan_partition(
    where: TopicPartition, seen: Evidence, reset: str, identity: TopicIdentity, backup: str
) -> SinkPartitionPlan:
    try:
        start = decide(where, seen, reset=reset)
    except KbackupError as error:
        return SinkPartitionPlan(where, seen, None, error, identity)
    return SinkPartitionPlan(where, seen, start, identity=identity, backup=backup)
