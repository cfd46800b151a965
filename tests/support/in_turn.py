"""Tasks without Spark."""

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kbackup.engine import Deal, Report, Task, deal
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
        task: Task,
        units: Sequence[Any],
        _hear: Callable[[Event], None],
        _stop: threading.Event,
        *,
        deal: Deal = deal,
        **_: object,
    ) -> list[Report]:
        """`RunTasks`; reports come back as the plain data that Spark would bring."""
        return [
            json.loads(json.dumps(report))
            for share in deal(units, 1)
            for report in task(share, SilentLine())
        ]
