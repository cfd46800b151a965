"""Commands whose standard streams are closed, or lead to a full disk."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A folder with an object of a connector's."""
    folder = tmp_path / "backup/topics/t/partition=0"
    folder.mkdir(parents=True)
    (folder / "t+0+0000000000.json").write_text('{"a":1}\n{"a":2}\n')
    return tmp_path / "backup"


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
