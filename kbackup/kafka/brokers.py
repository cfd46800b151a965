"""Ask the brokers of a cluster, over a connection of our own to each, and read their answers.

Who leads a partition, the batches in it, who keeps a group's positions, what became of a batch.

Source: Kafka's protocol guide: Metadata 7 and 12, Fetch 11 and 13, OffsetForLeaderEpoch 3, Produce
7 and 8, FindCoordinator 1 and 2.
"""

import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from kbackup.batches import CONTROL, DELETE_HORIZON, TRANSACTIONAL, Batches
from kbackup.batches.decoding import decoded
from kbackup.errors import KafkaError, TopicChangedError
from kbackup.kafka import KafkaSettings
from kbackup.kafka.client import kafka_error, patience_s
from kbackup.kafka.wire import Api, BrokerConnection, LostError, NoAccessError, Response, Security
from kbackup.records import TopicPartition

_T = TypeVar("_T")

NO_EPOCH: Final = -1
"""The leader epoch of what has none, or where it is not known."""

NO_ID: Final = bytes(16)
"""The id of a topic where it is not known."""

HAS_IDS: Final = {Api.METADATA: 10, Api.FETCH: 13}
"""The first version of each that has topics' ids."""


UNTOLD: Final = 2**63 - 1
"""The last stable offset where a broker holds us back, and tells nothing."""


class Leader(NamedTuple):
    """Who leads a partition, as of some moment."""

    host: str
    port: int
    epoch: int
    topic_id: bytes


