"""What a bucket says of past drills: on a screen, as a page, as metrics."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kbackup.catalog import drills, identity
from kbackup.cli.page import drill_page
from kbackup.naming import Layout
from kbackup.runs import history
from kbackup.stores import StoreSettings, open_store
from tests.support.ended import ended
from tests.support.invoked import run
from tests.unit.catalog.test_drills import REPORT

FAILED = replace(REPORT, id="f411", exit_code=7, ended_ms=1_800_600_000_000)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A bucket with a drill that passed, and a later one that failed."""
    folder = tmp_path / "bucket"
    folder.mkdir()
    store = open_store(StoreSettings(f"file://{folder}"))
    for report in (replace(REPORT, issues=()), FAILED):
        drills.store_report(store, Layout(), replace(report, backup_id=""))
    return folder


CHECK = "restore drill --check -b b"


def test_reports_that_nobody_altered_are_shown(place: Path) -> None:
    """Each with its result; a drill that failed leaves a good report of that."""
    shown = run(place, CHECK, json=False)

    assert (0, "passed", "failed (exit 7)") == (
        shown.code,
        *(word for word in ("passed", "failed (exit 7)") if word in shown.stdout),
    )
    assert [(1, "5c1e09ab", "none"), (2, "f411", "none")] == [
        (line["number"], line["report"]["id"], line["signature"])
        for line in run(place, CHECK).of("drill_report")
    ]


def test_a_report_that_was_altered_is_named(place: Path) -> None:
    """A failed drill is not made one that passed."""
    first, _ = sorted(place.glob("_kbackup/drills/*/*.json"))
    first.write_text(first.read_text().replace('"records": 41', '"records": 42'))

    found = run(place, CHECK)

    assert 7 == found.code
    (error,) = found.lines[-1]["errors"]
    assert (first.name, "corrupt") == (Path(error["what"]).name, error["code"])


def test_reports_are_checked_in_a_copy_of_the_bucket(place: Path, tmp_path: Path) -> None:
    """Somewhere else, all of it: the same reports; those of another backup are none of it."""
    store, layout = open_store(StoreSettings(f"file://{place}")), Layout()
    own = identity.ensure(store, layout, "here", datetime.now(UTC)).id
    drills.store_report(store, layout, replace(REPORT, backup_id=own, issues=()))
    shutil.copytree(place, copy := tmp_path / "elsewhere" / "copy")
    shutil.copytree(place, other := tmp_path / "other")
    (key,) = other.glob("_kbackup/backup/*.json")
    key.unlink()
    identity.ensure(open_store(StoreSettings(f"file://{other}")), layout, "o", datetime.now(UTC))

    found = [run(each, CHECK) for each in (place, copy, other)]
    assert [0, 0, 7] == [each.code for each in found]
    reports = [each.of("drill_report") for each in found]
    assert (3, reports[0]) == (len(reports[0]), reports[1])

    first = min(copy.glob("_kbackup/drills/*/*.json"))
    first.write_text(first.read_text().replace('"records": 41', '"records": 42'))
    assert [0, 7] == [run(each, CHECK).code for each in (place, copy)]


def test_without_a_report_nothing_is_right(place: Path) -> None:
    """There is nothing to check: that is no proof."""
    for each in place.glob("_kbackup/drills/*/*.json"):
        each.unlink()

    assert 4 == run(place, CHECK).code


def test_a_key_that_checks_nothing_is_refused(place: Path) -> None:
    """A drill makes signatures, and checks none."""
    found = run(place, "restore drill --public-key x -b b -k h:1", json=False)

    assert (2, True) == (found.code, "--public-key" in found.stderr)
    assert "add --check, or leave it out" in found.stderr


def test_the_newest_report_is_a_page(place: Path, tmp_path: Path) -> None:
    """The same that the drill itself writes when it is asked."""
    run(place, f"{CHECK} --html {tmp_path / 'drill.html'}")

    text = (tmp_path / "drill.html").read_text()
    newest = next(drills.newest_first(open_store(StoreSettings(f"file://{place}")), Layout()))
    assert drill_page(f"file://{place}/topics", newest) == text
    for said in ("Drill f411 failed (exit 7)", "drill_5c1e09ab_orders", "billing", "(sample)"):
        assert said in text


def test_the_last_drill_is_part_of_the_status(place: Path, tmp_path: Path) -> None:
    """When one last passed, and how the newest ended: in words, as JSON, as metrics."""
    now = datetime.now(UTC)
    store = open_store(StoreSettings(f"file://{place}"))
    history.write_run(store, Layout(), ended(run=history.new_run_id(now), exit_code=0))
    line = f"sink status -b b --metrics-file {tmp_path / 'm.prom'}"
    passed = datetime.fromtimestamp(REPORT.ended_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    shown, said = run(place, line, json=False).stdout, run(place, line).lines[-1]

    assert f"drills: last passed {passed}, the last one failed (exit 7)" in shown
    assert {
        "id": "f411", "ended": "2027-01-22T06:40:00Z", "exit_code": 7, "rto_s": 6600.5,
        "rpo_s": 249.0, "passed": passed,
    } == said["last_drill"]  # fmt: skip
    metrics = (tmp_path / "m.prom").read_text()
    for name, value in {
        "timestamp_seconds": 1_800_600_000, "passed_timestamp_seconds": 1_800_000_372,
        "exit_code": 7, "rto_seconds": 6600.5, "rpo_seconds": 249,
    }.items():  # fmt: skip
        (line,) = (
            one for one in metrics.splitlines() if one.startswith(f"kbackup_last_drill_{name}{{")
        )
        assert value == float(line.rpartition(" ")[2])
