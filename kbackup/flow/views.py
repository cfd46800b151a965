"""Which part of the records a file holds: from a batch to a file's columns, and back.

A whole-record file has every column of ``records.SCHEMA``.  The connectors' layout has a value
file, and if requested, a keys file and a headers file beside it, row for row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import converters, formats
from kbackup.converters import Converter
from kbackup.errors import CorruptObjectError
from kbackup.flow.envelope import Envelope
from kbackup.formats import Format, FormatOptions
from kbackup.naming import OFFSET_MAX, View
from kbackup.plurals import counted
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
        properties: What was given for the converter's options.
    """

    view: View
    format: str
    options: FormatOptions
    converter: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def open_format(self) -> Format:
        """Return the format, ready to use."""
        return formats.by_name(self.format)

    def extension(self) -> str:
        """Return the extension of its files, dot first."""
        return self.open_format().extension(self.options)

    def open_converter(self, topic: str | None = None) -> Converter | None:
        """Return the converter of *topic*, configured; None where the bytes stay as they are."""
        if self.converter is None:
            return None
        part = "key" if self.view is View.KEY else "value"
        return converters.by_name(self.converter, self.properties, topic=topic, part=part)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How objects are read; plain data.

    Attributes:
        formats: What the configuration says about files.
        key_converter: Plugin name, None for what suits the format of the file.
        value_converter: Plugin name, None for what suits the format of the file.
        properties: What was given for the options of each converter, by view.
        wants_siblings: A value object without a sibling that it says it has is incomplete.
        topic: The topic that records are read for; None where they are only looked at.
        file_headers: Records of a generic layout get headers that describe their object.
        envelope: How rows of a generic layout hold records; None: they are values.
        salvages: Rows that cannot be read are left out, and those of a damaged object that precede
            the damage are read; otherwise an object is bad as a whole.
    """

    formats: FormatOptions = field(default_factory=FormatOptions)
    key_converter: str | None = None
    value_converter: str | None = None
    properties: Mapping[View, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    wants_siblings: bool = True
    topic: str | None = None
    file_headers: bool = False
    envelope: Envelope | None = None
    salvages: bool = False


COLUMNS: Final = {View.VALUE: "value", View.KEY: "key", View.HEADERS: "headers"}
"""Name of the one column of each view of the connectors' layout."""


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
            f"{counted(rows, 'row')} from offset {first_offset} on", "Kafka has no such offsets"
        )
    for name, column in (("keys", key), ("headers", headers)):
        if column is not None and len(column) != rows:
            raise CorruptObjectError(
                f"the {name} file does not fit the value file",
                f"{counted(len(column), 'row')} against {rows}",
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
