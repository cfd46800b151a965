"""``<date>``: the day on which an object was uploaded, which is known only then."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from kbackup.naming import UPLOAD_DATE
from kbackup.partitioners import EVERY_RECORD_HAS_ONE, Traits
from kbackup.records import TopicPartition


class UploadDatePartitioner:
    """The block-gzip sink's: a partition is one sequence of files, whatever the day of each.

    Here all of them have one directory, `kbackup.naming.UPLOAD_DATE`; the date is put in its place
    when a file is stored.
    """

    traits: ClassVar = Traits((), goes_by_time=False, no_directory=EVERY_RECORD_HAS_ONE)

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take nothing: there is nothing to choose."""

    def only_directory(self, where: TopicPartition) -> str:  # noqa: ARG002
        """Return what stands for the date."""
        return UPLOAD_DATE

    def encode(self, where: TopicPartition, batch: pa.RecordBatch) -> pa.Array:  # noqa: ARG002
        """Return what stands for the date, for each row."""
        zeros = pa.py_buffer(bytes(4 * len(batch)))
        indices = pa.Array.from_buffers(pa.int32(), len(batch), [None, zeros])
        return pa.DictionaryArray.from_arrays(indices, [UPLOAD_DATE])
