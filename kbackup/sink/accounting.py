"""The rows of a summary: what is planned for each partition, and what became of it."""

from collections.abc import Iterator, Mapping
from threading import RLock
from typing import Any, Final

from kbackup.errors import TopicChangedError, TopicDeletedError
from kbackup.naming import Layout
from kbackup.records import Span, TopicPartition
from kbackup.reports import PartitionReport
from kbackup.runs.summary import Summary
from kbackup.sink.plan import PlannedPartition, SinkPlan

_CONFIG: Final = (
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "message.timestamp.type",
    "retention.ms",
)
"""Topic settings that a run record keeps, for a restore to look at."""


_FOR_GOOD: Final = frozenset({TopicChangedError.code, TopicDeletedError.code})
"""Codes of failures that trying again does not help."""


def topic_settings(
    plan: SinkPlan, configs: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, Any]]:
    """Return what a restore wants to know of the topics as they are now."""
    return {
        name: {
            "topic_id": topic.topic_id,
            "partitions": topic.partitions,
            "config": {
                key: configs.get(name, {}).get(key)
                for key in _CONFIG
                if key in configs.get(name, {})
            },
        }
        for name, topic in plan.topics.items()
    }


def planned(at: PlannedPartition) -> dict[str, Any]:
    """Return what is to be done with a partition, for the display."""
    start = at.start.offset if at.start is not None else at.seen.log.end_offset
    return {
        "topic": at.where.topic, "partition": at.where.partition, "start": start,
        "end": at.seen.log.end_offset, "committed": start, "state": at.state,
    }  # fmt: skip


def plan_topics(plan: SinkPlan, layout: Layout) -> Iterator[dict[str, Any]]:
    """Yield the plan's line of each topic: what would be read from where, and stored below what."""
    of_topic: dict[str, list[PlannedPartition]] = {name: [] for name in plan.topics}
    for at in plan.partitions:
        of_topic[at.where.topic].append(at)
    for name, topic in sorted(plan.topics.items()):
        mine = of_topic[name]
        refusal = next((at.refusal for at in mine if at.refusal is not None), None)
        stored = sum(at.seen.has_objects or at.seen.is_confirmed for at in mine)
        begun = stored or any(at.seen.committed is not None for at in mine)
        units = [unit for at in mine if (unit := at.unit()) is not None]
        action = "resume" if begun else "create"
        yield {
            "type": "plan_topic", "source": name, "target": layout.prefix(name),
            "partitions": {"source": topic.partitions, "backup": stored, "target": None},
            "action": "refuse" if refusal is not None else action if units else "done",
            "reason": None if refusal is None else str(refusal),
            "code": None if refusal is None else refusal.code,
            "offsets": sum(len(unit.span) for unit in units),
            "objects": None, "records": None, "bytes": None,
        }  # fmt: skip


def begin(at: PlannedPartition) -> dict[str, Any]:
    """Return the row of a partition of which nothing has been done yet."""
    start = at.start.offset if at.start is not None else None
    end = at.seen.log.end_offset
    return {
        "topic": at.where.topic, "partition": at.where.partition, "first": None, "last": None,
        "records": 0, "objects": 0, "bytes_stored": 0, "bytes_read": 0, "start": start,
        "committed": start, "end": end, "lag": None if start is None else end - start,
        "skipped": 0, "skipped_offsets": [], "state": at.state,
    }  # fmt: skip


