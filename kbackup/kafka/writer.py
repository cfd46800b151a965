"""Write rows to one Kafka partition, in transactions that carry the position.

Of an idempotent producer librdkafka (2.12 to 2.16) has one request at a time on its way to a
partition: it compares the five that it allows with the records that are on their way.  While it
waits for the answer, its thread goes round and round as soon as a record has waited for
``linger.ms``, and takes the processor time that a broker on the same machine needs: of 20 million
records of 100 bytes, restored where the broker was the limit, 25 s of CPU instead of 5.

So records to one partition may wait for long: a full batch is sent at once, a flush sends the rest,
and the queue has room for a batch beside the largest record, so that no batch waits for room.
Where the operator has made the queue smaller than that, they wait for others as briefly as those
to several partitions.  A flush lets no record wait, so it comes last: see `Answers`.

Rows reach the client by one of two senders, each with one producer, which writes to the partitions
of one topic: `ColumnSender` hands Arrow columns to the C library, `ObjectSender` calls the client
for each record.  Transactions, positions and waiting are the writer's, whichever of them serves.
"""

import gc
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ctypes import byref, c_int32, c_int64
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kbackup.batches.native import lent
from kbackup.errors import KafkaError, KbackupError, RecordTooLargeError, counted
from kbackup.kafka import (
    NO_OTHERS,
    BrokenOffError,
    KafkaSettings,
    Position,
    TakenOverError,
    fence,
    native,
)
from kbackup.kafka.client import (
    CLIENT_LOG,
    WRITERS,
    Complaints,
    GroupPositions,
    kafka_error,
    patience_s,
    within,
)
from kbackup.kafka.native import NativeClient, choose
from kbackup.records import Span, TopicPartition, replaced

Wait = Callable[[float], None]
"""Serves the client's events for so many seconds; raises when it has waited too long in all."""

FULL_WAIT_S = 0.05
"""How long one wait for room in the client's queue lasts."""


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """The client's ``KafkaError`` of a record that it or the cluster did not take.

    The offset is that in the backup, of the first one of those that were sent together; None where
    it is not known.
    """

    error: Any
    offset: int | None = None


