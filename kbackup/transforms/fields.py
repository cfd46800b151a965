"""Transforms of fields: what Kafka has of them but for ``Cast`` and ``TimestampConverter``.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms``.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import json_values
from kbackup.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, ConnectSchema, Type
from kbackup.errors import ConfigurationError
from kbackup.java import jackson
from kbackup.options import (
    names,
    optional_text,
    read_integer,
    text,
    verbatim,
    words,
)
from kbackup.transforms import of_kafka
from kbackup.transforms.cast import to_type
from kbackup.transforms.data import (
    REPLACE_NULL,
    Data,
    Records,
    change_json,
    fields_of,
    no_fields,
    on_json,
    on_objects,
    parse_json,
    refused,
    structs,
    without_null,
    write_json,
)

EXCLUDE: Final = names("exclude", "Fields to leave out.", aliases=("blacklist",))
INCLUDE: Final = names("include", "The only fields to keep.", aliases=("whitelist",))
RENAMES: Final = names("renames", "Other names of fields: old:new, separated by commas.")


class ReplaceField:
    """Drops or renames fields; null values stay null."""

    traits: ClassVar = of_kafka("ReplaceField", EXCLUDE, INCLUDE, RENAMES, REPLACE_NULL)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the names."""
        self._side = side
        self._exclude = frozenset(EXCLUDE.of(options))
        self._include = frozenset(INCLUDE.of(options))
        self._fills = REPLACE_NULL.of(options)
        self._names = {}
        for pair in RENAMES.of(options):
            old, colon, new = (part.strip() for part in pair.partition(":"))
            if not (old and colon and new) or ":" in new:
                raise ConfigurationError(
                    f"{pair!r} renames nothing", "expected old:new", "correct renames",
                    property=RENAMES.name,
                )  # fmt: skip
            self._names[old] = new

    def apply(self, records: Records) -> Records:
        """Return the records with the fields that are kept."""
        return on_objects(records, self._side, self._structs, self._object)

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def _structs(self, records: Records, data: Data, schema: ConnectSchema) -> Records:
        columns = data.columns(fills_defaults=self._fills)
        kept = [at for at in schema.fields if self._keeps(at[0])]
        fields = [(self._names.get(name, name), field) for name, field in kept]
        found = data.rebuilt(fields, [columns[name] for name, _ in kept])
        return records.with_side(self._side, found)

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        return {
            self._names.get(name, name): each for name, each in value.items() if self._keeps(name)
        }


FIELD: Final = text("field", "The field.", is_required=True)
SYNTAX: Final = words(
    "field.syntax.version",
    "V1: the name of a field; V2: a path of names, with dots between them, in backquotes where a "
    "name has a dot.",
    ("V1", "V2"), "V1",
)  # fmt: skip
_PATH: Final = re.compile(r"`([^`]+)`(?=\.|\Z)\.?|([^.]+)\.?")


class ExtractField:
    """Replaces the key or the value by one of its fields; null stays null."""

    traits: ClassVar = of_kafka("ExtractField", FIELD, SYNTAX, REPLACE_NULL)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the name, or the path."""
        self._side, self._fills = side, REPLACE_NULL.of(options)
        field = FIELD.of(options)
        path = [match[1] or match[2] for match in _PATH.finditer(field)]
        self._path = path if SYNTAX.of(options) == "V2" else [field]

    def apply(self, records: Records) -> Records:
        """Return the records with only the field."""
        return on_objects(records, self._side, self._structs, self._object)

    def _structs(self, records: Records, data: Data, schema: ConnectSchema) -> Records:
        for name in self._path:
            fields = dict(schema.fields)
            if name not in fields:
                raise ValueError(f"its {self._side} has no field {'.'.join(self._path)!r}")
            columns, schema = data.columns(fills_defaults=self._fills), fields[name]
            data = Data(columns[name], schema)
        return records.with_side(self._side, data)

    def _object(self, value: dict[str, Any]) -> Any:
        found: Any = value
        for name in self._path:
            found = found.get(name) if isinstance(found, dict) else None
        return found


HOISTED: Final = text("field", "Name of the field.", is_required=True)


class HoistField:
    """Wraps the key or the value in an object with one field; null becomes a field too.

    A null is refused if the schema does not allow it: Kafka has no schema for it.
    """

    traits: ClassVar = of_kafka("HoistField", HOISTED)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the name."""
        self._side, self._field = side, HOISTED.of(options)

    def apply(self, records: Records) -> Records:
        """Return the records with objects."""
        data = records.side(self._side)
        if data.schema is None:
            found = [{self._field: value} for value in parse_json(data.values)]
            return records.with_side(self._side, Data(write_json(found), None))
        if not data.schema.optional:
            records = without_null(records, self._side)
            data = records.side(self._side)
        field = (self._field, data.schema or ConnectSchema(Type.STRING, optional=True))
        schema = ConnectSchema(Type.STRUCT, fields=(field,))
        values = pa.StructArray.from_arrays([data.values], fields=list(schema.arrow()))
        return records.with_side(self._side, Data(values, schema))


