"""``Filter``: drops the records that match its predicate.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.Filter``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from kbackup.options import Option
from kbackup.transforms.data import Records


class Filter:
    """Drops every record that it is applied to."""

    class_names: ClassVar[tuple[str, ...]] = ("Filter",)
    java_package: ClassVar[str] = "org.apache.kafka.connect.transforms"
    sides: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[Option[Any], ...]] = ()

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Do nothing: there are no options."""

    def apply(self, records: Records) -> Records:
        """Return none of the records."""
        return records.leave_out(pa.repeat(pa.scalar(True), len(records)))
