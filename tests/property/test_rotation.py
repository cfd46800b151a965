"""Cuts: every offset once, in order, and the same however the records arrive."""

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from record_samples import cut_up, record_batches

from kbackup.flow.rotation import Append, Cut, Rule, cut
from kbackup.records import record_bytes

limits = st.none() | st.integers(-1, 12)
rules = st.builds(
    Rule,
    records=limits,
    bytes=st.none() | st.integers(1, 400),
    span_ms=st.none() | st.integers(1, 2**40),
)
places = st.lists(st.integers(0, 40), max_size=6)


def stamped(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as Kafka gives them: each with a timestamp, within reason."""
    times = [
        1_700_000_000_000 + (0 if at is None else at % 2**41)
        for at in batch["timestamp"].to_pylist()
    ]
    return batch.set_column(1, batch.schema.field(1), pa.array(times, pa.int64()))


def files(batches: Sequence[pa.RecordBatch], rule: Rule) -> list[tuple[list[int], int | None]]:
    """The offsets of each file, and where the next one starts; None for a file left open."""
    found: list[tuple[list[int], int | None]] = []
    offsets: list[int] = []
    for step in cut(batches, rule):
        match step:
            case Append(batch):
                assert len(batch)
                offsets += batch["offset"].to_pylist()
            case Cut(next_offset):
                found.append((offsets, next_offset))
                offsets = []
    return [*found, (offsets, None)]


@given(record_batches(), rules)
def test_cuts_cover_every_offset_once_in_order(batch: pa.RecordBatch, rule: Rule) -> None:
    """
    No record is lost, doubled or moved, and no file is empty.
    """
    batch = stamped(batch)
    found = files([batch], rule)

    assert batch["offset"].to_pylist() == [offset for offsets, _ in found for offset in offsets]
    for offsets, next_offset in found[:-1]:
        assert next_offset == offsets[-1] + 1


@given(record_batches(), rules, places)
def test_cuts_do_not_depend_on_how_records_arrive(
    batch: pa.RecordBatch, rule: Rule, cuts: list[int]
) -> None:
    """
    Batches of any size give the same files.
    """
    batch = stamped(batch)

    assert files([batch], rule) == files(cut_up(batch, cuts), rule)


@given(record_batches(), rules)
def test_a_rerun_from_any_cut_makes_the_same_files(batch: pa.RecordBatch, rule: Rule) -> None:
    """
    A retry that begins at a committed offset overwrites itself with the same records.
    """
    batch = stamped(batch)
    found = files([batch], rule)
    done = 0

    for at, (offsets, _) in enumerate(found[:-1]):
        done += len(offsets)
        assert found[at + 1 :] == files([batch.slice(done)], rule)


@given(record_batches(), st.integers(-1, 12), st.integers(1, 400))
def test_no_file_is_larger_than_its_rule(batch: pa.RecordBatch, records: int, size: int) -> None:
    """
    A file ends with the record that reaches a limit, not later.
    """
    batch = stamped(batch)
    sizes = dict(zip(batch["offset"].to_pylist(), record_bytes(batch).to_pylist(), strict=True))

    for offsets, _ in files([batch], Rule(records=records, bytes=size)):
        assert len(offsets) <= max(1, records)
        assert sum(sizes[offset] for offset in offsets[:-1]) < size


@given(record_batches(), st.integers(1, 2**40))
def test_a_file_spans_less_record_time_than_its_rule(batch: pa.RecordBatch, span: int) -> None:
    """
    No record of a file is later than its first by the span or more.
    """
    batch = stamped(batch)
    times = dict(zip(*(batch[name].to_pylist() for name in ("offset", "timestamp")), strict=True))

    for offsets, _ in files([batch], Rule(span_ms=span)):
        assert all(times[offset] - times[offsets[0]] < span for offset in offsets)
