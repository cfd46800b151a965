"""The command line in the test's own process: quick, and without an environment of its own."""

import json
from typing import Any, NamedTuple

from click.testing import CliRunner

from kbackup.cli import root


class Invoked(NamedTuple):
    """What came out of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The JSON lines of one type."""
        return [line for line in self.lines if line["type"] == kind]


def invoke(*words: str, **environ: str) -> Invoked:
    """Run ``kbackup`` with *words*; an exception other than the process's end is the test's."""
    result = CliRunner(env=environ).invoke(root, words, prog_name="kbackup")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Invoked(result.exit_code, result.stdout, result.stderr)
