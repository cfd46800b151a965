"""What a run would read and write; nothing is changed while it is made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kbackup import partitioners
from kbackup.clock import Clock
from kbackup.config import Settings
from kbackup.errors import (
    ConfigurationError,
    KafkaError,
    KbackupError,
    ObjectKeyError,
)
from kbackup.kafka import Cluster, Position, Topic, check_idle
from kbackup.naming import OFFSET_MAX, Layout, ObjectKey
from kbackup.records import UNKNOWN, Span, TopicIdentity, TopicPartition
from kbackup.reports import Bookmark
from kbackup.runs import known, wiring
from kbackup.runs.known import NOTHING, Known
from kbackup.runs.selection import select
from kbackup.sink.evidence import gather
from kbackup.sink.inherited import Inherited
from kbackup.sink.job import SinkUnit, recreated
from kbackup.sink.start import Evidence, Start, decide
from kbackup.stores import Store


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """One partition: where its backup continues, or why it cannot.

    Attributes:
        where: The partition.
        seen: What group, bucket and log show.
        start: Where to continue; None with *refusal*.
        refusal: Why nothing may be done with it.
        identity: Which topic it is.
        keeps_start: A later run would begin elsewhere if nothing said where this one did.
    """

    where: TopicPartition
    seen: Evidence
    start: Start | None
    refusal: KbackupError | None = None
    identity: TopicIdentity = UNKNOWN
    keeps_start: bool = False

    @property
    def state(self) -> str:
        """One word for people: what is to be done, or why there is nothing."""
        if self.start is None:
            return "refused"
        if self.start.offset < self.seen.log.end_offset:
            return "to do"
        if len(self.seen.log) == 0:
            return "emptied" if self.seen.log.end_offset else "empty"
        return "up to date"

    def unit(self) -> SinkUnit | None:
        """Return what a task has to do, None where there is nothing."""
        if self.start is None or self.start.offset >= self.seen.log.end_offset:
            return None
        stands = self.position() or self.seen.committed
        keeps = stands is not None and stands.offset == self.start.offset
        bookmark = Bookmark.from_metadata(stands.metadata) if stands is not None and keeps else None
        span = Span(self.start.offset, self.seen.log.end_offset)
        return SinkUnit(self.where, span, bookmark, self.identity)

    def followed(self) -> SinkUnit | None:
        """Return what a task that follows begins with, None where there is nothing to begin."""
        if self.start is None:
            return None
        if (unit := self.unit()) is not None:
            return unit
        committed = self.seen.committed
        bookmark = None if committed is None else Bookmark.from_metadata(committed.metadata)
        start = self.start.offset
        return SinkUnit(self.where, Span(start, start), bookmark, self.identity)

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
            if committed is not None and self.seen.is_confirmed:
                return Position(self.start.offset, committed.metadata)
            return Position(self.start.offset, Bookmark(identity=self.identity).to_metadata())
        if self.start.moves_group:
            return Position(self.start.offset)
        is_new = committed is None and not self.seen.has_objects
        if is_new and (self.start.offset > self.seen.log.start_offset or self.keeps_start):
            # the next run has to begin here too, whether or not there was anything to store
            return Position(self.start.offset, Bookmark(identity=self.identity).to_metadata())
        return self._counted()

    def _counted(self) -> Position | None:
        """Return the group's own position with the object that was counted, where one was.

        The next run then need only see that the object is there.
        """
        left, committed = self.seen.inherited, self.seen.committed
        if committed is None or not isinstance(left, Inherited):
            return None
        if left.counted[0].start_offset >= committed.offset:
            return None  # it is to be written again, so it is not what was stored last
        bookmark = Bookmark(left.counted[0].key, identity=self.identity)
        return Position(committed.offset, bookmark.to_metadata())


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What a run would do.

    Attributes:
        topics: The topics, as the cluster has them.
        partitions: Each partition of theirs that was asked for.
        group: The consumer group that keeps the positions.
        known: What the backup says about itself.
    """

    topics: Mapping[str, Topic]
    partitions: tuple[PlannedPartition, ...]
    group: str
    known: Known = NOTHING

    def units(self) -> list[SinkUnit]:
        """Return what tasks have to do, the largest share first."""
        units = [unit for at in self.partitions if (unit := at.unit()) is not None]
        return sorted(units, key=lambda unit: len(unit.span), reverse=True)


