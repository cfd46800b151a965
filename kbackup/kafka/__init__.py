"""Kafka: records, batches and positions for tasks; topics, groups and permissions for the driver.

Owns every client of a cluster, and knows neither objects nor a run's settings.  Only this folder
imports confluent_kafka, but for its registry client in `kbackup.connect.registry.client`.  Others
import only this module, and to turn batches into rows `fetch.rows_of`.

What Kafka is to the rest of kbackup: a task reads, writes and keeps its positions; the driver asks
of topics, offsets, groups and permissions.  Rows come and go as columns.  A `Connection` is
plain data and crosses processes; it opens clients where they are used.  `KafkaSettings` is the one
for a real cluster.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, runtime_checkable

import pyarrow as pa

from kbackup.batches import Batches
from kbackup.errors import GroupActiveError, KafkaError, KbackupError
from kbackup.options import MSK_IAM
from kbackup.records import Span, TopicPartition

PATIENCE_S: Final = 30.0
"""How long a task that works waits at least for a broker that was there a moment ago."""


@dataclass(frozen=True, slots=True)
class Position:
    """A committed offset, the next one to work on, and the text that the committer kept with it.

    The text is empty when someone else moved the offset.
    """

    offset: int
    metadata: str = ""


NOT_DESCRIBED: Final = "DEAD"
"""The state of a group that is listed, and whose members the client cannot ask for.

It is a share group, or one of Kafka Streams whose tasks the broker assigns (KIP-1071).
"""


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group, as the cluster lists it.

    Attributes:
        protocol_type: ``consumer``, or what its members call it; empty where the cluster does not
            say, such as for a group that only keeps offsets.
        state: In Kafka's capital letters, such as ``EMPTY`` or ``STABLE``.
    """

    name: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class GroupList:
    """The groups that this principal may see; complete where it has DESCRIBE on the cluster."""

    groups: tuple[Group, ...]
    is_complete: bool


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The next offset that a group reads, and what its consumers keep beside it, byte for byte.

    Kafka itself keeps none as empty.
    """

    offset: int
    metadata: bytes


class Groups(Protocol):
    """The consumer groups of a cluster, and where they stand."""

    def listed(self) -> GroupList:
        """Return the groups of all protocol types.

        Raises:
            KafkaError: If a broker does not answer; likewise `offsets`.
        """
        ...

    def offsets(
        self, groups: Sequence[str]
    ) -> Iterator[tuple[str, Mapping[TopicPartition, GroupOffset] | None]]:
        """Yield each group, and where it stands; None where this principal may not know."""
        ...

    def alter(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """Set where a group without members stands in these partitions, all or none.

        Raises:
            KafkaError: If the cluster refused, as it does while the group has members.
        """
        ...

    def delete(self, group: str, wheres: Sequence[TopicPartition]) -> None:
        """Leave a group without members no position in these partitions.

        Raises:
            KafkaError: If the cluster refused.
        """
        ...

    def close(self) -> None:
        """Leave the cluster."""
        ...


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """An access control list's entry, in the words of ``kafka-acls``.

    Attributes:
        resource_type: Such as ``TOPIC``; ``UNKNOWN`` where the client has no word for it, and so
            cannot set it either.
        name: The resource's, or how names begin; ``*`` for all.
        pattern: ``LITERAL`` or ``PREFIXED``.
        principal: Such as ``User:app``.
        host: An address; ``*`` for all.
        operation: Such as ``READ``; ``UNKNOWN`` as above.
        permission: ``ALLOW`` or ``DENY``.
    """

    resource_type: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


@dataclass(frozen=True, slots=True, order=True)
class ScramUser:
    """A user who signs in by SCRAM, ``SCRAM-SHA-256`` or ``-512``: nobody can read the password.

    It is hashed as often as *iterations* says.
    """

    name: str
    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """What a broker is set to, None where it does not show it, and whether nobody has set it."""

    value: str | None
    is_default: bool


class Access(Protocol):
    """Who may do what in a cluster, and how its brokers are set.

    Raises:
        KafkaError: From each method, if the cluster refuses or does not answer.
    """

    def acls(self) -> tuple[Acl, ...] | None:
        """Return all entries, sorted; None where the cluster has no authoriser."""
        ...

    def users(self) -> tuple[ScramUser, ...] | None:
        """Return all users, sorted; None where the cluster keeps none that it tells of."""
        ...

    def settings(self) -> Mapping[str, BrokerSetting]:
        """Return the settings of one broker."""
        ...

    def add(self, acls: Sequence[Acl]) -> None:
        """Add entries; those that are there stay."""
        ...

    def set_password(self, user: ScramUser, password: bytes) -> None:
        """Let a user sign in by this mechanism."""
        ...

    def close(self) -> None:
        """Leave the cluster."""
        ...


FENCES: Final = 64
"""Transactional ids that a group has for a topic at most; another number would let a writer of an
earlier version go on beside a new one.

