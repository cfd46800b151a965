"""Cuts of values that the bucket holds, and how a group that was set back goes over them again.

Rows of values do not store their offsets, so a restore cannot tell that a row is in two objects.
While a group is behind what the bucket holds, files therefore close where the bucket's own cuts
end, whatever the rules of rotation say now: the same records make the same objects.
"""

from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from kbackup.backup.ledger.objects import PartitionLedger
from kbackup.backup.ledger.rows import TOMBSTONES, Entry, is_main, named
from kbackup.errors import RefusedError
from kbackup.naming import View
from kbackup.records import Span, TopicPartition
from kbackup.stores import Store

_DO: Final = (
    "set the group's offset to the end of a cut, such as {end}, to continue there; or move the "
    "objects away, to store their records again"
)


@dataclass(frozen=True, slots=True)
class HeldCut:
    """A cut of which the bucket holds objects of values, or of whole records.

    Attributes:
        span: Its offsets.
        objects: How many of its objects are there; 0: it is written again where it was, and nothing
            can be doubled.
        is_whole: None of them is missing.
        is_same: They are values in the format that is written now.
        is_values: They are values.
    """

    span: Span
    objects: int = 1
    is_whole: bool = True
    is_same: bool = True
    is_values: bool = True

    @property
    def start(self) -> int:
        """The position before it."""
        return self.span.start_offset

    @property
    def end(self) -> int:
        """The position after it."""
        return self.span.end_offset


def held(
    ledger: PartitionLedger, present: Container[str], extension: str | None
) -> tuple[HeldCut, ...]:
    """Return the cuts of which an object is there, in order.

    Objects of another tool do not say which cut they are of.  Where all of them are in one
    directory, each is a cut of its own, which ends where the next one begins.

    Args:
        ledger: The partition's.
        present: The keys of a listing that was made after the ledger was read.
        extension: Of the objects of values that are written now; None where none are.
    """
    found: dict[tuple[Span, bool, bool], HeldCut] = {}
    for one in filter(is_main, ledger.objects.values()):
        if one.cut_start is None or one.next_offset is None:
            continue
        span, is_there = Span(one.cut_start, one.next_offset), one.key in present
        kind = _is_same(one, extension), one.view != named(View.RECORD)
        cut = found.get((span, *kind), HeldCut(span, 0, True, *kind))
        found[span, *kind] = replace(
            cut, objects=cut.objects + is_there, is_whole=cut.is_whole and is_there
        )
    foreign = {one.first: one for one in _foreign(ledger)}
    if foreign and not _are_spread([*foreign.values()]):
        starts = sorted(foreign.keys() | {span.start_offset for span, *_ in found})
        for cut in one_after_another(starts):
            other = foreign.get(cut.start)
            if other is not None and other.key in present:
                is_same = _is_same(other, extension)
                found[cut.span, is_same, True] = replace(cut, is_same=is_same)
    there = (cut for cut in found.values() if cut.objects)
    return tuple(sorted(there, key=lambda cut: (cut.start, -cut.end)))


def untold_to(ledger: PartitionLedger, present: Container[str]) -> int | None:
    """Return the offset up to which there are values of which nobody knows where each ends.

    They are another tool's, in several directories; the first cut after them says where all of
    them have ended.  None where there are none.

    Args:
        ledger: The partition's.
        present: The keys of a listing that was made after the ledger was read.
    """
    foreign = _foreign(ledger)
    there = [one.first for one in foreign if one.key in present]
    if not there or not _are_spread(foreign):
        return None
    begun = (one.cut_start for one in ledger.objects.values() if one.cut_start is not None)
    return min((start for start in begun if start > max(there)), default=max(there) + 1)


def _foreign(ledger: PartitionLedger) -> list[Entry]:
    """Return the objects of values that do not say which cut they are of."""
    kinds = TOMBSTONES, named(View.VALUE)
    return [one for one in ledger.objects.values() if one.cut_start is None and one.view in kinds]


def _is_same(entry: Entry, extension: str | None) -> bool:
    """Whether an object is written now as it was; tombstones close together with values."""
    if extension is None or entry.view == named(View.RECORD):
        return False
    return entry.view == TOMBSTONES or (entry.key or "").endswith(extension)


def _are_spread(foreign: Sequence[Entry]) -> bool:
    return len({_directory(one) for one in foreign}) > 1


def one_after_another(starts: Sequence[int]) -> list[HeldCut]:
    """Return cuts of one object each, that begin at *starts* but for the last of them."""
    return [HeldCut(Span(start, end)) for start, end in pairwise(starts) if start < end]


def _directory(entry: Entry) -> str:
    return (entry.key or "").rpartition("/")[0]


