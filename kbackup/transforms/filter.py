"""``Filter``: records left out, those that its predicate is true for.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.Filter``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from kbackup.options import Option
from kbackup.transforms.data import Records


class Filter:
    """Leaves out all records it is given."""

    class_names: ClassVar[tuple[str, ...]] = ("Filter",)
    sides: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[Option[Any], ...]] = ()

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take nothing: there is nothing to choose."""

    def apply(self, records: Records) -> Records:
        """Return none of the records."""
        return records.leave_out(pa.repeat(pa.scalar(True), len(records)))
