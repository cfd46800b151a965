"""Waits of a command that are shorter than a user's, so that what a test waits for comes soon.

``python -m tests.support.waits`` is the command; those of tasks on Spark are as long as ever.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from unittest.mock import patch

SOON: Final = "tests.support.waits"
"""The module of a `Kbackup` on Spark whose driver has shorter waits."""

_VARIABLE: Final = "TESTS_WAITS"


def shorter(**seconds: float) -> dict[str, str]:
    """Return the variable for a command whose waits of these names last so many seconds."""
    return {_VARIABLE: json.dumps(seconds)}


@contextmanager
def shortened() -> Iterator[None]:
    """Let the waits of this process last as long as its environment says."""
    given = json.loads(os.environ.get(_VARIABLE, "{}"))
    if not given:
        yield
        return
    from tests.integration.product import WAITS  # all there is: a second that few commands need

    with ExitStack() as changes:
        for name, seconds in given.items():
            for owner in WAITS[name]:
                changes.enter_context(patch.object(owner, name, seconds))
        yield


if __name__ == "__main__":
    from kbackup.cli import main

    with shortened():
        main()
