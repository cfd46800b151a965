"""Tasks in the test's own process: a run against real services that starts no Spark."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from kbackup.channel import Here
from kbackup.clock import SystemClock
from kbackup.config import Settings
from kbackup.engine import deal
from kbackup.events import Event, Plain
from kbackup.runs import wiring
from kbackup.runs.world import World


class TasksHere:
    """Runs tasks one after the other: `runs.world.RunTasks`."""

    def begin(self) -> None:
        """There is nothing to start."""

    def end(self) -> None:
        """There is nothing to end."""

    def __call__(
        self,
        task: Any,
        units: Sequence[Any],
        hear: Callable[[Event], None],
        stop: threading.Event,
        *,
        deal: Callable[[Sequence[Any], int], Sequence[Sequence[Any]]] = deal,
        **_: object,
    ) -> list[Any]:
        """Return all reports."""
        shares = deal(units, 1)
        return [report for share in shares for report in task(share, _Heard(hear, stop))]


class _Heard(Here):
    """A line that is a function call."""

    def __init__(self, hear: Callable[[Event], None], stop: threading.Event) -> None:
        super().__init__(stop)
        self._hear = hear

    def tell(self, event: Plain) -> None:
        """Pass *event* on."""
        self._hear(event.to_dict())


def world_of(settings: Settings) -> World:
    """Return the cluster and the bucket of *settings*, with tasks in this process."""
    return World(
        wiring.kafka_settings(settings), wiring.store_settings(settings), TasksHere(), SystemClock()
    )
