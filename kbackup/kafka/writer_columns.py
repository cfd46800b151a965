"""Columns handed to the C library: no Python object for each record."""

from collections import deque
from collections.abc import Callable, Mapping
from ctypes import byref, c_char_p, c_int32, c_int64, c_void_p, py_object, pythonapi
from threading import Lock
from typing import Any, Final, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError as Code
from confluent_kafka import Producer

from kbackup.errors import KafkaError
from kbackup.kafka.client_log import CLIENT_LOG
from kbackup.kafka.native import library
from kbackup.kafka.native.client import NativeClient
from kbackup.kafka.writer_sender import FULL_WAIT_S, Refusal, Wait
from kbackup.records import SCHEMA, TopicPartition

_PATIENCE_MS: Final = int(FULL_WAIT_S * 1000)

_pointer_of: Final = pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = c_void_p, (py_object, c_char_p)


class _Sent(NamedTuple):
    """A batch that is not acknowledged yet: the number of its first record, and its offsets."""

    number: int
    offsets: pa.Array


class ColumnSender:
    """Hands whole batches over; see `kbackup.kafka.writer_sender.Sender`.

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
    ) -> Refusal | None:
        """Hand over the rows of a batch in order."""
        if not batch.schema.equals(SCHEMA):
            raise TypeError(f"not the columns of a record: {batch.schema}")
        batch.validate()  # no column's end is beyond its bytes: what C cannot see
        self._is_spread = self._is_spread or partition != self._target.partition
        self._forget_delivered()
        self._sent.append(_Sent(self._count, batch["offset"]))
        _, capsule = batch.__arrow_c_array__()
        array = _pointer_of(capsule, b"arrow_array")
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
                return Refusal(Code(error.value), batch["offset"][row].as_py())
            if row == len(batch) or self.refusal() is not None:
                break
            if wait is None or row > before:
                wait = waiting()
            wait(0.0)  # the library has waited already
        return None

    def refusal(self) -> Refusal | None:
        """Return the first record that could not be delivered, if any."""
        if not self._native.is_open:
            return None
        _, _, number, error = self._deliveries()
        return Refusal(Code(error), self._offset(number)) if error else None

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
            case library.CLOSED:
                raise KafkaError(f"writing to {self._target}", "the writer was closed")
            case library.BAD_BATCH:
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
