"""``Flatten``: the fields of nested objects as fields of the outermost.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.Flatten``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import pyarrow as pa

from kbackup.connect import json_values
from kbackup.connect.schema import ConnectSchema, Type
from kbackup.options import Option, verbatim
from kbackup.transforms.data import Data, Records, on_objects

DELIMITER: Final = verbatim("delimiter", "Separator between the names.", ".")


class Flatten:
    """Flattens nested objects into one level; arrays stay as they are, and null stays null."""

    class_names: ClassVar[tuple[str, ...]] = ("Flatten",)
    java_package: ClassVar[str] = "org.apache.kafka.connect.transforms"
    sides: ClassVar[tuple[str, ...]] = ("key", "value")
    reads: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[Option[Any], ...]] = (DELIMITER,)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the delimiter."""
        self._side, self._delimiter = side, DELIMITER.of(options) or ""

    def apply(self, records: Records) -> Records:
        """Return the flattened records."""
        return on_objects(records, self._side, self._structs, self._object)

    def _structs(self, records: Records, data: Data) -> Records:
        schema = data.schema
        if schema is None:
            return records
        found = list(self._fields(data.values, schema, "", is_optional=schema.optional))
        flat = data.rebuilt([(name, field) for name, field, _ in found], [at for _, _, at in found])
        return records.with_side(self._side, flat)

    def _fields(
        self, values: pa.Array, schema: ConnectSchema, prefix: str, *, is_optional: bool
    ) -> Iterator[tuple[str, ConnectSchema, pa.Array]]:
        for column, (name, field) in zip(
            json_values.struct_fields(values, schema), schema.fields, strict=True
        ):
            full, may_lack = f"{prefix}{name}", is_optional or field.optional
            if field.type is Type.STRUCT:
                inner = f"{full}{self._delimiter}"
                yield from self._fields(column, field, inner, is_optional=may_lack)
            elif field.type is Type.MAP:
                raise ValueError(f"its field {full!r} is a map, which has no fields of its own")
            else:
                yield full, replace(field, optional=may_lack), column

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        return dict(self._members(value, ""))

    def _members(self, value: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, each in value.items():
            if isinstance(each, dict):
                yield from self._members(each, f"{prefix}{name}{self._delimiter}")
            else:
                yield f"{prefix}{name}", each
