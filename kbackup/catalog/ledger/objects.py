"""What the ledger says of one topic's objects, and of the offsets that are not in any."""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kbackup.catalog.ledger.rows import (
    ACCEPTED,
    GAP,
    KEPT,
    OBJECT,
    PASSED,
    REMOVED,
    SKIPPED,
    Entry,
    names,
    order,
)
from kbackup.errors import Issue
from kbackup.records import Facts, Span, TopicPartition, joined


@dataclass(frozen=True, slots=True)
class PartitionLedger:
    """What is known of one partition.

    Attributes:
        objects: Every object ever stored, by key.
        gaps: Offsets that had expired before they were backed up.
        accepted: What an operator declared to be removed on purpose.
        skipped: Offsets of records that were left out because they do not fit the layout.
        passed: Offsets without anything to store, such as markers of transactions.
        marked: What says of an object that it is to be deleted, by key.  Such an object counts as
            gone on purpose, though it may still be there.
        undone: Objects of which that was taken back.
    """

    objects: dict[str, Entry] = field(default_factory=dict)
    gaps: list[Span] = field(default_factory=list)
    accepted: list[Entry] = field(default_factory=list)
    skipped: list[Span] = field(default_factory=list)
    passed: list[Span] = field(default_factory=list)
    marked: dict[str, Entry] = field(default_factory=dict)
    undone: set[str] = field(default_factory=set)

    def before(self, moment_ms: int) -> "PartitionLedger":
        """Return what it knows of the objects that had been stored before a time.

        Those of one cut count together: until the last of them is stored, none of them is entered.
        One of which that is not known stays.
        """
        known = {key: one.was_stored(moment_ms) for key, one in self.objects.items()}
        late = {self.objects[key].cut for key, was in known.items() if was is False} - {None}
        kept = {
            key: one
            for key, one in self.objects.items()
            if known[key] is None or (known[key] and one.cut not in late)
        }
        return replace(self, objects=kept)

    def within(self, begin: Span) -> "PartitionLedger":
        """Return what it knows of the objects that begin at these offsets."""
        kept = {
            key: one
            for key, one in self.objects.items()
            if begin.start_offset <= one.first < begin.end_offset
        }
        return replace(self, objects=kept)

    def missing(self, present: Container[str]) -> list[Entry]:
        """Return what was stored and is not there, nor accepted as removed, in offset order.

        An object whose offsets were backed up again, under other keys, is not missing.

        Args:
            present: The keys of a listing that was made after the ledger was read.
        """
        is_accepted = self._acceptance()
        lacking = [entry for entry in self.absent(present) if not is_accepted(entry)]
        return sorted(lacking, key=lambda entry: (entry.first, entry.key or ""))

    def absent(self, present: Container[str]) -> list[Entry]:
        """Return what was stored and is not there, unless its offsets were backed up again.

        Args:
            present: The keys of a listing that was made after the ledger was read.
        """
        gone = [entry for key, entry in self.objects.items() if key not in present]
        dense: defaultdict[str | None, list[Span]] = defaultdict(list)  # each offset has a record
        for key, one in self.objects.items() if gone else ():
            if key in present and one.last is not None and one.records == len(one.span):
                dense[one.view].append(one.span)
        there = {view: joined(spans) for view, spans in dense.items()}
        return [entry for entry in gone if not _is_within(entry, there.get(entry.view, ()))]

    def removed(self, present: Container[str]) -> list[Entry]:
        """Return the objects that are not there and were removed on purpose, in offset order.

        Args:
            present: The keys of a listing that was made after the ledger was read.
        """
        if not self.accepted and not self.marked:
            return []
        is_accepted = self._acceptance()
        gone = (entry for key, entry in self.objects.items() if key not in present)
        return sorted(filter(is_accepted, gone), key=lambda entry: (entry.first, entry.key or ""))

    def _acceptance(self) -> Callable[[Entry], bool]:
        """Return what tells whether an object that is gone was removed on purpose."""
        agreed = defaultdict(list)
        for one in self.accepted:
            agreed[one.key].append(one)

        def is_accepted(entry: Entry) -> bool:
            if entry.key in self.marked:
                return True
            ranges = agreed[None] if entry.key is not None else ()
            return any(_accepts(one, entry) for one in (*agreed[entry.key], *ranges))

        return is_accepted

    def reached(self) -> int | None:
        """Return the offset before which everything was stored once, or had expired.

        Objects that were there and have gone since count too.  None where nothing is known.
        """
        ends = [end for one in self.objects.values() if (end := one.next_offset) is not None]
        ends += [span.end_offset for span in (*self.gaps, *self.passed)]
        return max(ends, default=None)


NOTHING: Final = PartitionLedger()
"""What is known of a partition that is not in the ledger; never added to."""


