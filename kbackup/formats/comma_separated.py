"""CSV files, which are only read: each row becomes a JSON object whose fields are all text.

Rows are as RFC 4180 has them.  A file that was cut short between two rows looks whole, unless it is
compressed.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from kbackup import jackson
from kbackup.columns import Bad, Schema
from kbackup.errors import ConfigurationError, CorruptObjectError
from kbackup.formats import FormatOptions, codecs, refuse_view
from kbackup.formats.comma_separated_options import (
    CHARSET,
    HEADER,
    NULL,
    QUOTE,
    SEPARATOR,
    SKIP_LINES,
)
from kbackup.naming import View

_EXTENSION: Final = ".csv"
_BLOCK_BYTES: Final = 4 * 2**20
"""Read at a time; no row may be longer."""


class CsvFormat:
    """CSV; each batch that is read has the column ``value``, ``pa.json_()``."""

    class_names: ClassVar[tuple[str, ...]] = ("CsvFormat",)
    views: ClassVar[frozenset[View]] = frozenset({View.VALUE})
    converters: ClassVar[tuple[str, ...] | None] = ("json",)
    assumed: ClassVar[Mapping[View, str]] = {View.VALUE: "json"}
    splits_at: ClassVar[str] = ""
    reads_only: ClassVar[bool] = True

    def extension(self, options: FormatOptions) -> str:  # noqa: ARG002
        """Return ``.csv``."""
        return _EXTENSION

    def reads(self, extension: str, options: FormatOptions) -> bool:  # noqa: ARG002
        """Whether *extension* is ``.csv``, however compressed."""
        return codecs.without(extension) == _EXTENSION

    def checks_itself(self, extension: str) -> bool:
        """Whether it is compressed: gzip has a checksum."""
        return codecs.checks_itself(extension)

    def refuses(self, view: View, values: pa.Array) -> Sequence[Bad]:  # noqa: ARG002
        """Refuse every row: nothing is written."""
        return [Bad(row, "kbackup writes no CSV") for row in range(len(values))]

    def writer(
        self,
        file: BinaryIO,  # noqa: ARG002
        view: View,  # noqa: ARG002
        options: FormatOptions,  # noqa: ARG002
        schema: Schema | None = None,  # noqa: ARG002
    ) -> Any:
        """Refuse.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError("the csv format is only read", do="choose format.class=json")

    def own_metadata(self, file: BinaryIO) -> Mapping[str, str]:  # noqa: ARG002
        """Return nothing: the file has no room for it."""
        return {}

    def read(
        self, file: BinaryIO, view: View, extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        """Read a file of values.

        Raises:
            ConfigurationError: If *view* is another.
            CorruptObjectError: If rows differ in their number of fields, two fields have one name,
                a row is longer than `_BLOCK_BYTES`, or the compression is damaged.
        """
        if view is not View.VALUE:
            raise refuse_view("csv", view)
        return _read(file, codecs.of_extension(extension), options)


def _read(
    file: BinaryIO, codec: codecs.Codec | None, options: FormatOptions
) -> Iterator[pa.RecordBatch]:
    try:
        with _opened(file, codec, options) as first:
            names = first.schema.names
        if not HEADER.of(options.values):
            names = [f"column{number:02d}" for number in range(1, len(names) + 1)]
        again = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if again:
            why = f"two fields are named {again[0]!r}"
            raise CorruptObjectError("a CSV file cannot be read", why)
        file.seek(0)
        with _opened(file, codec, options, names) as rows:
            for batch in rows:
                text = _objects(batch, names)
                column = pa.ExtensionArray.from_storage(pa.json_(), text)
                yield pa.RecordBatch.from_arrays([column], names=["value"])
    except (pa.ArrowException, UnicodeError) as error:
        raise CorruptObjectError("a CSV file cannot be read", str(error)) from None


def _opened(
    file: BinaryIO,
    codec: codecs.Codec | None,
    options: FormatOptions,
    names: Sequence[str] | None = None,
) -> arrow_csv.CSVStreamingReader:
    """Open a file; its fields are text if their *names* are given."""
    given = options.values
    has_header, nulls = HEADER.of(given), NULL.of(given)
    source = file if codec is None else io.BufferedReader(_Inflated(codecs.inflate(codec, file)))
    return arrow_csv.open_csv(
        pa.PythonFile(_Kept(source), mode="r"),
        arrow_csv.ReadOptions(
            use_threads=False,
            block_size=_BLOCK_BYTES,
            skip_rows=SKIP_LINES.of(given),
            column_names=names or None,
            skip_rows_after_names=int(names is not None and has_header),
            autogenerate_column_names=names is None and not has_header,
            encoding=CHARSET.of(given),
        ),
        arrow_csv.ParseOptions(
            delimiter=chr(SEPARATOR.of(given)),
            quote_char=chr(QUOTE.of(given)),
            newlines_in_values=True,
        ),
        arrow_csv.ConvertOptions(
            column_types=None if names is None else dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=nulls != "NEITHER",
            quoted_strings_can_be_null=nulls == "BOTH",
        ),
    )


def _objects(batch: pa.RecordBatch, names: Sequence[str]) -> pa.StringArray:
    """Return a JSON object for each row."""
    parts: list[Any] = []
    for number, name in enumerate(names):
        label = jackson.quote(pa.array([name]))[0].as_py()
        parts.append(("," if number else "{") + label + ":")
        parts.append(pc.fill_null(jackson.quote(batch.column(number)), "null"))
    return pc.binary_join_element_wise(*parts, "}", "")


class _Kept(io.RawIOBase):
    """A file that whoever reads it does not close."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Read up to *size* bytes."""
        data: bytes = self._file.read(size)
        return data


class _Inflated(io.RawIOBase):
    """Pieces of bytes, as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill *buffer* as far as one piece goes."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)
