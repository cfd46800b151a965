"""Read which topics records go to, where transforms choose one for each.

Nothing is written.  So all topics are known, and pass the same checks as any other target, before
the first record is written to one of them.  What was read once is not read again to find that out.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final

import pyarrow as pa

from kbackup.catalog import merging
from kbackup.catalog.claims import Reading
from kbackup.catalog.listing import frozen
from kbackup.catalog.merging import Failed, Skipped, StoredRows
from kbackup.config import Settings
from kbackup.errors import (
    ConfigurationError,
    Issue,
    KbackupError,
    RefusedError,
    StoppedError,
)
from kbackup.naming.renaming import rename
from kbackup.records import Span, TopicPartition, known_times
from kbackup.restore.job import SKIPPED_MOST, RestoreJob, RestoreUnit, Route
from kbackup.restore.resume import chained
from kbackup.restore.transform import Transforming
from kbackup.runs import wiring
from kbackup.runs.inventory import Inventory
from kbackup.runs.position import Cursor, Lane, RestorePosition, RestoreSource
from kbackup.spark.channel import TaskChannel
from kbackup.stores import Store, open_store

TOPICS_MOST: Final = 10_000
"""Topics that the records of one may go to; more are a mistake, such as a topic for each order."""


@dataclass(frozen=True, slots=True)
class Share:
    """The records of one partition of a backup that go to one topic.

    Attributes:
        oldest: Their lowest timestamp, ms since the epoch; None where none has one.
        sets: The `FileSet.part` of each set that holds some.
        counts_rest: What has no topic is counted with them.
    """

    records: int = 0
    first: int = 0
    oldest: int | None = None
    sets: frozenset[str] = frozenset()
    counts_rest: bool = False

    def __add__(self, more: "Share") -> "Share":
        """Return what goes to the topic from objects of which some were read before."""
        times = [time for time in (self.oldest, more.oldest) if time is not None]
        return Share(
            self.records + more.records,
            min(self.first, more.first),
            min(times, default=None),
            self.sets | more.sets,
            self.counts_rest,
        )


NOTHING: Final = Share()


@dataclass(frozen=True, slots=True)
class Survey:
    """What reading one partition of a backup has shown: the report of a task.

    Attributes:
        bad_records: Records that have no topic, where no record has one: else the writing tasks
            count them.
        bad_objects: Objects that cannot be read, likewise.
        skipped: What is wrong with the first of either.
    """

    where: TopicPartition
    shares: Mapping[str, Share] = field(default_factory=dict)
    bad_records: int = 0
    bad_objects: int = 0
    skipped: tuple[Issue, ...] = ()
    failure: Issue | None = None


@dataclass(slots=True)
class _Known:
    """What is known of one partition: the sets that were read, and those that are being read."""

    seen: dict[str, str] = field(default_factory=dict)
    reading: dict[str, str] = field(default_factory=dict)
    shares: dict[str, Share] = field(default_factory=dict)
    bad_records: int = 0
    bad_objects: int = 0


class RecordRoutes:
    """Where the records of a backup go, as far as they were read."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store
        self._known: dict[TopicPartition, _Known] = {}
        self._gathered: dict[str, dict[str, list[Share]]] | None = None

    def targets(self, topic: str) -> Sequence[str]:
        """Return the topics that records of *topic* go to, by name."""
        return [*self._by_target(topic)]

    def of(self, where: TopicPartition, target: str) -> Share:
        """Return what goes from a partition to a topic; it may be nothing."""
        return self._known[where].shares.get(target, NOTHING) if where in self._known else NOTHING

    def oldest(self, topic: str, target: str) -> int | None:
        """Return the lowest timestamp of what goes from one topic to another."""
        times = [share.oldest for share in self._by_target(topic).get(target, ())]
        return min((time for time in times if time is not None), default=None)

    def home(self, where: TopicPartition) -> str | None:
        """Return the topic whose restore reads all objects of a partition; None for none."""
        shares = self._known[where].shares if where in self._known else {}
        return next((name for name, share in shares.items() if share.counts_rest), None)

    def lost(self, where: TopicPartition) -> tuple[int, int]:
        """Return the bad records and objects of a partition that no restore of a topic counts."""
        known = self._known[where]
        return known.bad_records, known.bad_objects

    def unread(self, topic: str, inventory: Inventory) -> list[RestoreUnit]:
        """Return what of a topic has to be read, a unit a partition; nothing of it is written.

        What was read before may be archived by now.

        Raises:
            ConfigurationError: If schemas are to be registered: their subjects are not known yet.
            RefusedError: If some of it is archived.
        """
        whole = _asked(self._settings, inventory, topic)
        wheres = {unit.source for unit in whole}
        for where in [at for at in self._known if at.topic == topic and at not in wheres]:
            del self._known[where]  # nothing of it is left
        new = [unit for each in whole if (unit := self._news(each)).sets]
        self._gathered = None
        files = (file for unit in new for one in unit.sets for file in one.files)
        for refusal in frozen(self._store, files).refusals(topic, topic):
            raise refusal
        return new

    def take(self, report: Survey) -> None:
        """Take in what reading a partition has shown."""
        known = self._known.setdefault(report.where, _Known())
        known.seen |= known.reading
        shares = dict(known.shares)
        for name, share in report.shares.items():
            shares[name] = shares[name] + share if name in shares else share
        known.shares = _with_home(shares)
        # the task that restores its first topic counts all that is bad
        known.bad_records = 0 if shares else known.bad_records + report.bad_records
        known.bad_objects = 0 if shares else known.bad_objects + report.bad_objects
        self._gathered = None

    def check(self, topic: str) -> str | None:
        """Return a sentence about a topic none of whose records has another; None else."""
        targets = self.targets(topic)
        _check_count(topic, len(targets))
        if targets:
            return None
        return f"{topic}: there is no record, or its transforms leave none: no topic is chosen"

    def _by_target(self, topic: str) -> Mapping[str, list[Share]]:
        """Return what goes from one topic to others, by name; the plan of each of these asks."""
        if self._gathered is None:
            self._gathered = {}
            pairs = (
                (at.topic, target, share)
                for at, known in self._known.items()
                for target, share in known.shares.items()
            )
            for source, target, share in sorted(pairs, key=itemgetter(0, 1)):
                self._gathered.setdefault(source, {}).setdefault(target, []).append(share)
        return self._gathered.get(topic, {})

    def _news(self, unit: RestoreUnit) -> RestoreUnit:
        """Return what of a partition was not read yet, and forget what is gone."""
        now = {files.part: chained("", [files]) for files in unit.sets}
        known = self._known.setdefault(unit.source, _Known())
        if any(now.get(one, stamp) != stamp for one, stamp in known.seen.items()):
            known = self._known[unit.source] = _Known()  # what it held, nothing says any more
        known.seen = {one: stamp for one, stamp in known.seen.items() if one in now}
        left = {
            name: replace(share, sets=share.sets & now.keys())
            for name, share in known.shares.items()
        }
        known.shares = _with_home({name: share for name, share in left.items() if share.sets})
        known.reading = {one: stamp for one, stamp in now.items() if one not in known.seen}
        return replace(unit, sets=tuple(one for one in unit.sets if one.part in known.reading))


