"""What `restore groups` and `restore access` say they have done, or would do."""

from dataclasses import replace
from typing import Any

import pytest

from kbackup.errors import RefusedError
from tests.unit.cli.conftest import Shown


def shown(
    told: Any, show: Any, *, of: str = "groups", rows: bool = True, failed: bool = False,
    **facts: Any,
) -> Shown:  # fmt: skip
    """The screen of a run with these facts."""
    each = told(f"restore-{of}")
    ended = each.ended()
    own = ("groups", "undo", "acls", "users")
    kept = {name: one for name, one in ended.facts.items() if name not in own}
    errors = (RefusedError("no", "why", "do").issue(),) if failed else ()
    ended = replace(ended, facts=kept | facts, errors=errors)
    found: Shown = show(each.command, each.events if rows else [], ended)
    return found


@pytest.mark.parametrize(
    ("of", "facts", "words"),
    [
        ("groups", {"groups": ["audit", "billing"]}, "2 groups set\n"),
        ("groups", {"groups": ["audit", "billing"], "rows": False}, "2 groups set back\n"),
        ("groups", {}, "2 groups would be set\n"),
        ("groups", {"groups": [], "failed": True}, "0 groups set\n"),
        ("access", {"acls": 1, "users": 1}, "1 ACL and 1 user added\n"),
        ("access", {}, "1 ACL and 1 user would be added\n"),
        ("access", {"acls": 1, "users": 0, "failed": True}, "1 ACL and 0 users added\n"),
    ],
)
def test_the_words_are_those_of_what_was_done(
    told: Any, show: Any, of: str, facts: dict[str, Any], words: str
) -> None:
    """Of a run, one that sets back, a dry run, one that is refused or fails on its way."""
    assert words in shown(told, show, of=of, **facts).stdout


def test_a_dry_run_that_is_refused_promises_nothing(told: Any, show: Any) -> None:
    """No group would be set: the refusals say why."""
    assert "would be set" not in shown(told, show, failed=True).stdout