def make(
    settings: Settings,
    cluster: Cluster,
    store: Store,
    clock: Clock,
    reached: Mapping[TopicPartition, int] | None = None,
    likely: Callable[[], object] | None = None,
) -> SinkPlan:
    """Plan a run.

    Args:
        settings: What to back up, and where to.
        cluster: Where the topics are.
        store: Where the objects are.
        clock: The time.
        reached: Where the run stands in partitions that it plans a second time.
        likely: Called as soon as it looks as if there were something to do.

    Raises:
        GroupActiveError: If someone else works with the group.
        KafkaError: If a topic does not exist, or the cluster does not answer.
        StoreError: If the bucket cannot be asked.
    """
    names = _names(settings, cluster)
    topics = cluster.topics(names)
    missing = [name for name in names if name not in topics]
    if missing:
        raise KafkaError(
            f"topic {', '.join(missing)} does not exist",
            f"the cluster has {len(cluster.topic_names())} topics that this principal may see",
            "correct topics, or wait for it to be created",
        )
    wheres = _partitions(topics, settings)
    lacking = set(settings.partitions or ()) - {where.partition for where in wheres}
    if names and lacking:
        raise ConfigurationError(
            f"no topic has the partitions {','.join(map(str, sorted(lacking)))}",
            f"{', '.join(names)}: at most {max(t.partitions for t in topics.values())} each",
            "correct --partitions",
        )
    return _plan(settings, cluster, store, clock, topics, wheres, reached=reached, likely=likely)


def more(
    settings: Settings,
    cluster: Cluster,
    store: Store,
    clock: Clock,
    already: Mapping[TopicPartition, TopicIdentity],
) -> SinkPlan:
    """Plan what has appeared since a run began: topics that match now, partitions that were added.

    They are backed up from their beginning, whatever ``auto.offset.reset`` says: what is written
    to them is newer than the run.

    Args:
        settings: What to back up, and where to.
        cluster: Where the topics are.
        store: Where the objects are.
        clock: The time.
        already: The partitions that the run has planned before.

    Raises:
        KbackupError: As `make`, but for topics that do not exist: those may have been deleted.
    """
    names = _names(settings, cluster)
    topics = cluster.topics(names)
    ids = {where.topic: identity.topic_id for where, identity in already.items()}
    wheres = [
        where
        for where in _partitions(topics, settings)
        if where not in already and ids.get(where.topic, "") in ("", topics[where.topic].topic_id)
    ]
    if not wheres:
        return SinkPlan({}, (), wiring.group(settings, "sink"))
    new = {where.topic: topics[where.topic] for where in wheres}
    plan = _plan(settings, cluster, store, clock, new, wheres, reset="earliest")
    keeps_start = settings.auto_offset_reset != "earliest"
    return replace(
        plan, partitions=tuple(replace(at, keeps_start=keeps_start) for at in plan.partitions)
    )


def _names(settings: Settings, cluster: Cluster) -> list[str]:
    """Return the topics to back up; a pattern never takes its own dead letter topic."""
    letters = settings.errors_deadletterqueue_topic_name
    available = [name for name in cluster.topic_names() if name != letters]
    return select(available, settings.topics, settings.topics_regex)


def _partitions(topics: Mapping[str, Topic], settings: Settings) -> list[TopicPartition]:
    wanted = settings.partitions
    return [
        TopicPartition(topic.name, partition)
        for topic in topics.values()
        for partition in range(topic.partitions)
        if wanted is None or partition in wanted
    ]


