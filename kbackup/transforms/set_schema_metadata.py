"""``SetSchemaMetadata``: changes the name or version of the schema.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.SetSchemaMetadata``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from kbackup.options import Option, boolean, optional_text, read_integer
from kbackup.transforms.data import Data, Records, refused

NAME: Final = optional_text("schema.name", "The schema's name.")
VERSION: Final = optional_text("schema.version", "The schema's version.", check=read_integer)
REPLACE_NULL: Final = boolean(
    "replace.null.with.default",
    "Replace null fields with their default, where they have one.",
    True,
)


class SetSchemaMetadata:
    """Sets the schema's name, version or both; values without a schema are refused."""

    class_names: ClassVar[tuple[str, ...]] = ("SetSchemaMetadata",)
    java_package: ClassVar[str] = "org.apache.kafka.connect.transforms"
    sides: ClassVar[tuple[str, ...]] = ("key", "value")
    reads: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[Option[Any], ...]] = (NAME, VERSION, REPLACE_NULL)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take name and version."""
        self._side, self._name = side, NAME.of(options)
        version = VERSION.of(options)
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
