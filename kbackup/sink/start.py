"""Decide where a partition's backup goes on, by its position, the log and the bucket's objects.

Rows of values do not store their offsets, so a restore cannot tell that a row is in two objects.
While a group is behind what the bucket holds, files therefore close where the bucket's own cuts
end, whatever the rules of rotation say now: the same records make the same objects.

Objects of other tools say where they begin and, once opened, how many records they hold, but not
where they end.  The group that came with them is believed where the two add up.
"""

from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Final

from kbackup import formats
from kbackup.catalog.ledger.rows import TOMBSTONES, Entry, PartitionLedger, is_main, named
from kbackup.errors import CorruptObjectError, KbackupError, RefusedError, TopicChangedError, some
from kbackup.formats import FormatOptions
from kbackup.kafka import Position
from kbackup.naming import ObjectKey, View
from kbackup.records import Span, TopicIdentity, TopicPartition, joined, without
from kbackup.runs.report import HeldUp
from kbackup.stores import Store

_DO: Final = (
    "set the group's offset to the end of a rotation, such as {end}, to continue there; or move "
    "the objects away, to store their records again"
)


@dataclass(frozen=True, slots=True)
class StoredCut:
    """A cut of which the bucket holds objects of values, or of full records.

    Attributes:
        objects: How many of its objects are there; 0: it is written again where it was, and nothing
            can be doubled.
        is_whole: None of them is missing.
        is_same: They are values in the format that is written now.
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


def stored_cuts(
    ledger: PartitionLedger, present: Container[str], extension: str | None
) -> tuple[StoredCut, ...]:
    """Return the cuts of which an object is there, in order.

    What covers an offset does not show where files close, which formats do, and has to be kept.

    Objects of another tool do not say which cut they are of.  Where all of them are in one
    directory, each is a cut of its own, which ends where the next one begins.

    Args:
        present: The keys of a listing that was made after the ledger was read.
        extension: Of the objects of values that are written now; None where none are.
    """
    found: dict[tuple[Span, bool, bool], StoredCut] = {}
    for one in filter(is_main, ledger.objects.values()):
        if one.cut_start is None or one.next_offset is None:
            continue
        span, is_there = Span(one.cut_start, one.next_offset), one.key in present
        kind = _is_same(one, extension), one.view != named(View.RECORD)
        cut = found.get((span, *kind), StoredCut(span, 0, True, *kind))
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
    them have ended.  None where there are none.  That is no question of coverage: values that state
    their ends, but not their cut, are among them, for nothing shows that they would come again.
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
    return len({(one.key or "").rpartition("/")[0] for one in foreign}) > 1


def one_after_another(starts: Sequence[int]) -> list[StoredCut]:
    """Return cuts of one object each, that begin at *starts* but for the last of them."""
    return [StoredCut(Span(start, end)) for start, end in pairwise(starts) if start < end]


def _around(cuts: Sequence[StoredCut], offset: int) -> StoredCut | None:
    """Return what to store again as one, where *offset* is in the middle of a cut, else None."""
    # where cuts overlap, it is all that they cover up to the end of the one that *offset* is in
    found: StoredCut | None = None
    start = offset
    for cut in reversed(cuts):
        if cut.start < start < cut.end:
            start = cut.start
            found = replace(found or cut, span=Span(start, (found or cut).end))
    return found


def outside(where: TopicPartition, cuts: Sequence[StoredCut], offset: int, log_start: int) -> int:
    """Return where to continue so that *offset* is in the middle of no cut.

    That is where the cut begins, if the log still has that; else behind it, if all of it is there.

    Raises:
        RefusedError: If it is neither.
    """
    cut = _around(cuts, offset)
    if cut is None:
        return offset
    if cut.start >= log_start:
        return cut.start
    if cut.is_whole:
        return cut.end
    raise RefusedError(
        f"{where}: the log begins at {log_start}, in the middle of a rotation of values, "
        f"{cut.start} to {cut.end - 1}, and some objects of that rotation are missing",
        "storing the rest of it would duplicate records of the objects that exist: value "
        "objects do not store offsets",
        "move the objects that begin at one of these offsets out of topics.dir, and keep them: the "
        "next run stores again what the log still has of their records",
        **where.place,
    )


def onward(cuts: Iterable[StoredCut], start: int) -> tuple[StoredCut, ...]:
    """Return the cuts that a backup comes upon that continues at *start*, one after the other."""
    found: list[StoredCut] = []
    for cut in cuts:
        if cut.start >= start:
            found.append(cut)
            start = cut.end
    return tuple(found)


@dataclass(frozen=True, slots=True)
class StoredAgain:
    """The part of a partition that is stored a second time.

    Attributes:
        cuts: What the bucket holds of it, one after the other.
    """

    where: TopicPartition
    cuts: tuple[StoredCut, ...] = ()

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
            records: From the new cut's first record to the one after its last.
            end: Where the cut ends: offsets without anything to store may follow its records.

        Raises:
            RefusedError: If they do not, and rows would be stored twice.
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

    def _refused(self, cut: StoredCut, how: str) -> RefusedError:
        return RefusedError(
            f"{self.where}: the group's offset was set back, and the stored value objects of "
            f"offsets {cut.start} to {cut.end - 1} {how}",
            "the configuration has changed, or compaction has removed records since; value objects "
            "do not store offsets, so a restore would deliver these records twice",
            _DO.format(end=cut.end),
            **self.where.place,
        )


def _misplaced(where: TopicPartition, offset: int, cut: StoredCut) -> RefusedError:
    return RefusedError(
        f"{where}: the backup would continue at {offset}, over objects of offsets {cut.start} to "
        f"{cut.end - 1} that it would not write again as they are",
        "they have another format, and value objects do not store offsets, so a restore could not "
        "tell that these records are there twice",
        _DO.format(end=cut.end),
        **where.place,
    )


def _untold(where: TopicPartition, offset: int, end: int) -> RefusedError:
    return RefusedError(
        f"{where}: the group's offset was set back to {offset}, before value objects of another "
        "tool that are in the bucket",
        "they are in several directories and do not say where they end, so nothing can keep their "
        "rows from being stored twice",
        f"set the group's offset to the end of what that tool stored, {end} or later; to store "
        "these records again, move the objects away first",
        **where.place,
    )


def _unlike(where: TopicPartition, offset: int) -> RefusedError:
    return RefusedError(
        f"{where}: another tool stored values that come after offset {offset}, where the backup "
        "would continue",
        "they are in several directories, and nothing shows that the same objects would be "
        "written again, so rows could be stored twice",
        "if the offset was reset, set the group's offset to where that tool had committed; if the "
        f"tool died there, move its objects that begin at {offset} or later away: their records "
        "are stored again",
        **where.place,
    )


def _under_another_name(
    where: TopicPartition, offset: int, extensions: Sequence[str], values: str
) -> RefusedError:
    return RefusedError(
        f"{where}: what another tool stored from offset {offset} on, as {some(extensions)}, would "
        f"be stored again as {values}",
        "the group's offset does not show that it is complete, and under another name its rows "
        "would be there twice",
        "write such files as that tool did, with its format.class and compression; or set the "
        "group's offset to where it had committed",
        **where.place,
    )


def _in_two_layouts(where: TopicPartition, key: str) -> RefusedError:
    """Return the error of a topic whose objects would be named in two ways: *key* is an earlier."""
    return RefusedError(
        f"{where}: the backup holds {key}, which is not in the configured layout",
        "a restore reads one layout at a time, so it would bring back only a part of the topic",
        "set format.class, file.delim and object.name.template as they were, or choose another "
        "topics.dir",
        **where.place,
    )


SHOWN_LEAST: Final = 8
"""So many objects of several directories show whether a connector leaves records out."""

SHOWN_MOST: Final = 32
"""Of so many at most the last of a cut is looked for: a directory each is a cut's, as a rule."""

