"""Whether topics keep their records until they are backed up."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from kbackup.doctor import Check
from kbackup.records import Span
from kbackup.reports import HeldUp

_DO: Final = "run kbackup sink now, and more often, or raise retention.ms"


@dataclass(frozen=True, slots=True)
class LogState:
    """What a topic still holds of its records that are not backed up yet.

    Attributes:
        topic: Its name.
        retention_ms: How long records are kept; None: for ever, or until a newer one of the key.
        expired: Offsets that expired before they were backed up, by partition.
        is_pending: Whether it has records after the group's position.
        held_up: Where an open transaction holds its backup up, by partition.
    """

    topic: str
    retention_ms: int | None
    expired: Mapping[int, Span]
    is_pending: bool
    held_up: Mapping[int, HeldUp] = field(default_factory=dict)


def lines(
    logs: Sequence[LogState], backups: Mapping[str, datetime] | None, now: datetime
) -> Iterator[Check]:
    """Yield a check for each topic at risk, and one for all the others.

    Args:
        logs: The topics.
        backups: For each topic the start of its last successful run; None if that is unknown.
        now: Aware.
    """
    for log in logs:
        yield from _held_up(log)
    if backups is None:
        text = "not checked against the age of the backup: its run records cannot be read"
        yield Check("kafka", "retention", "warn", text)
        return
    found = [judge(log, backups.get(log.topic), now) for log in logs]
    yield from (check for check in found if check.level != "ok")
    good = [check for check in found if check.level == "ok"]
    if len(good) > 1:
        text = f"{len(good)} topics keep their records long enough"
        yield Check("kafka", "retention", "ok", text)
    else:
        yield from good


def judge(log: LogState, backup: datetime | None, now: datetime) -> Check:
    """Judge one topic.

    Args:
        log: The topic.
        backup: Start of its last successful run; None if there was none.
        now: Aware.
    """
    if log.expired:
        partition, span = next(iter(log.expired.items()))
        text = (
            f"{log.topic}: offsets {span.start_offset} to {span.end_offset - 1} of partition "
            f"{partition} have expired before they were backed up: data is being lost"
        )
        return Check("kafka", "retention", "fail", text, _DO)
    if log.retention_ms is None:
        return Check("kafka", "retention", "ok", f"{log.topic} keeps records for ever")
    keeps = f"{log.topic} keeps {time_span(log.retention_ms / 1000)}"
    if backup is None:
        return Check("kafka", "retention", "ok", f"{keeps}, no good backup is on record yet")
    age_s = max(0.0, (now - backup).total_seconds())
    text = f"{keeps}, last good backup {time_span(age_s)} ago"
    if not log.is_pending:
        return Check("kafka", "retention", "ok", f"{text}, nothing new since")
    used = age_s * 1000 / max(log.retention_ms, 1)
    if used > 1:
        return Check("kafka", "retention", "fail", f"{text}: data is being lost", _DO)
    is_late = used > 0.5
    text += ": half of that time has passed" if is_late else ""
    return Check("kafka", "retention", "warn" if is_late else "ok", text, _DO if is_late else "")


def _held_up(log: LogState) -> Iterator[Check]:
    """Yield what an open transaction keeps from a topic's backup, for one of its partitions."""
    for partition, held_up in [*log.held_up.items()][:1]:
        text = (
            f"{log.topic}: an open transaction holds partition {partition} up at offset "
            f"{held_up.offset}; {held_up.behind:,} offsets behind it are not in the backup"
        )
        do = "if it stays open, see kafka-transactions.sh find-hanging"
        yield Check("kafka", "transactions", "warn", text, do)


def time_span(seconds: float) -> str:
    """Return a duration for people: ``24 h``, ``7 d``, ``90 s``."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
