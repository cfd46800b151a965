"""``Cast``: fields, or the whole key or value, as another type, as Java's boxed types do it.

Text is as Connect writes it into headers, too.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.Cast`` and
``org.apache.kafka.connect.data.Values.convertToString``; ``java.lang.Number``, ``Long.parseLong``
and ``Double.parseDouble`` of Java 17.
"""

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import json_values
from kbackup.connect.json_values import default_of
from kbackup.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, ConnectSchema, Type
from kbackup.java import jackson
from kbackup.java.joda import DAY_MS
from kbackup.java.simple_date_format import SimpleDateFormat
from kbackup.options import names
from kbackup.records import Bad
from kbackup.transforms import of_kafka
from kbackup.transforms.data import (
    REPLACE_NULL,
    Data,
    Records,
    json_kind,
    on_json,
    on_objects,
    refused,
    structs,
)

_FORMATS: Final = {
    DATE: SimpleDateFormat("yyyy-MM-dd"),
    TIME: SimpleDateFormat("HH:mm:ss.SSS'Z'"),
    TIMESTAMP: SimpleDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"),
}
_QUOTED: Final = (Type.BYTES, Type.FLOAT32, Type.FLOAT64)
"""Types whose JSON may have quotes that are not part of the text."""


def as_text(values: pa.Array, schema: ConnectSchema) -> pa.BinaryArray:
    """Return the text of each value in UTF-8, null for null."""
    if schema.type is Type.STRING:
        return values.cast(pa.binary())
    if schema.logical == DECIMAL:
        texts = [None if each is None else str(json_values.decimal(each, schema.scale))
                 for each in values.to_pylist()]  # fmt: skip
        return pa.array(texts, pa.string()).cast(pa.binary())
    if schema.logical in _FORMATS:
        ms = values.cast(pa.int64())
        ms = pc.multiply(ms, DAY_MS) if schema.logical == DATE else ms
        return _FORMATS[schema.logical].texts(ms).cast(pa.binary())
    found = json_values.encode_json(values, replace(schema, default=None))
    if schema.type in _QUOTED:
        found = pc.utf8_trim(found, '"')
    none = pa.scalar(None, pa.string())
    return pc.if_else(values.is_valid(), found, none).cast(pa.binary())


def text_of(value: Any) -> bytes | None:
    """Return the text of a JSON value without a schema."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int):
        return (str(value).lower() if isinstance(value, bool) else str(value)).encode()
    if isinstance(value, float):
        return jackson.java_double(value).encode()
    text: str = jackson.write([value])[0].as_py()
    return text.encode()


_BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(
    r"\s*(?P<number>[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))"
    r"[fFdD]?\s*",
    re.ASCII,
)


def to_type(value: Any, target: Type) -> Any:
    """Return a bool, int, float, Decimal or text as *target*, a number, boolean or text.

    Integers are truncated to their bits, fractions cut off.

    Raises:
        ValueError: If it is text without such a value.
    """
    if target in _BITS:
        return _integer(value, _BITS[target])
    if target is Type.BOOLEAN:
        return value.lower() == "true" if isinstance(value, str) else bool(_integer(value, 64))
    number = _double(value)
    return number if target is Type.FLOAT64 else _single(number)


def _integer(value: Any, bits: int) -> int:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if isinstance(value, str):
        if _INTEGER.fullmatch(value) is None or not least <= int(value) <= most:
            raise ValueError(f"{value[:40]!r} is not an int{bits}")
        return int(value)
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        wide = max(bits, 32)  # Java's narrower types truncate an int
        low, high = -(2 ** (wide - 1)), 2 ** (wide - 1) - 1
        value = (high if value > 0 else low) if math.isinf(value) else int(value)
        value = min(max(value, low), high)
    found: int = (int(value) - least) % 2**bits + least
    return found


def _double(value: Any) -> float:
    if not isinstance(value, str):
        return float(value)
    match = _DOUBLE.fullmatch(value)
    if match is None:
        raise ValueError(f"{value[:40]!r} is not a number")
    return float(match["number"])


def _single(number: float) -> float:
    """Return the nearest 32-bit number."""
    try:
        found: float = struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return found


SPEC: Final = names(
    "spec", "field:type for each field, or one type for the whole: int8, int16, int32, int64, "
    "float32, float64, boolean or string.", is_required=True,
)  # fmt: skip
_TYPES: Final = {
    "int8": Type.INT8, "int16": Type.INT16, "int32": Type.INT32, "int64": Type.INT64,
    "float32": Type.FLOAT32, "float64": Type.FLOAT64, "boolean": Type.BOOLEAN,
    "string": Type.STRING,
}  # fmt: skip


class Cast:
    """Converts between numbers, booleans and text; null stays null."""

    traits: ClassVar = of_kafka("Cast", SPEC, REPLACE_NULL)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the types."""
        self._side, self._fills = side, REPLACE_NULL.of(options)
        self._whole: Type | None = None
        self._casts: dict[str, Type] = {}
        spec = SPEC.of(options)
        for each in spec:
            field, colon, word = (part.strip() for part in each.rpartition(":"))
            if word.lower() not in _TYPES or (colon and not field):
                why = f"expected field:type, type one of {', '.join(_TYPES)}"
                raise SPEC.refusal(why, value=each)
            if colon:
                self._casts[field] = _TYPES[word.lower()]
            elif len(spec) > 1:
                why = "cast either the whole or single fields, not both"
                raise SPEC.refusal(why, value=each)
            else:
                self._whole = _TYPES[word.lower()]

    def apply(self, records: Records) -> Records:
        """Return the records with the new types."""
        if self._whole is None:
            return on_objects(records, self._side, self._structs, self._object)
        data, target = records.side(self._side), self._whole
        if data.schema is None:
            return on_json(records, self._side, lambda value: _json(value, target))
        try:
            values, schema, bad = _cast(data.values, data.schema, target)
        except ValueError as error:
            return refused(records, self._side, str(error))
        schema = replace(schema, name=data.schema.name, version=data.schema.version)
        return records.with_side(self._side, Data(values, schema)).refuse(bad)

    def _structs(self, records: Records, data: Data, schema: ConnectSchema) -> Records:
        columns, fields = data.columns(fills_defaults=self._fills), []
        bad: dict[int, Bad] = {}
        for name, field in schema.fields:
            cast = field
            if name in self._casts:
                columns[name], cast, wrong = _cast(columns[name], field, self._casts[name])
                bad = {each.row: each for each in wrong} | bad
            fields.append((name, cast))
        whole = replace(schema, fields=tuple(fields), default=None)
        values = structs([*columns.values()], whole, data.values)
        return records.with_side(self._side, Data(values, whole)).refuse(bad.values())

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        for name, target in self._casts.items():
            value[name] = _json(value.get(name), target)
        return value


