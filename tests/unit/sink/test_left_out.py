"""How many records were left out before each cut."""

import tracemalloc
from dataclasses import replace
from threading import Event

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from record_samples import batch_of

from kbackup.pipeline.rows import BadRecord, Part, Rows
from kbackup.records import Span, TopicPartition
from kbackup.sink.rejects import ErrorPolicy, LeftOutCount, Rejects
from kbackup.spark.channel import LocalChannel

BATCHES = st.lists(st.lists(st.booleans(), min_size=1, max_size=6), max_size=8)


def rows_of(kept: list[int]) -> Rows:
    """Return rows of these offsets."""
    batch = batch_of([{"offset": at} for at in kept])
    if not kept:
        batch = batch_of([{"offset": 0}]).take(pa.array([], pa.int64()))
    return Rows(batch, (Part(batch),))


def rejects_of_all() -> Rejects:
    """Return what leaves out whatever is bad, and does not say so any more."""
    policy, channel = ErrorPolicy(tolerates=True), LocalChannel(Event())
    return Rejects(TopicPartition("orders", 0), policy, "run", channel, is_reported=True)


@given(BATCHES, st.randoms(use_true_random=False))
def test_each_cut_has_the_count_of_what_was_left_out_before_it(
    batches: list[list[bool]], random: st.DrawFn
) -> None:
    """A cut ends after a kept record, and a run from there counts what it leaves out again."""
    counted, gone, start, last = LeftOutCount(), [], 0, -1
    for flags in batches:
        offsets = range(start, start + len(flags))
        kept = [at for at, is_kept in zip(offsets, flags, strict=True) if is_kept]
        filtered = [at for at in offsets if at not in kept]
        start += len(flags)
        gone += filtered
        counted.take(rows_of(kept), filtered)
        places = [at for at in (last, *kept) if at >= 0 and random.random() < 0.5]  # type: ignore[attr-defined]
        for at in places:
            expected = [each for each in gone if each < at + 1]
            assert len(expected) == counted.before(at + 1)
            gone = [each for each in gone if each not in expected]
        last = kept[-1] if kept else last

    assert len(gone) == counted.before(start)


def test_what_is_left_out_takes_no_memory_where_no_cut_follows() -> None:
    """A topic of nothing else, however long, is counted in a few bytes."""
    rejects = rejects_of_all()
    nothing = rows_of([])
    tracemalloc.start()
    try:
        for start in range(0, 100_000, 1000):
            gone = tuple(range(start, start + 500, 2))
            bad = tuple(BadRecord(at, "no Avro") for at in range(start + 500, start + 1000))
            rows = replace(nothing, left_out=gone, filtered=gone, bad=bad)
            rejects.take(nothing.batch, rows)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    left_out = rejects.before(100_000)
    assert (25_000, 25_000, 50_000) == (left_out.nulls, left_out.filtered, left_out.bad_records)
    assert held < 100_000


def test_a_cut_within_what_is_bad_counts_each_record_once() -> None:
    """What is stored already may end there; the rest is left out of what follows."""
    rejects = rejects_of_all()
    nothing = rows_of([])
    for offsets in ((3, 4), (5, 8)):
        bad = tuple(BadRecord(at, "no Avro") for at in offsets)
        rejects.take(nothing.batch, replace(nothing, bad=bad))

    assert (Span(3, 5),) == rejects.before(5).bad
    assert (Span(5, 6), Span(8, 9)) == rejects.before(9).bad
    assert () == rejects.before(9).bad
