"""Which records of a batch are written: those asked for, as the transforms leave them, if they fit.

What cannot be written ends the partition or is left out, as ``behavior.on.error`` says.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.backup.file_sets import FileSet
from kbackup.errors import BadRecordError, KbackupError
from kbackup.plurals import counted, form
from kbackup.records import NO_TIMESTAMP, record_bytes, record_bytes_bound
from kbackup.registry.framing import renumbered
from kbackup.restore.job import RestoreJob, RestoreUnit
from kbackup.restore.tasks.offset_header import with_offset
from kbackup.restore.tasks.transforming import Transforming


class Count(Protocol):
    """Adds to the counts of `kbackup.reports.Done`."""

    def __call__(self, **more: int) -> None:
        """Add *more*, by name."""
        ...


class Sieve:
    """Sifts the records of one partition.

    Args:
        job: The run's settings.
        unit: The partition.
        count: Takes how many records are left out.
        skip: Takes the error of each that the report names, and the records if they can be written.

    Raises:
        ConfigurationError: If a transform needs a converter, and none is given.
    """

    def __init__(
        self,
        job: RestoreJob,
        unit: RestoreUnit,
        count: Count,
        skip: Callable[[KbackupError, pa.RecordBatch | None], None],
    ) -> None:
        self._job, self._unit = job, unit
        self._count, self._skip = count, skip
        self._transforming = Transforming(job, unit) if job.transforms else None

    def sift(
        self, batch: pa.RecordBatch, files: Sequence[FileSet], target_max: int
    ) -> pa.RecordBatch:
        """Return what of *batch* is written.

        Args:
            batch: ``records.SCHEMA``.
            files: The sets it comes from.
            target_max: Size in bytes of the largest record that the target takes.

        Raises:
            BadRecordError: If a record cannot be written, and that ends the partition.
            RegistryError: If a registry that a converter asks does not answer.
        """
        batch = self._asked(batch)
        if files[0].is_whole:
            batch = self._renumbered(batch)
        batch = self._changed(batch)
        if self._job.offset_header is not None and len(batch):
            batch = with_offset(batch, self._job.offset_header)
        return self._without_giants(batch, files, target_max)

    def _asked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records that are asked for, and count those of which that cannot be said."""
        window = self._unit.window
        if window.is_everything:
            return batch
        if window.has_times:
            untimed = batch.filter(pc.equal(batch["timestamp"], NO_TIMESTAMP))
            if len(untimed) and self._unit.counts_rest:
                self._count(bad_records=len(untimed))
                self._skip(
                    BadRecordError(
                        f"{self._unit.source}: {counted(len(untimed), 'record')} from offset "
                        f"{untimed['offset'][0].as_py()} on {form(len(untimed), 'has', 'have')} "
                        "no timestamp",
                        "--from-time and --to-time cannot place them: they are left out",
                    ),
                    None,
                )
        return window.rows(batch)

    def _renumbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Give keys and values the ids that their schemas have in the target's registry."""
        for part, ids in self._job.schema_ids.get(self._unit.source.topic, {}).items():
            column, others = renumbered(batch[part], ids)
            self._count(strange_schemas=others)
            if column is not batch[part]:
                at = batch.schema.get_field_index(part)
                batch = batch.set_column(at, batch.schema.field(at), column)
        return batch

    def _changed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Apply the transforms, without the records that they cannot take."""
        if self._transforming is None or not len(batch):
            return batch
        found = self._transforming(batch)
        if found.bad:
            errors = [each.error(self._unit.source) for each in found.bad]
            if self._job.on_error == "fail":
                raise errors[0]
            self._count(bad_records=len(errors))
            named = pa.array([one.offset for one in found.bad], pa.int64())
            rows = pc.index_in(named, batch["offset"]).to_pylist()
            for row, error in zip(rows, errors, strict=True):
                self._skip(error, batch.slice(row, 1))
        self._count(filtered=found.filtered)
        return found.batch

    def _without_giants(
        self, batch: pa.RecordBatch, files: Sequence[FileSet], target_max: int
    ) -> pa.RecordBatch:
        """Leave out the records that the target cannot take."""
        limit = min(self._job.max_record_bytes, target_max)
        if record_bytes_bound(batch) <= limit:
            return batch
        sizes = record_bytes(batch)
        is_giant = pc.greater(sizes, limit)
        if not pc.any(is_giant).as_py():
            return batch
        among = files[0].id if len(files) == 1 else f"{len(files)} objects"
        offsets = batch["offset"].filter(is_giant).to_pylist()
        for offset, size in zip(offsets, sizes.filter(is_giant).to_pylist(), strict=True):
            error = BadRecordError(
                f"{self._unit.source} offset {offset} in {among}",
                f"a record of {size} bytes; the limit is {limit}",
                f"raise max.message.bytes of {self._unit.target.topic}, or --max-record-bytes",
                offset=offset,
            )
            if self._job.on_error == "fail":
                raise error
            self._skip(error, None)
        self._count(bad_records=len(offsets))
        return batch.filter(pc.invert(is_giant))
