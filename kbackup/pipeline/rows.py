"""Define `Rows`, what flows from Kafka to the files, and take its digest.

Each stage returns new rows with more known of them: `convert` the columns of each file, `route`
the time and the directory of each row.  Nothing is copied where nothing changes.

A value file and a tombstone file do not store offsets, so a restore delivers them one after the
other, by their first offsets.  To keep the records of each key in order, all files of values in a
cut begin before its tombstones do, and no value in it follows a tombstone of its own key.
"""

import itertools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.errors import BadRecordError
from kbackup.naming import View
from kbackup.records import Bad, Column, ColumnsDigest, Schema, TopicPartition, bytes_of

_DO: Final = (
    "correct what writes such records, or have them left out: errors.tolerance=all in a sink, "
    "behavior.on.error=log in a restore"
)
"""What to do about a bad record where nothing better is known."""

_UNSAID: Final = "the reason may quote it, and the backup is encrypted"


@dataclass(frozen=True, slots=True)
class Part:
    """What one view's file takes of the rows.

    Attributes:
        batch: One row per row of the batch: ``records.SCHEMA``, or the one column of the view, and
            after it, where its format makes use of it, `kbackup.records.ENCODED`.
        schema: What the column's values are under, None where the Arrow type says it all.
    """

    batch: pa.RecordBatch
    schema: Schema | None = None


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be stored in this layout, and why, in the three parts of an error.

    Attributes:
        why: Why it cannot be stored so.
        stage: Where it was found, in Kafka Connect's words: ``KEY_CONVERTER``,
            ``VALUE_CONVERTER``, ``TRANSFORMATION``, or ``TASK_PUT`` for all that comes later.
        by: As in `kbackup.records.Bad`.
    """

    offset: int
    what: str
    why: str = ""
    do: str = ""
    stage: str = "TASK_PUT"
    by: str = ""

    @classmethod
    def of(cls, offset: int, bad: Bad, stage: str = "TASK_PUT") -> Self:
        """Return the record of a row that is *bad*."""
        return cls(offset, bad.what, bad.why, bad.do, stage, bad.by)

    def error(self, where: TopicPartition, *, is_secret: bool = False) -> BadRecordError:
        """Return the error that names it; of one that *is_secret* without the reason."""
        return BadRecordError(
            f"{where} offset {self.offset}: {self.what}",
            _UNSAID if is_secret and self.why else self.why, self.do or _DO,
            **where.place, offset=self.offset,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of one topic-partition, offsets rising, all of them under the same schemas.

    Attributes:
        batch: ``records.SCHEMA``; may be empty.
        parts: For each view of the layout, in its order, what its file takes.
        times: ``int64``, ms: the time each row rotates by, null where it has none.  None before
            `route`.
        directories: ``dictionary<int32, string>`` without nulls and with distinct entries: the
            encoded partition of each row.  None before `route`.
        bad: The records between these that cannot be stored, offsets rising; none of them is in
            *batch*.
        left_out: Offsets of the records that were left out because they have no value.
        filtered: Offsets of the records that a transform left out.
    """

    batch: pa.RecordBatch
    parts: tuple[Part, ...]
    times: pa.Int64Array | None = None
    directories: pa.DictionaryArray | None = None
    bad: tuple[BadRecord, ...] = ()
    left_out: tuple[int, ...] = ()
    filtered: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def schemas(self) -> tuple[Schema | None, ...]:
        """The schema of each part."""
        return tuple(part.schema for part in self.parts)

    @property
    def last_offset(self) -> int:
        """Offset of the last row; there must be one."""
        offset: int = self.batch["offset"][-1].as_py()
        return offset

    def slice(self, start: int, length: int | None = None) -> Self:
        """Return some of the rows, without copying, and nothing of what was left out or bad."""
        some = self._of_each(lambda column: column.slice(start, length))
        return replace(some, bad=(), left_out=(), filtered=())

    def take(self, rows: pa.Array) -> Self:
        """Return the rows at the indices *rows*, copied."""
        return self._of_each(lambda column: column.take(rows))

    def _of_each(self, chosen: Callable[[Any], Any]) -> Self:
        return replace(
            self,
            batch=chosen(self.batch),
            parts=tuple(replace(part, batch=chosen(part.batch)) for part in self.parts),
            times=None if self.times is None else chosen(self.times),
            directories=None if self.directories is None else chosen(self.directories),
        )

    def before_bad(self) -> Self:
        """Return the rows before the first bad record, which may be all or none of them."""
        if not self.bad:
            return self
        later = pc.greater_equal(self.batch["offset"], self.bad[0].offset)
        at = pc.index(later, True).as_py()
        kept = self if at < 0 else self.slice(0, at)
        end = self.bad[0].offset
        left_out = tuple(at for at in self.left_out if at < end)
        filtered = tuple(at for at in self.filtered if at < end)
        return replace(kept, bad=(), left_out=left_out, filtered=filtered)


