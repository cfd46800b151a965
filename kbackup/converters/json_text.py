"""JSON without schemas: Kafka Connect's ``JsonConverter`` with ``schemas.enable=false``."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import jackson
from kbackup.columns import Column
from kbackup.converters.json_options import SCHEMAS_ENABLE
from kbackup.errors import ConfigurationError


class JsonConverter:
    """``pa.json_()`` from bytes, and its text to bytes.

    What a worker would lose on the way stays: the order of an object's keys (it keeps objects in
    a ``HashMap``), and integers beyond 64 bits.
    """

    class_names: ClassVar[tuple[str, ...]] = ("JsonConverter",)
    defaults: ClassVar[Mapping[str, Any]] = {SCHEMAS_ENABLE.name: False}

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Take ``schemas.enable``, which is true unless it says otherwise, as in Connect.

        Raises:
            ConfigurationError: If it is true.
        """
        if SCHEMAS_ENABLE.of(properties):
            raise ConfigurationError(
                "JsonConverter with schemas.enable=true is not supported yet",
                "" if "schemas.enable" in properties else "true is Connect's default",
                "set schemas.enable=false if the records carry no schema",
                property="schemas.enable",
            )

    def decode(self, column: pa.BinaryArray) -> Sequence[Column]:
        """Read *column* as JSON; ``null`` is null, as in Connect.

        Returns:
            Texts as Jackson writes them, see `jackson`; what is not one JSON value is bad, and
            so is an empty value.
        """
        text, bad = jackson.canonical(column)
        text = pc.if_else(pc.equal(text, "null"), pa.scalar(None, pa.string()), text)
        return (Column(pa.ExtensionArray.from_storage(pa.json_(), text), bad=bad),)

    def encode(self, column: pa.Array) -> pa.BinaryArray:
        """Return the text of *column* as it stands, in UTF-8; JSON ``null`` is null."""
        if not isinstance(column.type, pa.JsonType):
            return column.cast(pa.binary())
        text = column.storage
        text = pc.if_else(pc.equal(text, "null"), pa.scalar(None, pa.string()), text)
        return text.cast(pa.binary())
