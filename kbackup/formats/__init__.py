"""SEAM: batches to one file and back.

A new format is one file here with a class that fits `Format`, one line under
``[project.entry-points."kbackup.formats"]``, and nothing else: the contract suite finds it there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Protocol

from kbackup import plugins
from kbackup.errors import ConfigurationError
from kbackup.naming import View

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from kbackup.records import Bad, Kind, Schema


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """The configuration of files; plain data.

    Attributes:
        values: Values of the options that formats declare, by property; a format reads its own
            with `kbackup.options.Option.of`.
        max_record_bytes: A file with a longer record than this is refused when it is read.
        is_ended: A file of rows that does not end with a separator has been cut short.  Tools that
            write no backups often leave the last one out.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    max_record_bytes: int = 2**28
    is_ended: bool = True


class Writer(Protocol):
    """One file being written.

    Where the format's files have an index beside them, it has a method ``index`` too: given the
    offset of the file's first record, it returns the bytes of the index, once the file is closed.
    """

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, none of which `Format.refuses`.

        How rows are divided into calls does not change the bytes of the file.
        """
        ...

    def close(self, metadata: Mapping[str, str]) -> None:
        """Complete the file with *metadata*, if it has a place for it; its owner closes it."""
        ...


class Format(Protocol):
    """How batches become one file.

    The columns depend on the view: `View.RECORD` has ``records.SCHEMA``; `View.VALUE`,
    `View.KEY` and `View.HEADERS` have one column, ``value``, ``key`` or ``headers``, with the type
    that the converter gives it (``binary``, ``string``, ``pa.json_()``) or a schema; headers
    are ``list<struct<key: string, value: string>>``.  Columns that are read may have a schema too,
    in the metadata of the column's field, see `kbackup.records.schema_of`.

    A format whose files have a schema has ``needs_schema = True``: JSON without schemas is
    refused before a run.  If it assumes other converters for writing than for reading, they are in
    ``assumed_to_write``.

    A format whose files Athena, Hive or Spark can read has a method ``table``, with the arguments
    of `read`, which returns the `kbackup.connect.tables.Files` of one file, or raises
    ``ConfigurationError`` if what it holds cannot be a table.

    A format that is only read has ``reads_only = True``; its writer raises ``ConfigurationError``.

    A format that refuses more where a setting asks for it has a method ``refuses_as_asked``, with
    the arguments of `refuses` and the `FormatOptions`.

    A format that can keep values as their producers encoded them lists the encodings in
    ``encodings``: its writer may then find them in a second column, `kbackup.records.ENCODED`, with
    their schema in its metadata.

    A format whose files are one tool's alone may say in which settings its layout differs from
    other layouts: ``settings`` has the values that are its defaults, by attribute of the settings,
    ``directory`` the directory of all its files where that is a date of upload.  ``connectors`` has
    the full names of the connectors that always write it, ``connector_settings`` their own
    defaults.

    A format whose rows stand on their own has a method ``salvage``, with the arguments of `read`:
    in the place of each row that cannot be read it yields a `kbackup.records.Bad`, and goes on.
    Its `read` ends at the first of them.

    A format of full records whose files begin with what they hold has a method ``extent``: given
    the first ``extent_bytes`` of a file, it returns the facts, or None if they make no sense.

    Attributes:
        class_names: Simple names of the Java classes that stand for this format.
        views: The parts of a record it can hold.
        takes: The kinds of columns it accepts for values and keys: with a converter that gives none
            of them, a run is refused at its start.
        assumed: The default converter of each view; no entry if the bytes stay as they are.
        splits_at: The property that sets the separator, if a value that contains the separator
            is read back as several values; otherwise empty.
    """

    class_names: ClassVar[tuple[str, ...]]
    views: ClassVar[frozenset[View]]
    takes: ClassVar[frozenset[Kind]]
    assumed: ClassVar[Mapping[View, str]]
    splits_at: ClassVar[str]

    def extension(self, options: FormatOptions) -> str:
        """Return the extension of its files, starting with the dot."""
        ...

    def reads(self, extension: str, options: FormatOptions) -> bool:
        """Whether files with *extension* are of this format, however compressed."""
        ...

    def checks_itself(self, extension: str) -> bool:
        """Whether reading a file with *extension* detects a flipped bit."""
        ...

    def refuses(self, view: View, values: pa.Array) -> Sequence[Bad]:
        """Return the rows that no file of this format can hold, in rising order.

        Args:
            view: The part of the record; never full records.
            values: The column of the view, as the converter returns it.
        """
        ...

    def writer(
        self, file: BinaryIO, view: View, options: FormatOptions, schema: Schema | None = None
    ) -> Writer:
        """Begin a file.

        Args:
            file: Where it goes; written from its start.
            view: The part of the records.
            options: The configuration of files.
            schema: The schema of the values, None if the Arrow type is sufficient.

        Raises:
            ConfigurationError: If this format cannot hold *view*.
        """
        ...

    def own_metadata(self, file: BinaryIO) -> Mapping[str, str]:
        """Return what `Writer.close` was given, if the file has a place for it.

        Also empty if the file is damaged: reading its rows reports the damage.
        """
        ...

    def read(
        self, file: BinaryIO, view: View, extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        """Read a file from its start, lazily, rows in file order, memory bounded by a batch.

        Args:
            file: Seekable, positioned at 0, complete.

        Raises:
            CorruptObjectError: If the file is truncated or altered; what was yielded before is
                intact, unless the error is ``doubting``.
        """
        ...


def by_name(name: str) -> Format:
    """Return the format registered as *name*."""
    found: Format = plugins.load("formats", name)()
    return found


def holds_records(name: str | None) -> bool:
    """Whether files of the format *name* are full records, and nothing else."""
    return name is not None and by_name(name).views == {View.RECORD}


def by_extension(extension: str, options: FormatOptions) -> str | None:
    """Return the name of the installed format that reads *extension*, None if none does."""
    for plugin in plugins.installed("formats"):
        if by_name(plugin.name).reads(extension, options):
            return plugin.name
    return None


def of_any_name(
    extension: str, options: FormatOptions, only: str | None = None
) -> tuple[str, str | None]:
    """Return how a file that no sink has named is read.

    Args:
        extension: All of its name from the first dot on, such as ``.2026-11-22.json.gz``.
        options: The configuration of files.
        only: The format that was asked for: it also reads files whose extension no format knows.

    Returns:
        The extension for `Format.read`, and the format; None for it if none reads the file.
    """
    from kbackup.formats import codecs  # noqa: PLC0415  # it needs pyarrow, and --help does not

    ends = [extension[at:] for at, letter in enumerate(extension) if letter == "."]
    names = [
        plugin.name
        for plugin in plugins.installed("formats")
        if not hasattr(by_name(plugin.name), "directory")  # it names all of its files itself
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
