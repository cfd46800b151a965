"""Store what a task has read, and keep what it has not committed yet, for all its partitions.

Files are stored while reading continues, those of small partitions in parallel.  Cuts whose objects
are stored wait for each other: one part of the ledger and one commit serve many of them.  An object
is in the ledger before its offset is committed; where the ledger cannot be written, its cuts fail.

With each cut go its rows of the ledger, the position to commit, and the report that holds then.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, Self, TypeVar

from kbackup.catalog.ledger.rows import OBJECTS, PASSED, TOMBSTONES, Entry, ranged, stored, table
from kbackup.catalog.ledger.stream import topic_stream
from kbackup.clock import Clock
from kbackup.errors import KbackupError, StoreError
from kbackup.events import ObjectStored
from kbackup.kafka import Position, Positions, Reader, check_not_ahead
from kbackup.naming import DatedLayout, Layout
from kbackup.pipeline.write import ClosedFile
from kbackup.records import Facts, Span, TopicPartition, joined
from kbackup.runs.dead_letters import DeadLetters
from kbackup.runs.position import Done, SinkPosition
from kbackup.runs.report import SPANS_MOST, OfSink, PartitionReport
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.keep import UploadDates, keep, keep_indexed, write_pointer
from kbackup.sink.rejects import RecordsLeftOut
from kbackup.sink.schemas import SchemaKeeper
from kbackup.sink.start import StoredAgain
from kbackup.spark.channel import TaskChannel
from kbackup.stores import ObjectHead, Seals, Store, open_store
from kbackup.stores.encrypted import DATA_KEY

_T = TypeVar("_T")

THREADS: Final = 8
"""Files that are stored side by side, as far as their bytes go."""

AGAIN_S: Final = 1.0
"""How long an answer about a group's position is believed before values are stored."""

CUTS_MOST: Final = 64
WAIT_S: Final = 0.5
"""Cuts are committed once this many are waiting, or once the first has waited this long."""


@dataclass(frozen=True, slots=True)
class ClosedFileSet:
    """Files that were closed together, complete, and not stored yet.

    Attributes:
        files: In the order to store them.
        next_offset: The first offset after them.
    """

    files: tuple[ClosedFile, ...]
    next_offset: int
    bytes_read: int
    left_out: RecordsLeftOut

    def size(self, spool_bytes: int) -> int:
        """Return what they hold in memory, at most *spool_bytes* each."""
        return sum(min(file.body.size, spool_bytes) for file in self.files)


@dataclass(slots=True)
class StoredFileSet:
    """Objects that were stored together, and are not committed yet.

    Attributes:
        topic: The name under which its topic is stored.
        rows: What the ledger is to say of them.
        position: What to commit.
        report: What holds once it is committed.
        settled: Done when it is committed, or has failed.
    """

    where: TopicPartition
    topic: str
    rows: Sequence[Entry]
    position: Position
    report: PartitionReport[OfSink]
    settled: Future[None] = field(default_factory=Future)


