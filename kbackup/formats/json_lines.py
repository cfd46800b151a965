"""Files with one line of JSON per record: what the connectors' ``JsonFormat`` writes.

A value or key is written as it is; a record's headers are written as
``{"headers":[{"key":"trace","value":"t0"}]}``.

Source: kafka-connect-storage-cloud 87eb7d39, ``JsonRecordWriterProvider``, ``RecordViews``.
"""

import base64
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, BinaryIO, ClassVar, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import json_values
from kbackup.connect import schema as connect
from kbackup.connect.json_values import JsonStyle
from kbackup.connect.schema import Type
from kbackup.connect.tables import Files, TableColumn, not_a_table, struct
from kbackup.errors import CorruptObjectError
from kbackup.formats import (
    COLUMNS,
    HEADERS,
    FileFormat,
    FormatOptions,
    Traits,
    codecs,
    null_keys,
    separated,
)
from kbackup.formats.codecs import Codec
from kbackup.formats.separated import (
    SeparatedWriter,
    all_with,
    extension,
    parted,
    read_rows,
    whole,
)
from kbackup.java import jackson
from kbackup.naming import View
from kbackup.options import Unsupported, true, words
from kbackup.records import ANY_KIND, Bad, Kind, Schema, schema_of

DECIMALS: Final = words(
    "json.decimal.format",
    "Write a Decimal as base64 of its bytes, or as a number.",
    ("base64", "numeric"),
    "base64",
    any_case=True,
    commands="sink",
)

SCHEMAS: Final = Unsupported(
    "format.json.schema.enable",
    true,
    "this version reads JSON without schemas",
    "set it to false",
    "restore",
)

OPTIONS: Final = (*separated.OPTIONS, DECIMALS, SCHEMAS)


TABLE_LINES: Final = 1000
"""Records of a file that are examined for their fields."""

_SERDE: Final = {
    "athena": "org.openx.data.jsonserde.JsonSerDe",
    "hive": "org.apache.hive.hcatalog.data.JsonSerDe",
}


def table_columns(lines: Iterable[str]) -> tuple[TableColumn, ...]:
    """Return the columns of JSON objects, as far as *lines* show them.

    A field with values of several types, or that is always null, is text.

    Raises:
        ConfigurationError: If a line is not an object.
    """
    found: dict[str, Any] = {}
    for line in lines:
        value = json.loads(line)
        if not isinstance(value, dict):
            raise not_a_table("a line of it is no JSON object")
        found = _joined(found, _seen(value))
    if not found:
        raise not_a_table("its records have no fields")
    return tuple(TableColumn(name, _of_json(kind)) for name, kind in found.items())


def _seen(value: Any) -> Any:
    """Return what a value shows: a word, a dict of fields, or a list of what its items show."""
    match value:
        case int() if not isinstance(value, bool):
            return "bigint" if -(2**63) <= value < 2**63 else "double"
        case dict():
            return {name: _seen(one) for name, one in value.items()}
        case list():
            items: Any = None
            for one in value:
                items = _joined(items, _seen(one))
            return [items]
    return _WORDS.get(type(value))


_WORDS: Final[Mapping[type, str]] = {bool: "boolean", float: "double", str: "string"}


def _joined(left: Any, right: Any) -> Any:
    if left is None or right is None or left == right:
        return right if left is None else left
    if isinstance(left, dict) and isinstance(right, dict):
        names = {**left, **right}
        return {name: _joined(left.get(name), right.get(name)) for name in names}
    if isinstance(left, list) and isinstance(right, list):
        return [_joined(left[0], right[0])]
    numbers = {"bigint", "double"}
    are_numbers = isinstance(left, str) and isinstance(right, str) and {left, right} <= numbers
    return "double" if are_numbers else "string"


def _of_json(kind: Any) -> str:
    match kind:
        case dict() if kind:
            return struct((name, _of_json(one)) for name, one in kind.items())
        case list():
            return f"array<{_of_json(kind[0])}>"
        case str():
            return kind
    return "string"


