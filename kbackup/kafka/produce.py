"""Write record batches to partitions as they are stored, in transactions that carry the position.

`BatchProducer` promises what `kbackup.kafka.writer.KafkaWriter` does, and takes batches too; it
has no client library under it: that one makes batches of its own.  A request has one batch of a
partition, as brokers demand of producers with sequence numbers.

Nothing is sent again within a transaction.  Whatever is refused, lost or late ends it: a commit
after a gap in the sequence would make the rest visible.  `BrokenOffError` says that a new producer,
which fences what is still on its way, may go on from the committed position.  Only what a
coordinator says it has not looked at is asked again.

Source: Kafka's protocol guide; KIP-98, KIP-447, KIP-890 for what is not spoken here.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from kbackup.batches import Batches
from kbackup.batches.encoding import SEQUENCES, Identity, encoded, sent_headers
from kbackup.errors import KbackupError
from kbackup.kafka import (
    NO_OTHERS,
    BrokenOffError,
    KafkaSettings,
    Position,
)
from kbackup.kafka.brokers import (
    MOVED,
    NO_EPOCH,
    Brokers,
    Coordinator,
    Leader,
    Produced,
    refused,
)
from kbackup.kafka.client import WRITERS, Complaints, patience_s
from kbackup.kafka.wire import Api, BrokerConnection, LostError, NoAccessError, Request, Response
from kbackup.kafka.writer import BATCH_BYTES, TAKEOVER_S, TRANSACTION_MS, GroupWriter, meaning
from kbackup.records import Span, TopicPartition

_log: Final = logging.getLogger(__name__)
_T = TypeVar("_T")

_APIS: Final = (
    Api.PRODUCE, Api.FIND_COORDINATOR, Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS_TO_TXN,
    Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN,
)  # fmt: skip

FLIGHT: Final = 5
FLIGHT_BYTES: Final = 16 * 2**20
"""Requests on their way at a time, and what they may have in all: more than five of one producer
no broker takes."""

_PAUSES_S: Final = (0.0005, 0.1)
"""How long to wait before a coordinator is asked again: at first, and at most."""

_NOT_YET: Final = frozenset(
    {
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.CONCURRENT_TRANSACTIONS,  # the last one's markers are still being written
        Code.UNKNOWN_TOPIC_OR_PART,  # a new topic is not known to every broker at once
        Code.OPERATION_NOT_ATTEMPTED,  # of a partition, because of another one
    }
)
"""What a coordinator says when it has done nothing, and will in a moment, or another one will."""

_NO_IDS_YET: Final = Code.REQUEST_TIMED_OUT
"""What older brokers say to a takeover while they wait for producer ids."""

_BROKEN_OFF: Final = MOVED | _NOT_YET | {
    Code.NOT_ENOUGH_REPLICAS,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Code.DUPLICATE_SEQUENCE_NUMBER,
    Code.UNKNOWN_PRODUCER_ID,
    Code.INVALID_PRODUCER_ID_MAPPING,
    Code.INVALID_TXN_STATE,
    Code.INVALID_MSG,  # what was sent is not what arrived: its CRC32C was right when it left
}  # fmt: skip
"""What ends a transaction, and need not keep the next one from going through."""

_GROUP, _TRANSACTION = 0, 1
"""What coordinators are of."""


class _SentBatch(NamedTuple):
    """A batch that is not answered yet."""

    lane: "_Lane"
    connection: BrokerConnection
    offset: int
    records: int
    bytes: int


@dataclass(slots=True)
class _Lane:
    """A partition that is written to."""

    where: TopicPartition
    leader: Leader | None = None
    connection: BrokerConnection | None = None  # to the leader, if it is in this transaction
    sequence: int = 0  # of its next record in this epoch
    written: Span | None = None  # what was acknowledged since somebody asked
    is_known: bool = True  # whether the cluster has said where all records stand


class BatchProducer(GroupWriter):
    """Writes to the partitions of a topic: a `kbackup.kafka.TargetWriter` that `WritesBatches`.

    Memory: what is on its way, `FLIGHT_BYTES` or one batch, and of rows a batch of `BATCH_BYTES`.

    The `fence` of *target* names the transactional id.

    Raises:
        KafkaError: If it cannot take over its transactional id.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        target: TopicPartition,
        group: str,
        *,
        max_message_bytes: int | None = None,
    ) -> None:
        super().__init__(target, group, max_message_bytes)
        operators = settings.producer
        self._batch_bytes = min(BATCH_BYTES, max_message_bytes or BATCH_BYTES)
        self._patience_s = patience_s(settings, operators)
        self._timeout_ms = int(operators.get("transaction.timeout.ms", TRANSACTION_MS))
        # a broker may take as long for a batch as it is waited for
        self._brokers = Brokers(
            settings, operators, "writing to", *_APIS, timeout_s=self._patience_s
        )
        self._transactions = _Asked(self._brokers, self._id, _TRANSACTION, self._patience_s)
        self._offsets = _Asked(self._brokers, group, _GROUP, self._patience_s)
        self._producer_id, self._epoch = -1, -1
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._awaited: deque[_SentBatch] = deque()
        self._begun: float | None = None  # since when a transaction is open
        self._is_ending = False  # the coordinator has been asked, and has not answered
        self._not_before = 0.0
        self._failure: KbackupError | None = None  # why nothing may be committed any more
        self._positions = WRITERS.borrow(settings, group)
        try:
            with self._failing("taking over its transactional id"):
                self._take_over()
        except KbackupError:
            self.close()
            raise

    def write(self, batch: pa.RecordBatch, where: TopicPartition | None = None) -> int:
        """Send records in batches that are made of them: `TargetWriter.write`."""
        for one in encoded(batch, self._batch_bytes, int(time.time() * 1000)):
            self.write_batches(one, where)
        return 0

    def write_batches(self, batches: Batches, where: TopicPartition | None = None) -> None:
        """Send batches as they are stored: `kbackup.kafka.WritesBatches.write_batches`."""
        with self._failing("writing records"):
            lane = self._joined(where or self._target)
            data = memoryview(batches.data).cast("B")
            own = Identity(self._producer_id, self._epoch, lane.sequence)
            offsets, counts = (
                batches.headers[name].to_pylist() for name in ("base_offset", "count")
            )
            for (header, at, size), offset, count in zip(
                sent_headers(batches, own), offsets, counts, strict=True
            ):
                self._send(lane, [header, data[at : at + size]], offset, count)

    def commit(
        self,
        position: Position,
        others: Mapping[TopicPartition, Position] = NO_OTHERS,
        where: TopicPartition | None = None,
    ) -> None:
        """Make everything written so far visible: `TargetWriter.commit`."""
        positions = {where or self._target: position, **others}
        self.flush()
        self._begin()
        with self._failing("sending its position"):
            self._transactions.ask(
                Api.ADD_OFFSETS_TO_TXN,
                lambda body, _: self._own(body).text(self._group).end(),
                _only,
            )
            self._offsets.ask(
                Api.TXN_OFFSET_COMMIT, lambda body, at: self._moved(body, at, positions), _of_each
            )
        with self._failing("committing a transaction"):
            self._end(commits=True)

    def flush(self) -> None:
        """Wait until everything written is acknowledged: `TargetWriter.flush`."""
        with self._failing("writing records"):
            while self._awaited:
                self._take()

    def written(self, where: TopicPartition) -> Span | None:
        """Return where records stand that were written: `TargetWriter.written`."""
        lane = self._lanes.get(where)
        if lane is None:
            return None
        found = lane.written if lane.is_known else None
        lane.written, lane.is_known = None, True
        return found

    def abort(self) -> None:
        """Drop what was not committed; safe to call at any time, and it raises nothing."""
        if self._begun is None or self._is_ending:
            return
        try:
            while self._awaited:  # what came behind the end would open another transaction
                self._answered()
            self._end(commits=False)
        except (KbackupError, LostError, NoAccessError, _SaidNoError) as error:
            _log.warning(
                "aborting the transaction on %s: %s; the next writer aborts it", self._target, error
            )

    def close(self) -> None:
        """Leave the cluster; what was not committed is dropped."""
        self.abort()
        WRITERS.give_back(self._positions)
        self._brokers.close()

    # transactions

    def _take_over(self) -> None:
        """Fence every earlier producer of the id, and end what it had begun."""

        def body(request: Request, version: int) -> Request:
            request.text(self._id).numbers("i", self._timeout_ms)
            return (request.numbers("qh", -1, -1) if version >= _HAS_IDENTITY else request).end()

        def read(answer: Response) -> tuple[int, tuple[int, int]]:
            answer.number("i")  # throttled
            code, producer_id, epoch = answer.numbers("hqh")
            return code, (producer_id, epoch)

        self._producer_id, self._epoch = self._transactions.ask(
            Api.INIT_PRODUCER_ID, body, read, is_takeover=True
        )

    def _begin(self) -> None:
        if self._begun is None:
            self._begun = time.monotonic()

    def _joined(self, where: TopicPartition) -> _Lane:
        """Return a partition once it is part of the transaction."""
        self._begin()
        lane = self._lanes.setdefault(where, _Lane(where))
        if lane.connection is None:
            while self._awaited:  # answers come in order, and others are asked for now
                self._take()
            connection = _patiently(lambda: self._connected(lane), self._patience_s, lambda _: True)
            self._transactions.ask(
                Api.ADD_PARTITIONS_TO_TXN,
                lambda body, _: self._own(body).count(1).text(where.topic).count(1)
                .numbers("i", where.partition).end().end(),
                _of_each,
            )  # fmt: skip
            lane.connection = connection
        return lane

    def _connected(self, lane: _Lane) -> BrokerConnection:
        try:
            if lane.leader is None:
                lane.leader = self._brokers.leader(lane.where)
            return self._brokers.connection(lane.leader.host, lane.leader.port)
        except LostError:
            lane.leader = None
            self._brokers.forget(lane.where.topic)
            raise

    def _own(self, body: Request) -> Request:
        return body.text(self._id).numbers("qh", self._producer_id, self._epoch)

    def _moved(
        self, body: Request, version: int, positions: Mapping[TopicPartition, Position]
    ) -> Request:
        body.text(self._id).text(self._group).numbers("qh", self._producer_id, self._epoch)
        if version >= _HAS_MEMBERS:
            body.numbers("i", -1).text("").text(None)
        body.count(1).text(self._target.topic).count(len(positions))
        for where, position in positions.items():
            # librdkafka counts the end of a text in, and whoever reads by it relies on that
            body.numbers("iqi", where.partition, position.offset, NO_EPOCH)
            body.text(position.metadata + "\0").end()
        return body.end().end()

    def _end(self, *, commits: bool) -> None:
        self._is_ending = True
        self._transactions.ask(
            Api.END_TXN, lambda body, _: self._own(body).numbers("?", commits).end(), _only
        )
        self._begun, self._is_ending = None, False
        for lane in self._lanes.values():
            lane.connection = None

    # records

    def _send(
        self, lane: _Lane, parts: Sequence[bytes | memoryview], offset: int, count: int
    ) -> None:
        size = sum(map(len, parts))
        while self._awaited and (
            len(self._awaited) >= FLIGHT
            or size + sum(sent.bytes for sent in self._awaited) > FLIGHT_BYTES
        ):
            self._take()
        time.sleep(max(0.0, self._not_before - time.monotonic()))
        connection = lane.connection
        assert connection is not None  # noqa: S101  (it has joined)
        body = connection.request(Api.PRODUCE).text(self._id)
        body.numbers("hi", _ALL, int(self._patience_s * 1000)).count(1).text(lane.where.topic)
        body.count(1).numbers("ii", lane.where.partition, size)
        for part in parts:
            body.raw(part)
        connection.send(Api.PRODUCE, body)
        self._awaited.append(_SentBatch(lane, connection, offset, count, size))
        lane.sequence = (lane.sequence + count) % SEQUENCES

    def _take(self) -> None:
        """Take the answer to the first batch that has none."""
        sent, found = self._answered()
        lane = sent.lane
        if found.error:
            raise _SaidNoError(found.error, found.why, sent.offset)
        if found.throttle_s:
            _log.info("writing to %s: throttled for %.3f s", lane.where, found.throttle_s)
            self._not_before = time.monotonic() + found.throttle_s
        lane.is_known = lane.is_known and found.base_offset >= 0
        start = found.base_offset if lane.written is None else lane.written.start_offset
        lane.written = Span(start, found.base_offset + sent.records)

    def _answered(self) -> tuple[_SentBatch, Produced]:
        sent = self._awaited[0]
        answer = sent.connection.receive(Api.PRODUCE)
        found = Produced.of(answer, sent.connection.versions[Api.PRODUCE])
        return self._awaited.popleft(), found

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """Say what a failure means; nothing is committed after one."""
        if self._failure is not None:
            raise self._failure
        failure: KbackupError
        try:
            yield
        except LostError as error:
            failure = BrokenOffError(
                f"{self._target}: {what}", str(error),
                "check the brokers; the same command continues from the committed position",
            )  # fmt: skip
        except NoAccessError as error:
            failure = refused(f"{self._target}: {what}", error)
        except _SaidNoError as error:
            failure = self._meaning(what, error)
        except KbackupError as error:
            failure = error
        else:
            return
        self._failure = failure
        raise failure

    def _meaning(self, what: str, error: "_SaidNoError") -> KbackupError:
        open_s = 0.0 if self._begun is None else time.monotonic() - self._begun
        ended = open_s if open_s >= self._timeout_ms / 1000 else None
        cause = KafkaException(Code(error.code, error.why or None))
        found = meaning(self._target, what, cause, Complaints(), error.offset, ended)
        if error.code not in _BROKEN_OFF:
            return found
        return BrokenOffError(found.what, found.why, found.do, **found.place)


