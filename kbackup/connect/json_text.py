"""From a column with a Connect schema to JSON, column by column, as Connect and Jackson do.

Each field becomes text for all rows at once, and the rows are joined at the end.  Numbers are
written as in Java, text as in `jackson.quote`.

Source: Apache Kafka 4.1, ``JsonConverter``; kafka-connect-storage-cloud 87eb7d39,
``JsonRecordWriterProvider``; ``connect-compat`` section 3.1.
"""

import base64
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import jackson
from kbackup.connect import json_values, nested
from kbackup.connect.json_values import JsonForm
from kbackup.connect.schema import DATE, DECIMAL, ConnectSchema, Type

_DAY_MS: Final = 86_400_000
_FLOAT: Final = struct.Struct("f")
_NULL: Final = pa.scalar("null", pa.string())
_NOTHING: Final = pa.scalar("", pa.string())


@dataclass(frozen=True, slots=True)
class JsonStyle:
    """How logical types become JSON.

    Attributes:
        numeric_decimals: ``decimal.format=NUMERIC``: a Decimal as a number, its scale kept;
            otherwise as base64 of its unscaled bytes.
        is_java: As Jackson writes Java's own objects, which is what the connector does with a
            value that is not a struct: a Decimal is a number, a Date is in ms, and every map is
            an object.
        form: How to represent values that JSON cannot represent directly.
    """

    numeric_decimals: bool = False
    is_java: bool = False
    form: JsonForm = json_values.CONNECT


CONNECT: Final = JsonStyle()


def encode(values: pa.Array, schema: ConnectSchema, style: JsonStyle = CONNECT) -> pa.StringArray:
    """Return each row as compact JSON; null becomes ``null``, or its default."""
    if style.form.fills_defaults:
        values = nested.filled(values, schema)
    text = _text(values, schema, style)
    return pc.if_else(values.is_valid(), text, _NULL) if values.null_count else text


def _text(values: pa.Array, schema: ConnectSchema, style: JsonStyle) -> pa.StringArray:
    if schema.logical == DECIMAL and (style.numeric_decimals or style.is_java):
        return _each(values, lambda value: decimal_text(value, schema.scale))
    if schema.logical == DATE and style.is_java:
        return pc.multiply(values.cast(pa.int64()), _DAY_MS).cast(pa.string())
    if schema.bits is not None or schema.type is Type.BOOLEAN:
        return values.cast(pa.string())
    match schema.type:
        case Type.FLOAT32:
            return _each(values, _float_text)
        case Type.FLOAT64:
            return _each(values, _double_text)
        case Type.STRING:
            return jackson.quote(values)
        case Type.BYTES:
            return _each(values, lambda value: f'"{base64.b64encode(value).decode()}"')
        case Type.STRUCT if schema.name is not None and schema.name == style.form.union:
            return _chosen(values, schema, style)
        case Type.STRUCT:
            return _object(values, schema, style)
        case Type.ARRAY:
            items = encode(values.flatten(), schema.items, style)
            return _list(values, items, "[", "]")
    lists = nested.lists(values)
    keys, items = lists.flatten().flatten()
    key = encode(keys, schema.keys, style)
    item = encode(items, schema.items, style)
    if style.is_java and schema.keys.type is not Type.STRING:
        key = jackson.quote(key)
    if style.is_java or style.form.is_object(schema):
        return _list(lists, pc.binary_join_element_wise(key, item, ":"), "{", "}")
    begin, middle, end = (
        ('{"key":', ',"value":', "}") if style.form.has_entries else ("[", ",", "]")
    )
    pairs = pc.binary_join_element_wise(begin, key, middle, item, end, "")
    return _list(lists, pairs, "[", "]")


def _object(values: pa.StructArray, schema: ConnectSchema, style: JsonStyle) -> pa.StringArray:
    if not schema.fields:
        return pa.array(["{}"] * len(values), pa.string())
    parts: list[Any] = []
    for column, (name, field) in zip(values.flatten(), schema.fields, strict=True):
        key = jackson.quote(pa.array([name], pa.string()))[0].as_py()
        parts.append(("{" if not parts else ",") + key + ":")
        parts.append(encode(column, field, style))
    return pc.binary_join_element_wise(*parts, "}", _NOTHING)


def _chosen(values: pa.StructArray, schema: ConnectSchema, style: JsonStyle) -> pa.StringArray:
    """Return the text of the first field that is not null, ``null`` if all are."""
    columns = zip(values.flatten(), schema.fields, strict=True)
    texts = [
        pc.if_else(column.is_valid(), encode(column, field, style), pa.scalar(None, pa.string()))
        for column, (_, field) in columns
    ]
    return pc.coalesce(*texts, _NULL)


def _list(values: pa.ListArray, items: pa.StringArray, begin: str, end: str) -> pa.StringArray:
    lists, _ = nested.relisted(values, items)
    return pc.binary_join_element_wise(begin, pc.binary_join(lists, ","), end, _NOTHING)


def _each(values: pa.Array, text: Callable[[Any], str]) -> pa.StringArray:
    """Return the text of each value, computing each distinct value once.

    Arrow has neither base64 nor Java's number format: 0.5 us per value.
    """
    coded = values.dictionary_encode()
    texts = pa.array([text(value) for value in coded.dictionary.to_pylist()], pa.string())
    return texts.take(coded.indices)


def decimal_text(value: bytes, scale: int) -> str:
    """Return the digits of a Decimal, its scale kept, never with an exponent."""
    number = Decimal(int.from_bytes(value, "big", signed=True)).as_tuple()
    return f"{Decimal((number.sign, number.digits, -scale)):f}"


def _double_text(value: float) -> str:
    return jackson.java_double(value) if _is_finite(value) else _not_finite(value)


def _float_text(value: float) -> str:
    if not _is_finite(value):
        return _not_finite(value)
    for digits in range(1, 9):
        text = f"{value:.{digits}e}"
        if _FLOAT.pack(float(text)) == _FLOAT.pack(value):
            return jackson.java_text(text)
    return jackson.java_double(value)


def _is_finite(value: float) -> bool:
    return value - value == 0


def _not_finite(value: float) -> str:
    """As Jackson writes them, although they are not JSON numbers."""
    return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'  # noqa: PLR0124
