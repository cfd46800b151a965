"""The records of an object that no sink has named.

Its rows are values, or hold whole records.  With ``file.metadata.headers.enable`` each gets headers
that describe the object; their names are those that Kafka Connect's sources of files use.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from kbackup import moments
from kbackup.backup import agreement
from kbackup.backup.column import Column, Lost, runs
from kbackup.backup.file_sets import BackupFile
from kbackup.errors import CorruptObjectError
from kbackup.flow.views import HEADERS_AS_TEXT, ReadOptions, assemble
from kbackup.stores import Store


def read(
    store: Store, file: BackupFile, start: int, options: ReadOptions
) -> Iterator[pa.RecordBatch | Lost]:
    """Read an object, lazily; it may hold no record.

    What it says of a place that a sink has given it counts for nothing, but its number of records
    and its checksum do.  What is lost comes in its place, where the options salvage the rest.

    Raises:
        CorruptObjectError: If it is damaged, or a row does not hold what it should.
        ObjectNotFoundError: If it has gone since it was listed.
    """
    options = replace(options, formats=replace(options.formats, is_ended=False))
    column = Column(store, file, options)
    first = start
    try:
        while (rows := column.next()) is not None:
            for run in runs(start, len(rows), rows.bad):
                if isinstance(run, Lost):
                    yield run
                else:
                    values = rows.values.slice(*run)
                    yield from _opened(file, start + run[0], values, options)
            start += len(rows)
            agreement.check_most(column.claim, start - first)
        agreement.check_rows(column.claim, start - first, None, may_be_empty=True, is_alone=True)
    finally:
        column.close()


def _opened(
    file: BackupFile, start: int, rows: pa.BinaryArray, options: ReadOptions
) -> Iterator[pa.RecordBatch | Lost]:
    """Yield the records of some rows, and what is lost where the options salvage the rest.

    Raises:
        CorruptObjectError: If a row does not hold what it should, and nothing is left out.
    """
    try:
        found = _records(file, start, rows, options)
    except CorruptObjectError as error:
        if not options.salvages:
            raise
        if len(rows) == 1:
            yield from (each for each in runs(start, 1, {0: error}) if isinstance(each, Lost))
            return
        half = len(rows) // 2
        yield from _opened(file, start, rows.slice(0, half), options)
        yield from _opened(file, start + half, rows.slice(half), options)
    else:
        yield found


def _records(
    file: BackupFile, start: int, rows: pa.BinaryArray, options: ReadOptions
) -> pa.RecordBatch:
    """Return the records of some rows of *file*, ``records.SCHEMA``.

    Args:
        file: The object.
        start: The number of the first row.
        rows: The rows as bytes.
        options: Whether they hold whole records, and get headers.

    Raises:
        CorruptObjectError: If a row does not hold what it should.
    """
    headers = _headers(file, len(rows)) if options.file_headers else None
    if options.envelope is None:
        return assemble(start, rows, None, headers)
    try:
        found = options.envelope.opened(rows, start)
    except CorruptObjectError as error:
        why = f"{error.what}: {error.why}"
        raise CorruptObjectError(file.key, why, error.do, key=file.key) from None
    if headers is None:
        return found
    described = assemble(start, rows, None, headers)["headers"].to_pylist()
    both = [mine + more for mine, more in zip(found["headers"].to_pylist(), described, strict=True)]
    at = found.schema.get_field_index("headers")
    return found.set_column(at, found.schema.field(at), pa.array(both, found.schema.field(at).type))


def _headers(file: BackupFile, rows: int) -> pa.Array:
    """Return what describes *file* for each of *rows* records, `HEADERS_AS_TEXT`."""
    modified = datetime.fromtimestamp(file.modified, UTC)
    pairs = {
        "file.name": file.key.rpartition("/")[2],
        "file.path": file.key,
        "file.last.modified": moments.with_milliseconds(modified),
        "file.length": str(file.size),
    }
    headers = [{"key": name, "value": text} for name, text in pairs.items()]
    one = pa.array([headers], HEADERS_AS_TEXT)
    return one.take(pa.repeat(pa.scalar(0, pa.int32()), rows))
