"""One directory for all records of a partition: ``partition=<n>``, or ``<date>``."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from kbackup.connect.tables import Level, TableColumn, number
from kbackup.naming import UPLOAD_DATE
from kbackup.partitioners import EVERY_RECORD_HAS_ONE, Traits
from kbackup.records import TopicPartition


class OneDirectory:
    """A partitioner that gives all records of a partition the same directory."""

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take nothing: there is nothing to choose."""

    def only_directory(self, where: TopicPartition) -> str:
        """Return it."""
        raise NotImplementedError

    def encode(self, where: TopicPartition, batch: pa.RecordBatch) -> pa.Array:
        """Return it for each row."""
        zeros = pa.py_buffer(bytes(4 * len(batch)))  # a tenth of the time of `pa.repeat`
        indices = pa.Array.from_buffers(pa.int32(), len(batch), [None, zeros])
        return pa.DictionaryArray.from_arrays(indices, [self.only_directory(where)])


class DefaultPartitioner(OneDirectory):
    """The connectors' default; every row of a topic-partition goes to one directory."""

    traits: ClassVar = Traits(
        ("DefaultPartitioner",), goes_by_time=False, no_directory=EVERY_RECORD_HAS_ONE
    )

    def only_directory(self, where: TopicPartition) -> str:
        """Return ``partition=<n>``."""
        return f"partition={where.partition}"

    def levels(
        self, _columns: Sequence[TableColumn], _directories: Sequence[str], partitions: int
    ) -> tuple[Level, ...]:
        """Return the partition's number."""
        return (number("partition", 0, max(0, partitions - 1)),)


class UploadDatePartitioner(OneDirectory):
    """The block-gzip sink's: a partition is one sequence of files, whatever the day of each.

    Here all of them have one directory, `kbackup.naming.UPLOAD_DATE`; the date is put in its place
    when a file is stored.
    """

    traits: ClassVar = Traits((), goes_by_time=False, no_directory=EVERY_RECORD_HAS_ONE)

    def only_directory(self, where: TopicPartition) -> str:  # noqa: ARG002
        """Return what stands for the date."""
        return UPLOAD_DATE
