"""Record batches to files: where files end, and the one that is open.

`kbackup.pipeline.rotate` and `kbackup.pipeline.write` do the same with rows.  A file ends between
two batches only, and where it does depends on the batches alone, not on how they arrive: a rerun
from the last committed offset writes the same objects.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.batches import APPEND_TIME, DELETE_HORIZON, BatchError, Batches
from kbackup.batches.decoding import decoded
from kbackup.batches.tally import Tally
from kbackup.errors import BadRecordError, ConfigurationError
from kbackup.files import SPOOL_BYTES, Spool
from kbackup.formats import BatchFile, StoresBatches
from kbackup.naming import Layout, ObjectKey
from kbackup.pipeline.rotate import Append, Cut, Reason, Rule, is_within_stored, stored_boundary
from kbackup.pipeline.views import ViewSpec
from kbackup.pipeline.write import ClosedFile, inner_metadata
from kbackup.records import (
    NO_TIMESTAMP,
    SCHEMA,
    UNKNOWN,
    Facts,
    Rotation,
    Span,
    TopicIdentity,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class _Open:
    """What is in the open file."""

    records: int = 0
    bytes: int = 0
    base_time: int | None = None
    next_offset: int = -1
    boundary: int | None = None


def cut_batches(
    stream: Iterable[Batches], rule: Rule, clock: Callable[[], int] | None = None
) -> Iterator[Append[Batches] | Cut]:
    """Decide which batches go to which files: `kbackup.pipeline.rotate.cut`.

    Records are counted by headers, bytes as they were sent.  The time of a batch is that of its
    first record, or where its header does not say it, of its latest.  Directories and schemas are
    no matter.
    """
    state = _begun(rule, clock)
    for batches in stream:
        now = 0 if clock is None else clock()
        if not state.records and state.boundary is not None and now >= state.boundary:
            state = _begun(rule, clock)
        rest = batches
        while len(rest):
            first = state.next_offset - 1 if state.records else rest.first_offset
            stored = stored_boundary(rule, first)
            if is_within_stored(rule, first):
                room, reason = _by_stored(rest, stored)
            else:
                room, reason = _room(state, rest, rule, now, stored)
            if room:
                part = rest if room == len(rest) else rest.slice(0, room)
                state = _grown(state, part)
                yield Append(part, part.bytes)
            if reason is not None:
                is_stored = reason is Reason.STORED and stored is not None
                after = max(state.next_offset, stored or 0) if is_stored else state.next_offset
                yield Cut(after, reason)
                restarts_schedule = reason in (Reason.SCHEDULE, Reason.SPAN)
                state = _begun(rule, clock) if restarts_schedule else _Open(boundary=state.boundary)
            rest = rest.slice(room)


def _begun(rule: Rule, clock: Callable[[], int] | None) -> _Open:
    if rule.schedule is None or clock is None:
        return _Open()
    return _Open(boundary=rule.schedule.next(clock()))


def _room(
    state: _Open, batches: Batches, rule: Rule, now: int, stored: int | None
) -> tuple[int, Reason | None]:
    """How many of *batches* the open file takes, and why no more; None where it takes all."""
    if state.records and state.boundary is not None and now >= state.boundary:
        return 0, Reason.SCHEDULE
    limits = (
        (Reason.RECORDS, _by_sum(batches, "count", rule.records, state.records)),
        (Reason.BYTES, _by_sum(batches, "length", rule.bytes, state.bytes)),
        (Reason.SPAN, _by_span(state, batches, rule)),
    )
    found = [(room, reason) for reason, room in limits if room is not None]
    return min([*found, _by_stored(batches, stored)], key=lambda each: each[0])


def _by_stored(batches: Batches, stored: int | None) -> tuple[int, Reason | None]:
    """Room before the next start or end of what is stored already."""
    if stored is None:
        return len(batches), None
    room: int = pc.sum(pc.less(batches.headers["base_offset"], stored)).as_py() or 0
    is_reached = room < len(batches) or batches.next_offset >= stored
    return room, Reason.STORED if is_reached else None


def _by_sum(batches: Batches, column: str, limit: int | None, before: int) -> int | None:
    """Room up to the batch that makes the sum of a column so large."""
    if limit is None:
        return None
    up_to = pc.cumulative_sum(batches.headers[column].cast(pa.int64()))
    left = max(1, limit) - before
    if up_to[-1].as_py() < left:
        return None
    return int(pc.index(pc.greater_equal(up_to, left), True).as_py()) + 1


def _by_span(state: _Open, batches: Batches, rule: Rule) -> int | None:
    """Room before the first batch that is the span, or more, later than the first one."""
    if rule.span_ms is None:
        return None
    times = _times(batches)
    base = _first(times) if state.base_time is None else state.base_time
    if base is None:
        return None
    at = int(pc.index(pc.greater_equal(times, base + rule.span_ms), True).as_py())
    return at if at > 0 or (at == 0 and state.records) else None


def _times(batches: Batches) -> pa.Int64Array:
    """Return the time of each batch, null where it has none."""
    headers = batches.headers
    is_other = batches.flagged(APPEND_TIME | DELETE_HORIZON)
    times = pc.if_else(is_other, headers["max_timestamp"], headers["base_timestamp"])
    return pc.if_else(pc.equal(times, NO_TIMESTAMP), None, times)


def _first(times: pa.Int64Array) -> int | None:
    found = times.drop_null()
    return found[0].as_py() if len(found) else None


def _grown(state: _Open, batches: Batches) -> _Open:
    base = state.base_time
    return replace(
        state,
        records=state.records + batches.records,
        bytes=state.bytes + batches.bytes,
        base_time=_first(_times(batches)) if base is None else base,
        next_offset=batches.next_offset,
    )


def unreadable(where: TopicPartition, error: BatchError) -> BadRecordError:
    """Return the error of a batch that its producer has written in another way than it says."""
    return BadRecordError(
        f"{where}: {error}", "its producer has written it so",
        "repair the producer, or leave out the format: full records are stored as Parquet then"
        + (", and errors.tolerance=all leaves such records out" if error.is_name else ""),
        **where.place, offset=error.offset,
    )  # fmt: skip


@dataclass(slots=True)
class OpenLog:
    """The open file of one topic-partition: `kbackup.pipeline.write.OpenFiles`, of batches.

    Attributes:
        spec: The one view, whose format stores batches.
        spool_bytes: What the file may hold in memory.
        identity: Which topic it is; kept in each file, and beside it.
        pool: One thread in which batches are written; None: the caller's own.
    """

    where: TopicPartition
    spec: ViewSpec
    directory: str
    layout: Layout
    spool_bytes: int
    identity: TopicIdentity = UNKNOWN
    pool: Executor | None = None
    records: int = 0
    _tally: Tally = field(default_factory=Tally)
    _body: Spool | None = None
    _file: BatchFile | None = None
    _writing: Future[None] | None = None

    def write(self, batches: Batches) -> None:
        """Add batches.

        Raises:
            BadRecordError: If a batch does not hold what its header says.
            NoSpaceError: If neither memory nor disk takes them.
        """
        if self._file is None:
            form = self.spec.open_format()
            if not isinstance(form, StoresBatches):
                raise ConfigurationError(f"the {self.spec.format} format stores no batches")
            self._tally = Tally(self.spec.options.max_record_bytes)
            self._body = Spool(self.spool_bytes)
            self._file = form.batch_writer(self._body)
        self.records += batches.records
        self._await_written()
        if self.pool is None:
            self._file.write(batches)
        else:
            self._writing = self.pool.submit(self._file.write, batches)
        try:
            self._tally.add(batches)
        except BatchError as error:
            raise unreadable(self.where, error) from None

    def close(self, span: Span) -> list[ClosedFile]:
        """Complete the file, and begin anew; no file where there is nothing in it.

        Args:
            span: From the position before it to the one after it.
        """
        self._await_written()
        facts, file, body = self._tally.facts(), self._file, self._body
        if facts is None or file is None or body is None:
            return []
        file.close(inner_metadata(facts, self.where, self.identity))
        key = ObjectKey(
            self.where.topic, self.where.partition, facts.first_offset, self.directory,
            self.spec.extension(), self.spec.view,
        )  # fmt: skip
        self._file, self._body, self._tally, self.records = None, None, Tally(), 0
        return [
            ClosedFile(
                self.layout.key(key), self.spec, body, replace(facts, sha256=body.sha256),
                Rotation(span, 1), self.where, self.identity,
            )
        ]  # fmt: skip

    def drop(self) -> None:
        """Discard the open file: the next run begins it again."""
        with suppress(Exception):  # of what is dropped
            self._await_written()
        if self._body is not None:
            self._body.close()
        self._file, self._body, self._tally, self.records = None, None, Tally(), 0

    def _await_written(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def united_log(file: ClosedFile, theirs: BinaryIO) -> ClosedFile | None:
    """Return a file with the records of both, each once; None where one offset has two records.

    Compaction leaves a batch its offsets and takes records out of it: of two batches of the same
    offsets, that with the records of the other is taken.

    Args:
        file: Of batches; it stays as it is.

    Returns:
        What to store; its body is the caller's to close.
    """
    form = file.spec.open_format()
    assert isinstance(form, StoresBatches)  # noqa: S101  (it was written by one)
    file.body.seek(0)
    both = [_single(form.batches(each, file.spec.options)) for each in (file.body, theirs)]
    body, tally = Spool(SPOOL_BYTES), Tally(file.spec.options.max_record_bytes)
    writer = form.batch_writer(body)
    for one in _woven(*both):
        if one is None:
            body.close()
            return None
        writer.write(one)
        tally.add(one)
    facts = tally.facts()
    assert facts is not None  # noqa: S101  (each of the two has records)
    writer.close(inner_metadata(facts, file.where, file.identity))
    return replace(file, body=body, facts=replace(facts, sha256=body.sha256))


def tallied_to(file: ClosedFile, last_offset: int) -> Facts | None:
    """Return what is known of a file's batches up to an offset; None where there is none.

    Args:
        last_offset: The last one of a batch, else what is returned ends elsewhere.
    """
    form = file.spec.open_format()
    assert isinstance(form, StoresBatches)  # noqa: S101  (it was written by one)
    file.body.seek(0)
    tally = Tally(file.spec.options.max_record_bytes)
    for one in _single(form.batches(file.body, file.spec.options)):
        if one.next_offset - 1 > last_offset:
            break
        tally.add(one)
    return tally.facts()


def _single(stream: Iterator[Batches]) -> Iterator[Batches]:
    for batches in stream:
        for at in range(len(batches)):
            yield batches.slice(at, 1)


def _woven(left: Iterator[Batches], right: Iterator[Batches]) -> Iterator[Batches | None]:
    """Yield single batches of both in order; None where they contradict each other."""
    mine, other = next(left, None), next(right, None)
    while mine is not None and other is not None:
        if mine.next_offset <= other.first_offset:
            yield mine
            mine = next(left, None)
        elif other.next_offset <= mine.first_offset:
            yield other
            other = next(right, None)
        else:
            yield _richer(mine, other)
            mine, other = next(left, None), next(right, None)
    for one, rest in ((mine, left), (other, right)):
        if one is not None:
            yield one
            yield from rest


def _richer(mine: Batches, other: Batches) -> Batches | None:
    """Return the batch that has all records of the other one, None where neither has."""
    if mine.headers["crc"] == other.headers["crc"]:
        return mine
    fewer, more = sorted((mine, other), key=lambda each: each.records)
    rows = [pa.Table.from_batches(decoded(each), SCHEMA) for each in (fewer, more)]
    kept = rows[1].filter(pc.is_in(rows[1]["offset"], rows[0]["offset"].combine_chunks()))
    return more if kept.equals(rows[0]) else None