def _cast(
    values: pa.Array, schema: ConnectSchema, target: Type
) -> tuple[pa.Array, ConnectSchema, Sequence[Bad]]:
    """Return a column as another type, its schema, and the rows whose text has no such value."""
    cast = ConnectSchema(target, schema.optional)
    found, bad = _values(values, schema, target, cast.arrow())
    if schema.default is not None:
        default, wrong = _values(
            pa.array([default_of(schema)], schema.arrow()), schema, target, cast.arrow()
        )
        if not wrong:
            cast = replace(cast, default=json_values.encode_json(default, cast)[0].as_py())
    return found, cast, bad


def _values(
    values: pa.Array, schema: ConnectSchema, target: Type, kind: pa.DataType
) -> tuple[pa.Array, list[Bad]]:
    if schema.type in (Type.STRUCT, Type.ARRAY, Type.MAP):
        raise ValueError(f"values of type {schema.type} cannot be cast")
    if target is Type.STRING:
        return as_text(values, schema).cast(pa.string()), []
    is_decimal = schema.logical == DECIMAL
    if schema.type is Type.BYTES and not is_decimal:
        raise ValueError("bytes can be cast to string only")
    widens = schema.bits is not None and pa.types.is_integer(kind)
    if schema.type is Type.BOOLEAN and not pa.types.is_boolean(kind):
        return values.cast(pa.int8()).cast(kind), []
    if widens or values.type == kind:
        return values.cast(kind, safe=False), []
    coded = values.dictionary_encode()
    each: list[Any] = []
    wrong = {}
    for at, value in enumerate(coded.dictionary.to_pylist()):
        try:
            each.append(
                to_type(json_values.decimal(value, schema.scale) if is_decimal else value, target)
            )
        except ValueError as error:
            wrong[at] = str(error)
            each.append(None)
    indices = coded.indices.to_pylist() if wrong else ()
    bad = [Bad(row, wrong[at]) for row, at in enumerate(indices) if at in wrong]
    return pa.array(each, kind).take(coded.indices), bad


def _json(value: Any, target: Type) -> Any:
    """Return a value without a schema as another type."""
    if value is None:
        return None
    if not isinstance(value, (bool, int, float, str)):
        raise ValueError(f"{json_kind(value)} cannot be cast")  # noqa: TRY004
    if target is Type.STRING:
        return (text_of(value) or b"").decode()
    found = to_type(value, target)
    return _short(found) if target is Type.FLOAT32 else found


def _short(number: float) -> float:
    """Return the double whose text is that of a float in Java."""
    text = json_values.encode_json(
        pa.array([number], pa.float32()), ConnectSchema(Type.FLOAT32, optional=True)
    )[0].as_py()
    found = jackson.scalar(text)
    return found if isinstance(found, float) else number
