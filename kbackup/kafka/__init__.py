"""The cluster.  Only this folder imports confluent_kafka, and others import only this module.

A `Connection` is plain data and crosses processes; it opens clients where they are used.
`KafkaSettings` is the one for a real cluster.  Rows cross this seam as columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from kbackup.errors import KafkaError, KbackupError
from kbackup.kafka.contract import (
    NO_ENDS,
    NO_OTHERS,
    PATIENCE_S,
    SETTLE_S,
    Cluster,
    LogStartMovedError,
    NewTopic,
    OffsetMovedError,
    Permissions,
    Position,
    Positions,
    Reader,
    TakenOverError,
    Topic,
    Writer,
    check_idle,
    create_topic,
    fence,
)
from kbackup.records import TopicPartition

__all__ = [
    "NO_ENDS",
    "NO_OTHERS",
    "PATIENCE_S",
    "SETTLE_S",
    "Cluster",
    "Connection",
    "KafkaSettings",
    "LogStartMovedError",
    "NewTopic",
    "OffsetMovedError",
    "Outage",
    "Permissions",
    "Position",
    "Positions",
    "Reader",
    "TakenOverError",
    "Topic",
    "Way",
    "Writer",
    "check_idle",
    "create_topic",
]


class Connection(Protocol):
    """How to reach a cluster: plain data that opens clients."""

    def cluster(self) -> Cluster:
        """Open the cluster as an administrator sees it.

        Raises:
            KafkaError: If no broker answers within the timeout.
        """
        ...

    def reader(self, group: str) -> Reader:
        """Open a reader that may read as *group* may."""
        ...

    def writer(
        self,
        target: TopicPartition,
        group: str,
        *,
        exactly_once: bool = True,
        max_message_bytes: int | None = None,
        is_spread: bool = False,
    ) -> Writer:
        """Open a writer, and end whatever an earlier writer of its `fence` had begun.

        Args:
            target: The partition.
            group: Keeps the position.
            exactly_once: Write in transactions that carry the position.  Otherwise records are
                written idempotently, and a killed run may repeat those after the last position.
            max_message_bytes: What the topic takes; None for what the broker says.
            is_spread: Whether records go to other partitions of the topic too.
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

    def properties(self, ours: Mapping[str, Any], operators: Mapping[str, str]) -> dict[str, Any]:
        """Return a client's properties: for every client, then *ours*, then the *operators*'."""
        return {**_CLIENT, **ours, **operators, "bootstrap.servers": self.bootstrap_servers}

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

        return cluster.Cluster(self)

    def reader(self, group: str) -> Reader:
        """Open a reader: `Connection.reader`."""
        from kbackup.kafka import reader  # noqa: PLC0415

        return reader.Reader(self, group)

    def writer(
        self,
        target: TopicPartition,
        group: str,
        *,
        exactly_once: bool = True,
        max_message_bytes: int | None = None,
        is_spread: bool = False,
    ) -> Writer:
        """Open a writer: `Connection.writer`."""
        from kbackup.kafka import writer  # noqa: PLC0415

        return writer.Writer(
            self, target, group,
            exactly_once=exactly_once, max_message_bytes=max_message_bytes, is_spread=is_spread,
        )  # fmt: skip

    def fence(self, target: TopicPartition) -> TopicPartition:
        """Return what stands for the writers of one transactional id: `Connection.fence`."""
        return fence(target)

    def positions(self, group: str) -> Positions:
        """Open a group's positions: `Connection.positions`."""
        from kbackup.kafka import client  # noqa: PLC0415

        return client.Positions(self, group)

    def permissions(self) -> Permissions:
        """Ask what this principal may do: `Connection.permissions`."""
        from kbackup.kafka import cluster  # noqa: PLC0415

        return cluster.Permissions(self)
