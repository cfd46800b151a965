"""Read the records of a file set, or those of them that a window asks for.

An index is evidence that nothing depends on: one that is missing, damaged or of another state of
the file is not used.
"""

import logging
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import formats
from kbackup.batches import Batches, Kept
from kbackup.catalog import claims
from kbackup.catalog.claims import Reading
from kbackup.catalog.column import FileColumn, FilePart, Lost, named, read_generic, runs
from kbackup.catalog.findings import APART
from kbackup.catalog.listing import EVERY_OFFSET, BackupFile, FileSet, Interval
from kbackup.errors import (
    CorruptObjectError,
    IncompleteBackupError,
    ObjectNotFoundError,
    RefusedError,
    counted,
)
from kbackup.files import Spool
from kbackup.formats import COLUMNS, SaysExtent, StoresBatches
from kbackup.formats.block_index import BlockIndex, IndexedBlock
from kbackup.naming import View
from kbackup.pipeline.views import ReadOptions, assemble
from kbackup.records import SCHEMA, Facts, Span
from kbackup.stores import Heads, Ranges, Seals, Store

_log = logging.getLogger(__name__)

RUN_BYTES: Final = 16 * 2**20
"""Bytes of a file that one request asks for at most, unless one block has more."""


def index_of(store: Store, files: FileSet, main: BackupFile) -> BlockIndex | None:
    """Return the index of a set's value file; None where there is none that fits it."""
    if files.index is None:
        return None
    try:
        with store.open(files.index) as body:
            index = BlockIndex.from_bytes(body.read(), files.start_offset)
    except ObjectNotFoundError:
        return None
    except CorruptObjectError as error:
        _log.warning("%s is not used: %s", files.index, error)
        return None
    if main.size in (index.size, store.stored_size(index.size) if isinstance(store, Seals) else 0):
        return index
    _log.warning(
        "%s is not used: it was made for %d bytes, not %d", files.index, index.size, main.size
    )
    return None


def runs_of_blocks(
    store: Store, files: FileSet, main: BackupFile, wanted: Interval
) -> list[Sequence[IndexedBlock]] | None:
    """Return what to fetch for the records in *wanted*; None where the file is read whole."""
    if wanted == EVERY_OFFSET or not isinstance(store, Ranges) or files.index is None:
        return None
    if wanted.low <= files.start_offset and wanted.high == EVERY_OFFSET.high:
        return None
    index = index_of(store, files, main)
    if index is None:
        return None
    chosen = [
        block
        for block in index.blocks
        if wanted.meets(block.first_record_offset, block.next_offset - 1)
    ]
    return None if len(chosen) == len(index.blocks) else list(_together(chosen))


def _together(blocks: Sequence[IndexedBlock]) -> Iterator[Sequence[IndexedBlock]]:
    """Yield the first block alone, as one record is often all that is wanted, and then more."""
    held: list[IndexedBlock] = []
    for at, block in enumerate(blocks):
        if held and (at == 1 or sum(each.byte_length for each in held) >= RUN_BYTES):
            yield held
            held = []
        held.append(block)
    if held:
        yield held


HELD_BYTES: Final = 8 * 2**20
"""What `read_fully` keeps in memory."""

NAMED_MOST: Final = 1000
"""Rows of one set that `salvage` names; it counts the others together."""


def read(reading: Reading, files: FileSet) -> Iterator[pa.RecordBatch]:
    """Read the records of a file set, lazily: `salvage`, up to the first that cannot be read."""
    for each in salvage(reading.by(salvages=False), files):
        assert not isinstance(each, Lost)  # noqa: S101  (it is an error then)
        yield each


