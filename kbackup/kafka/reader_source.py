"""Where a reader's batches come from: a contract with two implementations.

`ColumnSource` takes columns from the C library, `ObjectSource` makes them of the client's messages
in Python.  They differ in speed only; the tests run both.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from kbackup.errors import BadRecordError
from kbackup.records import Span, TopicPartition

BATCH_BYTES: Final = 4 * 2**20
"""A batch is passed on when its keys and values have this many bytes.

Larger ones leave the processor's caches before they are written: at 16 MiB, records of 1 KB cost
0.8 us more each.
"""

POLL_S: Final = 0.2
"""How long a source waits for records, at least one of which comes sooner as a rule."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something other than a record.

    Attributes:
        error: The client's ``KafkaError``; the end of the partition is one, too.
        offset: Where it happened; negative where that is not known.
    """

    error: Any
    offset: int


@dataclass(frozen=True, slots=True)
class Taken:
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


class Source(Protocol):
    """One consumer, which reads one span after the other.

    Attributes:
        consumer: The client, for questions about topics and offsets.
    """

    consumer: Any

    def begin(self, where: TopicPartition, span: Span) -> None:
        """Assign a partition; what was begun before is ended."""

    def take(self) -> Taken:
        """Return what comes next, at most a batch; with neither batch nor event after `POLL_S`.

        Raises:
            KafkaException: If the client fails.
            KafkaError: If the source was closed.
            BadRecordError: If a header's name is not UTF-8; all records before it were returned.
        """

    def end(self) -> None:
        """Read no more of the span; may be repeated."""

    def close(self) -> None:
        """Leave the cluster, also while another thread is in `take`."""


def not_utf8(where: TopicPartition, offset: int) -> BadRecordError:
    """Return the error of a record whose header's name is not UTF-8, as Kafka wants it."""
    return BadRecordError(
        f"{where} offset {offset}",
        "the name of a header is not UTF-8",
        "delete the record, or repair the producer that wrote it",
        topic=where.topic,
        partition=where.partition,
        offset=offset,
    )
