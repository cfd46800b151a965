"""The benchmark's loads by name, and its comparison with a peer."""

import pytest

from benchmarks import report
from benchmarks.records import Load, loads


def test_loads_are_named_by_records_and_size() -> None:
    """A name gives each partition's records and their size; a codec gives a topic of its own."""
    found = loads(0.5, ["20M-100B", "5K-1KB"], ["none", "lz4"])

    assert [
        Load("20M-100B", 100, 10_000_000),
        Load("5K-1KB", 1000, 2500),
        Load("20M-100B-lz4", 100, 10_000_000, "lz4"),
        Load("5K-1KB-lz4", 1000, 2500, "lz4"),
    ] == found


@pytest.mark.parametrize("name", ["100B", "4M", "0M-100B", "4G-100B", "4M-100", "4M-100B-lz4"])
def test_a_load_of_another_form_is_refused(name: str) -> None:
    """What is no number of records and their size is refused by name."""
    with pytest.raises(ValueError, match=f"^{name}: expected records"):
        loads(1.0, [name])


def test_a_whole_process_is_compared_with_the_peers_of_its_repetition() -> None:
    """How many times as fast it was; nothing is said where the peer did not run."""
    rows = [
        {"case": case, "direction": "read", "load": "l", "repetition": at, "wall_s": wall_s,
         "store": "dir", "records_per_s": 1}
        for case, at, wall_s in (("peer backup", 0, 9.0), ("sink log", 0, 3.0), ("sink", 1, 3.0))
    ]  # fmt: skip

    assert [1.0, 3.0, None] == [row["peer_ratio"] for row in report.with_ratios(rows)]
