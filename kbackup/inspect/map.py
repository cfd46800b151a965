"""Which offsets and days of a partition are in the bucket, and how to draw that in few cells."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from itertools import pairwise
from typing import Final

from kbackup.catalog.covered import disputed
from kbackup.catalog.ledger.objects import PartitionLedger
from kbackup.catalog.ledger.rows import Entry
from kbackup.catalog.listing import BackupFile, FileSet
from kbackup.events import Event
from kbackup.records import Span, TopicPartition


class MapState(StrEnum):
    """What became of a range; where several are true of one offset, the first of them counts."""

    MISSING = "missing"
    """It was stored and is gone, and nobody declared that this was on purpose."""

    DISPUTED = "disputed"
    """Several objects hold it, and nothing shows how to restore each record once: it is refused."""

    STORED = "stored"
    """It is in an object whose extent is known."""

    NAMED = "named"
    """It is between the first offsets of two objects: the extent of the first is not known."""

    EXPIRED = "expired"
    """The cluster had deleted it before it was backed up."""

    REMOVED = "removed"
    """It was stored, and removed on purpose."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Numbers, from *first* to *last* inclusive, of which one thing is true.

    They are offsets, or days since 1970-01-01.
    """

    state: MapState
    first: int
    last: int


def merged(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """Return *stretches* in order and without overlap, neighbours of one state made one."""
    bounds: dict[int, dict[MapState, int]] = {}
    for one in stretches:
        for at, step in ((one.first, 1), (one.last + 1, -1)):
            steps = bounds.setdefault(at, {})
            steps[one.state] = steps.get(one.state, 0) + step
    found: list[Stretch] = []
    depth = dict.fromkeys(MapState, 0)
    for at, end in pairwise(sorted(bounds)):
        for state, step in bounds[at].items():
            depth[state] += step
        now = next((state for state, count in depth.items() if count), None)
        if now is None:
            continue
        if found and found[-1].state == now and found[-1].last == at - 1:
            found[-1] = Stretch(now, found[-1].first, end - 1)
        else:
            found.append(Stretch(now, at, end - 1))
    return tuple(found)


PART: Final = "part"
"""A cell of which some is there, and of the rest nothing is known."""

NOTHING: Final = "nothing"
"""A cell of which nothing is known."""

_NOT_THERE: Final = (MapState.EXPIRED, MapState.REMOVED)


def cells(stretches: Sequence[Stretch], low: int, high: int, width: int) -> list[str]:
    """Return *low* to *high*, both included, in at most *width* cells of the same size.

    A cell is a `MapState`, `PART` or `NOTHING`.  What is missing shows in its cell, however small.
    """
    total = high - low + 1
    count = min(width, total)
    found, begin = [], 0
    for at in range(count):
        first, end = low + total * at // count, low + total * (at + 1) // count
        while begin < len(stretches) and stretches[begin].last < first:
            begin += 1
        states, covered, number = set(), 0, begin
        while number < len(stretches) and stretches[number].first < end:
            one = stretches[number]
            states.add(one.state)
            covered += min(one.last + 1, end) - max(one.first, first)
            number += 1
        found.append(_cell(states, is_full=covered == end - first))
    return found


def _cell(states: set[MapState], *, is_full: bool) -> str:
    if not states:
        return NOTHING
    for alarming in (MapState.MISSING, MapState.DISPUTED):
        if alarming in states:
            return alarming
    if states <= {*_NOT_THERE}:
        return next(state for state in _NOT_THERE if state in states)
    if not is_full or states & {*_NOT_THERE}:
        return PART
    return MapState.NAMED if MapState.NAMED in states else MapState.STORED


def day(number: int) -> str:
    """Return a day since 1970-01-01 as text, the nearest in years 1 to 9999."""
    ordinal = date(1970, 1, 1).toordinal() + number
    return date.fromordinal(min(max(1, ordinal), date.max.toordinal())).isoformat()


_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class PartitionMap:
    """One partition.

    Attributes:
        where: The partition.
        offsets: By offset, in order, without overlap; of what is between them nothing is known.
        days: The same by day of record timestamps, in UTC, as far as the ledger knows these.
    """

    where: TopicPartition
    offsets: tuple[Stretch, ...]
    days: tuple[Stretch, ...]

    def to_dict(self) -> Event:
        """Return it as a line of ``--json``; days are texts."""
        return {
            "type": "coverage",
            "topic": self.where.topic,
            "partition": self.where.partition,
            "offsets": [
                {"state": str(one.state), "first": one.first, "last": one.last}
                for one in self.offsets
            ],
            "days": [
                {"state": str(one.state), "first": day(one.first), "last": day(one.last)}
                for one in self.days
            ],
        }


def coverage(
    where: TopicPartition,
    sets: Sequence[FileSet],
    ledger: PartitionLedger,
    gaps: Iterable[Span],
    present: Container[str],
    as_of_ms: int | None = None,
) -> PartitionMap:
    """Return what is there of one partition.

    Args:
        where: The partition.
        sets: Its objects, by start offset.
        ledger: What the backup says of them.
        gaps: Offsets that expired before they were backed up.
        present: Keys of the listing, also those of objects that are not shown.
        as_of_ms: Nothing that was stored later is missing; None for now.
    """
    offsets = [*_stored(sets, ledger)]
    offsets += [
        Stretch(MapState.DISPUTED, one.span.start_offset, one.span.end_offset - 1)
        for one in disputed(sets, ledger)
    ]
    offsets += [Stretch(MapState.EXPIRED, gap.start_offset, gap.end_offset - 1) for gap in gaps]
    there = (ledger.objects.get(file.key) for file in _mains(sets))
    days = [*_days(MapState.STORED, there)]
    missing = ledger.missing(present)
    missed = {entry.key for entry in missing}
    removed = [
        entry for key, entry in ledger.objects.items() if key not in present and key not in missed
    ]
    for state, entries in ((MapState.MISSING, missing), (MapState.REMOVED, removed)):
        known = [entry for entry in entries if as_of_ms is None or entry.time <= as_of_ms]
        offsets += [Stretch(state, entry.first, entry.span.end_offset - 1) for entry in known]
        days += _days(state, known)
    return PartitionMap(where, merged(offsets), merged(days))


def _mains(sets: Iterable[FileSet]) -> Iterator[BackupFile]:
    return (files.main for files in sets if files.main is not None)


def _stored(sets: Sequence[FileSet], ledger: PartitionLedger) -> Iterator[Stretch]:
    """Yield what objects hold; a cut accounts for all its offsets, those without a record too."""
    starts = sorted({files.start_offset for files in sets})
    following = dict(pairwise(starts))
    for files in sets:
        entry = None if files.main is None else ledger.objects.get(files.main.key)
        start = files.start_offset
        if entry is None or entry.last is None:
            yield Stretch(MapState.NAMED, start, following.get(start, start + 1) - 1)
        elif entry.cut_start is None or entry.next_offset is None:
            yield Stretch(MapState.STORED, start, entry.last)
        else:
            yield Stretch(MapState.STORED, min(start, entry.cut_start), entry.next_offset - 1)


def _days(state: MapState, entries: Iterable[Entry | None]) -> Iterator[Stretch]:
    for entry in entries:
        if entry is not None and entry.min_timestamp is not None:
            last = entry.min_timestamp if entry.max_timestamp is None else entry.max_timestamp
            yield Stretch(state, entry.min_timestamp // _DAY_MS, last // _DAY_MS)
