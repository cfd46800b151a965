"""Commands whose standard streams are closed, or lead to a full disk."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from tests.unit.cli.test_command_line import ALL

STREAMS = [">&-", "<&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full", ">/dev/full 2>/dev/full"]


def each_with_each(commands: list[str], streams: list[str]) -> list[Any]:
    """Return all pairs; in the gate the first of either meets all of the other."""
    return [
        pytest.param(
            command, missing,
            marks=pytest.mark.nightly if command != commands[0] and missing != streams[0] else (),
        )
        for command in commands
        for missing in streams
    ]  # fmt: skip


EACH = """\
import importlib, json, os, sys
import kbackup.cli
for module, _ in kbackup.cli._COMMANDS.values():
    importlib.import_module(f"kbackup.cli.{module}")
out, err, tried = sys.argv[1], sys.argv[2], json.load(sys.stdin)
def become(words, streams):
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        how, mode = streams[number], "w" if number else "r"
        os.close(number)
        if how != "closed":
            opened = os.open(how, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            if opened != number:  # one before it is closed
                os.dup2(opened, number)
                os.close(opened)
        file = None if how == "closed" else open(number, mode, closefd=False)
        setattr(sys, name, file)
    sys.argv = ["kbackup", *words]
    kbackup.cli.main()
told = []
for words, streams in tried:
    for file in (out, err):
        open(file, "w").close()
    streams = [out if how == "out" else err if how == "err" else how for how in streams]
    child = os.fork()
    if not child:
        code = 70
        try:
            become(words, streams)
            code = 0
        except SystemExit as end:
            code = end.code or 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    told.append([code, *(open(file).read() for file in (out, err))])
print(json.dumps(told))
"""
"""Runs one command after the other as a process of its own that has begun already, with streams of
which some are closed or full, and prints of each exit code, stdout and stderr."""

THERE = [os.devnull, "out", "err"]
CLOSED = ["closed"] * 3
FULL = [os.devnull, "/dev/full", "/dev/full"]
ALONE = [
    ["closed", "out", "err"], [os.devnull, "closed", "err"], [os.devnull, "out", "closed"],
    [os.devnull, "/dev/full", "err"], [os.devnull, "out", "/dev/full"],
]  # fmt: skip
"""Each of the streams alone: stdin, stdout and stderr."""

COMMANDS = [
    "sink run -t t STORE", "sink status STORE", "sink repair t:0:0 STORE", "sink reindex STORE",
    "sink accept STORE", "sink expire STORE", "sink copy STORE", "sink abort-uploads STORE",
    "sink ddl STORE", "restore run STORE", "restore list STORE",
    "restore cat t --format json STORE", "restore query x STORE", "restore verify STORE",
    "restore status STORE", "restore thaw STORE",
    "restore access STORE", "restore configs STORE", "restore groups STORE", "restore drill STORE",
    "keys list STORE", "keys add x STORE", "keys remove x STORE", "keys rotate x y STORE",
    "config check", "config show", "doctor --no-spark STORE", "demo --nothing", "plugins",
    "explain 3",
]  # fmt: skip
"""A line of each command that ends without a Kafka."""


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A folder with an object of a connector's."""
    folder = tmp_path / "backup/topics/t/partition=0"
    folder.mkdir(parents=True)
    (folder / "t+0+0000000000.json").write_text('{"a":1}\n{"a":2}\n')
    return tmp_path / "backup"


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("missing", [CLOSED, FULL, *ALONE], ids=" ".join)
def test_every_command_without_a_stream_ends_as_with_it_or_with_1(
    backup: Path, tmp_path: Path, missing: list[str]
) -> None:
    """No traceback, and no exit 0 of a result that nobody could see."""
    lines = [line.replace("STORE", f"--store-url {backup.as_uri()}") for line in COMMANDS]
    tried = [(line.split(), streams) for line in lines for streams in (THERE, missing)]
    files = [str(tmp_path / name) for name in ("out", "err")]

    done = subprocess.run(
        [sys.executable, "-c", EACH, *files], input=json.dumps(tried), capture_output=True,
        text=True, check=False, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip

    assert 0 == done.returncode, done.stderr
    found = json.loads(done.stdout)
    for line, there, without in zip(COMMANDS, found[::2], found[1::2], strict=True):
        is_lost = there[1] != "" and missing[1] != "out"
        assert without[0] == (there[0] or int(is_lost)), (line, there, without)
        for said in (there[2], without[2]):
            assert "Traceback" not in said, line
            assert "defect" not in said, line


def test_each_command_has_a_line() -> None:
    """A command that is added is tried without streams too."""
    words = {" ".join(words) for words, command in ALL.items()
             if not isinstance(command, click.Group)}  # fmt: skip

    assert words == {
        name for name in words for line in COMMANDS if f"{line} ".startswith(f"{name} ")
    }


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(
    ("command", "missing"),
    each_with_each(
        ["restore list --store-url STORE", "--help",
         "restore cat t --store-url STORE --config CONFIG"], STREAMS,
    ),
)  # fmt: skip
def test_a_command_that_shows_nothing_does_not_succeed(
    backup: Path, tmp_path: Path, command: str, missing: str
) -> None:
    """Closed or full streams: no traceback, and no exit 0 of a result that nobody could see."""
    config = tmp_path / "c.properties"
    config.write_text("format.class=json\n")
    words = command.replace("STORE", backup.as_uri()).replace("CONFIG", str(config))
    line = f"{sys.executable} -m kbackup {words} {missing}"

    done = subprocess.run(
        line, shell=True, capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip

    assert int(">" in missing.replace("2>", "")) == done.returncode, done.stderr
    assert "Traceback" not in done.stderr
    assert "defect" not in done.stderr
    assert (done.stdout != "") == (done.returncode == 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(
    ("command", "missing"),
    [
        # its Spark starts without streams too
        pytest.param("doctor", STREAMS[3], marks=pytest.mark.nightly),
        *each_with_each(
            ["sink -t t", "doctor --no-spark", "restore configs", "restore"],
            [STREAMS[5], STREAMS[3]],
        ),
    ],
)
def test_what_a_command_found_out_outweighs_who_saw_it(
    backup: Path, tmp_path: Path, command: str, missing: str
) -> None:
    """Without any of its standard streams a command exits with what it came to: here no Kafka."""
    line = (
        f"{sys.executable} -m kbackup {command} --store-url {backup.as_uri()} "
        f"-k 127.0.0.1:1 --kafka-timeout 1s {missing}"
    )

    done = subprocess.run(
        line, shell=True, check=False, timeout=120, env={**os.environ, "HOME": str(tmp_path)}
    )

    assert 5 == done.returncode


def test_a_restore_without_stdin_asks_nobody(backup: Path, tmp_path: Path) -> None:
    """A restore with a closed stdin goes as far as one without a terminal: here, to no Kafka."""
    line = (
        f"{sys.executable} -m kbackup restore --dry-run --store-url {backup.as_uri()} "
        "-k 127.0.0.1:1 --kafka-timeout 1s <&-"
    )
    done = subprocess.run(
        line, shell=True, capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip

    assert (5, False) == (done.returncode, "defect" in done.stderr), done.stderr
