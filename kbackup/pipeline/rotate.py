"""Decide where files end: pure functions of rows or batches, of what is open, and of a given clock.

`cut` passes rows through and says where files end: it asks all rules, and the first one to close
the files wins.  A `by_...` function returns how many of the rows that follow the open files still
take, None where it sets no limit; `Rule` holds the limits of all.  All open files of a partition
close together.  A rerun from the last committed offset cuts at the same places, however the records
arrive in batches, so a retry overwrites itself with the same records; the one exception is a
schedule, which follows the clock.

Source: kafka-connect-storage-cloud 87eb7d39, ``TopicPartitionWriter``, restated.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from typing import Final, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.batches import APPEND_TIME, DELETE_HORIZON, Batches
from kbackup.java import joda
from kbackup.java.joda import DAY_MS
from kbackup.pipeline.convert import Compatibility, joins
from kbackup.pipeline.rows import NO_TOMBSTONES, Rows, in_directory, keys_of, room_beside_tombstones
from kbackup.records import Schema, Span, batch_bytes, known_times, record_bytes


@dataclass(frozen=True, slots=True)
class Schedule:
    """Every *interval_ms* from local midnight on; the last slot of a day may be short."""

    interval_ms: int
    timezone: str

    def next(self, now_ms: int) -> int:
        """Return the first boundary after *now_ms*, both in ms since the epoch.

        Days of 23 and 25 hours are honoured.  Source: storage-common 9bb1f372,
        ``DateTimeUtils.getNextTimeAdjustedByDay``.
        """
        zone = joda.zone_by_id(self.timezone)
        day = (now_ms + zone.offset(now_ms)) // DAY_MS
        start, end = (zone.to_utc(at * DAY_MS) for at in (day, day + 1))
        slot = (now_ms - start) // self.interval_ms + 1
        return min(start + slot * self.interval_ms, end)


OPEN_FILES: Final = 128
"""Directories with an open file at a time.  It bounds file handles: three views each, one cut
being filled and one being stored."""


class Reason(StrEnum):
    """Why files were closed; `_cut` goes by it, and whoever writes them need not know."""

    RECORDS = "flush.size"
    BYTES = "rotate.bytes"
    SPAN = "rotate.interval.ms"
    DIRECTORY = "rotate.file.on.partition.change"
    SCHEDULE = "rotate.schedule.interval.ms"
    SCHEMA = "schema.compatibility"
    OPEN_FILES = "partitioner.max.open.files"
    TOMBSTONES = "behavior.on.null.values"
    STORED = "stored before"


@dataclass(frozen=True, slots=True)
class Rule:
    """When to cut; whichever comes first.  None means never for that reason.

    Attributes:
        records: After the record that makes this many in all open files, as the connectors'
            ``flush.size``; below 1 counts as 1.
        bytes: After the record that makes this many bytes of ``records.record_bytes``.
        span_ms: Before a record whose time is this much later than the first one's; a late
            record never cuts.
        on_directory_change: Before a record that goes to another directory than the one before
            it; only together with *span_ms*.
        schedule: At these boundaries of the clock.
        open_files: Before a record that would open a file in one more directory than this.
        compatibility: Before a record whose schema the open file of its directory does not take.
        tombstones: The directory of tombstones, whose files are of no schema of values and which no
            record comes from or goes to as far as *on_directory_change* is concerned; empty where
            there are none.  Files end where the order of some key would be lost.
        stored: At the start and the end of each of these, which are in order and apart.  Within
            one, only what a file cannot take closes files before its end.
    """

    records: int | None = None
    bytes: int | None = None
    span_ms: int | None = None
    on_directory_change: bool = False
    schedule: Schedule | None = None
    open_files: int | None = OPEN_FILES
    compatibility: Compatibility = Compatibility.NONE
    tombstones: str = NO_TOMBSTONES
    stored: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Open:
    """What is open.

    Attributes:
        records: Records in all open files.
        base_time: Time of the first record that has one, None if there is none.
        last_directory: Where the last record went; empty without records.
        last_offset: Offset of the last record, -1 without.
        schemas: For each directory with an open file, the schemas of its parts.
        boundary: Time of the next scheduled cut, None without a schedule.
        deleted: The keys of the tombstones in the open files.
    """

    records: int = 0
    bytes: int = 0
    base_time: int | None = None
    last_directory: str = ""
    last_offset: int = -1
    schemas: Mapping[str, tuple[Schema | None, ...]] = field(default_factory=dict)
    boundary: int | None = None
    deleted: pa.ChunkedArray | None = None

    def grown(self, some: Rows | Batches, rule: Rule) -> "Open":
        """Return what is open once *some*, one row or batch at least, are in it too."""
        if isinstance(some, Batches):
            return self._with(_times(some), some.records, some.bytes, some.next_offset - 1)
        size = batch_bytes(some.batch)
        found, schemas = _directories(some), self.schemas
        if any(name not in schemas for name in found):
            schemas = {**dict.fromkeys(found, some.schemas), **schemas}
        return replace(
            self._with(some.times, len(some), size, some.last_offset),
            last_directory=some.directories[-1].as_py(),  # type: ignore[index]
            schemas=schemas,
            deleted=self._deleted_with(some, rule) if rule.tombstones in found else self.deleted,
        )

    def _with(self, times: pa.Int64Array, records: int, size: int, last_offset: int) -> "Open":
        base = _earliest(times) if self.base_time is None else self.base_time
        return replace(
            self, records=self.records + records, bytes=self.bytes + size, base_time=base,
            last_offset=last_offset,
        )  # fmt: skip

    def _deleted_with(self, rows: Rows, rule: Rule) -> pa.ChunkedArray:
        more = keys_of(rows).filter(in_directory(rows, rule.tombstones))
        before = [] if self.deleted is None else self.deleted.chunks
        return pa.chunked_array([*before, more], more.type)


def by_stored(state: Open, some: Rows | Batches, rule: Rule) -> int | None:
    """Room before the next start or end of what is stored already."""
    at = _boundary(state, some, rule)
    if at is None or not len(some):
        return None
    end = some.last_offset + 1 if isinstance(some, Rows) else some.next_offset
    room: int = pc.sum(pc.less(_offsets(some), at)).as_py() or 0
    return room if room < len(some) or end >= at else None


def is_stored(state: Open, some: Rows | Batches, rule: Rule) -> bool:
    """Whether the open files begin within what is stored already."""
    offset, span = _coming(state, some, rule)
    return span is not None and span.start_offset <= offset


def _boundary(state: Open, some: Rows | Batches, rule: Rule) -> int | None:
    """Return the first start or end of what is stored already that is behind the open files."""
    offset, span = _coming(state, some, rule)
    if span is None:
        return None
    return span.end_offset if span.start_offset <= offset else span.start_offset


def _coming(state: Open, some: Rows | Batches, rule: Rule) -> tuple[int, Span | None]:
    """Return an offset of the files that are open, or -1, and what is stored and ends behind it."""
    if not rule.stored or not (len(some) or state.records):
        return -1, None
    offset: int = state.last_offset if state.records else _offsets(some)[0].as_py()
    at = bisect_right(rule.stored, offset, key=attrgetter("end_offset"))
    return offset, rule.stored[at] if at < len(rule.stored) else None


def _offsets(some: Rows | Batches) -> pa.Int64Array:
    """Return the offset of each row, or the first one of each batch."""
    return some.batch["offset"] if isinstance(some, Rows) else some.headers["base_offset"]


def by_records(state: Open, rows: Rows, rule: Rule) -> int | None:
    """Room up to the record that makes the number."""
    if rule.records is None:
        return None
    left = max(1, rule.records) - state.records
    return left if left <= len(rows) and len(rows) else None


def by_bytes(state: Open, rows: Rows, rule: Rule) -> int | None:
    """Room up to the record that makes the bytes."""
    if rule.bytes is None or not len(rows) or state.bytes + batch_bytes(rows.batch) < rule.bytes:
        return None
    up_to = pc.cumulative_sum(record_bytes(rows.batch))
    at: int = pc.index(pc.greater_equal(up_to, rule.bytes - state.bytes), True).as_py()
    return at + 1 if at >= 0 else None


def by_span(state: Open, some: Rows | Batches, rule: Rule) -> int | None:
    """Room before the first record, or batch, that is the span, or more, later than the first."""
    if rule.span_ms is None:
        return None
    times = _times(some)
    base = _earliest(times) if state.base_time is None else state.base_time
    if base is None:
        return None
    latest = pc.max(times).as_py()
    if latest is None or latest < base + rule.span_ms:
        return None
    at: int = pc.index(pc.greater_equal(times, base + rule.span_ms), True).as_py()
    return at if at > 0 or state.records else None  # the first row of new files is never late


def by_directory_change(state: Open, rows: Rows, rule: Rule) -> int | None:
    """Room before the first record that goes elsewhere than the one before it."""
    if not rule.on_directory_change or rule.span_ms is None or not len(rows):
        return None
    assert rows.directories is not None  # noqa: S101
    first, last = rows.directories[0].as_py(), state.last_directory
    if state.records and first != last and rule.tombstones not in (first, last):
        return 0
    indices = rows.directories.indices
    is_new = pc.not_equal(indices[1:], indices[:-1])
    if rule.tombstones:
        is_value = pc.invert(in_directory(rows, rule.tombstones))
        is_new = pc.and_(is_new, pc.and_(is_value[1:], is_value[:-1]))
    at: int = pc.index(is_new, True).as_py()
    return at + 1 if at >= 0 else None


def by_schedule(state: Open, now: int) -> int | None:
    """No room once the boundary has passed."""
    is_due = state.records and state.boundary is not None and now >= state.boundary
    return 0 if is_due else None


def by_schema(state: Open, rows: Rows, rule: Rule) -> int | None:
    """Room before the first record whose directory has a file that does not take its schemas.

    Only the value's schema, which is the last, is compared as the rule says; keys and headers go
    into one file with their equals.
    """
    if all(schemas == rows.schemas for schemas in state.schemas.values()):
        return None
    foreign = [
        name
        for name in _directories(rows)
        if name in state.schemas
        and not _fit(state.schemas[name], rows.schemas, rule, has_values=name != rule.tombstones)
    ]
    return _first_in(rows, foreign)


def by_tombstones(state: Open, rows: Rows, rule: Rule) -> int | None:
    """Room before the first value that a restore would deliver before a tombstone of its key."""
    if not rule.tombstones or not len(rows):
        return None
    deleted = pa.chunked_array([], keys_of(rows).type)
    if state.deleted is not None:
        deleted = state.deleted
    found = room_beside_tombstones(rows, rule.tombstones, frozenset(state.schemas), deleted)
    return found if found < len(rows) else None


def by_open_files(state: Open, rows: Rows, rule: Rule) -> int | None:
    """Room before the first record that needs one directory too many."""
    if rule.open_files is None:
        return None
    new = [name for name in _directories(rows) if name not in state.schemas]
    return _first_in(rows, new[max(1, rule.open_files) - len(state.schemas) :])


def _fit(
    file: tuple[Schema | None, ...],
    rows: tuple[Schema | None, ...],
    rule: Rule,
    *,
    has_values: bool,
) -> bool:
    if file[:-1] != rows[:-1]:
        return False
    return not has_values or joins(rule.compatibility, file[-1], rows[-1])


def _directories(rows: Rows) -> list[str]:
    """Return the directories of *rows*, in the order in which they appear."""
    assert rows.directories is not None  # noqa: S101  (only routed rows are cut)
    names = rows.directories.dictionary
    if len(names) == 1:
        return [names[0].as_py()] if len(rows) else []
    return [names[at].as_py() for at in rows.directories.indices.unique().to_pylist()]


def _first_in(rows: Rows, directories: list[str]) -> int | None:
    if not directories:
        return None
    assert rows.directories is not None  # noqa: S101
    wanted = pc.is_in(rows.directories.dictionary, pa.array(directories, pa.string()))
    is_there = wanted.take(rows.directories.indices)
    at: int = pc.index(is_there, True).as_py()
    return at


Item = TypeVar("Item")
Some = TypeVar("Some", Rows, Batches)
Limits = list[tuple[Reason, int | None]]
"""How many rows or batches still fit, by each reason to end a file; None where all do."""


@dataclass(frozen=True, slots=True)
class Append(Generic[Item]):
    """These rows, or batches, belong to the open files; of rows, bytes of ``record_bytes``."""

    rows: Item
    bytes: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The open files end here; *next_offset* is the first offset that they do not cover."""

    next_offset: int
    reason: Reason


