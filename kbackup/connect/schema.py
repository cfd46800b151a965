"""Kafka Connect's schemas: their contents, their JSON, and the Arrow type of their values.

Values keep Connect's own types, whatever their logical type: a Date is an
``int32`` of days, a Timestamp an ``int64`` of ms, a Decimal the bytes of its unscaled number.  So
no value is too large or too early, and nothing is rounded.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.data``, ``JsonConverter.asJsonSchema``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, Self

import pyarrow as pa

from kbackup.records import Schema

ENCODING: Final = "connect"
"""``Schema.encoding`` of a column with a Connect schema."""

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"

ENUM: Final = "io.confluent.connect.avro.Enum"
"""Parameter that marks a string as an Avro enum; with ``.SYMBOL`` appended, one for each."""

UNION: Final = "io.confluent.connect.avro.Union"
"""Name of a struct that stands for a union of several types in Avro: one field is not null."""
FIXED_SIZE: Final = "connect.fixed.size"
"""Parameter of bytes that are Avro's ``fixed``: how many each value has."""


class Type(StrEnum):
    """Connect's types, by their names in its JSON."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


_ARROW: Final = {
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT32: pa.float32(),
    Type.FLOAT64: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.STRING: pa.string(),
    Type.BYTES: pa.binary(),
}
_BY_ARROW: Final = {kind: type_ for type_, kind in _ARROW.items()}
_LOGICAL: Final = {DECIMAL: Type.BYTES, DATE: Type.INT32, TIME: Type.INT32, TIMESTAMP: Type.INT64}
_BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}


SCALE_MOST: Final = 1000
"""The largest scale of a Decimal, either way: Java's numbers have more, and no data do."""


