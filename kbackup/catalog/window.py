"""Which records of a topic are asked for: of some partitions, offsets and times."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import clock
from kbackup.catalog.listing import FileSet
from kbackup.records import NO_TIMESTAMP, Facts

_HIGHEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Interval:
    """Numbers from *low* to *high*, both included."""

    low: int = -_HIGHEST
    high: int = _HIGHEST

    def narrowed(self, operator: str, number: int) -> "Interval":
        """Return what is left of it where ``x OPERATOR number``; as it is for others."""
        match operator:
            case "=":
                return Interval(max(self.low, number), min(self.high, number))
            case ">" | ">=":
                return Interval(max(self.low, number + (operator == ">")), self.high)
            case "<" | "<=":
                return Interval(self.low, min(self.high, number - (operator == "<")))
        return self

    def __str__(self) -> str:
        """Return both ends; an end without a limit is empty."""
        low = "" if self.low == -_HIGHEST else self.low
        return f"{low}..{'' if self.high == _HIGHEST else self.high}"

    def divides(self, low: int, high: int | None) -> bool:
        """Whether it has some of the numbers from *low* to *high*, and lacks others.

        Without *high* they may continue for ever.
        """
        end = _HIGHEST if high is None else high
        return self.meets(low, end) and not (self.low <= low and end <= self.high)

    def meets(self, low: int, high: int) -> bool:
        """Whether any number from *low* to *high* is in it."""
        return max(low, self.low) <= min(high, self.high)


EVERY_OFFSET: Final = Interval()
"""No limit."""


def _bounds(name: str, within: Interval, shown: Callable[[int], str]) -> str:
    """Return from where to where, as the options say it: what it ends with is not in it."""
    low = "" if within.low == -_HIGHEST else f" from {shown(within.low)}"
    high = "" if within.high == _HIGHEST else f" before {shown(within.high + 1)}"
    return f"{name}{low}{high}" if low or high else ""


@dataclass(frozen=True, slots=True)
class Window:
    """Some records of a topic.

    Attributes:
        partitions: Of these partitions; None for all.
        offset: Offsets.
        timestamp_ms: Record timestamps.
    """

    partitions: frozenset[int] | None = None
    offset: Interval = Interval()
    timestamp_ms: Interval = Interval()

    @classmethod
    def between(
        cls, first: int | None, end: int | None, from_ms: int | None, to_ms: int | None
    ) -> "Window":
        """Return the records from an offset and a time on, up to others; None is no limit.

        What they begin with is in it, what they end with is not.
        """
        return cls(None, _span(first, end), _span(from_ms, to_ms))

    @property
    def is_everything(self) -> bool:
        """Whether all records are in it."""
        return self == EVERYTHING

    @property
    def has_times(self) -> bool:
        """Whether it asks for timestamps."""
        return self.timestamp_ms != Interval()

    def __str__(self) -> str:
        """Return what tells it from another one; empty for everything."""
        named = {"offset": self.offset, "timestamp": self.timestamp_ms}
        return " ".join(f"{name} {one}" for name, one in named.items() if one != Interval())

    @property
    def text(self) -> str:
        """What it asks for, in words; empty for everything."""
        parts = [
            _bounds("offset", self.offset, str),
            _bounds("timestamp", self.timestamp_ms, clock.shown_ms),
        ]
        return ", ".join(part for part in parts if part)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of ``records.SCHEMA`` that are in it.

        One without a timestamp is in none that has times.
        """
        for name, wanted in (("offset", self.offset), ("timestamp", self.timestamp_ms)):
            if wanted != Interval() and len(batch):
                batch = batch.filter(
                    pc.and_(
                        pc.greater_equal(batch[name], wanted.low),
                        pc.less_equal(batch[name], wanted.high),
                    )
                )
        if self.has_times and len(batch):
            return batch.filter(pc.not_equal(batch["timestamp"], NO_TIMESTAMP))
        return batch

    def narrowed(self, column: str, operator: str, number: int) -> "Window":
        """Return what is left where ``column OPERATOR number``.

        Args:
            column: ``partition``, ``offset`` or ``timestamp``; others narrow nothing.
            operator: ``=``, ``<``, ``<=``, ``>`` or ``>=``.
            number: Milliseconds for a timestamp.
        """
        if column == "partition" and operator == "=":
            return self.among(frozenset({number}))
        if column == "offset":
            return replace(self, offset=self.offset.narrowed(operator, number))
        if column == "timestamp":
            return replace(self, timestamp_ms=self.timestamp_ms.narrowed(operator, number))
        return self

    def among(self, partitions: frozenset[int]) -> "Window":
        """Return what is left of it in these partitions."""
        mine = self.partitions
        return replace(self, partitions=partitions if mine is None else mine & partitions)

    def has(self, partition: int) -> bool:
        """Whether it has anything of a partition."""
        return self.partitions is None or partition in self.partitions

    def takes(self, files: FileSet, known: Facts | None) -> bool:
        """Whether an object may hold records that it leaves.

        Args:
            files: The object and its siblings.
            known: What is known of its records; without, only its first offset is.
        """
        if known is None:
            return files.start_offset <= self.offset.high
        return self.asks(known.first_offset, known.last_offset, known)

    def asks(self, first: int, last: int, known: Facts | None) -> bool:
        """Whether it may have records with some offsets, of which *known* is all that is known."""
        if not self.offset.meets(first, last):
            return False
        if known is None or known.min_timestamp is None or known.max_timestamp is None:
            return True
        return self.timestamp_ms.meets(known.min_timestamp, known.max_timestamp)


def _span(first: int | None, end: int | None) -> Interval:
    return Interval(-_HIGHEST if first is None else first, _HIGHEST if end is None else end - 1)


EVERYTHING: Final = Window()