DELIMITER: Final = verbatim("delimiter", "Separator between the names.", ".")


class Flatten:
    """Flattens nested objects into one level; arrays stay as they are, and null stays null."""

    traits: ClassVar = of_kafka("Flatten", DELIMITER)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the delimiter."""
        self._side, self._delimiter = side, DELIMITER.of(options) or ""

    def apply(self, records: Records) -> Records:
        """Return the flattened records."""
        return on_objects(records, self._side, self._structs, self._object)

    def _structs(self, records: Records, data: Data, schema: ConnectSchema) -> Records:
        found = list(self._fields(data.values, schema, "", is_optional=schema.optional))
        flat = data.rebuilt([(name, field) for name, field, _ in found], [at for _, _, at in found])
        return records.with_side(self._side, flat)

    def _fields(
        self, values: pa.Array, schema: ConnectSchema, prefix: str, *, is_optional: bool
    ) -> Iterator[tuple[str, ConnectSchema, pa.Array]]:
        for column, (name, field) in zip(
            json_values.struct_fields(values, schema), schema.fields, strict=True
        ):
            full, may_lack = f"{prefix}{name}", is_optional or field.optional
            if field.type is Type.STRUCT:
                inner = f"{full}{self._delimiter}"
                yield from self._fields(column, field, inner, is_optional=may_lack)
            elif field.type is Type.MAP:
                raise ValueError(f"its field {full!r} is a map, which has no fields of its own")
            else:
                yield full, replace(field, optional=may_lack), column

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        return dict(self._members(value, ""))

    def _members(self, value: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, each in value.items():
            if isinstance(each, dict):
                yield from self._members(each, f"{prefix}{name}{self._delimiter}")
            else:
                yield f"{prefix}{name}", each


_HOW: Final = "A name that ends with ! is required, one that ends with ? optional, the default."
TOPIC: Final = optional_text("topic.field", f"Field for the topic. {_HOW}")
PARTITION: Final = optional_text("partition.field", "Field for the partition.")
OFFSET: Final = optional_text("offset.field", "Field for the offset.")
TIMESTAMP_FIELD: Final = optional_text("timestamp.field", "Field for the record's timestamp.")
STATIC: Final = optional_text("static.field", "Field for a fixed text.")
STATIC_VALUE: Final = optional_text("static.value", "The fixed text.")

_TYPES: Final = {
    TOPIC.name: ConnectSchema(Type.STRING),
    PARTITION.name: ConnectSchema(Type.INT32),
    OFFSET.name: ConnectSchema(Type.INT64),
    TIMESTAMP_FIELD.name: ConnectSchema(Type.INT64, name=TIMESTAMP, version=1),
    STATIC.name: ConnectSchema(Type.STRING),
}


@dataclass(frozen=True, slots=True)
class _Inserted:
    """One field: its name, its schema, and the option that asked for it."""

    name: str
    schema: ConnectSchema
    of: str


class InsertField:
    """Adds fields about the record; null values stay null."""

    traits: ClassVar = of_kafka(
        "InsertField", TOPIC, PARTITION, OFFSET, TIMESTAMP_FIELD, STATIC, STATIC_VALUE, REPLACE_NULL
    )

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the names of the fields."""
        self._side, self._static = side, STATIC_VALUE.of(options)
        self._fills = REPLACE_NULL.of(options)
        self._fields = []
        for name, schema in _TYPES.items():
            text = options.get(name)
            if text:
                wanted = replace(schema, optional=not text.endswith("!"))
                field = text[:-1] if text[-1] in "!?" else text
                self._fields.append(_Inserted(field, wanted, name))
        if not self._fields:
            raise ConfigurationError(
                "InsertField inserts no field", "none is named", "set timestamp.field, for example"
            )
        if STATIC.of(options) is not None and self._static is None:
            raise ConfigurationError(
                "static.field has no value", "static.value is not given", "add it",
                property=STATIC_VALUE.name,
            )  # fmt: skip

    def apply(self, records: Records) -> Records:
        """Return the records with the new fields after their own."""
        data = records.side(self._side)
        if data.schema is None:
            found = self._appended(records, data)
            return found if found is not None else self._put(records)
        return on_objects(records, self._side, self._structs, dict)

    def _structs(self, records: Records, data: Data, schema: ConnectSchema) -> Records:
        columns = data.columns(fills_defaults=self._fills)
        fields = [*schema.fields]
        values = [*columns.values()]
        for each in self._fields:
            column = self._column(records, each.of)
            if column.null_count and not each.schema.optional:
                raise ValueError(f"it has no timestamp, and {each.name!r} is required")
            fields.append((each.name, each.schema))
            values.append(column)
        return records.with_side(self._side, data.rebuilt(fields, values))

    def _column(self, records: Records, of: str) -> pa.Array:
        """Return the values to insert, a row for each record."""
        if of == TOPIC.name:
            return records.topics.cast(pa.string())
        if of == PARTITION.name:
            return pa.repeat(pa.scalar(records.partition, pa.int32()), len(records))
        if of == OFFSET.name:
            return records.batch["offset"]
        if of == TIMESTAMP_FIELD.name:
            return records.timestamps
        return pa.repeat(pa.scalar(self._static, pa.string()), len(records))

    def _appended(self, records: Records, data: Data) -> Records | None:
        """Return JSON with the fields inserted before its last brace; None if that will not do."""
        # it costs a twentieth of parsing; a value may be no object, or have such a field
        text = data.values.storage
        parts: list[Any] = []
        for each in self._fields:
            column = self._column(records, each.of)
            name = jackson.quote(pa.array([each.name]))[0].as_py()
            if column.null_count:
                return None
            parts += [f"{',' if parts else ''}{name}:", _json(column)]
        escaped = [jackson.quote(pa.array([each.name]))[0].as_py() for each in self._fields]
        is_odd = pc.invert(pc.starts_with(text, "{"))
        for name in escaped:
            is_odd = pc.or_(is_odd, pc.match_substring(text, f"{name}:"))
        if len(set(escaped)) < len(escaped) or pc.any(is_odd).as_py():
            return None
        open_end = pc.binary_slice(text.cast(pa.binary()), 0, -1)
        comma = pc.if_else(pc.equal(text, "{}"), "", ",")
        found = pc.binary_join_element_wise(open_end.cast(pa.string()), comma, *parts, "}", "")
        values = pa.ExtensionArray.from_storage(pa.json_(), found)
        return records.with_side(self._side, Data(values, None))

    def _put(self, records: Records) -> Records:
        """Return JSON with the fields inserted one by one."""
        columns = [(each.name, self._column(records, each.of).to_pylist()) for each in self._fields]
        rows = iter(range(len(records)))
        is_null = records.side(self._side).values.is_null().to_pylist()

        def change(value: Any) -> Any:
            row = next(row for row in rows if not is_null[row])
            return fields_of(value, self._side) | {
                name: column[row] for name, column in columns if column[row] is not None
            }

        return on_json(records, self._side, change)


