"""What transforms make of records whose keys and values are converted."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from kbackup.columns import Column
from kbackup.flow.rows import BadRecord
from kbackup.flow.stretches import by_row, sliced, stages_of, stretches
from kbackup.naming import OFFSET_MAX, View
from kbackup.records import TopicPartition
from kbackup.transforms.chain import Chain
from kbackup.transforms.data import Records


@dataclass(frozen=True, slots=True)
class Transformed:
    """What a chain of transforms has made of some records.

    Attributes:
        records: Those that are left, under the same schemas.
        bad: Those that could not be converted or changed, offsets rising.
        filtered: Offsets of those that a transform has left out, rising.
    """

    records: Records
    bad: tuple[BadRecord, ...] = ()
    filtered: tuple[int, ...] = ()


def transformed(
    batch: pa.RecordBatch,
    columns: Mapping[View, Sequence[Column]],
    chain: Chain,
    where: TopicPartition,
) -> Iterator[Transformed]:
    """Apply *chain* to records.

    Args:
        batch: ``records.SCHEMA``, offsets rising.
        columns: Keys and values as converters gave them, a column for each run of a schema; those
            that are not converted are missing.
        chain: What to apply.
        where: Where the records come from.

    Yields:
        At least once; each record of *batch* is among the records, the bad ones or those left out.
    """
    for records, unconverted in _convertible(batch, columns, where):
        found = chain(records)
        refused = (
            BadRecord(offset, why.what, why.why, why.do, "TRANSFORMATION", why.by)
            for run in found
            for offset, why in run.refused
        )
        bad = sorted((*unconverted, *refused), key=lambda at: at.offset)
        gone = sorted(offset for run in found for offset in run.left_out)
        runs = [run for run in found if len(run)] or found[:1]
        for run, after in itertools.zip_longest(runs, runs[1:]):
            end = OFFSET_MAX if after is None else after.batch["offset"][0].as_py()
            mine = tuple(each for each in bad if each.offset < end)
            filtered = tuple(at for at in gone if at < end)
            bad, gone = bad[len(mine) :], gone[len(filtered) :]
            yield Transformed(run, mine, filtered)


def _convertible(
    batch: pa.RecordBatch, columns: Mapping[View, Sequence[Column]], where: TopicPartition
) -> Iterator[tuple[Records, list[BadRecord]]]:
    """Yield what could be converted, and what not, a run of the same schemas at a time.

    Headers are left alone: whether a file can hold them is seen once they are what they will be.
    """
    converted = {view: columns[view] for view in (View.KEY, View.VALUE) if view in columns}
    bad, stages = by_row([*converted.values()]), stages_of(converted)
    for start, end in stretches([*converted.values()], len(batch)):
        some = {view: sliced(runs, start, end) for view, runs in converted.items()}
        part = batch.slice(start, end - start)
        records = Records.of(
            part, where.topic, where.partition, some.get(View.KEY), some.get(View.VALUE)
        )
        wrong = {row - start: found for row, found in sorted(bad.items()) if start <= row < end}
        rows = pa.array((row for row in range(len(part)) if row not in wrong), pa.int64())
        named = [
            BadRecord(
                part["offset"][row].as_py(), found.what, found.why, found.do,
                stages.get(start + row, "TASK_PUT"),
            )
            for row, found in wrong.items()
        ]  # fmt: skip
        yield records.take(rows) if wrong else records, named
