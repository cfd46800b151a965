"""What a run of the sink would do: plain data, made by `planner`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kbackup.errors import KbackupError
from kbackup.kafka import Position, Topic
from kbackup.records import UNKNOWN, Span, TopicIdentity, TopicPartition
from kbackup.reports import Bookmark, LastObject
from kbackup.runs.known import NOTHING, Known
from kbackup.sink.held import Again, HeldCut, onward
from kbackup.sink.inherited import Inherited
from kbackup.sink.job import SinkUnit
from kbackup.sink.start import Evidence, Start


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """One partition: where its backup continues, or why it cannot.

    Attributes:
        where: The partition.
        seen: What group, bucket and log show.
        start: Where to continue; None with *refusal*.
        refusal: Why nothing may be done with it.
        identity: Which topic it is.
        keeps_start: A later run would begin elsewhere if nothing said where this one did.
    """

    where: TopicPartition
    seen: Evidence
    start: Start | None
    refusal: KbackupError | None = None
    identity: TopicIdentity = UNKNOWN
    keeps_start: bool = False

    @property
    def state(self) -> str:
        """One word for people: what is to be done, or why there is nothing."""
        if self.start is None:
            return "refused"
        if self.start.offset < self.seen.log.end_offset:
            return "to do"
        if self.seen.held_up is not None:
            return "held up"
        if len(self.seen.log) == 0:
            return "emptied" if self.seen.log.end_offset else "empty"
        return "up to date"

    def unit(self) -> SinkUnit | None:
        """Return what a task has to do, None where there is nothing."""
        if self.start is None or self.start.offset >= self.seen.log.end_offset:
            return None
        stands = self.position() or self.seen.committed
        keeps = stands is not None and stands.offset == self.start.offset
        bookmark = LastObject.beside(stands) if keeps else None
        span = Span(self.start.offset, self.seen.log.end_offset)
        return SinkUnit(self.where, span, bookmark, self.identity, self._held())

    def _held(self) -> tuple[HeldCut, ...]:
        """Return the cuts of values in the bucket that are stored a second time."""
        return () if self.start is None else onward(self.seen.again, self.start.offset)

    def followed(self) -> SinkUnit | None:
        """Return what a task that follows begins with, None where there is nothing to begin."""
        if self.start is None:
            return None
        if (unit := self.unit()) is not None:
            start = self.start.offset
            kept = tuple(span for span in self.seen.kept if span.end_offset > start)
            return replace(unit, kept=kept)
        bookmark = LastObject.beside(self.seen.committed)
        start = self.start.offset
        return SinkUnit(self.where, Span(start, start), bookmark, self.identity)

    def position(self) -> Position | None:
        """Return what to set the group to before anything is read; None if it is right.

        It is set back where it is too far ahead, and forward past what has expired: the next run
        need not find that out again.
        """
        if self.start is None:
            return None
        committed = self.seen.committed
        is_left_behind = committed is not None and committed.offset < self.start.offset
        if self.start.expired or is_left_behind:
            if self.seen.is_confirmed and (bookmark := LastObject.beside(committed)) is not None:
                return bookmark.position(self.start.offset)
            if not self.start.expired and self.seen.has_objects:
                return Position(self.start.offset)  # the next run compares it with the bucket
            again_to = Again(self.where, self._held()).to(self.start.offset)
            return self._empty(self.start.offset, again_to)
        if self.start.moves_group:
            return Position(self.start.offset)
        return self._first() if committed is None else self._counted(committed)

    def _first(self) -> Position | None:
        """Return the first position of a group that has none, where it needs one at once."""
        assert self.start is not None  # noqa: S101
        is_new = not self.seen.has_objects
        if is_new and (self.start.offset > self.seen.log.start_offset or self.keeps_start):
            # the next run has to begin here too, whether or not there was anything to store
            return self._empty(self.start.offset)
        # else every run that has nothing to do would have to warn of where it begins
        is_told = self.start.warnings and self.start.offset >= self.seen.log.end_offset
        return Position(self.start.offset) if is_told else None

    def _empty(self, offset: int, again_to: int | None = None) -> Position:
        """Return a position before which nothing has been stored."""
        return Bookmark(LastObject(identity=self.identity, again_to=again_to)).position(offset)

    def _counted(self, committed: Position) -> Position | None:
        """Return the group's own position with the object that was found to end there.

        It was counted, or is the one that an earlier version named without saying of which offset.
        The next run then need only see that the object is there.
        """
        left = self.seen.inherited
        if not isinstance(left, Inherited):
            bookmark = LastObject.beside(committed)
            agrees = self.seen.stored_to == committed.offset
            if bookmark is None or bookmark.at is not None or not agrees:
                return None
            return bookmark.position(committed.offset)
        if left.counted[0].start_offset >= committed.offset:
            return None  # it is to be written again, so it is not what was stored last
        bookmark = Bookmark(LastObject(left.counted[0].key, identity=self.identity))
        return bookmark.position(committed.offset)


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What a run would do.

    Attributes:
        topics: The topics, as the cluster has them.
        partitions: Each partition of theirs that was asked for.
        group: The consumer group that keeps the positions.
        known: What the backup says about itself.
    """

    topics: Mapping[str, Topic]
    partitions: tuple[PlannedPartition, ...]
    group: str
    known: Known = NOTHING

    def units(self) -> list[SinkUnit]:
        """Return what tasks have to do, the largest share first."""
        units = [unit for at in self.partitions if (unit := at.unit()) is not None]
        return sorted(units, key=lambda unit: len(unit.span), reverse=True)
