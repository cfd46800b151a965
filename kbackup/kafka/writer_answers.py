"""Waiting for the answers to what a writer has sent."""

import time
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from kbackup.errors import KafkaError
from kbackup.kafka.client import Complaints
from kbackup.kafka.writer_queue import BATCH_BYTES, BATCH_RECORDS
from kbackup.kafka.writer_sender import Wait
from kbackup.plurals import counted
from kbackup.records import TopicPartition

_LOOK_S: Final = 0.003
_SILENT_S: Final = 0.05
"""How often a flush looks for answers before it asks the client to hurry, and how long it looks for
the next one: a request takes 10 to 30 ms where client and broker keep two cores busy."""


class Answers:
    """The answers to what one producer has sent.

    A flush of the client sends what has no full batch yet, and its thread spins until all is
    answered (`kbackup.kafka.writer_queue`).  So the client is asked for it once it has about one
    request left.

    Args:
        target: What is written to, for errors.
        patience_s: Gives up when nothing has been answered for so long.
        complaints: What the client said meanwhile.
    """

    def __init__(self, target: TopicPartition, patience_s: float, complaints: Complaints) -> None:
        self._target, self._patience_s, self._complaints = target, patience_s, complaints
        self._records, self._bytes = 0, 0

    def expect(self, batch: pa.RecordBatch) -> None:
        """Take into account what is sent."""
        self._records += len(batch)
        self._bytes += batch.nbytes

    @property
    def _one_request(self) -> float:
        """About how many records go into one request, and half as many again: a guess."""
        if not self._records:
            return BATCH_RECORDS
        return 1.5 * min(BATCH_RECORDS, BATCH_BYTES * self._records / max(1, self._bytes))

    def flush(self, producer: Any, call: Callable[..., Any], is_over: Callable[[], bool]) -> None:
        """Wait until all is answered, or *is_over* says that there is no need.

        Args:
            producer: Has sent it.
            call: Makes a call of the client, and says what its failure means.
            is_over: Whether a record was refused.

        Raises:
            KafkaError: If nothing is answered any more.
        """
        wait = self.waiting(producer, producer.poll, call)
        left, heard = len(producer), time.monotonic()
        while left > self._one_request and not is_over():
            wait(_LOOK_S)
            before, left, now = left, len(producer), time.monotonic()
            if left < before:
                heard = now
            elif now - heard > _SILENT_S:
                break
        wait = self.waiting(producer, producer.flush, call)
        while len(producer) and not is_over():
            wait(1.0)
        self._records, self._bytes = 0, 0

    def waiting(
        self, producer: Any, function: Callable[[float], Any], call: Callable[..., Any]
    ) -> Wait:
        """Return *function* as a wait for answers that gives up when none come."""
        fewest, heard = len(producer), time.monotonic()

        def wait(seconds: float) -> None:
            nonlocal fewest, heard
            call("writing records", function, seconds)
            left, now = len(producer), time.monotonic()
            if left < fewest or not left:
                fewest, heard = left, now
            elif now - heard > self._patience_s:
                raise KafkaError(
                    f"{self._target}: {counted(left, 'record')} without an answer for "
                    f"{now - heard:.0f} s",
                    self._complaints.last or "the broker acknowledged none of them",
                    "check the brokers, or raise --kafka-timeout; the same command continues "
                    "from the committed position",
                )

        return wait