def in_order(some: Rows, others: Rows) -> Rows:
    """Return routed rows of the same schemas together, by offset, with what *some* left out."""
    order = pc.sort_indices(pa.concat_arrays([some.batch["offset"], others.batch["offset"]]))
    texts = [pc.cast(rows.directories, pa.string()) for rows in (some, others)]
    together = replace(
        some,
        batch=pa.concat_batches([some.batch, others.batch]),
        parts=tuple(
            replace(part, batch=pa.concat_batches([part.batch, other.batch]))
            for part, other in zip(some.parts, others.parts, strict=True)
        ),
        times=pa.concat_arrays([some.times, others.times]),
        directories=pa.concat_arrays(texts).dictionary_encode(),
    )
    return together.take(order)


def by_directory(rows: Rows) -> list[tuple[str, Rows]]:
    """Return the rows of each directory, in the order in which the directories first appear."""
    directories = rows.directories
    assert directories is not None  # noqa: S101  (what has not been routed is not written)
    names = directories.dictionary
    if len(names) == 1:
        return [(names[0].as_py(), rows)] if len(rows) else []
    indices = directories.indices
    counts = pc.value_counts(indices)  # in the order of first appearance
    if len(counts) == 1:
        return [(names[counts[0]["values"].as_py()].as_py(), rows)]
    grouped = rows.take(pc.array_sort_indices(indices))  # stable: offsets stay in order
    sizes = {row["values"]: row["counts"] for row in counts.to_pylist()}
    starts, start = {}, 0
    for index in sorted(sizes):
        starts[index], start = start, start + sizes[index]
    return [
        (names[index].as_py(), grouped.slice(starts[index], size)) for index, size in sizes.items()
    ]


_STAGES: Final = {View.KEY: "KEY_CONVERTER", View.VALUE: "VALUE_CONVERTER"}


def sliced(columns: Sequence[Column], start: int, end: int) -> Column:
    """Return the rows from *start* to *end* of columns, which are under one schema there."""
    column, row = column_at(columns, start)
    return Column(column.values.slice(row, end - start), column.schema)


def by_row(runs: Sequence[Sequence[Column]]) -> dict[int, Bad]:
    """Return the first complaint about each row of the batch."""
    found: dict[int, Bad] = {}
    for columns in runs:
        start = 0
        for column in columns:
            for bad in column.bad:
                found.setdefault(start + bad.row, bad)
            start += len(column.values)
    return found


def stages_of(runs: Mapping[View, Sequence[Column]]) -> dict[int, str]:
    """Return for each row that a converter could not convert, whose converter that was."""
    found: dict[int, str] = {}
    for view, columns in runs.items():
        stage = _STAGES.get(view)
        if stage is not None:
            found = dict.fromkeys(by_row([columns]), stage) | found
    return found


def stretches(runs: Sequence[Sequence[Column]], rows: int) -> Iterator[tuple[int, int]]:
    """Yield from where to where all views stay under their schemas; once where there is no row."""
    ends = {0, rows}
    for columns in runs:
        ends.update(itertools.accumulate(len(column.values) for column in columns))
    yield from itertools.pairwise(sorted(ends)) if rows else [(0, 0)]


def column_at(columns: Sequence[Column], row: int) -> tuple[Column, int]:
    """Return the column that has *row* of the batch, and its row there."""
    for column in columns:
        if row < len(column.values):
            return column, row
        row -= len(column.values)
    return columns[-1], 0  # of no rows


NO_TOMBSTONES: Final = ""
"""The directory of a layout that writes none."""


class Nulls(StrEnum):
    """What becomes of a record whose value is null where files hold values: its words."""

    FAIL = "fail"
    IGNORE = "ignore"
    WRITE = "write"


def in_directory(rows: Rows, directory: str) -> pa.BooleanArray:
    """Return which of *rows* go to *directory*."""
    assert rows.directories is not None  # noqa: S101  (only routed rows are filed)
    is_it = pc.equal(rows.directories.dictionary, directory)
    return is_it.take(rows.directories.indices)


