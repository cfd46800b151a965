"""The timestamp that Kafka keeps with each record."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.partitioners.extractors import Traits
from kbackup.records import NO_TIMESTAMP


class RecordExtractor:
    """The record's own timestamp, set by its producer or its broker."""

    traits: ClassVar = Traits(("Record", "RecordTimestampExtractor"))

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Take nothing: there is nothing to choose."""

    def extract(self, batch: pa.RecordBatch, now_ms: int) -> pa.Int64Array:  # noqa: ARG002
        """Return the timestamps, null for Kafka's "none"."""
        times = batch["timestamp"]
        lowest = pc.min(times).as_py()
        if lowest is None or lowest > NO_TIMESTAMP:
            return times
        return pc.if_else(pc.equal(times, NO_TIMESTAMP), pa.scalar(None, pa.int64()), times)
