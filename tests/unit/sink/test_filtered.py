"""How many records a transform left out before each cut."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from record_samples import batch_of

from kbackup.pipeline.rows import Part, Rows
from kbackup.sink.rejects import FilterCount

BATCHES = st.lists(st.lists(st.booleans(), min_size=1, max_size=6), max_size=8)


def rows_of(kept: list[int], filtered: list[int]) -> Rows:
    """Return rows of these offsets."""
    batch = batch_of([{"offset": at} for at in kept])
    if not kept:
        batch = batch_of([{"offset": 0}]).take(pa.array([], pa.int64()))
    return Rows(batch, (Part(batch),), filtered=tuple(filtered))


@given(BATCHES, st.randoms(use_true_random=False))
def test_each_cut_has_the_count_of_what_was_left_out_before_it(
    batches: list[list[bool]], random: st.DrawFn
) -> None:
    """A cut ends after a kept record, and a run from there counts the filtered ones again."""
    counted, gone, start, last = FilterCount(), [], 0, -1
    for flags in batches:
        offsets = range(start, start + len(flags))
        kept = [at for at, is_kept in zip(offsets, flags, strict=True) if is_kept]
        filtered = [at for at in offsets if at not in kept]
        start += len(flags)
        gone += filtered
        counted.take(rows_of(kept, filtered))
        places = [at for at in (last, *kept) if at >= 0 and random.random() < 0.5]  # type: ignore[attr-defined]
        for at in places:
            expected = [each for each in gone if each < at + 1]
            assert len(expected) == counted.before(at + 1)
            gone = [each for each in gone if each not in expected]
        last = kept[-1] if kept else last

    assert len(gone) == counted.before(start)
