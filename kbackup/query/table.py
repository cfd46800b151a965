"""A topic as a table: how records become its rows."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.backup.merging import records
from kbackup.flow.views import ReadOptions
from kbackup.query.chunks import Chunk
from kbackup.records import NO_TIMESTAMP, TimestampType
from kbackup.stores import Store

COLUMNS: Final = (
    "topic string, partition int, offset bigint, timestamp timestamp, timestamp_type string, "
    "key binary, value binary, headers array<struct<key: string, value: binary>>"
)
"""The table's schema in Spark's terms.  A timestamp is null if the record has none, or its layout
does not store it; a null value is a tombstone."""

_MOST_MS: Final = (2**63 - 1) // 1000
"""Spark counts microseconds: what is beyond is not a timestamp there."""

_WORDS: Final = pa.array([TimestampType.word(number) for number in range(3)], pa.string())


def rows(
    store: Store, chunk: Chunk, options: ReadOptions, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Read a chunk.

    Args:
        store: Where the backup is.
        chunk: What to read.
        options: How objects are read.
        schema: `COLUMNS` as an Arrow schema.

    Yields:
        Rows in offset order.

    Raises:
        KbackupError: If an object is bad; what was yielded before is intact.
        StoreError: If the store does not answer.
    """
    where = chunk.where
    for batch in records(store, chunk.sets, options):
        count = len(batch)
        kinds = pc.if_else(
            pc.and_(
                pc.greater_equal(batch["timestamp_type"], 0),
                pc.less(batch["timestamp_type"], len(_WORDS)),
            ),
            batch["timestamp_type"],
            0,
        )
        columns = [
            pa.repeat(pa.scalar(where.topic, pa.string()), count),
            pa.repeat(pa.scalar(where.partition, pa.int32()), count),
            batch["offset"],
            _moments(batch["timestamp"]),
            _WORDS.take(kinds),
            batch["key"],
            batch["value"],
            batch["headers"],
        ]
        yield pa.RecordBatch.from_arrays(
            [column.cast(field.type) for column, field in zip(columns, schema, strict=True)],
            schema=schema,
        )


def _moments(timestamps: pa.Array) -> pa.Array:
    is_one = pc.and_(
        pc.not_equal(timestamps, NO_TIMESTAMP),
        pc.and_(pc.less_equal(timestamps, _MOST_MS), pc.greater_equal(timestamps, -_MOST_MS)),
    )
    known = pc.if_else(is_one, timestamps, pa.scalar(None, pa.int64()))
    return known.cast(pa.timestamp("ms", "UTC"))
