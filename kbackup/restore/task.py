"""One task: a partition's objects to Kafka.

Records are acknowledged, then the position is committed, by default both in one transaction; then
progress is told.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.backup.catalog import FileSet
from kbackup.backup.reading import read
from kbackup.channel import Line
from kbackup.engine import Report
from kbackup.errors import (
    BadRecordError,
    CorruptObjectError,
    IncompleteBackupError,
    KbackupError,
    ObjectNotFoundError,
    StoppedError,
)
from kbackup.kafka import Outage, Position, Writer
from kbackup.records import record_bytes
from kbackup.restore.ahead import Ahead
from kbackup.restore.job import RestoreJob, RestoreUnit
from kbackup.restore.place import DONE, Place, beginning, done_by
from kbackup.stores import Store, open_store

TRANSACTION_RECORDS: Final = 500_000
TRANSACTION_BYTES: Final = 64 * 2**20
"""A transaction ends behind this many records or bytes: what a kill makes a rerun write again."""

FIRST_BYTES: Final = 8 * 2**20
"""What the first transaction has.  The next ones grow while the cluster is quick, and shrink where
it is slow: one that outlasts the producer's timeout of five minutes is lost, and would be again."""

QUICK_S: Final = 10.0
SLOW_S: Final = 60.0
"""A transaction that takes less, or more, is followed by a larger, or a smaller one."""

_FACTOR: Final = 4
_LEAST_BYTES: Final = 2**18

TELL_S: Final = 0.5
"""How often a task tells what it has sent beyond what is safe."""

_BAD: Final = (CorruptObjectError, IncompleteBackupError, BadRecordError, ObjectNotFoundError)


def put_back(job: RestoreJob, units: Sequence[RestoreUnit], line: Line) -> Iterator[Report]:
    """Work through *units* one after the other; a failure is a report, not an exception.

    Memory: one object, few batches of it and what the client holds unacknowledged.
    """
    store = open_store(job.store)
    outage = Outage(job.kafka)
    for unit in units:
        work = _Work(job, unit, store, line)
        try:
            outage.check()
            work.run()
        except KbackupError as error:
            outage.note(error)
            error.place.setdefault("topic", unit.target.topic)
            error.place.setdefault("partition", unit.target.partition)
            work.report["failure"] = error.to_dict()
        yield work.report
        if line.is_stopped():
            return


