"""Which part of the records a file holds: from a batch to a file's columns, and back.

A whole-record file has every column of ``records.SCHEMA``.  The connectors' layout has a value
file, and where asked a keys file and a headers file beside it, row for row.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import converters, formats
from kbackup.converters import Converter
from kbackup.errors import BadRecordError, CorruptObjectError
from kbackup.formats import Format, FormatOptions
from kbackup.naming import OFFSET_MAX, View
from kbackup.records import HEADER, SCHEMA, TimestampType

HEADERS_AS_TEXT: Final = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.string())])
)
"""A headers file's column: the connectors store header values as text."""


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """One kind of file of a layout; plain data.

    Attributes:
        view: The part of the records.
        format: Name of the format's plugin.
        options: What the configuration says about files.
        converter: Name of the converter's plugin; None for whole records and headers.
        properties: The converter's sub-properties.
    """

    view: View
    format: str
    options: FormatOptions
    converter: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def open_format(self) -> Format:
        """Return the format, ready to use."""
        return formats.by_name(self.format)

    def extension(self) -> str:
        """Return the extension of its files, dot first."""
        return self.open_format().extension(self.options)

    def open_converter(self) -> Converter | None:
        """Return the converter, configured; None where the bytes stay as they are."""
        if self.converter is None:
            return None
        return converters.by_name(self.converter, self.properties)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How objects are read; plain data.

    Attributes:
        formats: What the configuration says about files.
        key_converter: Plugin name, None for what suits the format of the file.
        value_converter: Plugin name, None for what suits the format of the file.
        properties: Sub-properties of each converter, by view.
        wants_keys: A value object without its keys object is incomplete.
        wants_headers: A value object without its headers object is incomplete.
    """

    formats: FormatOptions = field(default_factory=FormatOptions)
    key_converter: str | None = None
    value_converter: str | None = None
    properties: Mapping[View, Mapping[str, str]] = field(default_factory=dict)
    wants_keys: bool = False
    wants_headers: bool = False


def project(view: View, batch: pa.RecordBatch, converter: Converter | None) -> pa.RecordBatch:
    """Return the columns of *view*, one row per row of *batch*.

    Raises:
        BadRecordError: If a record does not fit the view: a null key, no headers, a null header
            value, a value that the converter does not take.
    """
    if view is View.RECORD:
        return batch
    if view is View.HEADERS:
        column = headers_as_text(batch["headers"])
    else:
        column = batch["key" if view is View.KEY else "value"]
        if view is View.KEY and column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            raise BadRecordError(
                "a record has no key",
                "store.kafka.keys=true cannot store a null key",
                "use whole records (without format.class), or store.kafka.keys=false",
                row=row,
            )
        if converter is not None:
            column = converter.decode(column)
        if view is View.VALUE and column.null_count:
            raise BadRecordError(
                "a value is null",
                "the connectors' layout cannot store it (behavior.on.null.values=fail)",
                "use whole records (without format.class), or behavior.on.null.values=ignore",
                row=pc.index(column.is_null(), True).as_py(),
            )
    return pa.RecordBatch.from_arrays([column], names=[COLUMNS[view]])


def has_value(batch: pa.RecordBatch, converter: str | None) -> pa.Array:
    """Return for each row whether it has a value: no tombstone, and with ``json`` no ``null``."""
    value = batch["value"]
    if converter != "json":
        return value.is_valid()
    return pc.and_(
        value.is_valid(),
        pc.invert(pc.fill_null(pc.match_substring_regex(value, r"^\s*null\s*$"), True)),
    )


COLUMNS: Final = {View.VALUE: "value", View.KEY: "key", View.HEADERS: "headers"}
"""Name of the one column of each view of the connectors' layout."""


def headers_as_text(column: pa.Array) -> pa.Array:
    """Return headers with values as text: UTF-8 as it is, other bytes in base64.

    Source: ``Values.convertToString`` by way of ``connect-compat`` section 3.5.

    Raises:
        BadRecordError: For a record without headers or with a null header value, which the
            connectors' header files cannot store.
    """
    advice = "use whole records (without format.class), or store.kafka.headers=false"
    empty = pc.index(pc.equal(pc.list_value_length(column), 0), True).as_py()
    if empty >= 0:
        raise BadRecordError(
            "a record has no headers", "store.kafka.headers=true needs some", advice, row=empty
        )
    flat = column.flatten()
    values = flat.field("value")
    if values.null_count:
        at = pc.index(values.is_null(), True).as_py()
        row = pc.list_parent_indices(column)[at].as_py()
        raise BadRecordError(
            f"header {flat.field('key')[at].as_py()!r} of a record has a null value",
            "the connectors' header files cannot store it",
            advice,
            row=row,
        )
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:  # some value is not UTF-8; such headers are rare
        texts = pa.array([_text(value) for value in values.to_pylist()], pa.string())
    lengths = pc.list_value_length(column)
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    structs = pa.StructArray.from_arrays(
        [flat.field("key"), texts], fields=list(HEADERS_AS_TEXT.value_type)
    )
    return pa.ListArray.from_arrays(ends, structs)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def assemble(
    first_offset: int,
    value: pa.Array,
    key: pa.Array | None,
    headers: pa.Array | None,
) -> pa.RecordBatch:
    """Put the columns of the connectors' layout together again.

    Args:
        first_offset: Offset of the first row.  The layout stores no others: rows are numbered on
            from here, which is exact only where the topic had no holes.
        value: ``binary``.
        key: ``binary``, None where keys were not stored.
        headers: `HEADERS_AS_TEXT`, None where headers were not stored.

    Returns:
        ``records.SCHEMA``; the timestamps, which this layout does not store, are null.

    Raises:
        CorruptObjectError: If the columns differ in length: rows are never paired by guess.
    """
    rows = len(value)
    if first_offset + rows > OFFSET_MAX:
        raise CorruptObjectError(
            f"{rows} rows from offset {first_offset} on", "Kafka has no such offsets"
        )
    for name, column in (("keys", key), ("headers", headers)):
        if column is not None and len(column) != rows:
            raise CorruptObjectError(
                f"the {name} file does not fit the value file",
                f"{len(column)} rows against {rows}",
                "write the objects again with kbackup sink, if Kafka still has the records",
            )
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(first_offset, first_offset + rows), pa.int64()),
            pa.nulls(rows, pa.int64()),
            pa.repeat(pa.scalar(int(TimestampType.NONE), pa.int8()), rows),
            pa.nulls(rows, pa.binary()) if key is None else key,
            value,
            _headers_as_bytes(rows, headers),
        ],
        schema=SCHEMA,
    )


def _headers_as_bytes(rows: int, headers: pa.Array | None) -> pa.Array:
    element = SCHEMA.field("headers").type.value_field
    if headers is None:
        none = pa.StructArray.from_arrays(
            [pa.array([], pa.string()), pa.array([], pa.binary())], fields=list(HEADER)
        )
        ends = pa.repeat(pa.scalar(0, pa.int32()), rows + 1)
        return pa.ListArray.from_arrays(ends, none, type=pa.list_(element))
    flat = headers.flatten()
    lengths = pc.fill_null(pc.list_value_length(headers), 0)
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    structs = pa.StructArray.from_arrays(
        [flat.field("key"), flat.field("value").cast(pa.binary())], fields=list(HEADER)
    )
    return pa.ListArray.from_arrays(ends, structs, type=pa.list_(element))
