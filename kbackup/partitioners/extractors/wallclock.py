"""The clock of the machine, when a batch of records is at hand."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from kbackup.partitioners.extractors import Traits


class WallclockExtractor:
    """The time of the backup: directories say when a record was backed up, not when it was made.

    It is the connectors' default.  A run that is repeated after a crash may put records into
    other directories than it did before.
    """

    traits: ClassVar = Traits(("Wallclock", "WallclockTimestampExtractor"))

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take nothing: there is nothing to choose."""

    def extract(self, batch: pa.RecordBatch, now_ms: int) -> pa.Int64Array:
        """Return "now" for each row."""
        return pa.repeat(pa.scalar(now_ms, pa.int64()), len(batch))
