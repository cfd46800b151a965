"""The connection to a real cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kbackup.kafka.administration import Cluster, Permissions
from kbackup.kafka.transport import Positions, Reader, Writer, fence
from kbackup.records import TopicPartition

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
        from kbackup.kafka.native.library import choose  # noqa: PLC0415

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
        from kbackup.kafka import positions  # noqa: PLC0415

        return positions.Positions(self, group)

    def permissions(self) -> Permissions:
        """Ask what this principal may do: `Connection.permissions`."""
        from kbackup.kafka import permissions  # noqa: PLC0415

        return permissions.Permissions(self)
