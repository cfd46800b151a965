"""``--follow``: a long task that owns some partitions and visits each when it is worth while.

No file stays open between two visits.  A partition is visited when enough records wait to fill a
file, or when the oldest has waited long enough for a short one: so each record is read once, and
memory is that of a single run whatever the number of partitions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final

from kbackup.channel import Line
from kbackup.engine import Report
from kbackup.errors import KafkaError
from kbackup.kafka.cluster import Cluster
from kbackup.kafka.reader import LogStartMovedError
from kbackup.records import Span, TopicPartition
from kbackup.sink.job import SinkJob, SinkUnit, recreated
from kbackup.sink.task import DONE, back_up

POLL_S: Final = 1.0
"""How often the end offsets are asked for."""


@dataclass(slots=True)
class Watch:
    """One partition's backlog.

    Attributes:
        position: The next offset to back up.
        wanted: Records that have to wait here before a full file is likely.
        waiting_since: When records behind *position* were first seen, by the monotonic clock.
    """

    position: int
    wanted: int
    waiting_since: float | None = None

    def is_due(self, end_offset: int, now: float, idle_s: float | None) -> bool:
        """Whether to visit: enough records wait, or one has waited *idle_s* seconds."""
        backlog = end_offset - self.position
        if backlog <= 0:
            self.waiting_since = None
            return False
        if self.waiting_since is None:
            self.waiting_since = now
        waited = now - self.waiting_since
        return backlog >= self.wanted or (idle_s is not None and waited >= idle_s)


def follow(
    job: SinkJob,
    starts: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
    idle_ms: int,
    units: Sequence[SinkUnit],
    line: Line,
) -> Iterator[Report]:
    """Back up *units* until asked to stop; yields one report a partition, at the end.

    Args:
        job: What tasks need to know; with its ``flush_tail`` a short file is closed when a
            record has waited *idle_ms*, without it only full files are written.
        starts: The next offset to back up.
        topic_ids: Of the topics that were planned: another one under the same name ends it.
        idle_ms: How long a record may wait.
        units: The partitions.
        line: To the driver.
    """
    cluster = Cluster(job.kafka)
    wheres = [unit.where for unit in units]
    size = max(1, job.rule.records or 1)
    watches = {where: Watch(starts[where], size) for where in wheres}
    totals = {unit.where: _begin(unit, starts[unit.where]) for unit in units}
    idle_s = idle_ms / 1000 if job.flush_tail else None
    ids = {where.topic: topic_ids[where.topic] for where in wheres}
    gone: frozenset[str] = frozenset()
    while not line.is_stopped():
        before, gone, changed = gone, *_replaced(cluster, ids)
        for where, total in totals.items():
            if where.topic in changed:
                total["failure"] = recreated(where).to_dict()
            elif where.topic in gone & before:  # seen twice: no passing answer of one broker
                total["failure"] = _deleted(where).to_dict()
        if any("failure" in total for total in totals.values()):
            break
        if gone:
            line.wait(POLL_S)
            continue
        ends = cluster.spans(wheres)
        for where, watch in watches.items():
            end = ends[where].end_offset
            is_full = end - watch.position >= watch.wanted
            if line.is_stopped() or not watch.is_due(end, monotonic(), idle_s):
                continue
            unit = SinkUnit(where, Span(watch.position, end), totals[where]["metadata"])
            visit = replace(job, flush_tail=job.flush_tail and not is_full)
            for report in back_up(visit, [unit], line):
                _add(totals[where], report)
            if _was_overtaken(totals[where]):
                _go_on_behind(totals[where], cluster.spans([where])[where], job.run, line)
            _visited(watch, totals[where]["committed"], end, size)
        if any("failure" in total for total in totals.values()):
            break
        line.wait(POLL_S)
    yield from totals.values()


def _replaced(
    cluster: Cluster, topic_ids: Mapping[str, str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the topics that are not there, and those that are others of the same name."""
    found = cluster.topics(topic_ids)
    ids = {name: topic.topic_id for name, topic in found.items()}
    changed = {name for name, now in ids.items() if now and topic_ids[name] not in ("", now)}
    return frozenset(topic_ids.keys() - found.keys()), frozenset(changed)


def _deleted(where: TopicPartition) -> KafkaError:
    return KafkaError(
        f"{where.topic} is no longer there",
        "it was deleted while it was backed up",
        "what is stored stays as it is; take it out of the topics to back up",
        topic=where.topic,
        partition=where.partition,
    )


def _visited(watch: Watch, committed: int, end: int, size: int) -> None:
    """Set what the next visit waits for: what is left of the last one, and a file more."""
    if committed > watch.position:
        watch.waiting_since = None
    watch.position = committed
    left = end - committed
    watch.wanted = size if left < size else left + size


def _was_overtaken(total: Report) -> bool:
    return bool(total.get("failure", {}).get("code") == LogStartMovedError.code)


def _go_on_behind(total: Report, log: Span, run: str, line: Line) -> None:
    """Note the offsets that expired before they were read, and continue at the log's start."""
    del total["failure"]
    gap = [total["committed"], log.start_offset]
    total["gaps"].append(gap)
    total["committed"] = log.start_offset
    text = f"{total['topic']}-{total['partition']}: offsets {gap[0]} to {gap[1] - 1} have expired"
    line.tell({"type": "warning", "run": run, "code": "gap", "text": text})


def _begin(unit: SinkUnit, start: int) -> Report:
    return {
        "topic": unit.where.topic, "partition": unit.where.partition, "start": start,
        "end": unit.span.end_offset, "committed": start, "records": 0, "objects": 0,
        "bytes_stored": 0, "nulls": 0, "first": None, "last": None, "gaps": [],
        "metadata": unit.metadata,
    }  # fmt: skip


def _add(total: Report, report: Report) -> None:
    """Take over a visit's report, which counts what the whole run has done."""
    for name in (*DONE, "end", "committed", "metadata"):
        total[name] = report[name]
    if report["last"] is not None:
        total["last"] = report["last"]
    if "failure" in report:
        total["failure"] = report["failure"]
