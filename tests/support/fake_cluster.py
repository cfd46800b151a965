"""What every cluster in memory says of its topics: a `Connection`, and the `Cluster` behind it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

from kbackup.errors import KafkaError, KbackupError
from kbackup.kafka import (
    Acl,
    BrokerSetting,
    Group,
    GroupList,
    GroupOffset,
    NewTopic,
    Position,
    ScramUser,
    Topic,
)
from kbackup.records import Span, TopicPartition


@dataclass
class FakeAccess:
    """Who may do what in a cluster; None where it has no authoriser, or keeps no users."""

    entries: set[Acl] | None = field(default_factory=set)
    people: dict[tuple[str, str], int] | None = field(default_factory=dict)
    brokers: dict[str, BrokerSetting] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)  # what this principal may not ask for
    passwords: dict[str, bytes] = field(default_factory=dict)  # that were set
    done: list[str] = field(default_factory=list)  # what was added, in order

    def _check(self, what: str) -> None:
        if what in self.denied:
            raise KafkaError(f"reading {what}", "Cluster authorization failed")

    def acls(self) -> tuple[Acl, ...] | None:
        """All entries."""
        self._check("acls")
        return None if self.entries is None else tuple(sorted(self.entries))

    def users(self) -> tuple[ScramUser, ...] | None:
        """All users."""
        self._check("users")
        if self.people is None:
            return None
        return tuple(sorted(ScramUser(*who, number) for who, number in self.people.items()))

    def settings(self) -> Mapping[str, BrokerSetting]:
        """The settings of a broker."""
        self._check("settings")
        return self.brokers

    def add(self, acls: Sequence[Acl]) -> None:
        """Add entries; without an authoriser nobody asks for that."""
        self._check("adding")
        if not acls:
            return
        assert self.entries is not None
        self.entries.update(acls)
        self.done += [acl.permission for acl in acls]

    def set_password(self, user: ScramUser, password: bytes) -> None:
        """Add a user."""
        assert self.people is not None
        self.people[user.name, user.mechanism] = user.iterations
        self.passwords[user.name] = password
        self.done.append(user.name)

    def close(self) -> None:
        """There is nothing to close."""


@dataclass
class FakeCluster:
    """Topics and their settings; what they hold, and the groups' positions, are its children's."""

    ids: dict[str, str] = field(default_factory=dict)  # the id of each topic
    logs: dict[TopicPartition, Any] = field(default_factory=dict)  # what each partition holds
    _: KW_ONLY
    # settings of topics that are their own
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    leaderless: set[TopicPartition] = field(default_factory=set)  # nobody answers for them
    denied: set[str] = field(default_factory=set)  # topics that may not be described
    forbidden: frozenset[str] = frozenset()  # what this principal may not do with topics
    is_away: bool = False  # no broker answers
    cluster_id: str = "cluster-1"
    brokers: int = 1

    # consumer groups of others, and where they stand; None where nobody may know
    consumers: dict[str, dict[TopicPartition, GroupOffset] | None] = field(default_factory=dict)
    undescribed: set[str] = field(default_factory=set)  # those that nobody describes
    sees_all_groups: bool = True
    # an error of the next look at consumer groups
    no_groups: KafkaError | None = None
    who: FakeAccess = field(default_factory=FakeAccess)
    # what is asked about offsets and ends, in order
    asked: list[str] = field(default_factory=list)

    def span(self, where: TopicPartition) -> Span:
        """What a partition holds."""
        raise NotImplementedError

    def group(self, name: str) -> dict[TopicPartition, Position]:
        """The positions of a group."""
        raise NotImplementedError

    def add_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic."""
        raise NotImplementedError

    # -- Connection

    def cluster(self) -> Self:
        """Itself, unless it is away."""
        self.refresh()
        return self

    def permissions(self) -> Self:
        """Itself: what this principal may do."""
        return self

    def consumer_groups(self) -> Self:
        """Itself: where consumer groups stand."""
        return self

    def access(self) -> FakeAccess:
        """Who may do what."""
        return self.who

    def listed(self) -> GroupList:
        """The consumer groups there are."""
        if self.no_groups is not None:
            raise self.no_groups
        found = tuple(
            Group(name, "", "DEAD")
            if where == {} or name in self.undescribed
            else Group(name, "consumer", "EMPTY")
            for name, where in self.consumers.items()
        )  # what Kafka says of share groups, which tell no offsets, and of those of Streams
        return GroupList(found, self.sees_all_groups)

    def offsets(
        self, groups: Sequence[str]
    ) -> Iterator[tuple[str, dict[TopicPartition, GroupOffset] | None]]:
        """Where they stand."""
        self.asked.append("offsets")
        return iter([(name, self.consumers[name]) for name in groups])

    def close(self) -> None:
        """There is nothing to close."""

    def of_topics(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """All operations, but for those that are forbidden."""
        return dict.fromkeys(names, self.of_group("") - self.forbidden)

    def of_group(self, _group: str) -> frozenset[str]:
        """All operations."""
        return frozenset({"READ", "WRITE", "DESCRIBE", "ALTER", "DELETE"})

    of_transactions = of_group

    # -- Cluster

    def refresh(self) -> None:
        """Nothing is remembered; the cluster may be away."""
        if self.is_away:
            away = KafkaError("asking the cluster", "no answer")
            away.is_away = True
            raise away

    def create_topic(
        self, name: str, partitions: int, _factor: int, config: Mapping[str, str],
        *, only_validate: bool = False,
    ) -> str:  # fmt: skip
        """Create a topic."""
        if only_validate:
            return ""
        self.add_topic(name, partitions, config)
        return self.ids[name]

    def create_topics(
        self, topics: Sequence[NewTopic], *, only_validate: bool = False
    ) -> dict[str, str | KbackupError]:
        """Create topics; one that is refused does not keep the others."""
        found: dict[str, str | KbackupError] = {}
        for one in topics:
            given = (one.name, one.partitions, one.replication_factor, one.config)
            try:
                found[one.name] = self.create_topic(*given, only_validate=only_validate)
            except KbackupError as error:
                found[one.name] = error
        return found

    def topic_names(self) -> list[str]:
        """All topics."""
        return sorted(self.ids)

    def topics(
        self, names: Iterable[str], failures: dict[str, KafkaError] | None = None
    ) -> dict[str, Topic]:
        """Those of *names* that exist."""
        self.refresh()
        partitions = Counter(where.topic for where in self.logs)
        found = {}
        for name in names:
            if name in self.denied:
                if failures is None:
                    raise KafkaError(f"describing topic {name}", "not authorised")
                failures[name] = KafkaError(f"describing topic {name}", "not authorised")
            elif name in self.ids:
                gone = frozenset(at.partition for at in self.leaderless if at.topic == name)
                found[name] = Topic(name, partitions[name], self.ids[name], gone)
        return found

    def spans(self, wheres: Sequence[TopicPartition], **_: Any) -> dict[TopicPartition, Span]:
        """What the logs hold."""
        self.refresh()
        assert not self.leaderless & set(wheres)
        return {where: self.span(where) for where in wheres}

    def settled_spans(
        self, wheres: Sequence[TopicPartition], *_: Any
    ) -> dict[TopicPartition, Span]:
        """What the logs hold: no transaction stays open."""
        return self.spans(wheres)

    def wait_for(self, ends: Mapping[TopicPartition, int], *_: Any) -> None:
        """No transaction that is open ends."""

    def ends(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs end."""
        self.asked.append("ends")
        return {where: self.span(where).end_offset for where in wheres}

    def first_since(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first records of times."""
        found = {}
        for where, ms in times.items():
            log = self.logs[where]
            at = (n for n, row in enumerate(log.rows) if row and row["timestamp"] >= ms)
            if (first := next(at, None)) is not None:
                found[where] = log.start + first
        return found

    def committed(
        self, group: str, wheres: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Position]:
        """The group's positions."""
        held = self.group(group)
        return {where: held[where] for where in wheres if where in held}

    def has_group(self, group: str) -> bool:
        """Whether the group has positions."""
        return bool(self.group(group))

    def members(self, _group: str) -> list[str]:
        """Nobody."""
        return []

    def topic_config(
        self, names: Iterable[str], *, overridden_only: bool = False
    ) -> dict[str, dict[str, str]]:
        """The settings of topics: one that nobody has changed, and their own."""
        default = {} if overridden_only else {"cleanup.policy": "delete"}
        shown = (name for name in names if "DESCRIBE_CONFIGS" not in self.forbidden)
        return {name: {**default, **self.configs.get(name, {})} for name in shown}

    def alter_topic_config(
        self, name: str, config: Mapping[str, str], removed: Iterable[str]
    ) -> None:
        """Change settings."""
        self.configs[name] |= config
        for key in removed:
            del self.configs[name][key]
