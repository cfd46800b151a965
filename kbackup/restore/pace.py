"""No faster than asked for: how long a task waits before it writes more.

The limits of a run are shared out equally to the tasks that work at the same time, so all of them
together stay below.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Final

from kbackup.restore.job import RestoreJob, RestoreUnit
from kbackup.restore.tasks.transaction import dealt_by_writer
from kbackup.spark.engine import TaskOptions

OPEN_S: Final = 30.0
"""How long a transaction stays open that has to wait: far from the five minutes that end it."""

_NAP_S: Final = 0.5
"""How long one wait lasts until a stop is looked for."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How much may be written in a second.

    Attributes:
        records: At most so many; None for no limit.
        bytes: At most so many, as records take in memory; None for no limit.
    """

    records: int | None = None
    bytes: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.records is not None or self.bytes is not None

    def seconds(self, records: int, size: int) -> float:
        """Return how long so many records, of *size* bytes, take at least."""
        by_records = 0.0 if self.records is None else records / self.records
        return max(by_records, 0.0 if self.bytes is None else size / self.bytes)


@dataclass(slots=True)
class Pace:
    """One task's share of a rate; safe to use from several threads at once.

    Attributes:
        rate: The rate of the run.
        writers: How many tasks share it.
        steady_s: The monotonic clock.
        sleep: Waits so many seconds.
    """

    rate: Rate
    writers: int = 1
    steady_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _free_s: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def rows(self, records: int, size: int) -> int:
        """Return how many rows of a batch to write at once: those of about a second, one at least.

        Args:
            records: Rows of the batch.
            size: Its bytes.
        """
        seconds = self.rate.seconds(records, size) * self.writers
        return records if seconds <= 1 else max(1, int(records / seconds))

    def due_s(self) -> float:
        """Return in how many seconds the next records may be written."""
        return max(0.0, self._free_s - self.steady_s())

    def wait(self, records: int, size: int, is_stopped: Callable[[], bool]) -> None:
        """Wait until these records may be written, or until asked to stop."""
        with self._lock:
            begins = max(self._free_s, self.steady_s())
            self._free_s = begins + self.rate.seconds(records, size) * self.writers
        while (left := begins - self.steady_s()) > 0 and not is_stopped():
            self.sleep(min(left, _NAP_S))


def rate_of(job: RestoreJob) -> Rate:
    """Return the rate that a run is limited to."""
    return Rate(job.max_records_per_second, job.max_bytes_per_second)


def manner(job: RestoreJob) -> TaskOptions:
    """Return how the tasks of a restore are run: with a limit as many as work at the same time."""
    dealt = partial(dealt_by_writer, job)
    if not rate_of(job).is_limited:
        return TaskOptions(deal=dealt)
    return TaskOptions(deal=lambda units, slots: shared(dealt(units, slots)), slices_per_core=1)


def shared(shares: Sequence[Sequence[RestoreUnit]]) -> list[list[RestoreUnit]]:
    """Tell the units of tasks that work at the same time how many these are."""
    return [[replace(unit, writers=len(shares)) for unit in share] for share in shares]
