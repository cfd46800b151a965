"""What a restore has come to in each partition, over all of its visits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any, Final, Self

from kbackup.events import Event, Progress
from kbackup.records import TopicPartition
from kbackup.reports import NOTHING, Restored, RestoreReport
from kbackup.restore.job import RestoreUnit
from kbackup.restore.skip_list import SkipList
from kbackup.runs.summary import Summary

SKIPPED_MOST: Final = 1000
"""Bad records and objects that the summary of a restore that follows names; it counts them all."""


@dataclass(frozen=True, slots=True)
class Row:
    """How far the restore of one partition is.

    Attributes:
        where: The partition that was backed up.
        target: The topic that is written to.
        start: Offset at which the first of the planned objects begins.
        planned_objects: File sets to be read, with those that were.
        committed: The next offset of the backup to restore, None where nothing is restored yet.
        done: What the run has done.
        end: Where the backup ends, None where the ledger does not say.
        state: What is to be done, then what has become of it.
        is_reported: Whether a task has ended its work on it.
    """

    where: TopicPartition
    target: str
    start: int
    planned_objects: int
    committed: int | None
    done: Restored = NOTHING
    end: int | None = None
    state: str = "to do"
    is_reported: bool = False

    @classmethod
    def of(cls, unit: RestoreUnit) -> Self:
        """Return the row of a partition of which this run has done nothing yet."""
        is_begun = not unit.begins and unit.committed is not None
        committed = unit.committed.offset if is_begun and unit.committed is not None else None
        start = unit.sets[0].start_offset
        return cls(unit.source, unit.target.topic, start, len(unit.sets), committed)

    @property
    def reached(self) -> int | None:
        """Where the backup ends, as far as it is known: no earlier than what is restored."""
        return None if self.end is None else max(self.end, self.committed or 0)

    @property
    def lag(self) -> int | None:
        """Offsets that are left; None where the end is not known."""
        done = self.start if self.committed is None else self.committed
        return None if self.reached is None else self.reached - done

    def after(self, report: RestoreReport, done: Restored) -> Self:
        """Return the row after a visit with this report; *done* is what all visits have done."""
        return replace(
            self,
            committed=self.committed if report.committed is None else report.committed,
            done=done,
            state="done" if report.failure is None else report.failure["code"],
            is_reported=True,
        )

    def to_dict(self) -> Event:
        """Return what plan and summary say of the partition."""
        done = self.done
        found = {
            "topic": self.where.topic, "partition": self.where.partition, "target": self.target,
            "start": self.start, "first": done.first, "last": done.last, "records": done.records,
            "objects": done.objects, "planned_objects": self.planned_objects,
            "bytes_read": done.bytes_read, "end": self.reached, "committed": self.committed,
            "lag": self.lag, "state": self.state,
        }  # fmt: skip
        more = {
            "duplicates": done.duplicates, "filtered": done.filtered,
            "skipped": done.bad_records + done.bad_objects,
        }  # fmt: skip
        return found | more if self.is_reported else found


class Account:
    """The rows of the summary.  Tasks update it while they work; safe from any thread.

    Args:
        summary: Grows by what is left out.
        names_most: Bad records and objects that it names; None for all.
        skip_list: Names all of them, where there is one.
    """

    def __init__(
        self,
        summary: Summary,
        names_most: int | None = None,
        skip_list: SkipList | None = None,
    ) -> None:
        self._skip_list = skip_list
        self.lock = RLock()
        self._summary = summary
        self._rows: dict[TopicPartition, Row] = {}
        self._done: dict[TopicPartition, Restored] = {}
        self._nameable = names_most

    def rows(self) -> list[Event]:
        """Return what plan and summary say of the partitions."""
        with self.lock:
            return [row.to_dict() for row in self._rows.values()]

    def plan(self, unit: RestoreUnit) -> None:
        """Open the row of a partition, or note what a visit has to do in it."""
        with self.lock:
            row = self._rows.get(unit.source)
            if row is None:
                row = Row.of(unit)
                self._done[unit.source] = NOTHING
            else:
                planned = row.done.objects + len(unit.sets)
                row = replace(row, planned_objects=planned, state="to do")
            self._rows[unit.source] = row

    def end(self, where: TopicPartition, end: int | None) -> None:
        """Note where the backup of a partition ends, as far as the ledger says so."""
        with self.lock:
            row = self._rows.get(where)
            if row is not None and end is not None:
                self._rows[where] = replace(row, end=end)

    def progress(self, event: Mapping[str, Any]) -> Event:
        """Take over what is safe; return the event with what earlier visits have done."""
        said = Progress.from_dict(event)
        with self.lock:
            row, before = self._rows[said.where], self._done[said.where]
            done = replace(
                row.done,
                records=before.records + said.records,
                objects=before.objects + said.objects,
                bytes_read=before.bytes_read + (said.bytes_read or 0),
            )
            row = self._rows[said.where] = replace(row, done=done, committed=said.committed)
            so_far = replace(
                said, records=done.records, objects=done.objects, bytes_read=done.bytes_read,
                end=row.reached,
            )  # fmt: skip
            return so_far.to_dict()

    def take(self, report: RestoreReport) -> None:
        """Take over what a visit has come to."""
        with self.lock:
            summary, where = self._summary, report.source
            done = self._done[where] = self._done[where] + report.done
            self._rows[where] = self._rows[where].after(report, done)
            summary.skip("bad_objects", report.done.bad_objects)
            summary.skip("bad_records", report.done.bad_records)
            summary.skip("unregistered_schemas", report.done.strange_schemas)
            summary.skip("timestamps_of_0_ms_written_as_1_ms", report.done.zero_timestamps)
            if self._skip_list is not None:
                for entry in report.skipped:
                    self._skip_list.add(entry, where)
            named = report.skipped[: self._nameable]
            for entry in named:
                summary.warn("skipped", f"{entry['what']}: {entry['why']}")
            if self._nameable is not None:
                self._nameable -= len(named)
