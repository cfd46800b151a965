import json
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbackup.cli.output import Logs
from kbackup.cli.terminal import Mask
from tests.support.invoked import invoke

SINK = ["sink DEBUG", "sink INFO", "sink WARN"]


@contextmanager
def logs(**options: Any) -> Iterator[list[str]]:
    """Collect what is printed on stderr."""
    lines: list[str] = []
    with Logs(lines.append, **options) as entered:
        yield lines
    entered.finish()


@pytest.mark.parametrize(
    ("verbose", "levels"),
    [
        pytest.param(0, ["run INFO", "event WARN", "sink WARN", "other WARN"], id="default"),
        pytest.param(
            1,
            ["run INFO", "event DEBUG", "event WARN", "sink INFO", "sink WARN", "other WARN"],
            id="-v",
        ),
        pytest.param(
            2,
            ["run INFO", "event DEBUG", "event WARN", *SINK, "other WARN"],
            id="-vv",
        ),
    ],
)
def test_verbosity(verbose: int, levels: list[str]) -> None:
    """More ``-v`` shows more of kbackup, never the details of its clients."""
    with logs(verbose=verbose) as lines:
        logging.getLogger("kbackup.run").info("run")
        for name in ("kbackup.event", "kbackup.sink", "botocore.auth"):
            log = logging.getLogger(name)
            word = "other" if name.startswith("boto") else name.rpartition(".")[2]
            log.debug("%s", word)
            if word != "event":
                log.info("%s", word)
            log.warning("%s", word)

    assert levels == [f"{line.split()[2]} {line.split()[1]}" for line in lines]


def test_a_line_has_time_and_level() -> None:
    """Times are UTC to the second, levels five letters wide."""
    with logs() as lines:
        logging.getLogger("kbackup.run").info("sink %s", "start")

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ INFO  sink start", lines[0])


def test_no_message_makes_two_lines() -> None:
    """A newline in a key cannot forge a log line."""
    with logs() as lines:
        logging.getLogger("kbackup").warning("key %s", "a\n2026-01-01T00:00:00Z INFO  all is well")

    assert ["WARN  key a\\n2026-01-01T00:00:00Z INFO  all is well"] == [
        line.partition(" ")[2] for line in lines
    ]


@pytest.mark.parametrize("debug", [True, False])
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_tracebacks_are_for_debugging(debug: bool, log_format: str) -> None:
    """A traceback is written when asked for, without secrets, and not otherwise."""
    with logs(debug=debug, log_format=log_format, mask=Mask(["CANARY"])) as lines:
        try:
            int("CANARY")
        except ValueError:
            logging.getLogger("kbackup").exception("failed")

    assert (debug, debug, False) == (
        "Traceback" in lines[0],
        "with base 10: '********'" in lines[0],
        "CANARY" in lines[0],
    )


@pytest.mark.parametrize("words", [[], ["--debug"], ["-vv", "--debug"]], ids=" ".join)
def test_debug_needs_no_other_option(words: list[str], tmp_path: Path) -> None:
    """Who is told to run a command again with ``--debug`` sees a traceback."""
    found = invoke("restore", "list", "--store-url", f"file://{tmp_path}/none", *words)

    assert 6 == found.code
    assert ("Traceback (most recent call last)" in found.stderr) == ("--debug" in words)


def test_json_lines_parse() -> None:
    """With --log-format json each line is an object with the same facts."""
    with logs(log_format="json") as lines:
        logging.getLogger("kbackup").warning("odd: %s", '"\n')

    line = json.loads(lines[0])
    assert ("WARN", "kbackup", 'odd: "\n', 20) == (
        line["level"],
        line["logger"],
        line["text"],
        len(line["time"]),
    )


def test_the_file_gets_what_stderr_does_not(tmp_path: Path) -> None:
    """With a live display, and with --quiet, the log file still has the whole run."""
    path = tmp_path / "log"

    with logs(shows_run=False, log_file=str(path)) as lines:
        logging.getLogger("kbackup.run").info("start")
        logging.getLogger("kbackup.error").error("failed")
        logging.getLogger("kbackup.event").warning("odd")

    assert (["odd"], ["start", "failed", "odd"]) == (
        [line.split()[2] for line in lines],
        [line.split()[2] for line in path.read_text().splitlines()],
    )


def test_the_file_is_appended_to_and_may_be_rotated(tmp_path: Path) -> None:
    """A log rotation that moves the file away does not lose the lines after it."""
    path = tmp_path / "log"
    path.write_text("yesterday\n")

    with logs(log_file=str(path)):
        logging.getLogger("kbackup").warning("one")
        path.rename(tmp_path / "log.1")
        logging.getLogger("kbackup").warning("two")

    assert (["yesterday", "one"], ["two"]) == (
        [line.split()[-1] for line in (tmp_path / "log.1").read_text().splitlines()],
        [line.split()[-1] for line in path.read_text().splitlines()],
    )


def test_silence_is_silence(capfd: pytest.CaptureFixture[str]) -> None:
    """With --quiet neither log records nor Python's warnings reach stderr."""
    with Logs(None) as entered, warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.getLogger("kbackup").error("odd")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    entered.finish()

    assert "" == capfd.readouterr().err


def test_loggers_are_left_as_they_were() -> None:
    """A program that runs a command gets its logging back."""
    names = ("", "kbackup", "kbackup.run", "kbackup.event")
    before = [(logging.getLogger(name).level, logging.getLogger(name).handlers) for name in names]

    with logs(verbose=2):
        pass

    assert before == [
        (logging.getLogger(name).level, logging.getLogger(name).handlers) for name in names
    ]
