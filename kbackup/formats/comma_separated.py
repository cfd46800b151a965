"""CSV files, which are only read: each row becomes a JSON object whose fields are all text.

Rows are as RFC 4180 has them.  A file that was cut short between two rows looks whole, unless it is
compressed; one that ends within quotes does not.
"""

import codecs as charsets
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from kbackup.errors import CorruptObjectError, is_of_memory
from kbackup.formats import FormatOptions, OnlyRead, Traits, codecs
from kbackup.java import jackson
from kbackup.naming import View
from kbackup.options import Unsupported, boolean, given, integer, other_than, text, true, words
from kbackup.records import Kind

_CHARACTER_MAX: Final = 127
"""Arrow reads ASCII separators only."""


def _charset(name: str) -> None:
    try:
        b"a".decode(name)  # of nothing Python does not look the name up
    except UnicodeDecodeError:
        return  # a character has more bytes
    except (LookupError, UnicodeError) as error:
        raise ValueError("expected the name of a character set, such as UTF-8") from error


SEPARATOR: Final = integer(
    "csv.separator.char",
    "CSV: the character between two fields, as its number; 44 is a comma, 9 a tab, 59 a semicolon.",
    44,
    ge=1,
    le=_CHARACTER_MAX,
    commands="restore",
)
QUOTE: Final = integer(
    "csv.quote.char",
    "CSV: the character around a field that contains the separator or a line feed, as its number. "
    "Within such a field, two of them stand for one.",
    34,
    ge=1,
    le=_CHARACTER_MAX,
    commands="restore",
)
SKIP_LINES: Final = integer(
    "csv.skip.lines", "CSV: lines to skip at the start of a file.", 0, ge=0, commands="restore"
)
HEADER: Final = boolean(
    "csv.first.row.as.header",
    "CSV: the first row has the names of the fields; otherwise they are column01, column02 ...",
    True,
    commands="restore",
)
CHARSET: Final = text(
    "csv.file.charset",
    "CSV: the character set of the file.",
    "UTF-8",
    check=_charset,
    example="ISO-8859-1",
    commands="restore",
)
NULL: Final = words(
    "csv.null.field.indicator",
    "CSV: which empty fields are null: none, those without quotes, or all.",
    ("NEITHER", "EMPTY_SEPARATORS", "BOTH"),
    "NEITHER",
    commands="restore",
)

TYPES: Final = Unsupported(
    "value.schema",
    given,
    "this version reads the fields of a CSV file as text",
    "remove it, and change types with transforms=c, transforms.c.type="
    "org.apache.kafka.connect.transforms.Cast$Value and transforms.c.spec=FIELD:int32",
    "restore",
)
OTHER_PARSER: Final = Unsupported(
    "csv.rfc.4180.parser.enabled",
    other_than("true", ""),
    "this version reads CSV as RFC 4180 has it",
    "set it to true",
    "restore",
)
CARRIAGE_RETURN: Final = Unsupported(
    "csv.keep.carriage.return",
    true,
    "this version takes a carriage return before a line feed as part of the line's end",
    "set it to false",
    "restore",
)

OPTIONS: Final = (
    SEPARATOR, QUOTE, SKIP_LINES, HEADER, CHARSET, NULL, TYPES, OTHER_PARSER, CARRIAGE_RETURN,
)  # fmt: skip

_LINE_ENDS: Final = (ord("\r"), ord("\n"))


def check(given: Mapping[str, Any]) -> None:
    """Check that fields and lines can be told apart.

    Raises:
        ConfigurationError: If they cannot.
    """
    for option in (SEPARATOR, QUOTE):
        if option.of(given) in _LINE_ENDS:
            why = "this character ends a line"
            raise option.refusal(why, "choose another one", value=option.of(given))
    if SEPARATOR.of(given) == QUOTE.of(given):
        why = f"it is also {SEPARATOR.name}"
        raise QUOTE.refusal(why, "choose another one", value=QUOTE.of(given))


_EXTENSION: Final = ".csv"
_BLOCK_BYTES: Final = 4 * 2**20
"""Read at a time; no row may be longer."""
_WHAT: Final = "a CSV file cannot be read"
_TOO_LONG: Final = f"a row is longer than {_BLOCK_BYTES} bytes, or a quote is not closed"


