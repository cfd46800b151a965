"""Where files end: a pure function of the rows, and of a clock that is an argument.

`cut` passes rows through and says where files end, by `kbackup.flow.rules`.  All open files of a
partition close together.  A rerun from the last committed offset cuts at the same places, however
the records arrive in batches, so a retry overwrites itself with the same records; the one exception
is a schedule, which follows the clock.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kbackup.flow import rules
from kbackup.flow.rows import Rows
from kbackup.flow.rules import Open, Reason, Rule
from kbackup.records import Span, batch_bytes


@dataclass(frozen=True, slots=True)
class Append:
    """These rows, of so many bytes of ``records.record_bytes``, belong to the open files."""

    rows: Rows
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
    span: Span | None = None,
) -> Iterator[Append | Cut]:
    """Decide which rows go to which files.

    Args:
        stream: Routed rows of one topic-partition, offsets rising; consumed once, lazily.  Empty
            ones only show that time has passed.
        rule: When to cut.
        clock: Gives the time in ms since the epoch; asked once for each element of *stream*, and
            only for a schedule.
        span: What *stream* was read from; None: from its first row to its last.

    Yields:
        `Append` with at least one row, in order, and `Cut` between files, or where no file is open
        and a gap in the offsets passes a multiple of ``Rule.every``.  Last files that no rule
        closed are left open: only the caller knows whether more comes.
    """
    state = _begin(rule, clock, None if span is None else span.start_offset)
    for rows in stream:
        now = 0 if clock is None else clock()
        if not state.records and state.boundary is not None and now >= state.boundary:
            state = _begin(rule, clock, state.begin)
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
                    after = rules.stored_boundary(rule, state.last_offset) or after
                if reason is Reason.MULTIPLE:
                    after = rules.multiple_before(state, rest, room, rule)
                yield Cut(after, reason)
                by_clock = reason in (Reason.SCHEDULE, Reason.SPAN, Reason.DIRECTORY)
                kept = Open(boundary=state.boundary, begin=after)
                state = _begin(rule, clock, after) if by_clock else kept
            start += room
            if start >= len(rows):
                break
    if rule.every is not None and span is not None and state.records:
        after = rules.multiple_after(state.last_offset, rule.every)
        if after <= span.end_offset:  # no record comes after it, but all before it have come
            yield Cut(after, Reason.MULTIPLE)


def _begin(rule: Rule, clock: Callable[[], int] | None, begin: int | None) -> Open:
    if rule.schedule is None or clock is None:
        return Open(begin=begin)
    return Open(boundary=rule.schedule.next(clock()), begin=begin)


def _room(state: Open, rows: Rows, size: int, rule: Rule, now: int) -> tuple[int, Reason | None]:
    """How many of *rows* the open files take, and why no more; None where they take all."""
    best: tuple[int, Reason | None] = (len(rows), None)
    bound = [
        (Reason.STORED, rules.by_stored(state, rows, rule)),
        (Reason.SCHEMA, rules.by_schema(state, rows, rule)),
        (Reason.OPEN_FILES, rules.by_open_files(state, rows, rule)),
        (Reason.TOMBSTONES, rules.by_tombstones(state, rows, rule)),
    ]
    chosen = [
        (Reason.RECORDS, rules.by_records(state, rows, rule)),
        (Reason.BYTES, rules.by_bytes(state, rows, size, rule)),
        # before the rules that look at the next record, which the task of a span does not see
        (Reason.MULTIPLE, rules.by_multiple(state, rows, rule)),
        (Reason.SPAN, rules.by_span(state, rows, rule)),
        (Reason.DIRECTORY, rules.by_directory_change(state, rows, rule)),
        (Reason.SCHEDULE, rules.by_schedule(state, now)),
    ]
    limits = bound if rules.is_stored(state, rows, rule) else [*chosen, *bound]
    for reason, room in limits:
        if room is not None and (room < best[0] or (room == best[0] and best[1] is None)):
            best = (room, reason)
    return best