def cut(
    stream: Iterable[Rows],
    rule: Rule,
    clock: Callable[[], int] | None = None,
) -> Iterator[Append[Rows] | Cut]:
    """Decide which rows go to which files.

    Args:
        stream: Routed rows of one topic-partition, offsets rising; consumed once, lazily.  Empty
            ones only show that time has passed.
        clock: Gives the time in ms since the epoch; asked once for each element of *stream*, and
            only for a schedule.

    Yields:
        `Append` with at least one row, in order, and `Cut` between files.  Last files that no rule
        closed are left open: only the caller knows whether more comes.
    """
    yield from _cut(stream, rule, clock, _room)


def cut_batches(
    stream: Iterable[Batches], rule: Rule, clock: Callable[[], int] | None = None
) -> Iterator[Append[Batches] | Cut]:
    """Decide which batches go to which files, as `cut` does for rows: files end between batches.

    Records are counted by headers, bytes as they were sent.  The time of a batch is that of its
    first record, or where its header does not say it, of its latest.  Directories and schemas are
    no matter.
    """
    yield from _cut(stream, rule, clock, _room_of_batches)


def _cut(
    stream: Iterable[Some],
    rule: Rule,
    clock: Callable[[], int] | None,
    room_of: Callable[[Open, Some, Rule, int], tuple[int, Reason | None]],
) -> Iterator[Append[Some] | Cut]:
    """Cut rows or batches; *room_of* says how many the open files take, and why no more."""
    state = _begin(rule, clock)
    for some in stream:
        now = 0 if clock is None else clock()
        if not state.records and state.boundary is not None and now >= state.boundary:
            state = _begin(rule, clock)
        rest = some
        while True:
            room, reason = room_of(state, rest, rule, now)
            before = state
            if room:
                part = rest if room == len(rest) else rest.slice(0, room)
                state = before.grown(part, rule)
                yield Append(part, state.bytes - before.bytes)
            if reason is not None:
                after = state.last_offset + 1
                if reason is Reason.STORED:  # the cut before ended there, with the same records
                    after = max(after, _boundary(before, rest, rule) or 0)
                yield Cut(after, reason)
                restarts_schedule = reason in (Reason.SCHEDULE, Reason.SPAN, Reason.DIRECTORY)
                kept = Open(boundary=state.boundary)
                state = _begin(rule, clock) if restarts_schedule else kept
            if room == len(rest):
                break
            if room:
                rest = rest.slice(room)


