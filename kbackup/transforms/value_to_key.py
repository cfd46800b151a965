"""``ValueToKey``: builds the key from fields of the value.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.ValueToKey``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from kbackup.connect.schema import ConnectSchema, Type
from kbackup.options import Option, boolean, names
from kbackup.records import Bad
from kbackup.transforms.data import (
    Data,
    Records,
    fields_of,
    no_fields,
    parse_json,
    refused,
    structs,
    without_null,
    write_json,
)

FIELDS: Final = names("fields", "Fields of the value.", is_required=True)
REPLACE_NULL: Final = boolean(
    "replace.null.with.default",
    "Replace null fields with their default, where they have one.",
    True,
)


class ValueToKey:
    """Builds the key from fields of the value; a null value is refused, as in Kafka."""

    class_names: ClassVar[tuple[str, ...]] = ("ValueToKey",)
    java_package: ClassVar[str] = "org.apache.kafka.connect.transforms"
    sides: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ("value",)
    options: ClassVar[tuple[Option[Any], ...]] = (FIELDS, REPLACE_NULL)

    def configure(self, options: Mapping[str, Any], side: str) -> None:  # noqa: ARG002
        """Take the names."""
        self._fields, self._fills = FIELDS.of(options), REPLACE_NULL.of(options)

    def apply(self, records: Records) -> Records:
        """Return the records with other keys, if keys are stored."""
        records = without_null(records, "value")
        data = records.side("value")
        if data.schema is None:
            return self._json(records, data)
        if not data.is_struct:
            return refused(records, "value", no_fields("value", f"of type {data.schema.type}"))
        known = dict(data.schema.fields)
        missing = [name for name in self._fields if name not in known]
        if missing:
            return refused(records, "value", f"its value has no field {missing[0]!r}")
        fields = tuple((name, known[name]) for name in self._fields)
        schema = ConnectSchema(Type.STRUCT, fields=fields)
        columns = data.columns(fills_defaults=self._fills)
        values = structs([columns[name] for name in self._fields], schema, data.values)
        return _with_key(records, Data(values, schema))

    def _json(self, records: Records, data: Data) -> Records:
        keys: list[Any] = []
        bad = []
        for row, value in enumerate(parse_json(data.values)):
            try:
                found = fields_of(value, "value")
                keys.append({name: found.get(name) for name in self._fields})
            except ValueError as error:
                bad.append(Bad(row, str(error)))
                keys.append(None)
        return _with_key(records, Data(write_json(keys), None)).refuse(bad)


def _with_key(records: Records, key: Data) -> Records:
    return records if records.key is None else records.with_side("key", key)
