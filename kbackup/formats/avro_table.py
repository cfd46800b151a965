"""What an Avro file is to the engines that read tables."""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from kbackup.table_parts import Column, not_a_table, struct, text

_CONTAINER: Final = "org.apache.hadoop.hive.ql.io.avro.AvroContainer{}Format"

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


_TEXT_MOST: Final = 2**20
"""The longest text of one column: types that hold others by name, and those others, double it."""


def columns(schema: Any) -> tuple[Column, ...]:
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
            if sum(len(name) + len(kind) for name, kind in fields) > _TEXT_MOST:
                raise not_a_table("its schema grows beyond all measure")
            return struct(fields)
        case "array":
            return f"array<{_of_avro(schema['items'], named)}>"
        case "map":
            return f"map<string,{_of_avro(schema['values'], named)}>"
        case "enum" | "fixed":
            _remember(schema, named)
    return _of_avro(schema["type"], named)


def stored_as(schema: dict[str, Any], _engine: str, away: Collection[str]) -> tuple[str, ...]:
    """Return the lines that give *schema* to Athena or Hive, without the fields in *away*."""
    kept = [one for one in schema["fields"] if one["name"].lower() not in away]
    literal = json.dumps({**schema, "fields": kept}, separators=(",", ":"))
    return (
        "ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.avro.AvroSerDe'",
        f"WITH SERDEPROPERTIES ('avro.schema.literal' = {text(literal)})",
        f"STORED AS INPUTFORMAT '{_CONTAINER.format('Input')}'",
        f"OUTPUTFORMAT '{_CONTAINER.format('Output')}'",
    )