class Aborted(NamedTuple):
    """An aborted transaction: all of a producer's batches from an offset up to its marker."""

    first_offset: int
    producer_id: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a leader answers, or a replica that it named as nearer.

    Attributes:
        error: Its code, 0 for none.
        stable: The last stable offset: no committed record is behind it.
        data: The batches; the last one may lack its end.
        diverged: Where the leader's log parts from what was read; None where it does not.
        nearer: The broker of a replica that is to be asked instead; None where it is not.
    """

    error: int
    stable: int
    aborted: Sequence[Aborted]
    data: pa.Buffer
    diverged: int | None
    nearer: int | None
    throttle_s: float

    @classmethod
    def of(cls, answer: Response, version: int) -> "Fetched":
        """Read the answer to a fetch of one partition.

        Raises:
            LostError: If it makes no sense.
        """
        throttle_ms, error, _session = answer.numbers("ihi")
        found = None
        for _ in answer.count():
            if version >= HAS_IDS[Api.FETCH]:
                answer.raw(len(NO_ID))
            else:
                answer.text()
            for _ in answer.count():
                _partition, own, _high, stable, _start = answer.numbers("ihqqq")
                aborted = []
                for _ in answer.count():
                    producer, first = answer.numbers("qq")
                    aborted.append(Aborted(first, producer))
                    answer.tags()
                replica = answer.number("i")
                data, tags = answer.records(), answer.tags()
                diverged = _end_of(tags[0]) if 0 in tags else None
                nearer = replica if replica >= 0 else None
                found = cls(
                    error or own, stable, sorted(aborted), data, diverged, nearer,
                    throttle_ms / 1000,
                )  # fmt: skip
            answer.tags()
        if found is not None:
            return found
        if error == 0 and not throttle_ms:
            raise LostError("the broker's answer has no partition in it")
        stable = 0 if error else UNTOLD
        return cls(error, stable, (), pa.py_buffer(b""), None, None, throttle_ms / 1000)


def _end_of(diverging_epoch: bytes) -> int:
    if len(diverging_epoch) < 12:  # an epoch and an offset
        raise LostError("the broker's answer is cut short")
    return int(struct.unpack_from(">iq", diverging_epoch)[1])


_MARKER_AT: Final = 68
"""Where a control batch has its type: behind its header, five short numbers, and a version."""

_ABORT: Final = b"\0\0"


def committed(batches: Batches, aborted: Sequence[Aborted]) -> Batches:
    """Return those that hold committed records; *aborted* is what the broker told with them.

    Raises:
        BatchError: If a marker cannot be read.
    """
    headers = batches.headers
    is_kept = pc.greater(headers["count"], 0)
    is_marked = batches.flagged(CONTROL)
    if aborted:
        is_kept = pc.and_(is_kept, pc.invert(_of_aborted(batches, aborted)))
    wanted = pc.and_(is_kept, pc.invert(is_marked))
    return batches if pc.all(wanted).as_py() else batches.where(wanted)


def _of_aborted(batches: Batches, aborted: Sequence[Aborted]) -> pa.BooleanArray:
    found, left, open_ids = [], list(reversed(aborted)), set()
    names = ("base_offset", "last_delta", "producer_id")
    columns = [batches.headers[name].to_pylist() for name in names]
    columns += [batches.flagged(CONTROL).to_pylist(), batches.flagged(TRANSACTIONAL).to_pylist()]
    for row, (base, delta, producer, is_marker, is_in_transaction) in enumerate(
        zip(*columns, strict=True)
    ):
        while left and left[-1].first_offset <= base + delta:
            open_ids.add(left.pop().producer_id)
        if is_marker:
            if _is_abort(batches, row):
                open_ids.discard(producer)
            found.append(True)
        else:
            found.append(is_in_transaction and producer in open_ids)
    return pa.array(found, pa.bool_())


def _is_abort(batches: Batches, row: int) -> bool:
    at, attributes, count = (
        batches.headers[name][row].as_py() for name in ("position", "attributes", "count")
    )
    if count == 1 and not attributes & DELETE_HORIZON:
        return bytes(batches.data.slice(at + _MARKER_AT, 2)) == _ABORT
    # compaction has emptied it, or made its timestamp a longer number
    keys = (key for rows in decoded(batches.slice(row, 1)) for key in rows["key"].to_pylist())
    return any(key is not None and key[2:4] == _ABORT for key in keys)


def end_of_epoch(
    connection: BrokerConnection, where: TopicPartition, leader: Leader, epoch: int
) -> tuple[int, int]:
    """Ask a leader where its log has the end of an epoch, which newer fetches tell by themselves.

    Returns:
        A code, 0 for none, and the offset, -1 where it does not know that epoch.

    Raises:
        LostError: If it does not answer, or its answer makes no sense.
    """
    body = connection.request(Api.OFFSET_FOR_LEADER_EPOCH).numbers("i", -1).count(1)
    body.text(where.topic).count(1).numbers("iii", where.partition, leader.epoch, epoch)
    answer = connection.ask(Api.OFFSET_FOR_LEADER_EPOCH, body)
    answer.number("i")  # throttled
    for _ in answer.count():
        answer.text()
        for _ in answer.count():
            error, _partition, _epoch, end = answer.numbers("hiiq")
            return error, end
    raise LostError("the broker's answer has no partition in it")


class Metadata(NamedTuple):
    """What a broker knows of a topic's partitions.

    Attributes:
        error: Of the topic, 0 for none.
        leaders: By partition, what is the matter with it, 0 for nothing, and who leads it.
        brokers: Host and port of each, by its id.
    """

    error: int
    leaders: Mapping[int, tuple[int, Leader]]
    brokers: Mapping[int, tuple[str, int]]

    @classmethod
    def of(cls, connection: BrokerConnection, topic: str) -> "Metadata":
        """Ask a broker.

        Raises:
            LostError: If it does not answer, or its answer makes no sense.
        """
        version = connection.versions[Api.METADATA]
        has_ids = version >= HAS_IDS[Api.METADATA]
        body = connection.request(Api.METADATA).count(1)
        if has_ids:
            body.raw(NO_ID)
        body.text(topic).end().numbers("?", False)  # not to be created
        if has_ids:
            body.numbers("?", False)  # nor what may be done with it
        answer = connection.ask(Api.METADATA, body.end())
        return cls._read(answer, has_ids=has_ids)

    @classmethod
    def _read(cls, answer: Response, *, has_ids: bool) -> "Metadata":
        answer.number("i")  # throttled
        brokers = {}
        for _ in answer.count():
            node, host, port, _rack = (
                answer.number("i"), answer.text(), answer.number("i"), answer.text(),
            )  # fmt: skip
            answer.tags()
            brokers[node] = host or "", port
        answer.text()  # the cluster's id
        answer.number("i")  # the controller
        found: int = Code.UNKNOWN_TOPIC_OR_PART
        leaders = {}
        for _ in answer.count():
            found = answer.number("h")
            answer.text()
            topic_id = answer.raw(len(NO_ID)) if has_ids else NO_ID
            answer.number("?")
            for _ in answer.count():
                error, partition, leader, epoch = answer.numbers("hiii")
                for _ in range(3):  # replicas, those in sync, those offline
                    answer.raw(4 * len(answer.count()))
                answer.tags()
                host, port = brokers.get(leader, ("", 0))
                is_led = leader in brokers
                leaders[partition] = (
                    0 if is_led else int(error or Code.LEADER_NOT_AVAILABLE),
                    Leader(host, port, epoch if is_led else NO_EPOCH, topic_id),
                )
            if has_ids:
                answer.number("i")  # operations
            answer.tags()
        return cls(found, leaders, brokers)


class Coordinator(NamedTuple):
    """Which broker keeps a group's positions, or the state of a transactional id."""

    error: int
    why: str
    host: str
    port: int

    @classmethod
    def of(cls, connection: BrokerConnection, key: str, kind: int) -> "Coordinator":
        """Ask a broker for that of a group, *kind* 0, or of a transactional id, 1.

        Raises:
            LostError: If it does not answer, or its answer makes no sense.
        """
        body = connection.request(Api.FIND_COORDINATOR).text(key).numbers("b", kind)
        answer = connection.ask(Api.FIND_COORDINATOR, body)
        _throttle, error = answer.numbers("ih")
        why, _node, host, port = (
            answer.text(), answer.number("i"), answer.text(), answer.number("i"),
        )  # fmt: skip
        return cls(error, why or "", host or "", port)


