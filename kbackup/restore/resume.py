"""Find where a restore that was begun continues, by its position, and what is left to do.

A position is worth something only where the log it was committed to is still there.  Before a plan
says ``done``, it is compared with the target's log and with what is to be restored: by ids, offsets
and counts, of values by names and sizes of objects, never by records.  "Nothing new" is the
screen's word, for a run that changed nothing: `kbackup.cli.screens.is_idle`.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.catalog.listing import FactsOf, FileSet
from kbackup.catalog.reading import extent, facts
from kbackup.errors import (
    IncompleteBackupError,
    KbackupError,
    RefusedError,
    TopicChangedError,
    counted,
    form,
)
from kbackup.kafka import Position
from kbackup.records import (
    Facts,
    Span,
    TopicPartition,
    joined,
    without,
)
from kbackup.runs.position import Cursor, Lane, RestorePosition, RestoreSource, digest
from kbackup.stores import Store, side_by_side

LEFT_OUT: Final = "left_out"
"""The code of the warning that a partition lacks what an earlier run passed over."""


@dataclass(frozen=True, slots=True)
class ResumeState:
    """Where the restore of one partition of a backup stands, in the partitions that it writes to.

    Attributes:
        lanes: The partitions that have that position.
        has_written: Records were restored to one of them, as far as its position says.
        refusal: Why it must neither continue nor begin.
        warning: Code and sentence for the operator; None where there is nothing to say.
    """

    position: RestorePosition | None = None
    lanes: tuple[Lane, ...] = ()
    has_written: bool = False
    refusal: KbackupError | None = None
    warning: tuple[str, str] | None = None

    @property
    def is_known(self) -> bool:
        """Whether there is a position of this restore, or of somebody in its place."""
        return self.position is not None or self.refusal is not None


def resumed(
    source: RestoreSource,
    group: str,
    topic_id: str,
    found: Mapping[TopicPartition, tuple[Span, Position | None]],
) -> ResumeState:
    """Return where a restore of *source* stands.

    Its positions in several partitions are committed together.  Where some of these are worth
    nothing any more, it can begin anew only if the others have none of its records.

    *topic_id* is empty where the cluster has none.  Of each partition of the target that it writes
    to and that is there, *found* has what its log holds, open transactions included, and the
    group's position in it.
    """
    states = {
        where: _judged(source, group, topic_id, where, span, position)
        for where, (span, position) in found.items()
    }
    written = [where for where, each in states.items() if each.has_written]
    warning = next((each.warning for each in states.values() if each.warning is not None), None)
    refusal = next((each.refusal for each in states.values() if each.refusal is not None), None)
    gone = [where for where, each in states.items() if each.position is None]
    cursors = {each.position.cursor for each in states.values() if each.position is not None}
    if refusal is None and gone and written:
        why = f"it no longer has its part of what was restored to {written[0]} and others"
        refusal = _changed(gone[0], why)
    elif refusal is None and not gone and len(cursors) > 1:
        why = "the positions in the partitions of its topic do not agree: they were moved"
        refusal = _changed(next(iter(states)), why)
    if refusal is not None:
        return ResumeState(has_written=bool(written), refusal=refusal)
    if gone or not states:
        return ResumeState(warning=warning)
    position = next(iter(states.values())).position
    lanes = tuple(lane for each in states.values() for lane in each.lanes)
    return ResumeState(position, lanes, bool(written), warning=warning)


def _judged(
    source: RestoreSource,
    group: str,
    topic_id: str,
    where: TopicPartition,
    span: Span,
    found: Position | None,
) -> ResumeState:
    if found is None:
        return ResumeState()
    read = RestorePosition.read(where, found)
    if read is None:
        return ResumeState(refusal=_of_others(group, where))
    position, lane = read
    if position.source.conflicts(source):
        return ResumeState()
    return _in_log(position, replace(lane, records=0, commits=0), topic_id, span)


def _in_log(position: RestorePosition, lane: Lane, topic_id: str, span: Span) -> ResumeState:
    """Judge a position of this restore by where the log stood, and where it stands."""
    where, stood = lane.target, lane.log
    if position.target_id and topic_id and position.target_id != topic_id:
        return _anew(where, "target_recreated", "was deleted and created again")
    if not len(stood):  # nothing was written yet, so nothing can be gone
        return ResumeState(position, (lane,))
    if not len(span):
        return _anew(where, "target_emptied", "has been emptied")
    why = None
    if span.end_offset < stood.end_offset:
        why = (
            f"its log ends at offset {span.end_offset}, but ended at {stood.end_offset} when "
            "this restore wrote to it"
        )
    elif span.start_offset > stood.start_offset:
        why = (
            f"its log begins at offset {span.start_offset}, but this restore has written "
            f"from {stood.start_offset} on"
        )
    if why is not None:
        return ResumeState(refusal=_changed(where, why))
    warning = _left_out(where) if position.total is None else None
    return ResumeState(position, (lane,), has_written=True, warning=warning)


def _left_out(where: TopicPartition) -> tuple[str, str]:
    text = (
        f"{where}: an earlier run of this restore left out what was damaged, and this one "
        "continues after it; once that is repaired, restore into a new topic to get its "
        "records"
    )
    return LEFT_OUT, text


def _anew(where: TopicPartition, code: str, what: str) -> ResumeState:
    text = f"{where} {what} since it was restored: the restore starts over"
    return ResumeState(warning=(code, text))


def _changed(where: TopicPartition, why: str) -> TopicChangedError:
    return TopicChangedError(
        f"{where} has lost records that were restored to it",
        why,
        "restore into a new topic with --rename, or delete this one first",
        **where.place,
    )


def _of_others(group: str, where: TopicPartition) -> RefusedError:
    return RefusedError(
        f"consumer group {group} has a position in {where} that no restore committed",
        "a sink or a consumer uses the group and would lose its place, or somebody has moved it",
        "choose another --group; where it was moved, restore into a new topic with --rename",
        **where.place,
    )


def chained(before: str, sets: Iterable[FileSet]) -> str:
    """Return what stands for *sets*, as they are now, after those that *before* stands for.

    Objects that a sink has named count by their sizes: a sink may store the same records again.
    Others count by what the store says of their content, too.
    """
    for files in sets:
        sizes = " ".join(f"{file.key} {file.size} {file.etag}".rstrip() for file in files.files)
        if files.only is not None:
            sizes += f" {files.only.start_offset}-{files.only.end_offset}"
        before = digest(f"{before} {sizes}")
    return before


Below = Callable[[FileSet, int], int]
"""Counts the records of a set below an offset, by reading it."""

CutOf = Callable[[FileSet], Hashable]
"""Returns what stands for the cut of a set: sets of one cut have no record in common."""

_DO: Final = "restore into a new topic with --rename"

_ROWS: Final = "rows of values carry no offsets, so what is new in them is unknown"


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left to restore; *refusal* says why that cannot be in order any more."""

    sets: tuple[FileSet, ...]
    before: str = ""
    refusal: KbackupError | None = None


