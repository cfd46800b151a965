"""``kbackup explain``, and the last line of each error."""

import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbackup.cli.explain import pages, plain
from kbackup.errors import KbackupError
from kbackup.inspect import Check
from tests.support.invoked import invoke

CHECKOUT = Path(__file__).parents[3]
EXIT_CODES = [*map(str, range(10)), "130", "143"]


def kinds(kind: type[KbackupError] = KbackupError) -> Iterator[type[KbackupError]]:
    """Yield each error of the package."""
    importlib.import_module("kbackup.kafka")  # it has errors of its own
    yield kind
    for sub in kind.__subclasses__():
        if sub.__module__.startswith("kbackup."):
            yield from kinds(sub)


CODES = sorted({Check("kafka", "topics", "fail", "").code, *(kind.code for kind in kinds())})


@pytest.mark.parametrize("code", [*EXIT_CODES, *CODES])
def test_every_code_has_a_page(code: str) -> None:
    """Whatever an error's last line names can be looked up, and says what to do."""
    shown = invoke("explain", code)

    head, *body = shown.stdout.splitlines()
    assert (0, True) == (shown.code, head.startswith((f"exit code {code}", f"{code}, exit code ")))
    assert [] != [line for line in body if line and not line.startswith("all of")]


def test_a_page_names_the_exit_code_of_its_error() -> None:
    """A code and its exit code belong together as they do in a summary."""
    found = pages()
    expected = {kind.code: str(kind.exit_code) for kind in kinds() if kind.code != "stopped"}

    assert expected == {code: found[code].exit_code for code in expected}


def test_a_page_is_about_its_code_alone() -> None:
    """Who asks about one refusal does not read the ways out of eleven."""
    shown = invoke("explain", "feedback_loop").stdout

    assert (True, False) == ("--allow-same-topic" in shown, "`retention`" in shown)


@pytest.mark.parametrize(("code", "heads"), [
    pytest.param("7", ["Store objects again", "Repair the ledger"], id="all of the exit code"),
    pytest.param("corrupt", ["Store objects again"], id="linked"),
    pytest.param("missing_objects", ["Store objects again"], id="linked from another exit code"),
    pytest.param("objects_without_ledger", ["Repair the ledger"], id="the other one"),
    pytest.param("outdated", [], id="about another thing"),
    pytest.param("audit", [], id="about the target"),
])  # fmt: skip
def test_a_page_has_the_steps_that_it_needs(code: str, heads: list[str]) -> None:
    """Who asks about a late backup is not told how to store damaged objects again."""
    shown = invoke("explain", code).stdout.splitlines()

    known = ("Store objects again", "Repair the ledger")
    assert heads == [line for line in shown if line in known]


def test_what_was_left_out_is_explained_too() -> None:
    """The names in a summary's ``skipped`` have pages."""
    shown = invoke("explain", "held_up_offsets").stdout

    assert "held_up_offsets, exit code 3" == shown.splitlines()[0]
    assert "find-hanging" in shown


def test_a_page_is_text_for_a_terminal() -> None:
    """No link, no bold, no line wider than a screen, and commands that can be pasted."""
    shown = "".join(invoke("explain", code).stdout for code in pages())

    assert [] == re.findall(r"\]\(|\*\*|^\|", shown, re.MULTILINE)
    assert [] == [line for line in shown.splitlines() if len(line) > 80 and "kbackup" not in line]
    assert "    $ kbackup sink reindex --config orders.properties\n" in shown


def test_prose_is_folded_as_one_paragraph() -> None:
    """Lines of the source are no lines of the screen."""
    assert ["a b", "", "- c", "  d"] == list(plain(["a", "b", "", "- c", "d"], 3))[:4]


def test_without_a_code_all_are_listed() -> None:
    """Who does not know the code finds it."""
    shown = invoke("explain")

    assert 0 == shown.code
    assert set() == {*pages()} - {*shown.stdout.split()}


def test_an_unknown_code_is_answered_with_the_nearest() -> None:
    """A slip is no dead end."""
    refused = invoke("explain", "feedback_lop")

    assert (2, True) == (
        refused.code,
        "did you mean kbackup explain feedback_loop?" in refused.stderr,
    )


def test_the_page_comes_with_the_package() -> None:
    """A wheel has the text, for the hour in which there is no network."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]

    assert {
        "docs/troubleshoot.md": "kbackup/cli/troubleshoot.md",
        "docs/reference/json-lines.md": "kbackup/cli/json-lines.md",
    } == included


def test_a_warning_is_explained_too() -> None:
    """What a log names by a code has its meaning, without an exit code."""
    found = pages()["bucket_behind"]

    assert ("", ()) == (found.exit_code, found.lines)
    assert found.meaning.startswith("the group's offset is ahead of what the bucket holds")
    assert "code" not in pages()
