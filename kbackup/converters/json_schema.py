"""JSON with schemas of a Schema Registry: Confluent's ``JsonSchemaConverter``.

Source: schema-registry, ``JsonSchemaConverter``, ``JsonSchemaData``.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import json_values, registry
from kbackup.connect.json_schema import (
    FORM,
    JsonSchemaStyle,
    from_json_schema,
    to_json_schema,
)
from kbackup.connect.json_values import DecimalAsDoubleError, JsonStyle
from kbackup.connect.registry import IGNORE_DEFAULTS, JSON, RegisteredSchema
from kbackup.connect.schema import ConnectSchema
from kbackup.converters import registered
from kbackup.converters.avro import SINGLE_UNIONS
from kbackup.converters.json_text import DECIMAL_FORMAT
from kbackup.converters.registered import Form, RegisteredConverter, RequestedSchemas, SchemaWithId
from kbackup.options import Unsupported, boolean, true
from kbackup.records import Column

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


class JsonSchemaConverter(RegisteredConverter):
    """Values in JSON; ``null`` is null."""

    traits: ClassVar = registered.traits(
        "JsonSchemaConverter", "io.confluent.connect.json", OPTIONS
    )
    encoding: ClassVar = "JSON Schema"
    described: ClassVar = "JSON Schema"
    unfit: ClassVar = ("a value has no form in JSON", "")
    _schemas = JsonSchemaStyle()
    _texts = JsonStyle(form=FORM)

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Set the registry, and how schemas are read and written."""
        self.asked = RequestedSchemas.of(properties)
        self._schemas = JsonSchemaStyle(NOT_REQUIRED.of(properties), ADDITIONAL.of(properties))
        is_numeric = DECIMAL_FORMAT.of(properties) == "numeric"
        form = replace(FORM, fills_defaults=not IGNORE_DEFAULTS.of(properties))
        self._texts = JsonStyle(numeric_decimals=is_numeric, form=form)

    def _form(self, schema: ConnectSchema) -> Form:
        text = json.dumps(to_json_schema(schema, self._schemas), ensure_ascii=False)
        return Form(schema.name, RegisteredSchema(JSON, text), partial(self._bodies, schema))

    def _bodies(self, schema: ConnectSchema, column: pa.Array) -> pa.BinaryArray:
        found = json_values.encode_json(column, replace(schema, default=None), self._texts)
        return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.string())).cast(pa.binary())

    def _of_schema(self, bodies: pa.BinaryArray, under: SchemaWithId) -> Column:
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
        except (DecimalAsDoubleError, orjson.JSONDecodeError):
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
