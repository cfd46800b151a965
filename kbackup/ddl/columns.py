"""The columns of a table, with Hive's type names, which Athena and Spark accept too."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kbackup.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: The name in the files.
        type: Such as ``bigint`` or ``array<struct<key:string,value:binary>>``.
    """

    name: str
    type: str


_ARROW: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.time32("ms"): "int",
    pa.time64("us"): "bigint",
}


def of_parquet(schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns of a Parquet file."""
    return tuple(Column(field.name, _of_arrow(field.type)) for field in schema)


def _of_arrow(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return f"map<{_of_arrow(kind.key_type)},{_of_arrow(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{_of_arrow(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return _struct((field.name, _of_arrow(field.type)) for field in kind)
    return _plain(kind)


def _plain(kind: pa.DataType) -> str:
    """Return the name of a type that is not nested."""
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    return _ARROW.get(kind, "string")


_AVRO: Final = {
    "null": "string",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}
_AVRO_LOGICAL: Final = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
}


_DIGITS_MOST: Final = 38
"""The most digits of the engines' decimals; a longer one stays bytes."""


def of_avro(schema: Any) -> tuple[Column, ...]:
    """Return the columns of an Avro file.

    Args:
        schema: The file's schema, as parsed JSON.

    Raises:
        ConfigurationError: If its values are not records.
    """
    named: dict[str, Any] = {}
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise not_a_table("its values are no records")
    _remember(schema, named, is_open=True)
    return tuple(Column(one["name"], _of_avro(one["type"], named)) for one in schema["fields"])


def _remember(schema: Mapping[str, Any], named: dict[str, Any], *, is_open: bool = False) -> None:
    """Record a type by its name: it is defined once, and then only referred to.

    While its fields are being read it is *is_open*, and represented by an empty tuple.
    """
    name = str(schema["name"])
    full = name if "." in name else ".".join(filter(None, [schema.get("namespace"), name]))
    named[full] = named[name] = () if is_open else schema


def _of_avro(schema: Any, named: dict[str, Any]) -> str:
    match schema:
        case list():
            kinds = [one for one in schema if one != "null"]
            if len(kinds) != 1:
                raise not_a_table("a field is one of several types")
            return _of_avro(kinds[0], named)
        case str() if named.get(schema) == ():
            raise not_a_table(f"its type {schema} contains itself")
        case str():
            return _of_avro(named[schema], named) if schema in named else _AVRO[schema]
    return _logical(schema) or _complex(schema, named)


def _logical(schema: Mapping[str, Any]) -> str | None:
    logical, precision = schema.get("logicalType"), schema.get("precision", 0)
    if logical == "decimal":
        is_sound = precision <= _DIGITS_MOST
        return f"decimal({precision},{schema.get('scale', 0)})" if is_sound else None
    return None if logical is None else _AVRO_LOGICAL.get(logical)


def _complex(schema: Mapping[str, Any], named: dict[str, Any]) -> str:
    match schema["type"]:
        case "record":
            _remember(schema, named, is_open=True)
            fields = [(one["name"], _of_avro(one["type"], named)) for one in schema["fields"]]
            _remember(schema, named)
            return _struct(fields)
        case "array":
            return f"array<{_of_avro(schema['items'], named)}>"
        case "map":
            return f"map<string,{_of_avro(schema['values'], named)}>"
        case "enum" | "fixed":
            _remember(schema, named)
    return _of_avro(schema["type"], named)


def of_json(lines: Iterable[str]) -> tuple[Column, ...]:
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
    return tuple(Column(name, _of_json(kind)) for name, kind in found.items())


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
            return _struct((name, _of_json(one)) for name, one in kind.items())
        case list():
            return f"array<{_of_json(kind[0])}>"
        case str():
            return kind
    return "string"


def _struct(fields: Iterable[tuple[str, str]]) -> str:
    return f"struct<{','.join(f'{nested(name)}:{kind}' for name, kind in fields)}>"


def nested(name: str) -> str:
    """Return the name of a field in a struct, in backquotes unless it is a plain word."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else quoted(name)


def quoted(name: str) -> str:
    """Return a name in backquotes."""
    return f"`{name.replace('`', '``')}`"


def without(columns: Sequence[Column], names: Iterable[str]) -> tuple[Column, ...]:
    """Return *columns* without those of *names*, ignoring case."""
    away = {name.lower() for name in names}
    return tuple(one for one in columns if one.name.lower() not in away)


def not_a_table(why: str) -> ConfigurationError:
    """Return the error of objects that cannot be a table."""
    return ConfigurationError(
        "the newest object cannot be declared as a table", why,
        "ask it with kbackup restore query, which takes any backup",
    )  # fmt: skip
