"""Files of raw bytes, one part of each record: what the connectors' ``ByteArrayFormat`` writes.

Each value is followed by the separator, and nothing is escaped: a value that contains the
separator comes back as several.  Full records do not have this flaw.

Source: kafka-connect-storage-cloud 87eb7d39, ``ByteArrayRecordWriterProvider``.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, ClassVar, Final

import pyarrow as pa

from kbackup.errors import ConfigurationError
from kbackup.formats import COLUMNS, FileFormat, FormatOptions, Traits, codecs, separated
from kbackup.formats.separated import (
    SeparatedWriter,
    all_with,
    extension,
    nulls,
    read_rows,
)
from kbackup.naming import View
from kbackup.options import boolean, text, verbatim
from kbackup.records import Bad, Kind, Schema


def _readable(extension: str) -> None:
    """Refuse what no reader could tell from the offset before it."""
    if re.fullmatch(r"(\.[A-Za-z0-9]+)+", extension) is None:
        raise ValueError("expected a dot, and letters or digits after it, such as .bin")


def _separates(separator: str) -> None:
    """Refuse a separator that separates nothing."""
    if not separator:
        raise ValueError("expected at least one character")


EXTENSION: Final = text(
    "format.bytearray.extension", "Extension of byte-array files.", ".bin", check=_readable
)
SEPARATOR: Final = verbatim(
    "format.bytearray.separator",
    "Separator written after each value of a byte-array file, exactly as given; default: a line "
    "feed.",
    example=";",
    check=_separates,
    is_literal=True,
)
REFUSES: Final = boolean(
    "format.bytearray.refuse.separator",
    "A value or key that contains the separator is a bad record, which errors.tolerance decides "
    "about; otherwise it is written, as the connector writes it, with a warning for each file.",
    False,
    commands="sink",
)

OPTIONS: Final = (*separated.OPTIONS, EXTENSION, SEPARATOR, REFUSES)


_log = logging.getLogger(__name__)


class ByteArrayFormat(FileFormat):
    """Raw bytes with a separator; rows have one binary column, ``value`` or ``key``."""

    name: ClassVar = "bytes"
    traits: ClassVar = Traits(
        class_names=("ByteArrayFormat",),
        options=OPTIONS,
        views=frozenset({View.VALUE, View.KEY}),
        takes=frozenset({Kind.BYTES}),
        assumed={View.VALUE: "bytes", View.KEY: "bytes"},
        splits_at=SEPARATOR.name,
    )

    def extension(self, options: FormatOptions) -> str:
        """Return ``format.bytearray.extension``, and ``.gz`` if it is compressed."""
        return extension(EXTENSION.of(options.values), options)

    def reads(self, extension: str, options: FormatOptions) -> bool:
        """Whether *extension* is the configured one, or the one that files have without a word."""
        return codecs.without(extension) in (EXTENSION.of(options.values), EXTENSION.default)

    def refuses(self, view: View, values: pa.Array, options: FormatOptions) -> Sequence[Bad]:
        """Refuse null, which would be read back as empty, and the separator if so asked."""
        bad = nulls(values, COLUMNS[view], "a file of raw bytes")
        if not REFUSES.of(options.values):
            return bad
        why = f"{REFUSES.name}=true, because a restore would split it there"
        do = f"set another {SEPARATOR.name}, or keep full records"
        bad += [
            Bad(row, f"a {COLUMNS[view]} contains the separator", why, do)
            for row in all_with(values, separator(options))
        ]
        return sorted(bad, key=lambda each: each.row)

    def _writer(
        self, file: BinaryIO, view: View, options: FormatOptions, _schema: Schema | None
    ) -> "ByteArrayWriter":
        return ByteArrayWriter(file, view, options)

    def _read(
        self, file: BinaryIO, view: View, extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        # a flipped bit cannot be detected here, unless the file is compressed
        schema = pa.schema([(COLUMNS[view], pa.binary())])
        rows = read_rows(file, separator(options), codecs.of_extension(extension), options)
        return (pa.RecordBatch.from_arrays([each], schema=schema) for each in rows)


class ByteArrayWriter(SeparatedWriter):
    """A file of raw bytes being written."""

    def __init__(self, file: BinaryIO, view: View, options: FormatOptions) -> None:
        super().__init__(file, separator(options), options)
        self._column = COLUMNS[view]
        self._has_warned = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of the one column.

        Raises:
            ConfigurationError: If the column is text: the connector accepts bytes only.
        """
        rows = batch[self._column]
        if not pa.types.is_binary(rows.type):
            raise ConfigurationError(
                f"the bytes format cannot hold {self._column}s converted to {rows.type}",
                do=f"set {self._column}.converter to ByteArrayConverter",
            )
        if not self._has_warned and all_with(rows, self._separator):
            self._has_warned = True
            _log.warning(
                "a %s contains the separator %r: a restore will split it there; set "
                "format.bytearray.separator, or keep full records",
                self._column,
                self._separator,
            )
        self.write_rows(rows)


def separator(options: FormatOptions) -> bytes:
    """Return what follows each value."""
    text = SEPARATOR.of(options.values)
    return b"\n" if text is None else text.encode()
