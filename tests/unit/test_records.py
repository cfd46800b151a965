"""What travels between the stages."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_samples import batch_of, record_batches

from kbackup.records import (
    RECORD_OVERHEAD,
    Facts,
    Rotation,
    Span,
    batch_bytes,
    record_bytes,
    record_bytes_bound,
    without,
)

FACTS = Facts(10, 29, 15, 1_700_000_000_000, None, "ab" * 32)


def test_facts_survive_as_metadata() -> None:
    """What is stored with an object can be read again, unknown values included."""
    assert FACTS == Facts.from_metadata(FACTS.to_metadata())


@pytest.mark.parametrize(
    "metadata",
    [
        {}, {"sha256": "ab"},
        *(
            FACTS.to_metadata() | forged
            for forged in (
                {"records": "many"}, {"records": str(2**63)}, {"last-offset": str(2**63 - 1)},
                {"min-timestamp": str(-(2**63) - 1)},
            )
        ),
    ],
)  # fmt: skip
def test_anybody_elses_metadata_is_not_ours(metadata: dict[str, str]) -> None:
    """The metadata of another tool's object is not read as kbackup's facts."""
    assert Facts.from_metadata(metadata) is None


@pytest.mark.parametrize(
    ("start", "end", "cut"),
    [(0, 2**63 - 1, Rotation(Span(0, 2**63 - 1), 1)), (0, 2**63, None), (5, 4, None)],
)
def test_a_cut_that_no_ledger_could_have_is_none(
    start: int, end: int, cut: Rotation | None
) -> None:
    """It ends at a position, which has 64 bits with its sign."""
    said = {"cut-start": str(start), "cut-end": str(end), "cut-files": "1"}

    assert cut == Rotation.from_metadata(said)


def test_a_record_counts_for_what_it_holds() -> None:
    """Key, value, header names and values, and a constant for the rest; null counts as nothing."""
    batch = batch_of(
        [
            {"key": b"key", "value": b"value"},
            {"key": None, "value": None},
            {"headers": [{"key": "é", "value": b"12"}, {"key": "n", "value": None}]},
        ]
    )

    assert [8, 0, 5] == [size - RECORD_OVERHEAD for size in record_bytes(batch).to_pylist()]


@given(record_batches(), st.integers(0, 3))
def test_a_batch_counts_for_what_its_records_do(batch: pa.RecordBatch, start: int) -> None:
    """However it is cut: what is measured quickly is what is measured row by row."""
    part = batch.slice(start)

    assert sum(record_bytes(part).to_pylist()) == batch_bytes(part)


@given(record_batches(), st.integers(0, 3))
def test_no_record_is_larger_than_the_bound(batch: pa.RecordBatch, start: int) -> None:
    """A batch whose bound is within a limit needs no look at each of its records."""
    part = batch.slice(start)

    assert max(record_bytes(part).to_pylist(), default=0) <= record_bytes_bound(part)


def test_the_bound_is_exact_where_the_largest_of_all_is_in_one_record() -> None:
    """Records of one shape are measured as they are, so a limit that fits them is believed."""
    header = [{"key": "trace", "value": b"12345"}]
    batch = batch_of([{"key": b"key", "value": b"value", "headers": header}, {"key": None}])

    assert pc.max(record_bytes(batch)).as_py() == record_bytes_bound(batch)


@given(record_batches())
def test_a_records_size_does_not_depend_on_its_neighbours(batch: object) -> None:
    """Slices measure the same, so cuts do not depend on how records arrive."""
    sizes = record_bytes(batch)

    for at in range(len(sizes)):
        assert sizes[at] == record_bytes(batch.slice(at, 1))[0]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("first", "last", "records", "covers"),
    [
        pytest.param(10, 29, 15, True, id="the same"),
        pytest.param(10, 29, 16, True, id="more between"),
        pytest.param(10, 30, 16, True, id="one more at its end"),
        pytest.param(9, 30, 17, True, id="one more at each end"),
        pytest.param(10, 30, 15, False, id="a longer one of as many"),
        pytest.param(9, 30, 16, False, id="one more, for two ends"),
        pytest.param(10, 29, 14, False, id="fewer"),
        pytest.param(10, 28, 15, False, id="shorter"),
        pytest.param(11, 29, 15, False, id="begins later"),
    ],
)
def test_an_object_covers_one_whose_records_it_may_all_have(
    first: int, last: int, records: int, *, covers: bool
) -> None:
    """One that ends elsewhere has a record more there, or lacks another."""
    assert covers == Facts(first, last, records, None, None, "").covers(FACTS)


_SPANS = st.builds(
    lambda start, size: Span(start, start + size), st.integers(0, 20), st.integers(0, 9)
)


@given(_SPANS, st.lists(_SPANS))
def test_what_is_left_of_a_span_is_what_no_other_has(span: Span, others: list[Span]) -> None:
    """Each offset once, in order, and no empty span."""
    offsets = [set(range(one.start_offset, one.end_offset)) for one in (span, *others)]
    found = without(span, others)

    assert sorted(offsets[0].difference(*offsets[1:])) == [
        offset for one in found for offset in range(one.start_offset, one.end_offset)
    ]
    assert all(map(len, found))
