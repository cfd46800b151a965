"""A cluster in memory that a restore writes to, and a restore of a backup into it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from backup_samples import Backup

from kbackup import config
from kbackup.batches import BatchError, Batches, walk
from kbackup.batches.decoding import decoded
from kbackup.catalog import listing
from kbackup.catalog.identity import BackupIdentity
from kbackup.catalog.ledger.rows import Entry, TopicLedger
from kbackup.catalog.translated import Translation
from kbackup.config import loading
from kbackup.errors import KafkaError, KbackupError
from kbackup.kafka import (
    NO_OTHERS,
    NOT_DESCRIBED,
    Group,
    GroupList,
    GroupOffset,
    KafkaSettings,
    Position,
)
from kbackup.pipeline.views import ReadOptions
from kbackup.plugins import Step, choose_topics
from kbackup.records import SCHEMA, Span, TopicPartition
from kbackup.restore import transaction
from kbackup.restore.job import RestoreJob, RestoreUnit
from kbackup.restore.plan import Planner, RestorePlan
from kbackup.restore.routing import RecordRoutes, survey
from kbackup.restore.target import begin
from kbackup.restore.task import RestorePartitionTask
from kbackup.restore.transaction import RateLimit
from kbackup.runs import wiring
from kbackup.runs.inventory import Inventory
from kbackup.runs.position import RestorePosition
from kbackup.runs.report import OfRestore, PartitionReport
from kbackup.stores import Store
from tests.support.encoded import Sent
from tests.support.encoded import batch as encoded
from tests.support.fake_cluster import FakeCluster
from tests.support.fakes import SilentLine

Row = dict[str, Any]
COPY = TopicPartition("copy_of_orders", 0)
"""The target partition of most restores."""

MARKER: Row = {}
"""What a transaction leaves in a log when it is committed."""


@dataclass
class Log:
    """One partition: *rows* from offset *start* on, markers among them."""

    rows: list[Row] = field(default_factory=list)
    start: int = 0

    @property
    def span(self) -> Span:
        """From the log start to the end offset."""
        return Span(self.start, self.start + len(self.rows))

    def delete(self, before: int) -> None:
        """Delete what is below an offset, as retention does."""
        self.rows, self.start = self.rows[before - self.start :], before


@dataclass
class FakeTarget(FakeCluster):
    """The cluster to restore to, which keeps the records that transactions commit."""

    # the positions of each group
    groups: dict[str, dict[TopicPartition, Position]] = field(default_factory=dict)
    # what writing to a partition fails with
    faults: dict[TopicPartition, KbackupError] = field(default_factory=dict)
    # a record that somebody else writes to a partition as soon as it is written to
    beside: dict[TopicPartition, Row] = field(default_factory=dict)
    crash_at: int = 0  # the commit that kills the process, counted from 1; 0 for none
    made: int = 0  # how many topics were created
    _: KW_ONLY
    cluster_id: str = "cluster-here"
    brokers: int = 3

    def span(self, where: TopicPartition) -> Span:
        """What a partition holds."""
        log: Log = self.logs[where]
        return log.span

    def group(self, name: str) -> dict[TopicPartition, Position]:
        """The positions of a group."""
        return self.groups.get(name, {})

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """Write a group's positions."""
        self.groups.setdefault(group, {}).update(positions)

    def add_topic(self, name: str, partitions: int, _config: Mapping[str, str]) -> None:
        """Create a topic; each one has an id of its own."""
        self.made += 1
        self.ids[name] = f"id-{self.made}"
        self.logs |= {TopicPartition(name, at): Log() for at in range(partitions)}

    def delete_topics(self, names: Collection[str]) -> dict[str, KafkaError]:
        """Delete topics with all that they hold, and all positions in them."""
        for name in names:
            del self.ids[name]
        self.logs = {at: log for at, log in self.logs.items() if at.topic not in names}
        return {}

    def delete_groups(self, names: Collection[str]) -> dict[str, KafkaError]:
        """Delete groups."""
        for name in names:
            self.groups.pop(name, None)
        return {}

    def create_partitions(self, name: str, count: int, *, only_validate: bool = False) -> None:
        """Add partitions to a topic."""
        had = sum(where.topic == name for where in self.logs)
        assert had < count
        if not only_validate:
            self.logs |= {TopicPartition(name, at): Log() for at in range(had, count)}

    def reader(self, _group: str, *, by_batches: bool = False) -> Any:  # noqa: ARG002
        """Open a reader."""
        return _Reader(self)

    def fence(self, target: TopicPartition) -> TopicPartition:
        """Each partition has a writer of its own."""
        return target

    def writer(self, target: TopicPartition, group: str, **_: Any) -> "FakeWriter":
        """Open a writer, or fail as was planned."""
        if target in self.faults:
            raise self.faults[target]
        if target in self.beside:
            self.logs[target].rows.append(self.beside.pop(target))
        return self.new_writer(target, group, self.crash_at)

    def new_writer(self, target: TopicPartition, group: str, crash_at: int) -> "FakeWriter":
        """A writer."""
        return FakeWriter(self, group, target, crash_at)

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The values of a partition's records, in order."""
        rows = self.logs[TopicPartition(topic, partition)].rows
        return [row["value"] for row in rows if row is not MARKER]


