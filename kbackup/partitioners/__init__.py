"""SEAM: a batch to the encoded partition of each row."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from kbackup import plugins
from kbackup.connect.tables import Level, TableColumn
from kbackup.errors import ConfigurationError
from kbackup.records import TopicPartition


class Partitioner(Protocol):
    """Decides the directory of each record.

    A class with `class_names` and `encode` will do; what else it leaves out, it does not promise.

    A partitioner whose directories an SQL engine can find has a method ``levels``: see `levels`.

    Attributes:
        class_names: Simple names of the Java classes that stand for this partitioner.
        goes_by_time: Directories follow from the time of the records, so that files rotate by it
            in the connectors' layout too.
        no_directory: Why a row has none, and what to do about it; for rows that are null.
    """

    class_names: ClassVar[tuple[str, ...]]
    goes_by_time: ClassVar[bool]
    no_directory: ClassVar[tuple[str, str]]

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take what was given for its options; called once, first, where it declares any."""
        ...

    def only_directory(self, where: TopicPartition) -> str | None:
        """Return the directory of all records of *where*, None where it follows from a record."""
        ...

    def encode(self, where: TopicPartition, batch: pa.RecordBatch) -> pa.Array:
        """Return the encoded partition of each row.

        Args:
            where: The topic-partition of all rows.
            batch: ``records.SCHEMA``, with ``time``, the time of each row in ms as the timestamp
                extractor gives it, and, where values are converted, ``decoded``, each value as its
                file holds it.

        Returns:
            ``string``, or a dictionary of strings, one row per row of *batch*; null where a row
            has no directory, which makes it a bad record.  It depends on the records alone.
        """
        ...


def by_name(name: str, options: Mapping[str, Any] | None = None) -> Partitioner:
    """Return the partitioner registered as *name*, given its *options* if it declares any."""
    found: Partitioner = plugins.load("partitioners", name)()
    if options is not None and plugins.options("partitioners", name):
        found.configure(options)
    return found


def delimiter(options: Mapping[str, Any]) -> str:
    """Return what stands between two levels of directories."""
    return str(options.get("directory.delim", "/"))


def only_directory(partitioner: Partitioner, where: TopicPartition) -> str | None:
    """Return what *partitioner* says, None too where it does not say."""
    found = getattr(partitioner, "only_directory", None)
    return None if found is None else found(where)


def levels(
    partitioner: Partitioner,
    columns: Sequence[TableColumn],
    directories: Sequence[str],
    partitions: int,
) -> Sequence[Level] | None:
    """Return the levels of the directories of *partitioner*, outermost first.

    Args:
        partitioner: Configured; its method ``levels`` takes the other arguments.
        columns: The columns of the files: a level may have the type of a field.
        directories: Those that exist, with slashes, in order.
        partitions: The topic's number of partitions.

    Returns:
        None if it does not describe its directories.

    Raises:
        ConfigurationError: If no engine can find them.
    """
    found = getattr(partitioner, "levels", None)
    return None if found is None else found(columns, directories, partitions)


def beside(directory: str, where: TopicPartition, other: TopicPartition) -> str | None:
    """Return the directory of *other* under the partitioner that gave *where* its *directory*.

    None where no installed partitioner keeps all records of a partition in that directory.
    """
    for plugin in plugins.installed("partitioners"):
        try:
            partitioner = by_name(plugin.name)
        except ConfigurationError:
            continue  # it wants options, which no partitioner of one directory does
        if only_directory(partitioner, where) == directory:
            return only_directory(partitioner, other)
    return None
