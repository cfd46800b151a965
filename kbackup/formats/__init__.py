"""Extension point: rows to one file and back.

Owns the bytes of one file, and what its format can do.  It reads and writes files that others have
opened: it never asks a store or Kafka.

A new format is one file here with a class that fits `Format`, one line under
``[project.entry-points."kbackup.formats"]``, and no other code: the contract suite finds it there.
What it is, its `Traits` say; what else it can do is a method of one of the small protocols below:
`Salvages`, `DescribesTables`, `KeepsMetadata`, `SaysExtent`, `StoresBatches`, and `HasIndex` of
its writer.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ClassVar, Final, Protocol, runtime_checkable

import pyarrow as pa

from kbackup import plugins
from kbackup.batches import Batches
from kbackup.connect import schema as connect
from kbackup.connect.schema import ConnectSchema, Type
from kbackup.connect.tables import Files
from kbackup.errors import ConfigurationError, CorruptObjectError, is_of_memory
from kbackup.formats import codecs
from kbackup.naming import View
from kbackup.options import Option, Unsupported
from kbackup.records import Bad, Facts, Kind, Schema, bad_where, schema_of


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """The configuration of files; plain data.

    Attributes:
        values: Values of the options that formats declare, by property; a format reads its own
            with `kbackup.options.Option.of`.
        max_record_bytes: A file with a longer record than this is refused when it is read.
        is_ended: A file of rows that does not end with a separator has been cut short.  Tools that
            write no backups often leave the last one out.
        columns: Those of ``records.SCHEMA`` that are wanted, the offset among them; what holds
            others need not be read.  None for all.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    max_record_bytes: int = 2**28
    is_ended: bool = True
    columns: frozenset[str] | None = None


HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
"""The type of headers in the connectors' layout: text, whatever they were."""

_TEXT: Final = ConnectSchema(Type.STRING)
HEADERS_SCHEMA: Final = ConnectSchema(
    Type.ARRAY, value=ConnectSchema(Type.STRUCT, fields=(("key", _TEXT), ("value", _TEXT)))
)
"""Their schema, in files that have one."""

COLUMNS: Final = {View.VALUE: "value", View.KEY: "key", View.HEADERS: "headers"}
"""Name of the one column of each view of the connectors' layout."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a format declares of itself.

    Attributes:
        views: The parts of a record it can hold.
        takes: The kinds of columns it accepts for values and keys: with a converter that gives none
            of them, a run is refused at its start.
        class_names: Simple names of the Java classes that stand for this format.
        options: Its options, as `kbackup.plugins` has them.
        assumed: The default converter of each view; no entry if the bytes stay as they are.
        assumed_to_write: Those that are others for writing than for reading.
        splits_at: The property that sets the separator, a line feed by default, if a value that
            contains it is read back as several values; otherwise empty.  It is one of `keeps`.
        keeps: The properties of options that decide what a file means: an object that a sink stores
            says their values, and is read by them, whatever is configured by then.
        needs_schema: Its files have a schema: JSON without schemas is refused before a run.
        encodings: The encodings in which it can keep values as their producers encoded them: its
            writer may then find them in a second column, `kbackup.records.ENCODED`, with their
            schema in its metadata.
        has_checksum: Reading a file detects a flipped bit, whether or not it is compressed by one
            of `codecs`.
        reads_only: It takes no rows: its writer raises ``ConfigurationError``; see `OnlyRead`.
        stores_batches: A sink can write it all the same, as `StoresBatches` has it.
        connectors: The full names of the connectors that always write it.
        connector_settings: Their own defaults, by attribute of the settings.
        settings: Defaults of the settings in which the layout of its files, which are one tool's
            alone, differs from other layouts; by attribute.
        directory: The directory of all its files, where that is a date of upload.
    """

    views: frozenset[View]
    takes: frozenset[Kind]
    class_names: tuple[str, ...] = ()
    options: tuple[Option[Any] | Unsupported, ...] = ()
    assumed: Mapping[View, str] = field(default_factory=dict)
    assumed_to_write: Mapping[View, str] = field(default_factory=dict)
    splits_at: str = ""
    keeps: frozenset[str] = frozenset()
    needs_schema: bool = False
    encodings: frozenset[str] = frozenset()
    has_checksum: bool = False
    reads_only: bool = False
    stores_batches: bool = False
    connectors: tuple[str, ...] = ()
    connector_settings: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    directory: str | None = None


