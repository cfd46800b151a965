"""How far a run is, put together from its events: pure but for the clock it is given."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

_WINDOW_S: Final = 10.0
"""Seconds over which a rate is measured: long enough to be calm, short enough to be news."""

_GAUGES: Final = ("committed", "end", "records", "objects", "bytes_stored", "open")


@dataclass(slots=True)
class Row:
    """One topic-partition.

    Attributes:
        start: Offset this run began at, None until known.
        committed: The next offset behind what is safe, None until known.
        end: The offset this run ends at, None when it follows.
        records: Safe records of this run; `objects` and `bytes_stored` likewise.
        open: Records read or sent and not yet safe.
        moved: Clock of the last progress, None before the first.
    """

    topic: str
    partition: int
    start: int | None = None
    committed: int | None = None
    end: int | None = None
    records: int = 0
    objects: int = 0
    bytes_stored: int = 0
    open: int = 0
    moved: float | None = None
    _seen: deque[tuple[float, int, int]] = field(default_factory=deque)

    @property
    def is_done(self) -> bool:
        """Whether all that this run is to copy is safe."""
        return self.committed is not None and self.end is not None and self.committed >= self.end

    @property
    def left(self) -> int | None:
        """Offsets still to be made safe, None where that is not known."""
        if self.end is None:
            return None
        position = self.start if self.committed is None else self.committed
        return None if position is None else max(0, self.end - position)

    @property
    def fraction(self) -> float | None:
        """The safe part of this run's offsets, 0 to 1; None where that is not known."""
        if self.is_done:
            return 1.0
        if self.start is None or self.committed is None or self.end is None:
            return None if self.end is None else 0.0
        return max(0.0, (self.committed - self.start) / (self.end - self.start))

    def update(self, event: Mapping[str, Any], now: float) -> None:
        """Take over what a ``plan`` entry or a ``progress`` event says."""
        for name in _GAUGES:
            if event.get(name) is not None:
                setattr(self, name, event[name])
        if self.start is None:
            self.start = event.get("start", self.committed)
        position = (self.records, self.committed or 0)
        if self._seen and self._seen[-1][1:] != position:
            self.moved = now
        self._seen.append((now, *position))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _WINDOW_S:
            self._seen.popleft()

    def rates(self, now: float) -> tuple[float, float]:
        """Return records and offsets per second, 0 where nothing moved in the window."""
        if len(self._seen) < 2 or self.is_done:
            return 0.0, 0.0
        then, records, committed = self._seen[0]
        if self.moved is None or now - self.moved > 3 * _WINDOW_S:
            return 0.0, 0.0
        span = max(now - then, 1e-3)
        return (self.records - records) / span, ((self.committed or 0) - committed) / span


@dataclass(frozen=True, slots=True)
class Totals:
    """All partitions together; `left_s` is None where no end is in sight."""

    partitions: int
    done: int
    records: int
    objects: int
    bytes_stored: int
    records_per_s: float
    elapsed_s: float
    left_s: float | None


class Progress:
    """The rows of a run; told from one thread, looked at from another."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._lock = Lock()
        self._rows: dict[tuple[str, int], Row] = {}

    def tell(self, event: Mapping[str, Any]) -> None:
        """Take over a ``plan`` or ``progress`` event; others say nothing here."""
        entries: list[Mapping[str, Any]] = []
        if event["type"] == "plan":
            entries = event["partitions"]
        elif event["type"] == "progress":
            entries = [event]
        with self._lock:
            for entry in entries:
                place = entry["topic"], entry["partition"]
                row = self._rows.setdefault(place, Row(*place))
                row.update(entry, self._clock())

    def rows(self) -> list[Row]:
        """Return the rows by topic and partition; they go on changing."""
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
        offsets_per_s = sum(offsets for _, offsets in rates)
        left = sum(left for left in lefts if left is not None)
        has_end = bool(rows) and None not in lefts and offsets_per_s > 0
        return Totals(
            partitions=len(rows),
            done=sum(row.is_done for row in rows),
            records=sum(row.records for row in rows),
            objects=sum(row.objects for row in rows),
            bytes_stored=sum(row.bytes_stored for row in rows),
            records_per_s=sum(records for records, _ in rates),
            elapsed_s=now - self._began,
            left_s=left / offsets_per_s if has_end else None,
        )
