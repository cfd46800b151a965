"""What reading a file set has shown, as it crosses processes."""

import pickle

import pytest

from kbackup.catalog.claims import Checked
from kbackup.errors import Issue, StoreError
from kbackup.spark.engine import check_whole

PROBLEM = Issue("corrupt", "a", "it is cut short")


@pytest.mark.parametrize(
    "checked",
    [
        pytest.param(Checked("a", 2, 70, 9, 0, 8, ("a",), "5e1f", (PROBLEM,), True, 3), id="read"),
        pytest.param(Checked("a", failure=StoreError("gone").issue()), id="not read"),
    ],
)
def test_it_crosses_processes_unchanged(checked: Checked) -> None:
    """A task's report of a set reaches the driver unchanged."""
    assert checked == pickle.loads(pickle.dumps(checked))


def test_a_set_that_was_read_counts_as_no_failure() -> None:
    """A report without a failure is that of work that was done."""
    check_whole([Checked("a")], 1)
