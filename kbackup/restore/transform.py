"""Turn stored records into those that are written, and leave out what cannot be.

What cannot be written ends the partition or is left out, as ``behavior.on.error`` says.  A record
that can be read, but not be changed or converted as it is to be written, becomes a dead letter as
it was; of anything else the topic for those gets what is wrong, as JSON.  Both have headers that
say what it is about.  Dead letters are acknowledged before the position after them.

Keys and values are bytes here, whatever the backup holds them as.  Those that a transform changes
go through their converter and back, so that the copy is in the form of the original.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kbackup import converters
from kbackup.catalog.listing import FileSet
from kbackup.connect.registry.framing import renumbered
from kbackup.converters import Converter
from kbackup.errors import (
    BadRecordError,
    ConfigurationError,
    IllegalTopicNameError,
    Issue,
    KbackupError,
    counted,
    form,
)
from kbackup.events import to_json
from kbackup.formats import COLUMNS
from kbackup.naming import View, check_topic
from kbackup.naming.renaming import is_internal
from kbackup.pipeline.convert import Transformed, transformed
from kbackup.pipeline.rows import BadRecord, by_row
from kbackup.pipeline.views import ReadOptions
from kbackup.records import (
    HEADER,
    NO_TIMESTAMP,
    SCHEMA,
    Column,
    TopicPartition,
    record_bytes,
    record_bytes_bound,
    replaced,
)
from kbackup.restore.job import RestoreJob, RestoreUnit
from kbackup.runs.dead_letters import CONTEXT, with_headers
from kbackup.transforms import Chain
from kbackup.transforms.data import Records

_VIEWS: Final = {View.KEY: "key", View.VALUE: "value"}


class Transforming:
    """The transforms of a restore, for the records of one partition."""

    def __init__(self, job: RestoreJob, unit: RestoreUnit) -> None:
        seen = unit.target.topic if job.is_renamed else unit.source.topic
        if unit.route is not None:
            seen = unit.route.topic
        self._where = TopicPartition(seen, unit.source.partition)
        self._unit = unit
        self._chain = Chain(job.transforms)
        # where such a record ends the restore, the plan names the topic with all others
        self._drops_misnamed = unit.route is not None and job.on_error != "fail"
        reads = frozenset(side for step in job.transforms for side in step.reads)
        changes = frozenset(side for step in job.transforms for side in step.changes)
        self._converters = {
            view: _converter(job.reading, view, unit.target.topic)
            for view, side in _VIEWS.items()
            if side in reads
        }
        # what no transform changes is written as it is, and not as its converter would write it
        self._written = {
            view: each for view, each in self._converters.items() if _VIEWS[view] in changes
        }

    def transformed(self, batch: pa.RecordBatch) -> Iterator[Transformed]:
        """Yield what becomes of *batch*; nothing is converted back, nor left to another topic."""
        columns = {
            view: converter.decode(batch[COLUMNS[view]])
            for view, converter in self._converters.items()
        }
        found = transformed(batch, columns, self._chain, self._where)
        return map(self._named, found) if self._drops_misnamed else found

    def _named(self, found: Transformed) -> Transformed:
        """Return the records whose topics Kafka allows; the others are bad."""
        topics = found.records.topics
        source = self._unit.source.topic
        why = {name: _why_not(name, source) for name in topics.dictionary.to_pylist()}
        if not any(why.values()):
            return found
        names = topics.to_pylist()
        bad = [
            BadRecord(
                offset, "its topic cannot be written to", f"it would be {name!r}: {why[name]}",
                "correct the transform or the record", "TRANSFORMATION",
            )
            for offset, name in zip(found.records.batch["offset"].to_pylist(), names, strict=True)
            if why[name]
        ]  # fmt: skip
        kept = pa.array([not why[name] for name in names], pa.bool_())
        return replace(
            found,
            records=found.records.only(kept),
            bad=tuple(sorted((*found.bad, *bad), key=lambda at: at.offset)),
        )

    def written(self, records: Records) -> tuple[pa.RecordBatch, tuple[BadRecord, ...]]:
        """Return the records that go to the unit's target, as `written` does."""
        if self._unit.route is not None:
            is_own = pc.equal(records.topics.dictionary, self._unit.target.topic)
            records = records.only(is_own.take(records.topics.indices))
        return written(records, self._written)


