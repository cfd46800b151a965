"""Kafka records to record batches: one partition at a time, from one offset to another."""

import gc
import logging
import time
from collections.abc import Generator, Iterator
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka import KafkaError as Code

from kbackup.errors import KafkaError, TopicChangedError
from kbackup.kafka import KafkaSettings, LogStartMovedError
from kbackup.kafka.client import Complaints, calls, kafka_error
from kbackup.kafka.client_log import CLIENT_LOG
from kbackup.kafka.coordinator import patience_s
from kbackup.records import SCHEMA, Span
from kbackup.records import TopicPartition as Where

_log = logging.getLogger(__name__)

FETCH_RECORDS: Final = 500
"""Records asked of the client at once.  More only delays; see `Reader._wanted` for fewer."""

FETCH_BYTES: Final = 16 * 2**20
"""Bytes one call to the client should bring at most, going by the records seen so far."""

BATCH_RECORDS: Final = 8_000
BATCH_BYTES: Final = 4 * 2**20
"""A batch is passed on when it has this many records or bytes.

Larger ones leave the processor's caches before they are written: at 16 MiB, records of 1 KB cost
0.8 us more each.
"""

QUEUE_KIB: Final = 32 * 1024
"""What the client fetches ahead.  With one batch it bounds a reader's memory."""

_POLL_S: Final = 0.2
"""One call waits no longer, which bounds what sudden giant records can pile up."""