A transaction, and a client, for each of 1,000 partitions took 20 times as long as for 64.
"""


def fence(target: TopicPartition) -> TopicPartition:
    """Return the partition that the transactional id of a writer to *target* is named after."""
    return replace(target, partition=target.partition % FENCES)


class LogStartMovedError(KbackupError, code="expired"):
    """Retention overtook the reader: its next offset is gone from the log."""


class OffsetMovedError(KbackupError, code="offset_moved"):
    """The group's offset is ahead of what this run would commit."""


class TakenOverError(KafkaError):
    """A newer writer of the same fence has begun, or the cluster has ended this one's transaction.

    It can write nothing more; which of the two it is the cluster does not say.
    """


class BrokenOffError(KafkaError):
    """A transaction was not committed, or it is not known: another writer may go on after it."""


NO_OTHERS: Final[Mapping[TopicPartition, Position]] = MappingProxyType({})
"""A writer that writes to its target alone commits no other positions."""


class Reader(Protocol):
    """Reads partitions, one after the other; no member of any group."""

    def read(self, where: TopicPartition, span: Span) -> Generator[pa.RecordBatch, None, None]:
        """Read the records of *span*, which holds fewer where some were compacted or aborted.

        The end is known by position, never by a record: the last offsets may hold none.  Close
        the generator where it is not read to its end.

        Yields:
            ``records.SCHEMA``, at least one row each, offsets rising.

        Raises:
            LogStartMovedError: If retention has deleted the next offset to read.
            TopicChangedError: If the log ends before *span* does.
            KafkaError: If the cluster stays silent, or says no.
        """
        ...

    def close(self) -> None:
        """Leave the cluster."""
        ...


@runtime_checkable
class ReadsBatches(Protocol):
    """A reader that has the batches themselves."""

    def batches(self, where: TopicPartition, span: Span) -> Generator[Batches, None, None]:
        """Read the committed batches that begin in *span*, without those that hold no records.

        Of a batch that begins before it, the records that are in it come as a batch of their own;
        all others are as the broker sent them.

        Yields:
            At least one each, offsets rising.

        Raises:
            ConfigurationError: If there are batches of a message format before version 2.
            KafkaError: Likewise all that `Reader.read` raises.
        """
        ...


