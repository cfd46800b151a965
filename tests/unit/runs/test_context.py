"""The context of sink, repair and restore: what holds however a run ends."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from kbackup.catalog.identity import BackupIdentity
from kbackup.clock import SystemClock
from kbackup.config import loading
from kbackup.errors import ConfigurationError, KafkaError, StoreError
from kbackup.events import Ended
from kbackup.kafka import Cluster
from kbackup.runs.context import Environment, RunContext, Stop
from kbackup.stores import Store, StoreSettings, open_store, put_json

TERM = 15


@dataclass
class FailingCommand:
    """A command that may fail."""

    context: RunContext  # the run's
    fails_with: Exception | None = None  # what its work raises
    no_record: Exception | None = None  # what leaving its record raises
    happens: list[str] = field(default_factory=list)  # what it did, in order
    locked: int = 0  # how many lock objects there were while it worked
    locks: Sequence[str] = ("orders",)

    def group(self, _cluster: Cluster, _backup: BackupIdentity) -> str:
        """Any."""
        return "g"

    def preview(self, _cluster: Cluster, _store: Store) -> None:
        """Nothing to plan."""
        self.happens.append("preview")

    def work(self, _cluster: Cluster, store: Store, _lock: object) -> bool:
        """Fail, or do nothing."""
        self.happens.append("work")
        self.locked = len(held(store))
        if self.fails_with is not None:
            raise self.fails_with
        return True

    def record(self, store: Store) -> None:
        """Fail, or leave none."""
        assert held(store), "a record belongs to a run that has the lock"
        self.happens.append("record")
        if self.no_record is not None:
            raise self.no_record

    def finish(self) -> Ended:
        """The summary of the context."""
        return self.context.finish()


def held(store: Store) -> list[str]:
    """The keys of lock objects."""
    return [found.key for found in store.list("") if "/locks/" in found.key]


@dataclass
class Running:
    """One run in a store of its own."""

    folder: Path  # for lock files
    store: StoreSettings = field(default_factory=lambda: StoreSettings(f"memory://{uuid4()}"))
    ended: int = 0  # how often Spark was released
    stop: Stop = field(default_factory=Stop)  # ends it

    def end(self) -> None:
        """Release Spark."""
        self.ended += 1

    def command(self, **options: Any) -> FailingCommand:
        """A command within its context."""
        given = {
            "bootstrap_servers": "-", "s3_bucket_name": "b", "lock_dir": str(self.folder), **options
        }  # fmt: skip
        settings = loading.load("restore", options=given, files=(), environ={}).settings
        kafka: Any = SimpleNamespace(cluster=lambda: None)
        tasks: Any = self
        environment = Environment(kafka, self.store, tasks, SystemClock())
        return FailingCommand(
            RunContext.of("restore", settings, lambda _: None, self.stop, environment)
        )

    @property
    def locks(self) -> list[str]:
        """The lock objects that were left."""
        return held(open_store(self.store))


@pytest.fixture
def running(tmp_path: Path) -> Running:
    """A run."""
    return Running(tmp_path)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(None, 0, id="well"),
        pytest.param(KafkaError("planning", "away"), 5, id="a failure"),
    ],
)
def test_the_lock_and_spark_are_released_when_a_run_ends(
    running: Running, error: Exception | None, code: int
) -> None:
    """A run that has failed keeps no other from beginning; only one that worked leaves a record."""
    command = running.command()
    command.fails_with = error

    assert code == command.context(command).exit_code

    assert (1, [], 1) == (command.locked, running.locks, running.ended)
    assert (["work"] if error else ["work", "record"]) == command.happens


class Overtaken(FailingCommand):
    """A run whose lock another one takes over while it works."""

    def work(self, _cluster: Cluster, store: Store, lock: Any) -> bool:
        """Find with the next heartbeat that the lock is another's."""
        put_json(store, held(store)[0], {"run": "another"})
        lock.beat()
        return True


def test_a_run_that_lost_its_lock_does_not_exit_0(running: Running) -> None:
    """Two may have worked at once, which nobody would look for after a good run."""
    command = Overtaken(running.command().context)

    assert 1 == command.context(command).exit_code


@pytest.mark.parametrize(
    "error", [ConfigurationError("asked for wrongly"), RuntimeError("a defect")], ids=str
)
def test_the_lock_and_spark_are_released_when_a_run_is_broken_off(
    running: Running, error: Exception
) -> None:
    """What is raised from a run, and not in its summary, keeps no other from beginning either."""
    command = running.command()
    command.fails_with = error

    with pytest.raises(type(error)):
        command.context(command)

    assert (1, [], 1) == (command.locked, running.locks, running.ended)
    assert ["work"] == command.happens


def test_a_record_that_cannot_be_left_fails_the_run_and_releases_the_lock(running: Running) -> None:
    """What a run could not write is in its summary, and the next run begins."""
    command = running.command()
    command.no_record = StoreError("writing the record", "denied")

    summary = command.context(command)

    assert 6 == summary.exit_code
    assert [] == running.locks


def test_a_run_that_is_stopped_while_it_waits_for_the_lock_does_nothing(running: Running) -> None:
    """SIGTERM ends the wait for another run at once, and leaves that one its lock."""
    first, second = running.command(), running.command(lock_timeout="1h")
    first.work = lambda *_: _waiting(running, second)  # type: ignore[method-assign]

    summary = first.context(first)

    assert [] == second.happens
    assert 143 == summary.exit_code
    assert [] == running.locks


def _waiting(running: Running, second: FailingCommand) -> bool:
    running.stop.ask(TERM)
    assert 143 == second.context(second).exit_code
    assert 1 == len(running.locks)
    return False


def test_a_plan_takes_no_lock(running: Running) -> None:
    """``--dry-run`` works beside a run, and leaves nothing."""
    command = running.command(dry_run=True)

    assert 0 == command.context(command).exit_code
    assert (["preview"], []) == (command.happens, running.locks)
