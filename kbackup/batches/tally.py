"""What is known of batches without unpacking more of them than it takes."""

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.batches import APPEND_TIME, CODEC_BITS, Batches
from kbackup.batches.decoding import MAX_RECORD_BYTES, Times, decoded, times
from kbackup.records import Facts

METHOD: Final = "b1:"
"""What a digest of batches begins with; that of records is `kbackup.pipeline.rows`'s."""

_COLUMNS: Final = ("last_delta", "count", "base_timestamp", "max_timestamp", "records_crc")


class BatchesDigest:
    """Of batches that come some at a time.

    It depends on the batches and their order, not on their offsets: a copy elsewhere has others.
    Of the records it has the CRC32C, as they are stored: it tells damage, not forgery.
    """

    def __init__(self) -> None:
        self._batches = 0
        self._columns = [hashlib.sha256(usedforsecurity=False) for _ in (*_COLUMNS, "kind")]

    def add(self, batches: Batches) -> None:
        """Take the next ones."""
        headers = batches.headers
        kind = pa.scalar(CODEC_BITS | APPEND_TIME, pa.int16())
        columns = [*(headers[name] for name in _COLUMNS)]
        columns.append(pc.bit_wise_and(headers["attributes"], kind))
        for stream, column in zip(self._columns, columns, strict=True):
            width = column.type.bit_width // 8
            start = column.offset * width
            data = memoryview(column.buffers()[1]).cast("B") if len(column) else memoryview(b"")
            stream.update(data[start : start + len(column) * width])
        self._batches += len(batches)

    @property
    def text(self) -> str:
        """The digest of all that was added, behind its method."""
        found = hashlib.sha256(self._batches.to_bytes(8, "little"), usedforsecurity=False)
        for stream in self._columns:
            found.update(stream.digest())
        return METHOD + found.hexdigest()


@dataclass(slots=True)
class Tally:
    """The facts of batches that come some at a time, none of them empty.

    Attributes:
        max_record_bytes: Larger records are refused, where records are unpacked.
    """

    max_record_bytes: int = MAX_RECORD_BYTES
    _facts: Facts | None = None
    _last: Batches | None = None
    _times: Times = field(default_factory=Times)
    _digest: BatchesDigest = field(default_factory=BatchesDigest)

    def add(self, batches: Batches) -> None:
        """Take the next ones.

        Raises:
            BatchError: If one that has to be unpacked does not hold what its header says.
        """
        if not len(batches):
            return
        if self._facts is None:
            first = self._offsets(batches.slice(0, 1))[0]
            self._facts = Facts(first, first, 0, None, None, "")
        self._facts = replace(self._facts, records=self._facts.records + batches.records)
        self._times = self._times.joined(times(batches, self.max_record_bytes))
        self._last = batches.slice(len(batches) - 1)
        self._digest.add(batches)

    def facts(self) -> Facts | None:
        """Return what is known, without the object's ``sha256``; None where nothing was added."""
        if self._facts is None or self._last is None:
            return None
        last = self._offsets(self._last)[1]
        return replace(
            self._facts, last_offset=last, min_timestamp=self._times.low,
            max_timestamp=self._times.high, digest=self._digest.text,
        )  # fmt: skip

    def _offsets(self, one: Batches) -> tuple[int, int]:
        """Return the first and the last offset of a batch, which need be neither end of it."""
        header: dict[str, Any] = one.headers.to_pylist()[0]
        base, delta = header["base_offset"], header["last_delta"]
        if header["count"] == delta + 1:
            return base, base + delta
        offsets = [rows["offset"] for rows in decoded(one, max_record_bytes=self.max_record_bytes)]
        return offsets[0][0].as_py(), offsets[-1][-1].as_py()