class Writer(Protocol):
    """One file being written."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, none of which `Format.refuses`.

        How rows are divided into calls does not change the bytes of the file.
        """
        ...

    def close(self, metadata: Mapping[str, str]) -> None:
        """Complete the file with *metadata*, if it has a place for it; its owner closes it."""
        ...


class Format(Protocol):
    """How rows become one file.

    The columns depend on the view: `View.RECORD` has ``records.SCHEMA``, or what is wanted of it;
    `View.VALUE`, `View.KEY` and `View.HEADERS` have one column, ``value``, ``key`` or ``headers``,
    with the type that the converter gives it (``binary``, ``string``, ``pa.json_()``) or a schema;
    headers are `HEADERS`.  Columns that are read may have a schema too, in the metadata of the
    column's field, see `kbackup.records.schema_of`.
    """

    traits: ClassVar[Traits]

    def extension(self, options: FormatOptions) -> str:
        """Return the extension of its files, starting with the dot."""
        ...

    def reads(self, extension: str, options: FormatOptions) -> bool:
        """Whether files with *extension* are of this format, however compressed."""
        ...

    def refuses(self, view: View, values: pa.Array, options: FormatOptions) -> Sequence[Bad]:
        """Return the rows that no file of this format can hold, in rising order.

        Args:
            view: The part of the record; never full records.
            values: The column of the view, as the converter returns it.
            options: The configuration of files, which may ask for more to be refused.
        """
        ...

    def writer(
        self, file: BinaryIO, view: View, options: FormatOptions, schema: Schema | None = None
    ) -> Writer:
        """Begin a file.

        Args:
            file: Where it goes; written from its start.
            schema: The schema of the values, None if the Arrow type is sufficient.

        Raises:
            ConfigurationError: If this format cannot hold *view*.
        """
        ...

    def read(
        self, file: BinaryIO, view: View, extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        """Read a file from its start, lazily, some rows at a time, in file order, memory bounded.

        Args:
            file: Seekable, positioned at 0, complete.

        Raises:
            CorruptObjectError: If the file is truncated or altered; what was yielded before is
                intact, unless the error is ``doubting``.
        """
        ...


@runtime_checkable
class Salvages(Protocol):
    """A format whose rows stand on their own; its `Format.read` ends at the first bad one."""

    def salvage(
        self, file: BinaryIO, view: View, extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch | Bad]:
        """Read a file as `Format.read` does, with a `Bad` in the place of each row it cannot read.

        Raises:
            CorruptObjectError: If it cannot go on.
        """
        ...


@runtime_checkable
class DescribesTables(Protocol):
    """A format whose files Athena, Hive or Spark can read."""

    def table(self, file: BinaryIO, view: View, extension: str, options: FormatOptions) -> Files:
        """Return what one file is to them.

        Raises:
            ConfigurationError: If what it holds cannot be a table.
        """
        ...


@runtime_checkable
class KeepsMetadata(Protocol):
    """A format whose files have a place for what `Writer.close` is given."""

    def own_metadata(self, file: BinaryIO) -> Mapping[str, str]:
        """Return what `Writer.close` was given.

        Empty if the file is damaged: reading its rows reports the damage.
        """
        ...


@runtime_checkable
class SaysExtent(Protocol):
    """A format of full records whose files begin with what they hold.

    Attributes:
        extent_bytes: How many bytes of a file that takes.
    """

    extent_bytes: ClassVar[int]

    def extent(self, data: bytes) -> Facts | None:
        """Return what the first ``extent_bytes`` of a file say, None if they make no sense."""
        ...


class BatchFile(Protocol):
    """One file of record batches being written."""

    def write(self, batches: Batches) -> None:
        """Add batches, all of them behind those before.

        How batches are divided into calls does not change the bytes of the file.
        """
        ...

    def close(self, metadata: Mapping[str, str]) -> None:
        """Complete the file with *metadata*; its owner closes it."""
        ...


@runtime_checkable
class StoresBatches(Protocol):
    """A format of full records whose files hold record batches as brokers send them."""

    def batch_writer(self, file: BinaryIO) -> BatchFile:
        """Begin a file of batches, none of them empty, of control, or of an aborted transaction."""
        ...

    def batches(self, file: BinaryIO, options: FormatOptions) -> Iterator[Batches]:
        """Read the batches of a file that is positioned at 0, some at a time.

        Raises:
            CorruptObjectError: If it is not as it was written; records were not unpacked.
        """
        ...

    def rows(self, batches: Batches, options: FormatOptions) -> Iterator[pa.RecordBatch]:
        """Unpack batches of a file.

        Raises:
            CorruptObjectError: If a batch does not hold what it says.
        """
        ...


@runtime_checkable
class HasIndex(Protocol):
    """A writer of files that each have an index beside them."""

    def index(self, first_offset: int) -> bytes:
        """Return the index, once the file is closed."""
        ...


class FileFormat:
    """What our formats have in common: they refuse a view that is not among their traits.

    Attributes:
        name: What the format is registered as.
        ending: The extension of its files, where that is one alone.
    """

    name: ClassVar[str]
    ending: ClassVar[str]
    traits: ClassVar[Traits]

    def extension(self, options: FormatOptions) -> str:  # noqa: ARG002
        """Return the extension: `Format.extension`."""
        return self.ending

    def reads(self, extension: str, options: FormatOptions) -> bool:
        """Whether *extension* is that one: `Format.reads`."""
        return extension == self.extension(options)

    def writer(
        self, file: BinaryIO, view: View, options: FormatOptions, schema: Schema | None = None
    ) -> Writer:
        """Begin a file: `Format.writer`."""
        self._check(view)
        return self._writer(file, view, options, schema)

    def read(
        self, file: BinaryIO, view: View, extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        """Read a file, and check it while reading: `Format.read`."""
        self._check(view)
        return self._read(file, view, extension, options)

    def _check(self, view: View) -> None:
        if view not in self.traits.views:
            raise refuse_view(self.name, view)

    def _writer(
        self, file: BinaryIO, view: View, options: FormatOptions, schema: Schema | None
    ) -> Writer:
        raise NotImplementedError

    def _read(
        self, file: BinaryIO, view: View, extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class OnlyRead(FileFormat):
    """The writing half of a format that writes nothing."""

    def refuses(self, _view: View, values: pa.Array, _options: FormatOptions) -> Sequence[Bad]:
        """Refuse every row: nothing is written."""
        return all_rows(values, "kbackup only reads this format")

    def writer(
        self,
        file: BinaryIO,  # noqa: ARG002
        view: View,  # noqa: ARG002
        options: FormatOptions,  # noqa: ARG002
        schema: Schema | None = None,  # noqa: ARG002
    ) -> Writer:
        """Refuse, with a ``ConfigurationError``."""
        raise ConfigurationError(
            f"the {self.name} format can be read, but not written",
            do="leave out format.class for full records",
        )


def by_name(name: str) -> Format:
    """Return the format registered as *name*."""
    found: Format = plugins.load("formats", name)()
    return found


def holds_records(name: str | None) -> bool:
    """Whether files of the format *name* are full records, and nothing else."""
    return name is not None and by_name(name).traits.views == {View.RECORD}


def by_extension(extension: str, options: FormatOptions) -> str | None:
    """Return the name of the installed format that reads *extension*, None if none does."""
    for plugin in plugins.installed("formats"):
        if by_name(plugin.name).reads(extension, options):
            return plugin.name
    return None


def own_metadata(name: str, file: BinaryIO) -> Mapping[str, str]:
    """Return what a file of the format *name* says of itself, if it has a place for it."""
    form = by_name(name)
    return form.own_metadata(file) if isinstance(form, KeepsMetadata) else {}


def checks_itself(name: str, extension: str) -> bool:
    """Whether reading a file of the format *name* detects a flipped bit."""
    return by_name(name).traits.has_checksum or codecs.checks_itself(extension)


def of_any_name(
    extension: str, options: FormatOptions, only: str | None = None
) -> tuple[str, str | None]:
    """Return an extension for `Format.read`, and the format, of a file that no sink has named.

    *extension* is all of its name from the first dot on, such as ``.2026-11-22.json.gz``.  The
    format is None if none reads the file; *only*, the one that was asked for, also reads files
    whose extension no format knows.
    """
    ends = [extension[at:] for at, letter in enumerate(extension) if letter == "."]
    names = [
        plugin.name
        for plugin in plugins.installed("formats")
        if by_name(plugin.name).traits.directory is None  # else it names all of its files itself
    ]
    for end in ends:
        for name in sorted(names, key=lambda name: name != only):
            if by_name(name).reads(end, options):
                return end, name
    if only is None:
        return extension, None
    codec = codecs.of_extension(extension)
    own = codecs.without(by_name(only).extension(options))
    return own + ("" if codec is None else codec.extension), only


def choose(view: View, *names: str) -> str:
    """Return the advice to write *view* in another format, one of *names*."""
    setting = {View.KEY: "keys.format.class", View.HEADERS: "headers.format.class"}
    property_ = setting.get(view, "format.class")
    return f"choose {property_}={' or '.join(names)}, or full records (without format.class)"


def refuse_view(name: str, view: View) -> ConfigurationError:
    """Return the error of a format that cannot hold *view*."""
    words = {View.RECORD: "full records", View.KEY: "keys", View.HEADERS: "headers"}
    return ConfigurationError(
        f"the {name} format cannot hold {words.get(view, 'values')}",
        do="choose another format, such as format.class=parquet for full records",
    )


def corrupt(what: str, why: str) -> CorruptObjectError:
    """Return the error of a file that is not as it was written."""
    do = "restore an earlier version of the object, or skip it with behavior.on.error"
    return CorruptObjectError(what, why, do)


def too_large(what: str, why: str) -> CorruptObjectError:
    """Return the error of a file that holds *what*, such as "the log holds a record"."""
    do = "if records are this large, raise --max-record-bytes"
    return CorruptObjectError(f"{what} that is too large, or was altered", why, do)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Translate pyarrow's errors about bad bytes into ours; those of disk or memory stay."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, MemoryError) as error:
        if is_of_memory(error) or (isinstance(error, OSError) and error.errno is not None):
            raise
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise corrupt(what, why) from error


def column_schema(field: pa.Field, form: str) -> ConnectSchema:
    """Return the schema of *field*'s values, or the one that its Arrow type stands for.

    Raises:
        ConfigurationError: If neither is a schema of Kafka Connect, which *form*, a kind of file
            with its article, needs.
    """
    found = connect.of(schema_of(field))
    if found is not None:
        return found
    try:
        return connect.of_arrow(field.type)
    except ValueError:
        raise ConfigurationError(
            f"{form} cannot hold {field.name}s converted to {field.type}",
            f"{form} needs a schema",
            f"choose a {field.name}.converter that has schemas, such as JsonConverter with "
            "schemas.enable=true",
        ) from None


def all_rows(values: pa.Array, what: str, why: str = "", do: str = "") -> list[Bad]:
    """Return all rows of *values*, none of which a file can hold."""
    return [Bad(row, what, why, do) for row in range(len(values))]


def null_keys(keys: pa.Array) -> Sequence[Bad]:
    """Return the rows without a key, as `Format.refuses` does."""
    why = "the connectors cannot tell it from a key that is missing"
    do = "leave keys out with store.kafka.keys=false, or keep full records"
    return bad_where(keys.is_null(), "a null key cannot be written to a file of keys", why, do)
