"""Which objects a query opens."""

from uuid import uuid4

import pytest

from kbackup.catalog.covered import within
from kbackup.catalog.listing import BackupFile, FileSet, Window
from kbackup.inspect.source import Found, chunks_of, of_conditions
from kbackup.naming import View
from kbackup.pipeline.views import ReadOptions
from kbackup.records import Facts, TopicPartition
from kbackup.stores import StoreSettings, open_store

WHERE = TopicPartition("orders", 0)


def file_set(start: int, view: View = View.RECORD) -> FileSet:
    """Return an object."""
    where = WHERE
    key = f"topics/orders/partition={where.partition}/orders+{where.partition}+{start:010}.record"
    directory = f"partition={where.partition}"
    main = BackupFile(key, view, ".zstd.parquet", "parquet", 10, 0.0)
    return FileSet(where, start, directory, main)


def facts_of(*spans: tuple[int, int]) -> dict[int, Facts]:
    """Return what is known of objects from their first to their last offset; ms are offsets."""
    return {
        first: Facts(first, last, last - first + 1, 1000 + first, 1000 + last, "")
        for first, last in spans
    }


def opened(window: Window, spans: list[tuple[int, int]]) -> list[int]:
    """Return the first offsets of the objects that are read for *window*."""
    sets = {WHERE: [file_set(first) for first, _ in spans]}
    settings = StoreSettings(f"memory://{uuid4()}")
    facts = {file_set(first).id: one for first, one in facts_of(*spans).items()}
    found = Found(settings, ReadOptions(), sets, facts).chunks(window)
    return [files.start_offset for chunk in found for files in chunk.sets]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        pytest.param([], [0, 10, 20], id="none"),
        pytest.param([("offset", "=", 12)], [10], id="one offset"),
        pytest.param([("offset", ">", 19)], [20], id="above"),
        pytest.param([("offset", ">=", 19)], [10, 20], id="from"),
        pytest.param([("offset", "<", 10)], [0], id="below"),
        pytest.param([("offset", "<=", 10)], [0, 10], id="up to"),
        pytest.param([("timestamp", ">=", 1015), ("timestamp", "<", 1020)], [10], id="times"),
        pytest.param([("partition", "=", 1)], [], id="another partition"),
        pytest.param([("partition", "in", [0, 5])], [0, 10, 20], id="several partitions"),
        pytest.param([("key", "=", 3)], [0, 10, 20], id="what is not known"),
        pytest.param([("offset", ">", 5), ("offset", "<", 3)], [], id="nothing"),
    ],
)
def test_only_objects_that_may_hold_an_answer_are_opened(
    conditions: list[tuple[str, str, object]], expected: list[int]
) -> None:
    """Conditions on partition, offset and timestamp rule objects out."""
    spans = [(0, 9), (10, 19), (20, 29)]

    assert expected == opened(of_conditions(conditions), spans)


@pytest.mark.parametrize(("operator", "expected"), [("<", [0, 10]), ("=", [10]), (">", [10, 20])])
def test_where_nothing_is_known_names_alone_rule_out(operator: str, expected: list[int]) -> None:
    """Values of which nothing is known may reach up to the next ones of their directory."""
    window = of_conditions([("offset", operator, 15)])
    sets = [file_set(first, View.VALUE) for first in (0, 10, 20)]

    found = within(open_store(StoreSettings(f"memory://{uuid4()}")), sets, window, lambda _: None)

    assert expected == [files.start_offset for files in found]


def test_objects_that_overlap_are_read_together() -> None:
    """Two tasks never read the same record: chunks end where no object reaches over."""
    spans = [(0, 9), (10, 25), (20, 29), (30, 39)]
    sets, known = [file_set(first) for first, _ in spans], facts_of(*spans)

    found = chunks_of({WHERE: sets}, lambda files: known.get(files.start_offset), 1)

    assert [[0], [10, 20], [30]] == [[f.start_offset for f in chunk.sets] for chunk in found]


def test_a_partition_of_which_nothing_is_known_is_one_chunk() -> None:
    """Where the end of an object is not known, nothing says that the next one begins after it."""
    sets = [file_set(first) for first in (0, 10, 20)]

    found = chunks_of({WHERE: sets}, lambda _: None, 1)

    assert [[0, 10, 20]] == [[files.start_offset for files in chunk.sets] for chunk in found]


def test_small_objects_share_a_chunk() -> None:
    """A chunk grows to its size before the next one begins."""
    spans = [(0, 9), (10, 19), (20, 29)]
    sets, known = [file_set(first) for first, _ in spans], facts_of(*spans)

    found = chunks_of({WHERE: sets}, lambda files: known.get(files.start_offset), 20)

    assert [2, 1] == [len(chunk.sets) for chunk in found]
