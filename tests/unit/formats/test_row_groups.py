import pyarrow as pa
from record_samples import batch_of

from kbackup.formats.parquet_records import RowGroups


def lengths(groups: RowGroups, *batches: pa.RecordBatch) -> list[int]:
    """Return the rows of each group, the short last one behind a 0."""
    found = [len(group) for batch in batches for group in groups.add(batch)]
    rest = groups.rest()
    return found if rest is None else [*found, 0, len(rest)]


def sized(*values: int) -> pa.RecordBatch:
    """Return records that count for as many bytes each; 24 is the least."""
    return batch_of([{"value": bytes(size - 24)} for size in values])


def test_a_group_ends_with_the_record_that_fills_it() -> None:
    """A row group ends with the record that fills it."""
    assert [3, 3, 0, 1] == lengths(RowGroups(3, 10**6), sized(*[24] * 7))


def test_a_group_ends_with_the_byte_that_fills_it() -> None:
    """The record that reaches the limit still belongs to the group."""
    assert [2, 2, 1, 0, 1] == lengths(RowGroups(100, 100), sized(50, 50, 99, 50, 1000, 24))


def test_whichever_comes_first() -> None:
    """A row group ends at its limit of records or of bytes, whichever comes first."""
    assert [3, 1, 2] == lengths(RowGroups(3, 200), sized(24, 24, 24, 200, 24, 176))


def test_headers_count() -> None:
    """Names and values of headers are bytes like others."""
    heavy = {"headers": [{"key": "abc", "value": b"1234567"}] * 10}

    assert [1, 1] == lengths(RowGroups(100, 124), batch_of([heavy, heavy]))


def test_many_small_batches_make_the_same_groups() -> None:
    """Row groups do not depend on the size of the batches."""
    batch = sized(*[24 + size % 90 for size in range(500)])
    each = [batch.slice(row, 1) for row in range(500)]

    assert lengths(RowGroups(64, 3000), batch) == lengths(RowGroups(64, 3000), *each)


def test_a_record_larger_than_a_group_is_alone_with_those_before_it() -> None:
    """A record larger than a row group ends its group, and nothing is added to it."""
    assert [3, 0, 1] == lengths(RowGroups(100, 4096), sized(24, 24, 10**6, 24))


def test_no_rows_make_no_group() -> None:
    """An empty batch makes no row group."""
    groups = RowGroups()

    assert [] == lengths(groups, sized(), sized())
    assert groups.rest() is None


def test_a_group_is_contiguous() -> None:
    """A group's arrays are its own: nothing is kept alive, or written otherwise, by a slice."""
    batch = sized(*[100] * 10)

    [group] = RowGroups(5, 10**6).add(batch.slice(1, 5))

    assert [0] * 6 == [column.offset for column in group.columns]
