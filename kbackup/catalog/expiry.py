"""Choose the objects of a backup to expire: pure functions of listing and ledger.

What goes is a prefix of each partition, in *blocks*: no other object holds an offset of one, so
that nothing is left with a hole.  The last block that is there always stays.  A block of which it
is not known how old it is, or where it ends, stays too, and all behind it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import takewhile
from typing import Final

from kbackup.catalog.ledger.rows import Entry, PartitionLedger, is_main
from kbackup.catalog.listing import FileSet, object_bytes
from kbackup.records import Span, TopicPartition, joined, without


@dataclass(frozen=True, slots=True)
class Block:
    """Objects of a partition that go together.

    Attributes:
        span: The offsets of which they hold whatever there was.
        rows: What the ledger says of them, and of others that should be there.
        newest: The highest timestamp of their records, in ms since the epoch; None where that,
            when they were stored, or where they end, is not known.
        stored: When the last of them was stored first; None where it is not known.
    """

    span: Span
    sets: tuple[FileSet, ...]
    rows: tuple[Entry, ...]
    newest: int | None
    stored: int | None

    @property
    def bytes(self) -> int:
        """Of what is there."""
        return object_bytes(self.sets)

    def is_older(self, than_ms: int | None) -> bool:
        """Whether both records and objects are known to be older than a time; than None none is."""
        if than_ms is None or self.newest is None or self.stored is None:
            return False
        return max(self.newest, self.stored) < than_ms


@dataclass(frozen=True, slots=True)
class _Piece:
    """A set that is there or a row, with the offsets that it accounts for."""

    span: Span
    files: FileSet | None
    row: Entry | None


def blocks(sets: Sequence[FileSet], ledger: PartitionLedger) -> list[Block]:
    """Return the blocks of a partition, in order, of *sets* without what is to be deleted.

    What was removed on purpose is in none; what else is missing is, by its row.
    """
    present = {file.key for files in sets for file in files.files}
    gone = {entry.key for entry in ledger.removed(present)}
    of_set = {file.key: files for files in sets for file in files.files}
    pieces = [
        _Piece(_span(row), of_set.get(key), row)
        for key, row in ledger.objects.items()
        if key not in gone
    ]
    pieces += [
        _Piece(Span(files.start_offset, files.start_offset + 1), files, None)
        for key, files in of_set.items()
        if key not in ledger.objects
    ]
    pieces.sort(key=lambda one: (one.span.start_offset, one.span.end_offset))
    found: list[list[_Piece]] = []
    end = -1
    for piece in pieces:
        if piece.span.start_offset < end:
            found[-1].append(piece)
        else:
            found.append([piece])
        end = max(end, piece.span.end_offset)
    return [_block(one) for one in found]


def _span(row: Entry) -> Span:
    """Return the offsets of which nothing is elsewhere."""
    end = row.span.end_offset if row.next_offset is None else max(row.next_offset, row.first + 1)
    start = row.first if row.cut_start is None else min(row.first, row.cut_start)
    return Span(start, max(end, row.span.end_offset))


def _block(pieces: Sequence[_Piece]) -> Block:
    rows = tuple(one.row for one in pieces if one.row is not None)
    sets = {one.files.id: one.files for one in pieces if one.files is not None}
    mains = [row for row in rows if is_main(row)]
    are_known = all(
        one.row is not None
        and one.row.last is not None
        and one.row.first_stored is not None
        and (one.row.max_timestamp is not None or not is_main(one.row))
        for one in pieces
    )
    span = Span(
        min(one.span.start_offset for one in pieces), max(one.span.end_offset for one in pieces)
    )
    newest = max((row.max_timestamp or 0 for row in mains), default=None) if are_known else None
    stored = max((row.first_stored or 0 for row in rows), default=None) if are_known else None
    return Block(span, tuple(sets.values()), rows, newest, stored)


def to_expire(
    found: Mapping[TopicPartition, Sequence[Block]],
    before_ms: int | None,
    max_bytes: int | None,
) -> dict[TopicPartition, Sequence[Block]]:
    """Return the blocks that go: a prefix of each partition.

    All older than *before_ms* go, in ms since the epoch; then those with the oldest records, of
    whichever partition, until no more than *max_bytes* are left of all together.  None: none by
    age, or by size.
    """
    left = {where: _without_last(every) for where, every in found.items()}
    counts = {
        where: sum(1 for _ in takewhile(lambda one: one.is_older(before_ms), every))
        for where, every in left.items()
    }
    if max_bytes is not None:
        size = sum(one.bytes for where, every in found.items() for one in every[counts[where] :])
        heap = [(_age(every, counts[where]), where) for where, every in left.items()]
        heap = [(age, where) for age, where in heap if age is not None]
        heapify(heap)
        while size > max_bytes and heap:
            _, where = heappop(heap)
            size -= left[where][counts[where]].bytes
            counts[where] += 1
            age = _age(left[where], counts[where])
            if age is not None:
                heappush(heap, (age, where))
    return {where: left[where][:count] for where, count in counts.items() if count}


def _without_last(every: Sequence[Block]) -> Sequence[Block]:
    """Return the blocks before the last one of which anything is there."""
    last = max((place for place, one in enumerate(every) if one.sets), default=0)
    return every[:last]


def _age(every: Sequence[Block], place: int) -> int | None:
    """Return how old the records of a block are; None where there is none, or nobody knows."""
    one = every[place] if place < len(every) else None
    return None if one is None else one.newest


def of_unknown_age(every: Sequence[Block], count: int) -> list[FileSet]:
    """Return the sets behind the first *count* blocks that stay as nobody knows their age."""
    behind = _without_last(every)[count:]
    unknown = takewhile(lambda one: one.newest is None, behind)
    return [files for one in unknown for files in one.sets]


@dataclass(frozen=True, slots=True)
class Marked:
    """What of a partition is marked as removed, and what there still is of it.

    *rows* are of the objects, each with the mark; *sets* are there, in offset order; those
    *changed* are not what was marked: they stay.
    """

    rows: tuple[tuple[Entry, Entry], ...] = ()
    sets: tuple[FileSet, ...] = ()
    changed: tuple[FileSet, ...] = ()

    @property
    def all_sets(self) -> tuple[FileSet, ...]:
        """All that is there of what was marked."""
        return *self.sets, *self.changed

    def older(self, than_ms: int) -> "Marked":
        """Return what of it was marked by a time, in ms since the epoch by the store's clock."""
        rows = tuple(pair for pair in self.rows if pair[1].time <= than_ms)
        return self._only(rows)

    def younger(self, than_ms: int) -> "Marked":
        """Return what of it was marked after that."""
        rows = tuple(pair for pair in self.rows if pair[1].time > than_ms)
        return self._only(rows)

    def named(self, policy: Sequence[Block]) -> "Marked":
        """Return what of it is in blocks that a policy names too, or is there no more."""
        names = {files.id for one in policy for files in one.sets}
        stays = {file.key for files in self.sets if files.id not in names for file in files.files}
        return self._only(tuple(pair for pair in self.rows if pair[0].key not in stays))

    def _only(self, rows: tuple[tuple[Entry, Entry], ...]) -> "Marked":
        keys = {row.key for row, _ in rows}
        return replace(
            self, rows=rows, sets=tuple(one for one in self.sets if one.id in keys),
            changed=tuple(one for one in self.changed if one.id in keys),
        )  # fmt: skip

    def whole(self) -> list[Entry]:
        """Return the rows of cuts of which every object is still there."""
        there = {file.key for files in self.all_sets for file in files.files}
        broken = joined(_span(row) for row, _ in self.rows if row.key not in there)
        return [row for row, _ in self.rows if without(_span(row), broken) == (_span(row),)]


NOTHING_MARKED: Final = Marked()


def marked(sets: Sequence[FileSet], ledger: PartitionLedger) -> Marked:
    """Return what of a partition is marked as removed."""
    pairs = [(ledger.objects[key], mark) for key, mark in ledger.marked.items()]
    rows = tuple(sorted(pairs, key=lambda pair: (pair[0].first, pair[0].key or "")))
    same, changed = list[FileSet](), list[FileSet]()
    for files in sets:
        if files.id in ledger.marked:
            (same if _is_same(files, ledger) else changed).append(files)
    return Marked(rows, tuple(same), tuple(changed))


def _is_same(files: FileSet, ledger: PartitionLedger) -> bool:
    """Whether every object of a set is the one that its row is about, and is marked."""
    return all(
        file.key in ledger.marked and ledger.objects[file.key].bytes in (None, file.size)
        for file in files.files
    )


def keys_of(files: FileSet) -> Iterator[str]:
    """Yield the keys of a set in the order in which they may go.

    The records first: keys and headers alone are no records, but records without their keys would
    look like records that never had any.
    """
    yield from (file.key for file in files.files)
    if files.index is not None:
        yield files.index
