"""The environment of a run that writes, and the order of its steps.

The `Environment` is all that is outside of a run.  A `RunContext` takes the lock, lets a
`RunCommand` plan and work, and leaves the record, so that a stop, a lost lock and an error end
every run in the same way.
"""

import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, Unpack

from kbackup.catalog import identity
from kbackup.catalog.identity import BackupIdentity
from kbackup.catalog.keys import Encryption
from kbackup.clock import Clock, SystemClock
from kbackup.config import Settings
from kbackup.errors import KbackupError, NoKeyError, RefusedError, StoreError
from kbackup.events import NO_TOPIC, Ended, Event, Plain, Tell, Warned, from_json
from kbackup.kafka import Cluster, Connection
from kbackup.naming import Layout
from kbackup.runs import history, wiring
from kbackup.runs.following import turns
from kbackup.runs.locks import RunLock, lost_lock
from kbackup.runs.report import Remark, Summary
from kbackup.spark import engine
from kbackup.spark.channel import NotBegun, R, Task, Timings
from kbackup.spark.engine import TaskOptions
from kbackup.spark.java import EngineSettings, FindJava
from kbackup.spark.jvm import Starting
from kbackup.stores import Store, StoreSettings, open_store

if TYPE_CHECKING:
    from kbackup.runs.metrics import RunMetrics

_log = logging.getLogger(__name__)

BEAT_S: Final = 60.0
"""The default interval in seconds."""


class Periodic:
    """Repeats an action in the background of its context.

    A run that follows writes its run record, or ``status --max-age`` would take it for dead; a
    sink folds the ledger, so that reading it stays as fast during a run as before.  A failure is
    logged and the action retried: the run continues without it, and ``status`` shows what has
    become old.
    """

    def __init__(
        self, what: str, beat: Callable[[], None], every_s: float = BEAT_S, *, at_once: bool = False
    ) -> None:
        self._what, self._beat, self._every_s, self._at_once = what, beat, every_s, at_once
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while self._at_once or not self._ended.wait(self._every_s):
            self._at_once = False
            try:
                self._beat()
            except Exception as error:  # noqa: BLE001  (its next turn may go better)
                _log.warning("%s: %s", self._what, error)


class Stop:
    """Tasks end at their next safe point once a stop is requested, perhaps by a signal."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.signal: int | None = None

    def ask(self, signal: int) -> None:
        """Ask to stop, because of *signal*."""
        self.signal = signal
        self.event.set()

    def is_set(self) -> bool:
        """Whether a stop is requested."""
        return self.event.is_set()


@contextmanager
def linked(first: threading.Event, second: threading.Event) -> Iterator[None]:
    """Set *second* too once *first* is set, as long as the context lasts."""

    def pass_on() -> None:
        while not second.is_set():
            if first.wait(0.1):
                second.set()

    thread = threading.Thread(target=pass_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        second.set()
        thread.join()


Agree = Callable[[str], bool]
"""Asks a person a question."""


def confirm(agree: Agree | None, question: str, what: str, why: str, *, is_agreed: bool) -> None:
    """Ask a person unless *is_agreed*; where nobody agrees, *what* and *why* are the refusal's."""
    if not is_agreed and (agree is None or not agree(question)):
        raise RefusedError(what, why, "--yes confirms in advance")


RECORD_S: Final = 20.0
"""Seconds between two run records of a run that follows."""


class RunTasks(Protocol):
    """Runs a task over units, on Spark or in this process: `engine.run`."""

    def begin(self) -> None:
        """Get ready in the background, because tasks will probably run.  Idempotent."""
        ...

    def end(self) -> None:
        """Release what `begin` started, or tasks kept, and nobody needs any longer."""
        ...

    def __call__(
        self,
        task: Task[R],
        units: Sequence[Any],
        hear: Callable[[Event], None],
        stop: threading.Event,
        **options: Unpack[TaskOptions],
    ) -> list[R | NotBegun]:
        """Return all reports; `SparkError` if a task cannot run to its end."""
        ...


@dataclass(frozen=True, slots=True)
class Environment:
    """What a run works with and on.

    Attributes:
        kafka: The cluster; crosses processes with the tasks.
    """

    kafka: Connection
    store: StoreSettings
    run_tasks: RunTasks
    clock: Clock

    @classmethod
    def of(cls, settings: Settings, find_java: FindJava) -> Self:
        """Return the real one that *settings* describe; a Java is looked for when it is needed.

        Raises:
            ConfigurationError: If they name no cluster.
        """
        return cls(
            wiring.kafka_settings(settings),
            wiring.store_settings(settings),
            OnSpark(settings, find_java),
            SystemClock(),
        )


