"""``InsertField``: topic, partition, offset, timestamp or fixed text as fields.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.InsertField``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect.schema import TIMESTAMP, ConnectSchema, Type
from kbackup.errors import ConfigurationError
from kbackup.java import jackson
from kbackup.options import Option, boolean, optional_text
from kbackup.transforms.data import Data, Records, fields_of, on_json, on_objects

_HOW: Final = "A name that ends with ! is required, one that ends with ? optional, the default."
TOPIC: Final = optional_text("topic.field", f"Field for the topic. {_HOW}")
PARTITION: Final = optional_text("partition.field", "Field for the partition.")
OFFSET: Final = optional_text("offset.field", "Field for the offset.")
TIMESTAMP_FIELD: Final = optional_text("timestamp.field", "Field for the record's timestamp.")
STATIC: Final = optional_text("static.field", "Field for a fixed text.")
STATIC_VALUE: Final = optional_text("static.value", "The fixed text.")
REPLACE_NULL: Final = boolean(
    "replace.null.with.default",
    "Replace null fields with their default, where they have one.",
    True,
)

_TYPES: Final = {
    TOPIC.name: ConnectSchema(Type.STRING),
    PARTITION.name: ConnectSchema(Type.INT32),
    OFFSET.name: ConnectSchema(Type.INT64),
    TIMESTAMP_FIELD.name: ConnectSchema(Type.INT64, name=TIMESTAMP, version=1),
    STATIC.name: ConnectSchema(Type.STRING),
}


@dataclass(frozen=True, slots=True)
class _Inserted:
    """One field: its name, its schema, and the option that asked for it."""

    name: str
    schema: ConnectSchema
    of: str


class InsertField:
    """Adds fields about the record; null values stay null."""

    class_names: ClassVar[tuple[str, ...]] = ("InsertField",)
    java_package: ClassVar[str] = "org.apache.kafka.connect.transforms"
    sides: ClassVar[tuple[str, ...]] = ("key", "value")
    reads: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[Option[Any], ...]] = (
        TOPIC, PARTITION, OFFSET, TIMESTAMP_FIELD, STATIC, STATIC_VALUE, REPLACE_NULL,
    )  # fmt: skip

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the names of the fields.

        Raises:
            ConfigurationError: If there is none, or the fixed text is missing.
        """
        self._side, self._static = side, STATIC_VALUE.of(options)
        self._fills = REPLACE_NULL.of(options)
        self._fields = []
        for name, schema in _TYPES.items():
            text = options.get(name)
            if text:
                wanted = replace(schema, optional=not text.endswith("!"))
                field = text[:-1] if text[-1] in "!?" else text
                self._fields.append(_Inserted(field, wanted, name))
        if not self._fields:
            raise ConfigurationError(
                "InsertField inserts no field", "none is named", "set timestamp.field, for example"
            )
        if STATIC.of(options) is not None and self._static is None:
            raise ConfigurationError(
                "static.field has no value", "static.value is not given", "add it",
                property=STATIC_VALUE.name,
            )  # fmt: skip

    def apply(self, records: Records) -> Records:
        """Return the records with the new fields after their own."""
        data = records.side(self._side)
        if data.schema is None:
            found = self._appended(records, data)
            return found if found is not None else self._put(records)
        return on_objects(records, self._side, self._structs, dict)

    def _structs(self, records: Records, data: Data) -> Records:
        columns = data.columns(fills_defaults=self._fills)
        fields = [*(data.schema.fields if data.schema else ())]
        values = [*columns.values()]
        for each in self._fields:
            column = self._column(records, each.of)
            if column.null_count and not each.schema.optional:
                raise ValueError(f"it has no timestamp, and {each.name!r} is required")
            fields.append((each.name, each.schema))
            values.append(column)
        return records.with_side(self._side, data.rebuilt(fields, values))

    def _column(self, records: Records, of: str) -> pa.Array:
        """Return the values to insert, a row for each record."""
        if of == TOPIC.name:
            return records.topics.cast(pa.string())
        if of == PARTITION.name:
            return pa.repeat(pa.scalar(records.partition, pa.int32()), len(records))
        if of == OFFSET.name:
            return records.batch["offset"]
        if of == TIMESTAMP_FIELD.name:
            return records.timestamps
        return pa.repeat(pa.scalar(self._static, pa.string()), len(records))

    def _appended(self, records: Records, data: Data) -> Records | None:
        """Return JSON with the fields inserted before its last brace.

        None if that is not enough: a value is not an object, may have such a field, or
        has no timestamp to insert.  It costs a twentieth of parsing.
        """
        text = data.values.storage
        parts: list[Any] = []
        for each in self._fields:
            column = self._column(records, each.of)
            name = jackson.quote(pa.array([each.name]))[0].as_py()
            if column.null_count:
                return None
            parts += [f"{',' if parts else ''}{name}:", _json(column)]
        escaped = [jackson.quote(pa.array([each.name]))[0].as_py() for each in self._fields]
        is_odd = pc.invert(pc.starts_with(text, "{"))
        for name in escaped:
            is_odd = pc.or_(is_odd, pc.match_substring(text, f"{name}:"))
        if len(set(escaped)) < len(escaped) or pc.any(is_odd).as_py():
            return None
        open_end = pc.binary_slice(text.cast(pa.binary()), 0, -1)
        comma = pc.if_else(pc.equal(text, "{}"), "", ",")
        found = pc.binary_join_element_wise(open_end.cast(pa.string()), comma, *parts, "}", "")
        values = pa.ExtensionArray.from_storage(pa.json_(), found)
        return records.with_side(self._side, Data(values, None))

    def _put(self, records: Records) -> Records:
        """Return JSON with the fields inserted one by one."""
        columns = [(each.name, self._column(records, each.of).to_pylist()) for each in self._fields]
        rows = iter(range(len(records)))
        is_null = records.side(self._side).values.is_null().to_pylist()

        def change(value: Any) -> Any:
            row = next(row for row in rows if not is_null[row])
            return fields_of(value, self._side) | {
                name: column[row] for name, column in columns if column[row] is not None
            }

        return on_json(records, self._side, change)


def _json(column: pa.Array) -> pa.StringArray:
    return jackson.quote(column) if pa.types.is_string(column.type) else column.cast(pa.string())
