"""Merge the records of a partition in order, from any number of file sets and directories.

Full records know their offsets: sets that overlap are merged by them, and a record that several
sets hold comes once.  Rows of the connectors' layout do not: those sets come one after the other,
by their first offsets.

Memory: for each set that is open an object (in memory up to ``s3.part.size``, then on disk) and a
batch of its rows, and `WOVEN_BYTES`.  Open are only sets that overlap at the offset that is read.
"""

import logging
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.batches import Batches, Kept
from kbackup.catalog.claims import Reading
from kbackup.catalog.column import Lost
from kbackup.catalog.listing import EVERY_OFFSET, FileSet, Interval
from kbackup.catalog.reading import (
    count_of,
    extent_of,
    facts,
    kept_or_read,
    read_fully,
    salvage,
    unpacked,
)
from kbackup.errors import (
    CorruptObjectError,
    IncompleteBackupError,
    KbackupError,
    ObjectNotFoundError,
    RefusedError,
    counted,
    form,
    some,
)
from kbackup.records import ConflictError, merge_by_offset
from kbackup.stores import Store

_log: Final = logging.getLogger(__name__)

WOVEN_BYTES: Final = 16 * 2**20
"""What one step of a merge has about at most."""

BAD: Final = (CorruptObjectError, IncompleteBackupError, ObjectNotFoundError)
"""Errors that concern one set, and none of the others."""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Records: ``records.SCHEMA``, at least one row, offsets rising, from some sets.

    *end_row* counts the rows of a value set up to the last of them, and is 0 for full records;
    *duplicates* those that were left out because another set holds the same records.
    """

    batch: pa.RecordBatch
    files: tuple[FileSet, ...]
    end_row: int = 0
    duplicates: int = 0


@dataclass(frozen=True, slots=True)
class StoredBatches:
    """Full records in their batches, each of which has as many records as offsets."""

    batches: Batches
    files: FileSet


@dataclass(frozen=True, slots=True)
class Skipped:
    """Rows of a value set that cannot be read, up to *end_row* of it, beside others that can."""

    files: FileSet
    lost: Lost
    end_row: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A set has no more rows."""

    files: FileSet


@dataclass(frozen=True, slots=True)
class Failed:
    """A set cannot be read further; what was read is good.  *unread* is None where nobody knows."""

    files: FileSet
    error: KbackupError
    unread: int | None = None


Step = StoredRows | StoredBatches | Skipped | Finished | Failed


def steps(
    reading: Reading,
    sets: Iterable[FileSet],
    *,
    offset: int = 0,
    holds_values: bool = False,
    wanted: Interval = EVERY_OFFSET,
    kept: Kept | None = None,
) -> Iterator[Step]:
    """Read *sets* lazily.

    Args:
        sets: Of one partition, by start offset.
        offset: Full records below it are left out.
        holds_values: No row of a value set comes before all of its files are known to fit.
        wanted: Rows of a value set outside it may be left out.
        kept: Which batches come as they are stored, where one set alone has their offsets; None
            for none.
    """
    reading = replace(reading, overwritten={})
    try:
        for is_whole, run in groupby(sets, key=lambda files: files.is_whole):
            if is_whole:
                yield from _merged(reading, run, offset, kept)
            else:
                for files in run:
                    rows = salvage(reading, files, wanted)
                    if holds_values:
                        rows = read_fully(rows, salvages=reading.options.salvages)
                    yield from _values(reading.store, files, rows)
    finally:
        for what, keys in reading.overwritten.items():
            were = f"{counted(len(keys), 'object')} {form(len(keys), 'was', 'were')} overwritten"
            _log.warning("%s; %s: %s", were, what, some(keys, 3))


def records(reading: Reading, sets: Iterable[FileSet], offset: int = 0) -> Iterator[pa.RecordBatch]:
    """Read *sets* lazily, as `steps` does, and raise the error of the first that is bad.

    At least one comes at a time, in the order a restore writes them.  Rows of values are counted
    on from their object's first offset; those below *offset* are left out.
    """
    wanted = Interval(low=offset)
    for step in steps(reading, sets, offset=offset, wanted=wanted):
        match step:
            case Failed(_, error) | Skipped(_, Lost(error=error)):
                raise error
            case StoredRows(batch):
                asked = batch.filter(pc.greater_equal(batch["offset"], offset))
                if len(asked):
                    yield asked


def rows_alike(reading: Reading, sets: Iterable[FileSet]) -> dict[str, int] | None:
    """Return how many rows each set has, by `FileSet.id`, of values that begin at one offset.

    None where two differ in a row, or one cannot be read.
    """
    counts: dict[str, int] = {}
    for step in _merged(reading, sets, 0):
        match step:
            case Failed():
                return None
            case StoredRows(batch, files):  # each of them up to the last row of the batch
                last = batch["offset"][-1].as_py()
                counts |= {one.id: last - one.start_offset + 1 for one in files}
    return counts


def _values(store: Store, files: FileSet, rows: Iterable[pa.RecordBatch | Lost]) -> Iterator[Step]:
    count = 0
    try:
        for each in rows:
            if isinstance(each, Lost):
                count += each.records
                yield Skipped(files, each, each.end - files.start_offset)
            else:
                count += len(each)
                row = each["offset"][len(each) - 1].as_py() + 1 - files.start_offset
                yield StoredRows(each, (files,), row)
    except (*BAD, RefusedError) as error:
        yield Failed(files, error, _unread(store, files, count))
    else:
        yield Finished(files)


