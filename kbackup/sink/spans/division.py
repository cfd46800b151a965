"""Which partitions several tasks share, and where their spans meet.

Spans meet where every run ends a file, so the same files are made however many tasks there are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kbackup.records import Span
from kbackup.sink.job import SinkUnit

EVERY: Final = 1_000_000
"""Every run ends files of whole records at multiples of this many offsets: as ``flush.size`` does
by itself where no offset is missing."""

SPANS_MOST: Final = 256
"""Spans of one partition; where there would be more they are longer, in whole multiples."""


@dataclass(frozen=True, slots=True)
class Division:
    """What the tasks of a run have to do.

    Attributes:
        whole: The partitions that one task each works on, the largest share first.
        divided: The spans of each other partition, in order.
    """

    whole: tuple[SinkUnit, ...]
    divided: tuple[tuple[SinkUnit, ...], ...] = ()


def divide(units: Sequence[SinkUnit], cores: int, every: int | None) -> Division:
    """Divide what is longer than one core's share of the run.

    Args:
        units: The largest first.
        cores: Tasks that may run at a time.
        every: Where spans may meet; None: nowhere.
    """
    if every is None:
        return Division(tuple(units))
    share = max(every, sum(len(unit.span) for unit in units) / max(1, cores))
    is_long = [len(unit.span) > share and not unit.held for unit in units]
    return Division(
        tuple(unit for unit, long in zip(units, is_long, strict=True) if not long),
        tuple(tuple(spans(unit, every)) for unit, long in zip(units, is_long, strict=True) if long),
    )


def spans(unit: SinkUnit, every: int) -> Iterator[SinkUnit]:
    """Yield the spans of *unit*; what was committed beside its start belongs to the first."""
    length = every * -(-len(unit.span) // (every * SPANS_MOST))
    start, end = unit.span.start_offset, unit.span.end_offset
    while start < end:
        stop = min(end, (start // length + 1) * length)
        is_first = start == unit.span.start_offset
        bookmark = unit.bookmark if is_first else None
        yield replace(unit, span=Span(start, stop), bookmark=bookmark)
        start = stop
