"""Judge a partition's objects by their names, by run records and by what was read.

Pure functions.  The objects beside a missing range of offsets do not show whether it was ever
stored: compaction, transactions and retention leave holes in any topic.  So it is an error only
where a run record says that an object was there.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from kbackup import partitioners
from kbackup.catalog.claims import key_of
from kbackup.catalog.findings import Finding
from kbackup.catalog.ledger.rows import Entry
from kbackup.catalog.listing import FileSet
from kbackup.errors import counted, form
from kbackup.naming import Layout
from kbackup.records import Span, TopicPartition


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one run recorded about one partition.

    Attributes:
        run: The run's id.
        first: Offset of the first record it stored; an object begins there.
        last: Offset of the last record it stored, inclusive; all its objects begin before.
        records: Records it stored.
        objects: Objects it stored, siblings counted.
    """

    run: str
    first: int
    last: int
    records: int
    objects: int

    def among(self, sets: Sequence[FileSet]) -> slice:
        """Return which of *sets*, by start offset, begin where this run's objects did."""
        return slice(
            bisect_left(sets, self.first, key=_start), bisect_right(sets, self.last, key=_start)
        )


def stored_by_runs(
    run_records: Iterable[Mapping[str, Any]],
) -> dict[TopicPartition, list[Recorded]]:
    """Return what sinks stored, by partition, in offset order.

    Args:
        run_records: Summaries of runs; what is of another command, or cannot be understood,
            counts as missing.
    """
    found: dict[TopicPartition, list[Recorded]] = {}
    for record in run_records:
        if str(record.get("command", "sink")).partition(" ")[0] != "sink":
            continue
        rows = record.get("partitions")
        for row in rows if isinstance(rows, list) else ():
            entry = _entry(str(record.get("run")), row)
            if entry is not None:
                where = TopicPartition(row["topic"], row["partition"])
                found.setdefault(where, []).append(entry)
    return {
        where: sorted(entries, key=lambda entry: (entry.first, entry.last))
        for where, entries in found.items()
    }


def _entry(run: str, row: Any) -> Recorded | None:
    if not isinstance(row, dict) or not isinstance(row.get("topic"), str):
        return None
    numbers = [row.get(name) for name in ("partition", "first", "last", "records", "objects")]
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        return None
    _, first, last, records, objects = numbers
    return Recorded(run, first, last, records, objects) if records else None  # type: ignore[arg-type]


def last_offset(sets: Sequence[FileSet], entries: Sequence[Recorded]) -> int | None:
    """Return the offset of the last record, None if names and runs do not show it.

    It is known where the objects of the run that got farthest are all there, and nobody stored
    more after them.
    """
    if not sets or not entries:
        return None
    final = max(entries, key=lambda entry: entry.last)
    highest = max(files.start_offset for files in sets)
    is_all_there = _objects(sets[final.among(sets)]) >= final.objects
    return final.last if is_all_there and final.first <= highest <= final.last else None


def record_count(sets: Sequence[FileSet], entries: Sequence[Recorded]) -> int | None:
    """Return the number of records, None if names and runs do not show it.

    It is known where each object was stored by just one recorded run, and none is missing.
    """
    stored = sum(entry.objects for entry in entries)
    if any(_objects(sets[entry.among(sets)]) != entry.objects for entry in entries):
        return None
    return sum(entry.records for entry in entries) if stored == _objects(sets) else None


def _objects(sets: Iterable[FileSet]) -> int:
    return sum(len(files.files) for files in sets)


def _start(files: FileSet) -> int:
    return files.start_offset


_HOLES_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Extent:
    """A set, and where its records end.

    Attributes:
        files: The set.
        last: Offset of its last record; None: not known.
        is_same: What overlaps the next set is the same there; None: not known.
    """

    files: FileSet
    last: int | None = None
    is_same: bool | None = None


def left_out(where: TopicPartition, skipped: Sequence[Span]) -> Iterator[Finding]:
    """Note the records that were left out because they do not fit the layout."""
    if skipped:
        named = [(span.start_offset, span.end_offset - 1) for span in skipped]
        text = f"records left out as bad (errors.tolerance=all) at {_named(named)}"
        yield Finding("skipped", where, None, (named[0][0], named[-1][1]), text, level="note")


