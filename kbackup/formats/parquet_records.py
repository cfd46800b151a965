"""Read Parquet files of full records and check them, row group by row group.

``docs/reference/storage-format.md`` lists the checks and their order.

Rows arrive as Kafka happened to deliver them.  A file must not show how, or a retry would not
write the same bytes again.  Each group is written as one, so that its encoding does not
depend on the parts it came in either.

A footer can claim less than its pages hold.  The header of each page states its decompressed size
and number of values, so a page that would exhaust the memory is refused before it is decompressed.

kbackup writes no dictionaries, but other tools do when they copy a file.  With one, a few bytes of
a file can become any number in memory: for example, sixteen indices of one value of 64 MiB.  So the
columns are read as indices, judged by the lengths of their values, and only then decoded.

Source: Apache Parquet 2.12, ``parquet.thrift``, ``PageHeader``; Thrift's compact protocol.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kbackup.errors import CorruptObjectError, counted
from kbackup.formats import corrupt, too_large, translated
from kbackup.formats.codecs import RATIO_FLOOR_BYTES
from kbackup.records import SCHEMA, batch_bytes, record_bytes

RECORDS: Final = 16_384
BYTES: Final = 4 * 2**20
"""A group ends after the record that makes this many records or bytes, whichever comes first.

Measured on one core, zstd level 1: groups of 16,384 records of 100 B, and of 4 MiB of 1 KB
records, are written within 3% of the speed of groups 16 times as large, read as fast, and the
file is not larger; at 2,048 records both are a quarter slower.  Small groups are what keeps
hundreds of open files in memory.
"""


class RowGroups:
    """Rows in, row groups out; holds less than one group and the rows being added.

    What each row counts for follows from *sizes*; *total*, if there is one, knows the sum faster.
    """

    def __init__(
        self,
        records: int = RECORDS,
        bytes: int = BYTES,  # noqa: A002
        sizes: Callable[[pa.RecordBatch], pa.Int64Array] = record_bytes,
        total: Callable[[pa.RecordBatch], int] | None = batch_bytes,
    ) -> None:
        self._limit_records, self._limit_bytes = records, bytes
        self._sizes, self._total = sizes, total
        self._held: list[pa.RecordBatch] = []
        self._held_records = self._held_bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add rows and yield the groups that they complete; exhaust it."""
        while len(batch):
            part, size, is_full = self._room(batch)
            self._held.append(part)
            self._held_records += len(part)
            self._held_bytes += size
            batch = batch.slice(len(part))
            if is_full:
                yield pa.concat_batches(self._held)
                self._begin()

    def rest(self) -> pa.RecordBatch | None:
        """Return the last, short group, None if no rows are left, and start over."""
        held = self._held
        self._begin()
        return pa.concat_batches(held) if held else None

    def _begin(self) -> None:
        self._held, self._held_records, self._held_bytes = [], 0, 0

    def _room(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int, bool]:
        """The first rows of *batch* that fit the open group, their bytes, and if they fill it."""
        left = self._limit_records - self._held_records
        part = batch.slice(0, left)
        room = self._limit_bytes - self._held_bytes
        if self._total is not None and (size := self._total(part)) < room:
            return part, size, len(part) == left
        up_to = pc.cumulative_sum(self._sizes(part))
        at = pc.index(pc.greater_equal(up_to, room), True).as_py()
        if at < 0:
            return part, up_to[-1].as_py(), len(part) == left
        return part.slice(0, at + 1), up_to[at].as_py(), True


FORMAT_VERSION: Final = 1
"""The version of the full-record file; raised when today's readers would misread it."""

_WHAT: Final = "the full-record file is cut short or altered"

METADATA_PREFIX: Final = "kbackup."
"""The prefix of our names in the file's own metadata."""

SLACK_BYTES: Final = 64 * 2**20
"""The most that lengths and levels of a row group's columns may add to its records."""

READ_BYTES: Final = 8 * 2**20
"""The approximate maximum of a batch that is read, if a row group is larger than ours."""

_ROW_BYTES: Final = 32  # Arrow's own bytes per row: numbers, and where each value begins


