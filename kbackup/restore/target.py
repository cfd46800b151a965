"""Prepare the target cluster: ask what it allows, create topics, commit where a restore begins.

A plan ends as its run would, so both ask: the broker checks the settings of each topic that would
be created without creating it, and says what this principal may do with the others, with the group
that keeps the position and with transactional ids.

Where records are written in transactions, each task commits its own beginning, once its writer has
fenced every other.  So no restore sets back what another one has committed since the plan.  Where
several partitions of a backup share a target, tasks commit all beginnings before any of them writes
a record: a partition without a position then is never one that has yet to begin.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kbackup.catalog.identity import BackupIdentity
from kbackup.config import Settings
from kbackup.errors import (
    KafkaError,
    KbackupError,
    RefusedError,
    worst,
)
from kbackup.kafka import Cluster, NewTopic, Permissions, Position, check_idle
from kbackup.records import TopicPartition
from kbackup.restore.job import PartitionMap, RestoreUnit
from kbackup.restore.plan import PlannedTopic, RestorePlan
from kbackup.runs import wiring

_NEW_CONFIG: Final = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
"""Settings that brokers before 3.6 do not know, and do without."""

_NEEDED: Final = frozenset({"WRITE", "DESCRIBE"})
"""What a restore does with a topic that is there; it takes ``ALTER`` to add partitions."""


def create(
    topics: Sequence[PlannedTopic],
    cluster: Cluster,
    factor: int | None,
    *,
    only_validate: bool = False,
) -> dict[str, str | KbackupError]:
    """Create topics with the action ``create``, or have the cluster say why it would not.

    It returns by target its id, or why it is refused: `kbackup.kafka.Cluster.create_topics`.
    """
    new = [
        NewTopic(
            topic.copy.target, topic.partitions, -1 if factor is None else factor, topic.config
        )
        for topic in topics
    ]
    found = cluster.create_topics(new, only_validate=only_validate) if new else {}
    plainer = [
        replace(topic, config={n: text for n, text in topic.config.items() if n not in _NEW_CONFIG})
        for topic in new
        if isinstance(error := found[topic.name], KbackupError) and _is_of_setting(error)
    ]
    return found | (cluster.create_topics(plainer, only_validate=only_validate) if plainer else {})


def _is_of_setting(error: KbackupError) -> bool:
    """Whether a topic was refused for a setting that not every broker knows."""
    return any(name in error.why for name in (*_NEW_CONFIG, "Unknown topic config"))


def checked_by_cluster(
    plan: RestorePlan,
    cluster: Cluster,
    rights: Permissions,
    factor: int | None,
    *,
    asks_for_transactions: bool,
) -> RestorePlan:
    """Return *plan* with what the target cluster has against it.

    A plan that is refused already is not asked about: nothing will run.

    Args:
        asks_for_transactions: Take a producer id to see whether transactions are allowed: for a
            plan alone.  After it a broker that was killed left commits of the restore's own
            transactions without an answer.

    Raises:
        GroupActiveError: If somebody else uses the group of a partition; the restore's own group
            was asked about before the plan was made.
    """
    if plan.refusals or not (plan.units() or any(topic.grows for topic in plan.topics)):
        return plan
    check_idle(cluster, *(group for group in plan.groups if group != plan.group))
    concerned = [topic for topic in plan.topics if topic.units or topic.grows]
    there = [t.copy.target for t in concerned if t.copy.there.partitions is not None]
    allowed = rights.of_topics(there)
    shared = list(_denied_to_all(plan, rights, asks_for_transactions)) if plan.units() else []
    new = [topic for topic in concerned if topic.action == "create"]
    created = create(new, cluster, factor, only_validate=True)
    topics = []
    for topic in plan.topics:
        is_concerned = topic.units or topic.grows
        found = list(_denials(topic, cluster, allowed, created)) if is_concerned else []
        found += shared
        shared = []  # said once
        topics.append(replace(topic, refusals=tuple(found), action="refuse") if found else topic)
    return replace(plan, topics=tuple(topics))


def _denials(
    topic: PlannedTopic,
    cluster: Cluster,
    allowed: Mapping[str, frozenset[str]],
    created: Mapping[str, str | KbackupError],
) -> Iterator[KbackupError]:
    name = topic.copy.target
    if topic.action == "create":
        if isinstance(error := created[name], KbackupError):
            yield error
        return
    needed = _NEEDED | {"ALTER"} if topic.grows else _NEEDED
    if missing := needed - allowed.get(name, frozenset()):
        yield _denied(f"topic {name}", missing, topic=name)
    elif topic.grows:
        try:
            cluster.create_partitions(name, topic.partitions, only_validate=True)
        except KbackupError as error:
            yield error


def _denied_to_all(
    plan: RestorePlan, rights: Permissions, asks_for_transactions: bool
) -> Iterator[KbackupError]:
    denied = next((group for group in plan.groups if "READ" not in rights.of_group(group)), None)
    if denied is not None:
        yield _denied(f"group {denied}", {"READ"})
    group = plan.groups[0]
    if asks_for_transactions and "WRITE" not in rights.of_transactions(f"{group}-plan"):
        yield _denied(f"transactional ids that begin with {group}-", {"WRITE"})


def _denied(resource: str, operations: Iterable[str], **place: str) -> KafkaError:
    named = " and ".join(sorted(operations))
    return KafkaError(
        f"this principal may not use {resource}",
        f"{named} is denied",
        f"allow {named} there (kafka-acls)",
        **place,
    )


def error_topic(settings: Settings) -> str | None:
    """Return the topic that a restore writes to what it cannot read; None for none.

    Source: the connector, which names it after its prefix and itself.
    """
    prefix = settings.parse_error_topic_prefix
    if not prefix or settings.behavior_on_error == "fail":
        return None
    return f"{prefix}-{settings.name or 'kbackup'}"


def check_error_topic(topic: str | None, plan: RestorePlan) -> None:
    """Check that the topic is no target of the restore."""
    if any(each.copy.target == topic for each in plan.topics):
        raise RefusedError(
            f"{topic} would get the records of a backup and those that cannot be read",
            "parse.error.topic.prefix names a topic that is restored to",
            "choose another prefix, or another --rename",
            topic=topic,
        )


_NAMED: Final = 10
"""The most topics that an error names."""


def begin(
    plan: RestorePlan,
    cluster: Cluster,
    replication_factor: int | None,
    *,
    exactly_once: bool,
    created: Callable[[Mapping[str, str]], None] | None = None,
) -> tuple[list[RestoreUnit], list[RestoreUnit]]:
    """Prepare the targets; a restore killed from here on can be continued.

    Args:
        exactly_once: Tasks write in transactions, and commit their beginnings themselves.
        created: Takes the ids of the topics that were created, before anything is written to them;
            one that the cluster does not say is empty.

    Returns:
        Units without objects, whose beginnings are committed before anything else is done; and the
        plan's units.  Both have the ids of created topics.
    """
    new = [topic for topic in plan.topics if topic.action == "create"]
    ids = dict[str, str]()
    refused = list[KbackupError]()
    for name, made in create(new, cluster, replication_factor).items():
        if isinstance(made, KbackupError):
            refused.append(made)
        else:
            ids[name] = made
    if created is not None:
        created(ids)
    if refused:
        raise _refusal(refused)

    for topic in plan.topics:
        if topic.grows:
            cluster.create_partitions(topic.copy.target, topic.partitions)

    def named(unit: RestoreUnit) -> RestoreUnit:
        return unit.at(target_id=ids.get(unit.target.topic, unit.position.target_id))

    first = [named(unit) for topic in plan.topics for unit in topic.beginnings]
    units = [named(unit) for unit in plan.units()]
    if exactly_once:
        return first, [unit if unit.group is None else unit.begun() for unit in units]
    positions = dict[str, dict[TopicPartition, Position]]()
    for unit in (*first, *units):
        if unit.begins:
            mine = positions.setdefault(unit.group or plan.group, {})
            mine |= unit.positions()
    for group, committed in positions.items():
        cluster.set_positions(group, committed)
    return [], [unit.begun() for unit in units]


def _refusal(refused: Sequence[KbackupError]) -> KbackupError:
    """Return why topics were not created, as one error: of the class that matters most."""
    for error in refused:
        if len(refused) == 1 or (isinstance(error, KafkaError) and error.is_away):
            return error
    code = worst(error.exit_code for error in refused)
    kind = next(type(error) for error in refused if error.exit_code == code)
    shown, rest = refused[:_NAMED], len(refused) - _NAMED
    named = [*map(str, shown), *([f"and {rest} more"] if rest > 0 else [])]
    remedies = dict.fromkeys(error.do for error in shown if error.do)
    return kind(
        f"{len(refused)} topics were not created",
        "; ".join(named),
        "; ".join(remedies),
    )


def group(settings: Settings, cluster: Cluster, backup: BackupIdentity) -> str:
    """Return the group that keeps the positions of a restore.

    A restore that was begun before the backup had an id continues with the group that it has.
    """
    named, *before = wiring.restore_groups(settings, backup)
    if not before or _is_begun(named, settings, cluster):
        return named
    return next((name for name in before if _is_begun(name, settings, cluster)), named)


def _is_begun(name: str, settings: Settings, cluster: Cluster) -> bool:
    """Whether a restore has committed positions; one of any map has one for partition 0."""
    return cluster.has_group(PartitionMap(settings.partition_map, name).group_of(0))
