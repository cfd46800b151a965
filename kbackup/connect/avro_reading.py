"""Read Avro schemas and datums as Connect schemas and columns, as ``AvroData`` does.

The way back is in `avro_writing`.

Source: schema-registry, ``AvroData``, restated in ``connect-compat`` section 3.2, and objects that
the connector wrote.

fastavro is imported where it is used: a run asks every format what it reads, and few read Avro.
"""

import base64
import io
import itertools
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from kbackup.connect import avro_walk
from kbackup.connect.json_values import column_of
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
from kbackup.errors import counted, form

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
    return _AvroReading().schema(found, "")


def branch_name(found: Any) -> str:
    """Return the name of the field that holds values of one type of a union.

    As in ``AvroData`` without ``enhanced.avro.schema.support``: a type's own name without its
    namespace, for types that have one.
    """
    if isinstance(found, str):
        return found.rpartition(".")[2]
    is_named = found["type"] in avro_walk.NAMED
    return branch_name(found["name" if is_named else "type"])


@dataclass(slots=True)
class _AvroReading:
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
        if kind in avro_walk.NAMED:
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
        for full in avro_walk.full_names(name, namespace):
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
        before, full = self.types, avro_walk.full_name(found, namespace)
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
        # as for the connectors, a union with null has no default but connect.default
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
        raise ValueError(f"the default {text!r} is not bytes in Avro") from None


_SYNC: Final = bytes(16)
_CORRUPT: Final = (
    EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error,
    StopIteration,
)  # fmt: skip
"""What fastavro raises for bytes that are not datums of the schema."""


def connect_schema(text: str) -> ConnectSchema:
    """Return the schema of Connect for an Avro schema in JSON; ``ValueError`` if there is none."""
    return _reading(text)[1]


def decode_avro(data: bytes, count: int, text: str) -> pa.Array:
    """Return *count* consecutive datums as a column with the `connect_schema` of *text*.

    `avro_walk.check_block` has found nothing wrong with *data*.

    Raises:
        ValueError: If *data* is not *count* datums of the schema, or the schema has no column.
    """
    import fastavro  # noqa: PLC0415

    header, schema, convert, _ = _reading(text)
    block = b"".join([header, long(count), long(len(data)), data, _SYNC])
    file = io.BytesIO(block)
    # 3.9 us per record of 8 fields, including Arrow
    try:
        whole: Any = next(fastavro.block_reader(file))
        rows = [*whole]
    except _CORRUPT as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if left := len(data) - whole.bytes_.tell():
        text = f"{counted(left, 'byte')} {form(left, 'is', 'are')} left after the last one"
        raise ValueError(text)
    return pa.array(rows if convert is None else map(convert, rows), schema.arrow())


def decode_each_avro(datums: pa.BinaryArray, text: str) -> tuple[pa.Array, dict[int, str]]:
    """Return each row of *datums*, one datum or null, as a row of a column.

    While `decode_avro` trusts a file's blocks, this checks the end of each datum: a value that is
    truncated, or followed by something else, does not shift those after it.

    Returns:
        The column, null where a datum is not a value of the schema; and the reasons, by row.

    Raises:
        ValueError: If the schema has no column.
    """
    import fastavro  # noqa: PLC0415

    _, schema, convert, parsed = _reading(text)
    rows: list[Any] = []
    bad = avro_walk.wrong(datums, text)
    read, file = fastavro.schemaless_reader, io.BytesIO
    # 5.6 us per record of 8 fields, including Arrow, which cannot read Avro
    for at, datum in enumerate(datums.to_pylist()):
        row = None
        if datum is not None and at not in bad:
            body = file(datum)
            try:
                row = read(body, parsed, None)
            except _CORRUPT as error:
                bad[at] = f"{type(error).__name__}: {error}".rstrip(": ")
            else:
                if (left := len(datum) - body.tell()) > 0:
                    row = None
                    bad[at] = f"{counted(left, 'byte')} {form(left, 'is', 'are')} left after it"
        rows.append(row)
    made = rows if convert is None else [None if row is None else convert(row) for row in rows]
    return column_of(made, schema.arrow(), bad)


def long(number: int) -> bytes:
    """Return an integer in Avro's variable-length encoding."""
    left = number << 1 if number >= 0 else ~(number << 1)
    found = bytearray()
    while left > 127:
        found.append(left & 127 | 128)
        left >>= 7
    found.append(left)
    return bytes(found)


@lru_cache(100)
def _reading(text: str) -> tuple[bytes, ConnectSchema, Callable[[Any], Any] | None, Any]:
    """Return a file's header, the schema, what turns a datum into a row, and fastavro's schema."""
    import fastavro  # noqa: PLC0415

    try:
        found = json.loads(text)
        schema = from_avro(found)
        plain = json.dumps(_as_stored(found))
        parsed = fastavro.parse_schema(json.loads(plain))
    except ValueError:
        raise
    except (
        KeyError, TypeError, AttributeError, RecursionError, fastavro.schema.SchemaParseException
    ) as error:  # fmt: skip
        raise ValueError(f"not an Avro schema: {error}") from error
    file = io.BytesIO()
    fastavro.writer(file, json.loads(plain), [], sync_marker=_SYNC)
    return file.getvalue(), schema, _row(schema), parsed


