"""The page of ``restore list --html``, and what a browser makes of it."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from backup_samples import Backup

from kbackup.cli.page import COLOURS, page
from kbackup.inspect import Days, MapRange, MapState
from kbackup.inspect.topics import PartitionCoverage, StoredPartition
from kbackup.records import TopicPartition
from tests.support.command import Result
from tests.support.invoked import run

LAST = 49_382_715_604
GONE = 40_000_000_000
STATES = (
    MapRange(MapState.STORED, 0, GONE - 1),
    MapRange(MapState.MISSING, GONE, GONE),
    MapRange(MapState.STORED, GONE + 1, LAST),
)
DAYS = (Days(MapState.STORED, "2026-11-01", "2026-11-20"),)


def a_map(topic: str = "orders", states: tuple[MapRange, ...] = STATES) -> PartitionCoverage:
    """What is known of a partition's coverage."""
    return PartitionCoverage(TopicPartition(topic, 0), states, DAYS)


def written(folder: Path, file: Path) -> Result:
    """Write the page of a small backup in *folder*."""
    folder.mkdir()
    backup = Backup.in_folder(folder)
    backup.put("orders", 0, range(5), range(5, 9))
    return run(folder, f"restore list --html {file}", json=False)


class Outline(HTMLParser):
    """What a page refers to, and its text."""

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


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A page that cannot be written is reported."""
    (tmp_path / "file").touch()

    result = written(tmp_path / "backup", tmp_path / "file" / "page.html")

    assert 1 == result.code
    assert "page.html cannot be written" in result.stderr


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    """The page is self-contained: it can be mailed, and opened years later."""
    result = written(tmp_path / "backup", tmp_path / "new" / "page.html")

    assert (0, "") == (result.code, result.stderr)
    found = Outline((tmp_path / "new" / "page.html").read_text())
    assert [] == found.references
    assert "script" not in found.tags
    assert "link" not in found.tags
    assert 1 == found.tags.count("svg")


@pytest.mark.parametrize(
    ("state", "first", "last", "said"),
    [
        pytest.param(
            MapState.MISSING, GONE, GONE, "1 range of offsets missing", id="one of a billion"
        ),
        pytest.param(MapState.MISSING, 7, 12, "1 range of offsets missing", id="some"),
        pytest.param(
            MapState.DISPUTED, 7, 12,
            "1 range of offsets in several objects: a restore is refused", id="in several objects",
        ),
    ],
)  # fmt: skip
def test_the_page_names_exactly_what_is_missing(
    state: MapState, first: int, last: int, said: str
) -> None:
    """The page says in words which offsets cannot be restored, for a phone has no pointer."""
    stored = MapState.STORED
    states = (
        MapRange(stored, 0, first - 1),
        MapRange(state, first, last),
        MapRange(stored, last + 1, LAST),
    )
    found = Outline(page("s3://b/topics", "now", [], [a_map(states=states)])).text

    offsets = f"{first:_}".replace("_", "\u2009")
    if last > first:
        offsets += f" to {last}"
    assert f"{said}orders, partition 0: {offsets}" in found
    assert f"{offsets}: {said.removeprefix('1 range of offsets ')}" in found


def test_the_page_names_only_so_many_ranges() -> None:
    """Of many missing ranges the first twenty are named, and the others counted."""
    every_second = tuple(MapRange(MapState.MISSING, 2 * at, 2 * at) for at in range(25))
    found = Outline(page("s3://b", "now", [], [a_map(states=every_second)]))

    assert "25 ranges of offsets missing" in found.text
    assert "partition 0: 38and 5 more" in found.text


def test_the_legend_explains_what_is_drawn() -> None:
    """The legend has the kinds that the page draws, and no other."""
    found = Outline(page("s3://b", "now", [], [a_map(states=(MapRange(MapState.STORED, 0, 9),))]))

    assert "Nothing that was stored is missing.\nstored \norders" in found.text


def test_names_are_text_on_the_page() -> None:
    """A topic's name is escaped on the page."""
    found = Outline(page("<b>", "now", [], [a_map("<script>alert(1)</script>")]))

    assert "script" not in found.tags
    assert "<script>alert(1)</script>" in found.text


def luminance(colour: str) -> float:
    """The relative luminance of a colour, as WCAG 2 has it."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize(
    "paper", [pytest.param("#ffffff", id="light"), pytest.param("#121212", id="dark")]
)
@pytest.mark.parametrize("state", COLOURS)
def test_a_colour_is_seen_in_light_and_in_dark(state: str, paper: str) -> None:
    """Each colour stands out from the page, by the 3:1 that WCAG asks of what is drawn."""
    dark, light = sorted([luminance(COLOURS[state]), luminance(paper)])

    assert (light + 0.05) / (dark + 0.05) >= 3


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
    row = StoredPartition(where, "avro", 9, 0, LAST, LAST, 2**40, None, None)
    script = """<script>
      const page = document.documentElement, bars = [...document.querySelectorAll("svg")]
      const heads = [...document.querySelectorAll("th:not(.number)")]
      const mark = document.querySelector(".mark")
      const found = {
        cut: page.scrollWidth - page.clientWidth, bars: bars.map(b => b.clientWidth),
        heads: heads.map(head => head.getBoundingClientRect().top),
        mark: mark.getBoundingClientRect().width + parseFloat(getComputedStyle(mark).strokeWidth),
      }
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
    assert found["mark"] >= 3
    assert found["heads"][::2] == found["heads"][1::2]  # those of a row are on one line