class Storing:
    """File sets in flight, from closed files to committed offsets.  A context manager.

    Args:
        positions: Where offsets are committed; nobody else may use it meanwhile.
        limit_bytes: What may be in flight at a time; a larger file goes alone.

    Attributes:
        writer: One thread in which files are written, while what follows is read and converted.
    """

    def __init__(
        self, store: Store, layout: Layout, positions: Positions, clock: Clock, limit_bytes: int
    ) -> None:
        self._store, self._layout, self._clock = store, layout, clock
        self._positions, self._limit_bytes = positions, limit_bytes
        self.writer = ThreadPoolExecutor(1)
        self._pool = ThreadPoolExecutor(THREADS)
        self._seen: dict[TopicPartition, tuple[float, Position | None]] = {}  # and when
        self._turn = threading.Lock()  # held while positions are asked for or committed
        self._changed = threading.Condition()  # guards what follows
        self._bytes = self._jobs = 0
        self._waiting: list[StoredFileSet] = []
        self._since = 0.0
        self._is_asked = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        self.writer.shutdown()

    def expect(self, wheres: Iterable[TopicPartition]) -> None:
        """Ask for the positions of many partitions at once; `position` asks for any others."""
        for where, found in self._positions.read_all(list(wheres)).items():
            self._note(where, found)

    def position(self, where: TopicPartition) -> Position | None:
        """Return the position of a partition, as it was when it was asked for or committed here."""
        if where not in self._seen:
            self._ask(where)
        return self._seen[where][1]

    def check(self, where: TopicPartition, reached: int) -> None:
        """Check that nobody else has committed what comes after *reached*.

        It is asked again only once a while has passed: that takes a run that slept.

        Raises:
            OffsetMovedError: If somebody has.
        """
        if self._clock.steady_s() - self._seen.get(where, (-inf, None))[0] >= AGAIN_S:
            self._ask(where)
        what = f"storing {where} from offset {reached} on"
        check_not_ahead(what, self._seen[where][1], reached)

    def _ask(self, where: TopicPartition) -> None:
        with self._turn:
            self._note(where, self._positions.read(where))

    def _note(self, where: TopicPartition, found: Position | None) -> None:
        self._seen[where] = self._clock.steady_s(), found

    def submit(self, size: int, function: Callable[..., _T], *arguments: Any) -> "Future[_T]":
        """Call *function* in another thread, once there is room for *size* bytes."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._bytes or self._bytes + size <= self._limit_bytes
            )
            self._bytes += size
            self._jobs += 1
        future = self._pool.submit(function, *arguments)
        future.add_done_callback(lambda _: self._end(size))
        return future

    def add(self, stored: StoredFileSet) -> None:
        """Take a cut whose objects are stored; `flush` settles it."""
        with self._changed:
            if not self._waiting:
                self._since = self._clock.steady_s()
            self._waiting.append(stored)

    def is_due(self) -> bool:
        """Whether cuts should not wait for more of them."""
        with self._changed:
            return len(self._waiting) >= CUTS_MOST or (
                bool(self._waiting) and self._clock.steady_s() - self._since >= WAIT_S
            )

    def flush_beside(self) -> None:
        """Settle what is due in another thread."""
        if self.is_due() and not self._is_asked:
            self._is_asked = True
            self.submit(0, self.flush)

    def flush(self) -> None:
        """Settle all cuts that wait; when this returns, those that were added before are."""
        with self._turn:  # commits stay in order
            with self._changed:
                cuts, self._waiting = self._waiting, []
                self._is_asked = False
            try:
                self._settle(cuts)
            except BaseException as error:
                for cut in cuts:
                    if not cut.settled.done():
                        cut.settled.set_exception(error)
                raise

    def drain(self) -> None:
        """Return when nothing is in flight any more."""
        with self._changed:
            self._changed.wait_for(lambda: not self._jobs)
        self.flush()

    def _end(self, size: int) -> None:
        with self._changed:
            self._bytes -= size
            self._jobs -= 1
            self._changed.notify_all()

    def _settle(self, cuts: Sequence[StoredFileSet]) -> None:
        topics = sorted({cut.topic for cut in cuts if cut.rows})
        with ThreadPoolExecutor(min(THREADS, len(topics)) or 1) as pool:
            enter = [pool.submit(self._enter, topic, cuts) for topic in topics]
            failed = {
                topic: error
                for topic, entered in zip(topics, enter, strict=True)
                if (error := entered.result()) is not None
            }
        entered = {cut.where: cut for cut in cuts if cut.topic not in failed or not cut.rows}
        refused = self._positions.advance_all({at: cut.position for at, cut in entered.items()})
        for cut in cuts:
            error = refused.get(cut.where) if cut.where in entered else failed[cut.topic]
            if error is None:
                self._note(cut.where, cut.position)
                cut.settled.set_result(None)
            else:
                cut.settled.set_exception(type(error)(error.what, error.why, error.do))

    def _enter(self, topic: str, cuts: Sequence[StoredFileSet]) -> KbackupError | None:
        """Enter the objects of a topic into the ledger; return why not."""
        rows = [row for cut in cuts if cut.topic == topic for row in cut.rows]
        stream = topic_stream(self._store, self._layout, topic, self._clock)
        try:
            stream.append(table(rows, OBJECTS))
        except KbackupError as error:
            return error
        return None


@dataclass(slots=True)
class Placing:
    """Where the objects of a partition go.

    Attributes:
        stored_as: The name under which the partition is stored.
        again: What of it is stored a second time.
    """

    job: SinkJob
    unit: SinkUnit
    store: Store
    channel: TaskChannel
    stored_as: TopicPartition = field(init=False)
    again: StoredAgain = field(init=False)

    def __post_init__(self) -> None:
        self.stored_as = self.job.routes(self.unit.where)
        self.again = StoredAgain(self.unit.where, self.unit.held)

    def dates(self, last_key: str | None) -> Callable[[int], str] | None:
        """Return what gives files the dates of their upload, None where none have them."""
        job = self.job
        if not isinstance(job.layout, DatedLayout):
            return None
        return UploadDates(self.store, job.layout, self.stored_as, job.clock, last_key).of

    def place(self, report: PartitionReport[OfSink], closed: ClosedFileSet) -> StoredFileSet:
        """Store the files of a set; it is neither entered into the ledger nor committed yet.

        Args:
            report: What holds before it.

        Raises:
            KbackupError: As `kbackup.sink.keep.keep`.
        """
        where, next_offset, left_out = self.unit.where, closed.next_offset, closed.left_out
        now_ms = self.job.clock.ms()
        rows = left_out.entries(where, self.job.run, now_ms)
        if not closed.files and report.reached < next_offset:
            span = Span(report.reached, next_offset)
            rows.append(ranged(PASSED, where, span, self.job.run, now_ms))
        self._check_again(closed)
        before, newest = report.own.commit_metadata, None
        done = report.done + Done(
            bytes_read=closed.bytes_read, nulls=left_out.nulls, filtered=left_out.filtered,
            bad_records=left_out.bad_records,
        )  # fmt: skip
        for file in closed.files:
            try:
                facts = self._keep(file)
            finally:
                file.body.close()
            rows.append(row := self._row(file, facts))
            done += _done(file)
            if file.is_main and (newest is None or (newest.last_offset or 0) < facts.last_offset):
                newest = SinkPosition(file.key, facts.last_offset, size=rows[-1].bytes)
            told = file.facts if row.data_key is None else row.facts or facts
            self.channel.tell(ObjectStored.of(self.job.run, file.key, told, file.body.size))
        if newest is not None:
            done = replace(done, last=newest.last_offset)
        last = newest or before or SinkPosition()
        commit_metadata = replace(
            last, identity=self.unit.identity, again_to=self.again.to(next_offset),
            backup=self.job.backup, run=self.job.run, done=done, at=next_offset,
        )  # fmt: skip
        skipped = joined((*report.own.skipped, *left_out.bad))[:SPANS_MOST]
        own = replace(report.own, commit_metadata=commit_metadata, skipped=skipped)
        return StoredFileSet(
            where, self.stored_as.topic, rows, commit_metadata.position(next_offset),
            replace(report, committed=next_offset, done=done, own=own),
        )  # fmt: skip

    def _check_again(self, closed: ClosedFileSet) -> None:
        """Check that files take the places of those of the same offsets that are there."""
        mains = [file for file in closed.files if file.is_main]
        if mains:
            first = min(file.facts.first_offset for file in mains)
            held = Span(first, max(file.facts.last_offset for file in mains) + 1)
            self.again.check(self.store, held, closed.next_offset, [file.key for file in mains])

    def _keep(self, file: ClosedFile) -> Facts:
        """Store a file with all that belongs beside it; return what is there now."""
        if file.index is None:
            return keep(self.store, file, self.job.layout)
        facts = keep_indexed(self.store, file, self.job.layout)
        if self.job.points and isinstance(self.job.layout, DatedLayout):
            write_pointer(self.store, self.job.layout, self.stored_as, file.index)
        return facts

    def _row(self, file: ClosedFile, facts: Facts) -> Entry:
        """Return what the ledger is to say of a file whose object has *facts* now."""
        size, data_key = file.body.size, None
        is_sealed = isinstance(self.store, Seals)
        if is_sealed or facts != file.facts:  # a longer object was there already
            head = self.store.head(file.key)
            size = size if head is None else head.size
            if is_sealed:  # the ledger knows what is stored, not what was written
                facts, data_key = _sealed(file, head)
        view = TOMBSTONES if file.is_tombstones else file.spec.view
        row = stored(
            self.unit.where, file.key, view, facts, size, file.cut.span, self.job.run,
            self.job.clock.ms(),
        )  # fmt: skip
        return replace(row, data_key=data_key)


def _sealed(file: ClosedFile, head: ObjectHead | None) -> tuple[Facts, str | None]:
    facts = None if head is None else Facts.from_metadata(head.metadata)
    if head is None or facts is None:
        raise StoreError(
            f"{file.key} is missing", "it was stored just before", "run the command again"
        )
    return facts, head.metadata.get(DATA_KEY)


def _done(file: ClosedFile) -> Done:
    if not file.is_main:
        return Done(objects=1, bytes_stored=file.body.size)
    return Done(file.facts.records, 1, first=file.facts.first_offset, bytes_stored=file.body.size)


@dataclass(frozen=True, slots=True)
class TaskClients:
    """The clients of a task: made once, and used for all its partitions.

    Attributes:
        letters: Where records go that are left out; None for nowhere.
        schemas: Stores the schemas that records name; None where no registry is known.
    """

    store: Store
    positions: Positions
    reader: Reader
    letters: DeadLetters | None = None
    schemas: SchemaKeeper | None = None

    def close(self) -> None:
        """Leave the cluster."""
        self.positions.close()
        self.reader.close()
        if self.letters is not None:
            self.letters.close()


def connect(
    job: SinkJob, channel: TaskChannel, instead_of: TaskClients | None = None
) -> TaskClients:
    """Open the clients of a task.

    Args:
        instead_of: These are closed, but for their store, which is kept, and what is known of
            schemas.
    """
    if instead_of is not None:
        instead_of.close()
    store = open_store(job.store) if instead_of is None else instead_of.store
    topic = job.errors.topic
    letters = None if topic is None else DeadLetters(job.kafka, job.group, topic)
    schemas = None if instead_of is None else instead_of.schemas
    if schemas is None and job.schemas.registries:
        schemas = SchemaKeeper(job.schemas, store, job.layout, job.clock, job.run, channel)
    positions = job.kafka.positions(job.group)
    reader = job.kafka.reader(job.group, by_batches=job.is_by_batches)
    return TaskClients(store, positions, reader, letters, schemas)


def storing(job: SinkJob, clients: TaskClients) -> Storing:
    """Open what takes the cuts of a task."""
    limit_bytes = job.spool_bytes * len(job.views)
    return Storing(clients.store, job.layout, clients.positions, job.clock, limit_bytes)
