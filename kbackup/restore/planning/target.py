"""The target cluster, asked before anything is written: would it let this restore do its work?

A plan ends as its run would, so both ask: the broker checks the settings of each topic that would
be created without creating it, and says what this principal may do with the others, with the group
that keeps the position and with transactional ids.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kbackup.config import Settings
from kbackup.errors import KafkaError, KbackupError, RefusedError
from kbackup.kafka import Cluster, NewTopic, Permissions, check_idle
from kbackup.restore.planning.plan import PlannedTopic, RestorePlan
from kbackup.runs.dead_letters import ensure_topic

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
    """Create planned topics, or have the cluster say why it would not.

    Args:
        topics: With the action ``create``.
        cluster: The target.
        factor: Replication factor; None for the cluster's default.
        only_validate: Create nothing.

    Returns:
        By target, its id, or why it is refused: `kbackup.kafka.Cluster.create_topics`.
    """
    new = [
        NewTopic(
            topic.intent.target, topic.partitions, -1 if factor is None else factor, topic.config
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


def asked(
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
        plan: What is to be done.
        cluster: Validates what would be created.
        rights: Says what this principal may do.
        factor: Replication factor of created topics; None for the cluster's default.
        asks_for_transactions: Take a producer id to see whether transactions are allowed: for a
            plan alone.  After it a broker that was killed left commits of the restore's own
            transactions without an answer.

    Raises:
        GroupActiveError: If somebody else uses the group of a partition; the restore's own group
            was asked about before the plan was made.
        KafkaError: If the cluster does not answer.
    """
    if plan.refusals or not (plan.units() or any(topic.grows for topic in plan.topics)):
        return plan
    check_idle(cluster, *(group for group in plan.groups if group != plan.group))
    concerned = [topic for topic in plan.topics if topic.units or topic.grows]
    there = [t.intent.target for t in concerned if t.target.partitions is not None]
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
    name = topic.intent.target
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
    """Check that nothing else is written to the topic.

    Raises:
        RefusedError: If it is a target of the restore.
    """
    if any(each.intent.target == topic for each in plan.topics):
        raise RefusedError(
            f"{topic} would get the records of a backup and those that cannot be read",
            "parse.error.topic.prefix names a topic that is restored to",
            "choose another prefix, or another --rename",
            topic=topic,
        )


def create_error_topic(
    topic: str | None, cluster: Cluster, factor: int | None, *, only_validate: bool = False
) -> None:
    """Create the topic, unless it is there or none is asked for.

    Args:
        topic: The topic.
        cluster: The target.
        factor: Replicas of each partition; None for the cluster's default.
        only_validate: Create nothing: have the cluster say whether it would.

    Raises:
        KafkaError: If it cannot be created.
    """
    if topic is not None:
        factor, option = -1 if factor is None else factor, "--replication-factor"
        ensure_topic(cluster, topic, factor, option, only_validate=only_validate)
