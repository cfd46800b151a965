"""``restore list`` as it is typed: maps, consumer groups and a time in the past."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from backup_samples import Backup

from kbackup.catalog.groups import GROUPS, GroupEntry, group_stream
from kbackup.catalog.ledger.rows import table
from kbackup.clock import SystemClock
from tests.support.invoked import run
from tests.support.json_lines import LINES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A backup of three objects, which knows nothing of itself."""
    (tmp_path / "backup").mkdir()
    backup = Backup.in_folder(tmp_path / "backup")
    backup.put("orders", 0, range(5), range(5, 9))
    backup.put_in("year=2026/month=11", "orders", 1, [0, 1])
    return tmp_path / "backup"


def test_groups_are_shown_where_they_stood(tmp_path: Path) -> None:
    """Each captured group has a line for each partition, with what the backup lacks there."""
    backup = Backup.in_folder(tmp_path)
    backup.put("orders", 0, range(5))
    head = GroupEntry("topic", 1_800_000_000_000, "orders", is_complete=True)
    row = replace(
        head, kind="offset", group="billing", partition=0, offset=4711, high_watermark=4720,
        metadata=b"", beyond=12,
    )  # fmt: skip
    why = replace(head, kind="unsettled", partition=0, why="transaction")
    group_stream(backup.store, backup.layout, SystemClock()).append(table([head, row, why], GROUPS))
    result = run(tmp_path, "restore list orders --consumer-groups", json=False)

    assert (0, "") == (result.code, result.stderr)
    words = ["billing orders 0 4 711 9 2027-01-15", "12 beyond the backup, transaction"]
    shown = " ".join(result.stdout.split())
    assert [True, True] == [each in shown for each in words]


def test_the_map_draws_each_partition(folder: Path) -> None:
    """The map has a line for each partition with its first and last offset, and a legend."""
    result = run(folder, "restore list --map", json=False)

    assert (0, "") == (result.code, result.stderr)
    lines = result.stdout.splitlines()
    assert "   0  ▓▓▓▓▓▓  0 to 5" in lines
    assert "   1  ▓  0" in lines
    assert "▓ stored, judging by names alone" == lines[-1]


@pytest.mark.parametrize("words", ["", "--deep"])
def test_what_is_not_known_can_be_found_out(folder: Path, words: str) -> None:
    """Who has given --deep already is told what else there is."""
    result = run(folder, f"restore list {words}", json=False)

    said = " ".join(result.stdout.split())
    assert "? = not known: open objects (--deep), or rebuild the ledger (sink reindex)" in said


def test_lines_of_json_fulfil_the_schema(folder: Path) -> None:
    """Scripts get the coverage map and the directories as JSON lines that conform to the schema."""
    result = run(folder, "restore list --map")

    for line in result.lines:
        LINES.validate(line)
    assert ["partition", "coverage", "partition", "coverage", "directory", "directory", "summary"] \
        == [line["type"] for line in result.lines]  # fmt: skip
    assert [["partition=0"], ["year=2026", "month=11"]] == [
        line["directory"] for line in result.of("directory")
    ]


@pytest.mark.parametrize("words", [
    "restore list", "restore verify", "sink reindex", "sink accept --before 2020-01-01",
    "restore query select-from-orders",
])  # fmt: skip
def test_leaving_out_every_topic_is_a_slip_and_no_lost_backup(folder: Path, words: str) -> None:
    """Commands name the pattern, and do not say that there is no backup."""
    result = run(folder, f"{words} --topics-exclude ord.*", json=False)

    assert 2 == result.code
    said = " ".join(result.stderr.split())
    assert "topics.exclude 'ord.*' leaves out every topic that there is" in said
    assert "it matches orders" in said


@pytest.mark.parametrize(
    ("moment", "code", "objects"), [("1970-01-02", 4, []), ("1970-01-09", 0, [2, 1])]
)
def test_as_of_a_time_later_objects_are_not_shown(
    folder: Path, moment: str, code: int, objects: list[int]
) -> None:
    """What was stored before is shown; without a ledger, an object stored later is in doubt."""
    for at, path in enumerate(sorted((folder / "topics").rglob("*.parquet"))):
        os.utime(path, (at * 86_400, at * 86_400))

    result = run(folder, f"restore list --as-of {moment}")

    assert (code, objects) == (result.code, [row["objects"] for row in result.of("partition")])


@pytest.mark.parametrize(
    ("text", "why"),
    [("yesterday", "expected a time such as"), ("2999-01-01", "2999-01-01T00:00:00Z is in the f")],
)
def test_a_time_that_is_none_is_refused(folder: Path, text: str, why: str) -> None:
    """An invalid time, or one to come, is refused before anything is listed."""
    result = run(folder, f"restore list --as-of {text}", json=False)

    assert 2 == result.code
    assert why in " ".join(result.stderr.split())