@dataclass(slots=True)
class _Work:
    """One unit's way through the task, and the report that grows on it."""

    job: RestoreJob
    unit: RestoreUnit
    store: Store
    line: Line
    report: Report = field(default_factory=dict)
    _pending_records: int = 0
    _pending_bytes: int = 0
    _limit_bytes: int = FIRST_BYTES
    _begun: float = 0.0
    _started_at: int = 0
    _told: float = field(default_factory=monotonic)

    def __post_init__(self) -> None:
        unit = self.unit
        self.report = {
            "topic": unit.source.topic, "partition": unit.source.partition,
            "target": unit.target.topic, "records": 0, "objects": 0, "bytes_read": 0,
            "commits": 0, "duplicates": 0, "zero_timestamps": 0, "first": None, "last": None,
            "bad_records": 0, "bad_objects": 0, "committed": None, "skipped": [],
        }  # fmt: skip

    def run(self) -> None:
        unit = self.unit
        writer = self.job.kafka.writer(
            unit.target,
            self.job.group,
            exactly_once=self.job.exactly_once,
            max_message_bytes=unit.max_message_bytes,
        )
        try:
            place = self._resume(writer.position())
            rest = unit.sets[place.index :]
            with Ahead(read(self.store, files, self.job.reading) for files in rest) as ahead:
                for files in rest:
                    place = self._file(writer, files, ahead.source(), place)
            self._commit(writer, place)
        except BaseException:
            writer.abort()
            raise
        finally:
            writer.close()

    def _resume(self, found: Position | None) -> Place:
        """Return where to go on; a position that names no set of ours is taken by offset alone.

        Spark tries a task again whose worker died.  What that one committed counts as done.
        """
        place = beginning(self.unit) if found is None else Place.of(found, self.unit.sets)
        self._started_at = place.offset
        self.report["committed"] = None if found is None else found.offset
        if found is not None:
            self.report |= done_by(self.job.run, found)
        return place

    def _file(
        self, writer: Writer, files: FileSet, batches: Iterator[pa.RecordBatch], place: Place
    ) -> Place:
        """Write one file set's records from *place* on; return the place behind it."""
        seen = 0
        try:
            for batch in batches:
                if self.line.is_stopped():
                    self._commit(writer, place)
                    raise StoppedError(f"{self.unit.source} stopped at offset {place.offset}")
                fresh = self._fresh(batch, files, place, seen)
                seen += len(batch)
                if len(fresh):
                    self._write(writer, fresh, files)
                    # of the connectors' directories each begins anew; a position never goes back
                    behind = max(place.offset, fresh["offset"][-1].as_py() + 1)
                    place = Place(place.index, seen, behind)
                if (
                    self._pending_records >= TRANSACTION_RECORDS
                    or self._pending_bytes >= self._limit_bytes
                ):
                    self._commit(writer, place)
        except _BAD as error:
            self._commit(writer, place)  # what was good until here is safe
            if self.job.on_error == "fail":
                raise
            self._skip(error, files)
        else:
            self.report["objects"] += 1
            self.report["bytes_read"] += sum(file.size for file in files.files)
        return Place(place.index + 1, 0, place.offset)

    def _fresh(
        self, batch: pa.RecordBatch, files: FileSet, place: Place, seen: int
    ) -> pa.RecordBatch:
        """Return the rows that were not written yet.

        Whole records say their offset, so what overlaps another object is left out.  The
        connectors' objects do not: there only rows that this restore has written are left out,
        and nothing is dropped by guess.
        """
        if not files.is_whole:
            return batch.slice(min(len(batch), max(0, place.rows - seen)))
        if batch["offset"][0].as_py() >= place.offset:
            return batch
        is_old = pc.less(batch["offset"], place.offset)
        again = pc.and_(is_old, pc.greater_equal(batch["offset"], self._started_at))
        self.report["duplicates"] += pc.sum(again).as_py()
        return batch.slice(pc.sum(is_old).as_py())  # offsets rise

    def _write(self, writer: Writer, batch: pa.RecordBatch, files: FileSet) -> None:
        good = self._without_giants(batch, files, writer.record_bytes_max)
        if not self._pending_records:
            self._begun = monotonic()
        self.report["zero_timestamps"] += writer.write(good)
        if len(good):
            if self.report["first"] is None:
                self.report["first"] = good["offset"][0].as_py()
            self.report["last"] = good["offset"][-1].as_py()
        self._pending_records += len(good)
        self._pending_bytes += good.nbytes
        if monotonic() - self._told >= TELL_S:
            self._tell_progress()

    def _without_giants(
        self, batch: pa.RecordBatch, files: FileSet, target_max: int
    ) -> pa.RecordBatch:
        """Leave out records that the target cannot take, as ``behavior.on.error`` says."""
        limit = min(self.job.max_record_bytes, target_max)
        sizes = record_bytes(batch)
        is_giant = pc.greater(sizes, limit)
        if not pc.any(is_giant).as_py():
            return batch
        row = pc.index(is_giant, True).as_py()
        offset = batch["offset"][row].as_py()
        error = BadRecordError(
            f"{self.unit.source} offset {offset} in {files.files[0].key}",
            f"a record of {sizes[row].as_py()} bytes; the limit is {limit}",
            f"raise max.message.bytes of {self.unit.target.topic}, or --max-record-bytes",
            row=row,
            offset=offset,
        )
        if self.job.on_error == "fail":
            raise error
        count = pc.sum(is_giant).as_py()
        self.report["bad_records"] += count
        self.report["skipped"].append(error.to_dict())
        return batch.filter(pc.invert(is_giant))

    def _skip(self, error: KbackupError, files: FileSet) -> None:
        entry = error.to_dict() | {"key": files.files[0].key}
        self.report["bad_objects"] += 1
        self.report["skipped"].append(entry)
        if self.job.on_error == "log":
            self.line.tell(
                {
                    "type": "warning", "run": self.job.run, "code": "bad_object",
                    "key": entry["key"], "text": f"{error}; the rest of it is skipped",
                }
            )  # fmt: skip

    def _commit(self, writer: Writer, place: Place) -> None:
        if not self._pending_records and place.offset == self.report["committed"]:
            return
        done = {name: self.report[name] for name in DONE}
        done["commits"] += bool(self._pending_records)
        done["records"] += self._pending_records
        writer.commit(place.position(self.unit.sets, run=self.job.run, done=done))
        self.report |= done | {"committed": place.offset}
        self._limit_bytes = next_limit(self._limit_bytes, monotonic() - self._begun)
        self._pending_records = self._pending_bytes = 0
        self._tell_progress()

    def _tell_progress(self) -> None:
        self._told = monotonic()
        names = ("topic", "partition", "target", "committed", "records", "objects", "bytes_read")
        facts = {name: self.report[name] for name in names}
        event = {"type": "progress", "run": self.job.run, **facts, "open": self._pending_records}
        self.line.tell(event)


def next_limit(limit: int, seconds: float) -> int:
    """Return how many bytes the transaction has that follows one of *limit* bytes."""
    if seconds > SLOW_S:
        return max(_LEAST_BYTES, limit // _FACTOR)
    return min(TRANSACTION_BYTES, limit * _FACTOR) if seconds < QUICK_S else limit
