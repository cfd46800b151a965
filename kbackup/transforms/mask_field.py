"""``MaskField``: empties fields, or replaces them by a text or number.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.MaskField``.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, ConnectSchema, Type
from kbackup.options import Option, boolean, names, optional_text
from kbackup.transforms.cast import to_type
from kbackup.transforms.data import Data, Records, on_objects, structs

FIELDS: Final = names("fields", "The fields.", is_required=True)
REPLACEMENT: Final = optional_text(
    "replacement", "What replaces their values; default: 0, false, or empty text, list or map."
)
REPLACE_NULL: Final = boolean(
    "replace.null.with.default",
    "Replace null fields with their default, where they have one.",
    True,
)
_EMPTY: Final[dict[type, Any]] = {bool: False, int: 0, float: 0.0, str: "", list: [], dict: {}}

_EMPTIES: Final[dict[Type, Any]] = {
    Type.STRING: "", Type.BOOLEAN: False, Type.ARRAY: [], Type.MAP: [],
}  # fmt: skip


class MaskField:
    """Hides the contents of fields; null stays null, and a null value is refused, as in Kafka."""

    class_names: ClassVar[tuple[str, ...]] = ("MaskField",)
    java_package: ClassVar[str] = "org.apache.kafka.connect.transforms"
    sides: ClassVar[tuple[str, ...]] = ("key", "value")
    reads: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[Option[Any], ...]] = (FIELDS, REPLACEMENT, REPLACE_NULL)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the names, and the replacement."""
        self._side, self._fields = side, FIELDS.of(options)
        self._replacement, self._fills = REPLACEMENT.of(options), REPLACE_NULL.of(options)

    def apply(self, records: Records) -> Records:
        """Return the records with the fields masked."""
        return on_objects(records, self._side, self._structs, self._object, refuses_null=True)

    def _structs(self, records: Records, data: Data) -> Records:
        schema = data.schema
        if schema is None:
            return records
        columns = data.columns(fills_defaults=self._fills)
        for name, field in schema.fields:
            if name in self._fields:
                mask = pa.scalar(self._mask(name, field), field.arrow())
                column = columns[name]
                filled = pa.array([mask.as_py()], column.type)
                rows = pc.if_else(column.is_valid(), 0, pa.scalar(None, pa.int64()))
                columns[name] = filled.take(rows)
        values = structs([*columns.values()], schema, data.values)
        return records.with_side(self._side, Data(values, schema))

    def _mask(self, name: str, field: ConnectSchema) -> Any:
        """Return the replacement of a field's values, as `pyarrow.scalar` accepts it."""
        text = self._replacement
        if field.logical == DECIMAL:
            return _unscaled(text or "0", field.scale)
        if text is None and field.type not in (Type.STRUCT, Type.BYTES):
            return _EMPTIES.get(field.type, 0)
        if text is not None and field.logical not in (DATE, TIME, TIMESTAMP):
            if field.type is Type.STRING:
                return text
            if field.bits is not None or field.type in (Type.FLOAT32, Type.FLOAT64):
                return to_type(text, field.type)
        raise ValueError(
            f"its field {name!r} is of type {field.logical or field.type}, which cannot have "
            "this mask"
        )

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        for name in self._fields:
            value[name] = self._masked(name, value.get(name))
        return value

    def _masked(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        if self._replacement is None:
            return _EMPTY[type(value)]
        if isinstance(value, str):
            return self._replacement
        if isinstance(value, (bool, list, dict)):
            why = f"its field {name!r} is neither text nor a number, so it cannot have this mask"
            raise ValueError(why)  # noqa: TRY004
        return to_type(self._replacement, Type.FLOAT64 if isinstance(value, float) else Type.INT64)


def _unscaled(text: str, scale: int) -> bytes:
    """Return the bytes of a Decimal of this scale."""
    try:
        number = int(Decimal(text).scaleb(scale).to_integral_exact())
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a number") from None
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
