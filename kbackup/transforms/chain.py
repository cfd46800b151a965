"""A chain of transforms, each applied to the records that match its predicate."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import plugins
from kbackup.plugins import Step
from kbackup.records import Bad
from kbackup.transforms import Predicate, Transform
from kbackup.transforms.data import Data, Records


@dataclass(frozen=True, slots=True)
class _Link:
    step: Step
    transform: Transform
    predicate: Predicate | None

    @classmethod
    def of(cls, step: Step) -> Self:
        transform: Transform = plugins.load("transforms", step.plugin)()
        transform.configure(step.options, step.side)
        predicate: Predicate | None = None
        if step.condition is not None:
            predicate = plugins.load("predicates", step.condition.plugin)()
            predicate.configure(step.condition.options)
        return cls(step, transform, predicate)

    def apply(self, records: Records) -> list[Records]:
        if self.predicate is None or self.step.condition is None:
            return [self._applied(records)]
        mask = self.predicate.test(records)
        if self.step.condition.negate:
            mask = pc.invert(mask)
        if mask.true_count == 0:
            return [records]
        if mask.true_count == len(records):
            return [self._applied(records)]
        rest = replace(records.only(pc.invert(mask)), refused=(), left_out=())
        return _merged(self._applied(records.only(mask)), rest)

    def _applied(self, records: Records) -> Records:
        found = self.transform.apply(records)
        new = found.refused[len(records.refused) :]
        if not new:
            return found
        what = f"the transform {self.step.alias} cannot be applied to a record"
        do = f"correct the record, or give {self.step.alias} a predicate that leaves it alone"
        by = plugins.java_class("transforms", self.step.plugin, self.step.side)
        named = tuple((at, Bad(bad.row, what, bad.what, bad.do or do, by)) for at, bad in new)
        return replace(found, refused=(*records.refused, *named))


class Chain:
    """A sequence of transforms.

    Args:
        steps: The transforms; each is opened anew.

    Raises:
        ConfigurationError: If one cannot be configured like this.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._links = [_Link.of(step) for step in steps]

    def __call__(self, records: Records) -> list[Records]:
        """Return the transformed *records*: runs with the same schemas, offsets rising."""
        runs = [records]
        for link in self._links:
            runs = [each for run in runs for each in (link.apply(run) if len(run) else [run])]
        return runs


def _merged(some: Records, others: Records) -> list[Records]:
    """Return the records of both in offset order."""
    refused = (*some.refused, *others.refused)
    left_out = (*some.left_out, *others.left_out)
    some, others = (replace(each, refused=(), left_out=()) for each in (some, others))
    if not len(some) or not len(others):
        found = [some if len(some) else others]
    elif _are_alike(some, others):
        both = _joined([some, others])
        found = [both.take(pc.sort_indices(both.batch["offset"]))]
    else:
        found = list(_alternating(some, others))
    return [replace(found[0], refused=refused, left_out=left_out), *found[1:]]


def _are_alike(one: Records, other: Records) -> bool:
    return all(
        _kind(mine) == _kind(theirs)
        for mine, theirs in ((one.key, other.key), (one.value, other.value))
    )


def _kind(data: Data | None) -> object:
    return data and (data.values.type, data.schema, data.origin if data.schema is None else None)


def _joined(parts: Sequence[Records]) -> Records:
    def side(each: Iterable[Data | None]) -> Data | None:
        found = [data for data in each if data is not None]
        if not found:
            return None
        whole = pa.concat_arrays([data.values for data in found])
        origins = {data.origin for data in found}
        return replace(found[0], values=whole, origin=origins.pop() if len(origins) == 1 else None)

    topics = pa.concat_arrays([part.topics.cast(pa.string()) for part in parts])
    return replace(
        parts[0],
        batch=pa.Table.from_batches([part.batch for part in parts])
        .combine_chunks()
        .to_batches()[0],
        topics=topics.dictionary_encode(),
        key=side(part.key for part in parts),
        value=side(part.value for part in parts),
    )


def _alternating(some: Records, others: Records) -> Iterable[Records]:
    """Yield runs of either, by offset."""
    marked = sorted(
        [(offset, True, row) for row, offset in enumerate(some.batch["offset"].to_pylist())]
        + [(offset, False, row) for row, offset in enumerate(others.batch["offset"].to_pylist())]
    )
    for is_some, run in itertools.groupby(marked, key=lambda at: at[1]):
        rows = pa.array([row for _, _, row in run], pa.int64())
        yield (some if is_some else others).take(rows)