def routed_from(settings: Settings, name: str) -> str:
    """Return the name of a topic that transforms see which choose a topic for each record.

    ``RegexRouter`` is one of them; ``--rename`` takes its place, and comes before them.
    """
    return name if settings.rename is None else rename(name, settings.renames)


def _asked(settings: Settings, inventory: Inventory, topic: str) -> list[RestoreUnit]:
    if wiring.schema_registry(settings) is not None:
        raise ConfigurationError(
            "schemas cannot be registered where a transform chooses a topic for each record",
            "their subjects are named after topics, which are known once the records are read",
            "leave the Schema Registry out: records keep the ids of their schemas",
        )
    inventory.look_at([topic])
    window, route = inventory.window, Route(routed_from(settings, topic))
    units = list[RestoreUnit]()
    for where in inventory.wanted(topic):
        sets = inventory.asked_for(inventory.covered(where).sets)
        source = RestoreSource("", where, inventory.identity(where))
        position = RestorePosition(source, "", Cursor(0, 0))
        lanes = (Lane(where, Span(0, 0)),)
        units.append(RestoreUnit(position, lanes, tuple(sets), window=window, route=route))
    return units


def _with_home(shares: Mapping[str, Share]) -> dict[str, Share]:
    """Return the shares of a partition, of which one counts what has no topic."""
    found = dict(shares)
    if found and not any(share.counts_rest for share in found.values()):
        # the same in every run: that of the first record that has a topic
        home = min(found, key=lambda name: (found[name].first, name))
        found[home] = replace(found[home], counts_rest=True)
    return found