@dataclass(frozen=True, slots=True)
class ConnectSchema:
    """One schema; equal schemas are equal to Connect too.

    Attributes:
        name: Such as ``com.example.Order``, or the name of a logical type.
        version: The schema's own number.
        parameters: Anything else that a converter kept, as pairs of text.
        default: JSON of the value that replaces null, as `JsonConverter` writes it; None
            if there is none.
        fields: The fields of a struct, in order: name and schema.
        value: Of a map's values, or of an array's elements.
    """

    type: Type
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    default: str | None = None
    fields: tuple[tuple[str, "ConnectSchema"], ...] = ()
    key: "ConnectSchema | None" = None
    value: "ConnectSchema | None" = None

    def __post_init__(self) -> None:
        """Refuse a Decimal whose scale would make text of any length of a few bytes."""
        if self.name == DECIMAL and abs(self.scale) > SCALE_MOST:
            raise ValueError(f"a Decimal has a scale of {self.scale}, beyond {SCALE_MOST}")

    @property
    def bits(self) -> int | None:
        """The size of an integer, None for another type."""
        return _BITS.get(self.type)

    @property
    def logical(self) -> str | None:
        """The name of the logical type, None if there is none."""
        return self.name if _LOGICAL.get(self.name or "") == self.type else None

    @property
    def fills_null(self) -> bool:
        """Whether values contain structs with fields that may be null and then have a default."""
        parts = [each for _, each in self.fields] + [
            each for each in (self.key, self.value) if each is not None
        ]
        has_one = any(each.optional and each.default is not None for _, each in self.fields)
        return has_one or any(each.fills_null for each in parts)

    def parameter(self, name: str) -> str | None:
        """Return the parameter *name*, None if there is none."""
        return dict(self.parameters).get(name)

    @property
    def scale(self) -> int:
        """Digits of a Decimal after its point; may be negative."""
        return int(self.parameter("scale") or 0)

    @property
    def fixed_size(self) -> int | None:
        """The bytes of each value that is Avro's ``fixed``, None for another schema."""
        size = self.parameter(FIXED_SIZE) if self.type is Type.BYTES else None
        return int(size) if size is not None and size.isdecimal() else None

    def as_optional(self) -> Self:
        """Return the same schema, but optional."""
        return self if self.optional else replace(self, optional=True)

    def arrow(self) -> pa.DataType:
        """Return the type of a column of such values."""
        if self.type is Type.STRUCT:
            return pa.struct([schema.field(name) for name, schema in self.fields])
        if self.type is Type.ARRAY:
            return pa.list_(self.items.field("element"))
        if self.type is Type.MAP:
            keys = pa.field("key", self.keys.arrow(), nullable=False)
            return pa.map_(keys, self.items.field("value"))
        return _ARROW[self.type]

    def field(self, name: str) -> pa.Field:
        """Return the Arrow field of such values."""
        return pa.field(name, self.arrow(), nullable=self.optional or self.default is not None)

    @property
    def items(self) -> "ConnectSchema":
        """The schema of an array's elements, or of a map's values."""
        if self.value is None:
            raise ValueError(f"{self.type} has no elements")
        return self.value

    @property
    def keys(self) -> "ConnectSchema":
        """The schema of a map's keys."""
        if self.key is None:
            raise ValueError(f"{self.type} has no keys")
        return self.key

    def of_column(self) -> Schema:
        """Return the description of a column of such values."""
        return Schema(self.text(), self.version, ENCODING, self.name)

    def text(self) -> str:
        """Return the schema as JSON; equal schemas have equal texts."""
        return json.dumps(self.to_json(), ensure_ascii=False, separators=(",", ":"))

    def to_json(self) -> dict[str, Any]:
        """Return the schema as Connect's ``JsonConverter`` writes it into an envelope."""
        found: dict[str, Any] = {"type": str(self.type)}
        if self.type is Type.ARRAY:
            found["items"] = self.items.to_json()
        elif self.type is Type.MAP:
            found |= {"keys": self.keys.to_json(), "values": self.items.to_json()}
        elif self.type is Type.STRUCT:
            found["fields"] = [schema.to_json() | {"field": name} for name, schema in self.fields]
        found["optional"] = self.optional
        for name in ("name", "version", "doc"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        if self.parameters:
            found["parameters"] = dict(self.parameters)
        if self.default is not None:
            found["default"] = json.loads(self.default)
        return found

    @classmethod
    def from_json(cls, found: Any) -> Self:
        """Read what `to_json` writes; a ``ValueError`` says why *found* is not a schema."""
        if not isinstance(found, Mapping):
            raise ValueError(f"a schema is an object, not {shown(found)}")
        try:
            kind = Type(found.get("type", ""))
        except ValueError:
            raise ValueError(f"a schema has no type {shown(found.get('type'))}") from None
        key = value = None
        fields: tuple[tuple[str, ConnectSchema], ...] = ()
        if kind is Type.ARRAY:
            value = cls.from_json(found.get("items"))
        elif kind is Type.MAP:
            key, value = cls.from_json(found.get("keys")), cls.from_json(found.get("values"))
        elif kind is Type.STRUCT:
            fields = tuple(map(_field, _list(found, "fields")))
            if len({name for name, _ in fields}) < len(fields):
                raise ValueError("a struct has two fields of one name")
        parameters = found.get("parameters") or {}
        if not isinstance(parameters, Mapping):
            raise ValueError(f"parameters are an object, not {shown(parameters)}")
        default = found.get("default")
        return cls(
            kind,
            found.get("optional") is True,
            _text(found, "name"),
            _integer(found, "version"),
            _text(found, "doc"),
            tuple((name, str(text)) for name, text in parameters.items()),
            None if default is None else json.dumps(default, ensure_ascii=False),
            fields,
            key,
            value,
        )


def of(schema: Schema | None) -> ConnectSchema | None:
    """Return the Connect schema of a column, None if it has none."""
    return _parsed(schema.text) if schema is not None and schema.encoding == ENCODING else None


def of_arrow(kind: pa.DataType, *, optional: bool = True) -> ConnectSchema:
    """Return the simplest schema of an Arrow type's values; ``ValueError`` if Connect has none."""
    if kind in _BY_ARROW:
        return ConnectSchema(_BY_ARROW[kind], optional)
    if pa.types.is_struct(kind):
        fields = tuple((each.name, of_arrow(each.type, optional=each.nullable)) for each in kind)
        return ConnectSchema(Type.STRUCT, optional, fields=fields)
    if pa.types.is_map(kind):
        key = of_arrow(kind.key_type, optional=False)
        value = of_arrow(kind.item_type, optional=kind.item_field.nullable)
        return ConnectSchema(Type.MAP, optional, key=key, value=value)
    if pa.types.is_list(kind):
        value = of_arrow(kind.value_type, optional=kind.value_field.nullable)
        return ConnectSchema(Type.ARRAY, optional, value=value)
    raise ValueError(f"{kind} is not a type of Kafka Connect's")


@lru_cache(1000)
def _parsed(text: str) -> ConnectSchema:
    return ConnectSchema.from_json(json.loads(text))


def _field(found: Any) -> tuple[str, ConnectSchema]:
    if not isinstance(found, Mapping) or not isinstance(found.get("field"), str):
        raise ValueError(f"a field of a struct has no name: {shown(found)}")
    return found["field"], ConnectSchema.from_json(found)


def _list(found: Mapping[str, Any], name: str) -> list[Any]:
    value = found.get(name)
    if not isinstance(value, list):
        raise ValueError(f"{name} are an array, not {shown(value)}")
    return value


def _text(found: Mapping[str, Any], name: str) -> str | None:
    value = found.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"a schema's {name} is text, not {shown(value)}")
    return value


def _integer(found: Mapping[str, Any], name: str) -> int | None:
    value = found.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"a schema's {name} is a whole number, not {shown(value)}")
    return value


def shown(value: Any) -> str:
    """Return a part of a schema, or of a value, as an error shows it."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
