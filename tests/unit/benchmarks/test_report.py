"""The benchmark's loads by name, and its comparison of columns with objects."""

from typing import Any

import pytest

from benchmarks import report
from benchmarks.records import Load, loads


def _median(case: str, client: str, load: str, task_us: float, seconds: float) -> dict[str, Any]:
    """Return a row as the medians have it."""
    return {
        "case": case,
        "client": client,
        "load": load,
        "store": "dir",
        "records": 20_000_000,
        "bytes": 2_000_000_000,
        "task_cpu_us": task_us,
        "seconds": seconds,
        "peak_mib": 500 if client == "native" else 600,
    }


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


def test_columns_are_compared_with_objects_of_the_same_case() -> None:
    """A case of both clients gives ratios and aims; one without its counterpart gives none."""
    rows = [
        _median("sink", "native", "20M-100B", 0.8, 10.0),
        _median("sink", "python", "20M-100B", 2.0, 24.0),
        _median("restore", "native", "20M-100B", 0.8, 10.0),
        _median("consume loop", "", "20M-100B", 0.0, 1.0),
    ]

    found = report.compared(rows)

    assert [
        {
            "case": "sink",
            "load": "20M-100B",
            "store": "dir",
            "task_ratio": 0.4,
            "task_aim": 0.45,
            "speed": 2.4,
            "speed_aim": 2.5,
            "peak_mib_native": 500,
            "peak_mib_python": 600,
        }
    ] == found
