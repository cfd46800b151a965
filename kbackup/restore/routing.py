"""Which topics records go to where transforms choose one for each: read to find out.

Nothing is written.  So all topics are known, and pass the same checks as any other target, before
the first record is written to one of them.  What was read once is not read again to find that out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.catalog import merging
from kbackup.catalog.listing import frozen
from kbackup.catalog.merging import Failed, Skipped, StoredRows
from kbackup.config import Settings
from kbackup.errors import (
    BadRecordError,
    ConfigurationError,
    Issue,
    KbackupError,
    RefusedError,
    StoppedError,
)
from kbackup.naming.renaming import rename
from kbackup.records import NO_TIMESTAMP, Span, TopicPartition
from kbackup.restore.inventory import Inventory
from kbackup.restore.job import SKIPPED_MOST, RestoreJob, RestoreUnit, Route
from kbackup.restore.transform import Transforming
from kbackup.runs import wiring
from kbackup.runs.position import Cursor, Lane, RestorePosition, RestoreSource
from kbackup.spark.channel import Line
from kbackup.stores import Store, open_store


def to_survey(settings: Settings, inventory: Inventory, topics: Sequence[str]) -> list[RestoreUnit]:
    """Return all that is asked for, a unit a partition; nothing of it is to be written.

    Args:
        settings: The configuration.
        inventory: What it holds.
        topics: Of which topics.

    Raises:
        ConfigurationError: If schemas are to be registered: their subjects are not known yet.
    """
    if wiring.schema_registry(settings) is not None:
        raise ConfigurationError(
            "schemas cannot be registered where a transform chooses a topic for each record",
            "their subjects are named after topics, which are known once the records are read",
            "leave the Schema Registry out: records keep the ids of their schemas",
        )
    window, units = wiring.window(settings), list[RestoreUnit]()
    inventory.look_at(topics)
    for name in topics:
        wheres = inventory.wanted(name)
        chosen = {where: inventory.covered(where).sets for where in wheres}
        if not window.is_everything:
            chosen = {
                where: [files for files in sets if window.takes(files, inventory.facts(files))]
                for where, sets in chosen.items()
            }
        for where, sets in chosen.items():
            source = RestoreSource("", where, inventory.identity(where))
            position = RestorePosition(source, "", Cursor(0, 0))
            lane = Lane(TopicPartition(name, where.partition), Span(0, 0))
            route = Route(routed_from(settings, name))
            units.append(RestoreUnit(position, (lane,), tuple(sets), window=window, route=route))
    return units


def check_archived(store: Store, units: Iterable[RestoreUnit]) -> None:
    """Check that what is to be read can be read; units of one topic come together.

    Raises:
        RefusedError: If some of it is archived.
        StoreError: If the store does not answer.
    """
    for name, its in groupby(units, lambda unit: unit.source.topic):
        files = (file for unit in its for one in unit.sets for file in one.files)
        for refusal in frozen(store, files).refusals(name, name):
            raise refusal


def routed_from(settings: Settings, name: str) -> str:
    """Return the name of a topic that transforms see which choose a topic for each record.

    ``RegexRouter`` is one of them; ``--rename`` takes its place, and comes before them.
    """
    return name if settings.rename is None else rename(name, settings.renames)


TOPICS_MOST: Final = 10_000
"""Topics that the records of one may go to; more are a mistake, such as a topic for each order."""


@dataclass(frozen=True, slots=True)
class RoutedRecords:
    """The records of one partition of a backup that go to one topic.

    Attributes:
        records: How many.
        first: The offset of the first one.
        oldest: Their lowest timestamp, ms since the epoch; None where none has one.
        sets: The sets that hold them.
        counts_rest: What has no topic is counted with them.
    """

    records: int
    first: int
    oldest: int | None
    sets: frozenset[str]
    counts_rest: bool = False


NOTHING: Final = RoutedRecords(0, 0, None, frozenset())


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What reading one partition of a backup has shown: the report of a task.

    Attributes:
        where: The partition.
        shares: What goes to each topic.
        bad_records: Records that have no topic, where no record has one: else the writing tasks
            count them.
        bad_objects: Objects that cannot be read, likewise.
        skipped: What is wrong with the first of either.
        failure: What kept the task from finding out; None if nothing has.
    """

    where: TopicPartition
    shares: Mapping[str, RoutedRecords] = field(default_factory=dict)
    bad_records: int = 0
    bad_objects: int = 0
    skipped: tuple[Issue, ...] = ()
    failure: Issue | None = None


