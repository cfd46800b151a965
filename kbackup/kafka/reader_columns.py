"""Batches from the C library: no Python object for each record."""

from collections.abc import Mapping
from ctypes import addressof, byref, c_char_p, c_void_p, py_object, pythonapi
from threading import Lock
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import KafkaError as Code

from kbackup.errors import KafkaError
from kbackup.kafka.client_log import CLIENT_LOG
from kbackup.kafka.native import library
from kbackup.kafka.native.client import NativeClient
from kbackup.kafka.native.library import ArrowArray, Drained
from kbackup.kafka.reader_source import BATCH_BYTES, POLL_S, Event, Taken, not_utf8
from kbackup.records import SCHEMA, Span
from kbackup.records import TopicPartition as Where

BATCH_RECORDS: Final = 16_384
"""A batch is passed on when it has this many records: those of a row group."""

_POLL_MS: Final = int(POLL_S * 1000)

_new_capsule: Final = pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = py_object, (c_void_p, c_char_p, c_void_p)


class ColumnSource:
    """Drains one partition's queue into Arrow buffers; see `kbackup.kafka.reader_source.Source`.

    The lock is held while the library is inside, so that `close` waits for another thread.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._native = NativeClient(Consumer, properties, is_producer=False, logger=CLIENT_LOG)
        self.consumer = self._native.client
        self._lock = Lock()
        self._reader: int | None = None
        self._where: Where | None = None
        self._drained, self._array = Drained(), ArrowArray()

    def begin(self, where: Where, span: Span) -> None:
        """Take the partition's queue from the consumer, then assign the partition."""
        self.end()
        with self._lock:
            reader = self._native.functions.reader_new(
                self._native.handle, where.topic.encode(), where.partition, span.start_offset,
                span.end_offset, BATCH_RECORDS, BATCH_BYTES,
            )  # fmt: skip
            if reader is None:
                raise KafkaError(
                    f"reading {where}", "the client does not give out the partition's queue"
                )
            self._reader, self._where = reader, where
            self.consumer.assign([TopicPartition(where.topic, where.partition, span.start_offset)])

    def take(self) -> Taken:
        """Return the next batch, and what ended it."""
        drained = self._drained
        with self._lock:
            if self._reader is None:
                raise _closed()
            self._native.functions.reader_drain(
                self._reader, _POLL_MS, byref(drained), byref(self._array)
            )
            batch = self._imported() if drained.rows else None
            # the client's callbacks run here: errors, logs, tokens
            message = self.consumer.poll(0) if not drained.event else None
        if batch is None and drained.failure:
            self._fail(drained)  # if there are records, the next call fails in the same way
        event = None
        if drained.event:
            text = drained.text.decode(errors="replace")
            event = Event(Code(drained.event, text or None), drained.event_offset)
        elif message is not None:
            if message.error() is None:  # it would be missing in what is read
                raise KafkaError(f"reading {self._where}", "a record bypassed the library")
            event = Event(message.error(), message.offset())
        return Taken(batch, drained.position, event)

    def end(self) -> None:
        """Give the partition back."""
        with self._lock:
            reader, self._reader = self._reader, None
            if reader is not None:
                self.consumer.unassign()
                self._native.functions.reader_free(reader)

    def close(self) -> None:
        """Leave the cluster; a thread that reads meanwhile gets a `KafkaError`."""
        self._native.leave()
        with self._lock:
            reader, self._reader = self._reader, None
            if reader is not None:
                self.consumer.unassign()  # or what is still fetched would be drained for ever
                self._native.functions.reader_free(reader)
            if self._native.is_open:
                self.consumer.close()
                self._native.let_go()

    def _fail(self, drained: Drained) -> None:
        match drained.failure:
            case library.BAD_HEADER_NAME if self._where is not None:
                raise not_utf8(self._where, drained.event_offset)
            case library.CLOSED:
                raise _closed()
        raise MemoryError

    def _imported(self) -> pa.RecordBatch:
        try:
            return pa.record_batch(_Exported(self._array))
        finally:
            self._native.functions.array_release(self._array)  # where nobody took it


def _closed() -> KafkaError:
    return KafkaError("reading", "the reader was closed")


class _Exported:
    """A batch in the library, as Arrow's PyCapsule interface offers it; moved when imported."""

    def __init__(self, array: ArrowArray) -> None:
        self._array = array

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return SCHEMA.__arrow_c_schema__(), _new_capsule(
            addressof(self._array), b"arrow_array", None
        )
