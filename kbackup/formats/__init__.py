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

if TYPE_CHECKING:  # the modules of options here are imported for --help
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from kbackup.columns import Bad, Schema


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """What the configuration says about files; plain data.

    Attributes:
        values: What was given for the options that formats declare, by property; a format
            reads its own with `kbackup.options.Option.of`.
        max_record_bytes: A file with a longer record than this is refused when it is read.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    max_record_bytes: int = 2**28


class Writer(Protocol):
    """One file being written.

    Where the format's files have an index beside them, it has a method ``index`` too: given the
    offset of the file's first record, it returns the bytes of the index, once the file is closed.
    """

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, none of which `Format.refuses`.

        How rows are spread over calls does not change the bytes of the file.
        """
        ...

    def close(self, metadata: Mapping[str, str]) -> None:
        """Complete the file, which stays open for its owner; *metadata* where there is room."""
        ...


class Format(Protocol):
    """How batches become one file.

    The columns depend on the view: `View.RECORD` has ``records.SCHEMA``; `View.VALUE`,
    `View.KEY` and `View.HEADERS` have the one column ``value``, ``key`` or ``headers``, typed as
    the converter gives it: ``binary``, ``string``, ``pa.json_()``, or under a schema; headers are
    ``list<struct<key: string, value: string>>``.  What is read may be under a schema as well: it
    is in the metadata of the column's field, see `kbackup.columns.schema_of`.

    A format whose files are under a schema has ``needs_schema = True``: JSON without schemas is
    refused before a run.  Where it assumes other converters for the files that it writes than for
    those that it reads, they are in ``assumed_to_write``.

    A format that can keep values as their producers encoded them names the encodings in
    ``encodings``: its writer may then find them in a second column, `kbackup.columns.ENCODED`, with
    the schema they are encoded under in its metadata.

    A format whose files are one tool's alone may say in which settings its layout differs from
    other layouts: ``settings`` has the values that are its defaults, by attribute of the settings,
    ``directory`` the directory of all its files where that is a date of upload.  ``connectors`` has
    the full names of the connectors that always write it, ``connector_settings`` their own
    defaults.

    Attributes:
        class_names: Simple names of the Java classes that stand for this format.
        views: The parts of a record it can hold.
        converters: Names of the converters whose columns it takes; None: it says so when it
            writes.
        assumed: The converter that is taken for each view where none is named; no entry where
            the bytes stay as they are.
        splits_at: The property that says what separates values, where a value that holds it comes
            back as several; empty where none does.
    """

    class_names: ClassVar[tuple[str, ...]]
    views: ClassVar[frozenset[View]]
    converters: ClassVar[tuple[str, ...] | None]
    assumed: ClassVar[Mapping[View, str]]
    splits_at: ClassVar[str]

    def extension(self, options: FormatOptions) -> str:
        """Return the extension of its files, dot first."""
        ...

    def reads(self, extension: str, options: FormatOptions) -> bool:
        """Whether files with *extension* are of this format, however compressed."""
        ...

    def checks_itself(self, extension: str) -> bool:
        """Whether a bit that flips in a file with *extension* is noticed when it is read."""
        ...

    def refuses(self, view: View, values: pa.Array) -> Sequence[Bad]:
        """Return the rows that no file of this format can hold, in rising order.

        Args:
            view: The part of the record; never asked for whole records.
            values: The column of the view, as the converter gives it.
        """
        ...

    def writer(
        self, file: BinaryIO, view: View, options: FormatOptions, schema: Schema | None = None
    ) -> Writer:
        """Begin a file.

        Args:
            file: Where it goes; written from its start.
            view: The part of the records.
            options: What the configuration says about files.
            schema: What the values are under, None where the Arrow type says it all.

        Raises:
            ConfigurationError: If this format cannot hold *view*.
        """
        ...

    def own_metadata(self, file: BinaryIO) -> Mapping[str, str]:
        """Return what `Writer.close` was given, as far as the file has room for it.

        Empty too where the file is damaged: whoever reads its rows names the damage.
        """
        ...

    def read(
        self, file: BinaryIO, view: View, extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        """Read a file from its start, lazily, rows in file order, memory bounded by a batch.

        Args:
            file: Seekable, positioned at 0, complete.

        Raises:
            CorruptObjectError: If the file is cut short or altered; what was yielded before is
                good.
        """
        ...


def by_name(name: str) -> Format:
    """Return the format registered as *name*."""
    found: Format = plugins.load("formats", name)()
    return found


def by_extension(extension: str, options: FormatOptions) -> str | None:
    """Return the name of the installed format that reads *extension*, None where none does."""
    for plugin in plugins.installed("formats"):
        if by_name(plugin.name).reads(extension, options):
            return plugin.name
    return None


def refuse_view(name: str, view: View) -> ConfigurationError:
    """Return the error of a format that cannot hold *view*."""
    words = {View.RECORD: "whole records", View.KEY: "keys", View.HEADERS: "headers"}
    return ConfigurationError(
        f"the {name} format cannot hold {words.get(view, 'values')}",
        do="choose another format, such as format.class=parquet for whole records",
    )