def empty(files: FileSet) -> Iterator[Finding]:
    """Name objects of no bytes: no format has such files."""
    for file in files.files:
        if file.size == 0:
            start = files.start_offset
            yield Finding("corrupt", files.where, file.key, (start, start), "it has 0 bytes")


def missing(
    where: TopicPartition,
    entry: Recorded,
    extents: Sequence[Extent],
    known_missing: int,
    layout: Layout,
    pattern: FileSet | None,
) -> Iterator[Finding]:
    """Name what one run stored and is not there.

    Args:
        where: The partition.
        entry: What the run says.
        extents: The sets that begin where that run's did, by start offset.
        known_missing: How many objects of these sets are missing by `siblings`.
        layout: How objects are named.
        pattern: A set beside which the missing ones lay; None where there is none left.
    """
    lacking = lost(entry, extents) - known_missing
    if lacking <= 0:
        return
    holes = _holes(extents, entry.first, entry.last)
    more = {"by": entry.run}
    if len(holes) <= lacking and holes:
        for first, last in holes:
            key = None if pattern is None else _key_at(where, first, layout, pattern)
            yield Finding("missing_object", where, key, (first, last), more=more)
        return
    text = f"{lacking} of the {counted(entry.objects, 'object')} that run {entry.run} stored "
    text += f"{form(lacking, 'is', 'are')} missing"
    if holes:
        text += f", somewhere in {_named(holes)}"
    offsets = (holes[0][0], holes[-1][1]) if holes else (entry.first, entry.last)
    yield Finding("missing_object", where, None, offsets, text, more=more)


def lost(entry: Recorded, extents: Sequence[Extent]) -> int:
    """Return how many of a run's objects are not there, judging by their number and the first."""
    there = sum(len(extent.files.files) for extent in extents)
    has_first = any(extent.files.start_offset == entry.first for extent in extents)
    return max(entry.objects - there, 0 if has_first else 1)


def _key_at(where: TopicPartition, start: int, layout: Layout, pattern: FileSet) -> str | None:
    """Return the key an object at *start* had, if it was named as *pattern* is."""
    directory = pattern.encoded_partition
    if pattern.where != where:
        beside = partitioners.beside(directory, pattern.where, where)
        if beside is None:
            return None
        directory = beside
    main = pattern.main if pattern.main is not None else pattern.files[0]
    here = replace(pattern, where=where, start_offset=start, encoded_partition=directory)
    return key_of(here, layout, main.view, main.extension)


def _holes(
    extents: Sequence[Extent], first: int | None = None, last: int | None = None
) -> list[tuple[int, int]]:
    """Return the ranges, inclusive, that no set covers; unknown ends reach to the next set."""
    found = []
    at = first
    for extent, next_one in zip_longest(extents, extents[1:]):
        start = extent.files.start_offset
        if at is not None and start > at:
            found.append((at, start - 1))
        end = extent.last
        if end is None:
            end = last if next_one is None else next_one.files.start_offset - 1
        if end is not None:
            at = end + 1 if at is None else max(at, end + 1)
    if at is not None and last is not None and at <= last:
        found.append((at, last))
    return found


def order(
    extents: Sequence[Extent],
    gaps: Iterable[Span],
    missed: Iterable[Finding],
    skipped: Sequence[Span] = (),
) -> Iterator[Finding]:
    """Report what is missing and was never recorded, and judge what is there twice.

    Args:
        extents: All sets of one partition, by start offset.
        gaps: Offsets that are known to have expired before they were backed up.
        missed: What `missing` has found.
        skipped: Offsets of records that were left out because they do not fit the layout.
    """
    if not extents:
        return
    where = extents[0].files.where
    explained = []
    for gap in gaps:
        text = (
            f"offsets {gap.start_offset} to {gap.end_offset - 1} had expired in the cluster "
            "before they were backed up"
        )
        explained.append((gap.start_offset, gap.end_offset - 1))
        yield Finding("gap", where, None, explained[-1], text, level="note")
    explained += [finding.offsets for finding in missed if finding.offsets is not None]
    explained += [(span.start_offset, span.end_offset - 1) for span in skipped]
    begin = extents[0].files.start_offset
    if begin > 0 and not _is_explained((0, begin - 1), explained):
        text = f"first offset {begin}"
        yield Finding("gap", where, None, (0, begin - 1), text, level="note")
    holes = [hole for hole in _holes(extents) if not _is_explained(hole, explained)]
    if holes:
        text = f"{_count(holes)} {_named(holes)}"
        offsets = (holes[0][0], holes[-1][1])
        yield Finding("gap", where, None, offsets, text, level="note")
    yield from _overlaps([extent for extent in extents if extent.files.is_whole])