class OnSpark:
    """Runs tasks on Spark, as the settings say; a Java is looked for when it is started."""

    def __init__(self, settings: Settings, find_java: FindJava) -> None:
        self._settings, self._find_java = settings, find_java
        self._starting: Starting | None = None
        self._given: EngineSettings | None = None

    def begin(self) -> None:
        """Start Spark in the background, until the run has work for it."""
        if self._starting is None:
            self._starting = Starting(self._engine_settings)

    def end(self) -> None:
        """End a Spark that `begin` started and nobody used, or that was kept."""
        if self._starting is not None:
            self._starting.drop()
            self._starting = None

    def _engine_settings(self) -> EngineSettings:
        if self._given is None:
            self._given = wiring.engine_settings(self._settings, self._find_java())
        return self._given

    def __call__(
        self,
        task: Task[R],
        units: Sequence[Any],
        hear: Callable[[Event], None],
        stop: threading.Event,
        **options: Unpack[TaskOptions],
    ) -> list[R | NotBegun]:
        """Run *task* over *units*: `RunTasks`."""
        given = self._engine_settings()
        starting, self._starting = self._starting or Starting(lambda: given), None
        reports = engine.run(task, units, given, hear, stop, starting=starting, **options)
        if options.get("keeps") and reports:
            self._starting = starting
        return reports


class RunCommand(Protocol):
    """What one kind of run does within its context."""

    @property
    def locks(self) -> Sequence[str]:
        """What no other run of its kind may work on meanwhile."""
        ...

    def group(self, cluster: Cluster, backup: BackupIdentity) -> str:
        """Return the consumer group that keeps the run's positions."""
        ...

    def preview(self, cluster: Cluster, store: Store) -> None:
        """Plan and report the plan; with ``--dry-run`` that is all there is."""
        ...

    def work(self, cluster: Cluster, store: Store, lock: RunLock | None) -> bool:
        """Plan, and carry the plan out; return whether there is anything to leave a record of.

        Args:
            lock: The run's lock, held; None where it was asked for none.

        Raises:
            KbackupError: What ends the run without a record.
        """
        ...

    def record(self, store: Store) -> None:
        """Leave the run record."""
        ...

    def finish(self) -> Ended:
        """Return the summary as it is now."""
        ...


