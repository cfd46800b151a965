"""The brokers of a cluster, over a connection of our own to each, and who leads a partition."""

import threading
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from kbackup.errors import KafkaError, TopicChangedError
from kbackup.kafka import KafkaSettings
from kbackup.kafka.answers import NO_EPOCH, NO_ID, Leader, Metadata
from kbackup.kafka.client import kafka_error, patience_s
from kbackup.kafka.wire import Api, Connection, LostError, RefusedError, Security
from kbackup.records import TopicPartition

_T = TypeVar("_T")

_TIMEOUT_S: Final = 10.0
"""How long a broker may say nothing at all, at least."""

MOVED: Final = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PART,  # as long as a new topic is not known everywhere
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_FOR_PARTITION,
        Code.REQUEST_TIMED_OUT,
        Code.BROKER_NOT_AVAILABLE,
        Code.REPLICA_NOT_AVAILABLE,
        Code.NETWORK_EXCEPTION,
        Code.KAFKA_STORAGE_ERROR,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.OFFSET_NOT_AVAILABLE,
        Code.UNKNOWN_TOPIC_ID,
        Code.INCONSISTENT_TOPIC_ID,
    }
)
"""What a broker says when another one may know better, or itself a moment later."""


_NOBODY: Final[tuple[int, Leader]] = (
    Code.UNKNOWN_TOPIC_OR_PART,
    Leader("", 0, NO_EPOCH, NO_ID),
)


class Brokers:
    """Connections to brokers; all but `interrupt` is for one thread at a time.

    Args:
        settings: The cluster.
        operators: The operator's properties of the client that this stands in for.
        doing: What is done there, for errors, such as "reading".
        apis: What else than `Api.METADATA` is asked.
        timeout_s: How long a broker may say nothing; None for what the settings say.

    Attributes:
        patience_s: How long to ask again while no broker can answer.

    Raises:
        KafkaError: If a certificate or key cannot be used.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        operators: Mapping[str, str],
        doing: str,
        *apis: Api,
        timeout_s: float | None = None,
    ) -> None:
        self._doing, self._apis = doing, (*apis, Api.METADATA)
        try:
            self._security = Security.of(operators)
        except RefusedError as error:
            raise refused("connecting to Kafka", error) from None
        self._servers = [address_of(each) for each in settings.bootstrap_servers.split(",")]
        self.patience_s = patience_s(settings, operators)
        self._timeout_s = timeout_s or max(settings.timeout_s, _TIMEOUT_S)
        self._connections: dict[tuple[str, int], Connection] = {}
        self._ids: dict[str, bytes] = {}
        self._known: dict[str, Metadata] = {}
        self._is_closed = threading.Event()

    def interrupt(self) -> None:
        """Have who is at work get a `KafkaError`."""
        self._is_closed.set()
        for connection in list(self._connections.values()):
            connection.interrupt()

    def close(self) -> None:
        """Leave the cluster."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, host: str, port: int) -> Connection:
        """Return the connection to a broker, a new one where there is none or it has to be.

        Raises:
            LostError: If there is none to be had.
            RefusedError: Likewise, for good.
        """
        found = self._connections.get((host, port))
        if found is not None and found.is_over:
            self.drop(host, port)
            found = None
        if found is None:
            found = Connection(host, port, self._security, self._timeout_s, self._apis)
            self._connections[host, port] = found
        if self._is_closed.is_set():
            raise self._closed()
        return found

    def drop(self, host: str, port: int) -> None:
        """Give up the connection to a broker, if there is one."""
        connection = self._connections.pop((host, port), None)
        if connection is not None:
            connection.close()

    def pause(self, seconds: float) -> None:
        """Wait.

        Raises:
            KafkaError: If it is interrupted.
        """
        if self._is_closed.wait(seconds):
            raise self._closed()

    def asked(self, question: Callable[[Connection], _T]) -> _T:
        """Ask one broker after the other, until one answers.

        Raises:
            LostError: If none does.
            RefusedError: If one does not let us in.
        """
        last: LostError | None = None
        for host, port in dict.fromkeys([*self._connections, *self._servers]):
            try:
                return question(self.connection(host, port))
            except LostError as error:
                if self._is_closed.is_set():
                    raise self._closed() from None
                self.drop(host, port)
                last = error
        assert last is not None  # noqa: S101  (there is always a server)
        raise last

    def forget(self, topic: str) -> None:
        """Ask again who leads the partitions of *topic* before the next answer."""
        self._known.pop(topic, None)

    def leader(self, where: TopicPartition) -> Leader:
        """Return who leads a partition; a topic is asked about once, until it is forgotten.

        Raises:
            LostError: If none knows.
            RefusedError: If they do not let us in.
            TopicChangedError: If the topic is another one than before.
            KafkaError: If this principal may not know.
        """
        found = self._known.get(where.topic)
        if found is None:
            found = self.asked(lambda broker: Metadata.of(broker, where.topic))
            self._known[where.topic] = found
        error, leader = found.leaders.get(where.partition, _NOBODY)
        error = found.error or error
        if error:
            self.forget(where.topic)
        if error in MOVED:
            raise LostError(Code(error).str())
        if error:
            raise kafka_error(f"{self._doing} {where}", KafkaException(Code(error)))
        known = self._ids.setdefault(where.topic, leader.topic_id)
        if known != leader.topic_id:
            raise TopicChangedError(
                f"{where.topic} is not the topic that was there before",
                "it was deleted and created again meanwhile",
                "look at the topic before running again",
                **where.place,
            )
        return leader

    def address(self, topic: str, broker: int) -> tuple[str, int] | None:
        """Return host and port of a broker, as of when *topic* was asked about; None if unknown."""
        known = self._known.get(topic)
        return None if known is None else known.brokers.get(broker)

    def _closed(self) -> KafkaError:
        return KafkaError(self._doing, "it was closed by another thread")


def address_of(server: str) -> tuple[str, int]:
    """Return host and port of ``host:port``, as librdkafka reads it."""
    name = server.strip().rpartition("://")[2]
    host, colon, port = name.rpartition(":")
    if not colon or name.endswith("]"):
        host, port = name, "9092"
    return host.strip("[]"), int(port)


def refused(what: str, error: RefusedError) -> KafkaError:
    """Return the error of a broker that does not let us in."""
    return KafkaError(what, str(error), "check credentials, certificates and security.protocol")
