"""Record batches of one partition at a time, byte for byte as its leader sends them.

`BatchReader` promises what `kbackup.kafka.reader.KafkaReader` does, and has no client library
under it: that one gives out records only.  It reads what is committed, up to the last stable
offset, checks CRC32C, and leaves out control batches, empty ones, and those of aborted
transactions.  It asks the leader, not a replica that is nearer (``client.rack``).

Source: Kafka's protocol guide; KIP-219, KIP-320, KIP-516.
"""

import logging
import random
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from kbackup.batches import BatchError, Batches, walk
from kbackup.batches.decoding import decoded
from kbackup.batches.encoding import cut_from
from kbackup.batches.plain import Why
from kbackup.errors import ConfigurationError, KafkaError, TopicChangedError
from kbackup.kafka import KafkaSettings, LogStartMovedError
from kbackup.kafka.answers import HAS_IDS, NO_EPOCH, Fetched, Leader, Metadata, committed
from kbackup.kafka.client import kafka_error, patience_s
from kbackup.kafka.reader import Short, closed, cut_back, not_utf8
from kbackup.kafka.wire import Api, Connection, LostError, RefusedError, Security
from kbackup.records import Span, TopicPartition

_log: Final = logging.getLogger(__name__)

FETCH_BYTES: Final = 8 * 2**20
"""An answer has no more, unless its first batch alone is larger, or the operator asks for it."""

_WAIT_MS: Final = 500
"""How long a broker may wait for records where it has none."""

_TIMEOUT_S: Final = 10.0
"""How long a broker may say nothing at all, at least."""

_PAUSES_S: Final = (0.05, 1.0)
"""How long to wait before asking again: at first, and at most."""

_COMMITTED_ONLY: Final = 1

_MOVED: Final = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PART,  # as long as a new topic is not known everywhere
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_FOR_PARTITION,
        Code.REQUEST_TIMED_OUT,
        Code.BROKER_NOT_AVAILABLE,
        Code.REPLICA_NOT_AVAILABLE,
        Code.NETWORK_EXCEPTION,
        Code.KAFKA_STORAGE_ERROR,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.OFFSET_NOT_AVAILABLE,
        Code.UNKNOWN_TOPIC_ID,
        Code.INCONSISTENT_TOPIC_ID,
    }
)
"""What a broker says when another one may know better, or itself a moment later."""