@dataclass(slots=True)
class RunContext:
    """What every run has.

    Attributes:
        backup: Which backup it is; by its address, until the store has been asked.
        group: The consumer group that keeps the positions; empty until then.
    """

    settings: Settings
    tell: Tell
    stop: Stop
    environment: Environment
    started: datetime
    run: str
    summary: Summary
    layout: Layout
    timings: Timings
    backup: BackupIdentity
    group: str = field(default="", init=False)

    @classmethod
    def of(
        cls, command: str, settings: Settings, tell: Tell, stop: Stop, environment: Environment
    ) -> Self:
        """Return the context of a new run of *command*, ``sink`` or ``restore``."""
        started = environment.clock.now()
        run = history.new_run_id(started)
        summary = Summary(run, command)
        summary.facts["only_partitions"] = settings.partitions
        if settings.follow:
            summary.facts["follow"] = True
        backup = wiring.address(settings)
        layout = wiring.layout(settings)
        timings = Timings()
        return cls(
            settings, tell, stop, environment, started, run, summary, layout, timings, backup
        )

    def __call__(
        self, command: RunCommand, beside: AbstractContextManager[object] | None = None
    ) -> Ended:
        """Run to the end; what fails is in the summary that is returned.

        Args:
            beside: Held from before the lock is taken until after it is released.

        Raises:
            KbackupError: If the run was asked for wrongly, or another one has its lock.
        """
        metrics = self._metrics(command)
        try:
            self._through(command, beside or nullcontext(), metrics or nullcontext())
        except KbackupError as error:
            if error.begins_nothing:
                raise
            self.summary.fail(error)
        if metrics is not None:
            metrics.end()
        return command.finish()

    def remark(
        self, about: Hashable, *said: Remark, skipped: str | None = None, count: int = 1
    ) -> bool:
        """Report what is news of what holds *about* something; return whether anything is.

        As long as anything holds, *count* is counted by the reason *skipped*; see `Summary.remark`.
        """
        with self.summary.lock:
            if skipped is not None:
                self.summary.count(skipped, count if said else 0)
            news = self.summary.remark(about, said)
        self.tell_all(news)
        return bool(news)

    def tell_all(self, news: Iterable[Plain]) -> None:
        """Report each of *news*."""
        for each in news:
            self.tell(each)

    def _metrics(self, command: RunCommand) -> "RunMetrics | None":
        settings = self.settings
        is_asked = settings.metrics_file is not None or settings.metrics_listen is not None
        if settings.dry_run or not is_asked:
            return None
        from kbackup.runs.metrics import RunMetrics  # noqa: PLC0415  (imports Prometheus' client)

        return RunMetrics(self, command)

    def _through(
        self,
        command: RunCommand,
        beside: AbstractContextManager[object],
        metrics: AbstractContextManager[object],
    ) -> None:
        cluster, store = self.environment.kafka.cluster(), open_store(self.environment.store)
        if self._comes_before_keys(store):
            self._await_keys()
            if self.stop.event.is_set():
                return
            store = open_store(self.environment.store)
        self._identify(command, cluster, store)
        self._check_encryption(store)
        if self.settings.dry_run:
            command.preview(cluster, store)
            return
        lock = RunLock.for_settings(
            self.settings, self.backup, store, self.layout, self.summary.command, command.locks,
            self.run, self.stop.event.wait,
        )  # fmt: skip
        with beside, lock as held, metrics:
            try:
                has_begun = command.work(cluster, store, held)
            finally:
                self.environment.run_tasks.end()
            if held is not None and held.is_lost:
                self.summary.fail(lost_lock())
            if has_begun:
                command.record(store)

    def hear(self, event: Event) -> None:
        """Show what a task tells the screen."""
        told = from_json(event)
        if told is not None:
            self.tell(told)

    def _identify(self, command: RunCommand, cluster: Cluster, store: Store) -> None:
        """Find out which backup it is; a sink gives it an id."""
        address, now = self.backup.address, self.environment.clock.now()
        is_sink = self.summary.command == "sink"
        if is_sink and not self.settings.dry_run:
            self.backup = identity.ensure(store, self.layout, address, now)
        else:
            self.backup = identity.read(store, self.layout, address)
            if is_sink and not self.backup.id:
                identity.check_apart(store, self.layout)
        self.group = command.group(cluster, self.backup)

    def _comes_before_keys(self, store: Store) -> bool:
        """Whether a restore that follows was started before an encrypted backup's first run."""
        encryption, settings = self._encryption, self.settings
        return (
            encryption is not None
            and encryption.ring is None
            and self.summary.command == "restore"
            and settings.follow
            and not settings.dry_run
            and not any(store.list(self.layout.prefix()))  # else keys have to be there
        )

    def _await_keys(self) -> None:
        """Wait for the first backup, until asked to stop."""
        text = f"waiting for the first backup in {self.layout.place}, which makes its keys"
        self.tell(Warned(NO_TOPIC, text, run=self.run))
        every_s, stop = self.settings.s3_poll_interval_ms / 1000, self.stop.event
        for _ in turns(stop.is_set, stop.wait, self.environment.clock, every_s):
            try:
                if not self._comes_before_keys(open_store(self.environment.store)):
                    return
            except StoreError as error:  # as a restore that follows goes on through an outage
                _log.warning("waiting for the first backup: %s", error)

    def _check_encryption(self, store: Store) -> None:
        """See to it that what is stored is encrypted, and what is read can be, before either."""
        encryption, is_sink = self._encryption, self.summary.command == "sink"
        if encryption is None:
            if self.backup.is_encrypted and not (is_sink and self.settings.encryption_mixed):
                raise NoKeyError(
                    "the backup is encrypted, and this run has no keys",
                    "it would store what anybody can read, or could read nothing",
                    "set encryption.identity.file, or encryption.* as other sinks have it; "
                    "encryption.mixed=true lets a sink store without",
                )
        elif not is_sink:
            encryption.require_readable()
        elif not self.settings.dry_run:
            encryption.establish(store, self.run)

    @property
    def _encryption(self) -> Encryption | None:
        found = self.environment.store.wrapper
        return found if isinstance(found, Encryption) else None

    def begin_encryption(self) -> None:
        """See to it that tasks have a data key to store objects with, where they need one."""
        if self._encryption is not None:
            self._encryption.begin(open_store(self.environment.store), self.run)

    def fold_keys(self, store: Store) -> None:
        """Fold the data keys, where that is due."""
        if self._encryption is not None:
            self._encryption.fold(store)

    def finish(self) -> Ended:
        """Return the summary as it is now."""
        return self.summary.finish(self.stop.signal)

    def recording(self, record: Callable[[], None], *, at_once: bool = False) -> Periodic:
        """Return a context in which a run that follows leaves its record every now and then."""
        return Periodic("leaving a run record", record, RECORD_S, at_once=at_once)

    def tasks(
        self,
        task: Task[R],
        units: Sequence[Any],
        hear: Callable[[Event], None],
        stop: threading.Event | None = None,
        **options: Unpack[TaskOptions],
    ) -> list[R | NotBegun]:
        """Run *task* over *units*, the largest first, and return all reports.

        Args:
            stop: Ends them in place of the run's own stop.
        """
        options["timings"] = self.timings
        found = self.environment.run_tasks(task, units, hear, stop or self.stop.event, **options)
        self.summary.facts["timings"] = replace(self.timings)
        return found

    def begun(self, found: Sequence[R | NotBegun]) -> list[R]:
        """Return the reports of tasks that began; the others' failures are the run's."""
        reports: list[R] = []
        for each in found:
            if isinstance(each, NotBegun):
                self.summary.fail(each.failure)
            else:
                reports.append(each)
        return reports
