"""``InsertHeader``: adds the same header to each record.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.InsertHeader``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa

from kbackup.options import Option, text
from kbackup.transforms import data
from kbackup.transforms.data import Records

HEADER: Final = text("header", "Name of the header.", is_required=True)
LITERAL: Final = text("value.literal", "Its value, as text.", is_required=True)


class InsertHeader:
    """Adds a header after the others.

    Its value is the literal's text; Kafka parses it as a number or date, and writes that.
    """

    class_names: ClassVar[tuple[str, ...]] = ("InsertHeader",)
    java_package: ClassVar[str] = "org.apache.kafka.connect.transforms"
    sides: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[Option[Any], ...]] = (HEADER, LITERAL)

    def configure(self, options: Mapping[str, Any], side: str) -> None:  # noqa: ARG002
        """Take name and value."""
        self._name, self._value = HEADER.of(options), LITERAL.of(options).encode()

    def apply(self, records: Records) -> Records:
        """Return the records with the header."""
        values = pa.repeat(pa.scalar(self._value, pa.binary()), len(records))
        return records.with_headers(data.with_header(records.headers, self._name, values))
