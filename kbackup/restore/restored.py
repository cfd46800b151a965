"""Find what one restore has written, by its positions, its rows of translation and the backup.

Whoever asks afterwards, `kbackup.restore.groups` for offsets and
`kbackup.restore.against_target` for the records themselves, finds the restore as a run of it would:
by its group, its renaming, its window.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.batches import Kept
from kbackup.catalog import identity, merging
from kbackup.catalog.claims import Reading
from kbackup.catalog.listing import FileSet, Window
from kbackup.catalog.merging import Failed, Skipped, StoredBatches, StoredRows
from kbackup.catalog.reading import unpacked
from kbackup.catalog.translated import TranslatedEntry, Translation, TranslationLog
from kbackup.clock import Clock
from kbackup.config import Settings
from kbackup.connect.registry.framing import unframed
from kbackup.errors import RefusedError
from kbackup.kafka import Cluster, Connection, Position
from kbackup.naming.renaming import rename
from kbackup.plugins import choose_topics
from kbackup.records import Span, TopicPartition, replaced
from kbackup.restore import target
from kbackup.restore.job import PartitionMap, RestoreJob, RestoreUnit
from kbackup.restore.plan import job_of
from kbackup.restore.transform import RecordFilter
from kbackup.runs import backup_state, wiring
from kbackup.runs.inventory import Inventory, listed
from kbackup.runs.position import Cursor, Lane, RestorePosition, RestoreSource
from kbackup.stores import Store

BY_HAND: Final = "set the group by hand: kafka-consumer-groups --reset-offsets"


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """What a restore has written from one partition of the backup.

    Attributes:
        rows: Where its transactions stand, in order; some may be missing.
        sets: What it reads, in order.
        end: The end of what the backup holds; None where that is not known before it is read.
        span: The target's log as it is now, up to its last stable offset.
        is_compacted: Whether the target may leave out records that others have superseded.
    """

    position: RestorePosition
    lane: Lane
    rows: tuple[Translation, ...]
    sets: Sequence[FileSet]
    end: int | None
    span: Span
    is_compacted: bool = False

    @property
    def source(self) -> TopicPartition:
        """The partition of the backup."""
        return self.position.source.where

    @property
    def target(self) -> TopicPartition:
        """The partition of the target."""
        return self.lane.target

    def unit(self, window: Window) -> RestoreUnit:
        """Return what a restore of it had to do."""
        return RestoreUnit(self.position, (self.lane,), tuple(self.sets), window=window)

    def as_kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return records of either side without what a target cannot keep as it was.

        That is a time of 0, which the client takes for now, whose time it is, and ids of schemas
        where they are those of the target's registry.
        """
        kind = pa.repeat(pa.scalar(0, batch["timestamp_type"].type), len(batch))
        batch = replaced(batch, "timestamp_type", kind)
        if self.position.ids is not None:
            for part in ("key", "value"):
                bodies = unframed(batch[part]).bodies
                batch = replaced(batch, part, pc.coalesce(bodies, batch[part]))
        times = batch["timestamp"]
        kept = pc.if_else(pc.equal(times, 0), pa.scalar(1, times.type), times)
        return replaced(batch, "timestamp", kept)


