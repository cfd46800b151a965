"""Cuts: every offset once, in order, and the same however the records arrive."""

from collections.abc import Iterable, Sequence
from itertools import chain

import pyarrow as pa
from flow_samples import offsets_by_directory, partitioners, routed, stamped
from hypothesis import given
from hypothesis import strategies as st
from kbackup_toys import Modulo
from record_samples import cut_up, record_batches

from kbackup.partitioners import Partitioner
from kbackup.pipeline.rotate import Append, Cut, Rule, cut
from kbackup.pipeline.rows import Rows, by_directory
from kbackup.records import Schema, record_bytes

limits = st.none() | st.integers(-1, 12)
rules = st.builds(
    Rule,
    records=limits,
    bytes=st.none() | st.integers(1, 400),
    span_ms=st.none() | st.integers(1, 2**40),
    on_directory_change=st.booleans(),
    open_files=st.none() | st.integers(0, 4),
)
places = st.lists(st.integers(0, 40), max_size=6)
V1, V2 = Schema("one"), Schema("two")
File = tuple[dict[str, list[int]], int | None]


def schema_of(offset: int) -> Schema | None:
    """A schema that changes every few offsets."""
    return (V1, V2, None)[offset // 7 % 3]


def files(stream: Iterable[Rows], rule: Rule) -> list[File]:
    """The offsets of each cut by directory, and where the next one starts; None: left open."""
    found: list[File] = []
    rows: list[Rows] = []
    for step in cut(stream, rule):
        match step:
            case Append(some):
                assert len(some)
                rows.append(some)
            case Cut(next_offset):
                found.append((offsets_by_directory(rows), next_offset))
                rows = []
    return [*found, (offsets_by_directory(rows), None)]


def flow(batches: Sequence[pa.RecordBatch], partitioner: Partitioner) -> list[Rows]:
    """Rows as they come out of `route`, under schemas that change."""
    return [rows for batch in batches for rows in routed(batch, partitioner, schema_of)]


@given(record_batches(), rules, partitioners)
def test_cuts_cover_every_offset_once_in_order(
    batch: pa.RecordBatch, rule: Rule, partitioner: Partitioner
) -> None:
    """No record is lost, doubled or moved, no file is empty, and cuts do not overlap."""
    batch = stamped(batch)
    found = files(flow([batch], partitioner), rule)
    cuts = [sorted(chain(*each.values())) for each, _ in found]

    assert batch["offset"].to_pylist() == [offset for offsets in cuts for offset in offsets]
    for (directories, next_offset), offsets in zip(found[:-1], cuts, strict=False):
        assert next_offset == offsets[-1] + 1
        assert all(each == sorted(each) for each in directories.values())


@given(record_batches(), rules, places, partitioners)
def test_cuts_do_not_depend_on_how_records_arrive(
    batch: pa.RecordBatch, rule: Rule, cuts: list[int], partitioner: Partitioner
) -> None:
    """Files are the same, however records are batched on arrival."""
    batch = stamped(batch)
    parts = cut_up(batch, cuts)

    assert files(flow([batch], partitioner), rule) == files(flow(parts, partitioner), rule)


@given(record_batches(max_size=25), rules, partitioners)  # each is routed again from each cut
def test_a_rerun_from_any_cut_makes_the_same_files(
    batch: pa.RecordBatch, rule: Rule, partitioner: Partitioner
) -> None:
    """A retry that begins at a committed offset overwrites itself with the same records."""
    batch = stamped(batch)
    found = files(flow([batch], partitioner), rule)
    done = 0

    for at, (directories, _) in enumerate(found[:-1]):
        done += sum(map(len, directories.values()))
        assert found[at + 1 :] == files(flow([batch.slice(done)], partitioner), rule)


@given(record_batches(), st.integers(-1, 12), st.integers(1, 400), partitioners)
def test_no_cut_is_larger_than_its_rule(
    batch: pa.RecordBatch, records: int, size: int, partitioner: Partitioner
) -> None:
    """All open files of a partition end with the record that reaches a limit, not later."""
    batch = stamped(batch)
    sizes = dict(zip(batch["offset"].to_pylist(), record_bytes(batch).to_pylist(), strict=True))

    for directories, _ in files(routed(batch, partitioner), Rule(records=records, bytes=size)):
        offsets = sorted(chain(*directories.values()))
        assert len(offsets) <= max(1, records)
        assert sum(sizes[offset] for offset in offsets[:-1]) < size


@given(record_batches(), st.integers(1, 2**40), partitioners)
def test_a_cut_spans_less_record_time_than_its_rule(
    batch: pa.RecordBatch, span: int, partitioner: Partitioner
) -> None:
    """No record of a cut is as late as its first one plus the interval."""
    batch = stamped(batch)
    times = dict(zip(*(batch[name].to_pylist() for name in ("offset", "timestamp")), strict=True))

    for directories, _ in files(routed(batch, partitioner), Rule(span_ms=span)):
        offsets = sorted(chain(*directories.values()))
        assert all(times[offset] - times[offsets[0]] < span for offset in offsets)


@given(record_batches(), rules, st.integers(1, 4))
def test_a_file_has_one_schema_and_a_cut_so_many_directories(
    batch: pa.RecordBatch, rule: Rule, most: int
) -> None:
    """A file is closed before a record of another schema is written."""
    rule = Rule(records=rule.records, open_files=most)

    for directories, _ in files(flow([batch], Modulo(5)), rule):
        assert len(directories) <= most
        for offsets in directories.values():
            assert 1 == len({schema_of(offset) for offset in offsets})


@given(record_batches(), partitioners)
def test_each_row_is_in_the_file_of_its_directory(
    batch: pa.RecordBatch, partitioner: Partitioner
) -> None:
    """Splitting rows by directory keeps every row, in offset order."""
    for rows in routed(batch, partitioner):
        parted = by_directory(rows)

        expected = offsets_by_directory([rows])
        assert [*expected.items()] == [
            (name, some.batch["offset"].to_pylist()) for name, some in parted
        ]
        for _, some in parted:
            assert some.batch.equals(some.parts[0].batch)