def _begin(rule: Rule, clock: Callable[[], int] | None) -> Open:
    if rule.schedule is None or clock is None:
        return Open()
    return Open(boundary=rule.schedule.next(clock()))


def _room(state: Open, rows: Rows, rule: Rule, now: int) -> tuple[int, Reason | None]:
    bound = [  # by what files can take, and what is stored: these always hold
        (Reason.STORED, by_stored(state, rows, rule)),
        (Reason.SCHEMA, by_schema(state, rows, rule)),
        (Reason.OPEN_FILES, by_open_files(state, rows, rule)),
        (Reason.TOMBSTONES, by_tombstones(state, rows, rule)),
    ]
    chosen = [  # by configuration: not within what is stored
        (Reason.RECORDS, by_records(state, rows, rule)),
        (Reason.BYTES, by_bytes(state, rows, rule)),
        (Reason.SPAN, by_span(state, rows, rule)),
        (Reason.DIRECTORY, by_directory_change(state, rows, rule)),
        (Reason.SCHEDULE, by_schedule(state, now)),
    ]
    return _least(state, rows, rule, chosen, bound)


def _room_of_batches(
    state: Open, batches: Batches, rule: Rule, now: int
) -> tuple[int, Reason | None]:
    bound = [(Reason.STORED, by_stored(state, batches, rule))]
    chosen = [
        (Reason.SCHEDULE, by_schedule(state, now)),
        (Reason.RECORDS, _batches_to_sum(batches, "count", rule.records, state.records)),
        (Reason.BYTES, _batches_to_sum(batches, "length", rule.bytes, state.bytes)),
        (Reason.SPAN, by_span(state, batches, rule)),
    ]
    return _least(state, batches, rule, chosen, bound)