def _is_explained(hole: tuple[int, int], explained: Iterable[tuple[int, int]]) -> bool:
    return any(first <= hole[0] and hole[1] <= last for first, last in explained)


def _count(holes: Sequence[tuple[int, int]]) -> str:
    return "a hole at" if len(holes) == 1 else f"{len(holes)} holes at"


def _named(holes: Sequence[tuple[int, int]]) -> str:
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in holes]
    rest = len(shown) - _HOLES_NAMED
    return ", ".join(shown[:_HOLES_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def repeated(sets: Sequence[FileSet], entries: Sequence[Entry]) -> int | None:
    """Return how many full records are in an earlier object too.

    Objects of one cut, in several directories, have none in common.  Objects whose cut is not
    known are compared with those of their directory alone.

    Args:
        sets: Of one partition, by start offset.
        entries: What the ledger says of the main object of each.

    Returns:
        None where objects overlap of which one lacks offsets: it does not say which.
    """
    cuts: defaultdict[tuple[str | None, Hashable], list[Entry]] = defaultdict(list)
    for files, entry in zip(sets, entries, strict=True):
        if files.is_whole:
            alone = files.encoded_partition, files.id
            cuts[alone if entry.cut is None else (None, entry.cut)].append(entry)
    lanes: defaultdict[str | None, list[_Stored]] = defaultdict(list)
    for (directory, _), among in cuts.items():
        span = Span(min(one.first for one in among), max(one.span.end_offset for one in among))
        is_dense = sum(one.records or 0 for one in among) == len(span)
        lanes[directory].append(_Stored(span, is_dense))
    counts = [_twice(sorted(stored, key=_begin)) for stored in lanes.values()]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


class _Stored(NamedTuple):
    """What was stored together: its offsets, and whether each of them has a record."""

    span: Span
    is_dense: bool


def _begin(stored: _Stored) -> int:
    return stored.span.start_offset


def _twice(stored: Iterable[_Stored]) -> int | None:
    """Return how many records come again; None where that depends on offsets that are lacking."""
    found, reach, has_all = 0, 0, True
    for span, is_dense in stored:
        if overlap := max(min(reach, span.end_offset) - span.start_offset, 0):
            if not (has_all and is_dense):
                return None
            found += overlap
        else:
            has_all = is_dense
        reach = max(reach, span.end_offset)
    return found


def _overlaps(extents: Sequence[Extent]) -> Iterator[Finding]:
    """Judge sets of full records of one directory that hold the same offsets.

    Retries leave such objects.  Each record is restored once, so it matters only whether they are
    the same.
    """
    before: dict[str, Extent] = {}
    for extent in extents:
        files = extent.files
        earlier = before.get(files.encoded_partition)
        before[files.encoded_partition] = extent
        if earlier is None or earlier.last is None or earlier.last < files.start_offset:
            continue
        ends = [end for end in (earlier.last, extent.last) if end is not None]
        offsets = (files.start_offset, min(ends))
        key, other = files.files[0].key, earlier.files.files[0].key
        if earlier.is_same:
            text = f"{other} holds the same records; each is restored once"
            yield Finding("overlap", files.where, key, offsets, text, level="note")
        elif earlier.is_same is False:
            text = f"{other} holds other records at the same offsets"
            yield Finding("overlap", files.where, key, offsets, text)
        else:
            text = f"{other} reaches into it; what both hold is restored once"
            yield Finding("overlap", files.where, key, offsets, text, level="note")
