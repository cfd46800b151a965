"""From a file set to the records in it."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Final

import pyarrow as pa

from kbackup import converters, formats
from kbackup.backup import blocks, claims
from kbackup.backup.blocks import Run
from kbackup.backup.catalog import BackupFile, FileSet
from kbackup.backup.claims import Claim
from kbackup.backup.window import EVERY_OFFSET, Range
from kbackup.columns import Bad, schema_of
from kbackup.converters import Converter
from kbackup.errors import CorruptObjectError, IncompleteBackupError
from kbackup.flow.views import COLUMNS, ReadOptions, assemble
from kbackup.naming import View
from kbackup.records import SCHEMA, UNKNOWN, Facts, TopicIdentity
from kbackup.spool import Spool
from kbackup.stores import Store
from kbackup.stores.ranges import Ranges

HELD_BYTES: Final = 8 * 2**20
"""What `held` keeps in memory."""

_CHUNK: Final = 1 << 20


def read(
    store: Store,
    files: FileSet,
    options: ReadOptions,
    identity: TopicIdentity = UNKNOWN,
    wanted: Range = EVERY_OFFSET,
) -> Iterator[pa.RecordBatch]:
    """Read the records of a file set, lazily.

    Offsets outside *wanted* may be left out, where the set can be read in parts; then what was
    read is compared with the index of the parts.

    What its objects say about themselves is compared with their names, with each other and with
    *identity*, the topic they are of as far as that is known, before the first row is read, and
    with the rows when the last one was.

    Yields:
        ``records.SCHEMA``, at least one row each, offsets rising.

    Raises:
        CorruptObjectError: If an object is damaged, is not what its name says, its rows do not
            fit its siblings', or a row cannot be turned back into a record.
        IncompleteBackupError: If an object that belongs to the set is missing.
        ObjectNotFoundError: If an object has gone since it was listed.
    """
    if files.main is None:
        yield from _keys_alone(store, files, options)
    elif files.is_whole:
        yield from _whole(store, files, options, identity)
    elif (parts := blocks.runs(store, files, files.main, wanted)) is not None:
        yield from _blocks(store, files, files.main, parts, options, identity)
    else:
        yield from _values(store, files, files.main, options, identity)


def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return *batches* once all of them could be read, or raise what stopped them.

    Memory: `HELD_BYTES`, beyond it ``TMPDIR``.
    """
    with Spool(HELD_BYTES) as spool:
        with pa.ipc.new_stream(spool, SCHEMA) as out:
            for batch in batches:
                out.write_batch(batch)
        spool.seek(0)
        with pa.ipc.open_stream(spool) as rows:
            yield from rows


def facts(store: Store, file: BackupFile) -> Facts | None:
    """Return what was stored with the object about its records, None where nothing was."""
    head = store.head(file.key)
    return None if head is None else Facts.from_metadata(head.metadata)


def _claim(store: Store, file: BackupFile, body: BinaryIO) -> Claim:
    metadata: Mapping[str, str] | None = getattr(body, "metadata", None)
    if metadata is None:  # this store learns it in another request
        head = store.head(file.key)
        metadata = {} if head is None else head.metadata
    claim = claims.of(file, metadata, body)
    if claim.facts is None and file.sha256 not in ("", sha256_of(body)):
        text = "it is not the object that was stored: its sha256 differs"
        raise _contradiction("corrupt", file.key, text)
    return claim


def sha256_of(body: BinaryIO) -> str:
    """Return the sha256 of a whole file, in hexadecimal; leaves it at its start."""
    digest = hashlib.sha256(usedforsecurity=False)
    while chunk := body.read(_CHUNK):
        digest.update(chunk)
    body.seek(0)
    return digest.hexdigest()


def _check_claims(files: FileSet, found: Sequence[Claim], identity: TopicIdentity) -> None:
    for problem in claims.problems(files, found, identity):
        raise _contradiction(problem.code, problem.key, problem.text)


def _check_rows(claim: Claim, rows: int, last: int | None) -> None:
    """Compare what was read with what was stored; *last* is None where rows have no offsets."""
    key, stored = claim.file.key, claim.facts
    if not rows:
        raise _contradiction("corrupt", key, "it holds no records")
    if stored is None:
        return
    if rows != stored.records:
        text = f"it holds {rows} records; {stored.records} were stored{_splits(claim.file)}"
        raise _contradiction("count_mismatch", key, text)
    if last is not None and last != stored.last_offset:
        text = f"its last record has offset {last}; it was stored with {stored.last_offset}"
        raise _contradiction("count_mismatch", key, text)


def _splits(file: BackupFile) -> str:
    """Return the likely cause if *file* has more rows than it should; empty without one."""
    name = formats.by_name(file.format).splits_at
    return f"; what contains the separator ({name}) comes back as several rows" if name else ""


def _check_index(store: Store, files: FileSet, main: BackupFile, rows: int) -> None:
    """Compare what was read with the index of a file of which nothing else is known."""
    index = blocks.index_of(store, files, main)
    if index is not None and index.records != rows:
        text = f"it holds {rows} records; its index says {index.records}"
        raise _contradiction("count_mismatch", main.key, text)


def _contradiction(code: str, key: str, why: str) -> CorruptObjectError:
    do = (
        "it may be a copy under a wrong name: find the right object, or back these offsets up again"
    )
    return CorruptObjectError(key, why, do, key=key, problem=code)


