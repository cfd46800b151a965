"""From Protobuf messages to rows with a Kafka Connect schema.

Source: schema-registry, ``ProtobufData``.
"""

import datetime as dt
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from google.protobuf import message, message_factory
from google.protobuf.descriptor import FieldDescriptor as F

from kbackup.connect import protobuf_schema
from kbackup.connect.json_values import unscaled
from kbackup.connect.protobuf_schema import (
    DATE_MESSAGE,
    DECIMAL_MESSAGE,
    TIME_MESSAGE,
    TIMESTAMP_MESSAGE,
    WRAPPERS,
    ProtobufStyle,
)
from kbackup.connect.schema import ConnectSchema, Type

Read = Callable[[Any], Any]
"""Turns a value of a message into what `pyarrow.array` accepts."""

_EPOCH: Final = dt.date(1970, 1, 1).toordinal()
_SCALE_MAX: Final = 10_000


@lru_cache(100)
def reader(found: Any, schema: ConnectSchema, style: ProtobufStyle) -> Callable[[bytes], Any]:
    """Return the reader for bytes of a message with the descriptor *found* and *schema*.

    Its ``ValueError`` says why bytes are not such a message.
    """
    parse = message_factory.GetMessageClass(found).FromString
    read = _message(found, schema, style) if schema.type is Type.STRUCT else _unwrapped(found)

    def of_bytes(body: bytes) -> Any:
        try:
            return read(parse(body))
        except (message.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(str(error) or "it is cut short, or no message at all") from None

    return of_bytes


def _message(found: Any, schema: ConnectSchema, style: ProtobufStyle) -> Read:
    fields = dict(schema.fields)
    unions = protobuf_schema.real_oneofs(found)
    chosen = {each.number for union in unions for each in union.fields}
    readers: list[tuple[str, Read]] = []
    for union in unions:
        name = protobuf_schema.union_name(union, style)
        readers.append((name, _union(union, fields[name], style)))
    plain = [each for each in found.fields if each.number not in chosen]
    readers += [(each.name, _field(each, fields[each.name], style)) for each in plain]

    def read(value: Any) -> dict[str, Any]:
        return {name: of(value) for name, of in readers}

    return read


def _union(found: Any, schema: ConnectSchema, style: ProtobufStyle) -> Read:
    fields = dict(schema.fields)
    readers = {each.name: _value(each, fields[each.name], style) for each in found.fields}
    name = found.name

    def read(value: Any) -> dict[str, Any] | None:
        which = value.WhichOneof(name)
        return None if which is None else {which: readers[which](getattr(value, which))}

    return read


def _field(found: Any, schema: ConnectSchema, style: ProtobufStyle) -> Read:
    """Return the reader of a field, which returns None if it is not set and need not be."""
    name = found.name
    if protobuf_schema.is_map(found):
        key, item = found.message_type.fields
        read_key, read_item = (
            _value(key, schema.keys, style), _value(item, schema.items, style)
        )  # fmt: skip
        return lambda value: [
            (read_key(key), read_item(item)) for key, item in getattr(value, name).items()
        ]
    if found.is_repeated:
        read_one = _value(found, schema.items, style)
        if read_one is _same:
            return lambda value: list(getattr(value, name))
        return lambda value: [read_one(each) for each in getattr(value, name)]
    read = _value(found, schema, style)
    if not found.has_presence:
        return lambda value: read(getattr(value, name))
    return lambda value: read(getattr(value, name)) if value.HasField(name) else None


def _value(found: Any, schema: ConnectSchema, style: ProtobufStyle) -> Read:
    if found.type == F.TYPE_ENUM:
        return _same if style.int_enums else _symbol(found.enum_type)
    if found.type in (F.TYPE_UINT64, F.TYPE_FIXED64):
        return _signed
    if schema.bits is not None and schema.bits < 32:
        return _small(schema.bits)
    if found.type != F.TYPE_MESSAGE:
        return _same
    name = found.message_type.full_name
    if name == DECIMAL_MESSAGE:
        return _decimal(schema.scale)
    if name in _LOGICAL:
        return _LOGICAL[name]
    if style.wrapped and name in WRAPPERS:
        return _unwrapped(found.message_type)
    return _message(found.message_type, schema, style)


def _unwrapped(found: Any) -> Read:
    is_unsigned = found.full_name == "google.protobuf.UInt64Value"
    return lambda value: _signed(value.value) if is_unsigned else value.value


def _same(value: Any) -> Any:
    return value


def _signed(value: int) -> int:
    """Return the bits of an unsigned number as a signed one, as in Java."""
    return value - 2**64 if value >= 2**63 else value


def _small(bits: int) -> Read:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def read(value: int) -> int:
        if not low <= value <= high:
            raise ValueError(f"{value} is not an int{bits}")
        return value

    return read


def _symbol(found: Any) -> Read:
    """Read an enum as text; of several symbols with the same number, the first one counts."""
    symbols: dict[int, str] = {}
    for value in found.values:
        symbols.setdefault(value.number, value.name)
    unknown = f"UNKNOWN_ENUM_VALUE_{found.name}_"
    return lambda value: symbols.get(value) or f"{unknown}{value}"


def _decimal(scale: int) -> Read:
    def read(value: Any) -> bytes:
        number = int.from_bytes(value.value, "big", signed=True)
        shift = scale - value.scale
        if abs(shift) > _SCALE_MAX:
            raise ValueError(f"a Decimal has the scale {value.scale}")
        if shift >= 0:
            return unscaled(number * 10**shift)
        whole, rest = divmod(number, 10**-shift)
        if rest:
            raise ValueError(f"a Decimal has more digits after its point than {scale}")
        return unscaled(whole)

    return read


def _date(value: Any) -> int:
    return dt.date(value.year, value.month, value.day).toordinal() - _EPOCH


def _time(value: Any) -> int:
    is_time = 0 <= value.hours < 24 and 0 <= value.minutes < 60 and 0 <= value.seconds < 60
    if not is_time or not 0 <= value.nanos < 10**9:
        raise ValueError(
            f"{value.hours}:{value.minutes}:{value.seconds} and {value.nanos} ns is no time of day"
        )
    seconds: int = (value.hours * 60 + value.minutes) * 60 + value.seconds
    return seconds * 1000 + int(value.nanos) // 1_000_000


def _timestamp(value: Any) -> int:
    if not 0 <= value.nanos < 10**9:
        raise ValueError(f"a Timestamp has {value.nanos} ns")
    return int(value.seconds) * 1000 + int(value.nanos) // 1_000_000


_LOGICAL: Final = {DATE_MESSAGE: _date, TIME_MESSAGE: _time, TIMESTAMP_MESSAGE: _timestamp}
