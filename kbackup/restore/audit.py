"""Count what stands in the target, and compare it with what was written.

The cheap count comes first: each transaction adds one marker to a partition, so a clean run moves
its end offset by records and commits.  Where that does not fit, because an earlier run was killed
or somebody else writes, the records are counted one by one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kbackup.channel import Line
from kbackup.engine import Report
from kbackup.errors import AuditError, KbackupError
from kbackup.kafka import Connection
from kbackup.records import Span, TopicPartition


@dataclass(frozen=True, slots=True)
class Written:
    """What a run wrote to one target partition.

    Attributes:
        target: The partition.
        records: Records acknowledged and committed.
        commits: Transactions that held some of them; 0 without transactions.
        before: End offset before the run.
        after: What the log holds after the run, up to the first transaction that is open.
        is_hidden: Whether another producer's transaction is open, past which nothing is read.
    """

    target: TopicPartition
    records: int
    commits: int
    before: int
    after: Span
    is_hidden: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the end offset moved by exactly what was written, and nothing was deleted."""
        moved = self.after.end_offset - self.before
        return moved == self.records + self.commits and self.after.start_offset <= self.before

    @property
    def span(self) -> Span:
        """Return the offsets to count records in."""
        return Span(max(self.before, self.after.start_offset), self.after.end_offset)


def count(
    kafka: Connection, group: str, written: Sequence[Written], line: Line
) -> Iterator[Report]:
    """Count the records between *before* and *after*; a task, for it may be much to read."""
    reader = kafka.reader(group)
    try:
        for entry in written:
            report: Report = {"topic": entry.target.topic, "partition": entry.target.partition}
            try:
                batches = reader.read(entry.target, entry.span)
                report["counted"] = sum(len(batch) for batch in batches)
            except KbackupError as error:
                report["failure"] = error.to_dict()
            yield report
            if line.is_stopped():
                return
    finally:
        reader.close()


def repeats(
    written: Sequence[Written], counted: Mapping[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, int]]:
    """Yield the partitions that hold more records than were written, and how many more.

    Without transactions that is what a task leaves whose worker died: it is no difference then.
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
                f"{entry.target} shows {counted[entry.target]} records of this run's "
                f"{entry.records}",
                why,
                do,
                topic=entry.target.topic,
                partition=entry.target.partition,
            )
