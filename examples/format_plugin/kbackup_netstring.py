"""Values as consecutive netstrings, ``5:hello,``: a format that escapes nothing and
loses nothing but null.

Source: D. J. Bernstein, "Netstrings", 1997.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.errors import ConfigurationError, CorruptObjectError
from kbackup.formats import COLUMNS, FileFormat, FormatOptions, Traits, corrupt
from kbackup.naming import View
from kbackup.records import Bad, Kind, Schema

_LENGTH: Final = re.compile(rb"0|[1-9][0-9]{0,9}")
_ROWS: Final = 1000


class NetstringFormat(FileFormat):
    """Values, or keys, as netstrings; each batch has one ``binary`` column."""

    name: ClassVar = "netstring"
    ending: ClassVar = ".ns"
    traits: ClassVar = Traits(
        views=frozenset({View.VALUE, View.KEY}),
        takes=frozenset({Kind.BYTES}),
        assumed={View.VALUE: "bytes", View.KEY: "bytes"},
    )

    def refuses(self, view: View, values: pa.Array, options: FormatOptions) -> Sequence[Bad]:
        """Refuse null, which a netstring cannot represent."""
        rows = pc.indices_nonzero(values.is_null()).to_pylist()
        return [Bad(row, f"a null {COLUMNS[view]} cannot be a netstring") for row in rows]

    def _writer(
        self, file: BinaryIO, view: View, options: FormatOptions, schema: Schema | None
    ) -> "NetstringWriter":
        return NetstringWriter(file, COLUMNS[view])

    def _read(
        self, file: BinaryIO, view: View, extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        return _batches(file, COLUMNS[view], options.max_record_bytes)


class NetstringWriter:
    """A file being written."""

    def __init__(self, file: BinaryIO, column: str) -> None:
        self._file, self._column = file, column

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, none of them null."""
        rows = batch[self._column]
        if not pa.types.is_binary(rows.type):
            raise ConfigurationError(
                f"netstrings cannot hold {self._column}s converted to {rows.type}",
                do=f"set {self._column}.converter=bytes",
            )
        self._file.write(b"".join(b"%d:%s," % (len(row), row) for row in rows.to_pylist()))

    def close(self, metadata: Mapping[str, str]) -> None:
        """Write an end mark, so that a file truncated after a row is recognised."""
        self._file.write(b".")


def _batches(file: BinaryIO, column: str, longest: int) -> Iterator[pa.RecordBatch]:
    rows: list[bytes] = []
    for row in _rows(file, longest):
        rows.append(row)
        if len(rows) == _ROWS:
            yield pa.record_batch([pa.array(rows, pa.binary())], [column])
            rows = []
    if rows:
        yield pa.record_batch([pa.array(rows, pa.binary())], [column])


def _rows(file: BinaryIO, longest: int) -> Iterator[bytes]:
    count = 0
    while (head := _head(file)) != b".":
        if _LENGTH.fullmatch(head) is None or int(head) > longest:
            raise _corrupt(count, f"{head[:20]!r} is not a valid record length")
        row = file.read(int(head) + 1)
        if len(row) != int(head) + 1 or not row.endswith(b","):
            raise _corrupt(count, "it is truncated, or its length is wrong")
        yield row[:-1]
        count += 1
    if file.read(1):
        raise _corrupt(count, "something follows the end")


def _head(file: BinaryIO) -> bytes:
    """Return the text before the next colon, or the end mark."""
    head = b""
    while len(head) < 11:
        byte = file.read(1)
        if byte in (b":", b""):
            return head
        head += byte
        if head == b".":
            return head
    return head


def _corrupt(count: int, why: str) -> CorruptObjectError:
    return corrupt(f"record {count + 1} of the netstring file is damaged", why)
