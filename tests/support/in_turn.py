"""Tasks without Spark, in this thread."""

import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kbackup.events import Event, Plain, to_json
from kbackup.spark.channel import LocalChannel, R, Task
from kbackup.spark.engine import Deal, deal


class InTurn:
    """Runs tasks one after the other: `runs.context.RunTasks`."""

    slots = 1

    def begin(self) -> None:
        """Nothing to get ready."""

    def end(self) -> None:
        """Nothing to let go of."""

    def __call__(
        self,
        task: Task[R],
        units: Sequence[Any],
        hear: Callable[[Event], None],
        stop: threading.Event,
        *,
        deal: Deal = deal,
        **_: object,
    ) -> list[R]:
        """Return all reports, as Spark would bring them."""
        return [
            pickle.loads(pickle.dumps(report))
            for share in deal(units, 1)
            for report in task(share, _Heard(hear, stop))
        ]


class _Heard(LocalChannel):
    """A line that is a function call."""

    def __init__(self, hear: Callable[[Event], None], stop: threading.Event) -> None:
        super().__init__(stop)
        self._hear = hear

    def tell(self, event: Plain) -> None:
        """Pass *event* on."""
        self._hear(to_json(event))
