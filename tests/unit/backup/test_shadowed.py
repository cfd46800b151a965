"""Which value objects are left out because whole records have their offsets."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.backup.file_sets import BackupFile, FileSet
from kbackup.backup.shadowed import without_shadowed
from kbackup.naming import View
from kbackup.records import TopicPartition

WHERE = TopicPartition("orders", 0)
Extent = tuple[str, int, int]
"""``whole`` or ``value``, and the offsets of the first and the last record."""


def file_set(kind: str, start: int, modified: float = 0.0) -> FileSet:
    """A set of one object."""
    view = View.RECORD if kind == "whole" else View.VALUE
    file = BackupFile(f"{kind}-{start}", view, ".x", "x", 1, modified)
    return FileSet(WHERE, start, "partition=0", file)


def kept(extents: list[Extent], *, knows_values: bool = True) -> list[tuple[str, int]]:
    """What is restored of sets that end where they say."""
    ends = {f"{kind}-{start}": last for kind, start, last in extents}

    def last_of(files: FileSet) -> int | None:
        key = files.files[0].key
        return ends[key] if knows_values or files.is_whole else None

    sets = [file_set(kind, start) for kind, start, _ in sorted(extents, key=lambda one: one[1])]
    found = without_shadowed(sets, last_of)
    return [("whole" if files.is_whole else "value", files.start_offset) for files in found]


@pytest.mark.parametrize(
    ("extents", "expected"),
    [
        pytest.param(
            [("whole", 0, 99), ("value", 100, 199), ("value", 200, 299), ("whole", 300, 399)],
            [0, 100, 200, 300], id="a layout changed and changed back",
        ),
        pytest.param(
            [("whole", 0, 99), ("value", 0, 49), ("value", 50, 99)], [0], id="both from the start"
        ),
        pytest.param(
            [("whole", 0, 59), ("whole", 60, 99), ("value", 50, 89), ("value", 90, 99)],
            [0, 60], id="across two whole ones",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("knows_values", [True, False])
def test_a_value_object_is_left_out_where_whole_records_have_all_of_it(
    extents: list[Extent], expected: list[int], knows_values: bool
) -> None:
    """
    A value object is left out if whole records hold all of it, also a connector's, which ends no
    later than the next one begins.
    """
    assert expected == [start for _, start in kept(extents, knows_values=knows_values)]


@pytest.mark.parametrize("last", [89, 119], ids=["into a hole", "over a hole"])
def test_a_value_object_that_reaches_out_of_the_whole_records_is_kept(last: int) -> None:
    """
    A value object that reaches beyond the whole records is restored, even if some records come
    twice.
    """
    found = kept([("whole", 0, 59), ("value", 50, last), ("whole", 100, 199)])

    assert [0, 50, 100] == [start for _, start in found]


@pytest.mark.parametrize(("modified", "count"), [(5.0, 1), (20.0, 2)])
def test_the_last_one_of_a_connector_is_judged_by_its_age(modified: float, count: int) -> None:
    """
    Nobody says where it ends: it is left out if whole records stored later hold its start.
    """
    sets = [file_set("whole", 0, 10.0), file_set("value", 50, modified)]

    found = without_shadowed(sets, lambda files: 99 if files.is_whole else None)

    assert count == len(found)


def test_whole_records_that_do_not_say_where_they_end_hide_nothing() -> None:
    """
    Whole records whose end is unknown shadow nothing: in doubt a record is restored twice.
    """
    sets = [file_set("whole", 0, 10.0), file_set("value", 50)]

    assert sets == without_shadowed(sets, lambda _: None)


extents = st.lists(
    st.tuples(st.sampled_from(["whole", "value"]), st.integers(0, 40), st.integers(0, 15)),
    max_size=10, unique_by=lambda one: one[:2],
)  # fmt: skip


@given(extents)
def test_no_offset_is_lost(found: list[tuple[str, int, int]]) -> None:
    """
    In any mix of objects, every offset that one of them holds is in a set that is restored.
    """
    sets = [(kind, start, start + more) for kind, start, more in found]
    # of one kind and directory, a set ends in front of the next one
    for kind in ("whole", "value"):
        starts = sorted(start for k, start, _ in sets if k == kind)
        following = dict(pairwise(starts))
        sets = [
            (k, start, min(last, following.get(start, last + 1) - 1) if k == kind else last)
            for k, start, last in sets
        ]

    chosen = set(kept(sets))

    everything = {at for _, start, last in sets for at in range(start, last + 1)}
    restored = {
        at for kind, start, last in sets if (kind, start) in chosen
        for at in range(start, last + 1)
    }  # fmt: skip
    assert everything == restored
    assert {("whole", start) for kind, start, _ in sets if kind == "whole"} <= chosen
