"""Transforms on the way back: records as a consumer would read them, changed, and written again.

Keys and values are bytes here, whatever the backup holds them as.  Those that a transform reads
go through their converter and back, so that the copy is in the form of the original.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kbackup import converters
from kbackup.converters import Converter
from kbackup.errors import BadRecordError, ConfigurationError
from kbackup.flow.rows import BadRecord
from kbackup.flow.transform import transformed
from kbackup.flow.views import COLUMNS, ReadOptions
from kbackup.naming import View
from kbackup.records import TopicPartition
from kbackup.restore.job import RestoreJob, RestoreUnit
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


class Transforming:
    """The transforms of a restore, for the records of one partition.

    Args:
        job: The run's settings.
        unit: The partition.

    Raises:
        ConfigurationError: If a converter is missing.
    """

    def __init__(self, job: RestoreJob, unit: RestoreUnit) -> None:
        self._where = TopicPartition(
            unit.target.topic if job.is_renamed else unit.source.topic, unit.source.partition
        )
        self._chain = Chain(job.transforms)
        reads = frozenset(side for step in job.transforms for side in step.reads)
        self._converters = {
            view: _converter(job.reading, view, unit.target.topic)
            for view, side in _VIEWS.items()
            if side in reads
        }

    def __call__(self, batch: pa.RecordBatch) -> Changed:
        """Return what becomes of *batch*.

        Raises:
            RegistryError: If a registry that a converter asks does not answer.
        """
        columns = {
            view: converter.decode(batch[COLUMNS[view]])
            for view, converter in self._converters.items()
        }
        made, bad, filtered = list[pa.RecordBatch](), list[BadRecord](), 0
        for each in transformed(batch, columns, self._chain, self._where):
            written, wrong = self._written(each.records)
            made += written
            bad += [*each.bad, *wrong]
            filtered += len(each.filtered)
        whole = pa.Table.from_batches(made, batch.schema).combine_chunks().to_batches()
        return Changed(
            whole[0] if whole else batch.slice(0, 0),
            tuple(sorted(bad, key=lambda at: at.offset)),
            filtered,
        )

    def _written(self, records: Records) -> tuple[list[pa.RecordBatch], list[BadRecord]]:
        """Return records with their keys and values as bytes, and those that have none.

        A converter names the first row that it cannot write: what is before it is written, and
        what is after it is tried by itself.
        """
        made: list[pa.RecordBatch] = []
        bad: list[BadRecord] = []
        left = [records]
        while left:
            each = left.pop()
            try:
                made.append(self._encoded(each))
            except BadRecordError as error:
                offset = each.batch["offset"][error.row].as_py()
                bad.append(BadRecord(offset, error.what, error.why, error.do))
                if error.row + 1 < len(each):
                    left.append(_part(each, error.row + 1, len(each)))
                if error.row:
                    left.append(_part(each, 0, error.row))
        return made, bad

    def _encoded(self, records: Records) -> pa.RecordBatch:
        batch = records.batch
        for view, converter in self._converters.items():
            found = records.side(_VIEWS[view]).column()
            given = () if found.schema is None else (found.schema,)
            column = converter.encode(found.values, *given).cast(pa.binary())
            at = batch.schema.get_field_index(COLUMNS[view])
            batch = batch.set_column(at, batch.schema.field(at), column)
        return batch


def _part(records: Records, start: int, end: int) -> Records:
    return records.take(pa.array(range(start, end), pa.int64()))


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
