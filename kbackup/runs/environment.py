"""Everything outside a run: the cluster, the bucket, the workers, the time."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, Unpack

from kbackup.clock import Clock, SystemClock
from kbackup.config import Settings
from kbackup.events import Event
from kbackup.kafka import Connection
from kbackup.runs import wiring
from kbackup.spark.engine import TaskOptions, run
from kbackup.spark.jvm import Starting
from kbackup.spark.settings import EngineSettings, FindJvm, NotBegun, R, Task
from kbackup.stores import StoreSettings


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
        **manner: Unpack[TaskOptions],
    ) -> list[R | NotBegun]:
        """Return all reports.

        Raises:
            SparkError: If a task cannot run to its end.
        """
        ...


@dataclass(frozen=True, slots=True)
class Environment:
    """What a run works with and on.

    Attributes:
        kafka: The cluster; crosses processes with the tasks.
        store: Where the backup is; likewise.
        run_tasks: Runs tasks.
        clock: The time; likewise.
    """

    kafka: Connection
    store: StoreSettings
    run_tasks: RunTasks
    clock: Clock

    @classmethod
    def of(cls, settings: Settings, find_jvm: FindJvm) -> Self:
        """Return the real world that *settings* describe.

        Args:
            settings: They name the cluster, the bucket, and Spark's properties.
            find_jvm: Finds the Java for Spark; called when it is needed.

        Raises:
            ConfigurationError: If they name no cluster.
        """
        return cls(
            wiring.kafka_settings(settings),
            wiring.store_settings(settings),
            OnSpark(settings, find_jvm),
            SystemClock(),
        )


class OnSpark:
    """Runs tasks on Spark, as the settings say.

    Args:
        settings: Spark's properties.
        find_jvm: Finds a Java; called when Spark is started.
    """

    def __init__(self, settings: Settings, find_jvm: FindJvm) -> None:
        self._settings, self._find_jvm = settings, find_jvm
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
            self._given = wiring.engine_settings(self._settings, self._find_jvm())
        return self._given

    def __call__(
        self,
        task: Task[R],
        units: Sequence[Any],
        hear: Callable[[Event], None],
        stop: threading.Event,
        **manner: Unpack[TaskOptions],
    ) -> list[R | NotBegun]:
        """Run *task* over *units*: `RunTasks`."""
        given = self._engine_settings()
        starting, self._starting = self._starting or Starting(lambda: given), None
        reports = run(task, units, given, hear, stop, starting=starting, **manner)
        if manner.get("keeps") and reports:
            self._starting = starting
        return reports
