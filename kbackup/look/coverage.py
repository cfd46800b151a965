"""Which offsets and which days of a partition are in the bucket, and which are not."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kbackup.backup.file_sets import BackupFile, FileSet
from kbackup.backup.ledger.objects import PartitionLedger
from kbackup.backup.ledger.rows import Entry
from kbackup.events import Event
from kbackup.look.stretches import State, Stretch, day, merged
from kbackup.records import Span, TopicPartition

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Coverage:
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
) -> Coverage:
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
    offsets += [Stretch(State.EXPIRED, gap.start_offset, gap.end_offset - 1) for gap in gaps]
    there = (ledger.objects.get(file.key) for file in _mains(sets))
    days = [*_days(State.STORED, there)]
    missing = ledger.missing(present)
    missed = {entry.key for entry in missing}
    removed = [
        entry for key, entry in ledger.objects.items() if key not in present and key not in missed
    ]
    for state, entries in ((State.MISSING, missing), (State.REMOVED, removed)):
        known = [entry for entry in entries if as_of_ms is None or entry.time <= as_of_ms]
        offsets += [Stretch(state, entry.first, entry.span.end_offset - 1) for entry in known]
        days += _days(state, known)
    return Coverage(where, merged(offsets), merged(days))


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
            yield Stretch(State.NAMED, start, following.get(start, start + 1) - 1)
        elif entry.cut_start is None or entry.next_offset is None:
            yield Stretch(State.STORED, start, entry.last)
        else:
            yield Stretch(State.STORED, min(start, entry.cut_start), entry.next_offset - 1)


def _days(state: State, entries: Iterable[Entry | None]) -> Iterator[Stretch]:
    for entry in entries:
        if entry is not None and entry.min_timestamp is not None:
            last = entry.min_timestamp if entry.max_timestamp is None else entry.max_timestamp
            yield Stretch(state, entry.min_timestamp // _DAY_MS, last // _DAY_MS)