def without_zero_timestamps(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """Set timestamps of 0 ms to 1 ms, and count them: the client takes 0 for "now"."""
    column = batch["timestamp"]
    zero = pc.fill_null(pc.equal(column, 0), False)
    count = pc.sum(zero).as_py() or 0
    if not count:
        return batch, 0
    changed = pc.if_else(zero, pa.scalar(1, pa.int64()), column)
    return replaced(batch, "timestamp", changed), count


_PATIENCE_MS: Final = int(FULL_WAIT_S * 1000)


class _SentRows(NamedTuple):
    """A batch that is not acknowledged yet: the number of its first record, and its offsets."""

    number: int
    offsets: pa.Array


class ColumnSender:
    """Hands whole batches over.

    Deliveries are counted in C, in the order of production, so that a failed one is the n-th that
    was handed over; `_sent` says which offset that was.  That order is one partition's: where
    records went to several, nothing says which one failed.
    """

    def __init__(self, properties: Mapping[str, Any], target: TopicPartition) -> None:
        self._target = target
        self._native = NativeClient(Producer, properties, is_producer=True, logger=CLIENT_LOG)
        self.producer = self._native.client
        self._lock = Lock()
        self._sent: deque[_SentRows] = deque()
        self._count = 0
        self._is_spread = False
        if not self._native.functions.writer_open(self._native.handle, target.topic.encode()):
            raise KafkaError(f"writing to {target}", "the client does not accept the topic")

    def send(
        self, batch: pa.RecordBatch, partition: int, waiting: Callable[[], Wait]
    ) -> RefusedRecord | None:
        """Hand over the rows of a batch in order; *waiting* makes a `Wait` for each lack of room.

        A null timestamp gives a record the time of writing.

        Returns:
            None when the client has taken all rows, or a delivery has failed meanwhile; otherwise
            what it refused, with no row after that handed over.
        """
        _capsule, array = lent(batch)
        self._is_spread = self._is_spread or partition != self._target.partition
        self._forget_delivered()
        self._sent.append(_SentRows(self._count, batch["offset"]))
        row, wait = 0, None
        error, failure = c_int32(), c_int32()
        while row < len(batch):
            before = row
            with self._lock:
                row = self._native.functions.writer_write(
                    self._native.handle, array, partition, row, _PATIENCE_MS,
                    byref(error), byref(failure),
                )  # fmt: skip
            self._count += row - before
            if failure.value:
                self._fail(failure.value)
            if error.value:
                return RefusedRecord(Code(error.value), batch["offset"][row].as_py())
            if row == len(batch) or self.refusal() is not None:
                break
            if wait is None or row > before:
                wait = waiting()
            wait(0.0)  # the library has waited already
        return None

    def refusal(self) -> RefusedRecord | None:
        """Return the first record that could not be delivered, if any."""
        if not self._native.is_open:
            return None
        _, _, number, error = self._deliveries()
        return RefusedRecord(Code(error), self._offset(number)) if error else None

    def written(self, partition: int) -> Span | None:
        """Return where the records stand that were acknowledged."""
        found = (c_int64 * 4)()
        with self._lock:
            self._native.functions.client_written(self._native.handle, partition, found)
        records, first, last, unknown = found
        return Span(first, last + 1) if records and not unknown else None

    def close(self) -> None:
        """Let go of the producer; a thread that writes meanwhile gets a `KafkaError`."""
        self._native.leave()
        with self._lock:
            if self._native.is_open:
                self._native.functions.writer_close(self._native.handle)
            self.producer = None
            self._native.let_go()

    def _fail(self, failure: int) -> None:
        match failure:
            case native.CLOSED:
                raise KafkaError(f"writing to {self._target}", "the writer was closed")
            case native.BAD_BATCH:
                raise TypeError("a column's ends are not in order")
        raise MemoryError

    def _deliveries(self) -> tuple[int, int, int, int]:
        found = (c_int64 * 4)()
        with self._lock:
            self._native.functions.client_deliveries(self._native.handle, found)
        delivered, failed, number, error = found
        return delivered, failed, number, error

    def _offset(self, number: int) -> int | None:
        for sent in () if self._is_spread else self._sent:
            if sent.number <= number < sent.number + len(sent.offsets):
                return int(sent.offsets[number - sent.number].as_py())
        return None

    def _forget_delivered(self) -> None:
        delivered, failed, _, _ = self._deliveries()
        while not failed and self._sent:
            first = self._sent[0]
            if first.number + len(first.offsets) > delivered:
                break
            self._sent.popleft()


Header = tuple[str, bytes | None]


class ObjectSender:
    """Calls ``produce`` once a record, and promises what `ColumnSender` does.

    The client offers no way to hand over columns, and its ``produce_batch`` takes no headers.
    """

    def __init__(self, properties: Mapping[str, Any], target: TopicPartition) -> None:
        self._target = target
        self._refusal: RefusedRecord | None = None
        self.producer = Producer(
            {**properties, "on_delivery": self._delivered}, logger=CLIENT_LOG
        )  # fmt: skip

    def send(
        self, batch: pa.RecordBatch, partition: int, waiting: Callable[[], Wait]
    ) -> RefusedRecord | None:
        """Hand over the rows of a batch in order."""
        gc.disable()  # none of what is made for each record is part of a cycle
        try:
            self._produce(batch, partition, waiting)
        except KafkaException as error:
            return RefusedRecord(error.args[0])
        finally:
            gc.enable()
        return None

    def refusal(self) -> RefusedRecord | None:
        """Return the first record that could not be delivered, if any."""
        return self._refusal

    def written(self, partition: int) -> Span | None:  # noqa: ARG002  (of both senders)
        """Return None: the client tells of no record that went well, or of each in Python."""
        return None

    def close(self) -> None:
        """Let go of the producer."""
        self.producer = None  # it is part of a cycle

    def _produce(self, batch: pa.RecordBatch, partition: int, waiting: Callable[[], Wait]) -> None:
        topic = self._target.topic
        produce = self.producer.produce
        for value, key, timestamp, headers in zip(
            batch["value"].to_pylist(),
            batch["key"].to_pylist(),
            _times(batch["timestamp"]),
            _headers(batch["headers"]),
            strict=True,
        ):
            try:
                produce(topic, value, key, partition, None, None, timestamp, headers)
            except BufferError:
                self._push(waiting(), topic, value, key, partition, None, None, timestamp, headers)
            if self._refusal is not None:
                break

    def _push(self, wait: Wait, *record: Any) -> None:
        """Hand over a record as soon as the client has room for it."""
        while self._refusal is None:
            wait(FULL_WAIT_S)
            try:
                self.producer.produce(*record)
            except BufferError:
                continue
            return

    def _delivered(self, error: Any, message: Any) -> None:  # noqa: ARG002  (the client's signature)
        if error is not None and self._refusal is None:
            self._refusal = RefusedRecord(error)


def _times(column: pa.Array) -> Sequence[int]:
    """Timestamps as the client takes them, where 0 means now."""
    times: list[int] = pc.fill_null(column, 0).to_pylist()
    return times


def _headers(column: pa.Array) -> Iterable[list[Header] | None]:
    """Headers of each row as the client takes them; flat lists, for ``to_pylist`` makes dicts."""
    flat = column.flatten()  # of these rows only, where the batch is a slice
    pairs: Iterator[Header] = zip(
        flat.field("key").to_pylist(), flat.field("value").to_pylist(), strict=True
    )
    lengths = column.value_lengths()
    fewest, most = (bound.as_py() for bound in pc.min_max(lengths).values())
    if most and fewest == most:  # as many on each record, which is twice as fast
        return map(list, zip(*[pairs] * most, strict=True))
    return (list(islice(pairs, count)) or None for count in lengths.to_pylist())


FAILURES: Final = (KafkaException, SystemError)
"""What the client raises; see `unwrapped`."""

_FENCED: Final = (Code._FENCED, Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH)  # noqa: SLF001


def meaning(
    target: TopicPartition,
    what: str,
    error: KafkaException,
    complaints: Complaints,
    offset: int | None,
    open_s: float | None = None,
) -> KbackupError:
    """Return the error that an operator is shown, of what the client raised.

    Args:
        what: What the writer was doing.
        offset: Offset in the backup of the first record concerned; None where it is not known.
        open_s: For how long a transaction has been open that the cluster ends by now; None for one
            that it does not.  It gives the producer a new epoch then, as another producer would:
            the client's error is the same.
    """
    if offset is not None:
        what = f"{what} from offset {offset} of the backup on"
    place = {} if offset is None else {"offset": offset}
    if error.args and hasattr(error.args[0], "code"):
        code = error.args[0].code()
        if code == Code.MSG_SIZE_TOO_LARGE:
            return RecordTooLargeError(
                f"{target}: {what}: a record was refused",
                error.args[0].str(),
                f"raise max.message.bytes of topic {target.topic}",
                **place,
            )
        if code in _FENCED:
            why = "another restore took over this partition"
            if open_s is not None:
                why = (
                    f"its transaction had been open for {open_s:.0f} s, and the cluster ended it "
                    f"(transaction.timeout.ms), or {why}"
                )
            do = "let one restore at a time write to a topic; run the command again to continue"
            return TakenOverError(f"{target}: {what}", why, do)
    translated = kafka_error(f"{target}: {what}", error, complaints)
    translated.place.update(place)
    return translated


def unwrapped(error: Exception) -> KafkaException:
    """Return the client's exception, also where Python made a `SystemError` of it.

    A fatal error, such as being fenced, may be on its way out of ``poll`` or ``flush`` when the
    client reports the records it drops.  Python then finds an exception set where none may be, or
    none where one should be; the client raises it nowhere else.
    """
    if isinstance(error, KafkaException):
        return error
    if isinstance(error.__cause__, KafkaException):
        return error.__cause__
    return KafkaException(Code(Code._FATAL))  # noqa: SLF001


BATCH_BYTES: Final = 2**20
"""What the client sends at once, where the topic takes as much; below Kafka's default limit."""

BATCHES: Final = 4
"""Batches in the queue to one partition: one on its way, one that is ready, and two to be filled
while the broker answers."""

QUEUE_RECORDS: Final = 40_000
"""The same in records, 10,000 a batch: the client needs some 300 bytes for each, however small."""

SPREAD_BYTES: Final = 16 * BATCH_BYTES
SPREAD_RECORDS: Final = 100_000
"""The queue of a writer to several partitions, none of which may have a batch full."""

LINGER_MS: Final = 500
SPREAD_LINGER_MS: Final = 20
"""How long records wait for others of their batch, to one partition and to several."""

BATCH_RECORDS: Final = 10_000
"""librdkafka's ``batch.num.messages``."""

_LIVES: Final = ("message.timeout.ms", "delivery.timeout.ms")
"""How long a record may wait in all; two names of the same."""

_OF_QUEUES: Final = ("queue.buffering.max.messages", "queue.buffering.max.kbytes", *_LIVES)

NUMBERS: Final = ("batch.size", "batch.num.messages", *_OF_QUEUES)
"""The operator's properties that are looked at here."""


def limits(
    largest: int,
    max_message_bytes: int | None,
    operators: Mapping[str, str],
    *,
    is_spread: bool,
) -> dict[str, Any]:
    """Return the producer's properties that say how much it keeps, and how long.

    It has to take records of *largest* bytes; the topic takes *max_message_bytes*, if known.
    The *operators*' own properties win.  *is_spread*: records go to several partitions.
    """
    ours = min(BATCH_BYTES, max_message_bytes or BATCH_BYTES)
    batch = max(ours, int(operators.get("batch.size", ours)))
    records = max(BATCH_RECORDS, int(operators.get("batch.num.messages", BATCH_RECORDS)))
    least = SPREAD_BYTES if is_spread else BATCHES * batch
    waits = not is_spread and _fills(largest + batch, records, operators)
    return {
        "batch.size": ours,
        "linger.ms": LINGER_MS if waits else SPREAD_LINGER_MS,
        "queue.buffering.max.messages": max(
            SPREAD_RECORDS if is_spread else QUEUE_RECORDS, 2 * records
        ),
        # a record that is larger than the queue would wait for room for ever
        "queue.buffering.max.kbytes": max(least, largest + batch) // 1024 + 1,
    }


def _fills(least_bytes: int, records: int, operators: Mapping[str, str]) -> bool:
    """Whether a batch is full before it has waited for long, whatever the operator has set."""
    # in a smaller queue each would wait for `LINGER_MS`, and the client does not start there
    given = {name: int(operators[name]) for name in _OF_QUEUES if name in operators}
    room = given.get("queue.buffering.max.messages", 0) or records  # 0: no limit
    room_bytes = 1024 * given.get("queue.buffering.max.kbytes", least_bytes)
    lives = (given.get(name, 0) or 2 * LINGER_MS for name in _LIVES)  # 0: for ever
    return room >= records and room_bytes >= least_bytes and min(lives) > LINGER_MS


_LOOK_S: Final = 0.003
_SILENT_S: Final = 0.05
"""How often a flush looks for answers before it asks the client to hurry, and how long it looks for
the next one: a request takes 10 to 30 ms where client and broker keep two cores busy."""


class Answers:
    """The answers to what one producer has sent.

    A flush of the client sends what has no full batch yet, and its thread spins until all is
    answered (`kbackup.kafka.writer`).  So the client is asked for it once it has about one
    request left.  It gives up when nothing has been answered for *patience_s*.
    """

    def __init__(self, target: TopicPartition, patience_s: float, complaints: Complaints) -> None:
        self._target, self._patience_s, self._complaints = target, patience_s, complaints
        self._records, self._bytes = 0, 0

    def expect(self, batch: pa.RecordBatch) -> None:
        """Take into account what is sent."""
        self._records += len(batch)
        self._bytes += batch.nbytes

    @property
    def _one_request(self) -> float:
        """About how many records go into one request, and half as many again: a guess."""
        if not self._records:
            return BATCH_RECORDS
        return 1.5 * min(BATCH_RECORDS, BATCH_BYTES * self._records / max(1, self._bytes))

    def flush(self, producer: Any, call: Callable[..., Any], is_over: Callable[[], bool]) -> None:
        """Wait until all is answered, or *is_over* says that a record was refused.

        *call* makes a call of the client, and says what its failure means.

        Raises:
            KafkaError: If nothing is answered any more.
        """
        wait = self.waiting(producer, producer.poll, call)
        left, heard = len(producer), time.monotonic()
        while left > self._one_request and not is_over():
            wait(_LOOK_S)
            before, left, now = left, len(producer), time.monotonic()
            if left < before:
                heard = now
            elif now - heard > _SILENT_S:
                break
        wait = self.waiting(producer, producer.flush, call)
        while len(producer) and not is_over():
            wait(1.0)
        self._records, self._bytes = 0, 0

    def waiting(
        self, producer: Any, function: Callable[[float], Any], call: Callable[..., Any]
    ) -> Wait:
        """Return *function* as a wait for answers that gives up when none come."""
        fewest, heard = len(producer), time.monotonic()

        def wait(seconds: float) -> None:
            nonlocal fewest, heard
            call("writing records", function, seconds)
            left, now = len(producer), time.monotonic()
            if left < fewest or not left:
                fewest, heard = left, now
            elif now - heard > self._patience_s:
                raise KafkaError(
                    f"{self._target}: {counted(left, 'record')} without an answer for "
                    f"{now - heard:.0f} s",
                    self._complaints.last or "the broker acknowledged none of them",
                    "check the brokers, or raise --kafka-timeout; the same command continues "
                    "from the committed position",
                )

        return wait


_log = logging.getLogger(__name__)

OVERHEAD_BYTES: Final = 128
"""Bytes a batch adds to its records, generously."""

CLIENT_BYTES: Final = 2**28
"""What the client can send at once: it keeps four bytes for the length of a batch, seven bits in
each (librdkafka 2.16).  Of a larger one the broker reads no records, and does not answer.
"""

UNKNOWN_BYTES: Final = 2**26
"""The largest record where the cluster does not say what the topic takes."""

_ABORT_S: Final = 5.0
"""An abort that takes longer is left to the next writer, which needs the cluster anyway."""

TRANSACTION_MS: Final = 300_000
"""After this the cluster ends a transaction."""

TAKEOVER_S: Final = 60.0
"""How long to wait for a transactional id, at least: on a cluster that has had no transactions, the
topic that keeps them is made behind all those that a restore has just made."""

_COMMIT_S: Final = 5.0
_COMMITS: Final = 12
"""What the client is given for each half of a commit, and how often: it goes on where it was."""
_OVERDUE_S: Final = 5.0
"""By how much it may overrun that before it is taken to be stuck, and another one goes on.

So a partition stands still for 10 s at most after a coordinator has died, and not for a minute.
"""

_REFRESH_MS: Final = 1000
_FORGET_MS: Final = 3000
_FORGOTTEN_S: Final = _FORGET_MS / 1000 + 1.5
"""How long the client remembers the group's coordinator, and when it has surely forgotten it.

A broker that restarts, or leaves, is taken off the client's list.  A coordinator that it remembers
and that is off the list is waited for without end (librdkafka issue 5511), so it is better asked
for again.  The client forgets it with its metadata, which are refreshed before they are that old.
"""


class GroupWriter:
    """A writer that keeps positions in a consumer group; what it may write, the target limits."""

    _positions: GroupPositions

    def __init__(self, target: TopicPartition, group: str, max_message_bytes: int | None) -> None:
        self._target, self._group = target, group
        self._largest = min(max_message_bytes or UNKNOWN_BYTES, CLIENT_BYTES)
        self.record_bytes_max = max(0, self._largest - OVERHEAD_BYTES)
        self._id = f"{group}-{fence(target)}"

    def position(self, where: TopicPartition | None = None) -> Position | None:
        """Return the committed position: `TargetWriter.position`."""
        return self._positions.read(where or self._target)

    def positions(
        self, wheres: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Position | None]:
        """Return committed positions, in one request: `TargetWriter.positions`."""
        return self._positions.read_all(wheres)


class KafkaWriter(GroupWriter):
    """Writes to one target partition and keeps the position in a consumer group.

    Records may go to other partitions of the target's topic too, with positions of the group there:
    all of them belong to the same transaction.

    Transactions, positions and what a failure means are here; how rows reach the client is a
    sender's matter, by columns in C or by objects in Python, as `KafkaSettings.client` says.

    With *exactly_once* records and position are committed in one transaction: a writer that died
    is fenced by its transactional id, which is that of all partitions with the same `fence`, and
    its open transaction aborted.  Without, records are
    written idempotently, and a killed run may repeat those after the last committed position.

    The group's offset on the *target* partition is the next offset of the *backup*.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        target: TopicPartition,
        group: str,
        *,
        exactly_once: bool = True,
        max_message_bytes: int | None = None,
        is_spread: bool = False,
    ) -> None:
        """Connect, and end whatever an earlier writer had begun: `Connection.writer`.

        Of what the topic takes, Kafka measures whole batches against *max_message_bytes*.
        """
        super().__init__(target, group, max_message_bytes)
        self._settings, self._exactly_once = settings, exactly_once
        self._complaints = Complaints()
        own: dict[str, Any] = {
            "enable.idempotence": True,
            **limits(self._largest, max_message_bytes, settings.producer, is_spread=is_spread),
            "message.max.bytes": 1_000_000_000,  # the broker decides, not the client
            "delivery.report.only.error": True,  # no Python call for each record that went well
            "error_cb": self._complaints,
        }
        if exactly_once:
            own["transactional.id"] = self._id
            own["transaction.timeout.ms"] = TRANSACTION_MS
            own["topic.metadata.refresh.interval.ms"] = _REFRESH_MS
            own["metadata.max.age.ms"] = _FORGET_MS
        properties = settings.properties(own, settings.producer)
        is_native = choose(settings.client).is_native
        self._sender = (ColumnSender if is_native else ObjectSender)(properties, target)
        self._producer = self._sender.producer
        # without transactions it advances them itself, which no other thread may meanwhile
        self._positions = WRITERS.borrow(settings, group, alone=not exactly_once)
        patience = patience_s(settings, settings.producer)
        self._answers = Answers(target, patience, self._complaints)
        self._in_transaction, self._begun = False, 0.0
        self._timeout_s = int(properties.get("transaction.timeout.ms", TRANSACTION_MS)) / 1000
        self._sent_at, self._complained = time.monotonic(), 0
        if exactly_once:
            try:
                self._connect()
                wait_s = max(patience, TAKEOVER_S)
                self._call(
                    "taking over its transactional id", self._producer.init_transactions, wait_s
                )
            except KbackupError:
                self.close()
                raise

    def write(self, batch: pa.RecordBatch, where: TopicPartition | None = None) -> int:
        """Send the records of *batch*; returns when the client has taken all: `TargetWriter.write`.

        Raises:
            RecordTooLargeError: If the cluster refused a record for its size.
            KafkaError: If a record could not be delivered for another reason.
        """
        self._begin()
        sent, zeros = without_zero_timestamps(batch)
        partition = (where or self._target).partition
        self._answers.expect(sent)
        poll = self._producer.poll
        refused = self._sender.send(
            sent, partition, lambda: self._answers.waiting(self._producer, poll, self._call)
        )
        if refused is None:
            self._call("writing records", self._producer.poll, 0)
            refused = self._sender.refusal()
        self._raise(refused)
        return zeros

    def commit(
        self,
        position: Position,
        others: Mapping[TopicPartition, Position] = NO_OTHERS,
        where: TopicPartition | None = None,
    ) -> None:
        """Make everything written so far visible, or abort it: `TargetWriter.commit`."""
        positions = {where or self._target: position, **others}
        if not self._exactly_once:
            self.flush()
            self._advance(positions)
            return
        offsets = [
            ClientPartition(where.topic, where.partition, each.offset, each.metadata)
            for where, each in positions.items()
        ]
        self._begin()
        self.flush()
        self._forget_coordinator()
        self._commit(
            "sending its position",
            self._producer.send_offsets_to_transaction,
            offsets,
            self._positions.for_transaction(),
        )
        self._sent_at = time.monotonic()
        self._commit("committing a transaction", self._producer.commit_transaction)
        self._in_transaction = False

    def _begin(self) -> None:
        """Begin a transaction, if it is to write in one and none is open."""
        if self._exactly_once and not self._in_transaction:
            self._call("beginning a transaction", self._producer.begin_transaction)
            self._in_transaction, self._begun = True, time.monotonic()

    def _advance(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Commit positions without a transaction; several of them in one request."""
        if len(positions) == 1:
            self._positions.advance(*next(iter(positions.items())))
            return
        for error in self._positions.advance_all(positions).values():
            raise error

    def _commit(self, what: str, function: Any, *arguments: Any) -> None:
        """Make a call of the client that waits for a coordinator, now and then without end."""
        for turn in range(_COMMITS):
            try:
                within(_COMMIT_S + _OVERDUE_S, function, *arguments, _COMMIT_S)
            except TimeoutError as error:
                self._in_transaction = False  # the client cannot abort it; the next writer does
                raise BrokenOffError(
                    f"{self._target}: {what}: no answer for {_COMMIT_S + _OVERDUE_S:.0f} s",
                    self._complaints.last or "the coordinator of the transaction does not answer",
                    "check the brokers; the same command continues from the committed position",
                ) from error
            except FAILURES as error:
                cause = unwrapped(error)
                is_late = cause.args[0].code() == Code._TIMED_OUT  # noqa: SLF001
                if not is_late or turn == _COMMITS - 1:
                    raise self._translate(what, cause) from error
            else:
                return

    def flush(self) -> None:
        """Wait until everything written is acknowledged: `TargetWriter.flush`."""
        self._answers.flush(self._producer, self._call, lambda: self._sender.refusal() is not None)
        self._raise(self._sender.refusal())

    def written(self, where: TopicPartition) -> Span | None:
        """Return where records stand that were written: `TargetWriter.written`."""
        return self._sender.written(where.partition)

    def abort(self) -> None:
        """Drop what was not committed; safe to call at any time, and it raises nothing."""
        if self._in_transaction:
            self._in_transaction = False
            try:
                self._producer.purge()
                self._producer.abort_transaction(_ABORT_S)
            except FAILURES as error:  # the next writer's constructor aborts it
                _log.warning(
                    "aborting the transaction on %s: %s",
                    self._target,
                    unwrapped(error).args[0].str(),
                )

    def close(self) -> None:
        """Leave the cluster; what was not committed is dropped."""
        self.abort()
        WRITERS.give_back(self._positions)
        self._sender.close()
        self._producer = None  # its threads end with it

    def _forget_coordinator(self) -> None:
        """After a broker has been away, wait until the client asks anew who keeps the position."""
        self._call("writing records", self._producer.poll, 0)  # hears complaints
        if self._complaints.count > self._complained:
            time.sleep(max(0.0, self._sent_at + _FORGOTTEN_S - time.monotonic()))
            self._complained = self._complaints.count

    def _connect(self) -> None:
        """Wait until the client can ask for its transactional id."""
        # one that asks before it is connected asks again after 500 ms only; the look-up of a topic
        # makes an object of each of its partitions
        try:
            self._producer.cluster_id(self._settings.timeout_s)
            self._producer.list_topics(self._target.topic, self._settings.timeout_s)
        except KafkaException as error:  # what follows waits longer, and says what is wrong
            _log.debug("looking up %s: %s", self._target.topic, error)

    def _raise(self, refused: RefusedRecord | None) -> None:
        """Raise what a refusal means, if there is one."""
        if refused is not None:
            raise self._translate(
                "writing records", KafkaException(refused.error), offset=refused.offset
            )

    def _call(self, what: str, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except FAILURES as error:
            raise self._translate(what, unwrapped(error)) from error

    def _translate(
        self, what: str, error: KafkaException, *, offset: int | None = None
    ) -> KbackupError:
        open_s = time.monotonic() - self._begun if self._in_transaction else 0.0
        ended = open_s if open_s >= self._timeout_s else None
        return meaning(self._target, what, self._cause(error), self._complaints, offset, ended)

    def _cause(self, error: KafkaException) -> KafkaException:
        """Return why a client is beyond repair: a call says only that it is, the next poll why."""
        if error.args and error.args[0].code() == Code._FATAL:  # noqa: SLF001
            try:
                self._producer.poll(0)
            except KafkaException as cause:
                return cause
            except SystemError as cause:
                if isinstance(cause.__cause__, KafkaException):
                    return cause.__cause__
            refused = self._sender.refusal()
            if refused is not None:
                return KafkaException(refused.error)
        return error