def remaining(
    facts_of: FactsOf,
    sets: Sequence[FileSet],
    position: RestorePosition | None,
    cut_of: CutOf,
    own: Collection[str] | None,
    gone: Sequence[FileSet],
    below: Below,
) -> Remaining:
    """Return what is left of *sets*, in their order.

    Args:
        facts_of: Asked about each set that may have grown since: of full records those that begin
            below the position, of values the one at hand.
        sets: Of one partition, by start offset.
        position: Where the restore stands; None where it begins.
        own: The sets that hold records of the target, where a topic is chosen for each record.
        gone: Sets that were removed on purpose: of those that the restore has read, rows of values
            count where they were, and full records with those that are there.
    """
    if position is None:
        return Remaining(tuple(sets))
    where, offset = position.source.where, position.cursor.offset
    absent = position.absent or ()
    passed = [files for files in gone if not any(files.begin in span for span in absent)]
    lost = [files for files in passed if not files.is_whole]
    every = sorted((*sets, *lost), key=lambda one: (one.begin, one.encoded_partition))
    values = position.cursor.values
    at = next((n for n, one in enumerate(every) if values and values == digest(one.part)), None)
    done, before, refusal = _done_values(facts_of, where, every, at, position.cursor, lost)
    known = _begun(facts_of, sets, offset)
    done |= _ended(known, offset)
    left = [files for files in sets if files.part not in done]
    refusal = refusal or _back(facts_of, cut_of, left, lost, position.cursor.reached)
    refusal = refusal or _before_values(where, every[: at or 0], known, offset)
    if refusal is None and position.total is not None:
        counted = known if position.is_all or own is None else known.keys() & own
        entered = [
            (cut_of(files), _until(offset, files, said, below))
            for files in sets
            if files.id in counted and (said := known[files.id]) is not None
        ]
        if position.absent is not None and (position.is_all or own is None):
            full = [files for files in passed if files.is_whole and files.begin < offset]
            spans = (Span(said.first_offset, said.last_offset + 1) for _, said in entered)
            there = joined(spans)
            entered += _read_once(facts_of, cut_of, full, position.absent, there)
        refusal = _gained(where, entered, offset, position.total)
    return Remaining(tuple(left), before, refusal)


