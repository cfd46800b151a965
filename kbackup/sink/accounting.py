"""The rows of a summary: what is planned for each partition, and what became of it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kbackup.naming import Layout
from kbackup.reports import PartitionReport
from kbackup.sink.plan import PlannedPartition, SinkPlan

_CONFIG: Final = (
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "message.timestamp.type",
    "retention.ms",
)
"""Topic settings that a run record keeps, for a restore to look at."""


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
    for name, topic in sorted(plan.topics.items()):
        mine = [at for at in plan.partitions if at.where.topic == name]
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
        "state": at.state,
    }  # fmt: skip


def plan_again(row: dict[str, Any], at: PlannedPartition) -> None:
    """Note where a partition goes on that retention overtook."""
    if at.start is not None:
        row["committed"], row["end"] = at.start.offset, max(row["end"], at.seen.log.end_offset)
        row["lag"] = row["end"] - row["committed"]
    row["state"] = at.state


def grow(row: dict[str, Any], report: PartitionReport) -> None:
    """Take over a report, which counts what the whole run has done in its partition."""
    done = report.done
    row |= {
        "records": done.records, "objects": done.objects, "bytes_read": done.bytes_read,
        "bytes_stored": done.bytes_stored, "first": done.first, "committed": report.committed,
        "end": max(row["end"], report.end), "nulls_left_out": done.nulls,
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
