"""The line every command ends with."""

from kbackup.runs.report import Summary


def test_what_is_there_is_counted_as_stored() -> None:
    """A look at a backup sums the bytes of its objects, of each topic and of all."""
    summary = Summary("r", "restore topics")
    for topic, stored in (("orders", 3), ("orders", 4), ("payments", 5)):
        summary.partitions.append({"topic": topic, "partition": 0, "bytes": stored})

    line = summary.finish()

    assert (12, [7, 5]) == (line["bytes_stored"], [topic["bytes"] for topic in line["topics"]])


def test_a_sum_over_something_unknown_is_unknown() -> None:
    """A number that leaves out a partition looks like a backup that is too small."""
    summary = Summary("2026-11-21T02:00:00Z-7f3a", "restore verify")
    summary.partitions = [
        {"topic": "orders", "partition": 0, "records": 10, "objects": 2},
        {"topic": "orders", "partition": 1, "records": None, "objects": 3},
    ]

    found = summary.finish()

    assert (None, 5, 0) == tuple(found[name] for name in ("records", "objects", "bytes_read"))
