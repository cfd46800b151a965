"""``HeaderFrom``: fields copied or moved to headers.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.HeaderFrom`` and
``org.apache.kafka.connect.data.Values.convertToString``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa

from kbackup.errors import ConfigurationError, counted
from kbackup.options import Option, boolean, names, words
from kbackup.transforms.data import Data, Records, on_objects, parse_json, with_header, without_null
from kbackup.transforms.texts import as_text, text_of

FIELDS: Final = names("fields", "The fields.", is_required=True)
HEADERS: Final = names("headers", "A header for each field, in the same order.", is_required=True)
OPERATION: Final = words(
    "operation", "What to do with the fields.", ("move", "copy"), "", is_required=True
)
REPLACE_NULL: Final = boolean(
    "replace.null.with.default",
    "Replace null fields with their default, where they have one.",
    True,
)


class HeaderFrom:
    """Adds headers with the text of fields; a null key or value is refused, as in Kafka."""

    class_names: ClassVar[tuple[str, ...]] = ("HeaderFrom",)
    java_package: ClassVar[str] = "org.apache.kafka.connect.transforms"
    sides: ClassVar[tuple[str, ...]] = ("key", "value")
    reads: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[Option[Any], ...]] = (FIELDS, HEADERS, OPERATION, REPLACE_NULL)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the fields and their headers.

        Raises:
            ConfigurationError: If their numbers differ.
        """
        self._side, self._fills = side, REPLACE_NULL.of(options)
        self._fields, self._headers = FIELDS.of(options), HEADERS.of(options)
        self._moves = OPERATION.of(options) == "move"
        if len(self._fields) != len(self._headers):
            raise ConfigurationError(
                "HeaderFrom cannot be used",
                f"it names {counted(len(self._fields), 'field')} and "
                f"{counted(len(self._headers), 'header')}",
                "give one header for each field", property=HEADERS.name,
            )  # fmt: skip

    def apply(self, records: Records) -> Records:
        """Return the records with the headers, and without the fields if they are moved."""
        records = without_null(records, self._side)
        data = records.side(self._side)
        if data.schema is None:
            found = on_objects(records, self._side, self._structs, self._left)
            stays = set(found.batch["offset"].to_pylist())
            rows = [
                row for row, at in enumerate(records.batch["offset"].to_pylist()) if at in stays
            ]
            parsed = parse_json(data.values.take(pa.array(rows, pa.int64())))
            for field, header in zip(self._fields, self._headers, strict=True):
                texts = [text_of(each.get(field)) for each in parsed]
                found = _with_header(found, header, pa.array(texts, pa.binary()))
            return found
        return on_objects(records, self._side, self._structs, self._left)

    def _structs(self, records: Records, data: Data) -> Records:
        known = dict(data.schema.fields) if data.schema else {}
        columns = data.columns(fills_defaults=self._fills)
        for field, header in zip(self._fields, self._headers, strict=True):
            if field not in known:
                raise ValueError(f"its {self._side} has no field {field!r}")
            records = _with_header(records, header, as_text(columns[field], known[field]))
        if not self._moves:
            return records
        left = [each for each in known.items() if each[0] not in self._fields]
        found = data.rebuilt(left, [columns[name] for name, _ in left])
        return records.with_side(self._side, found)

    def _left(self, value: dict[str, Any]) -> dict[str, Any]:
        if not self._moves:
            return value
        return {name: each for name, each in value.items() if name not in self._fields}


def _with_header(records: Records, name: str, values: pa.BinaryArray) -> Records:
    return records.with_headers(with_header(records.headers, name, values))
