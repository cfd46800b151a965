"""What commands told their output, on file, and streams to show it on."""

import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from backup_samples import Backup

from kbackup.catalog.findings import Finding, PartitionVerdict
from kbackup.cli import output
from kbackup.cli.prepare import PluginShown, SettingShown
from kbackup.config import Settings
from kbackup.events import (
    Ended,
    NextCommand,
    ObjectStored,
    PartitionCounts,
    Plain,
    Planned,
    RestoreStart,
    RestoreTopic,
    SinkStart,
    Started,
    TopicPlanned,
)
from kbackup.inspect import Check
from kbackup.inspect.topics import StoredPartition
from kbackup.kafka import Acl, ScramUser
from kbackup.records import TopicPartition
from kbackup.restore.access import AclPlanned, SettingCompared, UserPlanned
from kbackup.restore.groups import GroupTranslated
from kbackup.runs.compare import Difference, PartitionCompared
from kbackup.runs.history import PastRun
from kbackup.runs.status import RunningNow
from tests.support.ended import ended, progress, row, warned

Event = dict[str, Any]


class Terminal(io.StringIO):
    """A terminal, as far as writing goes."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Told:
    """What one command told: file ``restore-plan,refused.jsonl`` is of ``restore --dry-run``."""

    path: Path

    @property
    def command(self) -> str:
        return self.path.stem.split(",")[0].replace("-", " ")

    @property
    def lines(self) -> list[Event]:
        return [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]

    @property
    def events(self) -> list[Plain]:
        return [read(line, self.command) for line in self.lines[:-1]]

    @property
    def summary(self) -> Event:
        return self.lines[-1]

    def ended(self, **more: Any) -> Ended:
        said = self.summary | more
        said["runs"] = [_made(PastRun, each, started=None) for each in said.get("runs", ())]
        said["running"] = [_made(RunningNow, each) for each in said.get("running", ())]
        if said["command"].endswith("status"):
            said["last_success"] = datetime.fromisoformat(said["last_success"])
        said["remaining"] = [NextCommand(**each) for each in said.get("remaining", ())]
        return ended(**said)


def _made(kind: Any, said: Event, **more: Any) -> Any:
    """An event of a class, of which JSON need not have all."""
    return kind(**{each.name: said.get(each.name) for each in fields(kind) if each.init} | more)


def _start(said: Event) -> Any:
    own = _made(SinkStart if said["command"] == "sink" else RestoreStart, said)
    return _made(Started, {"group": ""} | said, own=own)


def _partition(said: Event) -> Any:
    times = {name: said.get(name) for name in ("oldest", "newest", "last_stored")}
    read = {name: text and datetime.fromisoformat(text) for name, text in times.items()}
    return _made(StoredPartition, said, **read)


def _group_offset(said: Event) -> Any:
    taken = said["taken"]
    return _made(GroupTranslated, said, taken=taken and datetime.fromisoformat(taken))


def _compared(said: Event) -> Any:
    named = tuple(Difference(**each) for each in said["differences"])
    return _made(PartitionCompared, said, differences=named)


def _planned_access(kind: Any, made: Any, name: str) -> Callable[[Event], Any]:
    def read(said: Event) -> Any:
        own = {each.name: said[each.name] for each in fields(made)}
        return kind(
            **{each.name: said.get(each.name) for each in fields(kind)}
            | {name: made(**own), "taken": datetime.fromisoformat(said["taken"])}
        )

    return read


_READ: dict[str, Callable[[Event], Any]] = {
    "acl": _planned_access(AclPlanned, Acl, "acl"),
    "scram_user": _planned_access(UserPlanned, ScramUser, "user"),
    "broker_setting": lambda said: _made(SettingCompared, said),
    "group_offset": _group_offset,
    "compared": _compared,
    "start": _start,
    "plan_topic": lambda said: _made(
        TopicPlanned,
        said,
        partitions=PartitionCounts(**said["partitions"]),
        own=_made(RestoreTopic, said),
    ),
    "plan": lambda said: Planned([row(**each) for each in said["partitions"]]),
    "progress": lambda said: progress(
        **{name: value for name, value in said.items() if name not in ("where", "seconds")}
    ),
    "object": lambda said: _made(ObjectStored, said),
    "warning": lambda said: warned(
        **{name: value for name, value in said.items() if name != "where"}
    ),
    "partition": _partition,
    "verdict": lambda said: _made(PartitionVerdict, said),
    "finding": lambda said: _made(Finding, said),
    "check": lambda said: _made(Check, said, do=said["do"] or "", place={}),
    "setting": lambda said: _made(SettingShown, said),
    "plugin": lambda said: _made(PluginShown, said, target=said["class"], options={}),
}


def read(line: Event, command: str) -> Any:
    """The event that a line of JSON is of."""
    kind = line["type"]
    if (kind, command) == ("partition", "restore verify"):
        kind = "verdict"
    said = {name: value for name, value in line.items() if name != "type"}
    if "partition" in said:
        said["where"] = TopicPartition(said["topic"], said["partition"])
    return _READ[kind](said)


ALL_TOLD = [Told(path) for path in sorted(Path(__file__).parent.joinpath("told").iterdir())]


@dataclass(frozen=True)
class Shown:
    """What came out."""

    stdout: str
    stderr: str


Show = Callable[..., Shown]


def _show(
    command: str,
    events: Iterable[Plain],
    summary: Ended,
    *,
    on_terminal: bool = False,
    width: int | None = None,
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> Shown:
    kind = Terminal if on_terminal else io.StringIO
    stdout, stderr = kind(), kind()
    variables = {"TERM": "xterm"} | ({} if width is None else {"COLUMNS": str(width)})
    secrets = options.pop("secrets", ())
    shown = output.choose(
        command,
        Settings(**options),
        secrets=secrets,
        stdout=stdout,
        stderr=stderr,
        environ=variables | dict(environ or {}),
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A backup of two topics, without a ledger."""
    (folder := tmp_path / "backup").mkdir()
    backup = Backup.in_folder(folder)
    for topic in ("orders", "audit"):
        backup.put(topic, 0, range(5))
    return folder