class Account:
    """What a run has come to so far.  Tasks tell it while they work; safe from any thread."""

    def __init__(self, summary: Summary) -> None:
        self.lock = RLock()
        self._summary = summary
        self._rows: dict[TopicPartition, dict[str, Any]] = {}
        self._gaps: dict[TopicPartition, list[Span]] = {}
        self._until: dict[TopicPartition, float | None] = {}

    def begin(self, at: PlannedPartition, until: float | None = None) -> None:
        """Open the row of a partition.

        Args:
            at: The partition.
            until: Up to when all that was written to it is backed up, in seconds since the epoch:
                a partition that has just come was empty before.
        """
        with self.lock:
            self._rows[at.where] = begin(at)
            self._until[at.where] = until
            self._summary.partitions.append(self._rows[at.where])

    def plan_again(self, at: PlannedPartition) -> None:
        """Note where a partition goes on that retention overtook."""
        row = self._rows[at.where]
        if at.start is not None:
            row["committed"], row["end"] = at.start.offset, max(row["end"], at.seen.log.end_offset)
            row["lag"] = row["end"] - row["committed"]
        row["state"] = at.state

    def progress(self, event: Mapping[str, Any]) -> None:
        """Take over what is safe, from a ``progress`` event."""
        with self.lock:
            row = self._rows[TopicPartition(event["topic"], event["partition"])]
            row |= {name: event[name] for name in ("records", "objects", "bytes_stored")}
            row["committed"], row["end"] = event["committed"], max(row["end"], event["end"])
            row["lag"] = row["end"] - row["committed"]

    def take(self, report: PartitionReport) -> bool:
        """Take over a report, which counts what the whole run has done in its partition.

        Returns:
            Whether it says how far the partition is and nothing has said so before.
        """
        with self.lock:
            row = self._rows[report.where]
            before, skipped = (row["committed"], row["end"]), row["skipped"]
            _grow(row, report)
            self._summary.skip("bad_records", row["skipped"] - skipped)
            known = self._gaps.setdefault(report.where, [])
            for gap in report.gaps:
                if gap not in known:
                    known.append(gap)
                    self._summary.skip("expired_offsets", len(gap))
            if report.until is not None:
                self._until[report.where] = report.until
            return before != (row["committed"], row["end"])

    def newly_skipped(self, report: PartitionReport) -> list[list[int]]:
        """Return the first and last offsets of spans of bad records that only *report* knows."""
        with self.lock:
            named = self._rows[report.where]["skipped_offsets"]
            spans = [[at.start_offset, at.end_offset - 1] for at in report.skipped]
            return [span for span in spans if span not in named]

    def set_aside(self, where: TopicPartition, failure: Mapping[str, Any] | None) -> bool:
        """Note why a partition stands still, None where it goes on; return whether that is new."""
        with self.lock:
            before = self._summary.standing.pop(where, None)
            if failure is not None:
                self._summary.standing[where] = failure
            return (before or {}).get("code") != (failure or {}).get("code")

    def gap_ends(self) -> dict[TopicPartition, int]:
        """Return where the log began after the last gap that tasks met."""
        with self.lock:
            return {where: gaps[-1].end_offset for where, gaps in self._gaps.items() if gaps}

    def until(self) -> float | None:
        """Return up to when everything is known to be backed up, None where that is not known."""
        with self.lock:
            times = list(self._until.values())
        known = [time for time in times if time is not None]
        return min(known) if known and len(known) == len(times) else None

    def is_lost(self) -> bool:
        """Whether no partition can ever go on."""
        with self.lock:
            standing = self._summary.standing
            return all(
                row["start"] is None or standing.get(where, {}).get("code") in _FOR_GOOD
                for where, row in self._rows.items()
            )


def _grow(row: dict[str, Any], report: PartitionReport) -> None:
    done = report.done
    row |= {
        "records": done.records, "objects": done.objects, "bytes_read": done.bytes_read,
        "bytes_stored": done.bytes_stored, "first": done.first, "committed": report.committed,
        "end": max(row["end"], report.end), "nulls_left_out": done.nulls,
        "skipped": done.bad_records,
        "skipped_offsets": [[at.start_offset, at.end_offset - 1] for at in report.skipped],
        "filtered": done.filtered,
    }  # fmt: skip
    if report.last is not None:
        row["last"] = report.last
    row["lag"] = row["end"] - row["committed"]
    row["state"] = _state(row, report)


def _state(row: dict[str, Any], report: PartitionReport) -> str:
    if report.failure is not None:
        return "stopped" if report.failure["code"] == "stopped" else "failed"
    if row["lag"]:
        return "tail left open"
    return "done" if row["records"] else "no records"