def _check_count(topic: str, count: int) -> None:
    if count > TOPICS_MOST:
        raise RefusedError(
            f"the records of {topic} would go to more than {TOPICS_MOST} topics",
            "the transforms choose a topic by something that differs from record to record",
            "choose a field with fewer values, or a longer stretch of time",
            topic=topic,
        )


def survey(job: RestoreJob, units: Sequence[RestoreUnit], channel: TaskChannel) -> Iterator[Survey]:
    """Read *units* and report where their records go; a failure is a report, not an exception.

    A record that has no topic is a bad record: the writing tasks count and name it, as
    ``behavior.on.error`` says, unless that is ``fail``.

    Memory: what `merging` reads with, and a number for each topic and object that holds some of it.
    """
    store = open_store(job.store)
    for unit in units:
        if channel.is_stopped():
            return
        source = unit.source
        try:
            yield _Survey(job, unit).run(store, channel)
        except KbackupError as error:
            yield Survey(source, failure=error.issue().at(**source.place))


class _Survey:
    def __init__(self, job: RestoreJob, unit: RestoreUnit) -> None:
        self._job, self._unit = job, unit
        self._transforming = Transforming(job, unit)
        self._found: dict[str, Share] = {}
        self._sets: defaultdict[str, set[str]] = defaultdict(set)  # of each, as far as it is read
        self._skipped = list[Issue]()
        self._bad_records = self._bad_objects = 0

    def run(self, store: Store, channel: TaskChannel) -> Survey:
        unit, job = self._unit, self._job
        reading = Reading(store, job.reads(unit.target.topic), unit.position.source.identity)
        wanted = unit.window.offset
        steps = merging.steps(reading, unit.sets, holds_values=True, wanted=wanted)
        for step in steps:
            if channel.is_stopped():
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
        if self._found:
            sets = {name: frozenset(parts) for name, parts in self._sets.items()}
            shares = {name: replace(one, sets=sets[name]) for name, one in self._found.items()}
            return Survey(unit.source, shares)
        # without a topic there is no writing task that would count them
        return Survey(unit.source, {}, self._bad_records, self._bad_objects, tuple(self._skipped))

    def _skip(self, failure: Issue) -> None:
        if not self._found and len(self._skipped) < SKIPPED_MOST:
            self._skipped.append(failure)

    def _take(self, batch: pa.RecordBatch, sets: set[str]) -> None:
        if not len(batch):
            return
        found = [*self._transforming.transformed(batch)]
        where, is_secret = self._unit.source, self._job.store.is_secret
        errors = [one.error(where, is_secret=is_secret) for each in found for one in each.bad]
        if errors and self._job.on_error == "fail":
            raise errors[0]
        self._bad_records += len(errors)
        for error in errors:
            self._skip(error.issue())
        for each in found:
            rows = pa.table({
                "topic": each.records.topics.cast(pa.string()),
                "time": known_times(each.records.batch["timestamp"]),
                "offset": each.records.batch["offset"],
            })  # fmt: skip
            sums = rows.group_by("topic").aggregate(
                [("offset", "count"), ("offset", "min"), ("time", "min")]
            )
            for row in sums.to_pylist():
                name = row["topic"]
                share = Share(row["offset_count"], row["offset_min"], row["time_min"])
                self._found[name] = self._found[name] + share if name in self._found else share
                self._sets[name] |= sets
            _check_count(self._unit.source.topic, len(self._found))