_ALL: Final = -1
"""Replicas that have to have a batch before it is acknowledged: all that are in sync."""

_HAS_IDENTITY: Final = 3
"""The first version of InitProducerId that is told which producer id there was."""

_HAS_MEMBERS: Final = 3
"""The first version of TxnOffsetCommit that is told of the group's member."""


class _SaidNoError(Exception):
    """A broker has said no; the offset is that in the backup of the first record concerned."""

    def __init__(self, code: int, why: str = "", offset: int | None = None) -> None:
        super().__init__(code, why, offset)
        self.code, self.why, self.offset = code, why, offset


_Read = Callable[[Response], tuple[int, _T]]
"""Returns the error in an answer, or 0, and what else it says."""


def _only(answer: Response) -> tuple[int, None]:
    answer.number("i")  # throttled
    return answer.number("h"), None


def _of_each(answer: Response) -> tuple[int, None]:
    """Read an answer that has an error for each partition of some topics."""
    answer.number("i")  # throttled
    found = 0
    for _ in answer.count():
        answer.text()
        for _ in answer.count():
            _partition, code = answer.numbers("ih")
            answer.tags()
            found = code if found in (0, Code.OPERATION_NOT_ATTEMPTED) else found
        answer.tags()
    return found, None


@dataclass(slots=True)
class _Asked:
    """The broker that keeps a group's positions, or the state of a transactional id."""

    brokers: Brokers
    key: str
    kind: int
    patience_s: float
    _at: tuple[str, int] | None = None

    def ask(
        self,
        api: Api,
        fill: Callable[[Request, int], Request],
        read: _Read[_T],
        *,
        is_takeover: bool = False,
    ) -> _T:
        """Ask until there is an answer; *fill* completes the request, in the version given."""

        def once() -> _T:
            connection = _patiently(self._connection, self.patience_s, self._passes)
            answer = connection.ask(api, fill(connection.request(api), connection.versions[api]))
            code, found = read(answer)
            if code:
                raise _SaidNoError(code)
            return found

        def passes(error: LostError | _SaidNoError) -> bool:
            # waited for longer, and asked for again where its answer was lost
            if is_takeover and isinstance(error, _SaidNoError) and error.code == _NO_IDS_YET:
                return True
            return self._passes(error) and (is_takeover or isinstance(error, _SaidNoError))

        least_s = TAKEOVER_S if is_takeover else 0.0
        return _patiently(once, max(self.patience_s, least_s), passes)

    def _connection(self) -> BrokerConnection:
        if self._at is None:
            found = self.brokers.ask_any(lambda broker: Coordinator.of(broker, self.key, self.kind))
            if found.error:
                raise _SaidNoError(found.error, found.why)
            self._at = found.host, found.port
        return self.brokers.connection(*self._at)

    def _passes(self, error: LostError | _SaidNoError) -> bool:
        """Whether an error may pass; forget which broker it is, where another one may know."""
        if isinstance(error, LostError):
            if self._at is not None:
                self.brokers.drop(*self._at)
            self._at = None
        elif error.code not in _NOT_YET:
            return False
        elif error.code != Code.CONCURRENT_TRANSACTIONS:
            self._at = None
        return True


def _patiently(
    ask: Callable[[], _T], patience_s: float, passes: Callable[[LostError | _SaidNoError], bool]
) -> _T:
    """Return what *ask* returns, asking again for so long while its error *passes*."""
    until, (pause_s, most_s) = time.monotonic() + patience_s, _PAUSES_S
    while True:
        try:
            return ask()
        except (LostError, _SaidNoError) as error:
            if not passes(error) or time.monotonic() > until:
                raise
            _log.debug("asking again: %s", error)
        time.sleep(pause_s)
        pause_s = min(most_s, 1.5 * pause_s)
