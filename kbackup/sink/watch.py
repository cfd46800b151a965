"""The driver of a sink that follows: what it sees in the cluster, and what it tells the tasks."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from kbackup.config import Settings
from kbackup.errors import KafkaError, KbackupError, TopicChangedError, TopicDeletedError
from kbackup.kafka import Cluster, Connection
from kbackup.records import Span, TopicIdentity, TopicPartition
from kbackup.runs.environment import Environment
from kbackup.sink.entering import Opening
from kbackup.sink.job import SinkUnit, recreated
from kbackup.sink.plan import Claim, SinkPlan, no_others, plan_more
from kbackup.stores import Store


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the cluster finds.

    Attributes:
        logs: What the logs hold, of partitions that answer, up to the last stable offset.
        ends: Where those logs end, behind open transactions.
        gone: Topics that do not exist.
        changed: Topics that are others of the same name.
        silent: Partitions that cannot be asked, and why.
    """

    logs: Mapping[TopicPartition, Span] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    silent: Mapping[TopicPartition, KbackupError] = field(default_factory=dict)


class ClusterWatch:
    """Examines the cluster repeatedly, with one client as long as it answers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cluster: Cluster | None = None

    def __call__(self, followed: Mapping[TopicPartition, TopicIdentity]) -> Look:
        """Look at these partitions; a topic that does not answer keeps no other from it.

        Raises:
            KafkaError: If the cluster does not answer.
        """
        if not followed:
            return Look()
        try:
            self._cluster = self._cluster or self._connection.cluster()
            return _look(self._cluster, followed)
        except KafkaError:
            self._cluster = None  # its client may keep asking a broker that was restarted
            raise


def _look(cluster: Cluster, followed: Mapping[TopicPartition, TopicIdentity]) -> Look:
    ids = {where.topic: identity.topic_id for where, identity in followed.items()}
    failures: dict[str, KafkaError] = {}
    topics = cluster.topics(ids, failures)
    now = {name: topic.topic_id for name, topic in topics.items() if topic.topic_id}
    changed = frozenset(name for name, topic_id in now.items() if ids[name] not in ("", topic_id))
    silent: dict[TopicPartition, KbackupError] = {}
    asked = []
    for where in followed:
        topic = topics.get(where.topic)
        if where.topic in failures:
            silent[where] = failures[where.topic]
        elif topic is not None and where.partition in topic.leaderless:
            silent[where] = _leaderless(where)
        elif topic is not None and where.topic not in changed:
            asked.append(where)
    logs, ends, refused = _logs(cluster, asked)
    gone = frozenset(ids.keys() - topics.keys() - failures.keys())
    return Look(logs, ends, gone, changed, silent | refused)


def _logs(
    cluster: Cluster, wheres: list[TopicPartition]
) -> tuple[
    dict[TopicPartition, Span], dict[TopicPartition, int], dict[TopicPartition, KbackupError]
]:
    """Ask for all at once, and topic by topic where one of them is in the way.

    The ends come first: what is written meanwhile is behind no transaction.
    """
    try:
        ends = cluster.ends(wheres)
        return cluster.spans(wheres), ends, {}
    except KafkaError as error:
        if error.is_away:
            raise
    logs: dict[TopicPartition, Span] = {}
    ends = {}
    refused: dict[TopicPartition, KbackupError] = {}
    for _, group in groupby(sorted(wheres), key=lambda where: where.topic):
        of_topic = list(group)
        try:
            found = cluster.ends(of_topic)
            logs |= cluster.spans(of_topic)
            ends |= found
        except KafkaError as error:
            if error.is_away:
                raise
            refused |= dict.fromkeys(of_topic, error)
    return logs, ends, refused


def changed(where: TopicPartition, position: int, look: Look, before: Look) -> KbackupError | None:
    """Return why a partition is not the one that was followed; most reasons must be seen twice.

    A broker's answer may be out of date, or come while another broker takes over.
    """
    if where.topic in look.changed:
        return recreated(where.topic)
    if where.topic in look.gone & before.gone:
        return TopicDeletedError(
            f"{where.topic} no longer exists",
            "it was deleted while it was being backed up",
            "what is stored stays as it is; remove the topic from the list, or restore it",
            topic=where.topic,
            partition=where.partition,
        )
    ends = [
        max(one.logs[where].end_offset, one.ends.get(where, 0))
        for one in (before, look)
        if where in one.logs
    ]
    if len(ends) == 2 and max(ends) < position:
        return TopicChangedError(
            f"{where} ends at offset {ends[-1]}, but was backed up to {position}",
            "its log was cut back",
            "what is stored stays as it is; look at the topic before running again",
            topic=where.topic,
            partition=where.partition,
        )
    return None


def _leaderless(where: TopicPartition) -> KafkaError:
    return KafkaError(
        f"{where} has no leader",
        "the brokers that hold it are down",
        "start them; the other partitions go on",
        topic=where.topic,
        partition=where.partition,
    )


NEWCOMERS_S: Final = 20.0
"""Seconds between two looks.  Even if one of them fails, what is new is followed within 60 s."""


class Newcomers:
    """Takes in matching topics and partitions that are new.

    Args:
        settings: The configuration.
        world: The cluster, asked by one client as long as it answers, and the time.
        store: Where the backup is.
        opening: Accounts for newcomers, and enters them into the ledger.
        plan: What is backed up already.
        looked: When the cluster was asked for it, in seconds since the epoch.
        claim: Takes topics, and returns those that are left to other runs.

    Attributes:
        looked: When the cluster was last asked: what came before is being backed up.
    """

    def __init__(
        self, settings: Settings, world: Environment, store: Store, opening: Opening,
        plan: SinkPlan, looked: float, claim: Claim = no_others,
    ) -> None:  # fmt: skip
        self._claim = claim
        self._settings, self._world, self._store = settings, world, store
        self._opening, self._group = opening, plan.group
        self._known = {at.where: at.identity for at in plan.partitions}
        self._cluster: Cluster | None = None
        self.looked = looked

    def adopt(self) -> list[SinkUnit]:
        """Look once, and take in what is new; return what tasks have to begin with.

        Raises:
            KbackupError: If cluster or store do not answer, or a newcomer cannot be backed up.
        """
        began = self._world.clock.now().timestamp()
        plan, cluster = self._look()
        if plan.partitions:
            self._opening.add(plan, cluster, self._group, self.looked)
            self._known |= {at.where: at.identity for at in plan.partitions}
        self.looked = began
        return [unit for at in plan.partitions if (unit := at.followed()) is not None]

    def wait(self, stop: threading.Event) -> list[SinkUnit]:
        """Wait for a first topic, where there is none; a single failed look is forgiven.

        Returns:
            What tasks have to begin with; nothing where *stop* was set first.
        """
        has_failed = False
        units: list[SinkUnit] = []
        while not self._known and not stop.wait(NEWCOMERS_S):
            try:
                units = self.adopt()
            except KafkaError:
                if has_failed:
                    raise
                has_failed = True
            else:
                has_failed = False
        return units

    def _look(self) -> tuple[SinkPlan, Cluster]:
        """Plan the partitions that have appeared; return with it the cluster it is of."""
        try:
            if self._cluster is None:
                self._cluster = self._world.kafka.cluster()
            else:
                self._cluster.refresh()
            plan = plan_more(
                self._settings, self._cluster, self._store, self._world.clock, self._known,
                self._claim,
            )  # fmt: skip
        except KbackupError:
            self._cluster = None  # its client may keep asking a broker that was restarted
            raise
        return plan, self._cluster
