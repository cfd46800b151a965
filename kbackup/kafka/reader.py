"""Kafka records to record batches: one partition at a time, from one offset to another."""

import logging
import math
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kbackup.errors import KafkaError, TopicChangedError
from kbackup.kafka import KafkaSettings, LogStartMovedError
from kbackup.kafka.client import Complaints, calls, kafka_error
from kbackup.kafka.native import choose
from kbackup.kafka.positions import patience_s
from kbackup.kafka.reader_source import ColumnSource, Event, ObjectSource, RecordSource
from kbackup.records import Span, TopicPartition

_log = logging.getLogger(__name__)

QUEUE_KIB: Final = 32 * 1024
"""What the client fetches ahead.  With one batch it bounds a reader's memory."""

CAUGHT_UP_S: Final = 10.0
"""How long a log may be said to end before what is known to be in it.  A follower that has just
become the leader knows records before it knows that they are acknowledged."""


class Reader:
    """A consumer that is no member of its group, for it is told what to read.

    What it does with what comes is here; how that comes is a `Source`'s matter, by columns in C
    or by objects in Python, as `KafkaSettings.client` says.

    Memory: `QUEUE_KIB` fetched ahead, plus one batch of `BATCH_BYTES` and the calls that fill it,
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
        self._source: RecordSource = (
            ColumnSource(properties) if is_native else ObjectSource(properties)
        )
        self._patience_s = patience_s(settings, settings.consumer)
        self._met: set[str] = set()

    def close(self) -> None:
        """Leave the cluster."""
        self._source.close()

    def read(self, where: TopicPartition, span: Span) -> Generator[pa.RecordBatch, None, None]:
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
        what = f"reading {where}"
        calls(what, self._complaints, lambda: self._source.begin(where, span))
        try:
            yield from self._batches(where, span)
        finally:
            self._source.end()

    def _meet(self, topic: str) -> None:
        """Learn which brokers lead *topic* before it is assigned.

        The client by itself would start to fetch a topic that is new to it only when a timer of
        1 s comes around: 0.01 s instead of 0.9 s until the first record.
        """
        if topic in self._met:
            return
        try:
            self._source.consumer.list_topics(topic, self._settings.timeout_s)
        except KafkaException as error:  # reading waits longer, and says what is wrong
            _log.debug("looking up %s: %s", topic, error)
        else:
            self._met.add(topic)

    def _batches(self, where: TopicPartition, span: Span) -> Iterator[pa.RecordBatch]:
        position, short = span.start_offset, _Short()
        heard = time.monotonic()
        while position < span.end_offset:
            taken = calls(f"reading {where}", self._complaints, self._source.take)
            position = max(position, taken.position)
            if taken.batch is not None:
                short = _Short()
                yield taken.batch
            if taken.event is not None:
                end = self._event(taken.event, where, span, position, short)
                position = position if end is None else max(position, end)
            if taken.batch is not None or taken.event is not None:
                heard = time.monotonic()
            elif short.is_over:
                raise _cut_back(where, short.end, span)
            elif time.monotonic() - heard > self._patience_s:
                raise KafkaError(
                    f"{where} offset {position}: no answer for {time.monotonic() - heard:.0f} s",
                    self._complaints.last or "the broker sent neither records nor the end",
                    "check the brokers, or raise --kafka-timeout; the next run continues from "
                    "the committed offset",
                )

    def _event(
        self, event: Event, where: TopicPartition, span: Span, position: int, short: "_Short"
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
            raise LogStartMovedError(
                f"{where} no longer has the next offset, {position} or later",
                "older records have expired",
            )
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
class _Short:
    """A log that is said to end before a span does: a new leader may not know its end at once.

    Attributes:
        end: TopicPartition it was said to end last.
    """

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


def _cut_back(where: TopicPartition, end: int, span: Span) -> TopicChangedError:
    return TopicChangedError(
        f"{where} ends at offset {end}, before the end offset {span.end_offset} seen at the start",
        "the log was cut back, or the topic was recreated",
        "look at the topic before running again",
    )


_PARTITION_EOF: Final = Code._PARTITION_EOF  # noqa: SLF001  (how the client spells it)
_NO_RESET: Final = Code._AUTO_OFFSET_RESET  # noqa: SLF001
