"""Errors on stderr, and nothing else: ``--quiet``, and beside ``--json``."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from kbackup.cli.reasons import LOCKED, exit_reason, render_error
from kbackup.cli.streams import Stream
from kbackup.errors import LockedError


class Failures:
    """Prints what failed when the command is over; nothing where nothing did."""

    def __init__(self, stderr: Stream, *, has_reason: bool, is_quiet: bool = False) -> None:
        """Choose what is printed.

        Args:
            stderr: Where.
            has_reason: Whether a failure without an error, such as a skip, is explained.
            is_quiet: Whether to print nothing about a lock that another run of the same work
                holds: cron runs overlap.
        """
        self._stderr = stderr
        self._has_reason = has_reason
        self._is_quiet = is_quiet

    def tell(self, event: Mapping[str, Any]) -> None:
        """Do nothing: what is not in the summary has not failed the command."""

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Print each error in its three parts, or the reason of the exit code."""
        errors = summary.get("errors") or ()
        codes = {error.get("code") for error in errors}
        if self._is_quiet and summary["exit_code"] == LOCKED and codes <= {LockedError.code}:
            return
        for error in errors:
            print_error(self._stderr, error)
        if self._has_reason and not errors and summary["exit_code"] != 0:
            self._stderr.line(exit_reason(summary))


def print_error(stderr: Stream, error: Mapping[str, Any]) -> None:
    """Print an error, folded to the width of *stderr*, its first word in red."""
    text = Text(render_error(error, stderr.width))
    text.stylize("bold red", 0, len("error:"))
    stderr.text(text)