def _until(offset: int, files: FileSet, said: Facts, below: Below) -> Facts:
    """Return what is known of a set's records before the position."""
    if said.last_offset < offset:
        return said
    records = offset - said.first_offset if said.is_dense else below(files, offset)
    return replace(said, records=records, last_offset=offset - 1)


def _read_once(
    facts_of: FactsOf,
    cut_of: CutOf,
    removed: Iterable[FileSet],
    absent: Sequence[Span],
    there: Sequence[Span],
) -> Iterator[tuple[Hashable, Facts]]:
    """Yield the cuts of full records that were restored and then removed, and what was read."""
    for files in removed:
        said = facts_of(files)
        if said is None:
            continue
        span = Span(said.first_offset, said.last_offset + 1)
        at = bisect_right(there, span.start_offset, key=lambda one: one.end_offset)
        if at < len(there) and there[at].start_offset < span.end_offset:
            continue
        unread = len(span) - sum(map(len, without(span, absent)))
        yield cut_of(files), replace(said, records=max(0, said.records - unread))


def _back(
    facts_of: FactsOf,
    cut_of: CutOf,
    left: Sequence[FileSet],
    removed: Iterable[FileSet],
    reached: int,
) -> KbackupError | None:
    """Refuse sets that hold offsets of values which were restored and then removed."""
    known = ((gone, facts_of(gone)) for gone in removed if gone.begin < reached)
    passed = [(gone, was) for gone, was in known if was is not None]
    highest = max((was.last_offset for _, was in passed), default=-1)
    near = [files for files in left if files.begin <= highest]
    for gone, was in passed if near else ():
        for files in near:
            # those of one cut share no record; others may hold the same rows under another name
            if files.begin > was.last_offset or cut_of(files) == cut_of(gone):
                continue
            said = None if files.begin >= gone.begin else facts_of(files)
            if files.begin >= gone.begin or said is None or said.last_offset >= gone.begin:
                what = f"{files.id} holds offsets of {gone.id}, which this restore has passed and "
                return _refused(gone.where, f"{what}which was removed since", _ROWS)
    return None


def _before_values(
    where: TopicPartition,
    sets: Sequence[FileSet],
    known: Mapping[str, Facts | None],
    offset: int,
) -> KbackupError | None:
    """Refuse full records among those before the values at hand that were left out, or are new."""
    for files in sets:
        said = known.get(files.id)
        last = files.start_offset if said is None else said.last_offset
        if files.is_whole and last >= offset:
            what = f"{files.id} holds records before those of values that this restore has passed"
            why = "they would come after these; --only-format may have left them out"
            return _refused(where, f"{what}, and was not read before", why)
    return None


