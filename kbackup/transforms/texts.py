"""Values as text, as Connect writes them into headers and as ``Cast`` makes strings of them.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.data.Values.convertToString``.
"""

from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import json_values
from kbackup.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, ConnectSchema, Type
from kbackup.java import jackson
from kbackup.transforms.simple_date_format import DAY_MS, SimpleDateFormat

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
        texts = [None if each is None else str(decimal(each, schema.scale))
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


def decimal(value: bytes, scale: int) -> Decimal:
    """Return the number in a Decimal's bytes."""
    number = Decimal(int.from_bytes(value, "big", signed=True)).as_tuple()
    return Decimal((number.sign, number.digits, -scale))
