"""Read Kafka records as rows: one partition at a time, from one offset to another.

`KafkaReader` says what is read and when it is over.  Rows come out of one of two sources, each
a consumer that reads one span after the other: `ColumnSource` takes columns from the C library,
`ObjectSource` makes them of the client's messages in Python.  They differ in speed only; the tests
run both.
"""

import gc
import logging
import math
import time
from collections.abc import Generator, Iterator, Mapping
from ctypes import addressof, byref, c_char_p, c_void_p, py_object, pythonapi
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import KafkaError as Code
from confluent_kafka import TopicPartition as ClientPartition

from kbackup.errors import BadRecordError, KafkaError, TopicChangedError
from kbackup.kafka import KafkaSettings, LogStartMovedError, native
from kbackup.kafka.client import CLIENT_LOG, Complaints, calls, kafka_error, patience_s
from kbackup.kafka.native import ArrowArray, Drained, NativeClient, choose
from kbackup.records import SCHEMA, Span, TopicPartition

ROWS_BYTES: Final = 4 * 2**20
"""Rows are passed on when their keys and values have this many bytes.

Larger ones leave the processor's caches before they are written: at 16 MiB, records of 1 KB cost
0.8 us more each.
"""

POLL_S: Final = 0.2
"""How long a source waits for records, at least one of which comes sooner as a rule."""


@dataclass(frozen=True, slots=True)
class Event:
    """The client's ``KafkaError``, the end of the partition too, and where; negative if unknown."""

    error: Any
    offset: int


@dataclass(frozen=True, slots=True)
class Polled:
    """What one call brought.

    Attributes:
        batch: ``records.SCHEMA``, at least one row, offsets rising and within the span; None
            where no records came.
        position: The next offset to be read, the span's end where that was reached.
        event: What came after the records of *batch*.
    """

    batch: pa.RecordBatch | None
    position: int
    event: Event | None


def not_utf8(where: TopicPartition, offset: int) -> BadRecordError:
    """Return the error of a record whose header's name is not UTF-8, as Kafka wants it."""
    return BadRecordError(
        f"{where} offset {offset}",
        "the name of a header is not UTF-8",
        "fix the producer, or let the sink leave such records out: errors.tolerance=all",
        **where.place,
        offset=offset,
    )


ROWS_MOST: Final = 16_384
"""Rows are passed on when there are this many: those of a row group."""

_POLL_MS: Final = int(POLL_S * 1000)

_new_capsule: Final = pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = py_object, (c_void_p, c_char_p, c_void_p)


class ColumnSource:
    """Drains one partition's queue into Arrow buffers.

    The lock is held while the library is inside, so that `close` waits for another thread.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._native = NativeClient(Consumer, properties, is_producer=False, logger=CLIENT_LOG)
        self.consumer = self._native.client
        self._lock = Lock()
        self._reader: int | None = None
        self._where: TopicPartition | None = None
        self._drained, self._array = Drained(), ArrowArray()

    def begin(self, where: TopicPartition, span: Span) -> None:
        """Assign a partition, once its queue was taken; what was begun before is ended."""
        self.end()
        with self._lock:
            reader = self._native.functions.reader_new(
                self._native.handle, where.topic.encode(), where.partition, span.start_offset,
                span.end_offset, ROWS_MOST, ROWS_BYTES,
            )  # fmt: skip
            if reader is None:
                raise KafkaError(
                    f"reading {where}", "the client does not give out the partition's queue"
                )
            self._reader, self._where = reader, where
            self.consumer.assign([ClientPartition(where.topic, where.partition, span.start_offset)])

    def take(self) -> Polled:
        """Return what comes next, at most a batch; with neither batch nor event after `POLL_S`.

        Raises:
            KafkaException: If the client fails.
            KafkaError: If the source was closed.
            BadRecordError: If a header's name is not UTF-8; all records before it were returned.
        """
        drained = self._drained
        with self._lock:
            if self._reader is None:
                raise closed()
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
        return Polled(batch, drained.position, event)

    def end(self) -> None:
        """Read no more of the span; may be repeated."""
        with self._lock:
            self._free()

    def _free(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            self.consumer.unassign()  # or what is still fetched would be drained for ever
            self._native.functions.reader_free(reader)

    def close(self) -> None:
        """Leave the cluster; a thread that reads meanwhile gets a `KafkaError`."""
        self._native.leave()
        with self._lock:
            self._free()
            if self._native.is_open:
                self.consumer.close()
                self._native.let_go()

    def _fail(self, drained: Drained) -> None:
        match drained.failure:
            case native.BAD_HEADER_NAME if self._where is not None:
                raise not_utf8(self._where, drained.event_offset)
            case native.CLOSED:
                raise closed()
        raise MemoryError

    def _imported(self) -> pa.RecordBatch:
        try:
            return pa.record_batch(_Exported(self._array))
        finally:
            self._native.functions.array_release(self._array)  # where nobody took it


def closed() -> KafkaError:
    """Return the error of whoever reads with a reader that another thread has closed."""
    return KafkaError("reading", "the reader was closed")


class _Exported:
    """A batch in the library, as Arrow's PyCapsule interface offers it; moved when imported."""

    def __init__(self, array: ArrowArray) -> None:
        self._array = array

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return SCHEMA.__arrow_c_schema__(), _new_capsule(
            addressof(self._array), b"arrow_array", None
        )


