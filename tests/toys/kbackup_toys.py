"""A third party's partitioners: found by their entry points, like anybody's."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from kbackup_toys_options import DIRECTORIES

from kbackup.connect.tables import Level, TableColumn, number
from kbackup.partitioners import Traits
from kbackup.records import TopicPartition


class Modulo:
    """The directory follows from the offset."""

    traits: ClassVar = Traits(("Modulo",), goes_by_time=False)

    def __init__(self, directories: int = 3) -> None:
        self.directories = directories

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take the number."""
        self.directories = DIRECTORIES.of(options)

    def encode(self, _where: TopicPartition, batch: pa.RecordBatch) -> pa.Array:
        """Return ``rest=0``, ``rest=1`` ..."""
        rest = [offset % self.directories for offset in batch["offset"].to_pylist()]
        names = [f"rest={at}" for at in range(self.directories)]
        return pa.DictionaryArray.from_arrays(pa.array(rest, pa.int32()), names)

    def levels(
        self, _columns: Sequence[TableColumn], _directories: Sequence[str], _partitions: int
    ) -> tuple[Level, ...]:
        """Return the rest as a number."""
        return (number("rest", 0, self.directories - 1),)


class ByValue:
    """The directory is the first byte of the value, so that nobody knows how many there are."""

    traits: ClassVar = Traits(("ByValue",), goes_by_time=False)

    def encode(self, _where: TopicPartition, batch: pa.RecordBatch) -> pa.Array:
        """Return ``value=61`` and so on, ``value=null`` for a tombstone."""
        found = [
            f"value={'null' if each is None else each[:1].hex()}"
            for each in batch["value"].to_pylist()
        ]
        return pa.array(found, pa.string())