@dataclass
class _Reader:
    target: FakeTarget

    def read(self, where: TopicPartition, span: Span) -> Iterator[pa.RecordBatch]:
        """The records of a span, two in a batch."""
        log = self.target.logs[where]
        found = [
            {**log.rows[at - log.start], "offset": at}
            for at in range(span.start_offset, span.end_offset)
            if log.rows[at - log.start] is not MARKER
        ]
        for at in range(0, len(found), 2):
            yield pa.RecordBatch.from_pylist(found[at : at + 2], SCHEMA)

    def close(self) -> None:
        """Nothing to leave."""


@dataclass
class _Clients:
    """The groups of a cluster: where they stand, and what keeps one from being set."""

    target: "Grouped"

    def offsets(self, groups: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Where groups stand."""
        yield from ((group, dict(self.target.stood.get(group, {}))) for group in groups)

    def listed(self) -> GroupList:
        """The groups whose members nobody can ask for; there may be others."""
        found = (Group(name, "", NOT_DESCRIBED) for name in sorted(self.target.unseen))
        return GroupList(tuple(found), is_complete=True)

    def alter(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """Set a group, unless somebody has joined it."""
        if offsets:
            self._begin(group)
            taken = {at: one for at, one in offsets.items() if at not in self.target.refused}
            self.target.stood.setdefault(group, {}).update(taken)
            self._end(group)
            if taken != offsets:
                raise KafkaError(f"setting the offsets of group {group}", "too much beside it")

    def delete(self, group: str, wheres: Sequence[TopicPartition]) -> None:
        """Take positions from a group that has some, unless somebody has joined it."""
        if wheres:
            self._begin(group)
            if not self.target.stood.get(group):
                raise KafkaError(f"setting the offsets of group {group}", "there is no such group")
            for where in wheres:
                self.target.stood[group].pop(where, None)
            self._end(group)

    def _begin(self, group: str) -> None:
        if group in self.target.joined:
            raise KafkaError(f"setting the offsets of group {group}", "it is not empty")

    def _end(self, group: str) -> None:
        self.target.changes.append(group)
        self.target.dies_in -= 1
        if self.target.dies_in == 0:
            raise CrashError

    def close(self) -> None:
        """Nothing to leave."""


@dataclass
class Grouped(FakeTarget):
    """A cluster with groups."""

    stood: dict[str, dict[TopicPartition, GroupOffset]] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)
    live: set[str] = field(default_factory=set)
    unseen: set[str] = field(default_factory=set)
    refused: set[TopicPartition] = field(default_factory=set)  # partitions that nobody can set
    changes: list[str] = field(default_factory=list)  # the group of each change
    dies_in: int = 0  # after how many changes the process is killed; 0 for never

    def consumer_groups(self) -> Any:
        """Ask where groups stand."""
        return _Clients(self)

    def members(self, group: str) -> list[str]:
        """Who is in a group."""
        return ["c at h"] if group in self.live else []

    def delete_groups(self, names: Collection[str]) -> dict[str, KafkaError]:
        """Delete groups."""
        for name in names:
            self.stood.pop(name, None)
        return super().delete_groups(names)


@dataclass
class FakeWriter:
    """One task's transactions; the commits *fails_at* crash, counted from 1."""

    cluster: FakeTarget
    group: str
    where: TopicPartition
    crash_at: int = 0
    commits: int = 0
    record_bytes_max: int = 2**20
    _open: dict[TopicPartition, list[Row]] = field(default_factory=dict)

    def position(self, where: TopicPartition | None = None) -> Position | None:
        """The group's position."""
        return self.cluster.groups.get(self.group, {}).get(where or self.where)

    def positions(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """The group's positions."""
        return {where: self.position(where) for where in wheres}

    def write(self, batch: pa.RecordBatch, where: TopicPartition | None = None) -> int:
        """Keep records until they are committed."""
        self._open.setdefault(where or self.where, []).extend(batch.to_pylist())
        return 0

    def commit(
        self,
        position: Position,
        others: Mapping[TopicPartition, Position] = NO_OTHERS,
        where: TopicPartition | None = None,
    ) -> None:
        """Records, their markers and the positions become visible together."""
        self.commits += 1
        if self.commits == self.crash_at:
            raise CrashError
        assert len(position.metadata) < 4096
        for at, rows in self._open.items():
            self.cluster.logs[at].rows += [*rows, MARKER]
        self.cluster.set_positions(self.group, {where or self.where: position, **others})
        self._open = {}

    def flush(self) -> None:
        """Records outside of transactions become visible; the client chooses their partition."""
        for where in [at for at in self._open if at.partition < 0]:
            self.cluster.logs[TopicPartition(where.topic, 0)].rows += self._open.pop(where)

    def written(self, where: TopicPartition) -> Span | None:
        """Where records will stand."""
        end = self.cluster.span(where).end_offset
        count = len(self._open.get(where, []))
        return Span(end, end + count) if count else None

    def abort(self) -> None:
        """Forget what is not committed."""
        self._open = {}

    def close(self) -> None:
        """Nothing to leave."""


@dataclass
class KeepingTarget(FakeTarget):
    """The cluster, which keeps batches as they are sent."""

    # by their partition and base offset
    sent: dict[tuple[TopicPartition, int], bytes] = field(default_factory=dict)
    batches_read: int = 0

    def new_writer(self, target: TopicPartition, group: str, crash_at: int) -> "FakeWriter":
        """A writer of batches, too."""
        return KeepingWriter(self, group, target, crash_at)

    def reader(self, _group: str, *, by_batches: bool = False) -> Any:
        """Open a reader, of batches if they are asked for."""
        return (_BatchReader if by_batches else _Reader)(self)


@dataclass
class KeepingWriter(FakeWriter):
    """One task's transactions, of batches too."""

    cluster: KeepingTarget

    def write_batches(self, batches: Batches, where: TopicPartition | None = None) -> None:
        """Keep batches until they are committed, unless they cannot be unpacked."""
        at = where or self.where
        for number in range(len(batches)):
            one = batches.slice(number, 1)
            base = self.cluster.span(at).end_offset + len(self._open.get(at, []))
            self.cluster.sent[at, base] = b"".join(one.pieces())
            try:
                rows = [*decoded(one)]
            except BatchError as error:
                raise KafkaError(f"{at}: writing records", str(error)) from None
            for each in rows:
                self.write(each, at)


@dataclass
class _BatchReader(_Reader):
    target: KeepingTarget

    def batches(self, where: TopicPartition, span: Span) -> Iterator[Batches]:
        """The batches of a span, those that were sent unless a record of theirs was altered."""
        following, table = span.start_offset, pa.Table.from_batches([*self.read(where, span)])
        for row in table.to_pylist():
            at = row["offset"]
            if at < following:
                continue
            made = encoded(at, [Sent(
                row["value"], row["key"],
                [(each["key"].encode(), each["value"]) for each in row["headers"]],
                row["timestamp"],
            )])  # fmt: skip
            sent = self.target.sent.get((where, at))
            if sent is not None:
                sent = at.to_bytes(8, "big") + sent[8:]
                (rows,) = decoded(walk(pa.py_buffer(sent)).check())
                there = table.filter(pc.is_in(table["offset"], value_set=rows["offset"]))
                made = sent if there.to_pylist() == rows.to_pylist() else made
            found = walk(pa.py_buffer(made)).check()
            following = found.next_offset
            self.target.batches_read += 1
            yield found


class CrashError(Exception):
    """The process died here: nothing after this point happened."""


@dataclass
class Restoring:
    """Restores of one backup into one cluster."""

    backup: Backup = field(default_factory=Backup)
    cluster: FakeTarget = field(default_factory=FakeTarget)  # the target
    properties: Mapping[str, str] = field(default_factory=dict)  # what else its configuration says
    # what the ledger says of each topic
    entries: Mapping[str, Sequence[Entry]] = field(default_factory=dict)
    pace: RateLimit | None = None  # how fast it writes
    identity: BackupIdentity | None = None  # which backup it is; None for what its address says
    files: Sequence[Path] = ()  # of its configuration

    @property
    def store(self) -> Store:
        """Where the backup is."""
        return self.backup.store

    def settings(self, **options: Any) -> config.Settings:
        """What a restore with these options goes by."""
        return loading.load(
            "restore",
            options={
                "bootstrap_servers": "-", "s3_bucket_name": "b", "rename": "copy_of_$0", **options
            },
            files=self.files,
            environ={},
            extra=[f"{name}={value}" for name, value in self.properties.items()],
        ).settings  # fmt: skip

    def plan(self, **options: Any) -> RestorePlan:
        """What a restore with these options would do."""
        settings = self.settings(**options)
        found = listing.list_backup(
            self.store, self.backup.layout, wiring.format_options(settings),
            topics=settings.topics, only_format=wiring.only_format(settings),
        )  # fmt: skip
        known = replace(
            self.backup.known,
            ledgers={
                name: TopicLedger.of(rows)
                for name, rows in (self.backup.entries | dict(self.entries)).items()
            },
        )
        inventory = Inventory(settings, self.store, found, known)
        backup = self.identity or wiring.address(settings)
        return Planner(
            inventory,
            self.cluster,
            now_ms=1_700_000_001_000,
            routes=self.routes(settings, inventory),
            backup=backup,
            group=wiring.restore_groups(settings, backup)[0],
        ).plan()

    def routes(self, settings: config.Settings, inventory: Inventory) -> RecordRoutes | None:
        """Which topics the transforms choose; None where they choose none.

        Raises:
            KbackupError: What keeps a task from finding out.
        """
        if not choose_topics(settings.transforms):
            return None
        job = RestoreJob(
            "r0", KafkaSettings("-"), self.backup.settings, wiring.reading(settings), "g",
            on_error=settings.behavior_on_error, transforms=settings.transforms,
        )  # fmt: skip
        routes = RecordRoutes(settings, self.store)
        units = [unit for name in inventory.topics() for unit in routes.unread(name, inventory)]
        for each in survey(job, units, SilentLine()):
            if each.failure is not None:
                raise each.failure.error()
            routes.take(each)
        return routes

    def work(
        self, unit: RestoreUnit, group: str, *, run: str = "r1", crash_at: int = 0,
        reading: ReadOptions | None = None, on_error: str = "fail",
        offset_header: str | None = None, transforms: tuple[Step, ...] = (),
    ) -> PartitionReport[OfRestore]:  # fmt: skip
        """Work through a unit, as a task does.

        Raises:
            KbackupError: What stops it.
            CrashError: At the commit *crash_at*.
        """
        job = RestoreJob(
            run, KafkaSettings("-"), self.backup.settings, reading or ReadOptions(), group,
            on_error=on_error, offset_header=offset_header, transforms=transforms, is_renamed=True,
        )  # fmt: skip
        work = RestorePartitionTask(job, unit, self.store, SilentLine(), self.pace)
        writer: Any = self.cluster.new_writer(unit.target, unit.group or group, crash_at)
        work.run(writer)
        return work.report

    def restore(
        self, *, run: str = "r1", crash_at: int = 0, reading: ReadOptions | None = None,
        on_error: str = "fail", **options: Any,
    ) -> list[PartitionReport[OfRestore]]:  # fmt: skip
        """Restore as far as it goes, in this process.

        Raises:
            KbackupError: What the plan refuses, and what a task fails with.
        """
        plan, settings = self.plan(**options), self.settings(**options)
        for error in plan.refusals:
            raise error
        first, units = begin(plan, self.cluster, None, exactly_once=True)
        for unit in first:
            self.work(unit, plan.group, run=run)
        return [
            self.work(
                unit,
                plan.group,
                run=run,
                crash_at=crash_at,
                reading=wiring.reading(settings) if settings.transforms else reading,
                on_error=on_error,
                offset_header=options.get("offset_header"),
                transforms=settings.transforms,
            )
            for unit in units
        ]

    def translated(self) -> tuple[Translation, ...]:
        """The rows of translation that are beside the position."""
        (group,) = self.cluster.groups
        read = RestorePosition.read(COPY, self.cluster.groups[group][COPY])
        assert read is not None
        return read[0].translated

    def keep_rows(self, rows: tuple[Translation, ...] = (), **changed: Any) -> None:
        """Lose other rows of translation, beside the position too; change what else it says."""
        (group,) = self.cluster.groups
        for each in [*self.store.list("_kbackup/restores/")]:
            self.store.delete(each.key)
        read = RestorePosition.read(COPY, self.cluster.groups[group][COPY])
        assert read is not None
        kept, lane = replace(read[0], translated=rows, **changed), read[1]
        self.cluster.groups[group][COPY] = kept.position(lane)


def killed_half_way() -> Restoring:
    """A restore of ten records that was killed once five of them were committed."""
    of = Restoring()
    of.backup.put("orders", 0, range(5), range(5, 10))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction, "TRANSACTION_RECORDS", 5)
        with suppress(CrashError):
            of.restore(crash_at=3)
    return of


def values(*offsets: range) -> list[bytes]:
    """The values of the records at these offsets."""
    return [b'{"n":%d}' % at for each in offsets for at in each]


def position(again: Restoring) -> Position:
    """The position of the restore."""
    (held,) = again.cluster.groups.values()
    return held[COPY]
