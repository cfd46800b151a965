"""How a writer's rows reach the client: columns into the C library, or records one by one.

Each has one producer, which writes to the partitions of one topic: `ColumnSender` hands Arrow
columns to the C library, `ObjectSender` calls the client for each record.  Transactions, positions
and waiting are the `Writer`'s, whichever of them serves.
"""

import gc
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

from kbackup.batches.native import lent
from kbackup.errors import KafkaError
from kbackup.kafka import native
from kbackup.kafka.client import CLIENT_LOG
from kbackup.kafka.native import NativeClient
from kbackup.records import Span, TopicPartition

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
    at = batch.schema.get_field_index("timestamp")
    return batch.set_column(at, batch.schema.field("timestamp"), changed), count


_PATIENCE_MS: Final = int(FULL_WAIT_S * 1000)


class _Sent(NamedTuple):
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
        self._sent: deque[_Sent] = deque()
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
        self._sent.append(_Sent(self._count, batch["offset"]))
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

    def written(self, partition: int) -> Span | None:  # noqa: ARG002  (the protocol's)
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
