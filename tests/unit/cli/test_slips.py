"""What a slip of the fingers is answered with, by the commands that only look."""

from pathlib import Path

import pytest

from tests.support.invoked import run


@pytest.fixture
def folder(folder: Path) -> Path:
    """A backup of two topics, with its ledger."""
    assert 0 == run(folder, "sink reindex", json=False).code
    return folder


@pytest.mark.parametrize("line", ["list ordrs", "verify -t ordrs", "cat ordrs:0@1"])
def test_a_topic_that_is_nearly_one_of_the_backup_is_suggested(folder: Path, line: str) -> None:
    """Though the bucket is listed for the name alone that was typed."""
    found = run(folder, f"restore {line}", json=False)

    assert 7 == found.code
    assert "why: there are: audit, orders\n  do:  did you mean orders?\n" in found.stderr


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("orders:x@y", "its partition is not a number, its offset is not a number"),
        ("orders:x", "its partition is not a number"),
        ("orders:0@", "its offset is not a number"),
        ("orders/x", ""),
    ],
)
def test_a_place_says_which_number_is_none(folder: Path, place: str, why: str) -> None:
    """What stands between a colon and an @ is masked, since it may be a password."""
    found = run(folder, f"restore cat {place}", json=False)

    said = [line.strip() for line in found.stderr.splitlines() if line.startswith("  why:")]
    assert (2, [f"why: {why}"] if why else []) == (found.code, said)
    assert "x@y" not in found.stderr


def test_what_is_typed_and_has_no_effect_is_named(folder: Path, tmp_path: Path) -> None:
    """A file of a run has properties for others; who types one means this command."""
    (file := tmp_path / "sink.properties").write_text("flush.size=3\n")

    read = run(folder, f"restore list --config {file}", json=False)
    typed = run(folder, "restore list -X flush.size=3", json=False)

    told = "warning: flush.size: accepted, but without effect here\n"
    assert ((0, ""), (0, told)) == ((read.code, read.stderr), (typed.code, typed.stderr))
