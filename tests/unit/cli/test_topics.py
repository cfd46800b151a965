"""``restore list`` as it is typed: map, tree, page and a time in the past."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
from backup_samples import Backup
from click.testing import CliRunner, Result

from kbackup.catalog.groups import GroupEntry, group_stream, group_table
from kbackup.cli import root
from kbackup.cli.output import schema
from kbackup.cli.tables import page
from kbackup.clock import SystemClock
from kbackup.inspect import Days, MapState, Stretch
from kbackup.inspect.topics import PartitionMap, StoredPartition
from kbackup.records import TopicPartition

LINES = jsonschema.Draft202012Validator(schema())
STATES = (
    Stretch(MapState.STORED, 0, 499_999),
    Stretch(MapState.MISSING, 500_000, 500_000),
    Stretch(MapState.STORED, 500_001, 999_999),
)
DAYS = (Days(MapState.STORED, "2026-11-01", "2026-11-20"),)


def topics(folder: Path, *words: str) -> Result:
    """Run the command over a backup in *folder*."""
    line = ["restore", "list", "--store-url", f"file://{folder}", *words]
    return CliRunner().invoke(root, line, prog_name="kbackup")


def a_map(topic: str = "orders") -> PartitionMap:
    """What is known of a partition's coverage."""
    return PartitionMap(TopicPartition(topic, 0), STATES, DAYS)


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
    group_stream(backup.store, backup.layout, SystemClock()).append(group_table([head, row, why]))
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
    assert "   1  ▓  0 to 0" in lines
    assert "▓ stored, judging by names alone" == lines[-1]


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


def test_a_page_that_cannot_be_written_is_an_error(folder: Path, tmp_path: Path) -> None:
    """A page that cannot be written is reported."""
    (tmp_path / "file").touch()

    result = topics(folder, "--html", str(tmp_path / "file" / "page.html"))

    assert 1 == result.exit_code
    assert "page.html cannot be written" in result.stderr


class Outline(HTMLParser):
    """What a page refers to, and its titles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_needs_nothing_else(folder: Path, tmp_path: Path) -> None:
    """The page is self-contained: it can be mailed, and opened years later."""
    result = topics(folder, "--html", str(tmp_path / "new" / "page.html"))

    assert (0, "") == (result.exit_code, result.stderr)
    found = Outline((tmp_path / "new" / "page.html").read_text())
    assert [] == found.references
    assert "script" not in found.tags
    assert "link" not in found.tags
    assert 2 == found.tags.count("svg")


def test_the_page_names_what_is_missing() -> None:
    """The page names every missing range, even one offset in a million."""
    found = Outline(page("s3://b/topics", "2026-11-22T00:00:00Z", [], [a_map()]))

    assert "1 range of offsets missing" in found.text
    assert "500\u2009000 to 501\u2009999: missing" in found.text
    assert "2026-11-01 to 2026-11-20: stored" in found.text


def test_names_are_text_on_the_page() -> None:
    """A topic's name is escaped on the page."""
    found = Outline(page("<b>", "now", [], [a_map("<script>alert(1)</script>")]))

    assert "script" not in found.tags
    assert "<script>alert(1)</script>" in found.text


@pytest.mark.parametrize(
    ("size", "bar"),
    [pytest.param("1200,800", 500, id="a screen"), pytest.param("390,844", 230, id="a phone")],
)
def test_a_browser_draws_the_page(tmp_path: Path, size: str, bar: int) -> None:
    """Lines are wide enough to read, alike by offset and by day, and nothing is cut off."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip("there is no Chromium")
    where = TopicPartition("a.long.name." * 20, 0)
    row = StoredPartition(where, "avro", 9, 0, 1, 49_382_715_604, 2**40, None, None)
    script = """<script>
      const page = document.documentElement, bars = [...document.querySelectorAll("svg")]
      const found = { cut: page.scrollWidth - page.clientWidth, bars: bars.map(b => b.clientWidth) }
      document.title = JSON.stringify(found)
    </script>"""
    text = page("s3://b/topics", "now", [row], [a_map(row.where.topic)])
    measured = tmp_path / "measured.html"
    measured.write_text(text.replace("</body>", f"{script}</body>"))

    dom = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         f"--window-size={size}", f"--user-data-dir={tmp_path}/profile", "--dump-dom",
         measured.as_uri()],
        check=True, capture_output=True, text=True, timeout=60,
    ).stdout  # fmt: skip

    title = re.search(r"<title>(.*)</title>", dom)
    assert title is not None
    found = json.loads(title[1])
    assert 0 == found["cut"]
    by_offset, by_day = found["bars"]
    assert by_offset == by_day
    assert by_offset >= bar
