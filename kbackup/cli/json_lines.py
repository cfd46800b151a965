"""``--json``: one object a line on stdout, the stable contract for scripts.

`schema` describes every line; the same file is the reference in the documentation.
"""

import json
import time
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, Final

from kbackup.cli.streams import Stream

_UNPRINTED: Final = frozenset({"plan"})
"""Events that serve the live display only."""


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) that every line fulfils."""
    text = files("kbackup.cli").joinpath("json_schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def json_line(event: Mapping[str, Any]) -> str:
    r"""Return *event* as one line of ASCII, ``type`` first.

    ASCII, because ``\u202e`` survives every pipe and terminal and means the same to a parser.
    """
    ordered = {"type": event["type"], **event} if "type" in event else event
    return json.dumps(ordered, separators=(",", ":"))


class JsonLines:
    """Prints each event as it comes, and the summary last."""

    def __init__(
        self,
        stdout: Stream,
        clock: Callable[[], float] = time.monotonic,
        *,
        has_summary: bool = True,
    ) -> None:
        self._stdout = stdout
        self._has_summary = has_summary
        self._clock = clock
        self._began = clock()

    def tell(self, event: Mapping[str, Any]) -> None:
        """Print *event*, unless it serves the display only."""
        if event["type"] == "progress":
            # The tasks that send it may run on machines that do not know when the run began.
            event = {**event, "seconds": round(self._clock() - self._began, 1)}
        if event["type"] not in _UNPRINTED:
            self._stdout.write(json_line(event) + "\n")

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Print the summary; what an error does not know is null."""
        if not self._has_summary:
            return
        errors = [
            {name: None if value == "" else value for name, value in error.items()}
            for error in summary.get("errors") or ()
        ]
        self._stdout.write(json_line({**summary, "type": "summary", "errors": errors}) + "\n")
