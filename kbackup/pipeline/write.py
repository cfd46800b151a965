"""The open files of one partition: one set for each directory, filled together, closed together.

Of record batches there is one file, which takes them as they are.  Files are spooled: in memory up
to a limit, which those of several directories share, then on disk.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.batches import BatchError, Batches
from kbackup.batches.decoding import Tally, decoded
from kbackup.errors import BadRecordError, ConfigurationError, KbackupError
from kbackup.files import SPOOL_BYTES, Spool
from kbackup.formats import BatchFile, HasIndex, StoresBatches, Writer
from kbackup.naming import INDEX_EXTENSION, Layout, ObjectKey, View
from kbackup.pipeline.convert import Conversion, brought_under
from kbackup.pipeline.rows import NO_TOMBSTONES, Part, RecordsDigest, Rows, by_directory
from kbackup.pipeline.views import ViewSpec, written_metadata
from kbackup.records import (
    NO_TIMESTAMP,
    SCHEMA,
    UNKNOWN,
    Facts,
    Rotation,
    Schema,
    Span,
    TopicIdentity,
    TopicPartition,
)

NO_RECORDS: Final = Facts(
    first_offset=-1, last_offset=-1, records=0, min_timestamp=None, max_timestamp=None, sha256=""
)
_SIBLINGS: Final = "siblings"


@dataclass(frozen=True, slots=True)
class Index:
    """Where the blocks of a file are, and the key under which that is stored beside the file."""

    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class ClosedFile:
    """A file that is complete and waits to be stored.

    Attributes:
        body: Its bytes; whoever stores them closes it.
        facts: Of the records in it.
        cut: The files it was closed with.
        index: Its index, None where its format has none.
        is_main: Whether it is what its records are known by: of the files of one directory, one.
        siblings: Of a file of values, the views beside it.
    """

    key: str
    spec: ViewSpec
    body: Spool
    facts: Facts
    cut: Rotation
    where: TopicPartition
    identity: TopicIdentity = UNKNOWN
    index: Index | None = None
    is_main: bool = True
    siblings: tuple[View, ...] = ()

    @property
    def is_tombstones(self) -> bool:
        """Whether it holds the keys of records without a value."""
        return self.is_main and self.spec.view is View.KEY

    @property
    def metadata(self) -> dict[str, str]:
        """What is kept with the object."""
        return {
            **self.facts.to_metadata(),
            **self.cut.to_metadata(),
            **self.identity.to_metadata(),
            "partition": str(self.where.partition),
            **siblings_metadata(self.siblings),
            **written_metadata(self.spec.written_with),
        }


def siblings_metadata(views: Iterable[View]) -> dict[str, str]:
    """Return what an object of values says of those beside it: nothing where there are none."""
    names = " ".join(sorted(view.removeprefix(".") for view in views))
    return {_SIBLINGS: names} if names else {}


def siblings_of(metadata: Mapping[str, str]) -> frozenset[View]:
    """Read what `siblings_metadata` wrote."""
    names = metadata.get(_SIBLINGS, "").split()
    return frozenset(view for view in (View.KEY, View.HEADERS) if view.removeprefix(".") in names)


@dataclass(slots=True)
class _Sheet:
    """One view of one open file."""

    view: Conversion
    schema: Schema | None
    body: Spool
    writer: Writer


@dataclass(slots=True)
class _Open:
    """The open files of one directory, and what is known of their records."""

    sheets: list[_Sheet]
    facts: Facts = NO_RECORDS


_FEW_BYTES: Final = 2**16
"""Up to so many bytes of rows, another thread takes longer to begin than they take to write."""


@dataclass(slots=True)
class OpenFiles:
    """The open files of one topic-partition.

    Attributes:
        views: The files of each directory, in the order they are stored.
        spool_bytes: What each open file may hold in memory; with several directories, all together.
        identity: Which topic it is; kept in each file that has room for it, and beside it.
        tombstones: The directory of rows without a value, of which everything else is stored, the
            keys last; empty where there is none.
        dated: Gives the date under which the files that begin at an offset are stored; needed
            where the layout is dated.
        pool: One thread in which rows are written, while the caller makes the next ones, and takes
            their digest; None: the caller's own, as for few rows.  What fails there is raised by
            the next call.
    """

    where: TopicPartition
    views: Sequence[Conversion]
    layout: Layout
    spool_bytes: int
    identity: TopicIdentity = UNKNOWN
    dated: Callable[[int], str] | None = None
    tombstones: str = NO_TOMBSTONES
    pool: Executor | None = None
    records: int = 0
    _open: dict[str, _Open] = field(default_factory=dict)
    _digests: dict[str, RecordsDigest] = field(default_factory=dict)
    _writing: Future[None] | None = None

    def write(self, rows: Rows) -> None:
        """Add rows, each to the files of its directory.

        Raises:
            NoSpaceError: If neither memory nor disk takes them.
        """
        self.records += len(rows)
        parts = by_directory(rows)
        for directory, some in parts:
            self._digests.setdefault(directory, RecordsDigest()).add(some.batch)
        self._await_written()
        if self.pool is None or rows.batch.nbytes <= _FEW_BYTES:
            self._write(parts)
        else:
            self._writing = self.pool.submit(self._write, parts)

    def _await_written(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(self, parts: Sequence[tuple[str, Rows]]) -> None:
        for directory, some in parts:
            files = self._open.get(directory)
            if files is None:
                files = self._open[directory] = _Open([])
                for view, part in self._filed(directory, some):
                    files.sheets.append(self._begin(view, part))
            for sheet, (_, part) in zip(files.sheets, self._filed(directory, some), strict=True):
                sheet.writer.write(self._under(sheet.schema, part))
            files.facts = grown(files.facts, some.batch)
        if len(self._open) > 1:
            self._relieve()

    def close(self, span: Span) -> list[ClosedFile]:
        """Complete all open files, and begin anew.

        Args:
            span: What the cut covers: from the position before it to the one after it.

        Returns:
            Directory by directory in the order of their first records, the views of each in the
            layout's order: ready to be stored in that order.
        """
        self._await_written()
        closed = []
        cut = Rotation(span, len(self._open))
        is_spread = len(self._open) > 1
        for directory, files in self._open.items():
            facts, digest = files.facts, self._digests[directory].text
            if self.dated is not None:
                directory = self.dated(facts.first_offset)  # noqa: PLW2901
            metadata = inner_metadata(facts, self.where, self.identity)
            for sheet in files.sheets:
                spec = sheet.view.spec
                sheet.writer.close(metadata)
                if is_spread:  # a file may get most of its bytes only now
                    self._relieve()
                key = ObjectKey(
                    self.where.topic, self.where.partition, facts.first_offset, directory,
                    spec.extension(), spec.view,
                )  # fmt: skip
                own = replace(facts, sha256=sheet.body.sha256, digest=digest)
                is_main = sheet is files.sheets[-1]
                beside = [each.view.spec.view for each in files.sheets[:-1]] if is_main else ()
                closed.append(
                    ClosedFile(
                        self.layout.key(key), spec, sheet.body, own, cut, self.where,
                        self.identity, self._index(key, sheet.writer), is_main, tuple(beside),
                    )
                )  # fmt: skip
        self._open, self._digests, self.records = {}, {}, 0
        return closed

    def drop(self) -> None:
        """Discard all open files: the next run begins them again."""
        with suppress(Exception):  # of what is dropped with its files
            self._await_written()
        for files in self._open.values():
            for sheet in files.sheets:
                with suppress(Exception):  # such as a full disk, which is why it is dropped: after
                    # it, pyarrow's writer has errors of its own, and none may hide the first
                    sheet.writer.close({})  # left alone, it would write its end later, to nowhere
                sheet.body.close()
        self._open, self._digests, self.records = {}, {}, 0

    def _filed(self, directory: str, rows: Rows) -> list[tuple[Conversion, Part]]:
        """Return what each file of *directory* takes of *rows*, in the order they are stored."""
        files = list(zip(self.views, rows.parts, strict=True))
        return files[-2::-1] if directory == self.tombstones else files

    def _index(self, key: ObjectKey, writer: Writer) -> Index | None:
        if not isinstance(writer, HasIndex):
            return None
        beside = self.layout.key(replace(key, extension=INDEX_EXTENSION))
        return Index(beside, writer.index(key.start_offset))

    def _under(self, schema: Schema | None, part: Part) -> pa.RecordBatch:
        """Return the rows of *part* under the schema of their file."""
        if part.schema == schema:
            return part.batch
        values = brought_under(schema, part.batch.column(0), part.schema)
        if values is None:
            raise KbackupError(f"{self.where}: a file of one schema was given another")
        return pa.record_batch([values], [part.batch.schema.names[0]])

    def _begin(self, view: Conversion, part: Part) -> _Sheet:
        body = Spool(self.spool_bytes)
        writer = view.format.writer(body, view.spec.view, view.spec.options, part.schema)
        return _Sheet(view, part.schema, body, writer)

    def _relieve(self) -> None:
        """Move the largest files to disk until the rest fit into memory together."""
        bodies = [sheet.body for files in self._open.values() for sheet in files.sheets]
        held = sorted((body for body in bodies if body.in_memory), key=lambda body: body.size)
        total = sum(body.size for body in held)
        while total > self.spool_bytes:
            largest = held.pop()
            total -= largest.size
            largest.move_to_disk()


def inner_metadata(facts: Facts, where: TopicPartition, identity: TopicIdentity) -> dict[str, str]:
    """Return what a file says about itself, if its format has room."""
    metadata = replace(facts, digest=None).to_metadata()
    del metadata["sha256"]
    metadata |= {"topic": where.topic, "partition": str(where.partition)}
    return metadata | identity.to_metadata()


def grown(facts: Facts, batch: pa.RecordBatch) -> Facts:
    """Return *facts* with the records of *batch* counted in."""
    offsets, times = batch["offset"], batch["timestamp"]
    span = pc.min_max(times).as_py()
    if span["min"] is not None and span["min"] <= NO_TIMESTAMP:
        span = pc.min_max(times.filter(pc.not_equal(times, NO_TIMESTAMP))).as_py()
    lows = [at for at in (facts.min_timestamp, span["min"]) if at is not None]
    highs = [at for at in (facts.max_timestamp, span["max"]) if at is not None]
    return replace(
        facts,
        first_offset=offsets[0].as_py() if facts.records == 0 else facts.first_offset,
        last_offset=offsets[-1].as_py(),
        records=facts.records + len(batch),
        min_timestamp=min(lows, default=None),
        max_timestamp=max(highs, default=None),
    )


def unreadable(where: TopicPartition, error: BatchError) -> BadRecordError:
    """Return the error of a batch that its producer has written in another way than it says."""
    return BadRecordError(
        f"{where}: {error}", "its producer wrote it like that",
        "fix the producer, or leave out format.class: full records are stored as Parquet then"
        + (", and errors.tolerance=all leaves such records out" if error.is_name else ""),
        **where.place, offset=error.offset,
    )  # fmt: skip


@dataclass(slots=True)
class OpenLog:
    """The open file of one topic-partition, of batches, in a format that stores them.

    See `OpenFiles` for what they share.
    """

    where: TopicPartition
    spec: ViewSpec
    directory: str
    layout: Layout
    spool_bytes: int
    identity: TopicIdentity = UNKNOWN
    pool: Executor | None = None
    records: int = 0
    _tally: Tally = field(default_factory=Tally)
    _body: Spool | None = None
    _file: BatchFile | None = None
    _writing: Future[None] | None = None

    def write(self, batches: Batches) -> None:
        """Add batches.

        Raises:
            BadRecordError: If a batch does not hold what its header says.
            NoSpaceError: If neither memory nor disk takes them.
        """
        if self._file is None:
            form = self.spec.open_format()
            if not isinstance(form, StoresBatches):
                raise ConfigurationError(f"the {self.spec.format} format stores no batches")
            self._tally = Tally(self.spec.options.max_record_bytes)
            self._body = Spool(self.spool_bytes)
            self._file = form.batch_writer(self._body)
        self.records += batches.records
        self._await_written()
        if self.pool is None or batches.bytes <= _FEW_BYTES:
            self._file.write(batches)
        else:
            self._writing = self.pool.submit(self._file.write, batches)
        try:
            self._tally.add(batches)
        except BatchError as error:
            raise unreadable(self.where, error) from None

    def close(self, span: Span) -> list[ClosedFile]:
        """Complete the file, and begin anew; no file where there is nothing in it."""
        self._await_written()
        facts, file, body = self._tally.facts(), self._file, self._body
        if facts is None or file is None or body is None:
            return []
        file.close(inner_metadata(facts, self.where, self.identity))
        key = ObjectKey(
            self.where.topic, self.where.partition, facts.first_offset, self.directory,
            self.spec.extension(), self.spec.view,
        )  # fmt: skip
        self._file, self._body, self._tally, self.records = None, None, Tally(), 0
        return [
            ClosedFile(
                self.layout.key(key), self.spec, body, replace(facts, sha256=body.sha256),
                Rotation(span, 1), self.where, self.identity,
            )
        ]  # fmt: skip

    def drop(self) -> None:
        """Discard the open file: the next run begins it again."""
        with suppress(Exception):  # of what is dropped
            self._await_written()
        if self._body is not None:
            self._body.close()
        self._file, self._body, self._tally, self.records = None, None, Tally(), 0

    def _await_written(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def merge_logs(file: ClosedFile, theirs: BinaryIO) -> ClosedFile | None:
    """Return a file with the records of both, each once; None where one offset has two records.

    Compaction leaves a batch its offsets and takes records out of it: of two batches of the same
    offsets, that with the records of the other is taken.
    """
    form = file.spec.open_format()
    assert isinstance(form, StoresBatches)  # noqa: S101  (it was written by one)
    file.body.seek(0)
    both = [_single(form.batches(each, file.spec.options)) for each in (file.body, theirs)]
    body, tally = Spool(SPOOL_BYTES), Tally(file.spec.options.max_record_bytes)
    writer = form.batch_writer(body)
    for one in _in_turn(*both):
        if one is None:
            body.close()
            return None
        writer.write(one)
        tally.add(one)
    facts = tally.facts()
    assert facts is not None  # noqa: S101  (each of the two has records)
    writer.close(inner_metadata(facts, file.where, file.identity))
    return replace(file, body=body, facts=replace(facts, sha256=body.sha256))


def tallied_to(file: ClosedFile, last_offset: int) -> Facts | None:
    """Return what is known of a file's batches up to the last one of a batch; None for no batch."""
    form = file.spec.open_format()
    assert isinstance(form, StoresBatches)  # noqa: S101  (it was written by one)
    file.body.seek(0)
    tally = Tally(file.spec.options.max_record_bytes)
    for one in _single(form.batches(file.body, file.spec.options)):
        if one.next_offset - 1 > last_offset:
            break
        tally.add(one)
    return tally.facts()


