"""``InsertHeader``, ``DropHeaders`` and ``HeaderFrom``, and a column of headers.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect.schema import ConnectSchema
from kbackup.errors import ConfigurationError, counted
from kbackup.options import names, text, words
from kbackup.records import HEADER
from kbackup.transforms import of_kafka
from kbackup.transforms.cast import as_text, text_of
from kbackup.transforms.data import (
    REPLACE_NULL,
    Data,
    Records,
    on_objects,
    parse_json,
    without_null,
)


def with_header(headers: pa.ListArray, name: str, values: pa.Array) -> pa.ListArray:
    """Return *headers* with one more, of *values*, after the others of each record."""
    rows = len(headers)
    flat = headers.flatten()
    here = pa.array(range(rows), pa.int64())
    parents = pa.concat_arrays([pc.list_parent_indices(headers), here])
    order = pc.array_sort_indices(parents)  # stable: the new one comes last
    names = pa.concat_arrays([flat.field("key"), pa.repeat(pa.scalar(name, pa.string()), rows)])
    both = pa.concat_arrays([flat.field("value"), values])
    lengths = pc.add(pc.list_value_length(headers), pa.scalar(1, pa.int32()))
    return _lists(lengths, names.take(order), both.take(order))


def without_headers(headers: pa.ListArray, names: tuple[str, ...]) -> pa.ListArray:
    """Return *headers* without those called one of *names*."""
    flat = headers.flatten()
    kept = pc.invert(pc.is_in(flat.field("key"), pa.array(names, pa.string())))
    if kept.true_count == len(kept):
        return headers
    before = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(kept.cast(pa.int32()))])
    ends = pa.concat_arrays(
        [pa.array([0], pa.int32()), pc.cumulative_sum(pc.list_value_length(headers))]
    )
    offsets = before.take(ends)
    lengths = pc.subtract(offsets[1:], offsets[:-1])
    return _lists(lengths, flat.field("key").filter(kept), flat.field("value").filter(kept))


def has_header(headers: pa.ListArray, name: str) -> pa.BooleanArray:
    """Return whether each record has a header called *name*."""
    flat = headers.flatten()
    parents = pc.list_parent_indices(headers).filter(pc.equal(flat.field("key"), name))
    return pc.is_in(pa.array(range(len(headers)), pa.int64()), parents)


def last_header(headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """Return the value of each record's last header called *name*; null if there is none."""
    flat = headers.flatten()
    is_named = pc.equal(flat.field("key"), name)
    values = flat.field("value").filter(is_named)
    row_of = pc.list_parent_indices(headers).filter(is_named).to_pylist()
    at = dict(zip(row_of, range(len(row_of)), strict=True))  # a later one replaces an earlier one
    return values.take(pa.array([at.get(row) for row in range(len(headers))], pa.int64()))


def _lists(lengths: pa.Array, names: pa.Array, values: pa.Array) -> pa.ListArray:
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    structs = pa.StructArray.from_arrays([names, values], fields=list(HEADER))
    return pa.ListArray.from_arrays(offsets, structs)


NAME: Final = text("header", "Name of the header.", is_required=True)
LITERAL: Final = text("value.literal", "Its value, as text.", is_required=True)


class InsertHeader:
    """Adds a header after the others.

    Its value is the literal's text; Kafka parses it as a number or date, and writes that.
    """

    traits: ClassVar = of_kafka("InsertHeader", NAME, LITERAL, sides=())

    def configure(self, options: Mapping[str, Any], side: str) -> None:  # noqa: ARG002
        """Take name and value."""
        self._name, self._value = NAME.of(options), LITERAL.of(options).encode()

    def apply(self, records: Records) -> Records:
        """Return the records with the header."""
        values = pa.repeat(pa.scalar(self._value, pa.binary()), len(records))
        return records.with_headers(with_header(records.headers, self._name, values))


DROPPED: Final = names("headers", "Names of the headers.", is_required=True)


class DropHeaders:
    """Drops every header that has one of the names."""

    traits: ClassVar = of_kafka("DropHeaders", DROPPED, sides=())

    def configure(self, options: Mapping[str, Any], side: str) -> None:  # noqa: ARG002
        """Take the names."""
        self._names = DROPPED.of(options)

    def apply(self, records: Records) -> Records:
        """Return the records without the headers."""
        return records.with_headers(without_headers(records.headers, self._names))


FIELDS: Final = names("fields", "The fields.", is_required=True)
HEADERS: Final = names("headers", "A header for each field, in the same order.", is_required=True)
OPERATION: Final = words(
    "operation", "What to do with the fields.", ("move", "copy"), "", is_required=True
)


class HeaderFrom:
    """Adds headers with the text of fields; a null key or value is refused, as in Kafka."""

    traits: ClassVar = of_kafka("HeaderFrom", FIELDS, HEADERS, OPERATION, REPLACE_NULL)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the fields and their headers."""
        self._side, self._fills = side, REPLACE_NULL.of(options)
        self._fields, self._headers = FIELDS.of(options), HEADERS.of(options)
        self._moves = OPERATION.of(options) == "move"
        if len(self._fields) != len(self._headers):
            raise ConfigurationError(
                "HeaderFrom cannot be used",
                f"it names {counted(len(self._fields), 'field')} and "
                f"{counted(len(self._headers), 'header')}",
                "give one header for each field", property=HEADERS.name,
            )  # fmt: skip

    def apply(self, records: Records) -> Records:
        """Return the records with the headers, and without the fields if they are moved."""
        records = without_null(records, self._side)
        data = records.side(self._side)
        found = on_objects(records, self._side, self._structs, self._left)
        if data.schema is not None:
            return found
        stays = set(found.batch["offset"].to_pylist())
        rows = [row for row, at in enumerate(records.batch["offset"].to_pylist()) if at in stays]
        parsed = parse_json(data.values.take(pa.array(rows, pa.int64())))
        for field, header in zip(self._fields, self._headers, strict=True):
            texts = [text_of(each.get(field)) for each in parsed]
            found = _with_header(found, header, pa.array(texts, pa.binary()))
        return found

    def _structs(self, records: Records, data: Data, schema: ConnectSchema) -> Records:
        known = dict(schema.fields)
        columns = data.columns(fills_defaults=self._fills)
        for field, header in zip(self._fields, self._headers, strict=True):
            if field not in known:
                raise ValueError(f"its {self._side} has no field {field!r}")
            records = _with_header(records, header, as_text(columns[field], known[field]))
        if not self._moves:
            return records
        left = [each for each in known.items() if each[0] not in self._fields]
        found = data.rebuilt(left, [columns[name] for name, _ in left])
        return records.with_side(self._side, found)

    def _left(self, value: dict[str, Any]) -> dict[str, Any]:
        if not self._moves:
            return value
        return {name: each for name, each in value.items() if name not in self._fields}


def _with_header(records: Records, name: str, values: pa.BinaryArray) -> Records:
    return records.with_headers(with_header(records.headers, name, values))
