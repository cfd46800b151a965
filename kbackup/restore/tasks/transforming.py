"""Transforms on the way back: records as a consumer would read them, changed, and written again.

Keys and values are bytes here, whatever the backup holds them as.  Those that a transform changes
go through their converter and back, so that the copy is in the form of the original.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import converters
from kbackup.converters import Converter
from kbackup.errors import ConfigurationError, IllegalTopicNameError
from kbackup.naming import View, check_topic
from kbackup.pipeline.convert import Transformed, transformed
from kbackup.pipeline.rows import BadRecord, by_row
from kbackup.pipeline.views import COLUMNS, ReadOptions
from kbackup.records import Column, TopicPartition
from kbackup.restore.job import RestoreJob, RestoreUnit
from kbackup.runs.selection import is_internal
from kbackup.transforms.chain import Chain
from kbackup.transforms.data import Records

_VIEWS: Final = {View.KEY: "key", View.VALUE: "value"}


@dataclass(frozen=True, slots=True)
class Changed:
    """What transforms have made of some records.

    Attributes:
        batch: ``records.SCHEMA``: those that are to be written.
        bad: Those that could not be converted or changed, offsets rising.
        filtered: How many a transform has left out.
    """

    batch: pa.RecordBatch
    bad: tuple[BadRecord, ...] = ()
    filtered: int = 0


@dataclass(frozen=True, slots=True)
class Routed:
    """Which topics transforms have chosen for some records.

    Attributes:
        runs: Timestamps, offsets and topics, a row of each for a record.
        bad: The records that could not be converted or changed.
    """

    runs: tuple[tuple[pa.Int64Array, pa.Int64Array, pa.StringArray], ...]
    bad: tuple[BadRecord, ...] = ()


class Transforming:
    """The transforms of a restore, for the records of one partition.

    Args:
        job: The run's settings.
        unit: The partition.

    Raises:
        ConfigurationError: If a converter is missing.
    """

    def __init__(self, job: RestoreJob, unit: RestoreUnit) -> None:
        seen = unit.target.topic if job.is_renamed else unit.source.topic
        seen = unit.routed_from or seen
        self._where = TopicPartition(seen, unit.source.partition)
        self._unit = unit
        self._chain = Chain(job.transforms)
        # where such a record ends the restore, the plan names the topic with all others
        self._drops_misnamed = unit.routed_from is not None and job.on_error != "fail"
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

    def __call__(self, batch: pa.RecordBatch) -> Changed:
        """Return what becomes of *batch*.

        Raises:
            RegistryError: If a registry that a converter asks does not answer.
        """
        made, bad, filtered = list[pa.RecordBatch](), list[BadRecord](), 0
        for each in self._transformed(batch):
            fit, unfit = written(self._own(each.records), self._written)
            made.append(fit)
            bad += unfit
            if self._unit.counts_rest:
                bad += each.bad
                filtered += len(each.filtered)
        whole = pa.Table.from_batches(made, batch.schema).combine_chunks().to_batches()
        return Changed(
            whole[0] if whole else batch.slice(0, 0),
            tuple(sorted(bad, key=lambda at: at.offset)),
            filtered,
        )

    def routed(self, batch: pa.RecordBatch) -> Routed:
        """Return which topics are chosen for *batch*; nothing is converted back.

        Raises:
            RegistryError: As `__call__` raises it.
        """
        found = list(self._transformed(batch))
        runs = tuple(
            (each.records.batch["timestamp"], each.records.batch["offset"],
             each.records.topics.cast(pa.string()))
            for each in found
        )  # fmt: skip
        return Routed(runs, tuple(one for each in found for one in each.bad))

    def _transformed(self, batch: pa.RecordBatch) -> Iterator[Transformed]:
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
                offset, f"its topic would be {name!r}", why[name],
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

    def _own(self, records: Records) -> Records:
        """Return the records that go to the unit's target."""
        if self._unit.routed_from is None:
            return records
        is_own = pc.equal(records.topics.dictionary, self._unit.target.topic)
        return records.only(is_own.take(records.topics.indices))


def written(
    records: Records, by_view: Mapping[View, Converter]
) -> tuple[pa.RecordBatch, tuple[BadRecord, ...]]:
    """Return *records* with keys and values as bytes again, and those that have no such bytes.

    Args:
        records: What transforms have left.
        by_view: The converter of each side that has been converted.

    Returns:
        ``records.SCHEMA`` without the bad records; these by rising offset, each once.
    """
    batch, made = records.batch, list[Column]()
    for view, converter in by_view.items():
        found = records.side(_VIEWS[view]).column()
        schema = () if found.schema is None else (found.schema,)
        column = converter.encode(found.values, *schema)
        at = batch.schema.get_field_index(COLUMNS[view])
        batch = batch.set_column(at, batch.schema.field(at), column.values)
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
