"""The partitions that the restore of one topic writes to, and where it stands in each of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kbackup.backup.file_sets import FileSet
from kbackup.backup.window import EVERYTHING, Window
from kbackup.naming import Layout
from kbackup.records import TopicPartition
from kbackup.reports import Source
from kbackup.restore.job import Lane, RestoreUnit
from kbackup.restore.partition_map import PartitionMap
from kbackup.restore.planning.held import Held
from kbackup.restore.planning.safety import Target
from kbackup.restore.planning.standing import Standing, judge, united


class Lanes:
    """The partitions of one target, and which of the backup's go to each of them.

    Args:
        topic: The target.
        count: How many partitions it has, or is created with.
        held: What the targets hold.
        partition_map: Which partitions go where.
        sources: What is restored; where partitions share targets, all partitions of the backup.
        layout: How objects are named.

    Attributes:
        count: How many partitions the target has, or is created with.
    """

    def __init__(
        self,
        topic: str,
        count: int,
        held: Held,
        partition_map: PartitionMap,
        sources: Mapping[TopicPartition, Source],
        layout: Layout,
    ) -> None:
        self._topic, self.count = topic, count
        self._held, self._map, self._sources = held, partition_map, sources
        self._found = {where: self._judged(where, layout) for where in sources}
        self._standings = {
            where: united(found) if found else Standing() for where, found in self._found.items()
        }

    @property
    def standings(self) -> Collection[Standing]:
        """Where the restore of each partition of the backup stands."""
        return self._standings.values()

    def standing(self, where: TopicPartition) -> Standing:
        """Return where the restore of a partition of the backup stands."""
        return self._standings[where]

    def target(self) -> Target:
        """Return the target as it stands."""
        found = [each for lanes in self._found.values() for each in lanes.values()]
        if not self._map.is_same:
            has_written = any(each.has_written for each in found)
            return self._held.shared_target(self._topic, self.standings, has_written=has_written)
        return self._held.target(
            self._topic, {at: each for lanes in self._found.values() for at, each in lanes.items()}
        )

    def unit(
        self,
        where: TopicPartition,
        sets: Sequence[FileSet] = (),
        *,
        first_offset: int = 0,
        before: str = "",
        max_message_bytes: int | None = None,
        window: Window = EVERYTHING,
    ) -> RestoreUnit:
        """Return what a task has to do for a partition of the backup.

        Args:
            where: The partition.
            sets: What is left of it.
            first_offset: Of the backup.
            before: Digest of the value sets that are done.
            max_message_bytes: Largest record the target takes; None for what the broker says.
            window: Which of the records are restored.
        """
        group, source = self._map.group_of(where.partition), self._sources[where]
        begins = self._standings[where].bookmark is None
        found = {} if begins else self._found[where]
        home, *others = (
            Lane(
                at,
                self._held.bookmark(found.get(at, Standing()), source, at, first_offset),
                self._held.position(group, at),
            )
            for at in self._targets(where)
        )
        return RestoreUnit(
            home.target, tuple(sets), home.bookmark, home.committed, begins, before,
            max_message_bytes, window, None if self._map.is_same else group, tuple(others),
        )  # fmt: skip

    def beginnings(self, units: Collection[RestoreUnit]) -> tuple[RestoreUnit, ...]:
        """Return the beginnings to commit before any record of *units* is written.

        They are those of all partitions that share targets, with objects or without: one that gets
        its first object later has a position then.
        """
        if self._map.is_same or not units:
            return ()
        planned = {unit.source: replace(unit, sets=()) for unit in units}
        return tuple(
            planned[where] if where in planned else self.unit(where)
            for where, standing in self._standings.items()
            if standing.bookmark is None
        )

    def _targets(self, where: TopicPartition) -> list[TopicPartition]:
        return self._map.targets(where, self._topic, self.count)

    def _judged(self, where: TopicPartition, layout: Layout) -> dict[TopicPartition, Standing]:
        """Return where one partition's restore stands in each that it writes to and that exists."""
        group = self._map.group_of(where.partition)
        logs = (self._held.log(at) for at in self._targets(where))
        return {
            log.where: judge(
                self._held.position(group, log.where), self._sources[where], log,
                group=group, layout=layout,
            )
            for log in logs
            if log is not None
        }  # fmt: skip