@dataclass(frozen=True, slots=True)
class Shares:
    """Where the records of a backup go.

    Attributes:
        found: By partition of the backup and topic.
    """

    found: Mapping[TopicPartition, Mapping[str, RoutedRecords]] = field(default_factory=dict)
    _by_target: dict[str, dict[str, list[RoutedRecords]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    _targets: dict[str, tuple[str, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        pairs = (
            (at.topic, target, share)
            for at, shares in self.found.items()
            for target, share in shares.items()
        )
        for topic, target, share in sorted(pairs, key=itemgetter(0, 1)):
            self._by_target.setdefault(topic, {}).setdefault(target, []).append(share)
        self._targets.update((topic, tuple(found)) for topic, found in self._by_target.items())

    @classmethod
    def of_reports(cls, reports: Iterable[Surveyed]) -> Self:
        """Return what tasks have found.

        Raises:
            RefusedError: If the records of one topic would go to more than `TOPICS_MOST`.
        """
        found = cls({report.where: with_home(report.shares) for report in reports})
        for topic in {where.topic for where in found.found}:
            check(topic, len(found.targets(topic)))
        return found

    def targets(self, topic: str) -> tuple[str, ...]:
        """Return the topics that records of *topic* go to, by name; the plan of each asks."""
        return self._targets.get(topic, ())

    def of(self, where: TopicPartition, target: str) -> RoutedRecords:
        """Return what goes from a partition to a topic; it may be nothing."""
        return self.found.get(where, {}).get(target, NOTHING)

    def of_target(self, topic: str, target: str) -> list[RoutedRecords]:
        """Return what goes from one topic to another, of all partitions."""
        return self._by_target.get(topic, {}).get(target, [])

    def oldest(self, topic: str, target: str) -> int | None:
        """Return the lowest timestamp of what goes from one topic to another."""
        times = [share.oldest for share in self.of_target(topic, target)]
        return min((time for time in times if time is not None), default=None)


def with_home(shares: Mapping[str, RoutedRecords]) -> dict[str, RoutedRecords]:
    """Return the shares of a partition, of which one counts what has no topic.

    It is the same one in every run: that of the first record that has a topic.
    """
    found = dict(shares)
    if found and not any(share.counts_rest for share in found.values()):
        home = min(found, key=lambda name: (found[name].first, name))
        found[home] = replace(found[home], counts_rest=True)
    return found


def added(before: RoutedRecords, more: RoutedRecords) -> RoutedRecords:
    """Return what goes to a topic from objects of which some were read before."""
    times = [time for time in (before.oldest, more.oldest) if time is not None]
    return RoutedRecords(
        before.records + more.records,
        min(before.first, more.first),
        min(times, default=None),
        before.sets | more.sets,
        before.counts_rest,
    )


def check(topic: str, count: int) -> None:
    """Refuse more than `TOPICS_MOST` topics for the records of one."""
    if count > TOPICS_MOST:
        raise RefusedError(
            f"the records of {topic} would go to more than {TOPICS_MOST} topics",
            "the transforms choose a topic by something that differs from record to record",
            "choose a field with fewer values, or a longer stretch of time",
            topic=topic,
        )


def survey(job: RestoreJob, units: Sequence[RestoreUnit], line: Line) -> Iterator[Surveyed]:
    """Read *units* and report where their records go; a failure is a report, not an exception.

    A record that has no topic is a bad record: the writing tasks count and name it, as
    ``behavior.on.error`` says, unless that is ``fail``.

    Memory: what `merging` reads with, and a number for each topic and object that holds some of it.
    """
    store = open_store(job.store)
    for unit in units:
        if line.is_stopped():
            return
        source = unit.source
        try:
            yield _Reading(job, unit).run(store, line)
        except KbackupError as error:
            error.place.setdefault("topic", source.topic)
            error.place.setdefault("partition", source.partition)
            yield Surveyed(source, failure=error.issue())


@dataclass(slots=True)
class _Found:
    records: int
    first: int
    oldest: int | None
    sets: set[str]


class _Reading:
    """One partition that is read."""

    def __init__(self, job: RestoreJob, unit: RestoreUnit) -> None:
        self._job, self._unit = job, unit
        self._transforming = Transforming(job, unit)
        self._found: dict[str, _Found] = {}
        self._skipped = list[Issue]()
        self._bad_records = self._bad_objects = 0

    def run(self, store: Store, line: Line) -> Surveyed:
        """Read it to its end.

        Raises:
            KbackupError: If it cannot be read, or a record has no topic, and that ends a restore.
            StoppedError: If asked to stop.
        """
        unit, job = self._unit, self._job
        steps = merging.steps(
            store, unit.sets, job.reads(unit.target.topic),
            identity=unit.position.source.identity, holds_values=True,
            wanted=unit.window.offset,
        )  # fmt: skip
        for step in steps:
            if line.is_stopped():
                raise StoppedError(f"{unit.source} stopped while its topics were looked for")
            match step:
                case StoredRows(batch, files):
                    self._take(unit.window.rows(batch), {one.part for one in files})
                case Skipped(_, lost):
                    if unit.window.offset.meets(lost.offset, lost.offset):
                        self._bad_records += lost.records
                        self._skip(lost.error.issue())
                case Failed(files, error, unread):
                    if job.on_error == "fail" or isinstance(error, RefusedError):
                        raise error
                    self._bad_objects += 1
                    self._bad_records += unread or 0
                    self._skip(unit.left(files, error, unread).issue())
        shares = {
            name: RoutedRecords(one.records, one.first, one.oldest, frozenset(one.sets))
            for name, one in self._found.items()
        }
        if shares:
            return Surveyed(unit.source, shares)
        # without a topic there is no writing task that would count them
        return Surveyed(unit.source, {}, self._bad_records, self._bad_objects, tuple(self._skipped))

    def _skip(self, failure: Issue) -> None:
        if not self._found and len(self._skipped) < SKIPPED_MOST:
            self._skipped.append(failure)

    def _take(self, batch: pa.RecordBatch, sets: set[str]) -> None:
        if not len(batch):
            return
        routed = self._transforming.routed(batch)
        if routed.bad and self._job.on_error == "fail":
            error: BadRecordError = routed.bad[0].error(self._unit.source)
            raise error
        self._bad_records += len(routed.bad)
        for bad in routed.bad:
            self._skip(bad.error(self._unit.source).issue())
        for times, offsets, topics in routed.runs:
            rows = pa.table({"topic": topics, "time": _times(times), "offset": offsets})
            sums = rows.group_by("topic").aggregate(
                [("offset", "count"), ("offset", "min"), ("time", "min")]
            )
            for row in sums.to_pylist():
                self._add(row, sets)

    def _add(self, row: Mapping[str, Any], sets: set[str]) -> None:
        oldest = row["time_min"]
        one = self._found.get(row["topic"])
        if one is None:
            found = _Found(row["offset_count"], row["offset_min"], oldest, set(sets))
            self._found[row["topic"]] = found
            check(self._unit.source.topic, len(self._found))
            return
        one.records += row["offset_count"]
        one.first = min(one.first, row["offset_min"])
        one.oldest = min((time for time in (one.oldest, oldest) if time is not None), default=None)
        one.sets |= sets


def _times(times: pa.Int64Array) -> pa.Int64Array:
    return pc.if_else(pc.equal(times, NO_TIMESTAMP), pa.scalar(None, pa.int64()), times)
