"""A file of the connectors' layout, read as one column of Kafka's bytes or header texts."""

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from kbackup import converters, formats, plugins
from kbackup.backup.agreement import claim_of, splits
from kbackup.backup.file_sets import BackupFile
from kbackup.columns import Bad, schema_of
from kbackup.converters import Converter
from kbackup.errors import CorruptObjectError
from kbackup.flow.views import COLUMNS, ReadOptions
from kbackup.naming import View
from kbackup.plurals import counted
from kbackup.stores import Store


class Column:
    """One open file, read row by row beside its siblings.

    Args:
        store: Where it is.
        file: The file.
        options: How to read it, and what makes Kafka's bytes of its rows.
        body: A part of the file to read instead of all of it; it is closed too.

    Raises:
        ObjectNotFoundError: If it has gone since it was listed.
        CorruptObjectError: If it is not the object that was stored.
    """

    def __init__(
        self,
        store: Store,
        file: BackupFile,
        options: ReadOptions,
        body: BinaryIO | None = None,
    ) -> None:
        self.file = file
        self._body = store.open(file.key) if body is None else body
        self.claim = claim_of(store, file, self._body)
        self._view = file.view
        form = formats.by_name(file.format)
        batches = form.read(self._body, file.view, file.extension, options.formats)
        self._batches = named(batches, file)
        self._converter = _converter(file, options)
        self._rest: pa.Array | None = None
        self._read = 0  # rows of the batches before the one at hand

    def next(self) -> pa.Array | None:
        """Return the next rows, None at the end."""
        if self._rest is not None and len(self._rest):
            rest, self._rest = self._rest, None
            return rest
        for batch in self._batches:
            if len(batch):
                column = self._encode(batch)
                self._read += len(batch)
                return column
        return None

    def take(self, rows: int, main: BackupFile) -> pa.Array:
        """Return exactly *rows* rows, those beside as many of *main*.

        Raises:
            CorruptObjectError: If the file has fewer.
        """
        parts: list[pa.Array] = []
        missing = rows
        while missing:
            column = self.next()
            if column is None:
                raise CorruptObjectError(
                    self.file.key,
                    f"it ends {counted(missing, 'row')} before its value object{splits(main)}",
                    "rows are never paired by guess; back these offsets up again",
                    key=self.file.key,
                )
            parts.append(column.slice(0, missing))
            if len(column) > missing:
                self._rest = column.slice(missing)
            missing -= min(missing, len(column))
        return pa.concat_arrays(parts)

    def close(self) -> None:
        """Close the file."""
        self._body.close()

    def _encode(self, batch: pa.RecordBatch) -> pa.Array:
        name = COLUMNS[self._view]
        column, schema = batch[name], schema_of(batch.schema.field(name))
        if self._converter is None:
            return column
        made = self._converter.encode(column, *(() if schema is None else (schema,)))
        if made.bad:  # an object is read whole or not at all: the first is reason enough
            raise _at(made.bad[0], self.file, f"record {self._read + made.bad[0].row + 1}: ")
        return made.values


def _converter(file: BackupFile, options: ReadOptions) -> Converter | None:
    """Return what makes Kafka's bytes of a column, None where they are bytes.

    Looking at a backup registers no schema: what would be registered is shown as the format's
    files are without a converter.
    """
    if file.view is View.HEADERS:
        return None
    given = given_converter(options, file.view)
    if given is not None and options.topic is None and converters.registers(given):
        given = None
    if given is not None and not reads(given, file.format):
        given = None
    name = given or formats.by_name(file.format).assumed.get(file.view)
    if name is None:
        return None
    properties = options.properties.get(file.view) if given else None
    part = "key" if file.view is View.KEY else "value"
    return converters.by_name(name, properties, topic=options.topic, part=part)


def given_converter(options: ReadOptions, view: View) -> str | None:
    """Return the configured converter of a part of the records."""
    return options.key_converter if view is View.KEY else options.value_converter


def reads(converter: str, form: str) -> bool:
    """Whether a converter makes Kafka's bytes of what a format's files hold.

    One that writes under a schema cannot where the files keep none.
    """
    found = formats.by_name(form)
    if found.takes.isdisjoint(plugins.load("converters", converter).gives):
        return False
    return not converters.registers(converter) or keeps_schemas(form)


def keeps_schemas(form: str) -> bool:
    """Whether files of a format hold the schema of what is in them."""
    return bool(getattr(formats.by_name(form), "needs_schema", False))


def named(batches: Iterator[pa.RecordBatch], file: BackupFile) -> Iterator[pa.RecordBatch]:
    """Put the object's key into errors of its format, which does not know it."""
    try:
        yield from batches
    except CorruptObjectError as error:
        raise _at(error, file) from error


def _at(error: CorruptObjectError | Bad, file: BackupFile, place: str = "") -> CorruptObjectError:
    """Return *error* as one of *file*, *place* saying where in it."""
    why = place + (error.what if not error.why else f"{error.what}: {error.why}")
    kind = type(error) if isinstance(error, CorruptObjectError) else CorruptObjectError
    return kind(
        file.key,
        why,
        error.do or "back these offsets up again, or skip it with behavior.on.error=log",
        key=file.key,
    )
