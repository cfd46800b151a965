import pyarrow as pa
import pytest
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


@pytest.mark.parametrize(
    ("most", "sizes", "expected"),
    [
        pytest.param((3, 10**6), [24] * 7, [3, 3, 0, 1], id="by records"),
        pytest.param((100, 100), [50, 50, 99, 50, 1000, 24], [2, 2, 1, 0, 1], id="by bytes"),
        pytest.param((3, 200), [24, 24, 24, 200, 24, 176], [3, 1, 2], id="whichever comes first"),
        pytest.param((100, 4096), [24, 24, 10**6, 24], [3, 0, 1], id="a larger record"),
    ],
)
def test_a_group_ends_with_the_record_that_fills_it(
    most: tuple[int, int], sizes: list[int], expected: list[int]
) -> None:
    """The record that reaches a limit still belongs to the group, and nothing is added to it."""
    assert expected == lengths(RowGroups(*most), sized(*sizes))


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
