"""What a query can see of a topic, by the conditions it states."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kbackup.backup.catalog import FileSet
from kbackup.records import Facts

_HIGHEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from *low* to *high*, both included."""

    low: int = -_HIGHEST
    high: int = _HIGHEST

    def narrowed(self, operator: str, number: int) -> "Range":
        """Return what is left of it where ``x OPERATOR number``; as it is for others."""
        match operator:
            case "=":
                return Range(max(self.low, number), min(self.high, number))
            case ">" | ">=":
                return Range(max(self.low, number + (operator == ">")), self.high)
            case "<" | "<=":
                return Range(self.low, min(self.high, number - (operator == "<")))
        return self

    def meets(self, low: int, high: int) -> bool:
        """Whether any number from *low* to *high* is in it."""
        return max(low, self.low) <= min(high, self.high)


@dataclass(frozen=True, slots=True)
class Window:
    """The records that a query's conditions leave; a superset where they are not simple.

    Attributes:
        partitions: Of these partitions; None for all.
        offset: Offsets.
        timestamp_ms: Record timestamps.
    """

    partitions: frozenset[int] | None = None
    offset: Range = Range()
    timestamp_ms: Range = Range()

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
        if not self.offset.meets(known.first_offset, known.last_offset):
            return False
        if known.min_timestamp is None or known.max_timestamp is None:
            return True
        return self.timestamp_ms.meets(known.min_timestamp, known.max_timestamp)


EVERYTHING: Final = Window()

OPERATORS: Final[Mapping[str, str]] = {
    "EqualTo": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
"""What Spark calls the comparisons that narrow a window."""


def of_conditions(conditions: list[tuple[str, str, Any]]) -> Window:
    """Return what *conditions* leave: column, operator, number; for ``in`` a set of numbers."""
    window = EVERYTHING
    for column, operator, value in conditions:
        if operator == "in" and column == "partition":
            window = window.among(frozenset(value))
        elif operator != "in":
            window = window.narrowed(column, operator, value)
    return window
