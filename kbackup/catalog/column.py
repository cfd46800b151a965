"""Read a file of the connectors' layout, or one that no sink has named, as a column of bytes.

Its rows are values, or hold full records.  With ``file.metadata.headers.enable`` each gets headers
that describe the object; their names are those that Kafka Connect's sources of files use.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import accumulate
from typing import Final, TypeVar

import pyarrow as pa

from kbackup import clock, converters, formats, plugins
from kbackup.catalog import claims
from kbackup.catalog.claims import Reading, splits
from kbackup.catalog.listing import BackupFile
from kbackup.connect import schema as connect
from kbackup.connect.avro_writing import AvroStyle, encode_avro
from kbackup.connect.registry.framing import framed
from kbackup.converters import Converter
from kbackup.errors import CorruptObjectError, counted, is_of_memory
from kbackup.formats import COLUMNS, HEADERS, Salvages
from kbackup.naming import View
from kbackup.pipeline.views import ReadOptions, assemble
from kbackup.records import Bad, Schema, replaced, schema_of

_AS_IT_IS: Final = AvroStyle(fills_defaults=False)


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some rows of a file; *bad* says why some cannot be read, by their numbers in *values*."""

    values: pa.Array
    bad: Mapping[int, CorruptObjectError] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, length: int | None = None) -> "FilePart":
        """Return the rows from *start* on, *length* of them or all."""
        values = self.values.slice(start, length)
        bad = {row - start: why for row, why in self.bad.items() if 0 <= row - start < len(values)}
        return FilePart(values, bad)


@dataclass(frozen=True, slots=True)
class Lost:
    """Rows of a value set up to *end* that cannot be read; *error* names the first offset."""

    offset: int
    end: int
    records: int
    error: CorruptObjectError


def runs(
    start: int, rows: int, bad: Mapping[int, CorruptObjectError]
) -> Iterator[tuple[int, int] | Lost]:
    """Yield the runs of good rows, each by its first row and its length, and what is between them.

    *bad* says by their numbers why rows cannot be read.
    """
    first = 0
    for row in sorted(bad):
        if row >= rows:
            break
        if row > first:
            yield first, row - first
        bad[row].place["offset"] = start + row
        yield Lost(start + row, start + row + 1, 1, bad[row])
        first = row + 1
    if first < rows:
        yield first, rows - first


class FileColumn:
    """One open file, read row by row beside its siblings.

    Not to be had is what has gone (`ObjectNotFoundError`), or is not what was stored
    (`CorruptObjectError`).  *part* is what to read of the file: start and length; None for all.
    *damage* keeps `take` from reading on, once it has returned the rows before.
    """

    def __init__(
        self, reading: Reading, file: BackupFile, part: tuple[int, int] | None = None
    ) -> None:
        self.file = file
        self._body, self.claim = claims.opened(reading, file, part)
        self._view = file.view
        options = reading.options.as_written(file.view, file.format, self.claim.written, file.key)
        form = formats.by_name(file.format)
        read = form.salvage if isinstance(form, Salvages) else form.read
        batches = read(self._body, file.view, file.extension, options.formats)
        self._batches = named(batches, file)
        self._converter = _converter(file, options)
        self._is_framing = options.in_frames and keeps_schemas(file.format)
        self._salvages = options.salvages
        self._rest: FilePart | None = None
        self._read = 0  # rows of the batches before the one at hand
        self.damage: CorruptObjectError | None = None

    def next(self) -> FilePart | None:
        """Return the next rows, None at the end.

        Damage raises `CorruptObjectError`, and so does a bad row where none are left out.
        """
        if self._rest is not None:
            rest, self._rest = self._rest, None
            return rest
        for batch in self._batches:
            part = self._bad(batch) if isinstance(batch, Bad) else self._encode(batch)
            if len(part):
                self._read += len(part)
                return part
        return None

    def take(self, rows: int, main: BackupFile) -> FilePart:
        """Return *rows* rows, those beside as many of *main*; fewer up to where it is damaged.

        A file that has fewer, or is damaged where nothing is left out, raises `CorruptObjectError`.
        """
        parts: list[FilePart] = []
        missing = rows
        while missing:
            try:
                part = self.next()
            except CorruptObjectError as error:
                if not self._salvages:
                    raise
                self.damage = error
                break
            if part is None:
                raise CorruptObjectError(
                    self.file.key,
                    f"it ends {counted(missing, 'row')} before its value object{splits(main)}",
                    "rows are never paired by guess; back these offsets up again",
                    key=self.file.key,
                ).doubting()
            if len(part) > missing:
                self._rest = part.slice(missing)
                part = part.slice(0, missing)
            parts.append(part)
            missing -= len(part)
        return _joined(parts)

    def close(self) -> None:
        """Close the file."""
        self._body.close()

    def _encode(self, batch: pa.RecordBatch) -> FilePart:
        name = COLUMNS[self._view]
        column, schema = batch[name], schema_of(batch.schema.field(name))
        if self._is_framing:
            return FilePart(_in_frames(column, schema))
        if self._converter is None:
            return FilePart(column)
        made = self._converter.encode(column, *(() if schema is None else (schema,)))
        bad = {
            each.row: _at(each, self.file, f"record {self._read + each.row + 1}: ")
            for each in (made.bad if self._salvages else made.bad[:1])
        }
        return self._judged(FilePart(made.values, bad))

    def _bad(self, row: Bad) -> FilePart:
        return self._judged(FilePart(pa.nulls(1), {0: _at(row, self.file)}))

    def _judged(self, part: FilePart) -> FilePart:
        if part.bad and not self._salvages:  # an object is read whole then, or not at all
            raise next(iter(part.bad.values()))
        return part


