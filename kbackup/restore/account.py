"""What a restore that follows has come to in each partition, over all of its visits."""

from collections.abc import Mapping
from dataclasses import asdict
from threading import RLock
from typing import Any, Final

from kbackup.records import TopicPartition
from kbackup.reports import NOTHING, Restored, RestoreReport
from kbackup.restore.job import RestoreUnit
from kbackup.runs.summary import Event, Summary

SKIPPED_MOST: Final = 1000
"""Bad records and objects that are named in the summary; all are counted."""

_COUNTED: Final = ("records", "objects", "bytes_read")


class Account:
    """The rows of the summary.  Tasks tell it while they work; safe from any thread."""

    def __init__(self, summary: Summary) -> None:
        self.lock = RLock()
        self._summary = summary
        self._rows: dict[TopicPartition, dict[str, Any]] = {}
        self._done: dict[TopicPartition, Restored] = {}
        self._named = 0

    def rows(self) -> list[dict[str, Any]]:
        """Return a copy of all rows."""
        with self.lock:
            return [dict(row) for row in self._rows.values()]

    def plan(self, unit: RestoreUnit) -> None:
        """Open the row of a partition, or note what a visit has to do in it."""
        with self.lock:
            row = self._rows.get(unit.source)
            if row is None:
                row = self._rows[unit.source] = row_of(unit)
                self._done[unit.source] = NOTHING
                self._summary.partitions.append(row)
            else:
                row["planned_objects"] = row["objects"] + len(unit.sets)
            row["state"] = "to do"

    def end(self, where: TopicPartition, end: int | None) -> None:
        """Note where the backup of a partition ends, as far as the ledger says so."""
        with self.lock:
            row = self._rows.get(where)
            if row is not None and end is not None:
                row["end"] = end
                _set_lag(row)

    def progress(self, event: Mapping[str, Any]) -> Event:
        """Take over what is safe; return the event with what earlier visits have done."""
        where = TopicPartition(event["topic"], event["partition"])
        with self.lock:
            row, done = self._rows[where], asdict(self._done[where])
            counts = {name: done[name] + event[name] for name in _COUNTED}
            row |= counts
            row["committed"] = event["committed"]
            _set_lag(row)
            return {**event, **counts, "end": row["end"]}

    def take(self, report: RestoreReport) -> None:
        """Take over what a visit has come to."""
        with self.lock:
            row, summary = self._rows[report.source], self._summary
            self._done[report.source] = done = self._done[report.source] + report.done
            committed = row["committed"] if report.committed is None else report.committed
            row |= RestoreReport(report.source, report.target, done, failure=report.failure).row()
            row["committed"] = committed
            _set_lag(row)
            summary.skip("bad_objects", report.done.bad_objects)
            summary.skip("bad_records", report.done.bad_records)
            summary.skip("timestamps_of_0_ms_written_as_1_ms", report.done.zero_timestamps)
            for entry in report.skipped[: SKIPPED_MOST - self._named]:
                self._named += 1
                summary.warn("skipped", f"{entry['what']}: {entry['why']}")


def row_of(unit: RestoreUnit) -> dict[str, Any]:
    """Return the row of a partition of which this run has done nothing yet."""
    return {
        "topic": unit.source.topic, "partition": unit.source.partition, "target": unit.target.topic,
        "start": unit.sets[0].start_offset, "first": None, "last": None, "records": 0,
        "objects": 0, "planned_objects": len(unit.sets), "bytes_read": 0, "end": None,
        "committed": _committed(unit), "lag": None,
        "state": "to do",
    }  # fmt: skip


def _committed(unit: RestoreUnit) -> int | None:
    """Return how far earlier runs of the restore came; None where it begins."""
    return None if unit.begins or unit.committed is None else unit.committed.offset


def _set_lag(row: dict[str, Any]) -> None:
    if row["end"] is not None:
        row["end"] = max(row["end"], row["committed"] or 0)
        row["lag"] = row["end"] - (row["start"] if row["committed"] is None else row["committed"])
