"""One task: a partition's records from Kafka to objects.

Objects are complete, then the group's offset is committed, then progress is told.  The upload of
one cut runs beside the filling of the next one; commits stay in order.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Final

import pyarrow as pa

from kbackup.channel import Line
from kbackup.engine import Report
from kbackup.errors import BadRecordError, KbackupError, StoppedError
from kbackup.flow import rotation
from kbackup.flow.views import has_value
from kbackup.kafka import Position
from kbackup.kafka.cluster import Outage
from kbackup.kafka.positions import Positions
from kbackup.kafka.reader import Reader
from kbackup.records import Span, TopicPartition, batch_bytes
from kbackup.sink.files import ClosedFile, OpenFiles
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.keep import keep
from kbackup.sink.start import LastObject
from kbackup.stores import Store, open_store

DONE: Final = ("records", "objects", "bytes_read", "bytes_stored", "nulls", "first")
"""What a report counts over all tasks that a run tried a partition with."""

TELL_S: Final = 0.5
"""How often a task tells what it has read beyond what is safe."""


def back_up(job: SinkJob, units: Sequence[SinkUnit], line: Line) -> Iterator[Report]:
    """Work through *units* one after the other; a failure is a report, not an exception.

    Memory: one reader, one open cut and one being uploaded, whatever the number of units.
    """
    store = open_store(job.store)
    with (
        closing(Positions(job.kafka, job.group)) as positions,
        closing(Reader(job.kafka, job.group)) as reader,
    ):
        outage = Outage(job.kafka)
        for unit in units:
            work = _Work(job, unit, store, positions, reader, line)
            try:
                outage.check()
                work.run()
            except KbackupError as error:
                work.report["failure"] = _placed(error, unit.where).to_dict()
                outage.note(error)
            yield work.report
            if line.is_stopped():
                return


def _placed(error: KbackupError, where: TopicPartition) -> KbackupError:
    error.place.setdefault("topic", where.topic)
    error.place.setdefault("partition", where.partition)
    return error


@dataclass(slots=True)
class _Work:
    """One unit's way through the task, and the report that grows on it."""

    job: SinkJob
    unit: SinkUnit
    store: Store
    positions: Positions
    reader: Reader
    line: Line
    report: Report = field(default_factory=dict)
    _told: float = field(default_factory=monotonic)
    _read: int = 0

    def __post_init__(self) -> None:
        where, span = self.unit.where, self.unit.span
        self.report = {
            "topic": where.topic, "partition": where.partition, "start": span.start_offset,
            "end": span.end_offset, "committed": span.start_offset, "records": 0, "objects": 0,
            "bytes_read": 0, "bytes_stored": 0, "nulls": 0, "first": None, "last": None,
            "metadata": self.unit.metadata,
        }  # fmt: skip

    def run(self) -> None:
        where = self.unit.where
        span = self._resumed(self.unit.span)
        files = OpenFiles(self.job, where, self.unit.identity)
        with ThreadPoolExecutor(1) as uploader:
            upload: Future[None] | None = None
            try:
                for step in rotation.cut(self._records(span), self.job.rule):
                    match step:
                        case rotation.Append(batch):
                            self._write(files, batch)
                            self._read += batch_bytes(batch)
                            self._tell_open(files)
                        case rotation.Cut(next_offset):
                            _finish(upload)
                            cut = files.close(), next_offset, self._taken()
                            upload = uploader.submit(self._store, *cut)
                _finish(upload)
                upload = None
                if files.records and self.job.flush_tail:
                    self._store(files.close(), span.end_offset, self._taken())
                elif not files.records and self.report["committed"] < span.end_offset:
                    self._store([], span.end_offset, 0)
            finally:
                files.drop()
                _finish(upload)

    def _resumed(self, span: Span) -> Span:
        """Return what is left to do: all, or what an earlier task of this run has not committed.

        Spark tries a task again whose worker died.  What that one committed is not read again,
        and counts as done.
        """
        position = self.positions.read(self.unit.where)
        last = None if position is None else LastObject.from_metadata(position.metadata)
        if position is None or last is None or last.run != self.job.run:
            return span
        self.report |= {name: last.done[name] for name in DONE if name in last.done}
        self.report["metadata"] = position.metadata
        if self.report["records"]:
            self.report["last"] = last.last_offset
        start = max(span.start_offset, position.offset)
        self.report["committed"] = start
        return Span(start, max(start, span.end_offset))

    def _records(self, span: Span) -> Iterator[pa.RecordBatch]:
        """The records of *span*, without those to leave out; ends early when asked to stop."""
        where = self.unit.where
        for batch in self.reader.read(where, span):
            if self.line.is_stopped():
                raise StoppedError(f"{where} stopped")
            kept = batch
            if self.job.drops_nulls:
                kept = batch.filter(has_value(batch, self.job.views[-1].converter))
                self.report["nulls"] += len(batch) - len(kept)
            if len(kept):
                yield kept

    def _write(self, files: OpenFiles, batch: pa.RecordBatch) -> None:
        try:
            files.write(batch)
        except BadRecordError as error:
            offset = batch["offset"][error.row].as_py()
            where = self.unit.where
            raise BadRecordError(
                f"{where} offset {offset}: {error.what}", error.why, error.do, row=error.row,
                topic=where.topic, partition=where.partition, offset=offset,
            ) from error  # fmt: skip

    def _taken(self) -> int:
        """Return the bytes read for the open files, and begin to count anew."""
        taken, self._read = self._read, 0
        return taken

    def _store(self, files: list[ClosedFile], next_offset: int, read: int) -> None:
        """Store the files of one cut, made from *read* bytes, then commit, then tell."""
        last_key = ""
        for file in files:
            try:
                facts = keep(self.store, file)
            finally:
                file.body.close()
            last_key = file.key
            self._count(file, facts.last_offset)
            self.line.tell(_object_event(self.job.run, file))
        before = LastObject.from_metadata(self.report["metadata"]) or LastObject(None, None)
        last = LastObject(last_key, self.report["last"]) if files else before
        last = replace(last, identity=self.unit.identity)
        self.report["bytes_read"] += read
        done = {name: self.report[name] for name in DONE}
        self.report["metadata"] = replace(last, run=self.job.run, done=done).to_metadata()
        position = Position(next_offset, self.report["metadata"])
        self.positions.advance(self.unit.where, position)
        self.report["committed"] = next_offset
        self._tell_progress(0)

    def _tell_open(self, files: OpenFiles) -> None:
        """Tell now and then what has been read and could still be lost."""
        if monotonic() - self._told >= TELL_S:
            self._tell_progress(files.records)

    def _tell_progress(self, open_records: int) -> None:
        self._told = monotonic()
        event = {"type": "progress", "run": self.job.run, **_progress(self.report)}
        self.line.tell({**event, "open": open_records})

    def _count(self, file: ClosedFile, last_offset: int) -> None:
        self.report["objects"] += 1
        self.report["bytes_stored"] += file.body.size
        if file.spec is self.job.views[-1]:
            self.report["records"] += file.facts.records
            if self.report["first"] is None:
                self.report["first"] = file.facts.first_offset
            self.report["last"] = last_offset


def _finish(upload: "Future[None] | None") -> None:
    if upload is not None:
        upload.result()


def _progress(report: Report) -> dict[str, Any]:
    names = ("topic", "partition", "committed", "end", "records", "objects", "bytes_stored")
    return {name: report[name] for name in names}


def _object_event(run: str, file: ClosedFile) -> dict[str, Any]:
    facts = file.facts
    return {
        "type": "object", "run": run, "key": file.key, "first": facts.first_offset,
        "last": facts.last_offset, "records": facts.records, "bytes": file.body.size,
        "min_timestamp": facts.min_timestamp, "max_timestamp": facts.max_timestamp,
        "sha256": facts.sha256,
    }  # fmt: skip