def _whole(
    store: Store, files: FileSet, options: ReadOptions, identity: TopicIdentity
) -> Iterator[pa.RecordBatch]:
    assert files.main is not None  # noqa: S101  (is_whole says so)
    rows, last = 0, None
    with store.open(files.main.key) as body:
        claim = _claim(store, files.main, body)
        _check_claims(files, [claim], identity)
        form = formats.by_name(files.main.format)
        batches = form.read(body, View.RECORD, files.main.extension, options.formats)
        for batch in _named(batches, files.main):
            if len(batch):
                _check_offsets(batch, files.start_offset, last, files.main)
                rows += len(batch)
                last = batch["offset"][len(batch) - 1].as_py()
                yield batch
        _check_rows(claim, rows, last)


def _check_offsets(batch: pa.RecordBatch, start: int, last: int | None, file: BackupFile) -> None:
    first = batch["offset"][0].as_py()
    if last is None and first != start:
        text = f"its first record has offset {first}, its name says {start}"
        raise _contradiction("corrupt", file.key, text)
    if last is not None and first <= last:
        text = f"offset {first} follows offset {last} in it"
        raise _contradiction("corrupt", file.key, text)


def _values(
    store: Store,
    files: FileSet,
    main: BackupFile,
    options: ReadOptions,
    identity: TopicIdentity,
) -> Iterator[pa.RecordBatch]:
    """Read a value file and its siblings side by side, row for row."""
    for wanted, file, name in (
        (options.wants_keys, files.keys, "keys"),
        (options.wants_headers, files.headers, "headers"),
    ):
        if wanted and file is None:
            raise IncompleteBackupError(
                main.key,
                f"its {name} object is missing",
                f"restore without store.kafka.{name}, or back these offsets up again",
                key=main.key,
            )
    value = _Column(store, main, options)
    siblings: list[_Column | None] = []
    start = files.start_offset
    try:
        for file in (files.keys, files.headers):
            column = None if file is None else _Column(store, file, options)
            siblings.append(column)  # one by one: what is open is closed, whatever the next does
        columns = [value, *(each for each in siblings if each is not None)]
        _check_claims(files, [each.claim for each in columns], identity)
        while (rows := value.next()) is not None:
            keys, headers = [
                None if sibling is None else sibling.take(len(rows), main) for sibling in siblings
            ]
            yield assemble(start, rows, keys, headers)
            start += len(rows)
        for sibling in siblings:
            if sibling is not None and sibling.next() is not None:
                raise CorruptObjectError(
                    sibling.file.key,
                    f"it has more rows than {main.key}{_splits(sibling.file)}",
                    "rows are never paired by guess; back these offsets up again",
                    key=sibling.file.key,
                )
        for each in columns:
            _check_rows(each.claim, start - files.start_offset, None)
        if value.claim.facts is None:
            _check_index(store, files, main, start - files.start_offset)
    finally:
        for opened in (value, *siblings):
            if opened is not None:
                opened.close()


def _blocks(
    store: Store,
    files: FileSet,
    main: BackupFile,
    parts: Sequence[Run],
    options: ReadOptions,
    identity: TopicIdentity,
) -> Iterator[pa.RecordBatch]:
    """Read some blocks of a value file that has no siblings."""
    assert isinstance(store, Ranges)  # noqa: S101  (`blocks.runs` has asked)
    for part in parts:
        with store.open_range(main.key, part.start, part.length) as body:
            column = _Column(store, main, options, body)
            _check_claims(files, [column.claim], identity)
            start = part.first_offset
            while (rows := column.next()) is not None:
                yield assemble(start, rows, None, None)
                start += len(rows)
        if start - part.first_offset != part.records:
            text = f"its index says that {part.records} records begin at offset"
            text += f" {part.first_offset}; there are {start - part.first_offset}"
            raise _contradiction("count_mismatch", main.key, text)


def _keys_alone(store: Store, files: FileSet, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Refuse siblings without their value: the crash that left them also kept the offset back."""
    del store, options
    key = files.files[0].key
    raise IncompleteBackupError(
        key,
        "the value object beside it is missing",
        "a run that was interrupted leaves this until the next run completes the set",
        key=key,
    )
    yield  # pragma: no cover  (makes this a generator, as `read` needs)


class _Column:
    """One file of the connectors' layout, as a column of Kafka's bytes or header texts."""

    def __init__(
        self,
        store: Store,
        file: BackupFile,
        options: ReadOptions,
        body: BinaryIO | None = None,
    ) -> None:
        self.file = file
        self._body = store.open(file.key) if body is None else body
        self.claim = _claim(store, file, self._body)
        self._view = file.view
        form = formats.by_name(file.format)
        batches = form.read(self._body, file.view, file.extension, options.formats)
        self._batches = _named(batches, file)
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
                    f"it ends {missing} rows before its value object{_splits(main)}",
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
    given = options.key_converter if file.view is View.KEY else options.value_converter
    if given is not None and options.topic is None and converters.registers(given):
        given = None
    name = given or formats.by_name(file.format).assumed.get(file.view)
    if name is None:
        return None
    properties = options.properties.get(file.view) if given else None
    part = "key" if file.view is View.KEY else "value"
    return converters.by_name(name, properties, topic=options.topic, part=part)


def _named(batches: Iterator[pa.RecordBatch], file: BackupFile) -> Iterator[pa.RecordBatch]:
    """Put the object's key into errors of its format, which does not know it."""
    try:
        yield from batches
    except CorruptObjectError as error:
        raise _at(error, file) from error


def _at(error: CorruptObjectError | Bad, file: BackupFile, place: str = "") -> CorruptObjectError:
    """Return *error* as one of *file*, *place* saying where in it."""
    why = place + (error.what if not error.why else f"{error.what}: {error.why}")
    return CorruptObjectError(
        file.key,
        why,
        error.do or "back these offsets up again, or skip it with behavior.on.error=log",
        key=file.key,
    )