CALL_RECORDS: Final = 500
"""Records asked of the client at once.  More only delays; see `ObjectSource._consume`."""

CALL_BYTES: Final = 16 * 2**20
"""Bytes one call to the client should bring at most, judging by the records seen so far."""

OBJECT_ROWS_MOST: Final = 8_000
"""Rows are passed on when there are this many."""


_NO_TEXT: Final = (UnicodeDecodeError, SystemError)
"""What the client raises of a header's name that is not UTF-8: at times in Python's words."""


class ObjectSource:
    """Makes columns of messages, as `ColumnSource` has them."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.consumer = Consumer(properties, logger=CLIENT_LOG)
        self._where: TopicPartition | None = None
        self._position = self._end = 0
        self._columns = _Columns()
        self._pending: list[Any] = []
        self._broken_offset: int | None = None
        self._mean_bytes = 1024.0

    def begin(self, where: TopicPartition, span: Span) -> None:
        """Assign a partition, and collect no garbage until `end`."""
        self.end()
        self._columns, self._pending, self._broken_offset = _Columns(), [], None
        self._position, self._end = span.start_offset, span.end_offset
        self.consumer.assign([ClientPartition(where.topic, where.partition, span.start_offset)])
        self._where = where
        gc.disable()  # tens of thousands of live messages make each collection expensive

    def take(self) -> Polled:
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
                return Polled(batch, self._position, event)

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
        wanted = min(CALL_RECORDS, left, max(1, int(CALL_BYTES / self._mean_bytes)))
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
    """Grows the columns of one batch: 0.45 us a record of 100 B, less than the client's own."""

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
        return self.records >= OBJECT_ROWS_MOST or self.bytes >= ROWS_BYTES

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


_log = logging.getLogger(__name__)

QUEUE_KIB: Final = 32 * 1024
"""What the client fetches ahead.  With one batch it bounds a reader's memory."""

CAUGHT_UP_S: Final = 10.0
"""How long a log may be said to end before what is known to be in it.  A follower that has just
become the leader knows records before it knows that they are acknowledged."""