def salvage(
    reading: Reading, files: FileSet, wanted: Interval = EVERY_OFFSET
) -> Iterator[pa.RecordBatch | Lost]:
    """Read the records of a file set, lazily.

    Offsets outside *wanted* may be left out, where the set can be read in parts; then what was
    read is compared with the index of the parts.  Those outside of `FileSet.only` are left out.

    What its objects say about themselves is compared with their names, with each other and with
    *identity*, the topic they are of as far as that is known, before the first row is read, and
    with the rows when the last one was.

    Yields:
        ``records.SCHEMA``, at least one row each, offsets rising; and, where the options say so,
        in their places the rows that cannot be turned back into records, the first `NAMED_MOST` of
        them one by one, the others together after the last row.

    Raises:
        CorruptObjectError: If an object is damaged, is not what its name says, its rows do not
            fit its siblings', or a row cannot be turned back into a record.
        IncompleteBackupError: If an object that belongs to the set is missing.
        ObjectNotFoundError: If an object has gone since it was listed.
        RefusedError: If there are more rows than offsets up to `FileSet.bound`: the next object may
            hold some of them too.
    """
    named = 0
    more: Lost | None = None
    damage: CorruptObjectError | None = None
    try:
        for each in _items(reading, files, wanted):
            if files.bound is not None and _end(each) > files.bound:
                raise _overlong(files, files.bound)
            if isinstance(each, Lost):
                named += 1
                if named > NAMED_MOST:
                    more = _joined(files.id, more, each)
                    continue
            yield each
    except CorruptObjectError as error:
        damage = error
    if more is not None:
        yield more
    if damage is not None:
        raise damage


def _items(reading: Reading, files: FileSet, wanted: Interval) -> Iterator[pa.RecordBatch | Lost]:
    if files.only is not None:
        for each in _items(reading, replace(files, only=None), wanted):
            if (inside := _within(each, files.only)) is not None:
                yield inside
    elif files.main is None:
        raise IncompleteBackupError(  # the crash that left siblings alone kept the offset back too
            files.id, claims.VALUE_MISSING, claims.VALUE_MISSING_DO, key=files.id
        )
    elif files.is_whole:
        yield from _whole(reading, files)
    elif files.is_generic:
        yield from read_generic(reading, files.main, files.start_offset)
    elif (parts := runs_of_blocks(reading.store, files, files.main, wanted)) is not None:
        yield from _blocks(reading, files, files.main, parts)
    else:
        yield from _values(reading, files, files.main)


def _end(each: pa.RecordBatch | Lost) -> int:
    """Return the offset behind the last row."""
    end: int = each.end if isinstance(each, Lost) else each["offset"][-1].as_py() + 1
    return end


def _overlong(files: FileSet, bound: int) -> RefusedError:
    where = files.where
    return RefusedError(
        f"{where}: {files.id} has more rows than the {bound - files.start_offset} offsets up to "
        "the next object of its directory",
        f"the object that begins at offset {bound} may hold some of them too, so a restore would "
        "write records twice",
        APART,
        **where.place,
    )


def _within(each: pa.RecordBatch | Lost, span: Span) -> pa.RecordBatch | Lost | None:
    """Return what of *each* is in *span*; None where nothing is."""
    if isinstance(each, Lost):
        return each if each.offset in span else None
    offset = each["offset"]
    is_in = pc.and_(pc.greater_equal(offset, span.start_offset), pc.less(offset, span.end_offset))
    inside = each.filter(is_in)
    return inside if len(inside) else None


def _joined(key: str, before: Lost | None, lost: Lost) -> Lost:
    """Return as one what is lost of the set *key* beyond what is named."""
    first = lost if before is None else before
    records = lost.records + (0 if before is None else before.records)
    why = f"{counted(records, 'further record')} of it cannot be read, at the offsets "
    why += f"{first.offset} to {lost.offset}"
    place = {"key": key, "offset": first.offset, "records": records}
    return Lost(
        first.offset, lost.end, records, CorruptObjectError(key, why, lost.error.do, **place)
    )


def read_fully(
    rows: Iterator[pa.RecordBatch | Lost], *, salvages: bool = False
) -> Iterator[pa.RecordBatch | Lost]:
    """Return *rows* once all of them could be read, or raise what stopped them.

    If it *salvages*, it returns those before damage, unless there is doubt about them, then raises
    it.  Memory: `HELD_BYTES`, beyond it ``TMPDIR``.
    """
    lost, batches = deque[tuple[int, Lost]](), 0
    damage: CorruptObjectError | None = None
    with Spool(HELD_BYTES) as spool:
        with pa.ipc.new_stream(spool, SCHEMA) as out:
            try:
                for each in rows:
                    if isinstance(each, Lost):
                        lost.append((batches, each))
                    else:
                        out.write_batch(each)
                        batches += 1
            except CorruptObjectError as error:
                if error.is_doubtful or not salvages:
                    raise
                damage = error
        spool.seek(0)
        with pa.ipc.open_stream(spool) as stream:
            for number, batch in enumerate(stream):
                while lost and lost[0][0] <= number:
                    yield lost.popleft()[1]
                yield batch
            yield from (each for _, each in lost)
    if damage is not None:
        raise damage