def _said_last(said: Iterable[Entry], objects: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return what says last of *objects*, by key, that they are to go, or that they stay."""
    # once that is done, or taken back, a later row about the same object says so
    newest = {(one.key, one.covers): one for one in sorted(said, key=order)}
    return {
        key: one
        for (key, _), one in newest.items()
        if key is not None
        and (row := objects.get(key)) is not None
        and names(one, row.run, row.counter)
    }


def _accepts(one: Entry, entry: Entry) -> bool:
    """Whether the row *one* says that what *entry* is about was removed on purpose."""
    # those of earlier versions name an object or a range, and accept what was entered by then
    if one.covers is not None:
        is_about = one.key == entry.key and (one.key is not None or one.span == entry.span)
        return is_about and names(one, entry.run, entry.counter)
    is_older = entry.counter is None and one.time >= entry.time  # else it came after it
    return is_older and (one.key is not None or _is_within(entry, [one.span]))


def _is_within(entry: Entry, spans: Sequence[Span]) -> bool:
    """Whether one of *spans* holds all offsets of an object."""
    return entry.last is not None and any(
        span.start_offset <= entry.first and entry.span.end_offset <= span.end_offset
        for span in spans
    )


@dataclass(frozen=True, slots=True)
class TopicLedger:
    """What is known of one topic.

    Attributes:
        partitions: By number, those of which anything is known.
        damage: Files of the ledger that cannot be read.
        unknown: How many rows are of kinds that this version does not know; they say nothing here.
    """

    partitions: Mapping[int, PartitionLedger] = field(default_factory=dict)
    damage: Sequence[Issue] = ()
    unknown: int = 0

    @classmethod
    def of(cls, entries: Iterable[Entry], damage: Sequence[Issue] = ()) -> "TopicLedger":
        """Return the ledger that *entries*, one about each thing, make up."""
        found: defaultdict[int, PartitionLedger] = defaultdict(PartitionLedger)
        said: defaultdict[int, list[Entry]] = defaultdict(list)
        unknown = 0
        for entry in entries:
            at = found[entry.partition]
            if entry.kind == GAP:
                at.gaps.append(entry.span)
            elif entry.kind in (ACCEPTED, REMOVED, KEPT):
                said[entry.partition].append(entry)
                if entry.kind == ACCEPTED:
                    at.accepted.append(entry)
            elif entry.kind == PASSED:
                at.passed.append(entry.span)
            elif entry.kind == SKIPPED:
                at.skipped.append(entry.span)
            elif entry.kind == OBJECT and entry.key is not None:
                at.objects[entry.key] = entry
            else:
                unknown += 1
        for number, about in said.items():
            at = found[number]
            last = _said_last(about, at.objects)
            at.marked.update((key, one) for key, one in last.items() if one.kind == REMOVED)
            at.undone.update(key for key, one in last.items() if one.kind == KEPT)
        for one in found.values():
            one.gaps.sort()
            one.skipped[:] = joined(one.skipped)
        return cls(dict(found), damage, unknown)

    @property
    def has_objects(self) -> bool:
        """Whether it knows of any object, wherever it is now."""
        return any(one.objects for one in self.partitions.values())

    def partition(self, number: int) -> PartitionLedger:
        """Return what is known of a partition."""
        return self.partitions.get(number, NOTHING)

    def before(self, moment_ms: int) -> "TopicLedger":
        """Return what it knows of the objects that had been stored before a time."""
        then = {number: one.before(moment_ms) for number, one in self.partitions.items()}
        return replace(self, partitions=then)

    def within(self, begin: Mapping[int, Span]) -> "TopicLedger":
        """Return what it knows of the objects that begin at these offsets of each partition."""
        nothing = Span(0, 0)
        kept = {n: one.within(begin.get(n, nothing)) for n, one in self.partitions.items()}
        return replace(self, partitions=kept)

    def facts(self, partition: int, key: str) -> Facts | None:
        """Return what is known of the records in an object; None where nothing is."""
        entry = self.partition(partition).objects.get(key)
        return None if entry is None else entry.facts


def ranged(
    kind: str,
    where: TopicPartition,
    span: Span,
    run: str,
    time_ms: int,
    *,
    records: int | None = None,
) -> Entry:
    """Return the row of offsets that are in no object: `GAP`, `PASSED`, or `SKIPPED` *records*."""
    last = span.end_offset - 1
    return Entry(
        kind, where.partition, span.start_offset, last, records=records, run=run, time=time_ms
    )


def of_object(kind: str, entry: Entry, run: str, time_ms: int) -> Entry:
    """Return a row about the object that *entry* names, and no later one under its key.

    Args:
        kind: `ACCEPTED`, `REMOVED` or `KEPT`.
        entry: The object's row.
        run: The run that says so.
        time_ms: When, in ms since the epoch; of `REMOVED` by the store's clock.
    """
    return Entry(
        kind, entry.partition, entry.first, entry.last, entry.key, run=run, time=time_ms,
        covers=entry.run or "",
    )  # fmt: skip
