"""What commands told their output, on file, and streams to show it on."""

import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kbackup.cli import output

Event = dict[str, Any]


class Terminal(io.StringIO):
    """A terminal, as far as writing goes."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Told:
    """What one command told: file ``restore-plan,refused.jsonl`` is of ``restore plan``."""

    path: Path

    @property
    def command(self) -> str:
        return self.path.stem.split(",")[0].replace("-", " ")

    @property
    def lines(self) -> list[Event]:
        return [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]

    @property
    def summary(self) -> Event:
        return self.lines[-1]


ALL_TOLD = [Told(path) for path in sorted(Path(__file__).parent.joinpath("told").iterdir())]


@dataclass(frozen=True)
class Shown:
    """What came out."""

    stdout: str
    stderr: str


Show = Callable[..., Shown]


def _show(
    command: str,
    events: Iterable[Event],
    summary: Event,
    *,
    on_terminal: bool = False,
    width: int | None = None,
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> Shown:
    kind = Terminal if on_terminal else io.StringIO
    stdout, stderr = kind(), kind()
    variables = {"TERM": "xterm"} | ({} if width is None else {"COLUMNS": str(width)})
    shown = output.choose(
        command,
        stdout=stdout,
        stderr=stderr,
        environ=variables | dict(environ or {}),
        **options,
    )
    with shown:
        for event in events:
            shown.tell(event)
    shown.finish(summary)
    return Shown(stdout.getvalue(), stderr.getvalue())


@pytest.fixture
def show() -> Show:
    """Return a function that lets an output show what it is told."""
    return _show


@pytest.fixture
def told() -> Callable[[str], Told]:
    """Return a function that finds what was told by the name of its file."""
    return lambda name: next(each for each in ALL_TOLD if each.path.stem == name)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test that asks for it everything that was ever told."""
    if "any_told" in metafunc.fixturenames:
        params = [pytest.param(each, id=each.path.stem) for each in ALL_TOLD]
        metafunc.parametrize("any_told", params)