def written(
    records: Records, by_view: Mapping[View, Converter]
) -> tuple[pa.RecordBatch, tuple[BadRecord, ...]]:
    """Return *records* with keys and values as bytes, ``records.SCHEMA``, and those without any.

    These are given by rising offset, each once; *by_view* has the converters of what was converted.
    """
    batch, made = records.batch, list[Column]()
    for view, converter in by_view.items():
        found = records.side(_VIEWS[view]).column()
        schema = () if found.schema is None else (found.schema,)
        column = converter.encode(found.values, *schema)
        batch = replaced(batch, COLUMNS[view], column.values)
        made.append(column)
    wrong = by_row([[column] for column in made])
    if not wrong:
        return batch, ()
    offsets = batch["offset"].to_pylist()
    bad = tuple(
        BadRecord(offsets[row], each.what, each.why, each.do) for row, each in sorted(wrong.items())
    )
    rows = pa.array([row for row in range(len(batch)) if row not in wrong], pa.int64())
    return batch.take(rows), bad


def _why_not(topic: str, source: str) -> str:
    """Return why records that choose *topic* are not written; empty if they are."""
    try:
        check_topic(topic)
    except IllegalTopicNameError as error:
        return error.why
    if is_internal(topic) and topic != source:
        return "Kafka or one of its services keeps its own state there"
    return ""


def _converter(reading: ReadOptions, view: View, topic: str) -> Converter:
    side = _VIEWS[view]
    name = reading.key_converter if view is View.KEY else reading.value_converter
    if name is None:
        raise ConfigurationError(
            f"a transform changes the {side}, and no converter is set to read it",
            f"{side}.converter is not set", "set it to the one that fits what producers wrote",
            property=f"{side}.converter",
        )  # fmt: skip
    return converters.by_name(name, reading.properties.get(view), topic=topic, part=side)


