"""When open files close: a pure function of the records.

`cut` passes the records through and says where files end.  A rerun from the last committed offset
cuts at the same places, however the records arrive in batches, so a retry overwrites itself with
the same records.  Nothing here reads a clock.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.records import batch_bytes, record_bytes

NO_TIMESTAMP = -1
"""Kafka's timestamp of a record that has none."""


class Reason(StrEnum):
    """Why a file was closed."""

    RECORDS = "flush.size"
    BYTES = "rotate.bytes"
    SPAN = "rotate.interval.ms"
    END = "end of run"


@dataclass(frozen=True, slots=True)
class Rule:
    """When to cut; whichever comes first.  None means never for that reason.

    Attributes:
        records: Cut behind the record that makes this many, as the connectors' ``flush.size``;
            below 1 counts as 1.
        bytes: Cut behind the record that makes this many bytes of ``records.record_bytes``.
        span_ms: Cut before a record whose timestamp is this much later than the first one's;
            a late record never cuts.
    """

    records: int | None = None
    bytes: int | None = None
    span_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """These rows belong to the open file."""

    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Cut:
    """The open file ends here; *next_offset* is the first offset it does not cover."""

    next_offset: int
    reason: Reason


@dataclass(slots=True)
class _Open:
    """The open file so far."""

    records: int = 0
    bytes: int = 0
    base_timestamp: int | None = None


def cut(batches: Iterable[pa.RecordBatch], rule: Rule) -> Iterator[Append | Cut]:
    """Say which rows go to which file.

    Args:
        batches: ``records.SCHEMA``, one topic-partition, offsets rising; consumed once, lazily.
        rule: When to cut.

    Yields:
        `Append` with at least one row, in order and without copying, and `Cut` between files.
        A last file that no rule closed is left open: only the caller knows whether more comes.
    """
    state = _Open()
    last_offset = -1
    for batch in batches:
        start = 0
        while start < len(batch):
            rest = batch.slice(start)
            rows, reason = _room(state, rest, rule)
            if rows:
                part = rest.slice(0, rows)
                _add(state, part)
                last_offset = part["offset"][-1].as_py()
                yield Append(part)
            if reason is not None:
                yield Cut(last_offset + 1, reason)
                state = _Open()
            start += rows


def _room(state: _Open, batch: pa.RecordBatch, rule: Rule) -> tuple[int, Reason | None]:
    """How many rows of *batch* the open file takes, and why no more; None where it takes all."""
    best: tuple[int, Reason | None] = (len(batch), None)
    if rule.records is not None:
        left = max(1, rule.records) - state.records
        if left <= best[0]:
            best = (left, Reason.RECORDS)
    if rule.bytes is not None and state.bytes + batch_bytes(batch) >= rule.bytes:
        up_to = pc.cumulative_sum(record_bytes(batch))
        reached = pc.greater_equal(up_to, rule.bytes - state.bytes)
        at = pc.index(reached, True).as_py()
        if at >= 0 and (at + 1 < best[0] or (at + 1 == best[0] and best[1] is None)):
            best = (at + 1, Reason.BYTES)
    if rule.span_ms is not None:
        at = _first_too_late(state.base_timestamp, batch["timestamp"], rule.span_ms)
        if at is not None and (at > 0 or state.records) and at < best[0]:
            best = (at, Reason.SPAN)
    return best


def _first_too_late(base: int | None, timestamps: pa.Array, span_ms: int) -> int | None:
    """Row of the first record *span_ms* or more behind the file's first one, None without."""
    if base is None:
        base = _first_timestamp(timestamps)
    if base is None:
        return None
    late = pc.greater_equal(timestamps, base + span_ms)
    at = pc.index(late, True).as_py()
    return at if at >= 0 else None


def _first_timestamp(timestamps: pa.Array) -> int | None:
    at = pc.index(pc.not_equal(timestamps, NO_TIMESTAMP), True).as_py()
    return timestamps[at].as_py() if at >= 0 else None


def _add(state: _Open, part: pa.RecordBatch) -> None:
    state.records += len(part)
    state.bytes += batch_bytes(part)
    if state.base_timestamp is None:
        state.base_timestamp = _first_timestamp(part["timestamp"])
