"""Headers of a Parquet file's pages, checked before any page is decompressed.

A footer can claim less than its pages hold.  The header of each page states its decompressed size
and number of values, so a page that would exhaust the memory is refused unread.

Source: Apache Parquet 2.12, ``parquet.thrift``, ``PageHeader``; Thrift's compact protocol.
"""

from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow.parquet as pq

from kbackup.errors import CorruptObjectError
from kbackup.plurals import counted

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
