"""Check a Parquet file's pages before they are decompressed, and decode them in batches.

A footer can claim less than its pages hold.  The header of each page states its decompressed size
and number of values, so a page that would exhaust the memory is refused unread.

Source: Apache Parquet 2.12, ``parquet.thrift``, ``PageHeader``; Thrift's compact protocol.

kbackup writes none, but other tools do when they copy a file.  With a dictionary, a few bytes of a
file can become any number in memory: for example, sixteen indices of one value of 64 MiB.  So the
columns are read as indices, judged by the lengths of their values, and only then decoded.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kbackup.errors import CorruptObjectError, counted
from kbackup.records import SCHEMA

_FIRST_READ: Final = 512
_HEADER_MAX: Final = 2**20
"""The most bytes of a page header; some writers put the column's longest values into it."""

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12


def check_column(file: BinaryIO, column: pq.ColumnChunkMetaData) -> None:
    """Check that a column's pages hold no more than the footer says.

    Args:
        file: Seekable; its position is changed.
        column: The footer's entry.

    Raises:
        CorruptObjectError: If they hold more, or are not pages.
    """
    at = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset:
        at = min(at, column.dictionary_page_offset)
    end = at + column.total_compressed_size
    size = values = 0
    while at < end:
        page = _page(file, at)
        size += page.header + page.unpacked
        values += page.values
        if size > column.total_uncompressed_size or values > column.num_values:
            raise _corrupt(f"a page of {column.path_in_schema} holds more than the footer says")
        at += page.header + page.packed
    if values != column.num_values:
        found = counted(values, "value")
        raise _corrupt(f"{column.path_in_schema} has {found}, not {column.num_values}")


class _Page(NamedTuple):
    """A page header: its own size, the page's size in the file, and decompressed."""

    header: int
    packed: int
    unpacked: int
    values: int


def _page(file: BinaryIO, at: int) -> _Page:
    for size in (_FIRST_READ, _HEADER_MAX):
        file.seek(at)
        reader = _Compact(file.read(size))
        try:
            fields = reader.struct()
        except IndexError:
            continue
        of_data = fields.get(5, fields.get(8))
        values = of_data.get(1) if isinstance(of_data, dict) else 0
        numbers = [
            number
            for number in (fields.get(3), fields.get(2), values)
            if isinstance(number, int) and number >= 0
        ]
        if len(numbers) < 3:
            break
        return _Page(reader.at, *numbers)
    raise _corrupt(f"there is no page at byte {at}")


class _Compact:
    """The part of Thrift's compact protocol that page headers use."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read the fields of a struct; `IndexError` if the data ends first."""
        fields: dict[int, Any] = {}
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self._integer()
            fields[number] = self._value(header & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > 8 or kind > _STRUCT:
            raise _corrupt("a page's header is damaged")
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind in (_DOUBLE, _BINARY):
            return self._skip(8 if kind == _DOUBLE else self._varint())
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        return self._byte() if kind == _BYTE else self._integer()

    def _list(self, depth: int) -> list[Any]:
        header = self._byte()
        count = header >> 4 if header >> 4 < 15 else self._varint()
        if count > len(self._data):
            raise IndexError
        return [self._value(header & 15, depth + 1) for _ in range(count)]

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self._data):
            raise IndexError

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            if shift > 63:
                raise _corrupt("a page's header is damaged")
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)


def _corrupt(why: str) -> CorruptObjectError:
    return CorruptObjectError(
        "the Parquet file is altered",
        why,
        "restore an earlier version of the object, or skip it with behavior.on.error",
    )


RATIO_MAX: Final = 1000
"""How many bytes one byte of a file may become by its dictionaries..."""

RATIO_FLOOR_BYTES: Final = 64 * 2**20
"""...once it has become this many."""

_HEADERS: Final = SCHEMA.field("headers").type
_HEADER_BYTES: Final = 8


def dictionary_columns(metadata: pq.FileMetaData) -> list[str]:
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
                "the full-record file holds a record that is too large, or is altered",
                f"one has {longest} bytes, more than {self._max_record_bytes}",
                "if records are this large, raise --max-record-bytes",
            )
        up_to = pc.cumulative_sum(sizes).to_pylist()
        self._given += up_to[-1]
        if self._given > self._most:
            raise CorruptObjectError(
                "the full-record file is altered",
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
