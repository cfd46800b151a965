"""Avro with schemas of a Schema Registry: Confluent's ``AvroConverter``.

Source: schema-registry, ``AvroConverter``, ``AvroData``.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import pyarrow as pa

from kbackup.connect import avro_columns, avro_reading, avro_writing, registry
from kbackup.connect import schema as connect
from kbackup.connect.avro_reading import united
from kbackup.connect.avro_walk import AVRO as AVRO_DATUMS
from kbackup.connect.avro_writing import AvroStyle, to_avro
from kbackup.connect.registry import AVRO, IGNORE_DEFAULTS, RegisteredSchema
from kbackup.connect.registry.framing import framed
from kbackup.connect.schema import ConnectSchema
from kbackup.converters import Traits, registered
from kbackup.converters.registered import RequestedSchemas, Under
from kbackup.options import Unsupported, boolean, false, true
from kbackup.records import Column, Encoded, Kind, Schema

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


class AvroConverter:
    """Columns under schemas of Connect, whose versions are those of the registry."""

    traits: ClassVar = Traits(
        class_names=("AvroConverter",),
        options=OPTIONS,
        java_package="io.confluent.connect.avro",
        gives=frozenset({Kind.TYPED}),
        registers=True,
    )

    def __init__(self) -> None:
        self.asked: RequestedSchemas | None = None
        self._style = AvroStyle(enhanced=False)

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Set the registry, and what written schemas retain."""
        self.asked = RequestedSchemas.of(properties)
        self._style = AvroStyle(
            CONNECT_META.of(properties),
            ENHANCED.of(properties),
            fills_defaults=not IGNORE_DEFAULTS.of(properties),
        )

    def decode(self, column: pa.BinaryArray) -> Sequence[Column]:
        """Read *column* as Avro with the schemas that its rows name."""
        return registered.decode(column, self.asked, self._of_schema)

    def encode(self, column: pa.Array, schema: Schema | None = None) -> Column:
        """Return *column* as Avro with its schema, which is registered if it is new.

        A value that does not fit its schema, or has none, is bad.
        """
        if isinstance(column.type, pa.JsonType):
            return registered.only_null(column, "Avro")
        if column.null_count == len(column):
            return Column(pa.nulls(len(column), pa.binary()))
        known = connect.of(schema)
        try:
            found = connect.of_arrow(column.type) if known is None else known
            text = json.dumps(to_avro(replace(found, optional=False), self._style))
        except ValueError as problem:
            return registered.no_schema(column, "Avro schema", problem)
        datums = avro_writing.encode_avro(column, replace(found, optional=False), self._style)
        what = "a value does not match its schema"
        why = (
            "something in it is null and must not be, is not a symbol of its enum, or has not the "
            "size of its fixed type"
        )
        bad = registered.lost(datums, column, what, why)
        if datums.null_count == len(datums):  # nothing is written that would need a schema
            return Column(datums, bad=bad)
        asked = registered.needed(self.asked)
        schema_id = asked.id_of(found.name, RegisteredSchema(AVRO, text))
        return Column(framed(schema_id, datums), bad=bad)

    def _of_schema(self, datums: pa.BinaryArray, under: Under) -> Column:
        """Return *datums* with the Connect schema that corresponds to theirs."""
        found = under.of_kind(AVRO)
        text = united(found.text, [text for _, text in found.imports])
        schema = avro_reading.connect_schema(text)
        values, wrong = avro_columns.decode(datums, text), dict[int, str]()
        if values is None:
            values, wrong = avro_reading.decode_each_avro(datums, text)
        what = f"a value is not Avro under schema {under.id}, which it names"
        bad = registered.bad_rows(wrong, what)
        encoded = Encoded(values, datums, Schema(text, encoding=AVRO_DATUMS))
        return Column(values, self._versioned(schema, under.id).of_column(), bad, encoded)

    def _versioned(self, schema: ConnectSchema, schema_id: int) -> ConnectSchema:
        """Return *schema* with its version in the registry, unless it brings one."""
        # as AvroData.toConnectSchema: a union with null has none
        if schema.optional:
            return schema
        return registered.needed(self.asked).versioned(schema, schema_id)
