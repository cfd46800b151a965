"""Batches from the client's messages, one Python object each: where the C library is missing."""

import gc
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition

from kbackup.kafka.client_log import CLIENT_LOG
from kbackup.kafka.reader_source import BATCH_BYTES, POLL_S, Event, Taken, not_utf8
from kbackup.records import SCHEMA, Span
from kbackup.records import TopicPartition as Where

FETCH_RECORDS: Final = 500
"""Records asked of the client at once.  More only delays; see `ObjectSource._consume`."""

FETCH_BYTES: Final = 16 * 2**20
"""Bytes one call to the client should bring at most, judging by the records seen so far."""

BATCH_RECORDS: Final = 8_000
"""A batch is passed on when it has this many records."""


_NO_TEXT: Final = (UnicodeDecodeError, SystemError)
"""What the client raises of a header's name that is not UTF-8: at times in Python's words."""


class ObjectSource:
    """Makes columns of messages; see `kbackup.kafka.reader_source.Source`."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.consumer = Consumer(properties, logger=CLIENT_LOG)
        self._where: Where | None = None
        self._position = self._end = 0
        self._columns = _Columns()
        self._pending: list[Any] = []
        self._broken_offset: int | None = None
        self._mean_bytes = 1024.0

    def begin(self, where: Where, span: Span) -> None:
        """Assign a partition, and collect no garbage until `end`."""
        self.end()
        self._columns, self._pending, self._broken_offset = _Columns(), [], None
        self._position, self._end = span.start_offset, span.end_offset
        self.consumer.assign([TopicPartition(where.topic, where.partition, span.start_offset)])
        self._where = where
        gc.disable()  # tens of thousands of live messages make each collection expensive

    def take(self) -> Taken:
        """Return the next batch, and what ended it."""
        while True:
            if self._broken_offset is not None and self._where is not None:
                raise not_utf8(self._where, self._broken_offset)
            pending, self._pending = self._pending, []
            messages = pending or self._consume()
            records, event = self._sift(messages)
            if not self._add(records):
                event = None  # it came after the broken record
            is_broken = self._broken_offset is not None
            if is_broken and not self._columns.records:
                continue
            if (
                not messages
                or event is not None
                or is_broken
                or self._columns.is_full
                or self._position >= self._end
            ):
                batch = self._columns.take() if self._columns.records else None
                return Taken(batch, self._position, event)

    def end(self) -> None:
        """Give the partition back."""
        if self._where is not None:
            self._where = None
            gc.enable()
            self._columns, self._pending = _Columns(), []
            self.consumer.unassign()

    def close(self) -> None:
        """Leave the cluster."""
        self.consumer.close()

    def _consume(self) -> list[Any]:
        """Ask for records: not more than are left, for the client waits until it has them."""
        left = max(1, self._end - self._position)
        wanted = min(FETCH_RECORDS, left, max(1, int(FETCH_BYTES / self._mean_bytes)))
        messages: list[Any] = self.consumer.consume(wanted, POLL_S)
        return messages

    def _sift(self, messages: list[Any]) -> tuple[list[Any], Event | None]:
        """Return the records up to the first event, and that; what follows stays for later."""
        event = None
        if any(map(_ERROR, messages)):
            at = next(at for at, message in enumerate(messages) if message.error() is not None)
            event = Event(messages[at].error(), messages[at].offset())
            messages, self._pending = messages[:at], messages[at + 1 :]
        if messages and messages[-1].offset() >= self._end:
            self._position = self._end
            messages = [message for message in messages if message.offset() < self._end]
        return messages, event

    def _add(self, records: list[Any]) -> bool:
        """Add records to the columns, up to one that is broken; return whether there was none."""
        headers: list[Any] = []
        try:
            headers.extend(map(_HEADERS, records))
        except _NO_TEXT:  # the client's message is broken from now on: it is not asked again
            self._position = self._broken_offset = records[len(headers)].offset()
            records = records[: len(headers)]
        if records:
            size = self._columns.extend(records, headers)
            self._mean_bytes = max(1.0, size / len(records))
            self._position = max(self._position, records[-1].offset() + 1)
        return self._broken_offset is None


# Methods of the client's message, looked up once: they are called for every record.
_ERROR: Final[Any] = Message.error
_OFFSET: Final[Any] = Message.offset
_TIMESTAMP: Final[Any] = Message.timestamp
_KEY: Final[Any] = Message.key
_VALUE: Final[Any] = Message.value
_HEADERS: Final[Any] = Message.headers

_HEADERS_TYPE: Final = SCHEMA.field("headers").type


class _Columns:
    """Grows the columns of one batch.

    Per record this calls five methods of the client's message, from C through ``map``: 0.45 us a
    record of 100 B on one core, less than the client itself takes.
    """

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self._offsets: list[int] = []
        self._timestamps: list[tuple[int, int]] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[list[tuple[str, bytes | None]] | None] = []

    @property
    def is_full(self) -> bool:
        """Whether a batch is to be passed on."""
        return self.records >= BATCH_RECORDS or self.bytes >= BATCH_BYTES

    def extend(self, messages: list[Any], headers: list[Any]) -> int:
        """Add records and what their headers are; return the bytes of their keys and values."""
        keys = list(map(_KEY, messages))
        values = list(map(_VALUE, messages))
        self._offsets += map(_OFFSET, messages)
        self._timestamps += map(_TIMESTAMP, messages)
        self._headers += headers
        self._keys += keys
        self._values += values
        size = sum(map(len, filter(None, values))) + sum(map(len, filter(None, keys)))
        self.records += len(messages)
        self.bytes += size
        return size

    def take(self) -> pa.RecordBatch:
        """Return what was added, and begin anew."""
        types, times = zip(*self._timestamps, strict=True)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(self._offsets, pa.int64()),
                pa.array(times, pa.int64()),
                pa.array(types, pa.int8()),
                pa.array(self._keys, pa.binary()),
                pa.array(self._values, pa.binary()),
                _lists(pa.array(self._headers, _HEADERS_TYPE)),
            ],
            schema=SCHEMA,
        )
        self.__init__()  # type: ignore[misc]
        return batch


def _lists(headers: pa.ListArray) -> pa.ListArray:
    """Return *headers* with an empty list for each null: the client's word for none is None."""
    return pa.ListArray.from_arrays(headers.offsets, headers.values, type=_HEADERS_TYPE)
