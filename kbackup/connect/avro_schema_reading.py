"""From the Avro schema of a file to a Connect schema, as in ``AvroData``.

The way back is in `avro_schema`.

Source: schema-registry, ``AvroData``, restated in ``connect-compat`` section 3.2, and objects that
the connector wrote.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kbackup.connect.avro_schema import (
    DEFAULT_NAME,
    ENUM_DEFAULT,
    ENUM_DOC,
    FIELD_DEFAULT,
    FIELD_DOC,
    FIXED_NAME,
    KEPT,
    MAP_ENTRY,
    NAMESPACE,
    PRECISION,
    RECORD_DOC,
    recoded,
)
from kbackup.connect.schema import (
    DATE,
    DECIMAL,
    ENUM,
    FIXED_SIZE,
    TIME,
    TIMESTAMP,
    UNION,
    ConnectSchema,
    Type,
)

_BACK: Final = {
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
    "bytes": Type.BYTES,
}
_LOGICAL_BACK: Final = {
    ("int", "date"): DATE,
    ("int", "time-millis"): TIME,
    ("long", "timestamp-millis"): TIMESTAMP,
}


TYPES_MOST: Final = 100_000
"""The types of a schema in which each name is replaced by what it stands for."""


def from_avro(found: Any) -> ConnectSchema:
    """Return the Connect schema that corresponds to an Avro schema.

    Raises:
        ValueError: If there is none, for example for a recursive type, or it has more than
            `TYPES_MOST` types: a name in two places doubles what it stands for.
    """
    return _Reading().schema(found, "")


def branch_name(found: Any) -> str:
    """Return the name of the field that holds values of one type of a union.

    As in ``AvroData`` without ``enhanced.avro.schema.support``: a type's own name without its
    namespace, for types that have one.
    """
    if isinstance(found, str):
        return found.rpartition(".")[2]
    is_named = found["type"] in ("record", "enum", "fixed")
    return branch_name(found["name" if is_named else "type"])


@dataclass(slots=True)
class _Reading:
    """One Avro schema being read."""

    named: dict[str, ConnectSchema] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    types: int = 0

    def schema(self, found: Any, namespace: str) -> ConnectSchema:
        self._count(1)
        if isinstance(found, list):
            return self._union(found, namespace)
        if isinstance(found, str):
            if found in _BACK:
                return ConnectSchema(_BACK[found])
            return self._known(found, namespace)
        kind = found.get("type")
        if isinstance(kind, (list, dict)):
            return self.schema(kind, namespace)
        if kind in ("record", "enum", "fixed"):
            return self._named(found, kind, namespace)
        if kind == "array":
            return self._array(found, namespace)
        if kind == "map":
            key = ConnectSchema(Type.STRING)
            value = self.schema(found["values"], namespace)
            return _described(ConnectSchema(Type.MAP, key=key, value=value), found)
        if kind in _BACK:
            return _described(_logical(ConnectSchema(_BACK[kind]), found), found)
        if isinstance(kind, str):
            return self._known(kind, namespace)
        raise ValueError(f"an Avro schema has no type {kind!r}")

    def _known(self, name: str, namespace: str) -> ConnectSchema:
        for full in (f"{namespace}.{name}" if namespace and "." not in name else name, name):
            if full in self.begun:
                raise ValueError(f"{full} contains itself, and no column is as deep as its values")
            if full in self.named:
                self._count(self.sizes[full])
                return self.named[full]
        raise ValueError(f"an Avro schema has no type {name!r}")

    def _count(self, types: int) -> None:
        self.types += types
        if self.types > TYPES_MOST:
            raise ValueError(f"it has more than {TYPES_MOST} types, names replaced by their types")

    def _named(self, found: Mapping[str, Any], kind: str, namespace: str) -> ConnectSchema:
        simple: str = found["name"]
        before = self.types
        own: str = found.get("namespace", namespace)
        full = simple if "." in simple or not own else f"{own}.{simple}"
        inner = full.rpartition(".")[0]
        name = None if full.startswith(f"{NAMESPACE}.{DEFAULT_NAME}") else full
        pairs: dict[str, str] = {}
        if kind == "enum":
            simple = full.rpartition(".")[2]
            for attribute, parameter in (("doc", ENUM_DOC), ("default", ENUM_DEFAULT)):
                if found.get(attribute) is not None:
                    pairs[parameter + simple] = found[attribute]
            pairs |= {ENUM: full} | {f"{ENUM}.{symbol}": symbol for symbol in found["symbols"]}
            schema = ConnectSchema(Type.STRING, name=full, parameters=tuple(pairs.items()))
        elif kind == "fixed":
            if type(found["size"]) is not int or found["size"] < 0:
                raise ValueError(f"{full} has a size of {found['size']!r}")
            size = ((FIXED_SIZE, str(found["size"])),)
            schema = _logical(ConnectSchema(Type.BYTES, name=name, parameters=size), found)
            if schema.name != name and name is not None:
                schema = replace(schema, parameters=(*schema.parameters, (FIXED_NAME, name)))
        else:
            self.begun.add(full)
            fields = tuple((each["name"], self._field(each, inner)) for each in found["fields"])
            self.begun.discard(full)
            for parameter, each in [(RECORD_DOC, found)] + [
                (FIELD_DOC + each["name"], each) for each in found["fields"]
            ]:
                if each.get("doc") is not None:
                    pairs[parameter] = each["doc"]
            parameters = tuple(pairs.items())
            schema = ConnectSchema(Type.STRUCT, name=name, parameters=parameters, fields=fields)
        schema = _described(schema, found)
        self.named[full] = schema
        self.sizes[full] = self.types - before
        return schema

    def _field(self, found: Mapping[str, Any], namespace: str) -> ConnectSchema:
        """Return the schema of a field.

        As for the connectors, a union with null has no default but ``connect.default``: a value
        that is null stays null.
        """
        schema = self.schema(found["type"], namespace)
        if found.get("default") is None or schema.default is not None or schema.optional:
            return schema
        parameters = (*schema.parameters, (FIELD_DEFAULT, "true"))
        default = found["default"]
        if schema.name == UNION:  # an Avro default is of the first branch
            default = {schema.fields[0][0]: default}
        default = _default_from(default, schema)
        return replace(schema, parameters=parameters, default=default)

    def _array(self, found: Mapping[str, Any], namespace: str) -> ConnectSchema:
        items = found["items"]
        schema = self.schema(items, namespace)
        is_entry = isinstance(items, dict) and (
            items.get("connect.internal.type") == MAP_ENTRY
            or (items.get("name") == MAP_ENTRY and items.get("namespace") == NAMESPACE)
        )
        if is_entry and [name for name, _ in schema.fields] == ["key", "value"]:
            key, value = (each for _, each in schema.fields)
            return _described(ConnectSchema(Type.MAP, key=key, value=value), found)
        return _described(ConnectSchema(Type.ARRAY, value=schema), found)

    def _union(self, branches: list[Any], namespace: str) -> ConnectSchema:
        kinds = [branch for branch in branches if branch != "null"]
        if len(kinds) == 1:
            schema = self.schema(kinds[0], namespace)
            return schema.as_optional() if len(kinds) < len(branches) else schema
        names = [*map(branch_name, kinds)]
        if len({*names}) < len(names):
            raise ValueError(f"two types of a union are called {max(names, key=names.count)}")
        fields = [self.schema(kind, namespace).as_optional() for kind in kinds]
        pairs = tuple(zip(names, fields, strict=True))
        return ConnectSchema(Type.STRUCT, len(kinds) < len(branches), UNION, fields=pairs)


def _logical(schema: ConnectSchema, found: Mapping[str, Any]) -> ConnectSchema:
    logical = found.get("logicalType")
    if logical == "decimal" and schema.type is Type.BYTES:
        pairs = [("scale", str(found.get("scale", 0)))]
        if found.get("precision", 64) != 64:
            pairs.insert(0, (PRECISION, str(found["precision"])))
        parameters = (*pairs, *schema.parameters)
        return replace(schema, name=DECIMAL, version=1, parameters=parameters)
    name = _LOGICAL_BACK.get((found.get("type", ""), str(logical)))
    return schema if name is None else replace(schema, name=name, version=1)


def _described(schema: ConnectSchema, found: Mapping[str, Any]) -> ConnectSchema:
    """Return *schema* with what its writer stored in ``connect.*``."""
    more: dict[str, Any] = {}
    if schema.type is Type.INT32 and found.get("connect.type") in ("int8", "int16"):
        more["type"] = Type(found["connect.type"])
    for name in ("name", "version", "doc"):
        if f"connect.{name}" in found:
            more[name] = found[f"connect.{name}"]
    kept = {name: value for name, value in found.items() if name.startswith(KEPT)}
    if kept or "connect.parameters" in found:
        pairs = dict(schema.parameters) | dict(found.get("connect.parameters", {})) | kept
        more["parameters"] = tuple((name, str(text)) for name, text in pairs.items())
    schema = replace(schema, **more) if more else schema
    if found.get("connect.default") is not None:
        schema = replace(schema, default=_default_from(found["connect.default"], schema))
    return schema


def _default_from(value: Any, schema: ConnectSchema) -> str:
    """Return an Avro default as `ConnectSchema` has it."""
    return json.dumps(recoded(value, schema, _base64), ensure_ascii=False)


def _base64(text: str) -> str:
    try:
        return base64.b64encode(text.encode("latin-1")).decode()
    except UnicodeEncodeError:
        raise ValueError(f"the default {text!r} is no bytes in Avro") from None
