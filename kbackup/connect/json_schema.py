"""The JSON Schema with which values of a Kafka Connect schema are written.

Source: schema-registry, ``JsonSchemaData``.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from kbackup.connect import json_text, json_values
from kbackup.connect.json_text import JsonStyle
from kbackup.connect.json_values import JsonForm
from kbackup.connect.schema import DECIMAL, ConnectSchema, Type

ENUM: Final = "io.confluent.connect.json.Enum"
"""Parameter that marks a string as an enum; with ``.VALUE`` appended, one for each value."""

UNION: Final = "io.confluent.connect.json.OneOf"
"""Name of the struct that represents a choice between several schemas."""

FORM: Final = JsonForm(has_entries=True, union=UNION)
"""How values with a JSON Schema are represented in JSON."""

CONNECT_TYPES: Final = {
    "int8": Type.INT8,
    "int16": Type.INT16,
    "int32": Type.INT32,
    "int64": Type.INT64,
    "float32": Type.FLOAT32,
    "float64": Type.FLOAT64,
    "bytes": Type.BYTES,
}
"""Connect's types by their names in ``connect.type``."""

_NAMES: Final = {kind: name for name, kind in CONNECT_TYPES.items()}
_OWN: Final = "io.confluent.connect.json"


@dataclass(frozen=True, slots=True)
class JsonSchemaStyle:
    """The configuration of JSON Schemas.

    Attributes:
        optional_unless_required: ``use.optional.for.nonrequired``: a property that is not among
            the required ones may be null or absent.
        additional: ``object.additional.properties``: schemas that are written allow properties
            that they do not name.
    """

    optional_unless_required: bool = False
    additional: bool = True


def to_json_schema(schema: ConnectSchema, style: JsonSchemaStyle | None = None) -> Any:
    """Return the JSON Schema with which values of *schema* are written, as JSON."""
    return _written(schema, style or JsonSchemaStyle(), None)


def _written(schema: ConnectSchema, style: JsonSchemaStyle, index: int | None) -> dict[str, Any]:
    place = {} if index is None else {"connect.index": index}
    if schema.type is Type.STRUCT and schema.name == UNION:
        kinds: list[Any] = [{"type": "null"}] if schema.optional else []
        kinds += [_written(replace(each, optional=False), style, at)
                  for at, (_, each) in enumerate(schema.fields)]  # fmt: skip
        return {"oneOf": kinds, **place}
    if schema.optional:
        plain = _written(replace(schema, optional=False), style, None)
        return {"oneOf": [{"type": "null"}, plain], **place}
    return {**_kind(schema, style), **_about(schema), **place}


def _kind(schema: ConnectSchema, style: JsonSchemaStyle) -> dict[str, Any]:
    match schema.type:
        case Type.BOOLEAN:
            return {"type": "boolean"}
        case Type.STRING:
            if schema.parameter(ENUM) is None:
                return {"type": "string"}
            prefix = f"{ENUM}."
            return {"enum": [text for name, text in schema.parameters if name.startswith(prefix)]}
        case Type.BYTES:
            kind = "number" if schema.logical == DECIMAL else "string"
            return {"type": kind, "connect.type": "bytes"}
        case Type.ARRAY:
            return {"type": "array", "items": _written(schema.items, style, None)}
        case Type.MAP:
            return _map_kind(schema, style)
        case Type.STRUCT:
            properties = {
                name: _written(each, style, at) for at, (name, each) in enumerate(schema.fields)
            }
            closed = {} if style.additional else {"additionalProperties": False}
            return {"type": "object", "properties": properties, **closed}
    kind = "integer" if schema.bits is not None else "number"
    return {"type": kind, "connect.type": _NAMES[schema.type]}


def _map_kind(schema: ConnectSchema, style: JsonSchemaStyle) -> dict[str, Any]:
    value = _written(schema.items, style, None)
    if schema.keys.type is Type.STRING and not schema.keys.optional:
        return {"type": "object", "additionalProperties": value, "connect.type": "map"}
    pair = {
        "key": _written(schema.keys, style, 0),
        "value": _written(schema.items, style, 1),
    }
    entry = {"type": "object", "properties": pair}
    return {"type": "array", "items": entry, "connect.type": "map"}


def _about(schema: ConnectSchema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if schema.name is not None:
        found["title"] = schema.name
    if schema.version is not None:
        found["connect.version"] = schema.version
    if schema.doc is not None:
        found["description"] = schema.doc
    parameters = {name: text for name, text in schema.parameters if not name.startswith(_OWN)}
    if parameters:
        found["connect.parameters"] = parameters
    if schema.default is not None:
        found["default"] = _written_default(schema)
    return found


def _written_default(schema: ConnectSchema) -> Any:
    """Return the default of *schema* in the form of its JSON Schema's values."""
    plain = replace(schema, default=None, optional=False)
    found = json_values.column([json_values.default_of(schema)], plain)
    return json.loads(json_text.encode(found, plain, JsonStyle(form=FORM))[0].as_py())


def shown(value: Any) -> str:
    """Return a part of a schema as an error shows it."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