class BatchReader:
    """Reads partitions one after the other, over one connection to each leader.

    Memory: `FETCH_BYTES` in hand, as much again on its way, and what the system holds.

    Raises:
        KafkaError: If a certificate or key cannot be used.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        operators = settings.consumer
        try:
            self._security = Security.of(operators)
        except RefusedError as error:
            raise _refused("connecting to Kafka", error) from None
        self._servers = [_address(each) for each in settings.bootstrap_servers.split(",")]
        self.patience_s = patience_s(settings, operators)
        self.fetch_bytes = int(operators.get("fetch.message.max.bytes", FETCH_BYTES))
        self._timeout_s = max(settings.timeout_s, _TIMEOUT_S)
        self._connections: dict[tuple[str, int], Connection] = {}
        self._ids: dict[str, bytes] = {}
        self._turn = threading.Lock()  # held while a thread is on the network
        self._is_closed = threading.Event()

    def close(self) -> None:
        """Leave the cluster; a thread that reads meanwhile gets a `KafkaError`."""
        self._is_closed.set()
        for connection in list(self._connections.values()):
            connection.interrupt()
        with self._turn:
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()

    def batches(self, where: TopicPartition, span: Span) -> Generator[Batches, None, None]:
        """Read batches: `kbackup.kafka.ReadsBatches.batches`."""
        for some in self._committed(where, span):
            first: int = some.headers["base_offset"][0].as_py()
            if first >= span.start_offset:
                yield some
                continue
            try:
                begun = cut_from(some.slice(0, 1), span.start_offset)
            except BatchError as error:
                raise _unreadable(where, error) from None
            for each in (begun, some.slice(1)):
                if len(each):
                    yield each

    def read(self, where: TopicPartition, span: Span) -> Generator[pa.RecordBatch, None, None]:
        """Read the records of *span*: `kbackup.kafka.Reader.read`."""
        for some in self._committed(where, span):
            try:
                yield from decoded(some, span)
            except BatchError as error:
                raise _unreadable(where, error) from None

    def _committed(self, where: TopicPartition, span: Span) -> Generator[Batches, None, None]:
        work = _Reading(self, where, span)
        try:
            while work.position < span.end_offset:
                with self._turn:
                    some = work.take()
                if some is not None and len(some):
                    yield some
                    work.heard = time.monotonic()  # the broker is not to blame for what that took
        finally:
            with self._turn:
                work.end()

    def connection(self, host: str, port: int) -> Connection:
        """Return the connection to a broker, a new one where there is none or it has to be.

        Raises:
            LostError: If there is none to be had.
            RefusedError: Likewise, for good.
        """
        found = self._connections.get((host, port))
        if found is not None and found.is_over:
            self.drop(host, port)
            found = None
        if found is None:
            found = Connection(host, port, self._security, self._timeout_s)
            self._connections[host, port] = found
        if self._is_closed.is_set():
            raise closed()
        return found

    def drop(self, host: str, port: int) -> None:
        """Give up the connection to a broker, if there is one."""
        connection = self._connections.pop((host, port), None)
        if connection is not None:
            connection.close()

    def pause(self, seconds: float) -> None:
        """Wait.

        Raises:
            KafkaError: If the reader is closed meanwhile.
        """
        if self._is_closed.wait(seconds):
            raise closed()

    def leader(self, where: TopicPartition) -> Leader:
        """Ask any broker who leads a partition.

        Raises:
            LostError: If none knows.
            RefusedError: If they do not let us in.
            TopicChangedError: If the topic is another one than before.
            KafkaError: If this principal may not know.
        """
        last: LostError | None = None
        for host, port in dict.fromkeys([*self._connections, *self._servers]):
            try:
                found = Metadata.of(self.connection(host, port), where)
                break
            except LostError as error:
                if self._is_closed.is_set():
                    raise closed() from None
                self.drop(host, port)
                last = error
        else:
            assert last is not None  # noqa: S101  (there is always a server)
            raise last
        if found.error in _MOVED:
            raise LostError(Code(found.error).str())
        if found.error:
            raise kafka_error(f"reading {where}", KafkaException(Code(found.error)))
        known = self._ids.setdefault(where.topic, found.leader.topic_id)
        if known != found.leader.topic_id:
            raise TopicChangedError(
                f"{where.topic} is not the topic that was being read",
                "it was deleted and created again meanwhile",
                "look at the topic before running again",
                **where.place,
            )
        return found.leader


@dataclass(slots=True)
class _Reading:
    """The reading of one span: one request is on its way while the last answer is worked on.

    Attributes:
        position: The next offset to be asked for.
        heard: Since when nothing has come that was waited for, by the monotonic clock.
    """

    reader: BatchReader
    where: TopicPartition
    span: Span
    position: int = field(init=False)
    heard: float = field(default_factory=time.monotonic)
    _leader: Leader | None = None
    _asked: Connection | None = None
    _read_epoch: int = NO_EPOCH
    _checked_epoch: int = NO_EPOCH
    _short: Short = field(default_factory=Short)
    _failures: int = 0
    _not_before: float = 0.0
    _why: str = "the broker sent neither records nor the end"

    def __post_init__(self) -> None:
        self.position = self.span.start_offset

    def take(self) -> Batches | None:
        """Return what the next answer has that is committed; None where it is to be asked again.

        Raises:
            KafkaError: And all others of `BatchReader.batches`.
        """
        try:
            fetched = self._exchange()
        except LostError as error:
            self.end()
            self._again(str(error))
            return None
        except RefusedError as error:
            raise _refused(f"reading {self.where}", error) from None
        if fetched.throttle_s:
            _log.info("reading %s: throttled for %.3f s", self.where, fetched.throttle_s)
            self._not_before = time.monotonic() + fetched.throttle_s
        if fetched.error in _MOVED:
            self._leader = None
            self._again(Code(fetched.error).str())
            return None
        self._check(fetched)
        some = self._walked(fetched)
        if some is None:
            self._wait(fetched)
            return None
        self.heard, self._failures, self._short = time.monotonic(), 0, Short()
        if self.position < self.span.end_offset and not fetched.throttle_s:
            try:
                self._ask()
            except (LostError, RefusedError):
                self.end()  # the next exchange says why
        return some

    def end(self) -> None:
        """Give up what was asked for and not answered."""
        if self._leader is not None and self._asked is not None:
            self.reader.drop(self._leader.host, self._leader.port)
        self._leader, self._asked = None, None

    def _exchange(self) -> Fetched:
        asked = self._asked
        if asked is None:
            self.reader.pause(max(0.0, self._not_before - time.monotonic()))
            asked = self._ask()
        answer = asked.receive(Api.FETCH)
        self._asked = None
        return Fetched.of(answer, asked.versions[Api.FETCH])

    def _ask(self) -> Connection:
        if self._leader is None:
            self._leader = self.reader.leader(self.where)
        leader = self._leader
        connection = self.reader.connection(leader.host, leader.port)
        has_ids = connection.versions[Api.FETCH] >= HAS_IDS[Api.FETCH]
        body, most = connection.request(Api.FETCH), self.reader.fetch_bytes
        body.numbers("iiiibii", -1, _WAIT_MS, 1, most, _COMMITTED_ONLY, 0, -1).count(1)
        if has_ids:
            body.raw(leader.topic_id)
        else:
            body.text(self.where.topic)
        body.count(1).numbers("iiq", self.where.partition, leader.epoch, self.position)
        if has_ids:  # whether a new leader has what was read, is asked once
            is_new = self._checked_epoch != leader.epoch
            body.numbers("i", self._read_epoch if is_new else NO_EPOCH)
        body.numbers("qi", -1, most).end().end().count(0).text("").end()
        self._asked = connection
        connection.send(Api.FETCH, body)
        return connection

    def _check(self, fetched: Fetched) -> None:
        if fetched.error == Code.OFFSET_OUT_OF_RANGE:
            raise LogStartMovedError(
                f"{self.where} no longer has the next offset, {self.position} or later",
                "older records have expired",
            )
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
            raise ConfigurationError(
                f"{self.where} offset {found.offset}: these records cannot be copied by batches",
                "they are of a message format before version 2",
                "leave out the format: full records are stored as Parquet then",
                **self.where.place,
            )
        try:
            batches = found.check(may_be_cut=len(found.batches) > 0)
        except BatchError as error:
            raise _unreadable(self.where, error) from None
        if not len(batches):
            return None
        kept = committed(batches, fetched.aborted)
        base, delta = kept.headers["base_offset"], kept.headers["last_delta"]
        begins_before_end = pc.less(base, self.span.end_offset)
        ends_behind = pc.greater_equal(pc.add(base, delta), self.position)
        wanted = pc.and_(begins_before_end, ends_behind)
        if not pc.all(wanted).as_py():
            kept = kept.where(wanted)
        self.position = max(self.position, batches.next_offset)
        self._read_epoch = batches.headers["leader_epoch"][-1].as_py()
        self._why = "the broker sent neither records nor the end"
        return kept

    def _wait(self, fetched: Fetched) -> None:
        """Go on waiting for what is known to be in the log."""
        if fetched.stable > self.position:  # as of tiered storage that is still looked up
            self._again(self._why)
            return
        self._short.note(fetched.stable)
        self.heard = time.monotonic()
        if self._short.is_over:
            raise cut_back(self.where, self._short.end, self.span)
        self.reader.pause(_PAUSES_S[0])

    def _again(self, why: str) -> None:
        """Wait a little before asking again.

        Raises:
            KafkaError: If that was long enough.
        """
        silent_s = time.monotonic() - self.heard
        if silent_s > self.reader.patience_s:
            raise KafkaError(
                f"{self.where} offset {self.position}: no answer for {silent_s:.0f} s",
                why,
                "check the brokers, or raise --kafka-timeout; the next run continues from "
                "the committed offset",
            )
        self._why = why
        _log.debug("reading %s: %s", self.where, why)
        least, most = _PAUSES_S
        pause_s = min(most, least * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        self.reader.pause(pause_s * random.uniform(0.8, 1.2))  # noqa: S311


def _address(server: str) -> tuple[str, int]:
    """Return host and port of ``host:port``, as librdkafka reads it."""
    name = server.strip().rpartition("://")[2]
    host, colon, port = name.rpartition(":")
    if not colon or name.endswith("]"):
        host, port = name, "9092"
    return host.strip("[]"), int(port)


def _refused(what: str, error: RefusedError) -> KafkaError:
    return KafkaError(what, str(error), "check credentials, certificates and security.protocol")


def _unreadable(where: TopicPartition, error: BatchError) -> Exception:
    if error.is_name and error.offset is not None:
        return not_utf8(where, error.offset)
    return KafkaError(f"reading {where}", str(error), "look at the topic and its brokers' disks")
