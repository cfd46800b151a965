"""What the driver knows of a partition: the row that screens, summary and run record show."""

from dataclasses import dataclass, replace
from typing import Generic

from kbackup.events import Event, Progress
from kbackup.reports.partition import Own, PartitionReport


@dataclass(frozen=True, slots=True)
class Row(Generic[Own]):
    """How far the work on one partition is, and how it is called.

    Attributes:
        report: How far it is, over all tasks and visits of the run.
        state: What is to be done, then what has become of it.
        is_reported: Whether a task has ended its work on it.
    """

    report: PartitionReport[Own]
    state: str = "to do"
    is_reported: bool = False

    @property
    def end(self) -> int | None:
        """Where the work ends, as far as that is known: no earlier than it has come."""
        report = self.report
        return None if report.end is None else max(report.end, report.committed or 0)

    @property
    def lag(self) -> int | None:
        """Offsets that are left; None where start or end is not known."""
        report = self.report
        reached = report.start if report.committed is None else report.committed
        if reached is None or self.end is None:
            return None
        end = self.end if report.held_up is None else max(self.end, report.held_up.end)
        return end - reached

    def went_on(self, said: Progress) -> "Row[Own]":
        """Return the row with what a task has made safe meanwhile, which counts the whole run."""
        report = self.report
        done = replace(
            report.done,
            records=said.records,
            objects=said.objects,
            bytes_read=report.done.bytes_read if said.bytes_read is None else said.bytes_read,
            bytes_stored=(
                report.done.bytes_stored if said.bytes_stored is None else said.bytes_stored
            ),
        )
        ends = [end for end in (report.end, said.end) if end is not None]
        report = replace(report, committed=said.committed, end=max(ends, default=None), done=done)
        return replace(self, report=report)

    def to_dict(self) -> Event:
        """Return what plan, summary and run record say of the partition, in JSON."""
        report, done = self.report, self.report.done
        return {
            "topic": report.where.topic, "partition": report.where.partition,
            "start": report.start, "first": done.first, "last": done.last,
            "records": done.records, "objects": done.objects, "bytes_read": done.bytes_read,
            "end": self.end, "committed": report.committed, "lag": self.lag, "state": self.state,
            **({"filtered": done.filtered} if self.is_reported else {}),
            **({} if report.held_up is None else {"held_up": report.held_up.to_dict()}),
            **report.own.row(done, is_reported=self.is_reported),
        }  # fmt: skip