def around(cuts: Sequence[HeldCut], offset: int) -> HeldCut | None:
    """Return what to store again as one so that *offset* is not in the middle of a cut.

    None where it is not.  Where cuts overlap, it is all that they cover up to the end of the one
    that *offset* is in.

    Args:
        cuts: In order.
        offset: Where a backup is to continue.
    """
    found: HeldCut | None = None
    start = offset
    for cut in reversed(cuts):
        if cut.start < start < cut.end:
            start = cut.start
            found = replace(found or cut, span=Span(start, (found or cut).end))
    return found


def onward(cuts: Iterable[HeldCut], start: int) -> tuple[HeldCut, ...]:
    """Return the cuts that a backup comes upon that continues at *start*, one after the other."""
    found: list[HeldCut] = []
    for cut in cuts:
        if cut.start >= start:
            found.append(cut)
            start = cut.end
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Again:
    """The part of a partition that is stored a second time.

    Attributes:
        where: The partition.
        cuts: What the bucket holds of it, one after the other.
    """

    where: TopicPartition
    cuts: tuple[HeldCut, ...] = ()

    @property
    def spans(self) -> tuple[Span, ...]:
        """Their offsets."""
        return tuple(cut.span for cut in self.cuts)

    def to(self, position: int) -> int | None:
        """Return the offset at which it ends; None where *position* is not before it."""
        return self.cuts[-1].end if self.cuts and position < self.cuts[-1].end else None

    def check(self, store: Store, records: Span, end: int, keys: Iterable[str]) -> None:
        """Check that the objects of a new cut take the places of those that are there.

        Args:
            store: Where they are.
            records: From the new cut's first record to the one after its last.
            end: Where the cut ends: offsets without anything to store may follow its records.
            keys: Of its objects of values.

        Raises:
            RefusedError: If they do not, and rows would be stored twice.
            StoreError: If the store does not answer.
        """
        first = bisect_right(self.cuts, records.start_offset, key=lambda cut: cut.end)
        if first == len(self.cuts) or records.end_offset <= (cut := self.cuts[first]).start:
            return
        if not cut.objects:
            return
        if not records.end_offset <= cut.end <= end:
            raise self._refused(cut, f"would end at {end} now")
        if sum(store.head(key) is not None for key in keys) < cut.objects:
            raise self._refused(cut, "would have other names now")

    def _refused(self, cut: HeldCut, how: str) -> RefusedError:
        return RefusedError(
            f"{self.where}: the group was set back, and the stored value objects of offsets "
            f"{cut.start} to {cut.end - 1} {how}",
            "the configuration has changed, or compaction has removed records since; value objects "
            "do not store offsets, so a restore would deliver these records twice",
            _DO.format(end=cut.end),
            topic=self.where.topic,
            partition=self.where.partition,
        )


def misplaced(where: TopicPartition, offset: int, cut: HeldCut) -> RefusedError:
    """Return the error of a backup of values that would go over other objects again.

    Args:
        where: The partition.
        offset: Where it would continue.
        cut: What is there.
    """
    return RefusedError(
        f"{where}: the backup would continue at {offset}, over objects of offsets {cut.start} to "
        f"{cut.end - 1} that it would not write again as they are",
        "they have another format, and value objects do not store offsets, so a restore could not "
        "tell that these records are there twice",
        _DO.format(end=cut.end),
        topic=where.topic,
        partition=where.partition,
    )


def untold(where: TopicPartition, offset: int, end: int) -> RefusedError:
    """Return the error of a backup that would go over another tool's values again.

    Args:
        where: The partition.
        offset: Where it would continue.
        end: Up to where there may be such objects.
    """
    return RefusedError(
        f"{where}: the group was set back to {offset}, before objects of values of another tool "
        "that are in the bucket",
        "they are in several directories and do not say where they end, so nothing can keep their "
        "rows from being stored twice",
        f"set the group's offset to the end of what that tool stored, {end} or later; to store "
        "these records anew, move the objects away first",
        topic=where.topic,
        partition=where.partition,
    )


def unlike(where: TopicPartition, offset: int) -> RefusedError:
    """Return the error of a backup that would store another tool's values again in other cuts.

    Args:
        where: The partition.
        offset: Where it would continue.
    """
    return RefusedError(
        f"{where}: another tool stored values that come after offset {offset}, where the backup "
        "would continue",
        "they are in several directories, and nothing shows that the same objects would be "
        "written again, so rows could be stored twice",
        "if the offset was reset, set the group's offset to where that tool had committed; if the "
        f"tool died there, move its objects that begin at {offset} or later away: their records "
        "are stored again",
        topic=where.topic,
        partition=where.partition,
    )


def unreachable(where: TopicPartition, cut: HeldCut, log_start: int) -> RefusedError:
    """Return the error of a cut that lacks objects, and whose beginning the log has lost."""
    return RefusedError(
        f"{where}: the log begins at {log_start}, in the middle of a cut of values, {cut.start} to "
        f"{cut.end - 1}, and some objects of that cut are missing",
        "storing the rest of the cut would duplicate records of the objects that exist: value "
        "objects do not store offsets",
        _DO.format(end=cut.end),
        topic=where.topic,
        partition=where.partition,
    )