def with_offset(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Return records with one more header each, the last one: the offset in digits."""
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
    column = pa.ListArray.from_arrays(bounds, values, type=SCHEMA.field("headers").type)
    return replaced(batch, "headers", column)


@dataclass(slots=True)
class Filtered:
    """What of some records is written, and what is not.

    Attributes:
        batch: ``records.SCHEMA``: those that are written.
        counts: What is left out or altered, by the names of `kbackup.runs.position.Done`.
        left: The error of each that a report names, and the records if they can be written.
        error: What ends the partition; None where it goes on.
    """

    batch: pa.RecordBatch
    counts: Counter[str] = field(default_factory=Counter)
    left: list[tuple[KbackupError, pa.RecordBatch | None]] = field(default_factory=list)
    error: KbackupError | None = None


class RecordFilter:
    """Chooses, transforms and checks the records of one partition."""

    def __init__(self, job: RestoreJob, unit: RestoreUnit) -> None:
        self._job, self._unit = job, unit
        self._fails = job.on_error == "fail"
        self._transforming = Transforming(job, unit) if job.transforms else None

    def apply(self, batch: pa.RecordBatch, files: Sequence[FileSet], target_max: int) -> Filtered:
        """Return what of *batch*, ``records.SCHEMA``, is written, given the largest record."""
        found = Filtered(batch)
        self._choose(found)
        if files[0].is_whole:
            self._renumber(found)
        self._transform(found)
        if found.error is not None:
            return found
        if self._job.offset_header is not None and len(found.batch):
            found.batch = with_offset(found.batch, self._job.offset_header)
        self._limit(found, files, target_max)
        return found

    def _choose(self, found: Filtered) -> None:
        """Keep the records that are asked for; of those without a timestamp that cannot be said."""
        window, batch = self._unit.window, found.batch
        if window.is_everything:
            return
        found.batch = window.rows(batch)
        untimed = batch.filter(pc.equal(batch["timestamp"], NO_TIMESTAMP))
        if window.has_times and len(untimed) and self._unit.counts_rest:
            found.counts["bad_records"] += len(untimed)
            error = BadRecordError(
                f"{self._unit.source}: {counted(len(untimed), 'record')} from offset "
                f"{untimed['offset'][0].as_py()} on {form(len(untimed), 'has', 'have')} "
                "no timestamp",
                "--from-time and --to-time cannot place them: they are left out",
            )
            found.left.append((error, None))

    def _renumber(self, found: Filtered) -> None:
        """Give keys and values the ids that their schemas have in the target's registry."""
        batch = found.batch
        strange = pa.nulls(len(batch), pa.bool_())
        for part, ids in self._job.schema_ids.get(self._unit.source.topic, {}).items():
            column, others = renumbered(batch[part], ids)
            if others is not None:
                strange = pc.or_kleene(strange, others)
            if column is not batch[part]:
                batch = replaced(batch, part, column)
        found.batch = batch
        if strange.null_count < len(strange):
            found.counts["strange_schemas"] += pc.sum(strange, min_count=0).as_py()

    def _transform(self, found: Filtered) -> None:
        """Apply the transforms, without the records that they cannot take."""
        if self._transforming is None or not len(found.batch):
            return
        before, made, bad, filtered = found.batch, list[pa.RecordBatch](), list[BadRecord](), 0
        for each in self._transforming.transformed(before):
            fit, unfit = self._transforming.written(each.records)
            made.append(fit)
            bad += unfit
            if self._unit.counts_rest:
                bad += each.bad
                filtered += len(each.filtered)
        whole = pa.Table.from_batches(made, before.schema).combine_chunks().to_batches()
        found.batch = whole[0] if whole else before.slice(0, 0)
        bad.sort(key=lambda one: one.offset)
        is_secret = self._job.store.is_secret
        errors = [one.error(self._unit.source, is_secret=is_secret) for one in bad]
        if errors and self._fails:
            found.error = errors[0]
            return
        found.counts["filtered"] += filtered
        if errors:
            found.counts["bad_records"] += len(errors)
            named = pa.array([one.offset for one in bad], pa.int64())
            rows = pc.index_in(named, before["offset"]).to_pylist()
            slices = (before.slice(row, 1) for row in rows)
            found.left += zip(errors, slices, strict=True)

    def _limit(self, found: Filtered, files: Sequence[FileSet], target_max: int) -> None:
        """Leave out the records that the target cannot take."""
        batch = found.batch
        limit = min(self._job.max_record_bytes, target_max)
        if record_bytes_bound(batch) <= limit:
            return
        sizes = record_bytes(batch)
        is_giant = pc.greater(sizes, limit)
        if not pc.any(is_giant).as_py():
            return
        among = files[0].id if len(files) == 1 else f"{len(files)} objects"
        offsets = batch["offset"].filter(is_giant).to_pylist()
        errors: list[KbackupError] = [
            BadRecordError(
                f"{self._unit.source} offset {offset} in {among}",
                f"a record of {size} bytes; the limit is {limit}",
                f"raise max.message.bytes of {self._unit.target.topic}, or --max-record-bytes",
                offset=offset,
            )
            for offset, size in zip(offsets, sizes.filter(is_giant).to_pylist(), strict=True)
        ]
        if self._fails:
            found.error = errors[0]
            return
        found.counts["bad_records"] += len(errors)
        found.left += ((error, None) for error in errors)
        found.batch = batch.filter(pc.invert(is_giant))


def malformed_records(
    failure: Issue, where: TopicPartition, records: pa.RecordBatch | None
) -> pa.RecordBatch:
    """Return what to write to the topic, ``records.SCHEMA``; *records* are None if unreadable."""
    context = list(_context(failure, where))
    if records is not None:
        return with_headers(records, [context] * len(records))
    key = failure.place.get("key")
    row: dict[str, Any] = {
        "offset": failure.place.get("offset", -1), "timestamp": NO_TIMESTAMP, "timestamp_type": 0,
        "key": None if key is None else str(key).encode(),
        "value": orjson.dumps(to_json(failure)), "headers": context,
    }  # fmt: skip
    return pa.RecordBatch.from_pylist([row], SCHEMA)


def _context(failure: Issue, where: TopicPartition) -> Iterator[dict[str, Any]]:
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
