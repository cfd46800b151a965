"""Where files end: pure functions of rows or batches, of what is open, and of a clock given.

`cut` passes rows through and says where files end: it asks all rules, and the first one to close
the files wins.  A rule returns how many of the rows that follow the open files still take, None
where it sets no limit.  All open files of a partition close together.  A rerun from the last
committed offset cuts at the same places, however the records arrive in batches, so a retry
overwrites itself with the same records; the one exception is a schedule, which follows the clock.

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
from kbackup.pipeline.rows import NO_TOMBSTONES, Rows, go_to, keys_of, room_beside_tombstones
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
    """Why files were closed."""

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

    def grown(self, rows: Rows, size: int, rule: Rule) -> "Open":
        """Return what is open once *rows*, one at least and of *size* bytes, are in it too."""
        found = _directories(rows)
        schemas = self.schemas
        if any(name not in schemas for name in found):
            schemas = {**dict.fromkeys(found, rows.schemas), **schemas}
        base = self.base_time
        return replace(
            self,
            records=self.records + len(rows),
            bytes=self.bytes + size,
            base_time=_earliest(rows.times) if base is None else base,
            last_directory=rows.directories[-1].as_py(),  # type: ignore[index]
            last_offset=rows.last_offset,
            schemas=schemas,
            deleted=self._deleted_with(rows, rule) if rule.tombstones in found else self.deleted,
        )

    def _deleted_with(self, rows: Rows, rule: Rule) -> pa.ChunkedArray:
        more = keys_of(rows).filter(go_to(rows, rule.tombstones))
        before = [] if self.deleted is None else self.deleted.chunks
        return pa.chunked_array([*before, more], more.type)


def by_stored(state: Open, rows: Rows, rule: Rule) -> int | None:
    """Room before the next start or end of what is stored already."""
    if not rule.stored or not len(rows):
        return None
    at = stored_boundary(rule, _first(state, rows))
    if at is None:
        return None
    room: int = pc.sum(pc.less(rows.batch["offset"], at)).as_py() or 0
    return room if room < len(rows) or rows.last_offset == at - 1 else None


def is_stored(state: Open, rows: Rows, rule: Rule) -> bool:
    """Whether the open files begin within what is stored already."""
    if not rule.stored or not (len(rows) or state.records):
        return False
    return is_within_stored(rule, _first(state, rows))


def is_within_stored(rule: Rule, offset: int) -> bool:
    """Whether *offset* is within what is stored already."""
    span = _coming(rule, offset)
    return span is not None and span.start_offset <= offset


def _first(state: Open, rows: Rows) -> int:
    """Return an offset in the files that are open, or are to be opened with *rows*."""
    first: int = state.last_offset if state.records else rows.batch["offset"][0].as_py()
    return first


def stored_boundary(rule: Rule, offset: int) -> int | None:
    """Return the first start or end of what is stored already that is after *offset*."""
    span = _coming(rule, offset)
    if span is None:
        return None
    return span.end_offset if span.start_offset <= offset else span.start_offset


def _coming(rule: Rule, offset: int) -> Span | None:
    """Return what is stored already and ends next after *offset*."""
    at = bisect_right(rule.stored, offset, key=attrgetter("end_offset"))
    return rule.stored[at] if at < len(rule.stored) else None


def by_records(state: Open, rows: Rows, rule: Rule) -> int | None:
    """Room up to the record that makes the number."""
    if rule.records is None:
        return None
    left = max(1, rule.records) - state.records
    return left if left <= len(rows) and len(rows) else None


def by_bytes(state: Open, rows: Rows, size: int, rule: Rule) -> int | None:
    """Room up to the record that makes the bytes; *rows* have *size* of them."""
    if rule.bytes is None or state.bytes + size < rule.bytes or not len(rows):
        return None
    up_to = pc.cumulative_sum(record_bytes(rows.batch))
    at: int = pc.index(pc.greater_equal(up_to, rule.bytes - state.bytes), True).as_py()
    return at + 1 if at >= 0 else None


def by_span(state: Open, rows: Rows, rule: Rule) -> int | None:
    """Room before the first record that is the span, or more, later than the first one."""
    if rule.span_ms is None:
        return None
    base = _earliest(rows.times) if state.base_time is None else state.base_time
    if base is None:
        return None
    latest = pc.max(rows.times).as_py()
    if latest is None or latest < base + rule.span_ms:
        return None
    at: int = pc.index(pc.greater_equal(rows.times, base + rule.span_ms), True).as_py()
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
        is_value = pc.invert(go_to(rows, rule.tombstones))
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
    state = _begin(rule, clock)
    for rows in stream:
        now = 0 if clock is None else clock()
        if not state.records and state.boundary is not None and now >= state.boundary:
            state = _begin(rule, clock)
        start = 0
        while True:
            rest = rows if start == 0 else rows.slice(start)
            size = batch_bytes(rest.batch)
            room, reason = _room(state, rest, size, rule, now)
            if room:
                part = rest
                if room < len(rest):
                    part = rest.slice(0, room)
                    size = batch_bytes(part.batch)
                state = state.grown(part, size, rule)
                yield Append(part, size)
            if reason is not None:
                after = state.last_offset + 1
                if reason is Reason.STORED:  # the cut before ended there, with the same records
                    after = stored_boundary(rule, state.last_offset) or after
                yield Cut(after, reason)
                restarts_schedule = reason in (Reason.SCHEDULE, Reason.SPAN, Reason.DIRECTORY)
                kept = Open(boundary=state.boundary)
                state = _begin(rule, clock) if restarts_schedule else kept
            start += room
            if start >= len(rows):
                break


def _begin(rule: Rule, clock: Callable[[], int] | None) -> Open:
    if rule.schedule is None or clock is None:
        return Open()
    return Open(boundary=rule.schedule.next(clock()))


def _room(state: Open, rows: Rows, size: int, rule: Rule, now: int) -> tuple[int, Reason | None]:
    """How many of *rows* the open files take, and why no more; None where they take all."""
    best: tuple[int, Reason | None] = (len(rows), None)
    bound = [
        (Reason.STORED, by_stored(state, rows, rule)),
        (Reason.SCHEMA, by_schema(state, rows, rule)),
        (Reason.OPEN_FILES, by_open_files(state, rows, rule)),
        (Reason.TOMBSTONES, by_tombstones(state, rows, rule)),
    ]
    chosen = [
        (Reason.RECORDS, by_records(state, rows, rule)),
        (Reason.BYTES, by_bytes(state, rows, size, rule)),
        (Reason.SPAN, by_span(state, rows, rule)),
        (Reason.DIRECTORY, by_directory_change(state, rows, rule)),
        (Reason.SCHEDULE, by_schedule(state, now)),
    ]
    limits = bound if is_stored(state, rows, rule) else [*chosen, *bound]
    for reason, room in limits:
        if room is not None and (room < best[0] or (room == best[0] and best[1] is None)):
            best = (room, reason)
    return best


def cut_batches(
    stream: Iterable[Batches], rule: Rule, clock: Callable[[], int] | None = None
) -> Iterator[Append[Batches] | Cut]:
    """Decide which batches go to which files, as `cut` does for rows: files end between batches.

    Records are counted by headers, bytes as they were sent.  The time of a batch is that of its
    first record, or where its header does not say it, of its latest.  Directories and schemas are
    no matter.
    """
    state = _begin(rule, clock)
    for batches in stream:
        now = 0 if clock is None else clock()
        if not state.records and state.boundary is not None and now >= state.boundary:
            state = _begin(rule, clock)
        rest = batches
        while len(rest):
            first = state.last_offset if state.records else rest.first_offset
            stored = stored_boundary(rule, first)
            if is_within_stored(rule, first):
                room, reason = _batches_to_stored(rest, stored)
            else:
                room, reason = _room_of_batches(state, rest, rule, now, stored)
            if room:
                part = rest if room == len(rest) else rest.slice(0, room)
                state = _with_batches(state, part)
                yield Append(part, part.bytes)
            if reason is not None:
                after = state.last_offset + 1
                if reason is Reason.STORED:
                    after = max(after, stored or 0)
                yield Cut(after, reason)
                restarts_schedule = reason in (Reason.SCHEDULE, Reason.SPAN)
                state = _begin(rule, clock) if restarts_schedule else Open(boundary=state.boundary)
            rest = rest.slice(room)


def _room_of_batches(
    state: Open, batches: Batches, rule: Rule, now: int, stored: int | None
) -> tuple[int, Reason | None]:
    """How many of *batches* the open file takes, and why no more; None where it takes all."""
    if state.records and state.boundary is not None and now >= state.boundary:
        return 0, Reason.SCHEDULE
    limits = (
        (Reason.RECORDS, _batches_to_sum(batches, "count", rule.records, state.records)),
        (Reason.BYTES, _batches_to_sum(batches, "length", rule.bytes, state.bytes)),
        (Reason.SPAN, _batches_to_span(state, batches, rule)),
    )
    found = [(room, reason) for reason, room in limits if room is not None]
    return min([*found, _batches_to_stored(batches, stored)], key=lambda each: each[0])


def _batches_to_stored(batches: Batches, stored: int | None) -> tuple[int, Reason | None]:
    """Room before the next start or end of what is stored already."""
    if stored is None:
        return len(batches), None
    room: int = pc.sum(pc.less(batches.headers["base_offset"], stored)).as_py() or 0
    is_reached = room < len(batches) or batches.next_offset >= stored
    return room, Reason.STORED if is_reached else None


def _batches_to_sum(batches: Batches, column: str, limit: int | None, before: int) -> int | None:
    """Room up to the batch that makes the sum of a column so large."""
    if limit is None:
        return None
    up_to = pc.cumulative_sum(batches.headers[column].cast(pa.int64()))
    left = max(1, limit) - before
    if up_to[-1].as_py() < left:
        return None
    return int(pc.index(pc.greater_equal(up_to, left), True).as_py()) + 1


def _batches_to_span(state: Open, batches: Batches, rule: Rule) -> int | None:
    """Room before the first batch that is the span, or more, later than the first one."""
    if rule.span_ms is None:
        return None
    times = _times(batches)
    base = _earliest(times) if state.base_time is None else state.base_time
    if base is None:
        return None
    at = int(pc.index(pc.greater_equal(times, base + rule.span_ms), True).as_py())
    return at if at > 0 or (at == 0 and state.records) else None


def _times(batches: Batches) -> pa.Int64Array:
    """Return the time of each batch, null where it has none."""
    headers = batches.headers
    is_other = batches.flagged(APPEND_TIME | DELETE_HORIZON)
    times = pc.if_else(is_other, headers["max_timestamp"], headers["base_timestamp"])
    return known_times(times)


def _earliest(times: pa.Int64Array) -> int | None:
    """Return the first time that there is."""
    found = times.drop_null() if times.null_count else times
    return found[0].as_py() if len(found) else None


def _with_batches(state: Open, batches: Batches) -> Open:
    base = state.base_time
    return replace(
        state,
        records=state.records + batches.records,
        bytes=state.bytes + batches.bytes,
        base_time=_earliest(_times(batches)) if base is None else base,
        last_offset=batches.next_offset - 1,
    )
