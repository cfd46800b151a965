"""``restore list`` as it is typed: maps, consumer groups and a time in the past."""

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from backup_samples import Backup
from click.testing import CliRunner, Result

from kbackup.catalog.groups import GROUPS, GroupEntry, group_stream
from kbackup.catalog.ledger.rows import table
from kbackup.cli import root
from kbackup.clock import SystemClock
from tests.support.json_lines import LINES


def topics(folder: Path, *words: str) -> Result:
    """Run the command over a backup in *folder*."""
    line = ["restore", "list", "--store-url", f"file://{folder}", *words]
    return CliRunner().invoke(root, line, prog_name="kbackup")


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
    result = topics(tmp_path, "orders", "--consumer-groups")

    assert (0, "") == (result.exit_code, result.stderr)
    words = ["billing orders 0 4 711 9 2027-01-15", "12 beyond the backup, transaction"]
    shown = " ".join(result.stdout.split())
    assert [True, True] == [each in shown for each in words]


def test_the_map_draws_each_partition(folder: Path) -> None:
    """The map has a line for each partition with its first and last offset, and a legend."""
    result = topics(folder, "--map")

    assert (0, "") == (result.exit_code, result.stderr)
    lines = result.stdout.splitlines()
    assert "   0  ▓▓▓▓▓▓  0 to 5" in lines
    assert "   1  ▓  0" in lines
    assert "▓ stored, judging by names alone" == lines[-1]


@pytest.mark.parametrize("words", [(), ("--deep",)])
def test_what_is_not_known_can_be_found_out(folder: Path, words: tuple[str, ...]) -> None:
    """Who has given --deep already is told what else there is."""
    result = topics(folder, *words)

    said = " ".join(result.stdout.split())
    assert "? = not known: open objects (--deep), or build the ledger (sink reindex)" in said


def test_lines_of_json_fulfil_the_schema(folder: Path) -> None:
    """Scripts get the coverage map and the directories as JSON lines that conform to the schema."""
    result = topics(folder, "--map", "--json")

    lines = [json.loads(line) for line in result.stdout.splitlines()]
    for line in lines:
        LINES.validate(line)
    assert ["partition", "coverage", "partition", "coverage", "directory", "directory", "summary"] \
        == [line["type"] for line in lines]  # fmt: skip
    assert [["partition=0"], ["year=2026", "month=11"]] == [
        line["directory"] for line in lines if line["type"] == "directory"
    ]


@pytest.mark.parametrize("words", [
    "restore list", "restore verify", "sink reindex", "sink accept --before 2020-01-01",
    "restore query 'select 1 from orders'",
])  # fmt: skip
def test_leaving_out_every_topic_is_a_slip_and_no_lost_backup(folder: Path, words: str) -> None:
    """Commands name the pattern, and do not say that there is no backup."""
    given = ["--store-url", f"file://{folder}", "--topics-exclude", "ord.*"]
    result = CliRunner().invoke(root, [*shlex.split(words), *given], prog_name="kbackup")

    assert 2 == result.exit_code
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

    result = topics(folder, "--as-of", moment, "--json")

    rows = [json.loads(line) for line in result.stdout.splitlines()]
    found = [row["objects"] for row in rows if row["type"] == "partition"]
    assert (code, objects) == (result.exit_code, found)


@pytest.mark.parametrize(
    ("text", "why"),
    [("yesterday", "expected a time such as"), ("2999-01-01", "2999-01-01T00:00:00Z is in the f")],
)
def test_a_time_that_is_none_is_refused(folder: Path, text: str, why: str) -> None:
    """An invalid time, or one to come, is refused before anything is listed."""
    result = topics(folder, "--as-of", text)

    assert 2 == result.exit_code
    assert why in " ".join(result.stderr.split())
