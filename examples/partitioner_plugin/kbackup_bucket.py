"""``bucket=00`` to ``bucket=15``, chosen by a checksum of the key, so equal keys stay together."""

import zlib
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from kbackup.options import integer
from kbackup.partitioners import Traits
from kbackup.records import TopicPartition

COUNT = integer("bucket.count", "Number of buckets.", 16, ge=1, le=100)


class BucketPartitioner:
    """The key determines the directory; null keys go to ``bucket=none``."""

    traits: ClassVar = Traits(("BucketPartitioner",), options=(COUNT,), goes_by_time=False)

    def configure(self, options: Mapping[str, Any]) -> None:
        """Read the option ``bucket.count``."""
        self._count = COUNT.of(options)

    def encode(self, where: TopicPartition, batch: pa.RecordBatch) -> pa.Array:
        """Return a directory for each row."""
        keys = batch["key"].dictionary_encode()  # one checksum per key, not per record
        names = [
            f"bucket={zlib.crc32(key) % self._count:02}" for key in keys.dictionary.to_pylist()
        ]
        names.append("bucket=none")
        indices = keys.indices.fill_null(len(names) - 1)
        return pa.DictionaryArray.from_arrays(indices, names)
