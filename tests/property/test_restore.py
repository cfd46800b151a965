"""A restore that is killed and run again while its backup grows, over any number of directories."""

from dataclasses import dataclass

import pytest
from backup_samples import JSON
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.target import CrashError, Restoring


@dataclass(frozen=True)
class Step:
    """A run of the sink, then a run of the restore."""

    records: int  # how many records the sink finds
    size: int  # records of a file
    back: int  # by how many records its group was set back before: objects grow
    crash_at: int  # the commit at which the restore is killed; 0 for none


STEPS = st.lists(
    st.builds(Step, st.integers(0, 12), st.integers(2, 8), st.integers(0, 10), st.integers(0, 3)),
    min_size=1,
    max_size=5,
)


def _sink(again: Restoring, begin: int, end: int, step: Step, folders: int) -> None:
    """Store what a sink stores from *begin* on: cuts of a number of records, spread by offset."""
    for at in range(begin, end, step.size):
        cut = range(at, min(end, at + step.size))
        for folder in range(folders):
            if held := [offset for offset in cut if offset % folders == folder]:
                again.backup.put_in(f"a={folder}", "orders", 0, held)


@settings(deadline=None, max_examples=40)
@given(STEPS, st.integers(1, 3), st.integers(1, 9))
def test_every_record_is_restored_once_and_in_order(
    steps: list[Step], folders: int, transaction: int
) -> None:
    """Whatever grows, overlaps or is killed in between, the copy is the topic at the end."""
    again, end = Restoring(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kbackup.restore.transaction.TRANSACTION_RECORDS", transaction)
        for number, step in enumerate(steps):
            begin, end = max(0, end - step.back), end + step.records
            _sink(again, begin, end, step, folders)
            if not end:
                continue
            try:
                again.restore(run=f"r{number}", crash_at=step.crash_at)
            except CrashError:
                assert step.crash_at
        if end:
            again.restore(run="last")

    copy = again.cluster.values("copy_of_orders") if end else []
    assert [b'{"n":%d}' % at for at in range(end)] == copy


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), min_size=1, max_size=6),
    st.integers(1, 9),
)
def test_rows_without_offsets_are_restored_once(
    objects: list[tuple[int, int]], transaction: int
) -> None:
    """The connectors' rows are counted: a kill between any two commits repeats and loses none."""
    again, end = Restoring(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kbackup.restore.transaction.TRANSACTION_RECORDS", transaction)
        for number, (records, crash_at) in enumerate(objects):
            again.backup.put("orders", 0, range(end, end + records), views=JSON)
            end += records
            try:
                again.restore(run=f"r{number}", crash_at=crash_at)
            except CrashError:
                assert crash_at
        again.restore(run="last")

    assert [b'{"n":%d}' % at for at in range(end)] == again.cluster.values("copy_of_orders")
