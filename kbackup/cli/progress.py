"""A run's progress, computed from its events: pure except for the clock it is given."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

_WINDOW_S: Final = 10.0
"""Seconds over which a rate is measured: long enough to be calm, short enough to be news."""

_GAUGES: Final = ("committed", "end", "records", "objects", "planned_objects", "open")


@dataclass(slots=True)
class Row:
    """One topic-partition.

    Attributes:
        start: Offset this run began at, None until known.
        committed: The next offset after what is safe, None until known.
        end: The offset this run ends at, None if it follows, or if the names do not show it.
        planned_objects: Objects to be read, None where offsets tell how much there is to do.
        records: Safe records of this run; `objects` and `stored_bytes` likewise.
        open: Records read or sent but not yet safe; None if unknown.
        moved: Clock of the last progress, None before the first.
        target: The topic that is written to; empty where objects are.
    """

    topic: str
    partition: int
    start: int | None = None
    committed: int | None = None
    end: int | None = None
    planned_objects: int | None = None
    records: int = 0
    objects: int = 0
    stored_bytes: int = 0
    open: int | None = None
    moved: float | None = None
    target: str = ""
    _seen: deque[tuple[float, int, int]] = field(default_factory=deque)

    @property
    def work(self) -> tuple[int, int] | None:
        """How much is safe and how much there is, in offsets or objects; None if not known."""
        if self.end is not None and self.start is not None:
            committed = self.start if self.committed is None else self.committed
            return max(0, committed - self.start), max(0, self.end - self.start)
        if self.planned_objects is not None:
            return self.objects, self.planned_objects
        return None

    @property
    def is_done(self) -> bool:
        """Whether all that this run is to copy is safe."""
        return self.work is not None and self.work[0] >= self.work[1]

    @property
    def fraction(self) -> float | None:
        """The safe part of this run's work, 0 to 1; None where that is not known."""
        if self.work is None:
            return None
        return 1.0 if self.is_done else self.work[0] / self.work[1]

    def update(self, event: Mapping[str, Any], now: float) -> None:
        """Take over what a ``plan`` entry or a ``progress`` event says."""
        for name in _GAUGES:
            if event.get(name) is not None:
                setattr(self, name, event[name])
        self.stored_bytes = event.get("bytes_stored") or event.get("bytes_read") or 0
        if self.start is None:
            self.start = event.get("start", self.committed)
        reached = self.records + (self.open or 0), self._reached
        if self._seen and self._seen[-1][1:] != reached:
            self.moved = now
        self._seen.append((now, *reached))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _WINDOW_S:
            self._seen.popleft()

    @property
    def _reached(self) -> int:
        """How much of `work` is safe, or on its way if that can be given in the same unit."""
        if self.work is None:
            return 0
        is_by_offset = self.end is not None
        return min(self.work[0] + ((self.open or 0) if is_by_offset else 0), self.work[1])

    @property
    def left(self) -> int | None:
        """How much of `work` has not been begun; None if not known."""
        return None if self.work is None else self.work[1] - self._reached

    def rates(self, now: float) -> tuple[float, float]:
        """Return records and units of `work` per second, 0 where nothing has moved lately.

        What was read counts, safe or not: a file may take minutes to be complete, and in these
        the run does not stand still.
        """
        if self.is_done or self.moved is None or now - self.moved > 3 * _WINDOW_S:
            return 0.0, 0.0
        then, records, done = self._seen[0]
        _, last_records, last_done = self._seen[-1]
        span = max(now - then, 1e-3)
        return (last_records - records) / span, (last_done - done) / span


@dataclass(frozen=True, slots=True)
class Totals:
    """All partitions together; `left_s` is None where no end is in sight."""

    partitions: int
    done: int
    records: int
    objects: int
    stored_bytes: int
    records_per_s: float
    elapsed_s: float
    left_s: float | None


class Progress:
    """The rows of a run; written by one thread, read by another."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._lock = Lock()
        self._rows: dict[tuple[str, int, str], Row] = {}

    def tell(self, event: Mapping[str, Any]) -> None:
        """Take over a ``plan`` or ``progress`` event; others say nothing here."""
        entries: list[Mapping[str, Any]] = []
        if event["type"] == "plan":
            entries = event["partitions"]
        elif event["type"] == "progress":
            entries = [event]
        with self._lock:
            for entry in entries:
                place = entry["topic"], entry["partition"], entry.get("target") or ""
                row = self._rows.setdefault(place, Row(*place[:2], target=place[2]))
                row.update(entry, self._clock())

    def rows(self) -> list[Row]:
        """Return the rows by topic, partition and target; they continue changing."""
        with self._lock:
            return [self._rows[place] for place in sorted(self._rows)]

    def now(self) -> float:
        """Return the clock, in seconds."""
        return self._clock()

    def totals(self) -> Totals:
        """Return the sums over all rows."""
        with self._lock:
            rows, now = list(self._rows.values()), self._clock()
            rates = [row.rates(now) for row in rows]
        lefts = [row.left for row in rows]
        left = sum(count for count in lefts if count is not None)
        per_s = sum(done for _, done in rates)
        has_end = None not in lefts and per_s > 0
        return Totals(
            partitions=len(rows),
            done=sum(row.is_done for row in rows),
            records=sum(row.records for row in rows),
            objects=sum(row.objects for row in rows),
            stored_bytes=sum(row.stored_bytes for row in rows),
            records_per_s=sum(records for records, _ in rates),
            elapsed_s=now - self._began,
            left_s=left / per_s if has_end else None,
        )
