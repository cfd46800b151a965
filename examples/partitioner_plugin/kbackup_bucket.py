"""``bucket=00`` to ``bucket=15``, chosen by a checksum of the key, so equal keys stay together."""

import zlib
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
from kbackup_bucket_options import COUNT

from kbackup.records import TopicPartition


class BucketPartitioner:
    """The key determines the directory; null keys go to ``bucket=none``."""

    class_names: ClassVar[tuple[str, ...]] = ("BucketPartitioner",)
    goes_by_time: ClassVar[bool] = False
    no_directory: ClassVar[tuple[str, str]] = ("every record has one", "")

    def configure(self, options: Mapping[str, Any]) -> None:
        """Read the option ``bucket.count``."""
        self._count = COUNT.of(options)

    def only_directory(self, _where: TopicPartition) -> None:
        """Return nothing: the directory depends on the record."""

    def encode(self, where: TopicPartition, batch: pa.RecordBatch) -> pa.Array:
        """Return a directory for each row."""
        keys = batch["key"].dictionary_encode()  # one checksum per key, not per record
        names = [
            f"bucket={zlib.crc32(key) % self._count:02}" for key in keys.dictionary.to_pylist()
        ]
        names.append("bucket=none")
        indices = keys.indices.fill_null(len(names) - 1)
        return pa.DictionaryArray.from_arrays(indices, names)