class TargetWriter(Protocol):
    """Writes to one target partition, and commits a position of its group with the records.

    It may write to other partitions of the topic too, and commit positions in them.

    Attributes:
        record_bytes_max: The largest record that the target takes, its headers counted in.
    """

    record_bytes_max: int

    def position(self, where: TopicPartition | None = None) -> Position | None:
        """Return the group's committed position in *where*, or the target; None where it has none.

        Earlier writers are fenced by now, so nobody moves it any more.
        """
        ...

    def positions(
        self, wheres: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Position | None]:
        """Return the group's committed positions, in one request; see `position`.

        Those that the cluster does not say are left out.
        """
        ...

    def write(self, batch: pa.RecordBatch, where: TopicPartition | None = None) -> int:
        """Send the records of *batch* (``records.SCHEMA``) in order.

        A null timestamp is the layout's "not stored": the record gets the time of writing.
        *where* is a partition of the target's topic; None for the target.

        Returns:
            How many timestamps the client could not send as they are: 0 ms becomes 1 ms.
        """
        ...

    def commit(
        self,
        position: Position,
        others: Mapping[TopicPartition, Position] = NO_OTHERS,
        where: TopicPartition | None = None,
    ) -> None:
        """Make everything written so far visible, together with *position*.

        Args:
            position: The group's in *where*.
            others: Its positions in other partitions, committed together with it.
            where: A partition of the target's topic; None for the target.

        Raises:
            KafkaError: If the cluster refused; with transactions nothing is visible then.
        """
        ...

    def flush(self) -> None:
        """Wait until the cluster has acknowledged everything written; it is not committed yet.

        Raises:
            KafkaError: If the cluster refused a record.
        """
        ...

    def written(self, where: TopicPartition) -> Span | None:
        """Return where the records stand in a partition that were written since it was asked last.

        All that was written is acknowledged: see `flush`.  None where there are none, and where
        the cluster, or the client, does not say where they all are.  Others' may lie between them.
        """
        ...

    def abort(self) -> None:
        """Drop what was not committed; safe to call at any time, and it raises nothing."""
        ...

    def close(self) -> None:
        """Leave the cluster; what was not committed is dropped."""
        ...


@runtime_checkable
class WritesBatches(Protocol):
    """A writer that takes batches as they are stored."""

    def write_batches(self, batches: Batches, where: TopicPartition | None = None) -> None:
        """Send batches of which each holds as many records as offsets, and no time of a broker's.

        The target takes their sizes, and is not set to compress them anew.

        Raises:
            BrokenOffError: If nothing more can be committed by this writer.
            KafkaError: If the cluster refused one, for another reason.
        """
        ...