class Restored:
    """What a restore with these settings has written.

    Args:
        settings: Those that the restore was given; no transform of them chooses topics.

    Attributes:
        settings: The same, without a time that the restore was not given.
        targets: The restored topics that are there, by name.
        configs: Their settings, as far as they may be read.
        spans: What their partitions hold, up to their last stable offsets.
        damage: Files of the ledger, and of rows of translation, that cannot be read.

    Raises:
        KbackupError: If it cannot be told which records stand where.
    """

    def __init__(
        self,
        settings: Settings,
        kafka: Connection,
        store: Store,
        clock: Clock,
        cluster: Cluster,
        inventory: Inventory | None = None,
    ) -> None:
        layout = wiring.layout(settings)
        backup = identity.read(store, layout, wiring.address(settings).address)
        if inventory is None:
            said = backup_state.read(store, layout, clock, settings.asked)
            catalog = listed(settings, store, settings.topics, said)
        else:
            said, catalog = inventory.known, inventory.catalog
        names = settings.asked.topics({*catalog.topics(), *said.topics})
        self.targets = cluster.topics({rename(name, settings.renames) for name in names})
        wheres = [where for topic in self.targets.values() for where in topic.wheres]
        sources = {*catalog.sets, *said.partitions()}
        # a time may be the restore's own, or only say which captures are meant
        for self.settings in (settings, settings.replace(as_of=None)):
            group = target.group(self.settings, cluster, backup)
            self.map = PartitionMap(self.settings.partition_map, group)
            groups = {self.map.group_of(where.partition) for where in sources} or {group}
            self._positions = {name: _read(cluster.committed(name, wheres)) for name in groups}
            read = [(at, one[0]) for own in self._positions.values() for at, one in own.items()]
            if any(position.source.window == self._asked(at.topic) for at, position in read):
                break
        self.inventory = inventory or Inventory(self.settings, store, catalog, said)
        self.inventory.look_at(self.inventory.topics())
        self.job = job_of(
            self.settings, kafka, wiring.store_settings(self.settings), run="restored", group=group,
            clock=clock,
        )  # fmt: skip
        # a commit is answered before its markers are written
        self._written = dict(self._ends())
        cluster.wait_for(self._written)
        self.spans = cluster.spans(wheres)
        hidden = [at for at, end in self._written.items() if self.spans[at].end_offset < end]
        self._log_ends = cluster.ends(hidden)
        self.configs = cluster.topic_config(self.targets)
        log = TranslationLog(store, layout, group, clock)
        self._rows: dict[TopicPartition, list[TranslatedEntry]] = defaultdict(list)
        self.damage = said.all_damage()
        for name in self.targets:
            rows, damage = log.read(name)
            self.damage += damage
            for row in rows:
                self._rows[TopicPartition(name, row.partition)].append(row)
        self._known: dict[TopicPartition, RestoredPartition | None] = {}
        self._spread: dict[TopicPartition, list[TopicPartition]] = {}

    def target(self, where: TopicPartition) -> TopicPartition:
        """Return the partition that one of the backup is restored to; of several the first."""
        return self.spread(where)[0]

    def spread(self, where: TopicPartition) -> list[TopicPartition]:
        """Return the partitions that records of one of the backup may be restored to."""
        if where not in self._spread:
            name = rename(where.topic, self.settings.renames)
            there = self.map.targets(where, name, self._count(name))
            self._spread[where] = there or [TopicPartition(name, where.partition)]
        return self._spread[where]

    def _count(self, topic: str) -> int:
        there = self.targets.get(topic)
        return 0 if there is None else there.partitions

    def _asked(self, topic: str) -> str:
        """Return what positions in a target say of the records that were asked for."""
        names = wiring.window_name(self.settings), self.map.name(self._count(topic))
        return " ".join(filter(None, names))

    def _ends(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield where the logs of the targets end at least, by the positions in them."""
        for own in self._positions.values():
            for at, (position, lane) in own.items():
                if position.target_id == self.targets[at.topic].topic_id:
                    yield at, end_of_written(lane, position.translated)

    def has_times(self, topic: str) -> bool:
        """Whether a restored topic keeps the records' timestamps; else the broker sets its own."""
        return self.configs.get(topic, {}).get("message.timestamp.type") != "LogAppendTime"

    def partition(self, where: TopicPartition) -> RestoredPartition | None:
        """Return what was restored of a partition; None where the backup holds nothing of it.

        `RefusedError`: it has not been restored, or not to this topic.
        """
        if where not in self._known:
            self._known[where] = self._partition(where, self.target(where))
        return self._known[where]

    def _partition(self, where: TopicPartition, at: TopicPartition) -> RestoredPartition | None:
        inventory, group = self.inventory, self.map.group_of(where.partition)
        read = self._positions.get(group, {}).get(at)
        sets: Sequence[FileSet] = ()
        if where in inventory.wanted(where.topic):
            sets = inventory.asked_for(inventory.covered(where).sets)
        if read is None and not sets:
            return None
        there = self.targets.get(at.topic)
        rows = sorted(_of(where, "" if there is None else there.topic_id, self._rows.get(at, ())))
        asked = self._asked(at.topic)
        if read is None and rows:
            read = self._by_rows(where, at, rows, sets)
        if read is None and rows:
            raise RefusedError(
                f"the position of this restore in {at} is gone",
                "Kafka forgets those of a group without members after offsets.retention.minutes",
                "restore into a new topic, and run this command within that time; for consumer "
                f"groups also: {BY_HAND}",
                **at.place,
            )  # fmt: skip
        if read is None or (read[0].source.where, read[0].source.window) != (where, asked):
            raise RefusedError(
                f"{at} has not been restored from {where} by this restore",
                f"group {group} has no position there",
                "give --rename, --group, times, offsets and transforms as the restore was given",
                **at.place,
            )  # fmt: skip
        position, lane = read
        if position.target_id != self.targets[at.topic].topic_id:
            raise RefusedError(
                f"{at.topic} is not the topic that was restored: it has another id",
                "it was deleted and created again since",
                "restore into it again, then run this command",
                topic=at.topic,
            )
        if self._log_ends.get(at, -1) >= self._written.get(at, 0):
            raise RefusedError(
                f"{at}: not all that was restored can be read",
                f"a transaction has been open since offset {self.spans[at].end_offset}",
                "run the command again once it has ended; if it stays open, see "
        "kafka-transactions.sh find-hanging",
                **at.place,
            )  # fmt: skip
        ends = [None if (facts := inventory.facts(files)) is None else facts.last_offset + 1
                for files in sets]  # fmt: skip
        end = None if None in ends else max((one for one in ends if one is not None), default=0)
        policy = self.configs.get(at.topic, {}).get("cleanup.policy", "delete")
        return RestoredPartition(
            position, lane, translations(position, lane, self._rows), sets, end, self.spans[at],
            is_compacted="compact" in policy,
        )  # fmt: skip

    def _by_rows(
        self,
        where: TopicPartition,
        at: TopicPartition,
        rows: Sequence[Translation],
        sets: Sequence[FileSet],
    ) -> tuple[RestorePosition, Lane] | None:
        """Return where the restore stood, by its rows alone; None where these leave it open."""
        known = [self.inventory.facts(files) for files in sets]
        firsts = [one.first_offset for one in known if one is not None]
        # they are stored by its group, whose name says what it was asked for, if nobody gave it one
        is_plain = self.settings.group is None and not self._asked(at.topic)
        is_known = len(firsts) == len(sets) and all(files.is_whole for files in sets)
        # the first may be missing; were the last, it would look like a restore that has not ended
        if not (is_plain and is_known) or rows[0].first > min(firsts):
            return None
        if any(one.last >= two.first for one, two in pairwise(rows)):
            return None
        reached = rows[-1].last + 1
        position = RestorePosition(
            RestoreSource("", where, self.inventory.identity(where)),
            self.targets[at.topic].topic_id,
            Cursor(reached, reached),
            ids=() if self.settings.schema_registry_url else None,
        )
        return position, Lane(at, Span(rows[0].target_first, rows[-1].target_last + 1))


def _read(
    committed: Mapping[TopicPartition, Position],
) -> dict[TopicPartition, tuple[RestorePosition, Lane]]:
    """Return what positions say, those left out that no restore has committed."""
    found = {at: RestorePosition.read(at, one) for at, one in committed.items()}
    return {at: read for at, read in found.items() if read is not None}


def why_spread(settings: Settings) -> str | None:
    """Return why records of a partition may stand in several of the target; None if in one."""
    if settings.partition_map != "same":
        return "--partition-map spreads a partition's records over several"
    if choose_topics(settings.transforms):
        return "transforms choose a topic for each record"
    return None


def end_of_written(lane: Lane, rows: Sequence[Translation]) -> int:
    """Return where the log of a target ends at least, by a position in it and the rows of it."""
    return max([lane.log.end_offset, *(row.target_last + 1 for row in rows[-1:])])


def translations(
    position: RestorePosition,
    lane: Lane,
    stored: Mapping[TopicPartition, Sequence[TranslatedEntry]],
) -> tuple[Translation, ...]:
    """Return the rows of one restored partition, in order: beside its position, and stored.

    Rows of an earlier restore, which this one does not go on from, stand before its beginning.
    """
    own = _of(position.source.where, position.target_id, stored.get(lane.target, ()))
    every = own.union(position.translated)
    # a restore that goes on stores rows of what it committed after its position was read here
    reached = position.cursor.reached
    kept = (row for row in every if row.target_first >= lane.log.start_offset)
    return tuple(sorted(row for row in kept if row.first < reached))


def _of(
    source: TopicPartition, target_id: str, rows: Iterable[TranslatedEntry]
) -> set[Translation]:
    """Return those of a partition's rows that are about one of the backup, and the topic there."""
    about = target_id, source.topic, source.partition
    return {
        row.translation
        for row in rows
        if (row.target_id, row.source_topic, row.source_partition) == about
    }


def removed_since(inventory: Inventory, of: RestoredPartition) -> Sequence[FileSet]:
    """Return the sets that a restore has read, and that were removed on purpose since."""
    absent = of.position.absent or ()
    return [
        files
        for files in inventory.removed(of.source)
        if files.begin < of.position.cursor.reached
        and not any(files.begin in span for span in absent)
    ]


@dataclass(slots=True)
class NotRestored:
    """What a restore that goes on at damage has left out: objects, by their ids, and records."""

    objects: set[str] = field(default_factory=set)
    records: int = 0


def written(
    store: Store,
    job: RestoreJob,
    of: RestoredPartition,
    window: Window,
    offsets: Span,
    left: NotRestored,
    kept: Kept | None = None,
) -> Iterator[pa.RecordBatch | StoredBatches]:
    """Yield what a restore has written, as it was written, each with its offset of the backup.

    *left* takes what is not among them.  If they cannot be read, or a record could not have been
    written, it raises `KbackupError`.  Batches that are *kept* come as they are stored: those of a
    restore that `RestoreJob.keeps_batches`.
    """
    records = RecordFilter(job, of.unit(window))
    reading = Reading(store, job.reads(of.target.topic), of.position.source.identity)
    found = merging.steps(
        reading, of.sets, offset=offsets.start_offset, wanted=window.offset, kept=kept
    )
    for step in found:
        if isinstance(step, StoredBatches):
            if step.batches.next_offset <= offsets.end_offset:
                yield step
            elif step.batches.first_offset < offsets.end_offset:
                for rows in unpacked(step.files, step.batches, reading.options):
                    yield rows.filter(pc.less(rows["offset"], offsets.end_offset))
        if isinstance(step, Failed):
            if job.on_error == "fail" or isinstance(step.error, RefusedError):
                raise step.error
            left.objects.add(step.files.id)
        if isinstance(step, Skipped):
            is_asked = window.offset.meets(step.lost.offset, step.lost.offset)
            left.records += step.lost.records if is_asked else 0
        if isinstance(step, StoredRows):
            offset = step.batch["offset"]
            is_in = pc.less(offset, offsets.end_offset)
            batch = step.batch.filter(
                pc.and_(is_in, pc.greater_equal(offset, offsets.start_offset))
            )
            chosen = records.apply(batch, step.files, job.max_record_bytes)
            if chosen.error is not None:
                raise chosen.error
            left.records += chosen.counts["bad_records"]
            yield chosen.batch
