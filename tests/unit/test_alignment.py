"""Two streams of rows side by side."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kbackup.records import pairs

sizes = st.lists(st.integers(0, 4), max_size=6)


def batches(lengths: list[int]) -> list[pa.RecordBatch]:
    """Return the numbers from 0 on, in batches of these lengths."""
    starts = [sum(lengths[:at]) for at in range(len(lengths))]
    return [
        pa.record_batch({"n": pa.array(range(start, start + length), pa.int64())})
        for start, length in zip(starts, lengths, strict=True)
    ]


@settings(deadline=None)
@given(sizes, sizes)
def test_rows_meet_their_counterparts(left: list[int], right: list[int]) -> None:
    """Each row is beside the row of its number, and what one stream has more comes last."""
    found = [*pairs(batches(left), batches(right))]

    both = [(mine, other) for mine, other in found if mine is not None and other is not None]
    rows = min(sum(left), sum(right))
    assert [*range(rows)] == [n for mine, _ in both for n in mine["n"].to_pylist()]
    assert all(mine.equals(other) for mine, other in both)
    alone = found[len(both) :]
    assert [(sum(left) > rows, sum(right) > rows)] * (sum(left) != sum(right)) == [
        (mine is not None, other is not None) for mine, other in alone
    ]
