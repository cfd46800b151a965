"""A third party's plugins: found by their entry points, like anybody's."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar

import pyarrow as pa
from kbackup_toys_options import DIRECTORIES, WIDTH

from kbackup import formats
from kbackup.connect.tables import Level, TableColumn, number
from kbackup.formats import FileFormat, FormatOptions, all_rows, corrupt
from kbackup.naming import View
from kbackup.partitioners import Traits
from kbackup.records import Bad, Kind, Schema, TopicPartition


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


class FixedFormat(FileFormat):
    """Values of one length, one after the other: only its option says where each begins."""

    name: ClassVar = "fixed"
    ending: ClassVar = ".fixed"
    traits: ClassVar = formats.Traits(
        views=frozenset({View.VALUE}),
        takes=frozenset({Kind.BYTES}),
        options=(WIDTH,),
        assumed={View.VALUE: "bytes"},
        keeps=frozenset({WIDTH.name}),
    )

    def refuses(self, _view: View, values: pa.Array, options: FormatOptions) -> Sequence[Bad]:
        """Refuse what has another length."""
        width = WIDTH.of(options.values)
        if width is None:
            return all_rows(values, f"{WIDTH.name} is not set")
        others = [row for row, each in enumerate(values.to_pylist()) if len(each or b"") != width]
        return [Bad(row, f"a value does not have {width} bytes") for row in others]

    def _writer(
        self, file: BinaryIO, _view: View, _options: FormatOptions, _schema: Schema | None
    ) -> "FixedWriter":
        return FixedWriter(file)

    def _read(
        self, file: BinaryIO, _view: View, _extension: str, options: FormatOptions
    ) -> Iterator[pa.RecordBatch]:
        width = WIDTH.of(options.values)
        if width is None:
            raise WIDTH.refusal("it is not set")
        found = 0
        while piece := file.read(1000 * width):
            if len(piece) % width:
                raise corrupt("the file is cut short", f"its values have {width} bytes")
            rows = [piece[at : at + width] for at in range(0, len(piece), width)]
            yield pa.record_batch([pa.array(rows, pa.binary())], ["value"])
            found += len(rows)
        if not found:
            raise corrupt("the file is empty", "")


class FixedWriter:
    """A file of values of one length being written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        """Add values."""
        self._file.write(b"".join(batch["value"].to_pylist()))

    def close(self, metadata: Mapping[str, str]) -> None:
        """End; it has no room for metadata."""
