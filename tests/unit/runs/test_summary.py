"""The line every command ends with."""

from kbackup.runs.summary import Summary


def test_a_sum_over_something_unknown_is_unknown() -> None:
    """
    A number that leaves out a partition looks like a backup that is too small.
    """
    summary = Summary("2026-11-21T02:00:00Z-7f3a", "restore verify")
    summary.partitions = [
        {"topic": "orders", "partition": 0, "records": 10, "objects": 2},
        {"topic": "orders", "partition": 1, "records": None, "objects": 3},
    ]

    found = summary.finish()

    assert (None, 5, 0) == tuple(found[name] for name in ("records", "objects", "bytes_read"))
