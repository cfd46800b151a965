"""How a writer's rows reach the client: a contract with two implementations.

`ColumnSender` hands Arrow columns to the C library, `ObjectSender` calls the client for each
record.  Transactions, positions and waiting are the `Writer`'s, whichever of them serves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

Wait = Callable[[float], None]
"""Serves the client's events for so many seconds; raises when it has waited too long in all."""

FULL_WAIT_S = 0.05
"""How long one wait for room in the client's queue lasts."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record that the client or the cluster did not take.

    Attributes:
        error: The client's ``KafkaError``.
        offset: The record's offset in the backup, or that of the first one of those that were
            sent together; None where it is not known.
    """

    error: Any
    offset: int | None = None


class Sender(Protocol):
    """One producer, which writes to the partitions of one topic.

    Attributes:
        producer: The client, for transactions.
    """

    producer: Any

    def send(
        self, batch: pa.RecordBatch, partition: int, waiting: Callable[[], Wait]
    ) -> Refusal | None:
        """Hand over the rows of a batch in order.

        Args:
            batch: ``records.SCHEMA``.  A null timestamp gives the record the time of writing.
            partition: Where they go.
            waiting: Makes a `Wait` for one time in which the client has no room.

        Returns:
            None when the client has taken all rows, or a delivery has failed meanwhile; otherwise
            what it refused, with no row after that handed over.
        """

    def refusal(self) -> Refusal | None:
        """Return the first record that was handed over and could not be delivered, if any."""

    def close(self) -> None:
        """Let go of the producer, which ends when nobody else holds it; may be repeated."""


def without_zero_timestamps(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """Set timestamps of 0 ms to 1 ms, and count them: the client takes 0 for "now"."""
    column = batch["timestamp"]
    zero = pc.fill_null(pc.equal(column, 0), False)
    count = pc.sum(zero).as_py() or 0
    if not count:
        return batch, 0
    changed = pc.if_else(zero, pa.scalar(1, pa.int64()), column)
    at = batch.schema.get_field_index("timestamp")
    return batch.set_column(at, batch.schema.field("timestamp"), changed), count