def _in_frames(column: pa.Array, schema: Schema | None) -> pa.BinaryArray:
    """Return *column* as Avro under its schema, whose id is 0; null where that cannot be."""
    try:
        known = connect.of(schema) or connect.of_arrow(column.type)
        return framed(0, encode_avro(column, replace(known, optional=False), _AS_IT_IS))
    except (ValueError, pa.ArrowException) as error:
        if is_of_memory(error):
            raise
        return pa.nulls(len(column), pa.binary())


def _joined(parts: Sequence[FilePart]) -> FilePart:
    """Return the rows of all *parts*; those of a bad row alone have no type."""
    if len(parts) == 1:
        return parts[0]
    kind = next((part.values.type for part in parts if part.values.type != pa.null()), pa.null())
    values = [
        pa.nulls(len(part), kind) if part.values.type == pa.null() else part.values
        for part in parts
    ]
    starts = accumulate((len(part) for part in parts), initial=0)
    bad = {
        start + row: why
        for start, part in zip(starts, parts, strict=False)
        for row, why in part.bad.items()
    }
    return FilePart(pa.concat_arrays(values) if values else pa.nulls(0), bad)


def _converter(file: BackupFile, options: ReadOptions) -> Converter | None:
    """Return what makes Kafka's bytes of a column, None where they are bytes."""
    # to look at a backup registers no schema: it shows what the files are without a converter
    if file.view is View.HEADERS:
        return None
    given = options.converter(file.view)
    if given is not None and options.topic is None and converters.registers(given):
        given = None
    if given is not None and not reads(given, file.format):
        given = None
    name = given or formats.by_name(file.format).traits.assumed.get(file.view)
    if name is None:
        return None
    properties = options.properties.get(file.view) if given else None
    part = "key" if file.view is View.KEY else "value"
    return converters.by_name(name, properties, topic=options.topic, part=part)


def reads(converter: str, form: str) -> bool:
    """Whether a converter makes Kafka's bytes of what a format's files hold.

    One that writes under a schema cannot where the files keep none.
    """
    takes = formats.by_name(form).traits.takes
    if takes.isdisjoint(plugins.load("converters", converter).traits.gives):
        return False
    return not converters.registers(converter) or keeps_schemas(form)


def keeps_schemas(form: str) -> bool:
    """Whether files of a format hold the schema of what is in them."""
    return formats.by_name(form).traits.needs_schema


_T = TypeVar("_T")


def named(batches: Iterator[_T], file: BackupFile) -> Iterator[_T]:
    """Put the object's key into errors of its format, which does not know it."""
    try:
        yield from batches
    except CorruptObjectError as error:
        raise _at(error, file) from error


def _at(error: CorruptObjectError | Bad, file: BackupFile, place: str = "") -> CorruptObjectError:
    """Return *error* as one of *file*, *place* saying where in it."""
    why = place + (error.what if not error.why else f"{error.what}: {error.why}")
    kind = type(error) if isinstance(error, CorruptObjectError) else CorruptObjectError
    found = kind(
        file.key,
        why,
        error.do or "back these offsets up again, or skip it with behavior.on.error=log",
        key=file.key,
    )
    is_doubtful = isinstance(error, CorruptObjectError) and error.is_doubtful
    return found.doubting() if is_doubtful else found


def read_generic(reading: Reading, file: BackupFile, start: int) -> Iterator[pa.RecordBatch | Lost]:
    """Read an object, lazily; it may hold no record.

    What it says of a place that a sink has given it counts for nothing, but its number of records
    and its checksum do.  What is lost comes in its place, where the options salvage the rest; else
    it raises `CorruptObjectError`.
    """
    reading = reading.by(formats=replace(reading.options.formats, is_ended=False))
    column = FileColumn(reading, file)
    first = start
    try:
        while (rows := column.next()) is not None:
            for run in runs(start, len(rows), rows.bad):
                if isinstance(run, Lost):
                    yield run
                else:
                    values = rows.values.slice(*run)
                    yield from _opened(file, start + run[0], values, reading.options)
            start += len(rows)
            claims.check_most(column.claim, start - first)
        claims.check_rows(column.claim, start - first, None, may_be_empty=True, is_alone=True)
    finally:
        column.close()


def _opened(
    file: BackupFile, start: int, rows: pa.BinaryArray, options: ReadOptions
) -> Iterator[pa.RecordBatch | Lost]:
    """Yield the records of some rows, and what is lost where the options salvage the rest."""
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
    """Return the records of *rows* of *file* from number *start* on, ``records.SCHEMA``."""
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
    return replaced(found, "headers", pa.array(both, found["headers"].type))


def _headers(file: BackupFile, rows: int) -> pa.Array:
    """Return what describes *file* for each of *rows* records, `HEADERS`."""
    modified = datetime.fromtimestamp(file.modified, UTC)
    pairs = {
        "file.name": file.key.rpartition("/")[2],
        "file.path": file.key,
        "file.last.modified": clock.rfc3339_ms(modified),
        "file.length": str(file.size),
    }
    headers = [{"key": name, "value": text} for name, text in pairs.items()]
    one = pa.array([headers], HEADERS)
    return one.take(pa.repeat(pa.scalar(0, pa.int32()), rows))
