"""What the target cluster holds before a restore, asked once for all topics."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from kbackup.kafka import Position, Topic
from kbackup.records import Span, TopicPartition
from kbackup.reports import Bookmark, Mark, Place, Source
from kbackup.restore.planning.safety import Target
from kbackup.restore.planning.standing import Log, Standing


@dataclass(frozen=True, slots=True)
class Held:
    """The targets that exist.

    Attributes:
        topics: By name.
        spans: What each of their partitions holds, open transactions included.
        positions: The positions of each group in them, whoever committed these.
        configs: Settings, as far as they may be read.
    """

    topics: Mapping[str, Topic]
    spans: Mapping[TopicPartition, Span]
    positions: Mapping[str, Mapping[TopicPartition, Position]]
    configs: Mapping[str, Mapping[str, str]]

    def log(self, where: TopicPartition) -> Log | None:
        """Return a target partition, None where there is none yet."""
        topic, span = self.topics.get(where.topic), self.spans.get(where)
        return None if topic is None or span is None else Log(where, topic.topic_id, span)

    def position(self, group: str, where: TopicPartition) -> Position | None:
        """Return a group's position, None where it has none."""
        return self.positions.get(group, {}).get(where)

    def target(self, name: str, standings: Mapping[TopicPartition, Standing]) -> Target:
        """Return a target topic as it stands, each partition of which has one source.

        Args:
            name: The topic.
            standings: Where the restore stands in the partitions that it is to write to.
        """
        if name not in self.topics:
            return Target()
        own = {
            where
            for where, standing in standings.items()
            if standing.bookmark is not None or standing.refusal is not None
        }
        # a partition that someone else fills matters only if this restore is to write to it
        others = (standings.keys() if own else self._spans(name).keys()) - own
        filled = sum(len(self.spans[where]) for where in others if where.topic == name)
        partitions = self.topics[name].partitions
        return Target(partitions, filled, bool(own), self.configs.get(name))

    def shared_target(
        self, name: str, standings: Collection[Standing], *, has_written: bool
    ) -> Target:
        """Return a target topic as it stands, whose partitions have several sources.

        A restore commits all of its beginnings before its first record.  So a source without a
        position, once records of others are there, is one whose position was lost: its own
        records may be there too.

        Args:
            name: The topic.
            standings: Where the restore of each partition of the backup stands.
            has_written: Whether any of them has written records.
        """
        if name not in self.topics:
            return Target()
        known = [each.bookmark is not None or each.refusal is not None for each in standings]
        filled = 0
        if not all(known) and (has_written or not any(known)):
            filled = sum(map(len, self._spans(name).values()))
        return Target(self.topics[name].partitions, filled, any(known), self.configs.get(name))

    def _spans(self, name: str) -> dict[TopicPartition, Span]:
        """Return what the partitions of a topic hold that is there."""
        count = self.topics[name].partitions
        wheres = (TopicPartition(name, partition) for partition in range(count))
        return {where: self.spans[where] for where in wheres if where in self.spans}

    def bookmark(
        self, standing: Standing, source: Source, where: TopicPartition, first_offset: int
    ) -> Bookmark[Mark]:
        """Return the bookmark that a restore continues from, or begins with.

        Args:
            standing: Where the restore stands.
            source: What is restored.
            where: The target partition.
            first_offset: Of the backup.
        """
        log = self.log(where)
        found = standing.bookmark
        if found is None:  # what it writes comes after what the target holds
            end = 0 if log is None else log.span.end_offset
            topic = self.topics.get(where.topic)  # which may lack the partition still
            target_id = "" if topic is None else topic.topic_id
            return Bookmark(Mark(source, target_id, Span(end, end), Place(0, first_offset)))
        if found.of.log is None and log is not None:  # an early version did not keep it
            return replace(found, of=replace(found.of, log=log.span))
        return found
