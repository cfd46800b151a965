"""``ExtractField``: one field in place of the whole key or value.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.ExtractField``.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from kbackup.options import Option, boolean, text, words
from kbackup.transforms.data import Data, Records, on_objects

FIELD: Final = text("field", "The field.", is_required=True)
SYNTAX: Final = words(
    "field.syntax.version",
    "V1: the name of a field; V2: a path of names, with dots between them, in backquotes where a "
    "name has a dot.",
    ("V1", "V2"), "V1",
)  # fmt: skip
REPLACE_NULL: Final = boolean(
    "replace.null.with.default",
    "Replace a null field with its default, where it has one.",
    True,
)
_NAME: Final = re.compile(r"`([^`]+)`(?=\.|\Z)\.?|([^.]+)\.?")


class ExtractField:
    """Replaces the key or the value by one of its fields; null stays null."""

    class_names: ClassVar[tuple[str, ...]] = ("ExtractField",)
    java_package: ClassVar[str] = "org.apache.kafka.connect.transforms"
    sides: ClassVar[tuple[str, ...]] = ("key", "value")
    reads: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[Option[Any], ...]] = (FIELD, SYNTAX, REPLACE_NULL)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the name, or the path."""
        self._side, self._fills = side, REPLACE_NULL.of(options)
        field = FIELD.of(options)
        path = [match[1] or match[2] for match in _NAME.finditer(field)]
        self._path = path if SYNTAX.of(options) == "V2" else [field]

    def apply(self, records: Records) -> Records:
        """Return the records with only the field."""
        return on_objects(records, self._side, self._structs, self._object)

    def _structs(self, records: Records, data: Data) -> Records:
        for name in self._path:
            if data.schema is None or not data.is_struct or name not in dict(data.schema.fields):
                raise ValueError(f"its {self._side} has no field {'.'.join(self._path)!r}")
            columns = data.columns(fills_defaults=self._fills)
            data = Data(columns[name], dict(data.schema.fields)[name])
        return records.with_side(self._side, data)

    def _object(self, value: dict[str, Any]) -> Any:
        found: Any = value
        for name in self._path:
            found = found.get(name) if isinstance(found, dict) else None
        return found
