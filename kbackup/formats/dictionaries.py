"""Dictionary-encoded columns of a Parquet file, decoded a bounded number of bytes at a time.

kbackup writes none, but other tools do when they copy a file.  With a dictionary, a few bytes of a
file can become any number in memory: for example, sixteen indices of one value of 64 MiB.  So the
columns are read as indices, judged by the lengths of their values, and only then decoded.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kbackup.errors import CorruptObjectError
from kbackup.records import SCHEMA

RATIO_MAX: Final = 1000
"""How many bytes one byte of a file may become by its dictionaries..."""

RATIO_FLOOR_BYTES: Final = 64 * 2**20
"""...once it has become this many."""

_HEADERS: Final = SCHEMA.field("headers").type
_HEADER_BYTES: Final = 8


def columns(metadata: pq.FileMetaData) -> list[str]:
    """Return the paths of the byte columns that are dictionary-encoded in some row group."""
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
    return sorted(
        {
            chunk.path_in_schema
            for chunk in chunks
            if chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page
        }
    )


class Unfolding:
    """Decodes the batches of one file.

    Args:
        file_bytes: Size of the file.
        max_record_bytes: The most bytes of a record.
        batch_bytes: The approximate maximum of a yielded batch.
    """

    def __init__(self, file_bytes: int, max_record_bytes: int, batch_bytes: int) -> None:
        self._most = max(RATIO_FLOOR_BYTES, RATIO_MAX * file_bytes)
        self._max_record_bytes = max_record_bytes
        self._batch_bytes = batch_bytes
        self._given = 0

    def plain(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of *batch*, whose columns may be dictionaries, with `SCHEMA`.

        Raises:
            CorruptObjectError: If a record is too long, or the file decodes to `RATIO_MAX` times
                its size.
        """
        sizes = _row_bytes(batch)
        if (longest := pc.max(sizes).as_py()) > self._max_record_bytes:
            raise CorruptObjectError(
                "the whole-record file holds a record that is too large, or is altered",
                f"one has {longest} bytes, more than {self._max_record_bytes}",
                "if records are this large, raise --max-record-bytes",
            )
        up_to = pc.cumulative_sum(sizes).to_pylist()
        self._given += up_to[-1]
        if self._given > self._most:
            raise CorruptObjectError(
                "the whole-record file is altered",
                f"its dictionaries expand to more than {self._most} bytes",
                "restore an earlier version of the object, or skip it with behavior.on.error",
            )
        start = before = 0
        while start < len(batch):
            end = max(start + 1, bisect_right(up_to, before + self._batch_bytes))
            yield _unfolded(batch.slice(start, end - start))
            start, before = end, up_to[end - 1]


def _row_bytes(batch: pa.RecordBatch) -> pa.Int64Array:
    headers = batch["headers"]
    flat = headers.flatten()
    each = pc.add(pc.add(_lengths(flat.field("key")), _lengths(flat.field("value"))), _HEADER_BYTES)
    up_to = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(each)])
    ends = pc.cumulative_sum(pc.list_value_length(headers).cast(pa.int64()))
    starts = pa.concat_arrays([pa.array([0], pa.int64()), ends[:-1]])
    of_headers = pc.subtract(up_to.take(ends), up_to.take(starts))
    return pc.add(pc.add(_lengths(batch["key"]), _lengths(batch["value"])), of_headers)


def _lengths(column: pa.Array) -> pa.Int64Array:
    """Return the bytes of each value, 0 for null."""
    if pa.types.is_dictionary(column.type):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
    else:
        lengths = pc.binary_length(column)
    return lengths.fill_null(0).cast(pa.int64())


def _unfolded(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [
        _headers(batch[name]) if name == "headers" else _values(batch[name])
        for name in SCHEMA.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _values(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _headers(column: pa.ListArray) -> pa.ListArray:
    flat = column.flatten()
    parts = [_values(flat.field(name)) for name in ("key", "value")]
    ends = pc.cumulative_sum(pc.list_value_length(column))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    structs = pa.StructArray.from_arrays(parts, fields=list(_HEADERS.value_type))
    return pa.ListArray.from_arrays(offsets, structs, type=_HEADERS)
