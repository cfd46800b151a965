"""What a screen may not say: more than is known, or what a terminal would obey."""

import re
from typing import Any

import pytest

from kbackup.catalog.findings import PartitionVerdict
from kbackup.cli.tables import total
from kbackup.errors import Issue
from kbackup.inspect.topics import StoredPartition
from kbackup.records import TopicPartition
from tests.support.ended import ended


def test_the_reason_of_an_exit_code_is_never_among_the_data(any_told: Any, show: Any) -> None:
    """``exit N: ...`` is the last line of stderr, and never among records and tables."""
    shown = show(any_told.command, any_told.events, any_told.ended())

    code = any_told.summary["exit_code"]
    assert f"exit {code}" not in shown.stdout
    assert code == 0 or shown.stderr.splitlines()[-1].startswith(f"exit {code}: ")


def test_what_goes_on_can_be_pasted(told: Any, show: Any) -> None:
    """A command too long for the screen is continued as a shell continues it."""
    each = told("restore-verify,damaged")

    shown = show(each.command, each.events, each.ended(), width=40).stdout

    assert each.summary["remaining"][0]["command"] == " ".join(
        re.search(r"  kbackup sink(?:.*\\\n)+.*", shown)[0].replace("\\\n", "").split()  # type: ignore[index]
    )


def test_a_status_that_was_stopped_counts_no_runs(show: Any) -> None:
    """Where metrics were served until Ctrl-C, there may be many runs."""
    stopped = ended(command="sink status", result="stopped", exit_code=130)

    assert "sink status stopped\n" == show("sink status", [], stopped).stdout


def test_foreign_text_is_escaped(show: Any) -> None:
    """A topic's name can neither move the cursor nor reverse the text direction."""
    evil = "orders\x1b[2J\u202egpj\n"
    row = StoredPartition(TopicPartition(evil, 0), "", 1, 0, 0, 1, 1, None, None)
    error = Issue("failed", evil, evil, evil)
    summary = ended(command="restore list", result="failed", exit_code=1, errors=[error])

    shown = show("restore list", [row], summary, on_terminal=True, environ={"NO_COLOR": "1"})

    assert set() == {"\x1b", "\u202e"} & set(shown.stdout + shown.stderr)


def test_an_unknown_number_is_a_question_mark(told: Any, show: Any) -> None:
    """An unknown number is a question mark, not zero."""
    each = told("restore-list")

    shown = show(each.command, each.events, each.ended()).stdout

    assert ["legacy", "0", "json/gzip", "31", "0", "?", "?"] == next(
        line.split()[:7] for line in shown.splitlines() if line.startswith("legacy")
    )


def test_a_sum_of_which_a_part_is_unknown_is_unknown() -> None:
    """What is not known of one row is not left out of a sum."""
    assert (None, 3) == (total([3, None]), total([3, 0]))


def test_what_was_not_checked_is_not_called_ok(told: Any, show: Any) -> None:
    """A partition that nothing vouches for is called not checkable, never ok."""
    each = told("restore-verify,damaged")

    shown = show(each.command, each.events, each.ended()).stdout

    assert ["not checkable"] == re.findall(r"legacy .*\?  (\S.*)", shown)


def test_status_says_how_old_the_backup_is(told: Any, show: Any) -> None:
    """Who looks at three in the morning asks that first; without --max-age too."""
    each = told("sink-status")

    shown = show(each.command, each.events, each.ended()).stdout

    assert "complete up to 2026-11-21T02:00:00Z, 17 min ago\n" in shown


@pytest.mark.parametrize(
    ("read", "listed", "more", "said"),
    [
        pytest.param(
            0, 0, {"result": "failed", "exit_code": 1, "errors": [{"code": "no_space"}]},
            "not all of it could be checked", id="the disk was full",
        ),
        pytest.param(
            0, 2, {"objects": 0}, "no object read, in ?: none is of this part", id="a part",
        ),
        pytest.param(
            1, 1, {"warnings": [{"code": "no_ledger", "text": "nothing of a"}]},
            "nothing wrong with what is there", id="nobody knows of an object that is gone",
        ),
    ],
)  # fmt: skip
def test_a_backup_is_called_good_only_as_far_as_it_was_read(
    show: Any, read: int, listed: int, more: dict[str, Any], said: str
) -> None:
    """What was not read is neither a finding nor a success."""
    where, state = TopicPartition("a", 0), "ok" if read else "not read"
    row = PartitionVerdict(where, read, listed, None, None, None, 9, 0, 0, state)
    summary = ended(command="restore verify", partitions=[row], **more)

    shown = show("restore verify", [*summary.warnings, row], summary).stdout

    assert said in shown
    assert said.startswith("nothing wrong") or "nothing wrong" not in shown
