"""JSON with schemas of a Schema Registry: Confluent's ``JsonSchemaConverter``.

Source: schema-registry, ``JsonSchemaConverter``, ``JsonSchemaData``.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar, Final

import orjson
import pyarrow as pa

from kbackup.connect import json_values, registry
from kbackup.connect import schema as connect
from kbackup.connect.json_schema import (
    FORM,
    JsonSchemaStyle,
    from_json_schema,
    to_json_schema,
)
from kbackup.connect.json_values import InexactError, JsonStyle
from kbackup.connect.registry import IGNORE_DEFAULTS, JSON, RegisteredSchema
from kbackup.connect.registry.framing import framed
from kbackup.connect.schema import ConnectSchema
from kbackup.converters import Traits, registered
from kbackup.converters.avro import SINGLE_UNIONS
from kbackup.converters.json_text import DECIMAL_FORMAT
from kbackup.converters.registered import RequestedSchemas, Under
from kbackup.options import Unsupported, boolean, true
from kbackup.records import Column, Kind, Schema

NOT_REQUIRED: Final = boolean(
    "use.optional.for.nonrequired",
    "Whether a property that its JSON Schema does not list as required may be null or absent; "
    "otherwise a record without it is a bad record.",
    False,
)
ADDITIONAL: Final = boolean(
    "object.additional.properties",
    "Whether JSON Schemas that are registered allow properties that they do not name.",
    True,
    commands="restore",
)

AVRO_NAMES: Final = Unsupported(
    "scrub.invalid.names",
    true,
    "it changes names that Avro does not allow, and this version keeps names",
)
ADDITIONAL_KEPT: Final = Unsupported(
    "preserve.additional.properties",
    true,
    "it keeps properties that the schema does not name, and this version leaves them out",
)
VALIDATION: Final = Unsupported(
    "json.fail.invalid.schema",
    true,
    "it refuses records that break a rule of their JSON Schema, such as a pattern, and this "
    "version checks types only",
)
INDENT: Final = Unsupported(
    "json.indent.output",
    true,
    "it spreads JSON over lines, and this version writes it on one",
    commands="restore",
)

OPTIONS: Final = (
    *registry.OPTIONS, NOT_REQUIRED, ADDITIONAL, DECIMAL_FORMAT,
    SINGLE_UNIONS, AVRO_NAMES, ADDITIONAL_KEPT, VALIDATION, INDENT,
)  # fmt: skip


_DO: Final = (
    f"set {NOT_REQUIRED.name}=true if properties may be absent, choose the converter that fits "
    "what producers write, or keep full records"
)


class JsonSchemaConverter:
    """Columns under schemas of Connect, whose versions are those of the registry."""

    traits: ClassVar = Traits(
        class_names=("JsonSchemaConverter",),
        options=OPTIONS,
        java_package="io.confluent.connect.json",
        gives=frozenset({Kind.TYPED}),
        registers=True,
    )

    def __init__(self) -> None:
        self.asked: RequestedSchemas | None = None
        self._schemas = JsonSchemaStyle()
        self._texts = JsonStyle(form=FORM)

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Set the registry, and how schemas are read and written."""
        self.asked = RequestedSchemas.of(properties)
        self._schemas = JsonSchemaStyle(NOT_REQUIRED.of(properties), ADDITIONAL.of(properties))
        is_numeric = DECIMAL_FORMAT.of(properties) == "numeric"
        form = replace(FORM, fills_defaults=not IGNORE_DEFAULTS.of(properties))
        self._texts = JsonStyle(numeric_decimals=is_numeric, form=form)

    def decode(self, column: pa.BinaryArray) -> Sequence[Column]:
        """Read *column* as JSON with the schemas that its rows name; JSON ``null`` is null."""
        return registered.decode(column, self.asked, self._of_schema)

    def encode(self, column: pa.Array, schema: Schema | None = None) -> Column:
        """Return *column* as JSON with its schema, which is registered if it is new.

        A value that has no JSON Schema is bad.
        """
        if isinstance(column.type, pa.JsonType):
            return registered.only_null(column, "JSON Schema")
        if column.null_count == len(column):
            return Column(pa.nulls(len(column), pa.binary()))
        try:
            found = connect.of(schema) or connect.of_arrow(column.type, optional=False)
        except ValueError as problem:
            return registered.no_schema(column, "JSON Schema", problem)
        text = json.dumps(to_json_schema(found, self._schemas), ensure_ascii=False)
        asked = registered.needed(self.asked)
        schema_id = asked.id_of(found.name, RegisteredSchema(JSON, text))
        bodies = json_values.encode_json(column, replace(found, default=None), self._texts)
        if column.null_count:
            bodies = bodies.take(registered.rows_of(column))
        return Column(framed(schema_id, bodies.cast(pa.binary())))

    def _of_schema(self, bodies: pa.BinaryArray, under: Under) -> Column:
        """Return *bodies* with the Connect schema that corresponds to theirs."""
        found = under.of_kind(JSON)
        schema = from_json_schema(found.text, found.imports, self._schemas)
        values, wrong = _read(bodies, schema)
        what = f"a value does not match schema {under.id}, which it names"
        bad = registered.bad_rows(wrong, what, _DO)
        schema = registered.needed(self.asked).versioned(schema, under.id)
        return Column(values, schema.of_column(), bad)


def _read(bodies: pa.BinaryArray, schema: ConnectSchema) -> tuple[pa.Array, dict[int, str]]:
    """Return a column of *bodies*, null where *schema* does not fit, and the reasons by row."""
    read, load = json_values.reader(schema, FORM), orjson.loads

    # 7.5 us per record of 8 fields, including Arrow, whose JSON reader does not decode base64,
    # does not detect numbers that are too large, and does not report rows
    def value(body: bytes) -> Any:
        try:
            return read(load(body))
        except (InexactError, orjson.JSONDecodeError):
            return read(_exact(body))

    return json_values.read_each(bodies.to_pylist(), value, schema.arrow())


def _exact(body: bytes) -> Any:
    """Parse JSON with numbers that do not fit a double."""
    if not body:
        raise ValueError("it is empty")
    try:
        return json.loads(body, parse_float=Decimal)
    except RecursionError as error:
        raise ValueError(str(error)) from None
