"""What a screen may not say: more than is known, or what a terminal would obey."""

import re
from typing import Any

from kbackup.cli.tables import total


def test_the_reason_of_an_exit_code_is_never_among_the_data(any_told: Any, show: Any) -> None:
    """``exit N: ...`` is the last line of stderr, and never among records and tables."""
    lines = any_told.lines

    shown = show(any_told.command, lines[:-1], lines[-1])

    code = lines[-1]["exit_code"]
    assert f"exit {code}" not in shown.stdout
    assert code == 0 or shown.stderr.splitlines()[-1].startswith(f"exit {code}: ")


def test_what_goes_on_can_be_pasted(told: Any, show: Any) -> None:
    """A command too long for the screen is continued as a shell continues it."""
    each = told("restore-verify,damaged")

    shown = show(each.command, each.lines[:-1], each.summary, width=40).stdout

    assert each.summary["next"] == " ".join(
        re.search(r"  kbackup sink(?:.*\\\n)+.*", shown)[0].replace("\\\n", "").split()  # type: ignore[index]
    )


def test_foreign_text_is_escaped(show: Any) -> None:
    """A topic's name can neither move the cursor nor reverse the text direction."""
    evil = "orders\x1b[2J\u202egpj\n"
    row = {"type": "partition", "topic": evil, "partition": 0, "objects": 1, "bytes": 1}
    error = {"code": "failed", "exit_code": 1, "what": evil, "why": evil, "do": evil}
    summary = {"command": "restore topics", "result": "failed", "exit_code": 1, "errors": [error]}

    shown = show("restore topics", [row], summary, on_terminal=True, environ={"NO_COLOR": "1"})

    assert set() == {"\x1b", "\u202e"} & set(shown.stdout + shown.stderr)


def test_an_unknown_number_is_a_question_mark(told: Any, show: Any) -> None:
    """An unknown number is a question mark, not zero."""
    each = told("restore-topics")

    shown = show(each.command, each.lines[:-1], each.summary).stdout

    assert ["legacy", "0", "json/gzip", "31", "0", "?", "?"] == shown.splitlines()[2].split()[:7]


def test_a_sum_of_which_a_part_is_unknown_is_unknown() -> None:
    """What is not known of one row is not left out of a sum."""
    assert (None, 3) == tuple(total([{"n": 3}, {"n": more}], "n") for more in (None, 0))


def test_what_was_not_checked_is_not_called_ok(told: Any, show: Any) -> None:
    """A partition that nothing vouches for is called not checkable, never ok."""
    each = told("restore-verify,damaged")

    shown = show(each.command, each.lines[:-1], each.summary).stdout

    assert ["not checkable"] == re.findall(r"legacy .*\?  (\S.*)", shown)


def test_what_could_not_be_read_is_not_called_good(show: Any) -> None:
    """If the disk fills up during ``verify --deep``, that is neither a finding nor a success."""
    row = {"type": "partition", "topic": "a", "partition": 0, "objects": 0, "state": "not read"}
    error = {"code": "no_space", "exit_code": 1, "what": "no space in TMPDIR", "why": "", "do": ""}
    summary = {
        "command": "restore verify", "result": "failed", "exit_code": 1, "errors": [error],
        "partitions": [row],
    }  # fmt: skip

    shown = show("restore verify", [row], summary).stdout

    assert "nothing wrong" not in shown
    assert "not all of it could be checked" in shown


def test_a_backup_without_a_ledger_is_called_good_only_as_far_as_it_is_there(show: Any) -> None:
    """Where the ledger says nothing, nobody knows of an object that is gone."""
    row = {"type": "partition", "topic": "a", "partition": 0, "objects": 1, "state": "ok"}
    warning = {"type": "warning", "code": "no_ledger", "text": "the ledger says nothing of a"}
    summary = {
        "command": "restore verify", "result": "ok", "exit_code": 0, "errors": [],
        "warnings": [warning], "partitions": [row],
    }  # fmt: skip

    shown = show("restore verify", [warning, row], summary).stdout

    assert "nothing wrong with what is there" in shown
