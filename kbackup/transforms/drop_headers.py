"""``DropHeaders``: drops headers by name.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.DropHeaders``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from kbackup.options import Option, names
from kbackup.transforms import data
from kbackup.transforms.data import Records

HEADERS: Final = names("headers", "Names of the headers.", is_required=True)


class DropHeaders:
    """Drops every header that has one of the names."""

    class_names: ClassVar[tuple[str, ...]] = ("DropHeaders",)
    java_package: ClassVar[str] = "org.apache.kafka.connect.transforms"
    sides: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[Option[Any], ...]] = (HEADERS,)

    def configure(self, options: Mapping[str, Any], side: str) -> None:  # noqa: ARG002
        """Take the names."""
        self._names = HEADERS.of(options)

    def apply(self, records: Records) -> Records:
        """Return the records without the headers."""
        return records.with_headers(data.without_headers(records.headers, self._names))
