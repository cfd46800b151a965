"""``DropLarge``: drops records whose value is larger than a limit."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pyarrow.compute as pc

from kbackup.options import integer
from kbackup.transforms import Traits
from kbackup.transforms.data import Records

MAX_BYTES: Final = integer(
    "max.bytes", "The largest value that is kept, in bytes.", 1_000_000, ge=0
)


class DropLarge:
    """Measures the value as it is in Kafka; keeps records without one."""

    traits: ClassVar = Traits(class_names=("DropLarge",), options=(MAX_BYTES,))

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Read the option ``max.bytes``; there are no sides."""
        self._max = MAX_BYTES.of(options)

    def apply(self, records: Records) -> Records:
        """Return the records without the large ones, which are counted as left out."""
        is_large = pc.greater(pc.binary_length(records.batch["value"]), self._max)
        return records.leave_out(is_large.fill_null(False))