def _json(column: pa.Array) -> pa.StringArray:
    return jackson.quote(column) if pa.types.is_string(column.type) else column.cast(pa.string())


MASKED: Final = names("fields", "The fields.", is_required=True)
REPLACEMENT: Final = optional_text(
    "replacement", "What replaces their values; default: 0, false, or empty text, list or map."
)
_EMPTY: Final[dict[type, Any]] = {bool: False, int: 0, float: 0.0, str: "", list: [], dict: {}}

_EMPTIES: Final[dict[Type, Any]] = {
    Type.STRING: "", Type.BOOLEAN: False, Type.ARRAY: [], Type.MAP: [],
}  # fmt: skip


class MaskField:
    """Hides the contents of fields; null stays null, and a null value is refused, as in Kafka."""

    traits: ClassVar = of_kafka("MaskField", MASKED, REPLACEMENT, REPLACE_NULL)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the names, and the replacement."""
        self._side, self._fields = side, MASKED.of(options)
        self._replacement, self._fills = REPLACEMENT.of(options), REPLACE_NULL.of(options)

    def apply(self, records: Records) -> Records:
        """Return the records with the fields masked."""
        return on_objects(records, self._side, self._structs, self._object, refuses_null=True)

    def _structs(self, records: Records, data: Data, schema: ConnectSchema) -> Records:
        columns = data.columns(fills_defaults=self._fills)
        for name, field in schema.fields:
            if name in self._fields:
                mask = pa.scalar(self._mask(name, field), field.arrow())
                column = columns[name]
                filled = pa.array([mask.as_py()], column.type)
                rows = pc.if_else(column.is_valid(), 0, pa.scalar(None, pa.int64()))
                columns[name] = filled.take(rows)
        values = structs([*columns.values()], schema, data.values)
        return records.with_side(self._side, Data(values, schema))

    def _mask(self, name: str, field: ConnectSchema) -> Any:
        """Return the replacement of a field's values, as `pyarrow.scalar` accepts it."""
        text = self._replacement
        if field.logical == DECIMAL:
            return _unscaled(text or "0", field.scale)
        if text is None and field.type not in (Type.STRUCT, Type.BYTES):
            return _EMPTIES.get(field.type, 0)
        if text is not None and field.logical not in (DATE, TIME, TIMESTAMP):
            if field.type is Type.STRING:
                return text
            if field.bits is not None or field.type in (Type.FLOAT32, Type.FLOAT64):
                return to_type(text, field.type)
        raise ValueError(
            f"its field {name!r} is of type {field.logical or field.type}, which cannot have "
            "this mask"
        )

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        for name in self._fields:
            value[name] = self._masked(name, value.get(name))
        return value

    def _masked(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        if self._replacement is None:
            return _EMPTY[type(value)]
        if isinstance(value, str):
            return self._replacement
        if isinstance(value, (bool, list, dict)):
            why = f"its field {name!r} is neither text nor a number, so it cannot have this mask"
            raise ValueError(why)  # noqa: TRY004
        return to_type(self._replacement, Type.FLOAT64 if isinstance(value, float) else Type.INT64)


def _unscaled(text: str, scale: int) -> bytes:
    """Return the bytes of a Decimal of this scale."""
    try:
        number = int(Decimal(text).scaleb(scale).to_integral_exact())
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a number") from None
    return json_values.unscaled(number)


KEY_FIELDS: Final = names("fields", "Fields of the value.", is_required=True)


class ValueToKey:
    """Builds the key from fields of the value; a null value is refused, as in Kafka."""

    traits: ClassVar = of_kafka("ValueToKey", KEY_FIELDS, REPLACE_NULL, sides=(), reads=("value",))

    def configure(self, options: Mapping[str, Any], side: str) -> None:  # noqa: ARG002
        """Take the names."""
        self._fields, self._fills = KEY_FIELDS.of(options), REPLACE_NULL.of(options)

    def apply(self, records: Records) -> Records:
        """Return the records with other keys, if keys are stored."""
        records = without_null(records, "value")
        data = records.side("value")
        if data.schema is None:
            return self._json(records, data)
        if not data.is_struct:
            return refused(records, "value", no_fields("value", f"of type {data.schema.type}"))
        known = dict(data.schema.fields)
        missing = [name for name in self._fields if name not in known]
        if missing:
            return refused(records, "value", f"its value has no field {missing[0]!r}")
        fields = tuple((name, known[name]) for name in self._fields)
        schema = ConnectSchema(Type.STRUCT, fields=fields)
        columns = data.columns(fills_defaults=self._fills)
        values = structs([columns[name] for name in self._fields], schema, data.values)
        return _with_key(records, Data(values, schema))

    def _json(self, records: Records, data: Data) -> Records:
        def key(value: Any) -> dict[str, Any]:
            found = fields_of(value, "value")
            return {name: found.get(name) for name in self._fields}

        keys, bad = change_json(data.values, key)
        return _with_key(records, Data(keys, None)).refuse(bad)


def _with_key(records: Records, key: Data) -> Records:
    return records if records.key is None else records.with_side("key", key)


SCHEMA_NAME: Final = optional_text("schema.name", "The schema's name.")
SCHEMA_VERSION: Final = optional_text("schema.version", "The schema's version.", check=read_integer)


class SetSchemaMetadata:
    """Sets the schema's name, version or both; values without a schema are refused."""

    traits: ClassVar = of_kafka("SetSchemaMetadata", SCHEMA_NAME, SCHEMA_VERSION, REPLACE_NULL)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take name and version."""
        self._side, self._name = side, SCHEMA_NAME.of(options)
        version = SCHEMA_VERSION.of(options)
        self._version = None if version is None else int(version)

    def apply(self, records: Records) -> Records:
        """Return the records with the changed schema."""
        data = records.side(self._side)
        if data.schema is None:
            return refused(records, self._side, f"its {self._side} has no schema")
        schema = replace(
            data.schema,
            name=data.schema.name if self._name is None else self._name,
            version=data.schema.version if self._version is None else self._version,
        )
        return records.with_side(self._side, Data(data.values, schema))
