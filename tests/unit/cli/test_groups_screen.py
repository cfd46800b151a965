"""What `restore groups` says it has done: set, set back, or neither."""

from dataclasses import replace
from typing import Any

import pytest

from kbackup.errors import RefusedError
from tests.unit.cli.conftest import Shown


def shown(told: Any, show: Any, *, rows: bool = True, failed: bool = False, **facts: Any) -> Shown:
    """The screen of a run with these facts."""
    each = told("restore-groups")
    ended = each.ended()
    kept = {name: one for name, one in ended.facts.items() if name not in ("groups", "undo")}
    errors = (RefusedError("no", "why", "do").issue(),) if failed else ()
    ended = replace(ended, facts=kept | facts, errors=errors)
    found: Shown = show(each.command, each.events if rows else [], ended)
    return found


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"groups": ["audit", "billing"]}, "2 groups set\n"),
        ({"groups": ["audit", "billing"], "rows": False}, "2 groups set back\n"),
        ({}, "2 groups would be set\n"),
        ({"groups": [], "failed": True}, "0 groups set\n"),
    ],
)
def test_the_words_are_those_of_what_was_done(
    told: Any, show: Any, facts: dict[str, Any], words: str
) -> None:
    """Of a run, of one that sets back, of a dry run, of one that is refused."""
    assert words in shown(told, show, **facts).stdout


def test_a_dry_run_that_is_refused_promises_nothing(told: Any, show: Any) -> None:
    """No group would be set: the refusals say why."""
    assert "would be set" not in shown(told, show, failed=True).stdout