class Reader:
    """A consumer that is no member of its group, for it is told what to read.

    Memory: `QUEUE_KIB` fetched ahead, plus one batch of `BATCH_BYTES` and the calls that fill it,
    about 52 MiB whatever the number of partitions, as long as records are small against that.
    """

    def __init__(self, settings: KafkaSettings, group: str) -> None:
        self._settings = settings
        self._complaints = Complaints()
        ours = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "isolation.level": "read_committed",
            # The default of 1,000 ms makes a reader that outran its queue wait that long.
            "fetch.queue.backoff.ms": 10,
            "fetch.wait.max.ms": 10,  # a span ends at the log's end: nothing comes by waiting
            "queued.min.messages": 100_000,
            "queued.max.messages.kbytes": QUEUE_KIB,
            "fetch.message.max.bytes": 8 * 2**20,
            "error_cb": self._complaints,
        }
        self._consumer = Consumer(settings.properties(ours, settings.consumer), logger=CLIENT_LOG)
        self._mean_bytes = 1024.0
        self._patience_s = patience_s(settings)
        self._met: set[str] = set()

    def close(self) -> None:
        """Leave the cluster."""
        self._consumer.close()

    def read(self, where: Where, span: Span) -> Generator[pa.RecordBatch, None, None]:
        """Read the records of *span*, which holds fewer where some were compacted or aborted.

        The end is known by position, never by a record: the last offsets may hold none.  Close the
        generator where it is not read to its end.

        Yields:
            ``records.SCHEMA``, at least one row each, offsets rising.

        Raises:
            LogStartMovedError: If retention has deleted the next offset to read.
            TopicChangedError: If the log ends before *span* does.
            KafkaError: If the cluster stays silent, or says no.
        """
        self._meet(where.topic)
        self._consumer.assign([TopicPartition(where.topic, where.partition, span.start_offset)])
        gc.disable()  # tens of thousands of live messages make each collection expensive
        try:
            yield from self._batches(where, span)
        finally:
            gc.enable()
            self._consumer.unassign()

    def _meet(self, topic: str) -> None:
        """Learn where *topic* lies before it is assigned.

        The client by itself would start to fetch a topic that is new to it only when a timer of
        1 s comes around: 0.01 s instead of 0.9 s until the first record.
        """
        if topic in self._met:
            return
        try:
            self._consumer.list_topics(topic, self._settings.timeout_s)
        except KafkaException as error:  # reading waits longer, and says what is wrong
            _log.debug("looking up %s: %s", topic, error)
        else:
            self._met.add(topic)

    def _batches(self, where: Where, span: Span) -> Iterator[pa.RecordBatch]:
        columns = _Columns()
        position = span.start_offset
        heard = time.monotonic()
        while position < span.end_offset:
            messages = self._consume(where, span.end_offset - position)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > self._patience_s:
                raise KafkaError(
                    f"{where} offset {position}: no answer for {time.monotonic() - heard:.0f} s",
                    self._complaints.last or "the broker sent neither records nor the end",
                    "check the brokers; the next run goes on from the committed offset",
                )
            good, end = self._sift(messages, where, span, position)
            if good:
                size = columns.extend(good)
                self._mean_bytes = max(1.0, size / len(good))
                position = good[-1].offset() + 1
            if end is not None:
                position = max(position, end)
            if columns.records and (
                columns.records >= BATCH_RECORDS
                or columns.bytes >= BATCH_BYTES
                or position >= span.end_offset
                or not messages
            ):
                yield columns.take()

    def _consume(self, where: Where, left: int) -> list[Any]:
        """Ask for records: not more than are left, for the client waits until it has them."""
        wanted = min(FETCH_RECORDS, left, max(1, int(FETCH_BYTES / self._mean_bytes)))
        messages: list[Any] = calls(
            f"reading {where}", self._complaints, lambda: self._consumer.consume(wanted, _POLL_S)
        )
        return messages

    def _sift(
        self, messages: list[Any], where: Where, span: Span, position: int
    ) -> tuple[list[Any], int | None]:
        """Part records from events, and drop what lies outside *span*."""
        end: int | None = None
        if any(map(_ERROR, messages)):
            for message in messages:
                if message.error() is not None:
                    end = self._event(message, where, span, position)
            messages = [message for message in messages if message.error() is None]
        if messages and messages[-1].offset() >= span.end_offset:
            end = span.end_offset
            messages = [message for message in messages if message.offset() < span.end_offset]
        return messages, end

    def _event(self, message: Any, where: Where, span: Span, position: int) -> int | None:
        """Return the position an event stands for; raise what it means otherwise."""
        error = message.error()
        code = error.code()
        if code == _PARTITION_EOF:
            end = message.offset()
            if end < span.end_offset and end < self._log_end(where):
                return None  # the broker's view moved on since; more comes
            if end < span.end_offset:
                raise TopicChangedError(
                    f"{where} ends at offset {end}, before the end offset {span.end_offset} "
                    "seen at the start",
                    "the log was cut back, or the topic was recreated",
                    "look at the topic before running again",
                )
            return int(end)
        if code in (_NO_RESET, Code.OFFSET_OUT_OF_RANGE):
            raise LogStartMovedError(
                f"{where} no longer has the next offset, {position} or later",
                "older records have expired",
            )
        if error.retriable():
            _log.warning("reading %s: %s", where, error.str())
            return None
        raise kafka_error(f"reading {where}", KafkaException(error), self._complaints)

    def _log_end(self, where: Where) -> int:
        asked = TopicPartition(where.topic, where.partition)
        found = calls(
            f"reading the end offset of {where}",
            self._complaints,
            lambda: self._consumer.get_watermark_offsets(asked, self._settings.timeout_s),
        )
        if found is None:  # how the client says that time was up
            raise KafkaError(f"{where}: its end offset", "no answer", "check the brokers")
        return int(found[1])


# Methods of the client's message, looked up once: they are called for every record.
_ERROR: Final[Any] = Message.error
_OFFSET: Final[Any] = Message.offset
_TIMESTAMP: Final[Any] = Message.timestamp
_KEY: Final[Any] = Message.key
_VALUE: Final[Any] = Message.value
_HEADERS: Final[Any] = Message.headers

_HEADERS_TYPE: Final = SCHEMA.field("headers").type

_PARTITION_EOF: Final = Code._PARTITION_EOF  # noqa: SLF001  (how the client spells it)
_NO_RESET: Final = Code._AUTO_OFFSET_RESET  # noqa: SLF001


class _Columns:
    """Grows the columns of one batch.

    Per record this calls five methods of the client's message, from C through ``map``: 0.45 us a
    record of 100 B on one core, less than the client itself takes.  The client has no columns.
    """

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self._offsets: list[int] = []
        self._timestamps: list[tuple[int, int]] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[list[tuple[str, bytes | None]] | None] = []

    def extend(self, messages: list[Any]) -> int:
        """Add records; return the bytes of their keys and values."""
        keys = list(map(_KEY, messages))
        values = list(map(_VALUE, messages))
        self._offsets += map(_OFFSET, messages)
        self._timestamps += map(_TIMESTAMP, messages)
        self._headers += map(_HEADERS, messages)
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
