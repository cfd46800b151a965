"""Bytes unchanged: Kafka Connect's ``ByteArrayConverter``."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from kbackup.converters import Traits
from kbackup.java import jackson
from kbackup.records import Column, Kind, Schema, all_bad, row_by_row


class ByteArrayConverter:
    """``binary`` both ways; in a JSON file it is base64."""

    traits: ClassVar = Traits(
        class_names=("ByteArrayConverter",),
        java_package="org.apache.kafka.connect.converters",
        gives=frozenset({Kind.BYTES}),
    )

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Do nothing: there are no options."""

    def decode(self, column: pa.BinaryArray) -> Sequence[Column]:
        """Return *column*."""
        return (Column(column),)

    def encode(
        self,
        column: pa.Array,
        schema: Schema | None = None,  # noqa: ARG002  # the Arrow type says it all
    ) -> Column:
        """Return the bytes of *column*: unchanged, decoded from base64 in JSON, or text as UTF-8.

        JSON that is not a string of base64 is bad, and so is a value of any other type.
        """
        if isinstance(column.type, pa.JsonType):
            # 0.8 us a record; Arrow has no base64
            what = "a JSON value does not hold bytes"
            do = "choose the converter that the backup was written with"
            return row_by_row(column.storage.to_pylist(), _decoded, pa.binary(), what, do)
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            return Column(column.cast(pa.binary()))
        return all_bad(
            column,
            f"values of type {column.type} are not bytes",
            "ByteArrayConverter takes bytes and text",
            "choose value.converter=json for their JSON, or the converter that the backup was "
            "written with",
        )


def _decoded(text: str) -> bytes | None:
    if text == "null":
        return None
    try:
        value = jackson.string_value(text)
        if value is not None:
            return base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error):
        pass
    raise ValueError("it is not a string of base64")