def _single(stream: Iterator[Batches]) -> Iterator[Batches]:
    for batches in stream:
        for at in range(len(batches)):
            yield batches.slice(at, 1)


def _in_turn(left: Iterator[Batches], right: Iterator[Batches]) -> Iterator[Batches | None]:
    """Yield single batches of both in order; None where they contradict each other."""
    mine, other = next(left, None), next(right, None)
    while mine is not None and other is not None:
        if mine.next_offset <= other.first_offset:
            yield mine
            mine = next(left, None)
        elif other.next_offset <= mine.first_offset:
            yield other
            other = next(right, None)
        else:
            yield _richer(mine, other)
            mine, other = next(left, None), next(right, None)
    for one, rest in ((mine, left), (other, right)):
        if one is not None:
            yield one
            yield from rest


def _richer(mine: Batches, other: Batches) -> Batches | None:
    """Return the batch that has all records of the other one, None where neither has."""
    if mine.headers["crc"] == other.headers["crc"]:
        return mine
    fewer, more = sorted((mine, other), key=lambda each: each.records)
    rows = [pa.Table.from_batches(decoded(each), SCHEMA) for each in (fewer, more)]
    kept = rows[1].filter(pc.is_in(rows[1]["offset"], rows[0]["offset"].combine_chunks()))
    return more if kept.equals(rows[0]) else None
