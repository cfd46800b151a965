"""SEAM: a batch to the encoded partition of each row."""

from typing import ClassVar, Protocol

import pyarrow as pa

from kbackup import plugins
from kbackup.records import TopicPartition


class Partitioner(Protocol):
    """Decides the directory of each record.

    Attributes:
        class_names: Simple names of the Java classes that stand for this partitioner.
    """

    class_names: ClassVar[tuple[str, ...]]

    def encode(self, where: TopicPartition, batch: pa.RecordBatch) -> pa.Array:
        """Return the encoded partition of each row.

        Returns:
            ``dictionary<int32, string>``, one row per row of *batch*, never null.  It depends on
            the records alone.
        """
        ...


def by_name(name: str) -> Partitioner:
    """Return the partitioner registered as *name*."""
    found: Partitioner = plugins.load("partitioners", name)()
    return found
