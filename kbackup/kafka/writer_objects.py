"""Records handed to the client one by one: where the C library is missing."""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException, Producer

from kbackup.kafka.client_log import CLIENT_LOG
from kbackup.kafka.writer_sender import FULL_WAIT_S, Refusal, Wait
from kbackup.records import TopicPartition

Header = tuple[str, bytes | None]


class ObjectSender:
    """Calls ``produce`` once a record; see `kbackup.kafka.writer_sender.Sender`.

    The client offers no way to hand over columns, and its ``produce_batch`` takes no headers.
    """

    def __init__(self, properties: Mapping[str, Any], target: TopicPartition) -> None:
        self._target = target
        self._refusal: Refusal | None = None
        self.producer = Producer(
            {**properties, "on_delivery": self._delivered}, logger=CLIENT_LOG
        )  # fmt: skip

    def send(
        self, batch: pa.RecordBatch, partition: int, waiting: Callable[[], Wait]
    ) -> Refusal | None:
        """Hand over the rows of a batch in order."""
        gc.disable()  # none of what is made for each record is part of a cycle
        try:
            self._produce(batch, partition, waiting)
        except KafkaException as error:
            return Refusal(error.args[0])
        finally:
            gc.enable()
        return None

    def refusal(self) -> Refusal | None:
        """Return the first record that could not be delivered, if any."""
        return self._refusal

    def close(self) -> None:
        """Let go of the producer."""
        self.producer = None  # it is part of a cycle

    def _produce(self, batch: pa.RecordBatch, partition: int, waiting: Callable[[], Wait]) -> None:
        topic = self._target.topic
        produce = self.producer.produce
        for value, key, timestamp, headers in zip(
            batch["value"].to_pylist(),
            batch["key"].to_pylist(),
            _times(batch["timestamp"]),
            _headers(batch["headers"]),
            strict=True,
        ):
            try:
                produce(topic, value, key, partition, None, None, timestamp, headers)
            except BufferError:
                self._push(waiting(), topic, value, key, partition, None, None, timestamp, headers)
            if self._refusal is not None:
                break

    def _push(self, wait: Wait, *record: Any) -> None:
        """Hand over a record as soon as the client has room for it."""
        while self._refusal is None:
            wait(FULL_WAIT_S)
            try:
                self.producer.produce(*record)
            except BufferError:
                continue
            return

    def _delivered(self, error: Any, message: Any) -> None:  # noqa: ARG002  (the client's signature)
        if error is not None and self._refusal is None:
            self._refusal = Refusal(error)


def _times(column: pa.Array) -> Sequence[int]:
    """Timestamps as the client takes them, where 0 means now."""
    times: list[int] = pc.fill_null(column, 0).to_pylist()
    return times


def _headers(column: pa.Array) -> Iterable[list[Header] | None]:
    """Headers of each row as the client takes them; flat lists, for ``to_pylist`` makes dicts."""
    flat = column.flatten()  # of these rows only, where the batch is a slice
    pairs: Iterator[Header] = zip(
        flat.field("key").to_pylist(), flat.field("value").to_pylist(), strict=True
    )
    lengths = column.value_lengths()
    fewest, most = (bound.as_py() for bound in pc.min_max(lengths).values())
    if most and fewest == most:  # as many on each record, which is twice as fast
        return map(list, zip(*[pairs] * most, strict=True))
    return (list(islice(pairs, count)) or None for count in lengths.to_pylist())
