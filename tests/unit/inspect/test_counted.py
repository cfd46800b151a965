"""What a query need not read: whole objects, which are counted."""

from dataclasses import replace
from operator import eq, ge, gt, le, lt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from backup_samples import JSON, RECORD, Backup
from hypothesis import given, settings
from hypothesis import strategies as st

from kbackup.inspect.source import Counted
from kbackup.pipeline.views import ViewSpec
from kbackup.records import TopicPartition
from tests.support.query import found, read

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
OPERATORS: Final = {"<": lt, "<=": le, "=": eq, ">=": ge, ">": gt}


Cut = tuple[int, int, int]
CUTS: Final = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(1, 5), st.integers(1, 2)), min_size=1, max_size=5
)
COMPARISONS: Final = st.lists(
    st.tuples(st.sampled_from([*OPERATORS]), st.integers(-1, 30)), max_size=3
)


@settings(max_examples=25, deadline=None)
@given(CUTS, st.sampled_from([RECORD, JSON]), COMPARISONS, st.sets(st.integers(0, 4), max_size=2))
def test_counted_and_read_are_what_is_read_of_all(
    cuts: list[Cut],
    views: tuple[ViewSpec, ...],
    comparisons: list[tuple[str, int]],
    unknown: set[int],
) -> None:
    """With gaps, overlaps, objects of which nothing is known, and any comparison."""
    at, ranges = 0, list[range]()
    for gap, count, step in cuts:  # full records may overlap, and offsets may be missing
        start = max(ranges[-1].start + 1 if ranges else 0, at + (gap if views is RECORD else 0))
        ranges.append(range(start, start + count * step, step if views is RECORD else 1))
        at = ranges[-1].stop
    with TemporaryDirectory() as folder:
        backup = Backup.in_folder(Path(folder))
        keys = backup.put("orders", 0, *ranges, views=views)
        whole = found(backup, [key for at, key in enumerate(keys) if at not in unknown])
        split = whole.by_facts(comparisons)
        every, left = (read(of, "offset")["offset"].to_pylist() for of in (whole, split))

    def seen(offset: int) -> tuple[bool, ...]:
        return tuple(OPERATORS[operator](offset, number) for operator, number in comparisons)

    assert sorted(map(seen, every)) == sorted(map(seen, left))


def test_objects_apart_are_counted_and_none_of_a_partition_that_lacks_one(tmp_path: Path) -> None:
    """Nothing of them is opened; overlapping ones and those of unknown ends are read."""
    backup = Backup.in_folder(tmp_path)
    keys = backup.put("orders", 0, range(10), range(10, 20), range(20, 40))
    keys += backup.put("orders", 1, range(10), range(5, 15), range(20, 25), range(30, 31))
    whole = found(backup, keys[:-1])
    lacking = replace(whole, missing={FIRST: ["gone"]})

    split = whole.by_facts([("<", 20)])

    ahead, behind = Counted(FIRST, 0, 20, 2), Counted(FIRST, 20, 20, 1)
    assert (ahead, behind, Counted(SECOND, 20, 5, 1)) == split.known
    left = [files.start_offset for sets in split.sets.values() for files in sets]
    assert [0, 5, 30] == left
    assert (Counted(SECOND, 20, 5, 1),) == lacking.by_facts([]).known


def test_values_of_which_a_part_is_read_are_not_counted(tmp_path: Path) -> None:
    """Full records beside them hold the rest."""
    backup = Backup.in_folder(tmp_path)
    keys = backup.put("orders", 0, range(10), views=JSON) + backup.put("orders", 0, range(6, 14))

    split = found(backup, keys).by_facts([])

    assert (Counted(FIRST, 6, 8, 1),) == split.known
    assert [*range(6)] == read(replace(split, known=()))["offset"].to_pylist()