class Positions(Protocol):
    """The committed offsets of one group, which has no members.

    Not safe to use from several threads at once.
    """

    def read(self, where: TopicPartition) -> Position | None:
        """Return the group's position, None where it has none.

        Raises:
            KafkaError: If the cluster does not say.
        """
        ...

    def read_all(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """Return the group's positions, in one request; those it is not told of are left out.

        Raises:
            KafkaError: If the cluster does not answer.
        """
        ...

    def advance_all(
        self, positions: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, KbackupError]:
        """Commit positions in one request; return what kept any from it.

        That is a `KafkaError` if the group has live members, or cannot be written, and an
        `OffsetMovedError` if the group is ahead: another run overtook this one.
        """
        ...

    def close(self) -> None:
        """Leave the cluster."""
        ...


NO_ENDS: Final[Mapping[TopicPartition, int]] = MappingProxyType({})

SETTLE_S: Final = 10.0
"""How long a transaction that is still open is waited for where none should be."""


def deletes_older_than(config: Mapping[str, str]) -> int | None:
    """Return the age in ms at which a topic with these settings deletes records; None for never."""
    if "delete" not in config.get("cleanup.policy", "delete"):
        return None
    age = int(config.get("retention.ms", -1))
    return None if age < 0 else age


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster has it, and how many partitions.

    Attributes:
        topic_id: Changes when a topic is deleted and created again; empty where unknown.
        leaderless: Partitions that have no leader now: nobody answers for them.
    """

    name: str
    partitions: int
    topic_id: str
    leaderless: frozenset[int] = frozenset()

    @property
    def wheres(self) -> list[TopicPartition]:
        """Its partitions, by number."""
        return [TopicPartition(self.name, number) for number in range(self.partitions)]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; a replication factor of -1 takes the cluster's default."""

    name: str
    partitions: int
    replication_factor: int = -1
    config: Mapping[str, str] = field(default_factory=dict)


class Cluster(Protocol):
    """What the driver asks of a cluster, and the little it changes there.

    Its id is empty where it has none; *brokers* is their number.
    """

    cluster_id: str
    brokers: int

    def topic_names(self) -> list[str]:
        """Return the names of all topics that this principal may see, sorted."""
        ...

    def refresh(self) -> None:
        """Ask for the names of topics again.

        Raises:
            KafkaError: If no broker answers.
        """
        ...

    def topics(
        self, names: Iterable[str], failures: dict[str, KafkaError] | None = None
    ) -> dict[str, Topic]:
        """Describe those of *names* that exist.

        *failures* takes an error that only one topic has, such as a missing permission; without
        it that is raised.
        """
        ...

    def spans(
        self, wheres: Sequence[TopicPartition], *, committed_only: bool = True
    ) -> dict[TopicPartition, Span]:
        """Return what each partition's log holds: from the log start to its end offset.

        With *committed_only* that is the last stable offset, in front of open transactions.
        """
        ...

    def ends(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where each partition's log ends, behind open transactions."""
        ...

    def first_since(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition whose record is of a time or later.

        Times are in ms since the epoch; a partition without such a record is left out.
        """
        ...

    def settled_spans(
        self,
        wheres: Sequence[TopicPartition],
        at_least: Mapping[TopicPartition, int] = NO_ENDS,
        wait_s: float = SETTLE_S,
    ) -> dict[TopicPartition, Span]:
        """Return `spans` once the transactions that have ended are visible in them.

        A transaction that stays open is waited for no longer than *wait_s*; the spans end in
        front of it.  A log that is said to end too soon is waited for no longer than
        `PATIENCE_S`: *at_least* says where logs end, and a broker that has just become the leader
        of a partition may answer with an end of some time ago.
        """
        ...

    def wait_for(self, ends: Mapping[TopicPartition, int], wait_s: float = SETTLE_S) -> None:
        """Wait until transactions that were open before these offsets have ended.

        Consumers of committed records then read up to them, unless one stays open.
        """
        ...

    def committed(
        self, group: str, wheres: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Position]:
        """Return the group's positions; a partition without one is left out."""
        ...

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """Write positions of a group without members, forwards or backwards."""
        ...

    def has_group(self, group: str) -> bool:
        """Whether the group has members or positions."""
        ...

    def members(self, group: str) -> list[str]:
        """Return the client ids and hosts of the group's live members."""
        ...

    def topic_config(
        self, names: Iterable[str], *, overridden_only: bool = False
    ) -> dict[str, dict[str, str]]:
        """Return settings of existing topics, without topics whose settings are not readable.

        With *overridden_only* they are the topic's own; else the defaults are among them.
        """
        ...

    def alter_topic_config(
        self, name: str, config: Mapping[str, str], removed: Collection[str]
    ) -> None:
        """Change settings of a topic; those *removed* go back to the default, others stay.

        Raises:
            KafkaError: If the cluster does not take one of them; nothing was changed then.
        """
        ...

    def create_topics(
        self, topics: Sequence[NewTopic], *, only_validate: bool = False
    ) -> dict[str, str | KbackupError]:
        """Create topics, or find out why the cluster refuses some: one does not keep the others.

        With *only_validate* the cluster looks at names, values and permissions alone.

        Returns:
            By name, its id; empty where the cluster has none, or does not know the topic
            everywhere yet, and where nothing was created.  Or the reason why it was not created: a
            `ConfigurationError` where the cluster does not take a setting.
        """
        ...

    def delete_topics(self, names: Collection[str]) -> dict[str, KafkaError]:
        """Delete topics, whatever they hold, and wait until the cluster has them no longer.

        Returns:
            By name, why one is there still; one that was not there is none of them.
        """
        ...

    def delete_groups(self, names: Collection[str]) -> dict[str, KafkaError]:
        """Delete consumer groups, likewise; the cluster refuses one that has members."""
        ...

    def create_partitions(self, name: str, count: int, *, only_validate: bool = False) -> None:
        """Have a topic have *count* partitions, and wait until all of them have a leader.

        With *only_validate* the cluster looks at the number and at permissions alone.

        Raises:
            KafkaError: If the cluster refuses, or a partition has no leader after `SETTLE_S`.
        """
        ...


class Permissions(Protocol):
    """Asks a cluster for the operations it would authorise.

    An operation is named as ``kafka-acls`` names it: ``READ``, ``DESCRIBE``.  A cluster without
    an authoriser allows all of them.
    """

    def of_topics(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return what is allowed with each topic; of one that is denied, or not there, nothing.

        Raises:
            KafkaError: If the cluster does not answer; likewise `of_group`.
        """
        ...

    def of_group(self, group: str) -> frozenset[str]:
        """Return what is allowed with a consumer group, which need not exist yet."""
        ...

    def of_transactions(self, transactional_id: str) -> frozenset[str]:
        """Return what is allowed with a transactional id: ``WRITE``, or nothing.

        Whoever else writes under this id is fenced.

        Raises:
            KafkaError: If the cluster does not answer.
        """
        ...


def create_topic(cluster: Cluster, topic: NewTopic, *, only_validate: bool = False) -> str:
    """Create one topic, and return its id: `Cluster.create_topics`.

    Raises:
        ConfigurationError: If the cluster does not take a setting; nothing was created then.
        KafkaError: If it refuses for another reason; likewise.
    """
    found = cluster.create_topics([topic], only_validate=only_validate)[topic.name]
    if isinstance(found, KbackupError):
        raise found
    return found


def check_idle(cluster: Cluster, *groups: str) -> None:
    """Refuse a group with live members: its position would change under them.

    Raises:
        GroupActiveError: Naming the members of the first such group.
    """
    for group in groups:
        if not (members := cluster.members(group)):
            continue
        raise GroupActiveError(
            f"consumer group {group} has live members",
            ", ".join(members[:5]),
            "stop the connector that uses it, or choose another --group",
        )


def check_not_ahead(what: str, found: Position | None, offset: int) -> None:
    """Refuse *what* is about to be done where a group is found ahead of *offset*.

    Raises:
        OffsetMovedError: If it is.
    """
    if found is not None and found.offset > offset:
        raise OffsetMovedError(
            what,
            f"the group's offset is already {found.offset}: another run has overtaken this one",
            "no record is lost; let one run at a time work on a group",
        )


class Connection(Protocol):
    """How to reach a cluster: plain data that opens clients."""

    def cluster(self) -> Cluster:
        """Open the cluster as an administrator sees it.

        Raises:
            KafkaError: If no broker answers within the timeout.
        """
        ...

    def reader(self, group: str, *, by_batches: bool = False) -> Reader:
        """Open a reader that may read as *group* may; one that `ReadsBatches` if asked for."""
        ...

    def writer(
        self,
        target: TopicPartition,
        group: str,
        *,
        exactly_once: bool = True,
        max_message_bytes: int | None = None,
        is_spread: bool = False,
    ) -> TargetWriter:
        """Open a writer, and end whatever an earlier writer of its `fence` had begun.

        Args:
            target: The partition, of which *group* keeps the position.
            group: A consumer group.
            exactly_once: Write in transactions that carry the position.  Otherwise records are
                written idempotently, and a killed run may repeat those after the last position.
            max_message_bytes: What the topic takes; None for what the broker says.
            is_spread: Whether records go to other partitions of the topic too.

        Returns:
            One that `WritesBatches` too, where a writer of one partition in transactions can.
        """
        ...

    def fence(self, target: TopicPartition) -> TopicPartition:
        """Return the partition that stands for all those whose writers take over from each other.

        Of a group's writers to partitions with the same fence only the newest can write.  It does
        not depend on the run, so a run that goes on where another one was killed always takes over
        from what is left of it.
        """
        ...

    def positions(self, group: str) -> Positions:
        """Open the positions that *group* keeps, as a task sees them."""
        ...

    def permissions(self) -> Permissions:
        """Ask what this principal may do."""
        ...

    def consumer_groups(self) -> Groups:
        """Ask where consumer groups stand; close it.

        Raises:
            KafkaError: If no client can be made.
        """
        ...

    def access(self) -> Access:
        """Ask who may do what; close it.

        Raises:
            KafkaError: If no client can be made.
        """
        ...


class Outage:
    """Remembers that no broker answers, so that a task waits for that once, not once per partition.

    A partition without a leader looks the same to whoever reads or writes it, but others may work.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._error: KbackupError | None = None

    def check(self) -> None:
        """Raise the error that no broker answers, once that is known."""
        if self._error is not None:
            raise type(self._error)(self._error.what, self._error.why, self._error.do)

    def note(self, error: KbackupError) -> None:
        """After *error*, find out whether a broker answers at all."""
        if self._error is None and isinstance(error, KafkaError):
            try:
                self._connection.cluster()
            except KbackupError as away:
                self._error = away


_PACKING: Final = frozenset({"compression.type", "compression.codec", "compression.level"})
"""Properties that ask for records to be compressed by the producer."""

_CLIENT: Final = {
    "client.id": "kbackup",
    "log.connection.close": False,
    "socket.keepalive.enable": True,
}


@dataclass(frozen=True, slots=True)
class Way:
    """How records pass between Kafka's client and kbackup.

    Attributes:
        name: ``native``: in columns, through the C library; ``python``: as objects.
        why: Why the faster way cannot be had here, where it was not ruled out.
    """

    name: Literal["native", "python"]
    why: str = ""

    @property
    def is_native(self) -> bool:
        """Whether it is the C library's."""
        return self.name == "native"


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach a real cluster: the `Connection` of every run outside the tests.

    Attributes:
        bootstrap_servers: ``host:port``, comma separated.
        admin: The operator's properties of the administrator's client; they win over ours.
        consumer: The same of consumers.
        producer: The same of producers.
        timeout_s: Give up on a silent cluster after this many seconds.
        client: How records pass between client and kbackup: ``native``, ``python``, or ``auto``
            for the first of them that can be had.
    """

    bootstrap_servers: str
    admin: Mapping[str, str] = field(default_factory=dict)
    consumer: Mapping[str, str] = field(default_factory=dict)
    producer: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 10.0
    client: str = "auto"

    def __repr__(self) -> str:
        return f"KafkaSettings({self.bootstrap_servers!r})"

    def properties(
        self, ours: Mapping[str, Any], operators: Mapping[str, str], *, connects: bool = True
    ) -> dict[str, Any]:
        """Return a client's properties: for every client, then *ours*, then the *operators*'.

        Without *connects*, which has the client sign in, nobody is asked for credentials.

        Raises:
            ConfigurationError: If nothing names the region of an MSK cluster.
            KafkaError: If there are no credentials for it.
        """
        found = {**_CLIENT, **ours, **operators, "bootstrap.servers": self.bootstrap_servers}
        if found.get("sasl.mechanisms") != MSK_IAM:
            return found
        from kbackup.kafka import msk  # noqa: PLC0415  (imports botocore)

        return msk.signed(found) if connects else msk.without_tokens(found)

    def way(self) -> Way:
        """Return how records pass here, on this machine.

        Raises:
            ConfigurationError: If the C library is asked for and cannot be had.
        """
        from kbackup.kafka.native import choose  # noqa: PLC0415

        return choose(self.client)

    # A client is imported where it is opened: whoever only passes settings on needs none.

    def cluster(self) -> Cluster:
        """Open the cluster: `Connection.cluster`."""
        from kbackup.kafka import cluster  # noqa: PLC0415

        return cluster.KafkaCluster(self)

    def check_properties(self) -> None:
        """Check that the client knows the operators' properties, whatever host they are for.

        Nothing is connected to, and no file that they name is read.

        Raises:
            ConfigurationError: If it does not.
        """
        if self.admin or self.consumer or self.producer:
            from kbackup.kafka import cluster  # noqa: PLC0415

            cluster.check_properties(replace(self, bootstrap_servers=""), is_here=False)

    @property
    def writes_batches(self) -> bool:
        """Whether batches can be written; who asks for compression wants records packed by it."""
        is_free = self.client == "auto" and _PACKING.isdisjoint(self.producer)
        return is_free and not self.without_batches(self.producer)

    def without_batches(self, properties: Mapping[str, str] | None = None) -> str:
        """Return why batches cannot pass, by this machine or in a client's way; or empty.

        *properties* are the operator's of that client; None for those of consumers.
        """
        from kbackup.batches import native  # noqa: PLC0415
        from kbackup.kafka import wire  # noqa: PLC0415

        if native.library() is None:
            return "the C library that checks batches was not built at installation"
        unspoken = wire.unspoken(self.consumer if properties is None else properties)
        return f"{unspoken} goes through librdkafka, which gives out no batches" if unspoken else ""

    @property
    def reads_batches(self) -> bool:
        """Whether records are read in batches and unpacked here, not by librdkafka.

        Whoever sets a property that only librdkafka knows, such as ``check.crcs``, means it.
        """
        from kbackup.kafka import wire  # noqa: PLC0415

        is_free = self.client == "auto" and wire.takes_all(self.consumer)
        return is_free and not self.without_batches()

    def reader(self, group: str, *, by_batches: bool = False) -> Reader:
        """Open a reader: `Connection.reader`."""
        from kbackup.kafka import reader  # noqa: PLC0415

        def by_records() -> Reader:
            return reader.KafkaReader(self, group)

        if not (self.reads_batches or (by_batches and not self.without_batches())):
            return by_records()
        from kbackup.kafka import fetch  # noqa: PLC0415

        return fetch.BatchReader(self, by_records)

    def writer(
        self,
        target: TopicPartition,
        group: str,
        *,
        exactly_once: bool = True,
        max_message_bytes: int | None = None,
        is_spread: bool = False,
    ) -> TargetWriter:
        """Open a writer: `Connection.writer`."""
        if exactly_once and not is_spread and self.writes_batches:
            from kbackup.kafka import produce  # noqa: PLC0415

            return produce.BatchProducer(self, target, group, max_message_bytes=max_message_bytes)
        from kbackup.kafka import writer  # noqa: PLC0415

        return writer.KafkaWriter(
            self, target, group,
            exactly_once=exactly_once, max_message_bytes=max_message_bytes, is_spread=is_spread,
        )  # fmt: skip

    def fence(self, target: TopicPartition) -> TopicPartition:
        """Return what stands for the writers of one transactional id: `Connection.fence`."""
        return fence(target)

    def positions(self, group: str) -> Positions:
        """Open a group's positions: `Connection.positions`."""
        from kbackup.kafka import client  # noqa: PLC0415

        return client.GroupPositions(self, group)

    def permissions(self) -> Permissions:
        """Ask what this principal may do: `Connection.permissions`."""
        from kbackup.kafka import cluster  # noqa: PLC0415

        return cluster.KafkaPermissions(self)

    def consumer_groups(self) -> Groups:
        """Ask where consumer groups stand: `Connection.consumer_groups`."""
        from kbackup.kafka import administration  # noqa: PLC0415

        return administration.KafkaGroups(self)

    def access(self) -> Access:
        """Ask who may do what: `Connection.access`."""
        from kbackup.kafka import administration  # noqa: PLC0415

        return administration.KafkaAccess(self)