def keys_of(rows: Rows) -> pa.Array:
    """Return the key of each row as its file will hold it, or as Kafka did where that is nested."""
    stored = rows.parts[0].batch.column(0)
    if isinstance(stored, pa.ExtensionArray):  # JSON is text, and Arrow compares only that
        stored = stored.storage
    return rows.batch["key"] if pa.types.is_nested(stored.type) else stored


def room_beside_tombstones(
    rows: Rows, directory: str, opened: frozenset[str], deleted: pa.ChunkedArray
) -> int:
    """Return how many of *rows* join the open files before the order of some key would be lost.

    Keys of another type than those of the open files' tombstones may be equal to them once they are
    restored, so they join none.

    Args:
        rows: Routed; the first of their parts are the keys.
        deleted: The keys of the tombstones in the open files.
    """
    if len(deleted) and deleted.type != keys_of(rows).type:
        return 0
    is_dead = in_directory(rows, directory)
    first_dead = 0 if directory in opened else pc.index(is_dead, True).as_py()
    if first_dead < 0:
        return len(rows)
    return min(
        _before_new_directory(rows, opened | {directory}, first_dead),
        _before_revival(keys_of(rows), is_dead, deleted),
    )


def _before_new_directory(rows: Rows, opened: frozenset[str], first_dead: int) -> int:
    """Return the rows before the first one whose values' file would begin after tombstones."""
    assert rows.directories is not None  # noqa: S101
    after = rows.directories.indices.slice(first_dead)
    before = {*rows.directories.indices.slice(0, first_dead).unique().to_pylist()}
    names = rows.directories.dictionary
    for index in after.unique().to_pylist():  # in the order in which they appear
        if index not in before and names[index].as_py() not in opened:
            return first_dead + int(pc.index(after, index).as_py())
    return len(rows)


def _before_revival(keys: pa.Array, is_dead: pa.BooleanArray, deleted: pa.ChunkedArray) -> int:
    """Return the rows before the first value whose key has a tombstone in the same files."""
    dead = keys.filter(is_dead)
    deleted = deleted.cast(keys.type)
    held = pa.chunked_array([*deleted.chunks, dead], keys.type)
    rows = pc.indices_nonzero(pc.is_in(keys, held))
    seen: set[object] = set()
    told = zip(
        rows.to_pylist(),
        keys.take(rows).to_pylist(),
        is_dead.take(rows).to_pylist(),
        pc.is_in(keys.take(rows), deleted).to_pylist(),
        strict=True,
    )
    for row, key, is_tombstone, was_deleted in told:
        if is_tombstone:
            seen.add(key)
        elif was_deleted or key in seen:
            return int(row)
    return len(keys)


_NULL: Final = -1
"""The length of a null."""

_NO_TIME: Final = -(2**63)
"""The timestamp of a record without one; Kafka has none below -1."""

_OFFSET: Final = struct.Struct("<i")


class RecordsDigest(ColumnsDigest):
    """The digest of records that come a few at a time, whatever file holds them.

    It depends on the records and their order, not on how many come at a time, nor on their
    offsets: a copy elsewhere has others.  It is fed from the columns as they are: nothing is done
    for each record.  ``docs/reference/storage-format.md`` says it in full.
    """

    METHOD = "r1:"
    COLUMNS = 11

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows of ``records.SCHEMA``."""
        if len(batch):
            self._take(len(batch), _streams(batch))


def _streams(batch: pa.RecordBatch) -> Iterator[memoryview]:
    """Yield what a digest takes of rows, a column after the other."""
    headers = batch["headers"]
    yield bytes_of(pc.fill_null(batch["timestamp"], _NO_TIME))
    yield bytes_of(batch["timestamp_type"])
    yield bytes_of(headers.value_lengths())
    flat = headers.flatten()  # of these rows only, where the batch is a slice
    for texts in (batch["key"], batch["value"], flat.field("key"), flat.field("value")):
        yield bytes_of(pc.fill_null(pc.binary_length(texts), _NULL))
        yield _content(texts)


def _content(texts: pa.Array) -> memoryview:
    """Return bytes or strings one after the other."""
    if texts.null_count:
        texts = texts.drop_null()  # the place of a null may hold bytes
    if not len(texts):
        return memoryview(b"")
    _, offsets, data = texts.buffers()
    start, end = (
        _OFFSET.unpack_from(offsets, _OFFSET.size * at)[0]
        for at in (texts.offset, texts.offset + len(texts))
    )
    return memoryview(data)[start:end] if start < end else memoryview(b"")
