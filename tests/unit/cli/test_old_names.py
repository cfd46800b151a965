"""Commands by their old names, which are in crontabs, and commands in a wrong place."""

from pathlib import Path

import click
import pytest
from backup_samples import Backup

from kbackup import stores
from kbackup.cli import root
from kbackup.errors import StoreError
from tests.support.invoked import invoke, run

OLD = ("peek", "settle", "plan", "prune", "--repair", "--rebuild", "--accept-missing")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A backup of two objects, which knows nothing of itself."""
    (tmp_path / "backup").mkdir()
    Backup.in_folder(tmp_path / "backup").put("orders", 0, range(5), range(5, 9))
    return tmp_path / "backup"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("restore topics orders", "restore list orders"),
        ("restore peek orders:0@3", "restore cat orders:0@3"),
        ("restore plan --rename x", "restore run --dry-run --rename x"),
        ("restore settle --dry-run", "restore configs --dry-run"),
        ("sink plan -t orders", "sink run --dry-run -t orders"),
        ("sink prune --dry-run", "sink abort-uploads --dry-run"),
        ("sink run -t orders --repair orders:0:5", "sink repair orders:0:5 -t orders"),
        ("sink -t orders --repair orders:0:5", "sink repair orders:0:5 -t orders"),
    ],
)
def test_an_old_name_does_what_the_new_one_does(old: str, new: str, folder: Path) -> None:
    """A crontab goes on working; what is reported carries the new name."""
    before, now = run(folder, old), run(folder, new)

    assert now.code == before.code
    changing = {"run", "seconds"}
    assert [{key: line[key] for key in line if key not in changing} for line in now.lines] == [
        {key: line[key] for key in line if key not in changing} for line in before.lines
    ]


def test_a_rebuild_by_its_old_option_is_followed_by_a_look(folder: Path) -> None:
    """``restore verify --rebuild`` builds the ledger anew and verifies, as it did."""
    found = run(folder, "restore verify --rebuild")

    assert (0, "restore verify") == (found.code, found.lines[-1]["command"])
    assert "ledger_rebuilt" in [each.get("code") for each in found.lines]


def test_reindex_makes_a_ledger_that_verify_reads(folder: Path) -> None:
    """What has no ledger has one afterwards."""
    before = [each["code"] for each in run(folder, "restore verify").lines[-1]["warnings"]]
    done = run(folder, "sink reindex")
    after = [each["code"] for each in run(folder, "restore verify").lines[-1]["warnings"]]

    assert (0, "sink reindex") == (done.code, done.lines[-1]["command"])
    assert (True, False) == ("no_ledger" in before, "no_ledger" in after)


@pytest.mark.parametrize("way", ["sink accept orders:0:0-4", "sink accept --before 2100-01-01"])
def test_what_was_removed_on_purpose_is_accepted(way: str, folder: Path) -> None:
    """An accepted object is not missed any more."""
    run(folder, "sink reindex")
    min((folder / "topics").rglob("*+0000000000.*")).unlink()
    missed = run(folder, "restore verify")
    accepted = run(folder, way)

    assert (7, 0, 0) == (missed.code, accepted.code, run(folder, "restore verify").code)
    assert "sink accept" == accepted.lines[-1]["command"]


@pytest.mark.parametrize("way", ["sink reindex", "sink accept --before 2100-01-01"])
def test_a_place_without_a_backup_is_no_success(way: str, tmp_path: Path) -> None:
    """Who mistypes the bucket does not believe that its ledger was built."""
    refused = run(tmp_path, way)

    assert (7, "incomplete") == (refused.code, refused.lines[-1]["errors"][0]["code"])


def test_what_was_done_is_not_called_nothing_new(folder: Path) -> None:
    """A ledger that was built anew is the news."""
    shown = invoke("sink", "reindex", "--store-url", f"file://{folder}")

    assert (0, "sink reindex finished\n") == (shown.code, shown.stdout)
    assert "orders: the ledger was rebuilt from its objects" in shown.stderr


def test_an_acceptance_of_nothing_is_an_error(folder: Path) -> None:
    """Who names neither offsets nor a time is told what to name."""
    refused = run(folder, "sink accept")

    assert (2, "nothing was named to accept") == (
        refused.code,
        refused.lines[-1]["errors"][0]["what"],
    )


@pytest.mark.parametrize(
    "words",
    [
        "accept orders:0:9-1", "accept orders", "accept --before yesterday", "accept",
        "expire --older-than soon", "expire", "abort-uploads --older-than x",
        "expire --older-than 90", "expire --older-than 90d --grace 1",
        "abort-uploads --older-than 7",
    ],
)  # fmt: skip
def test_what_is_asked_for_wrongly_is_refused_before_anybody_is_asked(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line is wrong, 2, though the store cannot be opened either."""

    def opened(_: object) -> None:
        raise StoreError("no store")

    monkeypatch.setattr(stores, "open_store", opened)

    refused = invoke("sink", *words.split(), "-b", "nowhere")

    assert (2, False) == (refused.code, "no store" in refused.stderr)


@pytest.mark.parametrize("line", ["", "sink", "restore", "sink run", "restore verify"])
@pytest.mark.parametrize("way", ["--help", "--help-all"])
def test_no_help_has_an_old_name(line: str, way: str) -> None:
    """Nobody learns a name that will go."""
    words = invoke(*line.split(), way).stdout.split()

    assert [] == [old for old in OLD if old in words]


def test_no_suggestion_has_an_old_name() -> None:
    """A word that is close to an old name is answered with the names that there are."""
    refused = invoke("restore", "topic")

    assert 2 == refused.code
    assert "topics" not in refused.stderr


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("list", "did you mean kbackup restore list or kbackup keys list?"),
        ("verify --deep", "did you mean kbackup restore verify?"),
        ("status", "did you mean kbackup sink status or kbackup restore status?"),
        ("cat orders", "did you mean kbackup restore cat?"),
        ("topics", "did you mean kbackup restore list?"),
        ("reindex", "did you mean kbackup sink reindex?"),
    ],
)
def test_a_command_without_its_group_says_which_is_meant(line: str, meant: str) -> None:
    """``kbackup verify`` is not a riddle."""
    refused = invoke(*line.split())

    assert (2, True) == (refused.code, meant in " ".join(refused.stderr.split()))


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("restore --config f verify", "verify"),
        ("restore -b b verify --deep", "verify"),
        ("restore -q topics", "list"),
        ("sink --config f repair orders:0:5", "repair"),
    ],
)
def test_an_option_in_front_of_the_command_is_put_right(line: str, word: str) -> None:
    """The command comes first, and the error says so."""
    refused = invoke(*line.split())

    assert (2, True) == (refused.code, f"put `{word}` first" in refused.stderr)


def test_a_value_that_is_a_commands_name_is_left_alone() -> None:
    """A topic may be called ``status``."""
    refused = invoke("sink", "-t", "status", "--flush-sise", "1")

    assert "did you mean --flush-size?" in refused.stderr


def test_each_old_name_is_one_of_a_command_that_is_there() -> None:
    """An alias leads somewhere, and hides no command."""
    context = click.Context(root)
    groups = [root.get_command(context, word) for word in ("sink", "restore")]
    found = [
        (old, new[0] in group.commands, old in group.commands)
        for group in groups
        for old, new in getattr(group, "aliases", {}).items()
        if isinstance(group, click.Group)
    ]

    assert [True] * len(found) == [is_there and not hides for _, is_there, hides in found]
