"""The target cluster, asked before anything is written: would it let this restore do its work?

A plan ends as its run would, so both ask: the broker checks the settings of each topic that would
be created without creating it, and says what this principal may do with the others, with the group
that keeps the position and with transactional ids.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from kbackup.errors import KafkaError, KbackupError
from kbackup.kafka import Cluster, Permissions, check_idle
from kbackup.restore.planning.plan import PlannedTopic, RestorePlan

_NEW_CONFIG: Final = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
"""Settings that brokers before 3.6 do not know, and do without."""

_NEEDED: Final = frozenset({"WRITE", "DESCRIBE"})
"""What a restore does with a topic that is there; it takes ``ALTER`` to add partitions."""


def create(
    topic: PlannedTopic, cluster: Cluster, factor: int | None, *, only_validate: bool = False
) -> str:
    """Create a planned topic and return its id, or have the cluster say why it would not.

    Args:
        topic: With the action ``create``.
        cluster: The target.
        factor: Replication factor; None for the cluster's default.
        only_validate: Create nothing.

    Raises:
        ConfigurationError: If the cluster does not take one of the topic's settings.
        KafkaError: If it refuses for another reason.
    """

    def ask(config: Mapping[str, str]) -> str:
        return cluster.create_topic(
            topic.intent.target,
            topic.partitions,
            -1 if factor is None else factor,
            config,
            only_validate=only_validate,
        )

    try:
        return ask(topic.config)
    except KbackupError as error:
        if not any(name in error.why for name in (*_NEW_CONFIG, "Unknown topic config")):
            raise
        return ask({name: value for name, value in topic.config.items() if name not in _NEW_CONFIG})


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
    topics = []
    for topic in plan.topics:
        found = list(_denials(topic, cluster, allowed, factor)) if topic in concerned else []
        found += shared
        shared = []  # said once
        topics.append(replace(topic, refusals=tuple(found), action="refuse") if found else topic)
    return replace(plan, topics=tuple(topics))


def _denials(
    topic: PlannedTopic,
    cluster: Cluster,
    allowed: Mapping[str, frozenset[str]],
    factor: int | None,
) -> Iterator[KbackupError]:
    name = topic.intent.target
    if topic.action == "create":
        try:
            create(topic, cluster, factor, only_validate=True)
        except KbackupError as error:
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