class KafkaReader:
    """A consumer that is no member of its group, for it is told what to read.

    What it does with what comes is here; how that comes is the source's matter, by columns
    in C or by objects in Python, as `KafkaSettings.client` says.

    Memory: `QUEUE_KIB` fetched ahead, plus rows of `ROWS_BYTES` and the calls that bring them,
    about 52 MiB whatever the number of partitions, as long as records are small against that.
    """

    def __init__(self, settings: KafkaSettings, group: str) -> None:
        self._settings = settings
        self._complaints = Complaints()
        ours = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "isolation.level": "read_committed",
            # The default of 1,000 ms makes a reader that outran its queue wait that long.
            "fetch.queue.backoff.ms": 10,
            # A span ends at the log's end: nothing comes by waiting.  The first fetch of the next
            # partition waits for the last one of this: 2 ms until its records, 12 with 10 here.
            "fetch.wait.max.ms": 1,
            "queued.min.messages": 100_000,
            "queued.max.messages.kbytes": QUEUE_KIB,
            "fetch.message.max.bytes": 8 * 2**20,
            "error_cb": self._complaints,
        }
        properties = settings.properties(ours, settings.consumer)
        is_native = choose(settings.client).is_native
        self._source = ColumnSource(properties) if is_native else ObjectSource(properties)
        self._patience_s = patience_s(settings, settings.consumer)
        self._met: set[str] = set()

    def close(self) -> None:
        """Leave the cluster."""
        self._source.close()

    def read(self, where: TopicPartition, span: Span) -> Generator[pa.RecordBatch, None, None]:
        """Read the records of *span*: `Reader.read`."""
        self._meet(where.topic)
        what = f"reading {where}"
        calls(what, self._complaints, lambda: self._source.begin(where, span))
        try:
            yield from self._batches(where, span)
        finally:
            self._source.end()

    def _meet(self, topic: str) -> None:
        """Learn which brokers lead *topic* before it is assigned."""
        # the client by itself would begin only when a timer of 1 s comes around
        if topic in self._met:
            return
        try:
            self._source.consumer.list_topics(topic, self._settings.timeout_s)
        except KafkaException as error:  # reading waits longer, and says what is wrong
            _log.debug("looking up %s: %s", topic, error)
        else:
            self._met.add(topic)

    def _batches(self, where: TopicPartition, span: Span) -> Iterator[pa.RecordBatch]:
        position, short = span.start_offset, Short()
        heard = time.monotonic()
        while position < span.end_offset:
            taken = calls(f"reading {where}", self._complaints, self._source.take)
            position = max(position, taken.position)
            if taken.batch is not None:
                short = Short()
                yield taken.batch
            if taken.event is not None:
                end = self._event(taken.event, where, span, position, short)
                position = position if end is None else max(position, end)
            if taken.batch is not None or taken.event is not None:
                heard = time.monotonic()
            elif short.is_over:
                raise cut_back(where, short.end, span)
            elif time.monotonic() - heard > self._patience_s:
                raise silent(where, position, heard, self._complaints.last or SILENCE)

    def _event(
        self, event: Event, where: TopicPartition, span: Span, position: int, short: "Short"
    ) -> int | None:
        """Return the position an event stands for; raise what it means otherwise."""
        error = event.error
        code = error.code()
        if code == _PARTITION_EOF:
            end = event.offset
            if end < span.end_offset and end < self._log_end(where):
                return None  # the broker's view moved on since; more comes
            if end < span.end_offset:
                short.note(end)
                return None
            return end
        if code in (_NO_RESET, Code.OFFSET_OUT_OF_RANGE):
            raise expired(where, position)
        if error.retriable():
            _log.warning("reading %s: %s", where, error.str())
            return None
        raise kafka_error(f"reading {where}", KafkaException(error), self._complaints)

    def _log_end(self, where: TopicPartition) -> int:
        asked = ClientPartition(where.topic, where.partition)
        found = calls(
            f"reading the end offset of {where}",
            self._complaints,
            lambda: self._source.consumer.get_watermark_offsets(asked, self._settings.timeout_s),
        )
        if found is None:  # how the client says that time was up
            raise KafkaError(f"{where}: its end offset", "no answer", "check the brokers")
        return int(found[1])


@dataclass(slots=True)
class Short:
    """A log that is said to end before a span does: a new leader may not know its end at once."""

    end: int = 0
    _until: float = math.inf

    def note(self, end: int) -> None:
        """Take in that it was said to end there, with nothing more to come."""
        if end != self.end or math.isinf(self._until):
            self._until = time.monotonic() + CAUGHT_UP_S
        self.end = end

    @property
    def is_over(self) -> bool:
        """Whether it has been so for too long."""
        return time.monotonic() > self._until


SILENCE: Final = "the broker sent neither records nor the end"


def silent(where: TopicPartition, position: int, heard: float, why: str) -> KafkaError:
    """Return the error of a broker that has sent nothing since *heard*, by the monotonic clock."""
    return KafkaError(
        f"{where} offset {position}: no answer for {time.monotonic() - heard:.0f} s",
        why,
        "check the brokers, or raise --kafka-timeout; the next run continues from the committed "
        "offset",
    )


def expired(where: TopicPartition, position: int) -> LogStartMovedError:
    """Return the error of a log that begins behind the next offset to read."""
    what = f"{where} no longer has the next offset, {position} or later"
    return LogStartMovedError(what, "older records have expired")


def cut_back(where: TopicPartition, end: int, span: Span) -> TopicChangedError:
    """Return the error of a log that ends before a span does."""
    return TopicChangedError(
        f"{where} ends at offset {end}, before the end offset {span.end_offset} seen at the start",
        "the log was cut back, or the topic was recreated",
        "check the topic before running again",
    )


_PARTITION_EOF: Final = Code._PARTITION_EOF  # noqa: SLF001  (how the client spells it)
_NO_RESET: Final = Code._AUTO_OFFSET_RESET  # noqa: SLF001
