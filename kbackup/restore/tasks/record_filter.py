"""Leave out of a batch what is not to be written, and keep what could not be read.

What cannot be written ends the partition or is left out, as ``behavior.on.error`` says.

A record that can be read, but not be changed or converted as it is to be written, is written there
as it was.  Of anything else the topic gets what is wrong, as JSON.  Both have headers that say what
it is about.  Records there are dead letters: acknowledged before the position after them.

Rows carry no offsets: a restore counts those that it has written, and passes over as many.  That is
right only if they are still the same.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kbackup.catalog.listing import FileSet
from kbackup.connect.registry.framing import renumbered
from kbackup.errors import BadRecordError, Failure, KbackupError, RefusedError, counted, form
from kbackup.records import (
    HEADER,
    NO_TIMESTAMP,
    SCHEMA,
    TopicPartition,
    record_bytes,
    record_bytes_bound,
)
from kbackup.restore.job import RestoreJob, RestoreUnit
from kbackup.restore.tasks.transforming import Transforming
from kbackup.runs.dead_letters import CONTEXT, with_headers
from kbackup.runs.position import Cursor


def with_offset(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Return records of ``records.SCHEMA`` with one more header each, the last one.

    Args:
        batch: Records with the offsets that they were backed up with.
        name: The header's; its value is the offset as decimal digits.
    """
    headers, count = batch["headers"], len(batch)
    there = headers.flatten()  # of these rows only, where the batch is a slice
    digits = batch["offset"].cast(pa.string()).cast(pa.binary())
    new = pa.StructArray.from_arrays([pa.repeat(name, count), digits], fields=list(HEADER)).cast(
        HEADER
    )
    rows = pa.concat_arrays([pc.list_parent_indices(headers), pa.array(range(count), pa.int64())])
    order = pc.sort_indices(rows)  # which is stable: the new one comes after those of its row
    values = pa.concat_arrays([there, new]).take(order)
    lengths = pc.add(pc.list_value_length(headers), pa.scalar(1, pa.int32()))
    bounds = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    field = SCHEMA.field("headers")
    column = pa.ListArray.from_arrays(bounds, values, type=field.type)
    return batch.set_column(batch.schema.get_field_index("headers"), field, column)


class Count(Protocol):
    """Adds to the counts of `kbackup.runs.position.Done`."""

    def __call__(self, **more: int) -> None:
        """Add *more*, by name."""
        ...


class RecordFilter:
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

    def apply(
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
        strange = pa.nulls(len(batch), pa.bool_())
        for part, ids in self._job.schema_ids.get(self._unit.source.topic, {}).items():
            column, others = renumbered(batch[part], ids)
            if others is not None:
                strange = pc.or_kleene(strange, others)
            if column is not batch[part]:
                at = batch.schema.get_field_index(part)
                batch = batch.set_column(at, batch.schema.field(at), column)
        if strange.null_count < len(strange):
            self._count(strange_schemas=pc.sum(strange, min_count=0).as_py())
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


def malformed_records(
    failure: Failure, where: TopicPartition, records: pa.RecordBatch | None
) -> pa.RecordBatch:
    """Return what to write to the topic, ``records.SCHEMA``.

    Args:
        failure: What is left out, and why.
        where: Its partition in the backup.
        records: The records themselves; None where they cannot be read.
    """
    context = list(_context(failure, where))
    if records is not None:
        return with_headers(records, [context] * len(records))
    key = failure.place.get("key")
    row: dict[str, Any] = {
        "offset": 0, "timestamp": NO_TIMESTAMP, "timestamp_type": 0,
        "key": None if key is None else str(key).encode(),
        "value": orjson.dumps(failure.to_dict()), "headers": context,
    }  # fmt: skip
    return pa.RecordBatch.from_pylist([row], SCHEMA)


def _context(failure: Failure, where: TopicPartition) -> Iterator[dict[str, Any]]:
    facts: Sequence[tuple[str, object]] = (
        ("topic", where.topic),
        ("partition", where.partition),
        ("offset", failure.place.get("offset")),
        ("object", failure.place.get("key")),
        ("exception.message", ": ".join(filter(None, (failure.what, failure.why)))),
    )
    for name, fact in facts:
        if fact is not None:
            yield {"key": CONTEXT + name, "value": str(fact).encode()}


_DO = "restore into a new topic with --rename"


class ResumedValues:
    """What has been read of one value set, compared with what an earlier run had read.

    A set that a sink has named is only as long as its records, so its length is compared.  Objects
    of any name may be replaced by anyone, so their rows are, by a digest.

    Args:
        files: The set.
        place: Where the restore stands in it: its rows that are done, and their digest.
    """

    def __init__(self, files: FileSet, place: Cursor) -> None:
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
