"""Count what the target holds, and compare it with what was written.

The cheap count comes first: each transaction adds one marker to a partition, so a clean run moves
its end offset by records and commits.  If that does not fit, because an earlier run was killed or
someone else writes, the records are counted one by one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kbackup import errors
from kbackup.errors import AuditError, EndNotSeenError, Failure, KbackupError
from kbackup.kafka import Cluster, Connection
from kbackup.records import Span, TopicPartition
from kbackup.runs.report import OfRestore, PartitionReport, WrittenTo
from kbackup.spark.channel import Line
from kbackup.spark.settings import NotBegun


@dataclass(frozen=True, slots=True)
class Written:
    """What a run wrote to one target partition.

    Attributes:
        target: The partition.
        records: Records acknowledged and committed.
        commits: Transactions that held some of them; 0 without transactions.
        before: End offset before the run.
        after: What the log holds after the run, up to the first transaction that is open.
        end: Where the log is said to end, behind open transactions.
    """

    target: TopicPartition
    records: int
    commits: int
    before: int
    after: Span
    end: int

    @property
    def least(self) -> int:
        """Where the log ends at least: what the cluster has acknowledged is in it."""
        return self.before + self.records + self.commits

    @property
    def is_seen(self) -> bool:
        """Whether the cluster shows what it has acknowledged; nothing can be said before."""
        return self.end >= self.least

    @property
    def is_hidden(self) -> bool:
        """Whether another producer's transaction is open, past which nothing is read."""
        return self.after.end_offset < self.end

    @property
    def is_plain(self) -> bool:
        """Whether the end offset moved by exactly what was written, and nothing was deleted."""
        moved = self.after.end_offset - self.before
        return moved == self.records + self.commits and self.after.start_offset <= self.before

    @property
    def span(self) -> Span:
        """Return the offsets to count records in."""
        return Span(max(self.before, self.after.start_offset), self.after.end_offset)


def written(
    cluster: Cluster,
    spans: Mapping[TopicPartition, Span],
    reports: Iterable[PartitionReport[OfRestore]],
    *,
    exactly_once: bool,
) -> list[Written]:
    """Return what tasks wrote to each partition, and what its log holds now.

    One to which a restore failed is left out: the failure says so itself, and somebody else may
    have gone on.

    Args:
        cluster: The target.
        spans: What each partition held before.
        reports: What became of each.
        exactly_once: Records were written in transactions.

    Raises:
        KafkaError: If the cluster does not answer.
    """
    sums: dict[TopicPartition, WrittenTo] = {}
    befores: dict[TopicPartition, int] = {}
    failed: set[TopicPartition] = set()
    for report in reports:
        for lane in report.own.lanes:
            where = TopicPartition(report.own.target, lane.partition)
            sums[where] = sums.get(where, WrittenTo(lane.partition)) + lane
            befores[where] = max(befores.get(where, 0), report.own.log_end or 0)
            failed |= {where} if report.failure is not None else set()
    wheres = [where for where, lane in sums.items() if lane.records and where not in failed]
    acknowledged = [
        Written(
            where,
            sums[where].records,
            sums[where].commits if exactly_once else 0,
            before := max(spans.get(where, Span(0, 0)).end_offset, befores[where]),
            Span(before, before),
            before,
        )
        for where in wheres
    ]
    after = cluster.settled_spans(wheres, {entry.target: entry.least for entry in acknowledged})
    ends = cluster.ends(wheres)
    return [
        replace(entry, after=after[entry.target], end=ends[entry.target]) for entry in acknowledged
    ]


def unseen(written: Iterable[Written]) -> Iterator[KbackupError]:
    """Yield one error for each partition that does not show what was acknowledged."""
    for entry in written:
        if not entry.is_seen:
            yield EndNotSeenError(
                f"{entry.target}: the records of this run could not be seen",
                f"its log is said to end at {entry.end}; what the cluster has acknowledged makes "
                f"that {entry.least} at least",
                "check the brokers, and the topic's leaders; what was acknowledged is there once "
                "they agree",
                topic=entry.target.topic,
                partition=entry.target.partition,
            )


@dataclass(frozen=True, slots=True)
class TargetCount:
    """What `count` found in one target partition.

    Attributes:
        target: The partition.
        records: Records between the ends before and after the run; 0 where they were not counted.
        failure: Why they were not counted; None if they were.
    """

    target: TopicPartition
    records: int = 0
    failure: Failure | None = None


def counts(
    reports: Iterable[TargetCount | NotBegun],
) -> tuple[dict[TopicPartition, int], list[Failure]]:
    """Return how many records `count` found in each partition, and why others were not counted."""
    found, failures = dict[TopicPartition, int](), list[Failure]()
    for report in reports:
        if report.failure is not None:
            failures.append(report.failure)
        elif isinstance(report, TargetCount):
            found[report.target] = report.records
    return found, failures


def count(
    kafka: Connection, group: str, written: Sequence[Written], line: Line
) -> Iterator[TargetCount]:
    """Count the records between *before* and *after*; a task, because it may have much to read."""
    reader = kafka.reader(group)
    try:
        for entry in written:
            try:
                batches = reader.read(entry.target, entry.span)
                report = TargetCount(entry.target, sum(len(batch) for batch in batches))
            except KbackupError as error:
                report = TargetCount(entry.target, failure=error.failure())
            yield report
            if line.is_stopped():
                return
    finally:
        reader.close()


def repeats(
    written: Sequence[Written], counted: Mapping[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, int]]:
    """Yield the partitions that hold more records than were written, and how many more.

    Without transactions, a task whose worker died leaves such records: then this is not a
    difference.
    """
    for entry in written:
        more = counted.get(entry.target, 0) - entry.records
        if more > 0:
            yield entry.target, more


def differences(
    written: Sequence[Written], counted: Mapping[TopicPartition, int], *, exactly_once: bool
) -> Iterator[KbackupError]:
    """Yield one error for each partition where the count is not what was written."""
    for entry in written:
        found = counted.get(entry.target, entry.records)
        if found < entry.records or (exactly_once and found > entry.records):
            why = "someone else writes to the topic, or the topic deletes records"
            do = "compare with kbackup restore verify, then restore into a new topic"
            if entry.is_hidden and found < entry.records:
                why = "another producer's open transaction hides what follows it"
                do = "stop that producer; consumers then see the records, which are committed"
            yield AuditError(
                f"{entry.target} shows {errors.counted(counted[entry.target], 'record')} of this "
                f"run's {entry.records}",
                why,
                do,
                topic=entry.target.topic,
                partition=entry.target.partition,
            )
