"""Protobuf with schemas of a Schema Registry: Confluent's ``ProtobufConverter``.

Source: schema-registry, ``ProtobufConverter``, ``ProtobufData``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import json_values, registry
from kbackup.connect.registry import IGNORE_DEFAULTS, PROTOBUF, RegisteredSchema
from kbackup.connect.registry.framing import FIRST_MESSAGE, message_at, unframed_messages
from kbackup.converters import registered
from kbackup.converters.registered import Form, RegisteredConverter, RequestedSchemas, SchemaWithId
from kbackup.options import Unsupported, boolean, false, true
from kbackup.records import Column

ENHANCED: Final = boolean(
    "enhanced.protobuf.schema.support",
    "Whether names of messages and enums keep their package.",
    False,
)
INT_ENUMS: Final = boolean(
    "int.for.enums", "Whether an enum of Protobuf is its number, instead of its symbol.", False
)
OPTIONAL: Final = boolean(
    "optional.for.nullables",
    "Whether only fields that are declared optional, messages and enums are optional columns; "
    "otherwise all are.",
    False,
)
WRAPPED: Final = boolean(
    "wrapper.for.nullables",
    "Whether messages such as google.protobuf.Int64Value are optional values, and plain fields "
    "required ones.",
    False,
)
WRAPPED_ALONE: Final = boolean(
    "wrapper.for.raw.primitives",
    "Whether such a message is a plain value where it is the whole record.",
    True,
)
INDEXED_UNIONS: Final = boolean(
    "generate.index.for.unions",
    "Whether the column of a oneof has its index after its name, as in choice_0.",
    True,
)

FLAT_UNIONS: Final = Unsupported(
    "flatten.unions",
    true,
    "it puts the fields of a oneof beside the others, and this version keeps them in a struct",
)
FILLED_NULLS: Final = Unsupported(
    "generate.struct.for.nulls",
    true,
    "it fills messages that are not set, and this version stores null",
)
PROTO2_REQUIRED: Final = Unsupported(
    "support.optional.for.proto2",
    false,
    "this version reads the keyword optional in proto2 files too",
)

OPTIONS: Final = (
    *registry.OPTIONS, ENHANCED, INT_ENUMS, OPTIONAL, WRAPPED, WRAPPED_ALONE, INDEXED_UNIONS,
    FLAT_UNIONS, FILLED_NULLS, PROTO2_REQUIRED,
)  # fmt: skip


if TYPE_CHECKING:
    from kbackup.connect.protobuf_reading import ProtobufStyle
    from kbackup.connect.schema import ConnectSchema


class ProtobufConverter(RegisteredConverter):
    """Values in Protobuf."""

    traits: ClassVar = registered.traits(
        "ProtobufConverter", "io.confluent.connect.protobuf", OPTIONS
    )
    encoding: ClassVar = "Protobuf"
    described: ClassVar = "Protobuf message"
    unfit: ClassVar = (
        "a value has no form in Protobuf",
        "a list or a required field in it is null, or it is not a symbol of its enum",
    )
    unframe = staticmethod(unframed_messages)
    _style: "ProtobufStyle | None" = None
    _fills_defaults = True

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Set the registry, and how messages become columns; refuse if libraries are missing."""
        from kbackup.connect import protobuf_reading  # noqa: F401, PLC0415  (says what is missing)
        from kbackup.connect.protobuf_reading import ProtobufStyle  # noqa: PLC0415

        self.asked = RequestedSchemas.of(properties)
        self._fills_defaults = not IGNORE_DEFAULTS.of(properties)
        self._style = ProtobufStyle(
            ENHANCED.of(properties),
            INT_ENUMS.of(properties),
            OPTIONAL.of(properties),
            WRAPPED.of(properties),
            WRAPPED_ALONE.of(properties),
            INDEXED_UNIONS.of(properties),
        )

    def _form(self, schema: "ConnectSchema") -> Form:
        from kbackup.connect import protobuf_writing  # noqa: PLC0415

        message = protobuf_writing.planned(
            replace(schema, optional=False), fills_defaults=self._fills_defaults
        )

        def write(column: pa.Array) -> pa.BinaryArray:
            bodies = protobuf_writing.encode_protobuf(column, message)
            bodies = pc.if_else(column.is_valid(), bodies, pa.scalar(None, pa.binary()))
            return pc.binary_join_element_wise(pa.scalar(FIRST_MESSAGE), bodies, b"")

        name = f"{message.package}.{message.name}".removeprefix(".")
        return Form(name, RegisteredSchema(PROTOBUF, message.text()), write)

    def _of_schema(self, bodies: pa.BinaryArray, under: SchemaWithId) -> Column:
        from kbackup.connect import protobuf_reading  # noqa: PLC0415

        found = under.of_kind(PROTOBUF)
        style = self._style or protobuf_reading.ProtobufStyle()
        file = protobuf_reading.compiled(found.text, found.imports)
        message = protobuf_reading.message_at(file, message_at(under.message))
        schema: ConnectSchema = protobuf_reading.from_message(message, style)
        read = protobuf_reading.reader(message, schema, style)
        # 5.8 us per record of 8 fields, including Arrow, which cannot read Protobuf
        values, wrong = json_values.read_each(bodies.to_pylist(), read, schema.arrow())
        what = f"a value is not a {message.full_name} of schema {under.id}, which it names"
        bad = registered.bad_rows(wrong, what)
        schema = registered.needed(self.asked).versioned(schema, under.id)
        return Column(values, schema.of_column(), bad)