def _unread(store: Store, files: FileSet, count: int) -> int | None:
    """Return how many records of a set were not read, of which *count* were."""
    if files.main is None or files.only is not None:
        return None
    stated = files.main.records
    if stated is None:
        with suppress(KbackupError):  # it is bad enough already
            said = facts(store, files.main)
            stated = None if said is None else said.records
    return None if stated is None else max(0, stated - count)


def _merged(
    reading: Reading, sets: Iterable[FileSet], offset: int, kept: Kept | None = None
) -> Iterator[Step]:
    waiting = deque(sets)
    streams: list[_Stream] = []
    try:
        while streams or waiting:
            while waiting and (not streams or waiting[0].start_offset <= _limit(streams)):
                streams.append(_Stream(reading, waiting.popleft(), offset, kept))
                yield from _refill(streams)
            if len(streams) == 1 and (batches := streams[0].take_batches()) is not None:
                yield StoredBatches(batches, streams[0].files)
            elif streams and not any(stream.unpack() for stream in streams):
                yield from _step(streams)
            yield from _refill(streams)
    finally:
        for stream in streams:
            stream.close()


def _step(streams: "list[_Stream]") -> Iterator[Step]:
    """Take the rows up to the limit from all streams, and merge them."""
    limit = _limit(streams)
    parts = [stream.below(limit) for stream in streams]
    try:
        batch, duplicates = merge_by_offset(parts)
    except ConflictError as conflict:
        bad, good = streams[conflict.later], streams[conflict.earlier]
        bad.close()
        streams.remove(bad)
        yield Failed(bad.files, _conflict(bad.files, good.files, conflict.offset))
        return
    files = tuple(stream.files for stream, part in zip(streams, parts, strict=True) if len(part))
    for stream, part in zip(streams, parts, strict=True):
        stream.drop(len(part))
    yield StoredRows(batch, files, duplicates=duplicates)


def _refill(streams: "list[_Stream]") -> Iterator[Step]:
    """Read on where rows have run out; forget the streams that end."""
    for stream in list(streams):
        end = stream.fill()
        if end is not None:
            stream.close()
            streams.remove(stream)
            yield end


def _limit(streams: "Sequence[_Stream]") -> int:
    """Return the offset up to which every stream's rows are known."""
    return min(stream.edge(WOVEN_BYTES // len(streams)) for stream in streams)


class _Stream:
    """A set of full records that is being read; once it is filled it has rows until it ends."""

    def __init__(self, reading: Reading, files: FileSet, offset: int, kept: Kept | None) -> None:
        self.files, self._reading, self._count = files, reading, 0
        self._sources = [kept_or_read(reading, files, kept)]  # the last one is read first
        self._offset = offset
        self._part: pa.RecordBatch | Batches | None = None

    def fill(self) -> Finished | Failed | None:
        """Read on if there is nothing at hand; return how it ended where there is no more."""
        try:
            while self._part is None or not len(self._part):
                part = None
                while self._sources and (part := next(self._sources[-1], None)) is None:
                    self._sources.pop()
                if part is None:
                    return Finished(self.files)
                self._part = part
                self._count += count_of(part)
                if extent_of(part).start_offset < self._offset:
                    self._begin(part)
        except BAD as error:
            return Failed(self.files, error, _unread(self._reading.store, self.files, self._count))
        return None

    def _begin(self, part: pa.RecordBatch | Batches) -> None:
        """Leave out what is below the offset; a batch in the middle of which it is, is unpacked."""
        if not isinstance(part, Batches):
            self.drop(pc.sum(pc.less(part["offset"], self._offset)).as_py())
            return
        ends = pc.add(part.headers["base_offset"], part.headers["last_delta"])
        left = part.where(pc.greater_equal(ends, self._offset))
        self._part = left
        if len(left) and left.first_offset < self._offset:
            self._sources.append(iter([left.slice(1)]) if len(left) > 1 else iter(()))
            self._count -= left.slice(1).records
            self._part = left.slice(0, 1)
            self.unpack()

    def take_batches(self) -> Batches | None:
        if not isinstance(self._part, Batches):
            return None
        taken, self._part = self._part, None
        return taken

    def unpack(self) -> bool:
        """Have the batches at hand read as rows, and return whether it was batches."""
        taken = self.take_batches()
        if taken is not None:
            self._count -= taken.records
            self._sources.append(unpacked(self.files, taken, self._reading.options))
        return taken is not None

    @property
    def rows(self) -> pa.RecordBatch:
        assert self._part is not None  # noqa: S101  (it is filled)
        return self._part

    def edge(self, most_bytes: int) -> int:
        """Return the offset of the last row at hand, of about *most_bytes* of them."""
        if isinstance(self._part, Batches):
            return self._part.next_offset - 1
        rows = self.rows
        count = len(rows) * most_bytes // max(1, rows.nbytes)
        last: int = rows["offset"][min(len(rows) - 1, count)].as_py()
        return last

    def below(self, limit: int) -> pa.RecordBatch:
        """Return the rows at hand up to offset *limit*, inclusive."""
        offsets = self.rows["offset"]
        if offsets[len(offsets) - 1].as_py() <= limit:
            return self.rows
        return self.rows.slice(0, pc.sum(pc.less_equal(offsets, limit)).as_py())

    def drop(self, count: int) -> None:
        self._part = self.rows.slice(count)

    def close(self) -> None:
        for source in self._sources:
            if isinstance(source, Generator):
                source.close()


def _conflict(bad: FileSet, good: FileSet, offset: int) -> CorruptObjectError:
    return CorruptObjectError(
        bad.id,
        f"it holds a different record at offset {offset} than {good.id}",
        "find out which of them is wrong, and move it away",
        key=bad.id,
    )