def unfinished(store: Store, sets: Sequence[FileSet], offset: int) -> list[FileSet]:
    """Return *sets* without those of full records that end below *offset*."""
    ended = _ended(_begun(partial(facts_of_begun, store), sets, offset), offset)
    return [files for files in sets if files.id not in ended]


def _begun(facts_of: FactsOf, sets: Sequence[FileSet], offset: int) -> dict[str, Facts | None]:
    """Return what is known of the full-record sets that begin below *offset*, in order."""
    begun = [files for files in sets if files.is_whole and files.start_offset < offset]
    known = side_by_side(facts_of, begun)
    return {files.id: said for files, said in zip(begun, known, strict=True)}


def _ended(known: Mapping[str, Facts | None], offset: int) -> set[str]:
    ended = {key for key, said in known.items() if said is not None and said.last_offset < offset}
    for key, said in list(known.items())[-1:]:
        if said is not None and not said.sha256:
            ended.discard(key)
    return ended


def facts_of_begun(store: Store, files: FileSet) -> Facts | None:
    """Return what an object says of itself, by its metadata or at its beginning."""
    if files.main is None:
        return None
    return facts(store, files.main) or extent(store, files.main)


def _is_replaced(sets: Sequence[FileSet], cursor: Cursor) -> bool:
    """Whether full records have, of values that are done, what full records are not done of."""
    begun = any(files.is_whole and files.start_offset < cursor.reached for files in sets)
    return begun and cursor.reached > cursor.offset


def _done_values(
    facts_of: FactsOf,
    where: TopicPartition,
    sets: Sequence[FileSet],
    at: int | None,  # the one of them that the restore was in
    cursor: Cursor,
    gone: Collection[FileSet],  # some of them
) -> tuple[set[str], str, KbackupError | None]:
    """Return the value sets that are done, their chain, and what is wrong with them."""
    lost = {files.part for files in gone}
    there = [one for one in sets if not one.is_whole and one.part not in lost]
    if not cursor.values:
        late = any(not one.is_generic and one.begin < cursor.offset for one in there)
        what = (
            f"the backup has value objects below offset {cursor.offset} that were not read before"
        )
        why = "this restore has passed their offsets with full records, and their rows carry none"
        return set(), "", _refused(where, what, why) if late else None
    if not (there or _is_replaced(sets, cursor)):
        return set(), "", None
    if at is None:
        why = "its rows carry no offsets, so where to continue is unknown"
        what = f"{where}: the object in which this restore stopped is missing"
        if any(files.is_whole for files in sets):
            what += ", or full records have replaced rows of it"
        return set(), "", IncompleteBackupError(what, why, _DO, **where.place)
    done = [files for files in sets[:at] if not files.is_whole]
    before = chained("", done)
    if cursor.before != before:
        what = "objects that this restore has passed were added, changed or removed"
        return set(), "", _refused(where, what, _ROWS)
    if sets[at].part not in lost and _has_others_beside(sets[at], cursor):
        why = "the records that it has written of these values came without them"
        what = f"keys or headers were stored beside {sets[at].id} after it was restored"
        return set(), "", _refused(where, what, why)
    is_named = not (sets[at].is_whole or sets[at].is_generic)
    known = facts_of(sets[at]) if is_named else None
    if sets[at].part in lost or (known is not None and known.records <= cursor.rows):
        done, before = [*done, sets[at]], chained(before, [sets[at]])
    return {files.part for files in done}, before, None


def _has_others_beside(files: FileSet, cursor: Cursor) -> bool:
    """Whether keys or headers beside the values at hand are not those that were read with them."""
    if not (cursor.sizes and cursor.rows):
        return False
    (then, *before), (now, *beside) = cursor.sizes, files.sizes
    pairs = zip(before, beside, strict=False)
    return any(one not in (None, was) and (was is None or now == then) for was, one in pairs)


