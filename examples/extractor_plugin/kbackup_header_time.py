"""The time that a producer wrote into a header, as digits: ms since the epoch."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.options import text
from kbackup.partitioners.extractors import Traits

HEADER = text("timestamp.header", "Header that holds the time of a record.", "event-time")


class HeaderTimeExtractor:
    """The last value if the header is repeated; no time if it is missing or not a number."""

    traits: ClassVar = Traits(("HeaderTimeExtractor",), options=(HEADER,))

    def configure(self, options: Mapping[str, Any]) -> None:
        """Read the option ``timestamp.header``."""
        self._header = HEADER.of(options)

    def extract(self, batch: pa.RecordBatch, _now_ms: int) -> pa.Int64Array:
        """Return the time of each row, null if it has none."""
        headers = batch["headers"]
        rows = pc.list_parent_indices(headers)  # the row that each header belongs to
        each = headers.flatten()
        is_time = pc.and_kleene(
            pc.equal(each.field("key"), self._header),
            pc.match_substring_regex(each.field("value"), rb"^\d{1,18}$"),
        )
        texts = each.field("value").filter(is_time).cast(pa.string())
        found = dict(zip(rows.filter(is_time).to_pylist(), texts.to_pylist(), strict=True))
        times = [int(found[row]) if row in found else None for row in range(len(batch))]
        return pa.array(times, pa.int64())