def facts(heads: Heads, file: BackupFile) -> Facts | None:
    """Return what was stored with the object about its records, None where nothing was."""
    head = heads.head(file.key)
    return None if head is None else Facts.from_metadata(head.metadata)


def extent(store: Store, file: BackupFile) -> Facts | None:
    """Return what another tool's file says at its beginning, None where it says nothing there.

    Its ``sha256`` is empty, and no checksum has been compared: good enough to know what was
    restored, and not for leaving an object out.
    """
    form = formats.by_name(file.format)
    if not isinstance(form, SaysExtent) or not isinstance(store, Ranges):
        return None
    if file.size < form.extent_bytes:
        return None
    with store.open_range(file.key, 0, form.extent_bytes) as head:
        return form.extent(head.read())


def kept_or_read(
    reading: Reading, files: FileSet, kept: Kept | None
) -> Iterator[pa.RecordBatch | Batches]:
    """Read full records as `read` does, in their batches where *kept* takes these as they are."""
    main = None if kept is None or files.only is not None else files.main
    if main is None or not _batches_of(main):
        yield from read(reading, files)
    else:
        yield from _whole(reading, files, kept)


def unpacked(files: FileSet, batches: Batches, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Return the records of what `kept_or_read` yielded; `CorruptObjectError` if it is damaged."""
    assert files.main is not None  # noqa: S101  (it was read)
    form = _batches_of(files.main)
    assert form is not None  # noqa: S101  (likewise)
    return named(form.rows(batches, options.formats), files.main)


def _batches_of(file: BackupFile) -> StoresBatches | None:
    form = formats.by_name(file.format)
    return form if isinstance(form, StoresBatches) else None


def _kept(
    form: StoresBatches, body: BinaryIO, options: ReadOptions, kept: Kept
) -> Iterator[pa.RecordBatch | Batches]:
    for some in form.batches(body, options.formats):
        for is_kept, part in kept.split(some):
            if is_kept:
                yield part
            else:
                yield from form.rows(part, options.formats)


def extent_of(part: pa.RecordBatch | Batches) -> Span:
    """Return the first offset of what was read, and the one behind its last."""
    if isinstance(part, Batches):
        return Span(part.first_offset, part.next_offset)
    offsets = part["offset"]
    return Span(offsets[0].as_py(), offsets[len(offsets) - 1].as_py() + 1)


def count_of(part: pa.RecordBatch | Batches) -> int:
    """Return how many records were read."""
    return part.records if isinstance(part, Batches) else len(part)


def _whole(reading: Reading, files: FileSet, kept: Kept | None = None) -> Iterator[Any]:
    """Yield rows, and batches that are *kept*."""
    assert files.main is not None  # noqa: S101  (is_whole says so)
    rows, last, main = 0, None, files.main
    body, claim = claims.opened(reading, main)
    with body:
        claims.check_claims(files, [claim], reading.identity)
        own = reading.options.formatted(main.format, claim.written, main.key)
        options = replace(reading.options, formats=own)
        form = formats.by_name(main.format)
        parts: Iterator[pa.RecordBatch | Batches] = (
            form.read(body, View.RECORD, main.extension, options.formats)
            if kept is None or not isinstance(form, StoresBatches)
            else _kept(form, body, options, kept)
        )
        for part in named(parts, main):
            if len(part):
                span = extent_of(part)
                claims.check_offsets(span.start_offset, files.start_offset, last, main)
                rows += count_of(part)
                claims.check_most(claim, rows)
                last = span.end_offset - 1
                yield part
        claims.check_rows(claim, rows, last)


def _values(reading: Reading, files: FileSet, main: BackupFile) -> Iterator[pa.RecordBatch | Lost]:
    """Read a value file, or one of tombstones, and its siblings side by side, row for row."""
    value = FileColumn(reading, main)
    siblings: list[FileColumn | None] = []
    start, options = files.start_offset, reading.options
    try:
        if options.wants_siblings:
            _check_siblings(files, main, value.claim.siblings - files.removed)
        for file in _siblings(files, options.formats.columns):
            beside = None if file is None else _beside(reading, value, file)
            siblings.append(beside)  # one by one: what is open is closed, whatever the next does
        columns = [value, *(each for each in siblings if each is not None)]
        claims.check_claims(files, [each.claim for each in columns], reading.identity)
        while (rows := value.next()) is not None:
            parts = [
                rows,
                *(None if each is None else each.take(len(rows), main) for each in siblings),
            ]
            yield from _paired(start, parts, is_tombstones=files.is_tombstones)
            start += min(len(part) for part in parts if part is not None)
            claims.check_most(value.claim, start - files.start_offset)
            for column in columns:
                if column.damage is not None:
                    raise column.damage
        for sibling in siblings:
            if sibling is not None and sibling.next() is not None:
                raise CorruptObjectError(
                    sibling.file.key,
                    f"it has more rows than {main.key}{claims.splits(sibling.file)}",
                    "rows are never paired by guess; back these offsets up again",
                    key=sibling.file.key,
                ).doubting()
        for each in columns:
            is_alone = len(columns) == 1
            claims.check_rows(each.claim, start - files.start_offset, None, is_alone=is_alone)
        if value.claim.facts is None:
            _check_index(reading.store, files, main, start - files.start_offset)
    finally:
        for opened in (value, *siblings):
            if opened is not None:
                opened.close()


def _paired(
    start: int, parts: Sequence[FilePart | None], *, is_tombstones: bool
) -> Iterator[pa.RecordBatch | Lost]:
    """Yield the records of values, keys and headers, as many as there are of each of them."""
    given = [part for part in parts if part is not None]
    bad = {row: why for part in reversed(given) for row, why in part.bad.items()}
    for run in runs(start, min(len(part) for part in given), bad):
        if isinstance(run, Lost):
            yield run
            continue
        rows, keys, headers = (None if part is None else part.values.slice(*run) for part in parts)
        pair = (pa.nulls(run[1], pa.binary()), rows) if is_tombstones else (rows, keys)
        yield assemble(start + run[0], *pair, headers)


def _siblings(files: FileSet, wanted: Collection[str] | None) -> list[BackupFile | None]:
    """Return the keys and the headers object, None for one that is not there or not wanted."""
    return [
        file if file is not None and (wanted is None or COLUMNS[file.view] in wanted) else None
        for file in (files.keys, files.headers)
    ]


def _beside(reading: Reading, value: FileColumn, file: BackupFile) -> FileColumn | None:
    """Open keys or headers; None where they are not of these values."""
    column = FileColumn(reading, file)
    if claims.is_left_over(value.claim, column.claim):
        column.close()
        return None
    return column


def _check_siblings(files: FileSet, main: BackupFile, promised: frozenset[View]) -> None:
    """Check that what was stored beside an object of values is there."""
    for view, file in ((View.KEY, files.keys), (View.HEADERS, files.headers)):
        if view in promised and file is None:
            raise IncompleteBackupError(
                main.key,
                f"its {view.removeprefix('.')} object is missing",
                "back these offsets up again",
                key=main.key,
            )


def _blocks(
    reading: Reading, files: FileSet, main: BackupFile, runs_of: Sequence[Sequence[IndexedBlock]]
) -> Iterator[pa.RecordBatch | Lost]:
    """Read some blocks of a value file that has no siblings."""
    for blocks in runs_of:
        first, records = blocks[0].first_record_offset, sum(one.num_records for one in blocks)
        length = sum(one.byte_length for one in blocks)
        column = FileColumn(reading, main, (blocks[0].byte_offset, length))
        with closing(column):
            claims.check_claims(files, [column.claim], reading.identity)
            start = first
            while (rows := column.next()) is not None:
                yield from _paired(start, [rows, None, None], is_tombstones=False)
                start += len(rows)
        if start - first != records:
            text = f"its index says {counted(records, 'record')} from offset"
            text += f" {first} on, and it holds {start - first}"
            raise claims.contradiction("count_mismatch", main.key, text)


def _check_index(store: Store, files: FileSet, main: BackupFile, rows: int) -> None:
    """Compare what was read with the index of a file of which nothing else is known."""
    index = index_of(store, files, main)
    if index is not None and index.records != rows:
        text = f"it holds {counted(rows, 'record')}; its index says {index.records}"
        raise claims.contradiction("count_mismatch", main.key, text)
