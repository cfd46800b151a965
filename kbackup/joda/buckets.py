"""Times to the texts of their buckets: columns, each distinct bucket printed once."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.joda.pattern import Pattern
from kbackup.joda.zones import Zone

_SHIFT: Final = 20
"""Moments with equal higher bits are within 17 minutes, in which a zone changes at most once."""
_FARTHEST: Final = 2**62
"""Moments farther from the epoch, in ms, have no bucket: their sums would overflow."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Spans of local time, such as days, and their names.

    Attributes:
        duration_ms: Length of a bucket, 1 at least.
        pattern: Formats its beginning.
        zone: The zone at whose midnight buckets begin.
    """

    duration_ms: int
    pattern: Pattern
    zone: Zone

    def printed(self, times: pa.Int64Array) -> pa.DictionaryArray:
        """Return the text of the bucket of each moment; null stays null.

        Before 1970, buckets are rounded towards 1970, as in Java's integer division, so that
        local 1969-12-31 is in the bucket of the following day.

        Args:
            times: ms since the epoch.

        Returns:
            ``dictionary<int32, string>``, one row per row of *times*.
        """
        far = pc.or_(pc.greater(times, _FARTHEST), pc.less(times, -_FARTHEST))
        times = pc.if_else(far, pa.scalar(None, pa.int64()), times)
        local = pc.add(times, self._offsets(times))
        begins = pc.multiply(pc.divide(local, self.duration_ms), self.duration_ms)
        found = begins.dictionary_encode()
        texts = [
            self.pattern.printed(self.zone.to_utc(begin), self.zone)
            for begin in found.dictionary.to_pylist()
        ]
        return pa.DictionaryArray.from_arrays(found.indices, pa.array(texts, pa.string()))

    def _offsets(self, times: pa.Int64Array) -> pa.Int64Array:
        """Return how many ms local time is ahead of UTC at each moment."""
        if self.zone.rules is None:
            return pa.repeat(pa.scalar(self.zone.fixed_ms, pa.int64()), len(times))
        spans = pc.shift_right(times, _SHIFT).dictionary_encode()
        known = [_offset_in(self.zone, span) for span in spans.dictionary.to_pylist()]
        offsets = pa.array(known, pa.int64()).take(spans.indices)
        if None not in known:
            return offsets
        each = [
            self.zone.offset(at) if at is not None and offset is None else offset
            for at, offset in zip(times.to_pylist(), offsets.to_pylist(), strict=True)
        ]
        return pa.array(each, pa.int64())


@lru_cache(maxsize=4096)
def _offset_in(zone: Zone, span: int) -> int | None:
    """Return the offset in one span of `_SHIFT` bits, None if it changes within it."""
    first = zone.offset(span << _SHIFT)
    return first if first == zone.offset(((span + 1) << _SHIFT) - 1) else None