def read_records(
    file: BinaryIO, max_record_bytes: int, columns: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a full-record file, in order.

    Of *columns* alone, the offset among them; None for all.  With dictionaries all are read, for
    records are judged by their size then.

    Raises:
        CorruptObjectError: If the file is not as it was written, or of a later version.
    """
    with translated(_WHAT):
        parquet = pq.ParquetFile(file, pre_buffer=False, page_checksum_verification=True)
        expected = _check_footer(parquet)
        _check_sizes(parquet.metadata, max_record_bytes)
        coded = dictionary_columns(parquet.metadata)
        if coded:
            parquet = pq.ParquetFile(
                file, pre_buffer=False, page_checksum_verification=True, read_dictionary=coded
            )
    unfolding = Unfolding(file.seek(0, 2), max_record_bytes, READ_BYTES)
    records, first, last = 0, None, None
    schema = SCHEMA
    if columns is not None and not coded:
        schema = pa.schema([field for field in SCHEMA if field.name in columns])
    for batch in _batches(parquet, file, schema, unfolding if coded else None):
        with translated(_WHAT):
            _check_rows(batch, last)
        first = batch["offset"][0].as_py() if first is None else first
        last = batch["offset"][-1].as_py()
        records += len(batch)
        yield batch
    found = {"records": records, "first_offset": first, "last_offset": last}
    for name, value in expected.items():
        if found[name] != value:
            raise _corrupt(f"{name} should be {value} and is {found[name]}")


def _batches(
    parquet: pq.ParquetFile, file: BinaryIO, schema: pa.Schema, unfolding: "Unfolding | None"
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each row group, as many as its footer entry says."""
    for number in range(parquet.num_row_groups):
        with translated(_WHAT):
            group = parquet.metadata.row_group(number)
            if not group.num_rows:  # some writers write no page then
                continue
            _check_pages(file, group)
            row_bytes = max(_ROW_BYTES, group.total_byte_size / max(1, group.num_rows))
            found = 0
            batches = parquet.iter_batches(
                batch_size=max(1, min(group.num_rows, int(READ_BYTES / row_bytes))),
                row_groups=[number],
                columns=schema.names,
                use_threads=False,
            )
        while True:
            with translated(_WHAT):
                batch = next(batches, None)
            if batch is None:
                break
            if len(batch):
                found += len(batch)
                if unfolding is None:
                    with translated(_WHAT):
                        columns = [batch[name] for name in schema.names]
                        plain = pa.RecordBatch.from_arrays(columns, schema=schema)
                    yield plain
                else:
                    yield from unfolding.plain(batch)
        if found != group.num_rows:
            wanted = counted(group.num_rows, "row")
            raise _corrupt(f"row group {number} should have {wanted} and has {found}")


def _check_footer(parquet: pq.ParquetFile) -> dict[str, int]:
    """Check version, columns and counts; return the totals that the rows must match."""
    metadata = {
        name.decode().removeprefix(METADATA_PREFIX): text.decode()
        for name, text in (parquet.metadata.metadata or {}).items()
        if name.decode().startswith(METADATA_PREFIX)
    }
    if "format_version" not in metadata:
        raise CorruptObjectError(
            "not a file of full records",
            f"it is Parquet, but has no {METADATA_PREFIX}format_version",
            "only files that kbackup wrote carry .record in their name",
        )
    version = int(metadata["format_version"])
    if version != FORMAT_VERSION:
        raise CorruptObjectError(
            "a full-record file of another version",
            f"it has version {version}, this program reads {FORMAT_VERSION}",
            "restore it with a newer kbackup",
        )
    _check_columns(parquet.schema_arrow)
    numbers = ("records", "first_offset", "last_offset")
    expected = {name: int(metadata[name]) for name in numbers if name in metadata}
    expected.setdefault("records", parquet.metadata.num_rows)
    if parquet.metadata.num_rows != expected["records"]:
        raise _corrupt(
            f"{METADATA_PREFIX}records is {expected['records']}, "
            f"the footer says {parquet.metadata.num_rows}"
        )
    return expected


def _check_columns(schema: pa.Schema) -> None:
    for field in SCHEMA:
        found = schema.get_all_field_indices(field.name)
        if len(found) != 1:
            count = "twice" if found else "missing"
            raise _corrupt(f"column {field.name} is {count}")
        if not schema.field(found[0]).equals(field):
            raise _corrupt(f"column {field.name} should be {field}, is {schema.field(found[0])}")


def _check_sizes(metadata: pq.FileMetaData, max_record_bytes: int) -> None:
    """Check that no row group needs more memory than one of ours can."""
    most = BYTES + max_record_bytes + SLACK_BYTES
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(at) for at in range(group.num_columns)]
        unpacked = sum(column.total_uncompressed_size for column in columns)
        # a dictionary, or a header without bytes, has none of these in the file
        values = 4 * max((column.num_values for column in columns), default=0)
        size = max(group.total_byte_size, unpacked, values)
        if size > most:
            raise _large(f"row group {number} has {size} bytes, more than {most}")


def _check_pages(file: BinaryIO, group: pq.RowGroupMetaData) -> None:
    """Check that the pages hold no more than the footer says, which `_check_sizes` has judged."""
    for at in range(group.num_columns):
        check_column(file, group.column(at))


def _check_rows(batch: pa.RecordBatch, last: int | None) -> None:
    """Check what no page checksum covers: types, null where none is allowed, order."""
    offsets = batch["offset"]
    if offsets.null_count:
        raise _corrupt("a record has no offset")
    for field in batch.schema:
        if not field.nullable and batch[field.name].null_count:
            offset = offsets[pc.index(batch[field.name].is_null(), True).as_py()].as_py()
            raise _corrupt(f"the record at offset {offset} has no {field.name}")
    if "headers" in batch.schema.names:
        batch["headers"].flatten().validate(full=True)  # header names must be UTF-8
    if last is not None and len(offsets) and offsets[0].as_py() <= last:
        raise _corrupt(f"offset {offsets[0].as_py()} follows offset {last}")
    row = pc.index(pc.greater(offsets[1:], offsets[:-1]), False).as_py()
    if row >= 0:
        raise _corrupt(f"offset {offsets[row + 1].as_py()} follows offset {offsets[row].as_py()}")


def _corrupt(why: str) -> CorruptObjectError:
    return corrupt(_WHAT, why)


def _large(why: str) -> CorruptObjectError:
    return too_large("the full-record file holds a record", why)


_FIRST_READ: Final = 512
_HEADER_MAX: Final = 2**20
"""The most bytes of a page header; some writers put the column's longest values into it."""

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12


def check_column(file: BinaryIO, column: pq.ColumnChunkMetaData) -> None:
    """Check that a column's pages hold no more than *column*, the footer's entry, says.

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


RATIO_MAX: Final = 1000
"""How many bytes one byte of a file may become by its dictionaries, once it is so many that they
count: `RATIO_FLOOR_BYTES`."""

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
    """Decodes the batches of one file, into batches of about *batch_bytes*."""

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
            raise _large(f"one has {longest} bytes, more than {self._max_record_bytes}")
        up_to = pc.cumulative_sum(sizes).to_pylist()
        self._given += up_to[-1]
        if self._given > self._most:
            raise _corrupt(f"its dictionaries expand to more than {self._most} bytes")
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
