"""Extension point: records to records: Kafka Connect's single message transforms, on columns.

Owns Kafka's transforms and predicates.  It never converts keys or values from bytes or to bytes:
others do, before a transform and after it.  It asks no server.

A `Chain` applies them one after the other, each to the records that match its predicate.

A new transform is a class in one of the files here that fits `Transform`, and one line under
``[project.entry-points."kbackup.transforms"]``; a predicate one under ``"kbackup.predicates"``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import plugins
from kbackup.records import Bad

if TYPE_CHECKING:  # what they are of imports this
    from collections.abc import Iterable, Mapping, Sequence

    from kbackup.options import Option
    from kbackup.plugins import Step
    from kbackup.transforms.data import Data, Records

KAFKA: Final = "org.apache.kafka.connect.transforms"
"""The package of Kafka's own transforms."""

KEY_OR_VALUE: Final = ("key", "value")
"""The sides of a transform of fields."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a transform or a predicate declares of itself.

    Attributes:
        class_names: Simple names of the Java classes that stand for it, without the ``$Key`` or
            ``$Value`` after them.
        java_package: The package of these classes; empty for a transform of no one else's.
        options: What follows ``transforms.ALIAS.``, or ``predicates.ALIAS.``, in a file.
        sides: The sides that Kafka has a class for: "key", "value", "header"; empty if the name
            has none.  A predicate has none, and nothing of what follows.
        reads: The sides that must be converted for it besides its own: "key", "value".
        chooses_topics: It may give the records of one topic different topics.
        reads_only: It changes neither keys nor values: a restore then writes them as they are
            stored, unless another transform changes them.
    """

    class_names: tuple[str, ...] = ()
    java_package: str = ""
    options: tuple[Option[Any], ...] = ()
    sides: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    chooses_topics: bool = False
    reads_only: bool = False


def of_kafka(
    name: str,
    *options: Option[Any],
    sides: tuple[str, ...] = KEY_OR_VALUE,
    reads: tuple[str, ...] = (),
    chooses_topics: bool = False,
) -> Traits:
    """Return the traits of Kafka's own transform *name*: see `Traits`."""
    return Traits((name,), KAFKA, options, sides, reads, chooses_topics)


class Transform(Protocol):
    """Changes records, or drops some."""

    traits: ClassVar[Traits]

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take what was given for its options; called once, first.

        Args:
            options: Values by name; those that were not given are absent.
            side: One of its ``sides``; empty where there are none.

        Raises:
            ConfigurationError: If they ask for what this transform cannot do; its
                ``place["property"]`` names the option.
        """
        ...

    def apply(self, records: Records) -> Records:
        """Return the transformed records.

        Offsets stay as they are, and in order.  A record that it cannot be applied to is refused
        (`Records.refuse`); a record that it drops is counted (`Records.left_out`).
        """
        ...


class Predicate(Protocol):
    """Says which records a transform is for."""

    traits: ClassVar[Traits]

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take what was given for its options; called once, first.

        Raises:
            ConfigurationError: As `Transform.configure` raises it.
        """
        ...

    def test(self, records: Records) -> pa.BooleanArray:
        """Return whether each record matches: a row for each, none null."""
        ...


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
    """A sequence of transforms, each opened anew.

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