class Produced(NamedTuple):
    """What became of a batch that was sent.

    Attributes:
        error: Its code, 0 for none.
        base_offset: Where its first record is; negative where that is not said.
    """

    error: int
    why: str
    base_offset: int
    throttle_s: float

    @classmethod
    def of(cls, answer: Response, version: int) -> "Produced":
        """Read the answer to a request with one batch.

        Raises:
            LostError: If it makes no sense.
        """
        found = None
        for _ in answer.count():
            answer.text()
            for _ in answer.count():
                _partition, error, base, _time, _start = answer.numbers("ihqqq")
                whys: list[str | None] = []
                if version >= _HAS_WORDS:
                    for _ in answer.count():
                        answer.number("i")  # a record's place in the batch
                        whys.append(answer.text())
                    whys.insert(0, answer.text())
                found = error, next(filter(None, whys), ""), base
        if found is None:
            raise LostError("the broker's answer has no partition in it")
        if version < _HAS_WORDS and found[0] == Code.INVALID_MSG:
            found = Code.INVALID_RECORD, _NOT_TAKEN, found[2]
        return cls(*found, answer.number("i") / 1000)


_HAS_WORDS: Final = 8
"""The first version of an answer to Produce that says more than a code.

Before it CORRUPT_MESSAGE is said of a record too that no broker would ever take.  Source: KIP-467.
"""

_NOT_TAKEN: Final = "a broker before 2.4 did not take a record of the batch, and says no more"


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

    *operators* are the properties of the client that this stands in for, and *apis* what else than
    `Api.METADATA` is asked; a broker may say nothing for *timeout_s*, or as the settings say.

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
        except NoAccessError as error:
            raise refused("connecting to Kafka", error) from None
        self._servers = [address_of(each) for each in settings.bootstrap_servers.split(",")]
        self.patience_s = patience_s(settings, operators)
        self._timeout_s = timeout_s or max(settings.timeout_s, _TIMEOUT_S)
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
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

    def connection(self, host: str, port: int) -> BrokerConnection:
        """Return the connection to a broker, a new one where there is none or it has to be.

        Raises:
            LostError: If there is none to be had.
            NoAccessError: Likewise, for good.
        """
        found = self._connections.get((host, port))
        if found is not None and found.is_over:
            self.drop(host, port)
            found = None
        if found is None:
            found = BrokerConnection(host, port, self._security, self._timeout_s, self._apis)
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

    def ask_any(self, question: Callable[[BrokerConnection], _T]) -> _T:
        """Ask one broker after the other, until one answers.

        Raises:
            LostError: If none does.
            NoAccessError: If one does not let us in.
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
            NoAccessError: If they do not let us in.
            TopicChangedError: If the topic is another one than before.
            KafkaError: If this principal may not know.
        """
        found = self._known.get(where.topic)
        if found is None:
            found = self.ask_any(lambda broker: Metadata.of(broker, where.topic))
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
                "check the topic before running again",
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


def refused(what: str, error: NoAccessError) -> KafkaError:
    """Return the error of a broker that does not let us in."""
    return KafkaError(what, str(error), "check credentials, certificates and security.protocol")
