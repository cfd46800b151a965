"""Tasks without Spark."""

import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kbackup.engine import Deal, R, Task, deal
from kbackup.events import Event
from tests.support.fakes import SilentLine


class InTurn:
    """Runs tasks one after the other in this thread."""

    slots = 1

    def begin(self) -> None:
        """Nothing to get ready."""

    def end(self) -> None:
        """Nothing to let go of."""

    def __call__(
        self,
        task: Task[R],
        units: Sequence[Any],
        _hear: Callable[[Event], None],
        _stop: threading.Event,
        *,
        deal: Deal = deal,
        **_: object,
    ) -> list[R]:
        """`RunTasks`; reports come back as Spark would bring them."""
        return [
            pickle.loads(pickle.dumps(report))
            for share in deal(units, 1)
            for report in task(share, SilentLine())
        ]
