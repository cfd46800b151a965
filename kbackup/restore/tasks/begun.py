"""The rows of a value set that are done, recognized when a restore continues in the middle of it.

Rows carry no offsets: a restore counts those that it has written, and passes over as many.  That is
right only if they are still the same.
"""

import hashlib

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.backup.file_sets import FileSet
from kbackup.errors import RefusedError
from kbackup.plurals import counted, form
from kbackup.reports import Place

_DO = "restore into a new topic with --rename"


class Begun:
    """What has been read of one value set, compared with what an earlier run had read.

    A set that a sink has named is only as long as its records, so its length is compared.  Objects
    of any name may be replaced by anyone, so their rows are, by a digest.

    Args:
        files: The set.
        place: Where the restore stands in it: its rows that are done, and their digest.
    """

    def __init__(self, files: FileSet, place: Place) -> None:
        self._files, self._done, self._expected = files, place.rows, place.content
        self._rows, self._is_compared = 0, not place.rows
        self._lengths, self._bytes = hashlib.sha256(), hashlib.sha256()

    def take(self, batch: pa.RecordBatch, end_row: int) -> str:
        """Take rows that were read; return the digest of all so far, empty for a sink's.

        Args:
            batch: ``records.SCHEMA``, what follows the rows taken before; of a sink's set, rows
                that nobody asked for may be left out between them.
            end_row: Rows of the set up to the end of *batch*.

        Raises:
            RefusedError: If they are others than those that were restored.
        """
        self._rows = end_row
        if not self._files.is_generic:
            return ""
        if not self._is_compared and self._done <= end_row:
            self._is_compared = True
            again = max(0, self._done - (end_row - len(batch)))
            self._add(batch.slice(0, again))
            if self._expected and self._digest() != self._expected:
                count = self._done
                first = "record" if count == 1 else f"{count} records"
                are = form(count, "is another", "are others")
                raise self._replaced(f"the first {first} in it {are}")
            batch = batch.slice(again)
        self._add(batch)
        return self._digest()

    def pass_over(self, end_row: int) -> bool:
        """Take rows that cannot be read, up to *end_row* of the set; return whether any is new."""
        self._rows = max(self._rows, end_row)
        return end_row > self._done

    def end(self) -> None:
        """Note that the set has no more rows.

        Raises:
            RefusedError: If it has fewer than were restored.
        """
        if self._rows < self._done:
            were = form(self._done, "was", "were")
            held = counted(self._rows, "record")
            raise self._replaced(f"it holds {held}, and {self._done} {were} restored")

    def _add(self, batch: pa.RecordBatch) -> None:
        for name in ("key", "value"):
            column = batch[name]
            lengths = pc.fill_null(pc.binary_length(column), -1)
            width = lengths.type.bit_width // 8
            held_in = lengths.buffers()[1].slice(lengths.offset * width, len(lengths) * width)
            self._lengths.update(held_in)
            held = column.drop_null()
            if len(held):
                rows = pa.ListArray.from_arrays(pa.array([0, len(held)], pa.int32()), held)
                self._bytes.update(pc.binary_join(rows, b"")[0].as_buffer())

    def _digest(self) -> str:
        both = self._lengths.digest() + self._bytes.digest()
        return hashlib.sha256(both).hexdigest()[:16]

    def _replaced(self, why: str) -> RefusedError:
        where = self._files.where
        return RefusedError(
            f"{self._files.id} was replaced after it was restored",
            why,
            _DO,
            topic=where.topic,
            partition=where.partition,
        )