def _gained(
    where: TopicPartition,
    known: Iterable[tuple[Hashable, Facts]],
    offset: int,
    total: int,
) -> KbackupError | None:
    """Refuse a backup that holds more records below the position than were restored from it."""
    # objects that overlap, or reach beyond it, count for what they have there at least; those of
    # one cut in full: a sink at work then may have stored one of them only since
    least, other = 0, 0
    highest: tuple[Hashable, int] = (None, 0)  # which cut reaches furthest; the others to *other*
    for cut, said in sorted(known, key=lambda pair: pair[1].first_offset):
        reach = other if cut == highest[0] else highest[1]
        twice = max(0, reach - said.first_offset)
        beyond = max(0, said.last_offset + 1 - offset)
        least += max(0, said.records - twice - beyond)
        end = said.last_offset + 1
        if cut == highest[0]:
            highest = cut, max(highest[1], end)
        elif end > highest[1]:
            highest, other = (cut, end), highest[1]
        else:
            other = max(other, end)
    if least <= total:
        return None
    what = f"the backup has gained {counted(least - total, 'record')} below offset {offset}"
    why = "this restore has passed them, and restores records in the order of their offsets"
    return _refused(where, what, why)


def _refused(where: TopicPartition, what: str, why: str) -> RefusedError:
    return RefusedError(f"{where}: {what}", why, _DO, **where.place)


class ResumedValues:
    """What has been read of one value set, compared with what an earlier run had read.

    A set that a sink has named is only as long as its records, so its length is compared.  Objects
    of any name may be replaced by anyone, so their rows are, by a digest.
    """

    def __init__(self, files: FileSet, cursor: Cursor) -> None:
        self._files, self._done, self._expected = files, cursor.rows, cursor.content
        self._rows, self._is_compared = 0, not cursor.rows
        self._lengths, self._bytes = hashlib.sha256(), hashlib.sha256()

    def take(self, batch: pa.RecordBatch, end_row: int) -> str:
        """Take rows that were read; return the digest of all so far, empty for a sink's.

        Args:
            batch: ``records.SCHEMA``, what follows the rows taken before; of a sink's set, rows
                that nobody asked for may be left out between them.
            end_row: Rows of the set up to the end of *batch*.

        Raises:
            RefusedError: If they are others than those that were restored.
        """
        self._rows = end_row
        if not self._files.is_generic:
            return ""
        if not self._is_compared and self._done <= end_row:
            self._is_compared = True
            again = max(0, self._done - (end_row - len(batch)))
            self._add(batch.slice(0, again))
            if self._expected and self._digest() != self._expected:
                count = self._done
                first = "record" if count == 1 else f"{count} records"
                are = form(count, "is another", "are others")
                raise self._replaced(f"the first {first} in it {are}")
            batch = batch.slice(again)
        self._add(batch)
        return self._digest()

    def pass_over(self, end_row: int) -> bool:
        """Take rows that cannot be read, up to *end_row* of the set; return whether any is new."""
        self._rows = max(self._rows, end_row)
        return end_row > self._done

    def end(self) -> None:
        """Note that the set has no more rows; `RefusedError` if more were restored."""
        if self._rows < self._done:
            were = form(self._done, "was", "were")
            held = counted(self._rows, "record")
            raise self._replaced(f"it holds {held}, and {self._done} {were} restored")

    def _add(self, batch: pa.RecordBatch) -> None:
        for name in ("key", "value"):
            column = batch[name]
            lengths = pc.fill_null(pc.binary_length(column), -1)
            width = lengths.type.bit_width // 8
            held_in = lengths.buffers()[1].slice(lengths.offset * width, len(lengths) * width)
            self._lengths.update(held_in)
            held = column.drop_null()
            if len(held):
                rows = pa.ListArray.from_arrays(pa.array([0, len(held)], pa.int32()), held)
                self._bytes.update(pc.binary_join(rows, b"")[0].as_buffer())

    def _digest(self) -> str:
        both = self._lengths.digest() + self._bytes.digest()
        return hashlib.sha256(both).hexdigest()[:16]

    def _replaced(self, why: str) -> RefusedError:
        what = f"{self._files.id} was replaced after it was restored"
        return RefusedError(what, why, _DO, **self._files.where.place)