def table_stored_as(engine: str, _away: Collection[str]) -> tuple[str, ...]:
    """Return the lines that name the engine's reader of JSON."""
    serde = _SERDE.get(engine)
    return () if serde is None else (f"ROW FORMAT SERDE '{serde}'", "STORED AS TEXTFILE")


_EXTENSION: Final = ".json"

_NEWLINE: Final = b"\n"


class JsonFormat(FileFormat):
    """JSON lines; rows have one column.

    It writes ``value`` and ``key`` from ``pa.json_()``, ``string`` or ``binary``, which becomes
    base64, or from columns with a Connect schema, and ``headers`` from `HEADERS`.  It reads
    ``pa.json_()``, with ``null`` as null, and `HEADERS`.
    """

    name: ClassVar = "json"
    traits: ClassVar = Traits(
        class_names=("JsonFormat",),
        options=OPTIONS,
        views=frozenset(COLUMNS),
        takes=ANY_KIND - {Kind.BYTES},
        assumed={View.VALUE: "json", View.KEY: "string"},
    )

    def extension(self, options: FormatOptions) -> str:
        """Return ``.json``, and ``.gz`` if it is compressed."""
        return extension(_EXTENSION, options)

    def reads(self, extension: str, options: FormatOptions) -> bool:  # noqa: ARG002
        """Whether *extension* is ``.json`` or ``.json.gz``."""
        return codecs.without(extension) == _EXTENSION

    def refuses(self, view: View, values: pa.Array, _options: FormatOptions) -> Sequence[Bad]:
        """Refuse null keys, null values of headers, and JSON in more than one line."""
        if view is View.HEADERS:
            return _null_headers(values)
        if view is View.KEY and values.null_count:
            return null_keys(values)
        if not isinstance(values.type, pa.JsonType):
            return ()
        what = "a JSON value has a line break in its text"
        why = "its converter did not write it in one line"
        return [Bad(row, what, why) for row in all_with(values.storage, _NEWLINE)]

    def _writer(
        self, file: BinaryIO, view: View, options: FormatOptions, schema: Schema | None
    ) -> "JsonWriter":
        return JsonWriter(file, view, options, schema)

    def _read(
        self, file: BinaryIO, view: View, extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        # a flipped bit is detected only if the line is no longer JSON, or the file is compressed
        return whole(self.salvage(file, view, extension, options))

    def salvage(
        self, file: BinaryIO, view: View, extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch | Bad]:
        """Read a file as `read` does, and go on behind a line that is damaged.

        Raises:
            CorruptObjectError: If the last line has no newline, or the gzip is damaged.
        """
        self._check(view)
        return _salvaged(file, view, codecs.of_extension(extension), options)

    def table(self, file: BinaryIO, view: View, extension: str, options: FormatOptions) -> Files:
        """Return a column for each field that the first values show."""
        batches = self.read(file, view, extension, options)
        texts = (text for batch in batches for text in batch.column(0).to_pylist())
        lines = (text for text in islice(texts, TABLE_LINES) if text is not None)
        extensions = (_EXTENSION, _EXTENSION + codecs.GZIP.extension)
        return Files(table_columns(lines), extensions, "json", table_stored_as)


class JsonWriter(SeparatedWriter):
    """A file of JSON lines being written."""

    def __init__(
        self, file: BinaryIO, view: View, options: FormatOptions, schema: Schema | None = None
    ) -> None:
        super().__init__(file, _NEWLINE, options)
        self._view = view
        self._column = COLUMNS[view]
        self._schema = schema
        self._style = JsonStyle(numeric_decimals=DECIMALS.of(options.values) == "numeric")

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of the one column."""
        column = batch[self._column]
        schema = connect.of(self._schema or schema_of(batch.schema.field(self._column)))
        if self._view is View.HEADERS:
            lines = _headers_text(column)
        elif schema is None:
            lines = _json_text(column)
        else:  # Connect passes a struct to Jackson, and any other value as a Java object
            style = self._style if schema.type is Type.STRUCT else JsonStyle(is_java=True)
            lines = json_values.encode_json(column, schema, style)
        self.write_rows(lines.cast(pa.binary()))


def _json_text(column: pa.Array) -> pa.StringArray:
    """Return a JSON text for each row, none of them null."""
    if isinstance(column.type, pa.JsonType):
        text = column.storage
    elif pa.types.is_binary(column.type):
        # 0.3 us a record; Arrow has no base64
        encoded = [None if each is None else base64.b64encode(each) for each in column.to_pylist()]
        text = jackson.quote(pa.array(encoded, pa.binary()).cast(pa.string()))
    else:
        text = jackson.quote(column)
    return pc.fill_null(text, "null")


def _null_headers(column: pa.ListArray) -> Sequence[Bad]:
    headers = column.flatten()
    keys, values = headers.field("key"), headers.field("value")
    if not values.null_count:
        return ()
    parents = pc.list_parent_indices(column)
    return [
        Bad(
            parents[at].as_py(),
            f"the value of header {keys[at].as_py()!r} is null",
            "the connectors' files hold the text of a header, and null has none",
            "leave headers out with store.kafka.headers=false, or keep full records",
        )
        for at in pc.indices_nonzero(values.is_null()).to_pylist()
    ]


def _headers_text(column: pa.ListArray) -> pa.StringArray:
    headers = column.flatten()
    keys, values = headers.field("key"), headers.field("value")
    each = pc.binary_join_element_wise(
        '{"key":', jackson.quote(keys), ',"value":', jackson.quote(values), "}", ""
    )
    offsets = pc.subtract(column.offsets, column.offsets[0])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, each), ",")
    return pc.binary_join_element_wise('{"headers":[', joined, "]}", "")


def _salvaged(
    file: BinaryIO, view: View, codec: Codec | None, options: FormatOptions
) -> Iterator[pa.RecordBatch | Bad]:
    """Yield the rows, and in their places the lines that are damaged."""
    # after a flipped bit much is still JSON: only where a checksum holds was a bad line written so
    read = _headers if view is View.HEADERS else _texts
    before = 0
    has_bad = False
    try:
        for rows in read_rows(file, _NEWLINE, codec, options):
            for each in read(rows, before):
                if isinstance(each, Bad):
                    has_bad = True
                    if codec is not None and not codec.has_checksum:
                        raise CorruptObjectError(each.what, each.why)  # noqa: TRY301  (below: with doubt)
                    yield each
                else:
                    yield pa.RecordBatch.from_arrays([each], names=[COLUMNS[view]])
            before += len(rows)
    except CorruptObjectError as error:
        raise (error.doubting() if has_bad and codec is not None else error) from None


def _texts(rows: pa.BinaryArray, before: int) -> Iterator[pa.Array | Bad]:
    """Check that each row is JSON, and keep its text; 0.9 us per row of 100 B."""
    lines = rows.to_pylist()
    bad: dict[int, Bad] = {}
    row = start = 0
    while start < len(lines):
        try:
            for row in range(start, len(lines)):
                jackson.check(lines[row])
            break
        except ValueError as error:
            bad[row] = _bad(before + row, str(error))
            start = row + 1
    for each in parted(rows, bad):
        yield each if isinstance(each, Bad) else jackson.column(each.cast(pa.string()))


def _headers(rows: pa.BinaryArray, before: int) -> Iterator[pa.ListArray | Bad]:
    found: list[list[dict[str, str]] | None] = []
    bad: dict[int, Bad] = {}
    for row, line in enumerate(rows.to_pylist()):
        headers, why = None, 'it is not {"headers":[{"key":...,"value":...}]} of text'
        try:
            headers = orjson.loads(line)["headers"]
        except orjson.JSONDecodeError as error:
            why = str(error)
        except (TypeError, KeyError):
            pass
        if not _are_headers(headers):
            headers, bad[row] = None, _bad(before + row, why)
        found.append(headers)
    yield from parted(pa.array(found, HEADERS), bad)


def _are_headers(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict)
        and isinstance(each.get("key"), str)
        and isinstance(each.get("value"), str)
        for each in value
    )


def _bad(row: int, why: str) -> Bad:
    return Bad(row, f"line {row + 1} of the JSON file is damaged", why)