def _least(
    state: Open, some: Rows | Batches, rule: Rule, chosen: Limits, bound: Limits
) -> tuple[int, Reason | None]:
    """Return the first of the lowest limits; within what is stored those *chosen* do not count."""
    best: tuple[int, Reason | None] = (len(some), None)
    for reason, room in bound if is_stored(state, some, rule) else [*chosen, *bound]:
        if room is not None and (room < best[0] or (room == best[0] and best[1] is None)):
            best = (room, reason)
    return best


def _batches_to_sum(batches: Batches, column: str, limit: int | None, before: int) -> int | None:
    """Room up to the batch that makes the sum of a column so large."""
    if limit is None or not len(batches):
        return None
    up_to = pc.cumulative_sum(batches.headers[column].cast(pa.int64()))
    left = max(1, limit) - before
    if up_to[-1].as_py() < left:
        return None
    return int(pc.index(pc.greater_equal(up_to, left), True).as_py()) + 1


def _times(some: Rows | Batches) -> pa.Int64Array:
    """Return the time of each row or batch, null where it has none."""
    if isinstance(some, Rows):
        return some.times
    headers = some.headers
    is_other = some.flagged(APPEND_TIME | DELETE_HORIZON)
    times = pc.if_else(is_other, headers["max_timestamp"], headers["base_timestamp"])
    return known_times(times)


def _earliest(times: pa.Int64Array) -> int | None:
    """Return the first time that there is."""
    found = times.drop_null() if times.null_count else times
    return found[0].as_py() if len(found) else None