class CsvFormat(OnlyRead):
    """CSV; rows that are read have the column ``value``, ``pa.json_()``."""

    name: ClassVar = "csv"
    ending: ClassVar = _EXTENSION
    traits: ClassVar = Traits(
        class_names=("CsvFormat",),
        options=OPTIONS,
        views=frozenset({View.VALUE}),
        takes=frozenset({Kind.JSON}),
        assumed={View.VALUE: "json"},
        reads_only=True,
    )
    check_options = staticmethod(check)

    def reads(self, extension: str, options: FormatOptions) -> bool:  # noqa: ARG002
        """Whether *extension* is ``.csv``, however compressed."""
        return codecs.without(extension) == _EXTENSION

    def _read(
        self, file: BinaryIO, _view: View, extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        return _read(file, codecs.of_extension(extension), options)


def _read(
    file: BinaryIO, codec: codecs.Codec | None, options: FormatOptions
) -> Iterator[pa.RecordBatch]:
    try:
        with _opened(file, codec, options, "\n") as first:
            own = first.schema.names
        names = own
        if not HEADER.of(options.values):
            names = [f"column{number:02d}" for number in range(1, len(own) + 1)]
        again = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if again:
            why = f"two fields are named {again[0]!r}"
            raise CorruptObjectError(_WHAT, why)
        file.seek(0)
        separator, mark = chr(SEPARATOR.of(options.values)), _mark(options)
        end = f"\n{mark}{separator * (len(own) - 1)}\n"
        with _opened(file, codec, options, end, own) as rows:
            for batch in _ended(rows, mark):
                text = _objects(batch, names)
                column = pa.ExtensionArray.from_storage(pa.json_(), text)
                yield pa.RecordBatch.from_arrays([column], names=["value"])
    except (pa.ArrowException, UnicodeError) as error:
        if is_of_memory(error):
            raise
        why = _TOO_LONG if "straddling" in str(error) else str(error)
        raise CorruptObjectError(_WHAT, why) from None


def _mark(options: FormatOptions) -> str:
    """Return the first field of a row that is put after the file's last one."""
    taken = {SEPARATOR.of(options.values), QUOTE.of(options.values)}
    return 8 * next(sign for sign in "~^#" if ord(sign) not in taken)


def _ended(rows: Iterable[pa.RecordBatch], mark: str) -> Iterator[pa.RecordBatch]:
    """Yield *rows* without the last one, the mark."""
    # a quote that is not closed makes one field of all that follows, and Arrow says nothing
    last: pa.RecordBatch | None = None
    for batch in rows:
        if not len(batch):
            continue
        if last is not None:
            yield last
        last = batch
    if last is None or last.column(0)[len(last) - 1].as_py() != mark:
        raise CorruptObjectError(_WHAT, "a quote is not closed, or the file is cut short")
    yield last.slice(0, len(last) - 1)


def _opened(
    file: BinaryIO,
    codec: codecs.Codec | None,
    options: FormatOptions,
    end: str,
    names: Sequence[str] | None = None,
) -> arrow_csv.CSVStreamingReader:
    """Open a file, with *end* after its last byte; its fields are text if *names* are given."""
    given = options.values
    nulls, charset = NULL.of(given), CHARSET.of(given)
    source = file if codec is None else io.BufferedReader(_Inflated(codecs.inflate(codec, file)))
    return arrow_csv.open_csv(
        pa.PythonFile(_Kept(source, charset, end), mode="r"),
        arrow_csv.ReadOptions(
            use_threads=False,
            block_size=_BLOCK_BYTES,
            skip_rows=SKIP_LINES.of(given),
            autogenerate_column_names=not HEADER.of(given),
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
    """A file as UTF-8, with something after its end, that whoever reads it does not close."""

    def __init__(self, file: Any, charset: str, end: str) -> None:
        self._file, self._end = file, end
        is_utf8 = charsets.lookup(charset).name == "utf-8"  # which Arrow checks itself
        self._decoder = None if is_utf8 else charsets.getincrementaldecoder(charset)()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Read about *size* bytes, less only at the end."""
        found = b""
        while len(found) < size:
            data: bytes = self._file.read(size - len(found))
            text = "" if self._decoder is None else self._decoder.decode(data, not data)
            found += data if self._decoder is None else text.encode()
            if not data:
                found, self._end = found + self._end.encode(), ""
                break
        return found


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