OPENED_MOST: Final = 128
"""Objects of a partition that are opened: a cut of the connector rarely has more directories."""

Warnings = tuple[tuple[str, str], ...]
"""Codes and sentences for the operator."""


@dataclass(frozen=True, slots=True)
class OpenedObject:
    """An object that was opened.

    Attributes:
        directory: Where it is; empty where all objects are in one.
    """

    key: str
    start_offset: int
    records: int
    directory: str = ""


@dataclass(frozen=True, slots=True)
class Inherited:
    """The objects of a partition whose newest was written by another tool.

    Attributes:
        starts: The start offset of every object.
        counted: The newest ones, the newest first; at least one.
        is_one_directory: All objects are in one directory, so each is a cut of its own.
        cut_records: How many records make a cut, by configuration.
        extensions: Those of all objects, beside `starts`.
        values: The extension of the objects that are going to be written, where they hold values
            alone.
    """

    starts: tuple[int, ...]
    counted: tuple[OpenedObject, ...]
    is_one_directory: bool = True
    cut_records: int = 0
    extensions: tuple[str, ...] = ()
    values: str | None = None

    @property
    def reached(self) -> int:
        """The offset that they reach for sure: one row may be a part of a record."""
        return max(one.start_offset + min(one.records, 1) for one in self.counted)

    def start(
        self, where: TopicPartition, committed: int | None, log_start: int
    ) -> tuple[int | None, Warnings]:
        """Return where the backup continues, None for the log's start, and what to say of it.

        No hole may arise.  Where offsets and records do not add up, the newest object is
        written again: the same records give the same object.  Where the log no longer has them,
        the backup continues at the lowest offset that can follow them.

        Full records begin with what the newest objects hold that add up, if the log has it: a count
        shows no end where records were left out, and what they hold need not be read from values.
        Objects of several directories do not show where each ends, so where nothing was left out
        none is stored again: else those before would be in doubt, where a transform has changed
        their rows.

        Raises:
            RefusedError: If the objects hold records that the group has not come to, in several
                directories, and do not show that the same ones would be written again; or if values
                would be written again under another name.
        """
        if committed is None:
            return self._without_group(where, log_start)
        for one, total in self._totals():
            if total == committed - one.start_offset:
                is_again = self.values is None and one.start_offset >= log_start
                is_again = is_again and (self.is_one_directory or not self._are_dense(committed))
                return one.start_offset if is_again else committed, ()
            if total > committed - one.start_offset:
                return self._after_group(where, committed, log_start)
        return self._before_group(where, committed, log_start)

    def _are_dense(self, committed: int) -> bool:
        """Whether so many objects as show it have a row for each offset up to the group's."""
        least = min(SHOWN_LEAST, len(self.starts))
        return any(
            number >= least and total == committed - one.start_offset
            for number, (one, total) in enumerate(self._totals(), 1)
        )

    def _totals(self) -> list[tuple[OpenedObject, int]]:
        """Return each of `counted` with how many records it and those before it there hold."""
        totals = accumulate(one.records for one in self.counted)
        return list(zip(self.counted, totals, strict=True))

    def _without_group(self, where: TopicPartition, log_start: int) -> tuple[int | None, Warnings]:
        if not self.is_one_directory:
            if max(self.starts) >= log_start and not self._are_cuts_from(log_start):
                raise _unlike(where, log_start)
            return _nothing_says(where)
        offset, how = self._again(where, self.counted[0].start_offset, log_start)
        text = f"{where}: the group has no offset; {self._newest()}: {how}"
        return offset, (("offset_missing", text),)

    def _after_group(
        self, where: TopicPartition, committed: int, log_start: int
    ) -> tuple[int, Warnings]:
        """The objects hold records that the group has not come to: a crash, or it was set back."""
        if not self.is_one_directory and not self._are_cuts_from(committed):
            raise _unlike(where, committed)
        before = [start for start in self.starts if start <= committed]
        whole = max(before) if before and self.is_one_directory else committed
        offset, how = self._again(where, whole, log_start)
        text = f"{where}: the group's offset is {committed}, but {self._newest()}: {how}"
        return offset, (("group_behind", text),)

    def _before_group(
        self, where: TopicPartition, committed: int, log_start: int
    ) -> tuple[int, Warnings]:
        """The objects hold fewer records than there are offsets before the group's."""
        cuts = (one.start_offset for one, total in self._totals() if total == self.cut_records)
        offset, how = self._again(where, next(cuts, self.counted[0].start_offset), log_start)
        text = (
            f"{where}: the group's offset is {committed}, but {self._newest()}: what is between "
            f"may have held no records, or is missing: {how}"
        )
        return offset, (("bucket_behind", text),)

    def _are_cuts_from(self, offset: int) -> bool:
        """Whether the objects show that the same cuts would be made now from *offset* on."""
        # dense before it, cuts of `cut_records` after it: that takes all objects to know
        if len(self.counted) < len(self.starts) or self.cut_records < 1:
            return False
        before = [one for one in self.counted if one.start_offset < offset]
        if sum(one.records for one in before) != offset - min(self.starts):
            return False
        cuts: dict[int, list[OpenedObject]] = {}
        for one in self.counted:
            if one.start_offset >= offset:
                cuts.setdefault((one.start_offset - offset) // self.cut_records, []).append(one)
        if any(len({one.directory for one in cut}) < len(cut) for cut in cuts.values()):
            return False
        last = max(cuts, default=0)
        *whole, short = (sum(one.records for one in cuts.get(at, ())) for at in range(last + 1))
        return all(total == self.cut_records for total in whole) and short <= self.cut_records

    def _again(self, where: TopicPartition, offset: int, log_start: int) -> tuple[int, str]:
        """Return where and how to continue, so that what is stored from *offset* on is repeated."""
        # in the middle of an object the records after it would be in two objects
        if offset >= log_start:
            if self.values is not None:
                named = zip(self.starts, self.extensions, strict=True)
                others = {own for start, own in named if start >= offset and own != self.values}
                if others:
                    raise _under_another_name(where, offset, sorted(others), self.values)
            return offset, f"writing again what begins at {offset}, under the same names"
        # the lowest offset that can follow their last records: each record has an offset
        end = max(one.start_offset + one.records for one in self.counted)
        return end, f"the log begins at {log_start}, so continuing at {end}"

    def _newest(self) -> str:
        newest = self.counted[0]
        many = f"{newest.records} record{'' if newest.records == 1 else 's'}"
        return f"{newest.key}, the newest object, begins at {newest.start_offset} and holds {many}"


def count_inherited(
    store: Store,
    options: FormatOptions,
    objects: Sequence[tuple[str, ObjectKey]],
    committed: int | None,
    cut_records: int,
    *,
    values: str | None,
) -> Inherited | None:
    """Open the newest of *objects*, and as many more as it takes to judge the group's offset.

    That is one where they are in one directory; else those whose records add up to the offsets
    before the group's, or to a cut, and before full records `SHOWN_LEAST` of them; all where they
    are ahead of the group.

    Args:
        objects: Those that hold the values of one partition, and what their keys say; in the order
            of start offsets, at least one.

    Returns:
        None where no format reads the newest.

    Raises:
        CorruptObjectError: If one is damaged.
    """
    is_one = len({parts.encoded_partition for _, parts in objects}) == 1
    is_ahead = committed is None or committed <= objects[-1][1].start_offset
    takes_all = is_ahead and not is_one and len(objects) <= OPENED_MOST  # fewer show nothing
    counted: list[OpenedObject] = []
    total = 0
    for key, parts in list(reversed(objects))[: 1 if is_one else OPENED_MOST]:
        records = _records(store, options, key, parts)
        if records is None:
            break
        directory = "" if is_one else parts.encoded_partition
        counted.append(OpenedObject(key, parts.start_offset, records, directory))
        total += records
        if takes_all:
            continue
        offsets = 0 if committed is None else committed - parts.start_offset
        if values is None and total <= offsets and len(counted) < SHOWN_MOST:
            is_shown = len(counted) >= SHOWN_LEAST and total == offsets
        else:
            is_shown = committed is None or total >= min(cut_records, offsets)
        if is_shown:
            break
    if not counted:
        return None
    starts = tuple(parts.start_offset for _, parts in objects)
    extensions = tuple(parts.extension for _, parts in objects)
    return Inherited(starts, tuple(counted), is_one, cut_records, extensions, values)


def _records(store: Store, options: FormatOptions, key: str, parts: ObjectKey) -> int | None:
    name = formats.by_extension(parts.extension, options)
    if name is None:
        return None
    try:
        with store.open(key) as body:
            batches = formats.by_name(name).read(body, parts.view, parts.extension, options)
            return sum(map(len, batches))
    except CorruptObjectError as error:
        raise CorruptObjectError(
            f"{key}, the newest object",
            error.what if not error.why else f"{error.what}: {error.why}",
            "move it away: the next run stores its records again, if the log still has them",
            key=key,
        ) from error


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one partition before a run.

    Attributes:
        log: From the log's start to the end offset to back up to.
        committed: The group's position, None if there is none.
        is_confirmed: The object that was committed with the position is in the bucket.
        stored_to: The offset after the last record of the bucket's last object; None if the
            bucket has no object of this partition, or the offset is unknown.
        has_objects: The bucket holds objects of this partition.
        identities: The topics that the position and the examined objects belong to.
        reached: How far this run already is, when it plans again; None before it has begun.
        known_to: The offset before which everything was once stored, according to the ledger,
            whether or not it still is; None if the ledger does not know the partition.
        kept: The offsets for which the bucket holds everything there was, and known gaps,
            according to the ledger and to what a run stored but died before entering; empty if
            neither was read.
        lost: The offsets of objects that the ledger knows and the bucket lacks, and that nobody has
            accepted as removed.
        given_up: Those of objects that were removed on purpose.
        unentered: The bucket's objects that the ledger lacks, each with its start offset.
        unended: Those of which it knows no end, nor where the log ended behind them.
        is_astray: The pointer of a dated layout names another object than the newest.
        inherited: What another tool, whose objects are the newest, has left; why that cannot be
            known; None where nobody has left any, or the position is confirmed.
        held: The cuts that the bucket holds, in order; empty where the position is confirmed.
        untold_to: The offset up to which there are values of another tool that do not say where
            they end; None where there are none.
        stores_values: Values are going to be written, not full records.
        held_up: The open transaction that *log* ends in front of; None where there is none.
        of_other_layout: The newest object that is known, where it is not named as new ones are.
    """

    log: Span
    committed: Position | None = None
    is_confirmed: bool = False
    stored_to: int | None = None
    has_objects: bool = False
    identities: tuple[TopicIdentity, ...] = ()
    reached: int | None = None
    known_to: int | None = None
    kept: tuple[Span, ...] = ()
    lost: tuple[Span, ...] = ()
    given_up: tuple[Span, ...] = ()
    unentered: tuple[tuple[int, str], ...] = ()
    unended: tuple[tuple[int, str], ...] = ()
    is_astray: bool = False
    inherited: Inherited | KbackupError | None = None
    held: tuple[StoredCut, ...] = ()
    untold_to: int | None = None
    stores_values: bool = False
    held_up: HeldUp | None = None
    of_other_layout: str | None = None

    @property
    def again(self) -> tuple[StoredCut, ...]:
        """The cuts that would be written again as they are."""
        return tuple(cut for cut in self.held if cut.is_same)

    @property
    def end(self) -> int:
        """Where the log ends, behind open transactions too."""
        return self.log.end_offset if self.held_up is None else self.held_up.end


@dataclass(frozen=True, slots=True)
class Start:
    """Where to continue.

    Attributes:
        offset: The first offset to read.
        expired: Offsets that the cluster deleted before they were backed up.
        moves_group: The group is ahead of *offset* and must be set back first.
    """

    offset: int
    expired: tuple[Span, ...] = ()
    warnings: Warnings = ()
    moves_group: bool = False


def decide(where: TopicPartition, seen: Evidence, *, reset: str) -> Start:
    """Decide where the backup of *where* continues: never so that values are stored twice.

    Args:
        reset: ``earliest`` or ``latest``: where an unknown partition begins.

    Raises:
        TopicChangedError: If the log ends before the end of the backup: another topic of that name.
        CorruptObjectError: If the object that would show where another tool stopped is damaged.
        RefusedError: If values would be stored twice, or objects in two layouts.
        StoreError: If that object may not be read.
    """
    if seen.of_other_layout is not None:
        raise _in_two_layouts(where, seen.of_other_layout)
    start = _past_held(where, seen, _decide(where, seen, reset))
    if not seen.stores_values:
        return start
    if seen.untold_to is not None and seen.inherited is None and start.offset < seen.untold_to:
        raise _untold(where, start.offset, seen.untold_to)
    others = (cut for cut in seen.held if cut.end > start.offset and not cut.is_same)
    strange = next((cut for cut in others if cut.is_values or cut.start < start.offset), None)
    if strange is not None:
        raise _misplaced(where, start.offset, strange)
    offset = outside(where, seen.again, start.offset, seen.log.start_offset)
    if offset == start.offset:
        return start
    text = f"{where}: offset {start.offset} is in the middle of a rotation of values"
    if offset < start.offset:
        text += f": writing again what begins at {offset}, under the same names"
    else:
        text += ", the log has lost its beginning, and the bucket has all of it: "
        text += f"continuing at {offset}"
    moves = seen.committed is not None and seen.committed.offset > offset
    warnings = (*start.warnings, ("group_behind", text))
    return replace(start, offset=offset, warnings=warnings, moves_group=moves)


def _past_held(where: TopicPartition, seen: Evidence, start: Start) -> Start:
    """Return *start*, or the end of what is stored where nothing is left to do before it."""
    # A group may be behind what is stored: it was set back, another one backs up to the same place,
    # or a run died before it committed.  Full records are stored again, and a restore compares them
    # by offset; values would come twice.
    position, end = seen.committed, seen.stored_to
    if position is None or end is None or start.offset >= end:
        return start
    behind = [cut for cut in seen.held if cut.end > start.offset]
    if not seen.stores_values and not any(cut.is_values for cut in behind):
        return start
    is_inside = any(cut.start < start.offset for cut in behind)
    # in the middle of a cut that is for `decide` to judge
    if is_inside or without(Span(start.offset, end), seen.kept):
        return start
    if end > seen.end:
        raise _cut_back(where, seen.end, end)
    if position.offset > end:
        # Nothing but empty cuts is known, and the group was moved ahead of them.
        code, text = "bucket_behind", f"{where}: the group's offset is {position.offset}, but the "
        text += f"backup ends at {end}: continuing there, so that no hole appears"
        return replace(start, offset=end, warnings=((code, text),), moves_group=True)
    text = (
        f"{where}: the group's offset is {position.offset}, but the bucket holds all up to {end}: "
        "continuing there, so that no record is stored twice"
    )
    warnings = (*start.warnings, ("group_behind", text))
    return replace(start, offset=end, warnings=warnings, moves_group=False)


def _cut_back(where: TopicPartition, end: int, reached: int) -> TopicChangedError:
    return TopicChangedError(
        f"{where} ends at offset {end}, but was backed up to {reached}",
        "the topic was deleted and created again, or its log was cut back",
        "back the new topic up to another topics.dir; what is stored stays as it is",
        **where.place,
    )


def _decide(where: TopicPartition, seen: Evidence, reset: str) -> Start:
    wanted, warnings = _wanted(where, seen)
    warnings += _astray(where, seen)
    if wanted is None:
        wanted = seen.reached  # what expired since this run began is a gap, though it was not known
    if wanted is None:
        # reset applies to a first start only
        is_new = seen.committed is None and not seen.has_objects and seen.known_to is None
        is_news_only = is_new and reset == "latest"
        first = seen.log.end_offset if is_news_only else seen.log.start_offset
        known_to = seen.known_to
        if known_to is None and seen.committed is not None:
            known_to = seen.committed.offset  # only the group is known
        known = first if known_to is None else known_to
        # Of what had been stored before, what is missing cannot be read any more.
        before = (Span(one.start_offset, min(one.end_offset, first)) for one in seen.lost)
        lost = [part for span in before for part in _expired(seen, span)]
        expired = joined([*lost, *_expired(seen, Span(known, first))])
        return Start(first, expired, warnings, seen.committed is not None)
    if wanted > seen.end:
        raise _cut_back(where, seen.end, wanted)
    moves = seen.committed is not None and seen.committed.offset > wanted
    if wanted < seen.log.start_offset:
        expired = _expired(seen, Span(wanted, seen.log.start_offset))
        return Start(seen.log.start_offset, expired, warnings, moves)
    return Start(wanted, (), warnings, moves)


def _astray(where: TopicPartition, seen: Evidence) -> Warnings:
    """Warn that the pointer of a dated layout is to another object than the newest."""
    if not seen.is_astray:
        return ()
    text = (
        f"{where}: its last_chunk_index does not name the newest object in the bucket: it is "
        "ignored here, and corrected with the next object"
    )
    return (("pointer_astray", text),)


def _expired(seen: Evidence, span: Span) -> tuple[Span, ...]:
    """Return the part of *span*, which the log no longer has, that is lost."""
    # if the group was set back, to back offsets up again, nothing in the bucket is lost
    return without(span, joined([*seen.kept, *seen.given_up]))


def _wanted(where: TopicPartition, seen: Evidence) -> tuple[int | None, Warnings]:
    """The offset that leaves no gap, None for the beginning, and warnings about it."""
    if isinstance(seen.inherited, KbackupError):
        raise seen.inherited
    if seen.inherited is not None:
        if seen.inherited.reached > seen.end:
            raise _cut_back(where, seen.end, seen.inherited.reached)
        committed = None if seen.committed is None else seen.committed.offset
        return seen.inherited.start(where, committed, seen.log.start_offset)
    if seen.committed is None:
        return _wanted_by_bucket(where, seen)
    committed = seen.committed.offset
    if seen.is_confirmed:
        return committed, ()
    if not seen.has_objects:
        text = (
            f"{where}: the group's offset is {committed}, but the bucket holds nothing of it: "
            "starting at the beginning"
        )
        return None, (("bucket_behind", text),)
    if seen.stored_to is None or seen.stored_to >= committed:
        return committed, ()
    text = (
        f"{where}: the group's offset is {committed}, but the bucket ends at {seen.stored_to}: "
        "continuing there, so that no hole appears"
    )
    return seen.stored_to, (("bucket_behind", text),)


def _wanted_by_bucket(where: TopicPartition, seen: Evidence) -> tuple[int | None, Warnings]:
    """The same where the group has no offset."""
    if seen.stored_to is not None:
        text = (
            f"{where}: the group has no offset (offsets expire), the bucket ends at "
            f"{seen.stored_to}: continuing there"
        )
        return seen.stored_to, (("offset_missing", text),)
    if not seen.has_objects:
        return None, ()
    return _nothing_says(where)


def _nothing_says(where: TopicPartition) -> tuple[None, Warnings]:
    text = (
        f"{where}: the group has no offset, and the bucket's objects do not show where they end: "
        "starting at the beginning"
    )
    return None, (("offset_missing", text),)
