"""Fetch record batches of one partition at a time, byte for byte as its leader sends them.

`BatchReader` promises what `kbackup.kafka.reader.KafkaReader` does, and has no client library
under it: that one gives out records only, and costs five times the processor time.  It reads what
is committed, up to the last stable offset, checks CRC32C, and leaves out control batches, empty
ones, and those of aborted transactions.  With ``client.rack`` it reads where the leader says that
a replica is nearer.

Source: Kafka's protocol guide; KIP-219, KIP-320, KIP-392, KIP-516.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from kbackup.batches import BatchError, Batches, walk
from kbackup.batches.decoding import EVERYTHING, decoded
from kbackup.batches.encoding import cut_from
from kbackup.batches.plain import Why
from kbackup.errors import ConfigurationError, KafkaError
from kbackup.kafka import KafkaSettings, Reader
from kbackup.kafka.brokers import (
    HAS_IDS,
    MOVED,
    NO_EPOCH,
    Brokers,
    Fetched,
    Leader,
    committed,
    end_of_epoch,
    refused,
)
from kbackup.kafka.client import kafka_error
from kbackup.kafka.reader import SILENCE, Short, cut_back, expired, not_utf8, silent
from kbackup.kafka.wire import Api, BrokerConnection, LostError, NoAccessError
from kbackup.records import Span, TopicPartition

_log: Final = logging.getLogger(__name__)

FETCH_BYTES: Final = 8 * 2**20
"""An answer has no more, unless its first batch alone is larger, or the operator asks for it."""

_WAIT_MS: Final = 500
"""How long a broker may wait for records where it has none."""

_PAUSES_S: Final = (0.05, 1.0)
"""How long to wait before asking again: at first, and at most."""

_LEADER_S: Final = 60.0
"""How long to keep to the leader once a nearer replica has failed, or lags behind."""

_COMMITTED_ONLY: Final = 1


class BatchReader:
    """Reads partitions one after the other, over one connection to each leader.

    Memory: `FETCH_BYTES` in hand, as much again on its way, and what the system holds.

    *by_records* opens the reader of message formats before version 2; None refuses these.

    Raises:
        KafkaError: If a certificate or key cannot be used.
    """

    def __init__(
        self, settings: KafkaSettings, by_records: Callable[[], Reader] | None = None
    ) -> None:
        operators = settings.consumer
        self._by_records = by_records
        self._other: Reader | None = None
        apis = (Api.FETCH, Api.OFFSET_FOR_LEADER_EPOCH)
        self.brokers = Brokers(settings, operators, "reading", *apis)
        self.rack = operators.get("client.rack", "")
        self.fetch_bytes = int(operators.get("fetch.message.max.bytes", FETCH_BYTES))
        self._turn = threading.Lock()  # held while a thread is on the network

    def close(self) -> None:
        """Leave the cluster; a thread that reads meanwhile gets a `KafkaError`."""
        self.brokers.interrupt()
        if self._other is not None:
            self._other.close()
        with self._turn:
            self.brokers.close()

    def batches(self, where: TopicPartition, span: Span) -> Generator[Batches, None, None]:
        """Read batches: `kbackup.kafka.ReadsBatches.batches`."""
        following = span.start_offset
        for some in self._committed(_SpanReading(self, where, span)):
            start, following = following, some.next_offset
            if some.first_offset >= start:
                yield some
                continue
            try:
                begun = cut_from(some.slice(0, 1), start)
            except BatchError as error:
                raise _unreadable(where, error) from None
            for each in (begun, some.slice(1)):
                if len(each):
                    yield each

    def read(self, where: TopicPartition, span: Span) -> Generator[pa.RecordBatch, None, None]:
        """Read the records of *span*: `kbackup.kafka.Reader.read`."""
        work, following = _SpanReading(self, where, span), span.start_offset
        try:
            for some in self._committed(work):
                start, following = following, some.next_offset
                yield from rows_of(where, some, Span(start, span.end_offset))
        except _OldFormatError:
            if self._by_records is None:
                raise
            self._other = self._other or self._by_records()
            yield from self._other.read(where, Span(work.position, span.end_offset))

    def _committed(self, work: "_SpanReading") -> Generator[Batches, None, None]:
        try:
            while work.position < work.span.end_offset:
                with self._turn:
                    some = work.take()
                if some is not None and len(some):
                    yield some
                    work.heard = time.monotonic()  # the broker is not to blame for what that took
        finally:
            with self._turn:
                work.end()


class _OldFormatError(ConfigurationError):
    """A message format before version 2, which is not that of batches."""


@dataclass(slots=True)
class _SpanReading:
    """The reading of one span: one request is on its way while the last answer is worked on."""

    reader: BatchReader
    where: TopicPartition
    span: Span
    position: int = field(init=False)  # the next offset to be asked for
    heard: float = field(default_factory=time.monotonic)  # since when nothing has come
    _leader: Leader | None = None
    _asked: BrokerConnection | None = None
    _nearer: tuple[str, int] | None = None
    _leader_until: float = 0.0
    _read_epoch: int = NO_EPOCH
    _checked_epoch: int = NO_EPOCH
    _short: Short = field(default_factory=Short)
    _failures: int = 0
    _not_before: float = 0.0
    _why: str = SILENCE

    def __post_init__(self) -> None:
        self.position = self.span.start_offset

    def take(self) -> Batches | None:
        """Return what the next answer has that is committed; None where it is to be asked again."""
        try:
            fetched = self._exchange()
        except LostError as error:
            self._lose()
            self._again(str(error))
            return None
        except NoAccessError as error:
            raise refused(f"reading {self.where}", error) from None
        if fetched.throttle_s:
            _log.info("reading %s: throttled for %.3f s", self.where, fetched.throttle_s)
            self._not_before = time.monotonic() + fetched.throttle_s
            self._why = "a quota of the broker's holds this client back"
        is_astray = self._nearer is not None and fetched.error == Code.OFFSET_OUT_OF_RANGE
        if fetched.error in MOVED or is_astray:  # a replica may lack what its leader has
            self._lose()
            self._again(Code(fetched.error).str())
            return None
        self._check(fetched)
        if fetched.nearer is not None and self._nearer is None:
            self._nearer = self.reader.brokers.address(self.where.topic, fetched.nearer)
            if self._nearer is None:
                self._keep_to_leader()
            return None
        some = self._walked(fetched)
        if some is None:
            self._wait(fetched)
            return None
        self.heard, self._failures, self._short = time.monotonic(), 0, Short()
        if self.position < self.span.end_offset and not fetched.throttle_s:
            try:
                self._ask()
            except (LostError, NoAccessError):
                self._lose()  # the next exchange says why
        return some

    def end(self) -> None:
        """Give up what was asked for and not answered."""
        if self._leader is not None and self._asked is not None:
            self.reader.brokers.drop(*self._place(self._leader))
        self._leader, self._asked = None, None

    def _lose(self) -> None:
        """Give up what was asked for, and whom it was asked of."""
        self.end()
        if self._nearer is not None:
            self._keep_to_leader()
        self.reader.brokers.forget(self.where.topic)

    def _keep_to_leader(self) -> None:
        self._nearer, self._leader_until = None, time.monotonic() + _LEADER_S

    def _place(self, leader: Leader) -> tuple[str, int]:
        return self._nearer or (leader.host, leader.port)

    def _exchange(self) -> Fetched:
        asked = self._asked
        if asked is None:
            self.reader.brokers.pause(max(0.0, self._not_before - time.monotonic()))
            asked = self._ask()
        answer = asked.receive(Api.FETCH)
        self._asked = None
        return Fetched.of(answer, asked.versions[Api.FETCH])

    def _ask(self) -> BrokerConnection:
        if self._leader is None:
            self._leader = self.reader.brokers.leader(self.where)
        leader = self._leader
        connection = self.reader.brokers.connection(*self._place(leader))
        has_ids = connection.versions[Api.FETCH] >= HAS_IDS[Api.FETCH]
        body, most = connection.request(Api.FETCH), self.reader.fetch_bytes
        body.numbers("iiiibii", -1, _WAIT_MS, 1, most, _COMMITTED_ONLY, 0, -1).count(1)
        if has_ids:
            body.raw(leader.topic_id)
        else:
            body.text(self.where.topic)
        body.count(1).numbers("iiq", self.where.partition, leader.epoch, self.position)
        read_epoch = self._read_epoch if self._checked_epoch != leader.epoch else NO_EPOCH
        if has_ids:  # whether a new leader has what was read, is asked once
            body.numbers("i", read_epoch)
        elif read_epoch != NO_EPOCH and Api.OFFSET_FOR_LEADER_EPOCH in connection.versions:
            self._compare(connection, leader)
        rack = self.reader.rack if time.monotonic() >= self._leader_until else ""
        body.numbers("qi", -1, most).end().end().count(0).text(rack).end()
        self._asked = connection
        connection.send(Api.FETCH, body)
        return connection

    def _compare(self, connection: BrokerConnection, leader: Leader) -> None:
        """Check that a new leader has what was read."""
        error, end = end_of_epoch(connection, self.where, leader, self._read_epoch)
        if error:
            raise LostError(Code(error).str())
        if 0 <= end < self.position:
            raise cut_back(self.where, end, self.span)

    def _check(self, fetched: Fetched) -> None:
        if fetched.error == Code.OFFSET_OUT_OF_RANGE:
            raise expired(self.where, self.position)
        if fetched.error:
            raise kafka_error(f"reading {self.where}", KafkaException(Code(fetched.error)))
        if fetched.diverged is not None and fetched.diverged < self.position:
            raise cut_back(self.where, fetched.diverged, self.span)
        if self._leader is not None:
            self._checked_epoch = self._leader.epoch

    def _walked(self, fetched: Fetched) -> Batches | None:
        """Return what is committed of the batches, and move on; None where there is no batch."""
        found = walk(fetched.data)
        if found.why is Why.OLD_MAGIC:
            raise _OldFormatError(
                f"{self.where} offset {found.offset}: these records cannot be copied by batches",
                "their message format is older than version 2",
                "leave out format.class: full records are stored as Parquet then",
                **self.where.place,
            )
        try:
            batches = found.check(may_be_cut=len(found.batches) > 0)
            if not len(batches) or batches.next_offset <= self.position:
                return None
            kept = committed(batches, fetched.aborted)
        except BatchError as error:
            raise _unreadable(self.where, error) from None
        base, delta = kept.headers["base_offset"], kept.headers["last_delta"]
        begins_before_end = pc.less(base, self.span.end_offset)
        ends_behind = pc.greater_equal(pc.add(base, delta), self.position)
        wanted = pc.and_(begins_before_end, ends_behind)
        if not pc.all(wanted).as_py():
            kept = kept.where(wanted)
        self.position = max(self.position, batches.next_offset)
        self._read_epoch = batches.headers["leader_epoch"][-1].as_py()
        self._why = SILENCE
        return kept

    def _wait(self, fetched: Fetched) -> None:
        """Go on waiting for what is known to be in the log."""
        if self._nearer is not None:  # which may not have it yet
            self._keep_to_leader()
            return
        if fetched.stable > self.position:  # as of tiered storage that is still looked up
            self._again(self._why)
            return
        self._short.note(fetched.stable)
        self.heard = time.monotonic()
        if self._short.is_over:
            raise cut_back(self.where, self._short.end, self.span)
        self.reader.brokers.pause(_PAUSES_S[0])

    def _again(self, why: str) -> None:
        """Wait a little before asking again, but no longer than `Brokers.patience_s`."""
        if time.monotonic() - self.heard > self.reader.brokers.patience_s:
            raise silent(self.where, self.position, self.heard, why)
        self._why = why
        _log.debug("reading %s: %s", self.where, why)
        least, most = _PAUSES_S
        pause_s = min(most, least * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        self.reader.brokers.pause(pause_s * random.uniform(0.8, 1.2))  # noqa: S311


def rows_of(
    where: TopicPartition, batches: Batches, span: Span = EVERYTHING
) -> Iterator[pa.RecordBatch]:
    """Yield the records of batches that were read, as far as they are in *span*.

    Raises:
        BadRecordError: If the name of a header is not UTF-8.
        KafkaError: If a batch does not hold what its header says.
    """
    try:
        yield from decoded(batches, span)
    except BatchError as error:
        raise _unreadable(where, error) from None


def _unreadable(where: TopicPartition, error: BatchError) -> Exception:
    if error.is_name and error.offset is not None:
        return not_utf8(where, error.offset)
    return KafkaError(f"reading {where}", str(error), "look at the topic and its brokers' disks")
