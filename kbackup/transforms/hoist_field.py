"""``HoistField``: the whole key or value as a field of an object.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.HoistField``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa

from kbackup.connect.schema import ConnectSchema, Type
from kbackup.options import Option, text
from kbackup.transforms.data import Data, Records, parse_json, without_null, write_json

FIELD: Final = text("field", "Name of the field.", is_required=True)


class HoistField:
    """Wraps the key or the value in an object with one field; null becomes a field too.

    A null is refused if the schema does not allow it: Kafka has no schema for it.
    """

    class_names: ClassVar[tuple[str, ...]] = ("HoistField",)
    java_package: ClassVar[str] = "org.apache.kafka.connect.transforms"
    sides: ClassVar[tuple[str, ...]] = ("key", "value")
    reads: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[Option[Any], ...]] = (FIELD,)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the name."""
        self._side, self._field = side, FIELD.of(options)

    def apply(self, records: Records) -> Records:
        """Return the records with objects."""
        data = records.side(self._side)
        if data.schema is None:
            found = [{self._field: value} for value in parse_json(data.values)]
            return records.with_side(self._side, Data(write_json(found), None))
        if not data.schema.optional:
            records = without_null(records, self._side)
            data = records.side(self._side)
        field = (self._field, data.schema or ConnectSchema(Type.STRING, optional=True))
        schema = ConnectSchema(Type.STRUCT, fields=(field,))
        values = pa.StructArray.from_arrays([data.values], fields=list(schema.arrow()))
        return records.with_side(self._side, Data(values, schema))
