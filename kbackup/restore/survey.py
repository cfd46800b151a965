"""Which topics a restore writes to whose transforms choose one for each record: read to find out.

Nothing is written.  So all topics are known, and pass the same checks as any other target, before
the first record is written to one of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.catalog import merging
from kbackup.catalog.merging import Failed, Skipped, StoredRows
from kbackup.errors import BadRecordError, Failure, KbackupError, StoppedError
from kbackup.records import NO_TIMESTAMP
from kbackup.restore.account import SKIPPED_MOST
from kbackup.restore.job import RestoreJob, RestoreUnit
from kbackup.restore.planning.routing import RoutedRecords, Surveyed, check
from kbackup.restore.tasks.transforming import Transforming
from kbackup.spark.channel import Line
from kbackup.stores import Store, open_store


def survey(job: RestoreJob, units: Sequence[RestoreUnit], line: Line) -> Iterator[Surveyed]:
    """Read *units* and report where their records go; a failure is a report, not an exception.

    A record that has no topic is a bad record: the writing tasks count and name it, as
    ``behavior.on.error`` says, unless that is ``fail``.

    Memory: what `merging` reads with, and a number for each topic and object that holds some of it.
    """
    store = open_store(job.store)
    for unit in units:
        if line.is_stopped():
            return
        source = unit.source
        try:
            yield _Reading(job, unit).run(store, line)
        except KbackupError as error:
            error.place.setdefault("topic", source.topic)
            error.place.setdefault("partition", source.partition)
            yield Surveyed(source, failure=error.failure())


@dataclass(slots=True)
class _Found:
    records: int
    first: int
    oldest: int | None
    sets: set[str]


class _Reading:
    """One partition that is read."""

    def __init__(self, job: RestoreJob, unit: RestoreUnit) -> None:
        self._job, self._unit = job, unit
        self._transforming = Transforming(job, unit)
        self._found: dict[str, _Found] = {}
        self._skipped = list[Failure]()
        self._bad_records = self._bad_objects = 0

    def run(self, store: Store, line: Line) -> Surveyed:
        """Read it to its end.

        Raises:
            KbackupError: If it cannot be read, or a record has no topic, and that ends a restore.
            StoppedError: If asked to stop.
        """
        unit, job = self._unit, self._job
        steps = merging.steps(
            store, unit.sets, job.reads(unit.target.topic),
            identity=unit.bookmark.of.source.identity, holds_values=True,
            wanted=unit.window.offset,
        )  # fmt: skip
        for step in steps:
            if line.is_stopped():
                raise StoppedError(f"{unit.source} stopped while its topics were looked for")
            match step:
                case StoredRows(batch, files):
                    self._take(unit.window.rows(batch), {one.part for one in files})
                case Skipped(_, lost):
                    if unit.window.offset.meets(lost.offset, lost.offset):
                        self._bad_records += lost.records
                        self._skip(lost.error.failure())
                case Failed(files, error, unread):
                    if job.on_error == "fail":
                        raise error
                    self._bad_objects += 1
                    self._bad_records += unread or 0
                    self._skip(unit.left(files, error, unread).failure())
        shares = {
            name: RoutedRecords(one.records, one.first, one.oldest, frozenset(one.sets))
            for name, one in self._found.items()
        }
        if shares:
            return Surveyed(unit.source, shares)
        # without a topic there is no writing task that would count them
        return Surveyed(unit.source, {}, self._bad_records, self._bad_objects, tuple(self._skipped))

    def _skip(self, failure: Failure) -> None:
        if not self._found and len(self._skipped) < SKIPPED_MOST:
            self._skipped.append(failure)

    def _take(self, batch: pa.RecordBatch, sets: set[str]) -> None:
        if not len(batch):
            return
        routed = self._transforming.routed(batch)
        if routed.bad and self._job.on_error == "fail":
            error: BadRecordError = routed.bad[0].error(self._unit.source)
            raise error
        self._bad_records += len(routed.bad)
        for bad in routed.bad:
            self._skip(bad.error(self._unit.source).failure())
        for times, offsets, topics in routed.runs:
            rows = pa.table({"topic": topics, "time": _times(times), "offset": offsets})
            sums = rows.group_by("topic").aggregate(
                [("offset", "count"), ("offset", "min"), ("time", "min")]
            )
            for row in sums.to_pylist():
                self._add(row, sets)

    def _add(self, row: Mapping[str, Any], sets: set[str]) -> None:
        oldest = row["time_min"]
        one = self._found.get(row["topic"])
        if one is None:
            found = _Found(row["offset_count"], row["offset_min"], oldest, set(sets))
            self._found[row["topic"]] = found
            check(self._unit.source.topic, len(self._found))
            return
        one.records += row["offset_count"]
        one.first = min(one.first, row["offset_min"])
        one.oldest = min((time for time in (one.oldest, oldest) if time is not None), default=None)
        one.sets |= sets


def _times(times: pa.Int64Array) -> pa.Int64Array:
    return pc.if_else(pc.equal(times, NO_TIMESTAMP), pa.scalar(None, pa.int64()), times)
