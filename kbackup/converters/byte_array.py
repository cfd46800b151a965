"""Bytes unchanged: Kafka Connect's ``ByteArrayConverter``."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from kbackup import jackson
from kbackup.columns import Column, Schema
from kbackup.errors import BadRecordError


class ByteArrayConverter:
    """``binary`` both ways; in a JSON file it is base64."""

    class_names: ClassVar[tuple[str, ...]] = ("ByteArrayConverter",)
    defaults: ClassVar[Mapping[str, Any]] = {}

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Do nothing: there are no options."""

    def decode(self, column: pa.BinaryArray) -> Sequence[Column]:
        """Return *column*."""
        return (Column(column),)

    def encode(
        self,
        column: pa.Array,
        schema: Schema | None = None,  # noqa: ARG002  # the Arrow type says it all
    ) -> pa.BinaryArray:
        """Return the bytes of *column*: unchanged, decoded from base64 in JSON, or text as UTF-8.

        Raises:
            BadRecordError: With the first row whose JSON is not a string of base64.
        """
        if not isinstance(column.type, pa.JsonType):
            if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
                raise BadRecordError(
                    f"values of type {column.type} are not bytes",
                    "ByteArrayConverter takes bytes and text",
                    "choose value.converter=json for their JSON, or the converter that the "
                    "backup was written with",
                    row=0,
                )
            return column.cast(pa.binary())
        # 0.8 us a record; Arrow has no base64
        found = [
            None if text in (None, "null") else _decoded(row, text)
            for row, text in enumerate(column.storage.to_pylist())
        ]
        return pa.array(found, pa.binary())


def _decoded(row: int, text: str) -> bytes:
    try:
        value = jackson.string_value(text)
        if value is not None:
            return base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error):
        pass
    raise BadRecordError(
        "a JSON value does not hold bytes",
        "it is not a string of base64",
        "choose the converter that the backup was written with",
        row=row,
    )
