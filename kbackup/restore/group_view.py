"""A restore as consumer groups see it: where one goes on that stood somewhere in the backup.

By time, where nothing tells it exactly: at the first record of the target that is not older than
the first one that the group had not read.  Of several partitions of the backup that share one of
the target the oldest such record counts.  Records whose times do not follow their offsets may be
read again, or not at all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from kbackup.catalog.groups import GroupEntry
from kbackup.clock import shown_ms
from kbackup.errors import KbackupError, RefusedError
from kbackup.kafka import Cluster
from kbackup.naming.renaming import rename
from kbackup.records import TopicIdentity, TopicPartition
from kbackup.restore.restored import BY_HAND, Restored, RestoredPartition
from kbackup.restore.settle import deletes_older_than
from kbackup.restore.translate import InexactError, Translated, Translator
from kbackup.stores import Store

Learned = dict[tuple[TopicPartition, str, int], Translated]
"""Offsets of the backup that are translated, by the target's partition, and its topic's id."""


class GroupView:
    """Translates offsets of groups.

    Args:
        restored: What was restored.
        cluster: The target.
        store: Where the backup is.
        by_time: Go by the times of records where nothing tells it exactly.
        known: What another one has learned of the same restore, earlier.

    Attributes:
        group: The restore's own, which keeps its positions.
        damage: Files that cannot be read, of what the restore is known by.
        topics: All topics of the backup, those that are not asked for too.
        learned: What this one has been asked, as far as the answer holds later too.
    """

    def __init__(
        self, restored: Restored, cluster: Cluster, store: Store, *, by_time: bool = False,
        known: Learned | None = None,
    ) -> None:  # fmt: skip
        self._restored, self._cluster, self._by_time = restored, cluster, by_time
        self._translator = Translator(restored.job, restored.inventory, store)
        self.damage, self.group = restored.damage, restored.map.group
        self.topics = sorted(restored.inventory.known.names)
        self._known, self.learned = known or {}, Learned()

    @property
    def bad_objects(self) -> int:
        """How many objects the restore has left out of those that were read here."""
        return len(self._translator.left.objects)

    def close(self) -> None:
        """Leave the cluster."""
        self._translator.close()

    def translated(
        self, rows: Sequence[GroupEntry]
    ) -> Iterator[tuple[GroupEntry, TopicPartition, Translated | KbackupError]]:
        """Yield where a group goes on, or why that cannot be told.

        Args:
            rows: Where it stood in the partitions of one topic.

        Yields:
            A row of *rows*, a partition of the target, and where the group goes on there.
        """
        if not self._restored.map.is_same:
            yield from self._spread(rows)
            return
        for row in rows:
            at = self._restored.target(row.where)
            try:
                yield row, at, self._translate(row, at)
            except KbackupError as error:
                yield row, at, error

    def _translate(self, row: GroupEntry, at: TopicPartition) -> Translated:
        of, offset = self._partition(row, at), row.offset or 0
        if of is None:
            return self._begins(at, "nothing of it is in the backup")
        key = at, of.position.target_id, offset
        found = self._known.get(key)
        try:
            if found is None or found.offset < of.span.start_offset:
                found = self._translator.translate(of, offset)
        except InexactError:
            if not self._by_time:
                raise
            return self._approximate(of, at, offset)
        if not found.note:  # else it may be told better once the copy has more
            self.learned[key] = found
        return found

    def _approximate(self, of: RestoredPartition, at: TopicPartition, offset: int) -> Translated:
        found, begin = self._at_time(at, self._moment(of, offset)), of.lane.log.start_offset
        return found if found.offset >= begin else replace(found, offset=begin)

    def _partition(self, row: GroupEntry, at: TopicPartition) -> RestoredPartition | None:
        """Return what was restored of a partition that a group stood in; None: nothing of it is.

        Raises:
            RefusedError: If it was not restored, or is another one.
        """
        if at not in self._restored.spans:
            raise RefusedError(
                f"there is no {at} to set an offset in",
                "it has not been restored to this cluster",
                "give the renaming that the restore was given, or restore it first",
                topic=at.topic, partition=at.partition,
            )  # fmt: skip
        of = self._restored.partition(row.where)
        stood = TopicIdentity(row.cluster_id or "", row.topic_id or "")
        if of is not None and stood.conflicts(of.position.source.identity):
            raise RefusedError(
                f"{row.where}: group {row.group} stood in another topic of this name",
                "the topic was deleted and created again between the backup and the capture",
                "run the sink again, then restore, then this command",
                topic=row.where.topic, partition=row.where.partition,
            )  # fmt: skip
        return of

    def added(self, topic: str) -> Iterator[tuple[TopicPartition, Translated]]:
        """Yield partitions of the target that the source never had: all of them is unread."""
        entry = self._restored.inventory.known.topics.get(topic)
        there = self._restored.targets.get(rename(topic, self._restored.settings.renames))
        had = None if entry is None else entry.partitions
        if not self._restored.map.is_same or had is None or there is None:
            return
        for partition in range(had, there.partitions):
            at = TopicPartition(there.name, partition)
            yield at, self._begins(at, "the source has no such partition")

    def unread(self, at: TopicPartition, offset: int) -> int:
        """Return the lag that Kafka shows of a group that stands there.

        It counts what open transactions have written, too.
        """
        return max(0, self._ends[at] - offset)

    def keeps_ms(self, topic: str) -> int | None:
        """Return for how long a topic of the backup kept records; None: for ever, or unknown."""
        entry = self._restored.inventory.known.topics.get(topic)
        return None if entry is None else deletes_older_than(entry.config)

    @cached_property
    def _ends(self) -> dict[TopicPartition, int]:
        return self._cluster.ends([*self._restored.spans])

    def _begins(self, at: TopicPartition, note: str) -> Translated:
        return Translated(self._restored.spans[at].start_offset, note=note)

    # by time

    def _spread(
        self, rows: Sequence[GroupEntry]
    ) -> Iterator[tuple[GroupEntry, TopicPartition, Translated | KbackupError]]:
        """Yield where a group goes on whose partitions of the backup share those of the target."""
        oldest: dict[TopicPartition, tuple[int | None, GroupEntry]] = {}
        for row in rows:
            ats = self._restored.spread(row.where)
            try:
                of = self._partition(row, ats[0])
                moment = None if of is None else self._moment(of, row.offset or 0)
            except KbackupError as error:
                yield row, ats[0], error
                continue
            for at in ats:
                least = oldest[at][0] if at in oldest else None
                if at not in oldest or _is_older(moment, least):
                    oldest[at] = moment, replace(row, metadata=None)  # which is about that one
        for at, (moment, row) in sorted(oldest.items(), key=lambda each: each[0]):
            yield row, at, self._at_time(at, moment)

    def _moment(self, of: RestoredPartition, offset: int) -> int | None:
        """Return the time to go by; None: all was read.

        Raises:
            RefusedError: If there is none.
        """
        if not self._restored.has_times(of.target.topic):
            raise RefusedError(
                f"{of.source}: offset {offset} cannot be translated by time",
                f"{of.target.topic} keeps the times of its writing: message.timestamp.type",
                BY_HAND,
                topic=of.source.topic, partition=of.source.partition,
            )  # fmt: skip
        return self._translator.moment(of, offset)

    def _at_time(self, at: TopicPartition, moment: int | None) -> Translated:
        span = self._restored.spans[at]
        if moment is None:
            return _near(span.end_offset, "approximate: all of the backup was read")
        found = self._cluster.first_since({at: moment}).get(at, span.end_offset)
        note = f"approximate, by time {shown_ms(moment)}: may repeat or skip"
        return _near(min(max(found, span.start_offset), span.end_offset), note)


def _near(offset: int, note: str) -> Translated:
    return Translated(offset, note=note, is_approximate=True)


def _is_older(moment: int | None, other: int | None) -> bool:
    """Whether a record to be read comes first; None where there is none."""
    return moment is not None and (other is None or moment < other)
