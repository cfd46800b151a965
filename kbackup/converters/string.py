"""Text in UTF-8: Kafka Connect's ``StringConverter``."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect import json_values
from kbackup.connect import schema as connect
from kbackup.connect.schema import ConnectSchema
from kbackup.converters import Traits
from kbackup.errors import ConfigurationError
from kbackup.java import jackson
from kbackup.options import text
from kbackup.records import Column, Kind, Schema, all_bad, row_by_row

ENCODING: Final = text(
    "converter.encoding", "Encoding of the text; UTF-8 is the only one.", "UTF-8"
)

OPTIONS: Final = (ENCODING,)


class StringConverter:
    """Bytes to ``string``, and the text of any type to bytes."""

    traits: ClassVar = Traits(
        class_names=("StringConverter",),
        java_package="org.apache.kafka.connect.storage",
        gives=frozenset({Kind.TEXT}),
    )

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Take ``converter.encoding``.

        Raises:
            ConfigurationError: If it is not UTF-8.
        """
        encoding = ENCODING.of(properties)
        if encoding.strip().upper() not in ("UTF-8", "UTF8"):
            raise ConfigurationError(
                f"converter.encoding={encoding} is not supported",
                "text is read and written as UTF-8",
                "use ByteArrayConverter, which keeps bytes as they are",
                property="converter.encoding",
            )

    def decode(self, column: pa.BinaryArray) -> Sequence[Column]:
        """Read *column* as UTF-8; invalid text is bad.

        Connect would replace invalid bytes with U+FFFD, and lose them.
        """
        try:
            return (Column(column.cast(pa.string())),)
        except pa.ArrowInvalid:  # rare
            what = "a value is not text in UTF-8"
            do = "use ByteArrayConverter, which keeps bytes as they are, or keep full records"
            return (row_by_row(column.to_pylist(), _decoded, pa.string(), what, do),)

    def encode(self, column: pa.Array, schema: Schema | None = None) -> Column:
        """Return the text of *column* in UTF-8: that of a JSON string, or any other JSON as it is.

        A JSON string that holds half of a surrogate pair is bad, and so is a value without a text,
        such as a struct.
        """
        if not isinstance(column.type, pa.JsonType):
            return _text(column, connect.of(schema))
        text = column.storage
        is_plain = pc.match_substring_regex(text, r'^"[^\\]*"$')
        if pc.all(is_plain).as_py() and not text.null_count:
            return Column(pc.binary_slice(text.cast(pa.binary()), 1, -1))  # 0.1 us a record
        what = "a JSON string is not text"
        return row_by_row(text.to_pylist(), _encoded, pa.binary(), what)


def _text(column: pa.Array, schema: ConnectSchema | None) -> Column:
    """Return what Java's ``toString`` returns for plain values."""
    if schema is not None and pa.types.is_floating(column.type):
        return Column(_floats(column, schema))
    if pa.types.is_binary(column.type):
        return Column(column)
    try:
        return Column(column.cast(pa.string()).cast(pa.binary()))
    except pa.ArrowNotImplementedError:
        return all_bad(
            column,
            f"values of type {column.type} are not text",
            "StringConverter takes text and numbers",
            "choose value.converter=json for their JSON, or the converter that the backup was "
            "written with",
        )


def _floats(column: pa.Array, schema: ConnectSchema) -> pa.BinaryArray:
    text = json_values.encode_json(column, replace(schema, default=None))
    return pc.if_else(column.is_valid(), text, pa.scalar(None, pa.string())).cast(pa.binary())


def _encoded(text: str) -> bytes | None:
    if text == "null":
        return None
    value = jackson.string_value(text)
    return (text if value is None else value).encode()


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        why = f"byte {error.start} of {len(value)}: {error.reason}"
        raise ValueError(why) from None
