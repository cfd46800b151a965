"""Write a Kafka Connect schema as JSON Schema, and read it back.

Where the connector orders fields by a hash table, we keep the order of the text.

Source: schema-registry, ``JsonSchemaData``, ``JsonSchema``.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote, urljoin

import pyarrow as pa

from kbackup.connect import json_values
from kbackup.connect.json_values import JsonForm, JsonStyle
from kbackup.connect.schema import DECIMAL, ConnectSchema, Type, shown

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
    found = pa.array([json_values.default_of(schema)], plain.arrow())
    return json.loads(json_values.encode_json(found, plain, JsonStyle(form=FORM))[0].as_py())


_OF_OBJECTS: Final = ("properties", "required", "additionalProperties", "patternProperties")
_OF_ARRAYS: Final = ("items", "minItems", "maxItems", "uniqueItems")
_OF_STRINGS: Final = ("minLength", "maxLength", "pattern", "format")
_OF_NUMBERS: Final = ("minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum")
_PROSE: Final = ("title", "description", "default")
_DEPTH_MAX: Final = 100
_PARTS_MAX: Final = 10_000


def from_json_schema(
    text: str, imports: Iterable[tuple[str, str]] = (), style: JsonSchemaStyle | None = None
) -> ConnectSchema:
    """Return the Connect schema that corresponds to a JSON Schema.

    Each of *imports* is name and text of a schema that it refers to.

    Raises:
        ValueError: If it is not a JSON Schema, or Connect has no equivalent, for example for a
            recursive schema.
    """
    return _from_text(text, tuple(imports), style or JsonSchemaStyle())


@lru_cache(1000)
def _from_text(
    text: str, imports: tuple[tuple[str, str], ...], style: JsonSchemaStyle
) -> ConnectSchema:
    reading = _JsonSchemaReading(
        {"": _parsed(text)} | {name: _parsed(more) for name, more in imports}, style
    )
    try:
        return reading.schema(reading.documents[""], "")
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"it is not a JSON Schema: {error}") from None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@dataclass(slots=True)
class _JsonSchemaReading:
    documents: dict[str, Any]  # by name; the schema itself has none
    style: JsonSchemaStyle
    begun: list[int] = field(default_factory=list)  # by identity: no part may contain itself
    parts: int = 0  # references can multiply a short text

    def schema(self, found: Any, document: str, *, optional: bool = False) -> ConnectSchema:
        """Return the schema for *found*, which is a part of *document*."""
        if not isinstance(found, dict) or not found:
            raise ValueError(f"a schema that takes any value, {shown(found)}, has no column")
        name = found.get("title") or "a schema"
        if id(found) in self.begun:
            raise ValueError(f"{name} contains itself, and no column is as deep as its values")
        self.parts += 1
        if len(self.begun) > _DEPTH_MAX or self.parts > _PARTS_MAX:
            raise ValueError(f"{name} is nested too deeply, or has more than {_PARTS_MAX} parts")
        self.begun.append(id(found))
        try:
            return self._begun(found, document, optional)
        finally:
            self.begun.pop()

    def _begun(self, found: dict[str, Any], document: str, optional: bool) -> ConnectSchema:
        if "$ref" in found:
            referred, where = self._referred(found["$ref"], document)
            return self.schema(referred, where, optional=optional)
        if isinstance(found.get("type"), list):
            return self._of_types(found, document, optional)
        if "enum" in found:
            return _described(self._enum(found), found, optional)
        if "allOf" in found:
            return self._all_of(found, document, optional)
        choice = found.get("oneOf", found.get("anyOf"))
        if choice is not None and "properties" not in found:
            return self._one_of(choice, found, document, optional)
        return _described(self._plain(found, document), found, optional)

    def _plain(self, found: dict[str, Any], document: str) -> ConnectSchema:
        given = found.get("connect.type")
        match _type_of(found):
            case "object":
                return self._object(found, document)
            case "array":
                return self._array(found, document)
            case "boolean":
                return ConnectSchema(Type.BOOLEAN)
            case "string":
                return ConnectSchema(Type.BYTES if given == "bytes" else Type.STRING)
            case "integer" | "number" as kind:
                assumed = "int64" if kind == "integer" else "float64"
                if (given or assumed) not in CONNECT_TYPES:
                    raise ValueError(f"connect.type is {shown(given)}, which is not a number's")
                return ConnectSchema(CONNECT_TYPES[given or assumed])
            case kind:
                raise ValueError(f"a schema of type {shown(kind)} has no column")

    def _of_types(self, found: dict[str, Any], document: str, optional: bool) -> ConnectSchema:
        """Read several types as a choice; annotations of the whole do not apply to each."""
        rest = {name: value for name, value in found.items() if name not in ("type", *_PROSE)}
        choice = [{**rest, "type": kind} for kind in found["type"]]
        if len(choice) == 1:
            return self.schema({**found, "type": found["type"][0]}, document, optional=optional)
        if "enum" in found:
            optional = optional or "null" in found["type"]
            return _described(self._enum(found), {}, optional)
        return self._one_of(choice, found, document, optional)

    def _enum(self, found: dict[str, Any]) -> ConnectSchema:
        kind = found.get("type")
        if kind in ("integer", "number", "boolean"):
            return self._plain(found, "")
        values = [each if isinstance(each, str) else json.dumps(each, default=str)
                  for each in found["enum"]]  # fmt: skip
        pairs = {ENUM: ""} | {f"{ENUM}.{value}": value for value in values}
        return ConnectSchema(Type.STRING, parameters=tuple(pairs.items()))

    def _one_of(
        self, choice: list[Any], found: dict[str, Any], document: str, optional: bool
    ) -> ConnectSchema:
        kinds = [each for each in choice if not _is_null(each)]
        is_optional = optional or len(kinds) < len(choice)
        if len(kinds) == 1 and len(choice) == 2:
            return self.schema(kinds[0], document, optional=True)
        fields = tuple(
            (f"{UNION}.field.{at}", self.schema(kind, document, optional=True))
            for at, kind in enumerate(kinds)
        )
        schema = ConnectSchema(Type.STRUCT, name=UNION, fields=fields)
        about = {name: value for name, value in found.items() if name not in ("title", "default")}
        return _described(schema, about, is_optional)

    def _all_of(self, found: dict[str, Any], document: str, optional: bool) -> ConnectSchema:
        properties: dict[str, tuple[Any, str]] = {}
        required: set[str] = set()
        own = {name: value for name, value in found.items() if name != "allOf"}
        parts = [*found["allOf"], own]
        for part in parts:
            self._gather(part, document, properties, required, [])
        if properties:
            return ConnectSchema(
                Type.STRUCT, optional, fields=self._fields(properties, frozenset(required))
            )
        for part in parts:
            if isinstance(part, dict) and (_type_of(part) or part.keys() & _COMPOSED):
                return self.schema(part, document, optional=optional)
        raise ValueError("no part of allOf gives a type")

    def _gather(
        self,
        part: Any,
        document: str,
        properties: dict[str, tuple[Any, str]],
        required: set[str],
        seen: list[int],
    ) -> None:
        """Add the properties of one part of an ``allOf``."""
        if not isinstance(part, dict) or id(part) in seen:
            return
        seen.append(id(part))
        if "$ref" in part:
            referred, where = self._referred(part["$ref"], document)
            self._gather(referred, where, properties, required, seen)
            return
        for each in part.get("allOf", ()):
            self._gather(each, document, properties, required, seen)
        for name, schema in part.get("properties", {}).items():
            properties[name] = (schema, document)
        required.update(part.get("required", ()))

    def _object(self, found: dict[str, Any], document: str) -> ConnectSchema:
        if found.get("connect.type") == "map":
            value = self.schema(found.get("additionalProperties"), document)
            return ConnectSchema(Type.MAP, key=ConnectSchema(Type.STRING), value=value)
        properties = {
            name: (schema, document) for name, schema in found.get("properties", {}).items()
        }
        required = frozenset(found.get("required", ()))
        return ConnectSchema(Type.STRUCT, fields=self._fields(properties, required))

    def _fields(
        self, properties: Mapping[str, tuple[Any, str]], required: frozenset[str]
    ) -> tuple[tuple[str, ConnectSchema], ...]:
        def place(at: int, found: Any) -> int:
            index = found.get("connect.index") if isinstance(found, dict) else None
            return index if isinstance(index, int) else at

        places = [place(at, found) for at, (found, _) in enumerate(properties.values())]
        ordered = sorted(zip(places, properties.items(), strict=True), key=lambda each: each[0])
        fields = []
        for _, (name, (found, document)) in ordered:
            optional = self.style.optional_unless_required and name not in required
            try:
                fields.append((name, self.schema(found, document, optional=optional)))
            except ValueError as problem:
                raise ValueError(f"property {name!r}: {problem}") from None
        return tuple(fields)

    def _array(self, found: dict[str, Any], document: str) -> ConnectSchema:
        items = found.get("items")
        if items is None or isinstance(items, list):
            raise ValueError("an array has no one schema of its elements")
        is_map = found.get("connect.type") == "map" and "properties" in items
        if is_map:
            key, value = (items["properties"][name] for name in ("key", "value"))
            return ConnectSchema(
                Type.MAP, key=self.schema(key, document), value=self.schema(value, document)
            )
        return ConnectSchema(Type.ARRAY, value=self.schema(items, document))

    def _referred(self, reference: Any, document: str) -> tuple[Any, str]:
        """Return the schema that *reference* in *document* refers to, and its document."""
        base, _, pointer = str(reference).partition("#")
        where = self._document(base, document)
        if where is None:
            inner = _identified(self.documents[document], base)
            if inner is None:
                raise ValueError(f"$ref {shown(reference)} is to nothing that is registered")
            return inner, document
        found = self.documents[where]
        for part in filter(None, unquote(pointer).split("/")):
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise ValueError(f"$ref {shown(reference)} is to nothing in its schema")
        return found, where

    def _document(self, base: str, document: str) -> str | None:
        if not base:
            return document
        own = _identifier(self.documents[document])
        full = urljoin(own, base)
        for name, found in self.documents.items():
            if (name and name in (base, full)) or _identifier(found) in (base, full):
                return name
        return None


_COMPOSED: Final = frozenset({"$ref", "oneOf", "anyOf", "allOf", "enum"})


def _type_of(found: Mapping[str, Any]) -> Any:
    """Return the type of *found*, inferred from its other keywords if it has none."""
    if "type" in found:
        return found["type"]
    for kind, words in (
        ("object", _OF_OBJECTS),
        ("array", _OF_ARRAYS),
        ("number", _OF_NUMBERS),
        ("string", _OF_STRINGS),
    ):
        if any(word in found for word in words):
            return kind
    return None


def _is_null(found: Any) -> bool:
    return isinstance(found, dict) and found.get("type") in ("null", ["null"])


def _identifier(found: Any) -> str:
    named = found.get("$id", found.get("id", "")) if isinstance(found, dict) else ""
    return named.removesuffix("#") if isinstance(named, str) else ""


def _identified(found: Any, name: str) -> Any:
    """Return the part of *found* whose ``$id`` is *name*, None if there is none."""
    left = [found]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            if part.get("$id") == name:
                return part
            left += part.values()
        elif isinstance(part, list):
            left += part
    return None


def _described(schema: ConnectSchema, found: Mapping[str, Any], optional: bool) -> ConnectSchema:
    """Return *schema* with the annotations of *found*."""
    more: dict[str, Any] = {"optional": optional}
    if isinstance(title := found.get("title"), str) and schema.name is None:
        more["name"] = title
    if isinstance(version := found.get("connect.version"), int):
        more["version"] = version
    if isinstance(doc := found.get("description"), str):
        more["doc"] = doc
    if isinstance(parameters := found.get("connect.parameters"), dict):
        pairs = dict(schema.parameters) | {name: str(text) for name, text in parameters.items()}
        more["parameters"] = tuple(pairs.items())
    schema = replace(schema, **more)
    default = found.get("default")
    return schema if default is None else replace(schema, default=_default(schema, default))


def _default(schema: ConnectSchema, value: Any) -> str | None:
    """Return a default as ``JsonConverter`` writes it, None if it is not a value of *schema*."""
    plain = replace(schema, default=None, optional=False)
    try:
        found = pa.array([json_values.reader(plain, FORM)(value)], plain.arrow())
    except ValueError:
        return None
    text: str = json_values.encode_json(found, plain)[0].as_py()
    return text
