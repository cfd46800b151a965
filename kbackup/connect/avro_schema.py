"""From a Connect schema to the Avro schema of its file, and back, as in ``AvroData``.

Source: schema-registry, ``AvroData``, restated in ``connect-compat`` section 3.2, and objects that
the connector wrote.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kbackup.connect.schema import DATE, DECIMAL, ENUM, TIME, TIMESTAMP, ConnectSchema, Type

UNION: Final = "io.confluent.connect.avro.Union"
"""Name of the struct that represents a union of several types."""

MAP_ENTRY: Final = "MapEntry"
_FIXED_SIZE: Final = "connect.fixed.size"
_PRECISION: Final = "connect.decimal.precision"
_NAMESPACE: Final = "io.confluent.connect.avro"
_DEFAULT_NAME: Final = "ConnectDefault"
_PRIMITIVES: Final = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_BACK: Final = {
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
    "bytes": Type.BYTES,
}
_LOGICAL: Final = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis"}
_LOGICAL_BACK: Final = {
    ("int", "date"): DATE,
    ("int", "time-millis"): TIME,
    ("long", "timestamp-millis"): TIMESTAMP,
}


@dataclass(frozen=True, slots=True)
class AvroStyle:
    """The configuration of Avro schemas.

    Attributes:
        connect_meta: ``connect.meta.data``: keep what only Connect knows in ``connect.*``.
        enhanced: ``enhanced.avro.schema.support``: enums are enums again.
        optional_keys: ``allow.optional.map.keys``: maps with optional text keys are maps.
    """

    connect_meta: bool = True
    enhanced: bool = True
    optional_keys: bool = False

    def has_entries(self, schema: ConnectSchema) -> bool:
        """Whether a map becomes an array of entries, because its keys are not plain text."""
        keys = schema.keys
        return keys.type is not Type.STRING or (keys.optional and not self.optional_keys)

    def symbols(self, schema: ConnectSchema) -> list[str] | None:
        """Return the symbols of an enum, None if *schema* is written as something else."""
        kind = schema.parameter(ENUM)
        if not self.enhanced or kind is None or schema.type is not Type.STRING:
            return None
        return [text for name, text in schema.parameters if name.startswith(ENUM + ".")]


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)


def to_avro(schema: ConnectSchema, style: AvroStyle) -> Any:
    """Return the Avro schema of a file, as JSON.

    Raises:
        ValueError: If Avro has none: for a name with characters other than letters, digits and
            ``_``, or for two types with the same name.
    """
    return _Naming(style).schema(schema)


@dataclass(slots=True)
class _Naming:
    """One Avro schema being built; a named type is defined once, and referred to afterwards."""

    style: AvroStyle
    named: dict[str, ConnectSchema] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    unnamed: int = 0

    def schema(self, schema: ConnectSchema) -> Any:
        """Return *schema*, as a union with null if it is optional."""
        plain = self._base(schema)
        if not schema.optional:
            return plain
        return ["null", plain] if schema.default is None else [plain, "null"]

    def _base(self, schema: ConnectSchema) -> Any:
        found: dict[str, Any] = {}
        symbols = self.style.symbols(schema)
        if schema.type is Type.STRUCT:
            name = schema.name or self._default_name()
            if self._is_known(name, schema):
                return name
            found |= {"type": "record", **_named(name)}
            if schema.doc is not None:
                found["doc"] = schema.doc
            found["fields"] = [self._field(*each) for each in schema.fields]
        elif symbols is not None:
            name = schema.parameter(ENUM) or ""
            if self._is_known(name, schema):
                return name
            found |= {"type": "enum", **_named(name), "symbols": symbols}
        elif schema.type is Type.ARRAY:
            found |= {"type": "array", "items": self.schema(schema.items)}
        elif schema.type is Type.MAP:
            found |= self._map(schema)
        else:
            found["type"] = _PRIMITIVES[schema.type]
        found |= self._logical(schema)
        if self.style.connect_meta:
            found |= _metadata(schema)
        return found["type"] if len(found) == 1 else found

    def _is_known(self, name: str, schema: ConnectSchema) -> bool:
        """Whether the type *name* has been defined; from now on it has."""
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not a name in Avro")
        known = self.named.setdefault(name, _bare(schema))
        if known != _bare(schema):
            raise ValueError(f"two different types are called {name}")
        is_new = name not in self.written
        self.written.add(name)
        return not is_new

    def _field(self, name: str, schema: ConnectSchema) -> dict[str, Any]:
        if _NAME.fullmatch(name) is None or "." in name:
            raise ValueError(f"{name!r} is not the name of a field in Avro")
        found: dict[str, Any] = {"name": name, "type": self.schema(schema)}
        if schema.doc is not None:
            found["doc"] = schema.doc
        if schema.default is not None:
            found["default"] = json.loads(schema.default)
        elif schema.optional:
            found["default"] = None
        return found

    def _map(self, schema: ConnectSchema) -> dict[str, Any]:
        if not self.style.has_entries(schema):
            return {"type": "map", "values": self.schema(schema.items)}
        name = schema.name or f"{_NAMESPACE}.{MAP_ENTRY}"
        if schema.name is None and self.named.get(name, _bare(schema)) != _bare(schema):
            self.unnamed += 1
            name += str(self.unnamed + 1)
        entry: Any = name
        if not self._is_known(name, schema):
            entry = {"type": "record", **_named(name)}
            entry["fields"] = [self._field("key", schema.keys), self._field("value", schema.items)]
            if name != f"{_NAMESPACE}.{MAP_ENTRY}":
                entry["connect.internal.type"] = MAP_ENTRY
        return {"type": "array", "items": entry}

    def _logical(self, schema: ConnectSchema) -> dict[str, Any]:
        if schema.logical == DECIMAL:
            precision = int(schema.parameter(_PRECISION) or 64)
            return {"logicalType": "decimal", "precision": precision, "scale": schema.scale}
        logical = _LOGICAL.get(schema.logical or "")
        return {} if logical is None else {"logicalType": logical}

    def _default_name(self) -> str:
        self.unnamed += 1
        number = "" if self.unnamed == 1 else str(self.unnamed)
        return f"{_NAMESPACE}.{_DEFAULT_NAME}{number}"


def _bare(schema: ConnectSchema) -> ConnectSchema:
    return replace(schema, optional=False, default=None)


def _named(name: str) -> dict[str, str]:
    namespace, _, simple = name.rpartition(".")
    return {"name": simple, "namespace": namespace} if namespace else {"name": simple}


def _metadata(schema: ConnectSchema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if schema.type in (Type.INT8, Type.INT16):
        found["connect.type"] = str(schema.type)
    if schema.doc is not None:
        found["connect.doc"] = schema.doc
    if schema.version is not None:
        found["connect.version"] = schema.version
    if schema.parameters:
        found["connect.parameters"] = dict(schema.parameters)
    if schema.default is not None:
        found["connect.default"] = json.loads(schema.default)
    if schema.name is not None:
        found["connect.name"] = schema.name
    return found


def from_avro(found: Any) -> ConnectSchema:
    """Return the Connect schema that corresponds to an Avro schema.

    Raises:
        ValueError: If there is none, for example for a recursive type.
    """
    return _Reading().schema(found, "")


@dataclass(slots=True)
class _Reading:
    """One Avro schema being read."""

    named: dict[str, ConnectSchema] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)

    def schema(self, found: Any, namespace: str) -> ConnectSchema:
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
                raise ValueError(f"{full} contains itself, which Kafka Connect has no schema for")
            if full in self.named:
                return self.named[full]
        raise ValueError(f"an Avro schema has no type {name!r}")

    def _named(self, found: Mapping[str, Any], kind: str, namespace: str) -> ConnectSchema:
        simple: str = found["name"]
        own: str = found.get("namespace", namespace)
        full = simple if "." in simple or not own else f"{own}.{simple}"
        inner = full.rpartition(".")[0]
        if kind == "enum":
            pairs = {ENUM: full} | {f"{ENUM}.{symbol}": symbol for symbol in found["symbols"]}
            schema = ConnectSchema(Type.STRING, name=full, parameters=tuple(pairs.items()))
            schema = _described(schema, found)
        elif kind == "fixed":
            if type(found["size"]) is not int or found["size"] < 0:
                raise ValueError(f"{full} has a size of {found['size']!r}")
            size = ((_FIXED_SIZE, str(found["size"])),)
            schema = _logical(ConnectSchema(Type.BYTES, name=full, parameters=size), found)
        else:
            self.begun.add(full)
            fields = tuple((each["name"], self._field(each, inner)) for each in found["fields"])
            self.begun.discard(full)
            name = None if full.startswith(f"{_NAMESPACE}.{_DEFAULT_NAME}") else full
            doc = found.get("doc")
            schema = ConnectSchema(Type.STRUCT, name=name, doc=doc, fields=fields)
            schema = _described(schema, found)
        self.named[full] = schema
        return schema

    def _field(self, found: Mapping[str, Any], namespace: str) -> ConnectSchema:
        schema = self.schema(found["type"], namespace)
        if found.get("default") is not None and schema.default is None:
            schema = replace(schema, default=_json(found["default"]))
        if found.get("doc") is not None and schema.doc is None:
            schema = replace(schema, doc=found["doc"])
        return schema

    def _array(self, found: Mapping[str, Any], namespace: str) -> ConnectSchema:
        items = found["items"]
        schema = self.schema(items, namespace)
        is_entry = isinstance(items, dict) and (
            items.get("connect.internal.type") == MAP_ENTRY
            or (items.get("name") == MAP_ENTRY and items.get("namespace") == _NAMESPACE)
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
        raise ValueError("a union of several types has no column")


def _logical(schema: ConnectSchema, found: Mapping[str, Any]) -> ConnectSchema:
    logical = found.get("logicalType")
    if logical == "decimal" and schema.type is Type.BYTES:
        pairs = [("scale", str(found.get("scale", 0)))]
        if found.get("precision", 64) != 64:
            pairs.insert(0, (_PRECISION, str(found["precision"])))
        return replace(schema, name=DECIMAL, version=1, parameters=tuple(pairs))
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
    if "connect.parameters" in found:
        pairs = dict(schema.parameters) | dict(found["connect.parameters"])
        more["parameters"] = tuple((name, str(text)) for name, text in pairs.items())
    if found.get("connect.default") is not None:
        more["default"] = _json(found["connect.default"])
    return replace(schema, **more) if more else schema


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