def _plan(
    settings: Settings,
    cluster: Cluster,
    store: Store,
    clock: Clock,
    topics: Mapping[str, Topic],
    wheres: Sequence[TopicPartition],
    *,
    reached: Mapping[TopicPartition, int] | None = None,
    reset: str | None = None,
    likely: Callable[[], object] | None = None,
) -> SinkPlan:
    _check_keys(wiring.layout(settings), settings, wheres)
    group = wiring.group(settings, "sink")
    check_idle(cluster, group)
    committed = cluster.committed(group, wheres)
    logs = cluster.spans(wheres)
    if likely is not None and any(_waits(logs[where], committed.get(where)) for where in wheres):
        likely()
    layout = wiring.layout(settings)
    said = known.read_topics(store, layout, clock).with_run_records(store, layout, topics)
    found = gather(
        store, layout, clock, logs, committed, said,
        options=wiring.format_options(settings), cut_records=settings.flush_size,
    )  # fmt: skip
    evidence = {
        where: replace(seen, reached=(reached or {}).get(where)) for where, seen in found.items()
    }
    identities = {
        name: TopicIdentity(cluster.cluster_id, topic.topic_id) for name, topic in topics.items()
    }
    strangers = _strangers(said, identities, evidence)
    reset = reset or settings.auto_offset_reset
    planned = tuple(
        PlannedPartition(where, evidence[where], None, recreated(where))
        if where.topic in strangers
        else _plan_partition(where, evidence[where], reset, identities[where.topic])
        for where in wheres
    )
    return SinkPlan(topics, planned, group, said)


def _waits(log: Span, committed: Position | None) -> bool:
    """Whether records wait to be backed up, judging by log and group only."""
    start = log.start_offset if committed is None else max(log.start_offset, committed.offset)
    return start < log.end_offset


def _check_keys(layout: Layout, settings: Settings, wheres: Sequence[TopicPartition]) -> None:
    """Refuse a layout in which some partition's keys could not be stored, before anything is.

    Raises:
        ConfigurationError: Naming the key.
    """
    partitioner = partitioners.by_name(
        settings.partitioner_class, wiring.partitioner_options(settings)
    )
    for where in wheres:
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


def next_keys(settings: Settings) -> Callable[[TopicPartition, Span], str | None]:
    """Return what gives the key of the first object of a span, if it begins with a record.

    None where the records' own directory, time or schema decides.
    """
    layout, spec = wiring.layout(settings), wiring.views(settings)[-1]
    options = wiring.partitioner_options(settings)
    partitioner = partitioners.by_name(settings.partitioner_class, options)

    def key(where: TopicPartition, span: Span) -> str | None:
        directory = partitioners.only_directory(partitioner, where)
        is_affixed = settings.s3_schema_partition_affix_type != "NONE"
        if directory is None or is_affixed or layout.is_dated:
            return None
        parts = ObjectKey(
            where.topic, where.partition, span.start_offset, directory, spec.extension(), spec.view
        )
        return layout.key(parts)

    return key


def _strangers(
    said: Known,
    identities: Mapping[str, TopicIdentity],
    evidence: Mapping[TopicPartition, Evidence],
) -> set[str]:
    """Return the topics that are not the ones that were backed up, by their ids.

    The ledger says which topic it was, and so do positions and objects.
    """
    by_ledger = {
        name
        for name, identity in identities.items()
        if name in said.topics and identity.conflicts(said.topics[name].identity)
    }
    return by_ledger | {
        where.topic
        for where, seen in evidence.items()
        if any(identities[where.topic].conflicts(one) for one in seen.identities)
    }


def _plan_partition(
    where: TopicPartition, seen: Evidence, reset: str, identity: TopicIdentity
) -> PlannedPartition:
    try:
        start = decide(where, seen, reset=reset)
    except KbackupError as error:
        return PlannedPartition(where, seen, None, error, identity)
    return PlannedPartition(where, seen, start, identity=identity)
