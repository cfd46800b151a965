"""From a Connect schema to the Avro schema of its file, as in ``AvroData``.

The way back is in `avro_schema_reading`.

Source: schema-registry, ``AvroData``, restated in ``connect-compat`` section 3.2, and objects that
the connector wrote.
"""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kbackup.connect.schema import DATE, DECIMAL, ENUM, TIME, TIMESTAMP, UNION, ConnectSchema, Type

MAP_ENTRY: Final = "MapEntry"
FIXED_NAME: Final = "connect.fixed.name"
"""Ours: the name of the ``fixed`` that a Decimal is stored as; the Decimal has one of its own."""
PRECISION: Final = "connect.decimal.precision"
NAMESPACE: Final = "io.confluent.connect.avro"
DEFAULT_NAME: Final = "ConnectDefault"
RECORD_DOC: Final = f"{NAMESPACE}.record.doc"
FIELD_DOC: Final = f"{NAMESPACE}.field.doc."
ENUM_DOC: Final = f"{NAMESPACE}.enum.doc."
ENUM_DEFAULT: Final = f"{NAMESPACE}.enum.default."
FIELD_DEFAULT: Final = f"{NAMESPACE}.field.default"
"""Parameter of a schema whose default is that of its field in Avro."""
KEPT: Final = "avro."
"""How attributes of Avro's types begin that Connect's schemas keep, such as avro.java.string."""
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
_LOGICAL: Final = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis"}


@dataclass(frozen=True, slots=True)
class AvroStyle:
    """The configuration of Avro schemas.

    Attributes:
        connect_meta: ``connect.meta.data``: keep what only Connect knows in ``connect.*``.
        enhanced: ``enhanced.avro.schema.support``: enums are enums again.
        optional_keys: ``allow.optional.map.keys``: maps with optional text keys are maps.
        fills_defaults: A field that is null is written as its default, where there is one; not
            so with ``ignore.default.for.nullables``.
    """

    connect_meta: bool = True
    enhanced: bool = True
    optional_keys: bool = False
    fills_defaults: bool = True

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
        if schema.name == UNION and schema.type is Type.STRUCT:
            branches = [self._base(field) for _, field in schema.fields]
            return ["null", *branches] if schema.optional else branches
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
            found |= {"type": "record", **_named(name), **_prose("doc", schema, RECORD_DOC)}
            found["fields"] = [
                self._field(each, field) | _prose("doc", schema, FIELD_DOC + each)
                for each, field in schema.fields
            ]
        elif symbols is not None:
            name = schema.parameter(ENUM) or ""
            if self._is_known(name, schema):
                return name
            simple = name.rpartition(".")[2]
            found |= {"type": "enum", **_named(name), **_prose("doc", schema, ENUM_DOC + simple)}
            found |= {"symbols": symbols, **_prose("default", schema, ENUM_DEFAULT + simple)}
        elif schema.fixed_size is not None:
            name = schema.parameter(FIXED_NAME) or schema.name or self._default_name()
            if self._is_known(name, schema):
                return name
            found |= {"type": "fixed", **_named(name), "size": schema.fixed_size}
        elif schema.type is Type.ARRAY:
            found |= {"type": "array", "items": self.schema(schema.items)}
        elif schema.type is Type.MAP:
            found |= self._map(schema)
        else:
            found["type"] = _PRIMITIVES[schema.type]
        found |= self._logical(schema)
        found |= {name: text for name, text in schema.parameters if name.startswith(KEPT)}
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
        if schema.default is not None:
            found["default"] = _default_of(schema)
        elif schema.optional:
            found["default"] = None
        return found

    def _map(self, schema: ConnectSchema) -> dict[str, Any]:
        if not self.style.has_entries(schema):
            return {"type": "map", "values": self.schema(schema.items)}
        name = schema.name or f"{NAMESPACE}.{MAP_ENTRY}"
        if schema.name is None and self.named.get(name, _bare(schema)) != _bare(schema):
            self.unnamed += 1
            name += str(self.unnamed + 1)
        entry: Any = name
        if not self._is_known(name, schema):
            entry = {"type": "record", **_named(name)}
            entry["fields"] = [self._field("key", schema.keys), self._field("value", schema.items)]
            if name != f"{NAMESPACE}.{MAP_ENTRY}":
                entry["connect.internal.type"] = MAP_ENTRY
        return {"type": "array", "items": entry}

    def _logical(self, schema: ConnectSchema) -> dict[str, Any]:
        if schema.logical == DECIMAL:
            precision = int(schema.parameter(PRECISION) or 64)
            return {"logicalType": "decimal", "precision": precision, "scale": schema.scale}
        logical = _LOGICAL.get(schema.logical or "")
        return {} if logical is None else {"logicalType": logical}

    def _default_name(self) -> str:
        self.unnamed += 1
        number = "" if self.unnamed == 1 else str(self.unnamed)
        return f"{NAMESPACE}.{DEFAULT_NAME}{number}"


def _bare(schema: ConnectSchema) -> ConnectSchema:
    rest = tuple(pair for pair in schema.parameters if pair[0] != FIELD_DEFAULT)
    return replace(schema, optional=False, default=None, parameters=rest)


def _prose(attribute: str, schema: ConnectSchema, parameter: str) -> dict[str, str]:
    """Return an attribute that a parameter of *schema* holds; nothing if it has none."""
    text = schema.parameter(parameter)
    return {} if text is None else {attribute: text}


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
    parameters = dict(schema.parameters)
    is_of_field = parameters.pop(FIELD_DEFAULT, None) is not None
    if parameters:
        found["connect.parameters"] = parameters
    if schema.default is not None and not is_of_field:
        found["connect.default"] = _default_of(schema)
    if schema.name is not None:
        found["connect.name"] = schema.name
    return found


def _default_of(schema: ConnectSchema) -> Any:
    """Return the default of *schema* as Avro has it."""
    found = recoded(json.loads(schema.default or ""), schema, _latin)
    return next(iter(found.values())) if schema.name == UNION else found


def recoded(value: Any, schema: ConnectSchema, bytes_of: Callable[[str], str]) -> Any:
    """Return *value* with the text of each value of bytes changed."""
    if isinstance(value, str) and schema.type is Type.BYTES:
        return bytes_of(value)
    if isinstance(value, list) and schema.type is Type.ARRAY:
        return [recoded(item, schema.items, bytes_of) for item in value]
    if isinstance(value, dict) and schema.type is Type.MAP:
        return {key: recoded(item, schema.items, bytes_of) for key, item in value.items()}
    if isinstance(value, dict) and schema.type is Type.STRUCT:
        fields = dict(schema.fields)
        return {
            name: recoded(each, fields[name], bytes_of) if name in fields else each
            for name, each in value.items()
        }
    return value


def _latin(text: str) -> str:
    return base64.b64decode(text).decode("latin-1")
