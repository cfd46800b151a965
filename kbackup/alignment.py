"""Two streams of rows side by side, however each is cut into batches."""

from collections.abc import Iterable, Iterator

import pyarrow as pa


def pairs(
    left: Iterable[pa.RecordBatch], right: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch | None, pa.RecordBatch | None]]:
    """Yield rows of both streams in pairs of equal length, never empty.

    Where one stream ends first, the last pair is None for it, and rows of the other.  No batch is
    read before its rows are due, so a caller may stop at the first difference.

    Memory: one batch of each.
    """
    lefts, rights = iter(left), iter(right)
    mine = other = None
    while True:
        mine, other = rest_of(mine, lefts), rest_of(other, rights)
        if mine is None or other is None:
            if mine is not other:
                yield mine, other
            return
        count = min(len(mine), len(other))
        yield mine.slice(0, count), other.slice(0, count)
        mine, other = mine.slice(count), other.slice(count)


def rest_of(
    rest: pa.RecordBatch | None, batches: Iterator[pa.RecordBatch]
) -> pa.RecordBatch | None:
    """Return *rest*, or the next batch that has a row where it has none; None at the end."""
    while rest is None or not len(rest):
        rest = next(batches, None)
        if rest is None:
            return None
    return rest
