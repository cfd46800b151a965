"""Record batches to one Kafka partition, in transactions that carry the position."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, TopicPartition

from kbackup.errors import KafkaError, KbackupError
from kbackup.kafka import NO_OTHERS, KafkaSettings, Position
from kbackup.kafka.client import Complaints
from kbackup.kafka.coordinator import patience_s
from kbackup.kafka.deadline import within
from kbackup.kafka.lending import WRITERS
from kbackup.kafka.native.library import choose
from kbackup.kafka.transport import fence
from kbackup.kafka.writer_answers import Answers
from kbackup.kafka.writer_columns import ColumnSender
from kbackup.kafka.writer_errors import FAILURES, meaning, unwrapped
from kbackup.kafka.writer_objects import ObjectSender
from kbackup.kafka.writer_queue import limits
from kbackup.kafka.writer_sender import Refusal, Sender, without_zero_timestamps
from kbackup.records import TopicPartition as Where

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

_TRANSACTION_MS: Final = 300_000

_COMMIT_S: Final = 60.0
"""What the client is given for each half of a commit."""
_OVERDUE_S: Final = 5.0
"""By how much it may overrun that before it is taken to be stuck."""

_REFRESH_MS: Final = 1000
_FORGET_MS: Final = 3000
_FORGOTTEN_S: Final = _FORGET_MS / 1000 + 1.5
"""How long the client remembers the group's coordinator, and when it has surely forgotten it.

