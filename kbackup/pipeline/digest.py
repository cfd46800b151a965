"""The digest of an object's records, which says what they were, whatever file holds them.

Each part of the records is a stream of bytes with a SHA-256 of its own, fed from the columns as
they are: nothing is done for each record.  ``docs/reference/storage-format.md`` says it in full.
"""

import hashlib
import struct
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

METHOD: Final = "r1:"
"""What a digest of this kind begins with; what begins with anything else is not comparable."""

_NULL: Final = -1
"""The length of a null."""

_NO_TIME: Final = -(2**63)
"""The timestamp of a record without one; Kafka has none below -1."""

_OFFSET: Final = struct.Struct("<i")


class RecordsDigest:
    """Of records that come one batch after the other.

    It depends on the records and their order, not on how they are split into batches, nor on their
    offsets: a copy elsewhere has others.
    """

    def __init__(self) -> None:
        self._records = 0
        self._columns = [hashlib.sha256(usedforsecurity=False) for _ in range(3)]
        self._texts = [_Texts() for _ in range(4)]

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows of ``records.SCHEMA``."""
        if not len(batch):
            return
        headers = batch["headers"]
        columns = batch["timestamp"], batch["timestamp_type"], headers.value_lengths()
        for stream, column in zip(self._columns, columns, strict=True):
            stream.update(_bytes(column, _NO_TIME))
        flat = headers.flatten()  # of these rows only, where the batch is a slice
        texts = batch["key"], batch["value"], flat.field("key"), flat.field("value")
        for each, column in zip(self._texts, texts, strict=True):
            each.add(column)
        self._records += len(batch)

    @property
    def text(self) -> str:
        """The digest of all that was added, behind its method."""
        found = hashlib.sha256(self._records.to_bytes(8, "little"), usedforsecurity=False)
        for stream in self._columns:
            found.update(stream.digest())
        for each in self._texts:
            found.update(each.lengths.digest() + each.bytes.digest())
        return METHOD + found.hexdigest()


class _Texts:
    """Of a column of bytes or strings: their lengths, and they themselves."""

    def __init__(self) -> None:
        self.lengths = hashlib.sha256(usedforsecurity=False)
        self.bytes = hashlib.sha256(usedforsecurity=False)

    def add(self, column: pa.Array) -> None:
        if not len(column):
            return
        self.lengths.update(_bytes(pc.binary_length(column), _NULL))
        if column.null_count:
            column = column.drop_null()  # the place of a null may hold bytes
        _, offsets, data = column.buffers()
        start, end = (
            _OFFSET.unpack_from(offsets, _OFFSET.size * at)[0]
            for at in (column.offset, column.offset + len(column))
        )
        if start < end:
            self.bytes.update(memoryview(data)[start:end])


def _bytes(numbers: pa.Array, null: int) -> memoryview:
    """Return *numbers*, *null* for a null, as they are in memory: little-endian."""
    if numbers.null_count:
        numbers = pc.fill_null(numbers, null)
    width = numbers.type.bit_width // 8
    start = numbers.offset * width
    return memoryview(numbers.buffers()[1])[start : start + len(numbers) * width]
