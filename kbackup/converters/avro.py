"""Avro with schemas of a Schema Registry: Confluent's ``AvroConverter``.

Source: schema-registry, ``AvroConverter``, ``AvroData``.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

import pyarrow as pa

from kbackup.connect import avro_columns, avro_reading, avro_writing, registry
from kbackup.connect.avro_reading import united
from kbackup.connect.avro_walk import AVRO as AVRO_DATUMS
from kbackup.connect.avro_writing import AvroStyle, to_avro
from kbackup.connect.registry import AVRO, IGNORE_DEFAULTS, RegisteredSchema
from kbackup.connect.schema import ConnectSchema
from kbackup.converters import registered
from kbackup.converters.registered import Form, RegisteredConverter, RequestedSchemas, SchemaWithId
from kbackup.options import Unsupported, boolean, false, true
from kbackup.records import Column, Encoded, Schema

CONNECT_META: Final = boolean(
    "connect.meta.data",
    "When writing Avro, keep what only Kafka Connect knows about a schema in attributes that "
    "begin with connect.",
    True,
    commands="restore",
)
ENHANCED: Final = boolean(
    "enhanced.avro.schema.support",
    "When writing Avro, write text that was an Avro enum as an enum again.",
    False,
    commands="restore",
)

BARE_TYPES: Final = Unsupported(
    "discard.type.doc.default",
    true,
    "it removes documentation and defaults of types, and this version keeps them",
)
SINGLE_UNIONS: Final = Unsupported(
    "flatten.singleton.unions",
    false,
    "it keeps a union of one type as a struct, and this version stores the value itself",
)

OPTIONS: Final = (*registry.OPTIONS, CONNECT_META, ENHANCED, BARE_TYPES, SINGLE_UNIONS)


class AvroConverter(RegisteredConverter):
    """Values in Avro."""

    traits: ClassVar = registered.traits("AvroConverter", "io.confluent.connect.avro", OPTIONS)
    encoding: ClassVar = "Avro"
    described: ClassVar = "Avro schema"
    unfit: ClassVar = (
        "a value does not match its schema",
        (
            "something in it is null and must not be, is not a symbol of its enum, or has not the "
            "size of its fixed type"
        ),
    )
    _style = AvroStyle(enhanced=False)

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Set the registry, and what written schemas retain."""
        self.asked = RequestedSchemas.of(properties)
        self._style = AvroStyle(
            CONNECT_META.of(properties),
            ENHANCED.of(properties),
            fills_defaults=not IGNORE_DEFAULTS.of(properties),
        )

    def _form(self, schema: ConnectSchema) -> Form:
        plain = replace(schema, optional=False)
        text = json.dumps(to_avro(plain, self._style))
        write = partial(avro_writing.encode_avro, schema=plain, style=self._style)
        return Form(schema.name, RegisteredSchema(AVRO, text), write)

    def _of_schema(self, datums: pa.BinaryArray, under: SchemaWithId) -> Column:
        found = under.of_kind(AVRO)
        text = united(found.text, [text for _, text in found.imports])
        schema = avro_reading.connect_schema(text)
        values, wrong = avro_columns.decode(datums, text), dict[int, str]()
        if values is None:
            values, wrong = avro_reading.decode_each_avro(datums, text)
        what = f"a value is not Avro under schema {under.id}, which it names"
        bad = registered.bad_rows(wrong, what)
        encoded = Encoded(values, datums, Schema(text, encoding=AVRO_DATUMS))
        if not schema.optional:  # as AvroData.toConnectSchema: a union with null has no version
            schema = registered.needed(self.asked).versioned(schema, under.id)
        return Column(values, schema.of_column(), bad, encoded)