def _as_stored(found: Any) -> Any:
    """Return *found* changed so that values are read as they are stored: no logical types."""
    # a branch of a union is a record with one field, which is encoded alike and names it
    return _stored(found, itertools.count())


def _stored(found: Any, numbers: Iterator[int]) -> Any:
    if isinstance(found, list):
        kinds = [_stored(each, numbers) for each in found]
        if sum(kind != "null" for kind in kinds) < 2:
            return kinds
        return [kind if kind == "null" else _branch(kind, next(numbers)) for kind in kinds]
    if isinstance(found, dict):
        kept = {name: value for name, value in found.items() if name != "logicalType"}
        for name in ("type", "items", "values"):
            if name in kept:
                kept[name] = _stored(kept[name], numbers)
        if "fields" in kept:
            kept["fields"] = [_stored(each, numbers) for each in kept["fields"]]
        return kept
    return found


def _branch(kind: Any, number: int) -> dict[str, Any]:
    fields = [{"name": branch_name(kind), "type": kind}]
    return {"type": "record", "name": f"kbackup_branch_{number}", "fields": fields}


def _row(schema: ConnectSchema) -> Callable[[Any], Any] | None:
    """Return what turns fastavro's value into one that Arrow accepts, None if not needed."""
    if schema.type is Type.STRUCT:
        parts = [(name, _row(field)) for name, field in schema.fields]
        changed = [(name, change) for name, change in parts if change is not None]
        if not changed:
            return None

        def struct_row(value: Any) -> Any:
            if value is None:
                return None
            return value | {name: change(value[name]) for name, change in changed if name in value}

        return struct_row
    if schema.type is Type.ARRAY:
        change = _row(schema.items)
        if change is None:
            return None
        return lambda value: None if value is None else [change(item) for item in value]
    if schema.type is Type.MAP:
        return _map_row(schema)
    return None


def _map_row(schema: ConnectSchema) -> Callable[[Any], Any]:
    """Avro's maps, and the arrays of entries that represent maps whose keys are not plain text."""
    key_of = _row(schema.keys) or _same
    value_of = _row(schema.items) or _same

    def map_row(value: Any) -> Any:
        if value is None:
            return None
        pairs = value.items() if isinstance(value, dict) else (tuple(v.values()) for v in value)
        return [(key_of(key), value_of(item)) for key, item in pairs]

    return map_row


def _same(value: Any) -> Any:
    return value


_PLAIN: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string", "record", "enum",
     "fixed", "array", "map", "error", "union"),
)  # fmt: skip


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


def united(text: str, imports: Sequence[str]) -> str:
    """Return the Avro schema *text* with each type of *imports* expanded where it is first used."""
    if not imports:
        return text
    known: dict[str, Any] = {}
    for each in imports:
        _note(json.loads(each), "", known)
    return json.dumps(_Writing(known).schema(json.loads(text), ""), separators=(",", ":"))


@dataclass(slots=True)
class _Writing:
    """One schema being expanded."""

    known: Mapping[str, Any]
    written: set[str] = field(default_factory=set)

    def schema(self, found: Any, namespace: str) -> Any:
        if isinstance(found, list):
            return [self.schema(branch, namespace) for branch in found]
        if isinstance(found, str):
            return self._name(found, namespace)
        if not isinstance(found, dict):
            return found
        inner = namespace
        if found.get("type") in avro_walk.NAMED:
            full = avro_walk.full_name(found, namespace)
            self.written.add(full)
            inner = full.rpartition(".")[0]
        made = dict(found)
        for name in ("type", "items", "values"):
            if name in found:
                made[name] = self.schema(found[name], inner)
        if isinstance(found.get("fields"), list):
            made["fields"] = [
                {**each, "type": self.schema(each.get("type"), inner)} for each in found["fields"]
            ]
        return made

    def _name(self, name: str, namespace: str) -> Any:
        if name in _PLAIN:
            return name
        for full in avro_walk.full_names(name, namespace):
            if full in self.written:
                return full
            if full in self.known:
                definition = dict(self.known[full])
                space, _, definition["name"] = full.rpartition(".")
                definition["namespace"] = space
                return self.schema(definition, space)
        return name


def _note(found: Any, namespace: str, known: dict[str, Any]) -> None:
    """Add the named types in *found*."""
    if isinstance(found, list):
        for branch in found:
            _note(branch, namespace, known)
    if not isinstance(found, dict):
        return
    if found.get("type") in avro_walk.NAMED:
        full = avro_walk.full_name(found, namespace)
        known.setdefault(full, found)
        namespace = full.rpartition(".")[0]
    for name in ("type", "items", "values"):
        _note(found.get(name), namespace, known)
    for each in found.get("fields") or ():
        _note(each.get("type"), namespace, known)
