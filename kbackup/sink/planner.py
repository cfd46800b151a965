"""Plans a run of the sink; planning changes nothing."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from kbackup.clock import Clock
from kbackup.config import Settings
from kbackup.errors import ConfigurationError, KafkaError, KbackupError
from kbackup.kafka import Cluster, Position, Topic, check_idle
from kbackup.naming import View
from kbackup.plurals import counted
from kbackup.records import Span, TopicIdentity, TopicPartition
from kbackup.reports import HeldUp
from kbackup.runs import history, known, wiring
from kbackup.runs.known import Known
from kbackup.runs.routing import Routes
from kbackup.runs.selection import select
from kbackup.sink import object_keys
from kbackup.sink.evidence import gather
from kbackup.sink.job import recreated
from kbackup.sink.plan import PlannedPartition, SinkPlan
from kbackup.sink.start import Evidence, decide
from kbackup.sink.wiring import locked
from kbackup.stores import Store

Claim = Callable[[Collection[str]], Collection[str]]
"""Takes topics, and returns those of them that other runs work on."""


def no_others(_topics: Collection[str]) -> Collection[str]:
    """Return nothing: without a lock nobody knows of other runs."""
    return ()


def make(
    settings: Settings,
    cluster: Cluster,
    store: Store,
    clock: Clock,
    reached: Mapping[TopicPartition, int] | None = None,
    likely: Callable[[], object] | None = None,
    claim: Claim = no_others,
) -> SinkPlan:
    """Plan a run.

    Args:
        settings: What to back up, and where to.
        cluster: Where the topics are.
        store: Where the objects are.
        clock: The time.
        reached: Where the run stands in partitions that it plans a second time.
        likely: Called as soon as it looks as if there were something to do.
        claim: Takes the names in the bucket of what is to be backed up; returns those that are
            left to other runs.

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
            f"the cluster has {counted(len(cluster.topic_names()), 'topic')} that this principal "
            "may see",
            "correct topics, or wait for it to be created",
        )
    topics = _claimed(settings, topics, claim)
    wheres = _partitions(topics, settings)
    lacking = set(settings.partitions or ()) - {where.partition for where in wheres}
    if topics and lacking:
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
    claim: Claim = no_others,
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
        claim: As for `make`.

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
    new = {where.topic: topics[where.topic] for where in wheres}
    fresh = {name: topic for name, topic in new.items() if name not in ids}
    if fresh:
        kept = _claimed(settings, fresh, claim)
        new = {name: topic for name, topic in new.items() if name in ids or name in kept}
        wheres = [where for where in wheres if where.topic in new]
    if not wheres:
        return SinkPlan({}, (), wiring.group(settings, "sink"))
    plan = _plan(settings, cluster, store, clock, new, wheres, reset="earliest", taken={*ids})
    keeps_start = settings.auto_offset_reset != "earliest"
    return replace(
        plan, partitions=tuple(replace(at, keeps_start=keeps_start) for at in plan.partitions)
    )


def _claimed(settings: Settings, topics: Mapping[str, Topic], claim: Claim) -> dict[str, Topic]:
    """Return those of *topics* that are not left to other runs."""
    routes = wiring.routes(settings)
    left = claim([routes.topic(name) for name in topics])
    return {name: topic for name, topic in topics.items() if routes.topic(name) not in left}


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
    taken: Collection[str] | None = None,
) -> SinkPlan:
    routes = wiring.routes(settings)
    clashes = object_keys.clashes(routes, topics, taken or ())
    if clashes and taken is None:
        raise next(iter(clashes.values()))
    object_keys.check(settings, [at for at in wheres if at.topic not in clashes])
    group = wiring.group(settings, "sink")
    check_idle(cluster, group)
    committed = cluster.committed(group, wheres)
    ends = cluster.ends(wheres)  # first: what is written meanwhile is behind no transaction
    logs = cluster.spans(wheres)
    if likely is not None and any(_waits(logs[where], committed.get(where)) for where in wheres):
        likely()
    layout = wiring.layout(settings)
    names = [routes.topic(name) for name in topics]
    said = known.read_topics(store, layout, clock).with_run_records(store, layout, names)
    stored_as = {where: routes(where) for where in wheres}
    found = gather(
        store, layout, clock,
        {stored_as[where]: log for where, log in logs.items()},
        {stored_as[where]: position for where, position in committed.items()}, said,
        options=wiring.format_options(settings), cut_records=settings.flush_size,
        values=_values(settings),
    )  # fmt: skip
    now = clock.now().timestamp()
    held_up = {
        stored_as[where]: seen
        for where, log in logs.items()
        if (seen := HeldUp.of(log, ends[where], now)) is not None
    }
    earlier = history.read_held_up(store, layout, locked(settings)) if held_up else {}
    held_up = {where: seen.after(earlier.get(where)) for where, seen in held_up.items()}
    evidence = {
        where: replace(
            found[stored_as[where]],
            reached=(reached or {}).get(where),
            held_up=held_up.get(stored_as[where]),
        )
        for where in logs
    }
    identities = {
        name: TopicIdentity(cluster.cluster_id, topic.topic_id) for name, topic in topics.items()
    }
    strangers = _strangers(said, identities, evidence, routes)
    refusals = {name: recreated(name, routes.topic(name)) for name in strangers} | clashes
    reset = reset or settings.auto_offset_reset
    planned = tuple(
        PlannedPartition(where, evidence[where], None, refusals[where.topic])
        if where.topic in refusals
        else _plan_partition(where, evidence[where], reset, identities[where.topic])
        for where in wheres
    )
    return SinkPlan(topics, planned, group, said)


def _values(settings: Settings) -> str | None:
    """Return the extension of objects of values, None where whole records are written."""
    last = wiring.views(settings)[-1]
    return last.extension() if last.view is View.VALUE else None


def _waits(log: Span, committed: Position | None) -> bool:
    """Whether records wait to be backed up, judging by log and group only."""
    start = log.start_offset if committed is None else max(log.start_offset, committed.offset)
    return start < log.end_offset


def _strangers(
    said: Known,
    identities: Mapping[str, TopicIdentity],
    evidence: Mapping[TopicPartition, Evidence],
    routes: Routes,
) -> set[str]:
    """Return the topics that are not the ones that were backed up, by their ids.

    The ledger says which topic it was, and so do positions and objects.
    """
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
    where: TopicPartition, seen: Evidence, reset: str, identity: TopicIdentity
) -> PlannedPartition:
    try:
        start = decide(where, seen, reset=reset)
    except KbackupError as error:
        return PlannedPartition(where, seen, None, error, identity)
    return PlannedPartition(where, seen, start, identity=identity)