A broker that restarts, or leaves, is taken off the client's list.  A coordinator that it remembers
and that is off the list is waited for without end (librdkafka issue 5511), so it is better asked
for again.  The client forgets it with its metadata, which are refreshed before they are that old.
"""


class Writer:
    """Writes to one target partition and keeps the position in a consumer group.

    Records may go to other partitions of the target's topic too, with positions of the group there:
    all of them belong to the same transaction.

    Transactions, positions and what a failure means are here; how rows reach the client is a
    `Sender`'s matter, by columns in C or by objects in Python, as `KafkaSettings.client` says.

    With *exactly_once* records and position are committed in one transaction: a writer that died
    is fenced by its transactional id, which is that of all partitions with the same `fence`, and
    its open transaction aborted.  Without, records are
    written idempotently, and a killed run may repeat those after the last committed position.

    The group's offset on the *target* partition is the next offset of the *backup*.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        target: Where,
        group: str,
        *,
        exactly_once: bool = True,
        max_message_bytes: int | None = None,
        is_spread: bool = False,
    ) -> None:
        """Connect, and end whatever an earlier writer had begun.

        Args:
            settings: The cluster.
            target: The partition.
            group: Keeps the position.
            exactly_once: Write in transactions.
            max_message_bytes: What the topic takes: Kafka measures whole batches against it.
            is_spread: Whether records go to other partitions of the topic too.
        """
        self._settings, self._target, self._group = settings, target, group
        self._exactly_once = exactly_once
        largest = min(max_message_bytes or UNKNOWN_BYTES, CLIENT_BYTES)
        self.record_bytes_max = largest - OVERHEAD_BYTES
        self._complaints = Complaints()
        own: dict[str, Any] = {
            "enable.idempotence": True,
            **limits(largest, max_message_bytes, settings.producer, is_spread=is_spread),
            "message.max.bytes": 1_000_000_000,  # the broker decides, not the client
            "delivery.report.only.error": True,  # no Python call for each record that went well
            "error_cb": self._complaints,
        }
        if exactly_once:
            own["transactional.id"] = f"{group}-{fence(target)}"
            own["transaction.timeout.ms"] = _TRANSACTION_MS
            own["topic.metadata.refresh.interval.ms"] = _REFRESH_MS
            own["metadata.max.age.ms"] = _FORGET_MS
        properties = settings.properties(own, settings.producer)
        is_native = choose(settings.client).is_native
        self._sender: Sender = (ColumnSender if is_native else ObjectSender)(properties, target)
        self._producer = self._sender.producer
        # without transactions it advances them itself, which no other thread may meanwhile
        self._positions = WRITERS.borrow(settings, group, alone=not exactly_once)
        patience = patience_s(settings, settings.producer)
        self._answers = Answers(target, patience, self._complaints)
        self._in_transaction, self._begun = False, 0.0
        self._timeout_s = int(properties.get("transaction.timeout.ms", _TRANSACTION_MS)) / 1000
        self._sent_at, self._complained = time.monotonic(), 0
        if exactly_once:
            try:
                self._connect()
                self._call("taking over its transactional id", self._producer.init_transactions, 60)
            except KbackupError:
                self.close()
                raise

    def position(self, where: Where | None = None) -> Position | None:
        """Return the committed position in the backup, None at the first start.

        Read after the constructor has fenced earlier writers, so nobody moves it any more.

        Args:
            where: The partition it is kept in; None for the target.
        """
        return self._positions.read(where or self._target)

    def positions(self, wheres: Sequence[Where]) -> Mapping[Where, Position | None]:
        """Return committed positions, in one request: `kbackup.kafka.Writer.positions`."""
        return self._positions.read_all(wheres)

    def write(self, batch: pa.RecordBatch, where: Where | None = None) -> int:
        """Send the records of *batch* in order; returns when the client has taken them all.

        A null timestamp is the layout's "not stored": the record gets the time of writing.

        Args:
            batch: The records.
            where: A partition of the target's topic; None for the target.

        Returns:
            How many timestamps of 0 ms were sent as 1 ms: the client takes 0 for "now".

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
        others: Mapping[Where, Position] = NO_OTHERS,
        where: Where | None = None,
    ) -> None:
        """Make everything written so far visible, together with *position*.

        Args:
            position: In *where*.
            others: In other partitions of its topic.
            where: A partition of the target's topic; None for the target.

        Raises:
            KafkaError: If the cluster refused; the transaction is aborted, nothing is visible.
        """
        positions = {where or self._target: position, **others}
        if not self._exactly_once:
            self.flush()
            self._advance(positions)
            return
        offsets = [
            TopicPartition(where.topic, where.partition, each.offset, each.metadata)
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

    def _advance(self, positions: Mapping[Where, Position]) -> None:
        """Commit positions without a transaction; several of them in one request."""
        if len(positions) == 1:
            self._positions.advance(*next(iter(positions.items())))
            return
        for error in self._positions.advance_all(positions).values():
            raise error

    def _commit(self, what: str, function: Any, *arguments: Any) -> None:
        """Make a call of the client that waits for a coordinator, now and then without end."""
        try:
            self._call(what, within, _COMMIT_S + _OVERDUE_S, function, *arguments, _COMMIT_S)
        except TimeoutError as error:
            self._in_transaction = False  # the client cannot abort it; the next writer does
            raise KafkaError(
                f"{self._target}: {what}: no answer for {_COMMIT_S + _OVERDUE_S:.0f} s",
                self._complaints.last or "the broker that keeps the positions is gone",
                "check the brokers; the same command continues from the committed position",
            ) from error

    def flush(self) -> None:
        """Wait until the cluster has acknowledged everything written; it is not committed yet.

        Raises:
            KafkaError: If the cluster refused a record.
        """
        self._answers.flush(self._producer, self._call, lambda: self._sender.refusal() is not None)
        self._raise(self._sender.refusal())

    def abort(self) -> None:
        """Drop what was not committed; safe to call at any time, and it raises nothing."""
        if self._in_transaction:
            self._in_transaction = False
            try:
                self._producer.purge()
                self._producer.abort_transaction(_ABORT_S)
            except FAILURES as error:  # the next writer's constructor aborts it
                _log.warning("aborting on %s: %s", self._target, unwrapped(error).args[0].str())

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
        """Wait until the client can ask for its transactional id.

        One that asks before it is connected asks again after 500 ms only.  The answer to the
        second look-up has come over a connection that is in use: 0.06 s instead of 0.05 or 0.55 s.
        """
        try:
            for _ in range(2):
                self._producer.list_topics(self._target.topic, self._settings.timeout_s)
        except KafkaException as error:  # what follows waits longer, and says what is wrong
            _log.debug("looking up %s: %s", self._target.topic, error)

    def _raise(self, refused: Refusal | None) -> None:
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
