"""Extension point: rows to the encoded partition of each.

Owns the directory of each record, and the time that it goes by.  It never builds a key, opens a
file or reads a clock: the present time is given to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

import pyarrow as pa

from kbackup import plugins
from kbackup.connect.tables import Level, TableColumn
from kbackup.options import Option, Unsupported
from kbackup.records import TopicPartition

EVERY_RECORD_HAS_ONE: Final = ("every record has one", "")
"""The `Traits.no_directory` of a partitioner that gives each record a directory."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a partitioner declares of itself.

    Attributes:
        class_names: Simple names of the Java classes that stand for this partitioner.
        options: Its options, as `kbackup.plugins` has them.
        goes_by_time: Directories follow from the time of the records, so that files rotate by it
            in the connectors' layout too.
        no_directory: Why a row has none, and what to do about it; for rows that are null.
    """

    class_names: tuple[str, ...] = ()
    options: tuple[Option[Any] | Unsupported, ...] = ()
    goes_by_time: bool = True
    no_directory: tuple[str, str] = ("its partitioner gives it none", "")


class Partitioner(Protocol):
    """Decides the directory of each record.

    What else it can do is a method of `kbackup.plugins.HasOnlyDirectory` or of
    `DescribesDirectories`.
    """

    traits: ClassVar[Traits]

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take what was given for its options; called once, first, where it declares any."""
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


@runtime_checkable
class DescribesDirectories(Protocol):
    """A partitioner whose directories an SQL engine can find."""

    def levels(
        self, columns: Sequence[TableColumn], directories: Sequence[str], partitions: int
    ) -> Sequence[Level]:
        """Return the levels of its directories, outermost first.

        Args:
            columns: The columns of the files: a level may have the type of a field.
            directories: Those that exist, with slashes, in order.
            partitions: The topic's number of partitions.

        Raises:
            ConfigurationError: If no engine can find them.
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
    """Return the directory of all records of *where*, None where it follows from a record."""
    if isinstance(partitioner, plugins.HasOnlyDirectory):
        return partitioner.only_directory(where)
    return None
