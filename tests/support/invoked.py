"""The command line in the test's own process: quick, and without an environment of its own."""

from pathlib import Path

from click.testing import CliRunner

from kbackup.cli import root
from tests.support.command import Result


def invoke(*words: str, **environ: str) -> Result:
    """Run ``kbackup`` with *words*; an exception other than the process's end is the test's."""
    result = CliRunner(env=environ).invoke(root, words, prog_name="kbackup")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Result(result.exit_code, result.stdout, result.stderr)


def run(folder: Path, line: str, *, json: bool = True) -> Result:
    """Run a command, whose words *line* has, over a backup in a folder."""
    return invoke(*line.split(), *(("--json",) if json else ()), "--store-url", f"file://{folder}")
