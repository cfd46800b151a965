"""Tasks in threads of the test's own process, with real lines to a real hub."""

import pickle
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from kbackup.events import Event, Plain
from kbackup.spark.channel import ChannelServer, R, Task, TaskChannel
from kbackup.spark.engine import Deal, deal


class InThreads:
    """Runs tasks in threads, as Spark does in processes, with a real line to each."""

    def __init__(self, slots: int = 2) -> None:
        self.slots, self.jobs = slots, 0

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
        slices_per_core: int | None = None,
        deal: Deal = deal,
        orders: "SimpleQueue[Plain] | None" = None,
        timings: object = None,
    ) -> list[R]:
        """`RunTasks`."""
        del slices_per_core, timings
        self.jobs += 1
        hub = ChannelServer("127.0.0.1", hear)
        reports: list[R] = []

        def work(share: Sequence[Any]) -> None:
            with TaskChannel(hub.address) as line:
                reports.extend(pickle.loads(pickle.dumps(list(task(share, line)))))

        threads = [
            threading.Thread(target=work, args=(share,)) for share in deal(units, self.slots)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if orders is not None:
                with suppress(Empty):
                    hub.order(orders.get(timeout=0.01))
            if stop.wait(0.01):
                hub.stop()
        hub.close()
        return reports
