"""``partition=<n>``: one directory a Kafka partition."""

from typing import ClassVar

import pyarrow as pa

from kbackup.records import TopicPartition


class DefaultPartitioner:
    """The connectors' default; every row of a topic-partition goes to one directory."""

    class_names: ClassVar[tuple[str, ...]] = ("DefaultPartitioner",)

    def encode(self, where: TopicPartition, batch: pa.RecordBatch) -> pa.Array:
        """Return ``partition=<n>`` for each row."""
        indices = pa.repeat(pa.scalar(0, pa.int32()), len(batch))
        return pa.DictionaryArray.from_arrays(indices, [f"partition={where.partition}"])
