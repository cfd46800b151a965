"""Where a partition's backup continues: a pure function of the state of group, bucket and log.

The group's committed offset and the bucket must agree, or a gap could arise unnoticed:
offsets can be reset, expire, or be moved ahead, and objects can be deleted.
"""

from dataclasses import dataclass, field, replace

from kbackup.errors import KbackupError, TopicChangedError
from kbackup.kafka import Position
from kbackup.records import Span, TopicIdentity, TopicPartition, joined, without
from kbackup.runs.report import HeldUp
from kbackup.sink.held import HeldCut, Inherited, around, misplaced, unreachable, untold


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one partition before a run.

    Attributes:
        log: From the log's start to the end offset to back up to.
        committed: The group's position, None if there is none.
        is_confirmed: The object that was committed with the position is in the bucket.
        stored_to: The offset after the last record of the bucket's last object; None if the
            bucket has no object of this partition, or the offset is unknown.
        has_objects: The bucket holds objects of this partition.
        identities: The topics that the position and the examined objects belong to.
        reached: How far this run already is, when it plans again; None before it has begun.
        known_to: The offset before which everything was once stored, according to the ledger,
            whether or not it still is; None if the ledger does not know the partition.
        kept: The offsets for which the bucket holds everything there was, and known gaps,
            according to the ledger and to what a run stored but died before entering; empty if
            neither was read.
        lost: The offsets of objects that the ledger knows and the bucket lacks, and that nobody has
            accepted as removed.
        unentered: The bucket's objects that the ledger lacks, each with its start offset.
        is_astray: The pointer of a dated layout names another object than the newest.
        inherited: What another tool, whose objects are the newest, has left; why that cannot be
            known; None where nobody has left any, or the position is confirmed.
        held: The cuts that the bucket holds, in order; empty where the position is confirmed.
        untold_to: The offset up to which there are values of another tool that do not say where
            they end; None where there are none.
        stores_values: Values are going to be written, not full records.
        held_up: The open transaction that *log* ends in front of; None where there is none.
    """

    log: Span
    committed: Position | None = None
    is_confirmed: bool = False
    stored_to: int | None = None
    has_objects: bool = False
    identities: tuple[TopicIdentity, ...] = ()
    reached: int | None = None
    known_to: int | None = None
    kept: tuple[Span, ...] = ()
    lost: tuple[Span, ...] = ()
    unentered: tuple[tuple[int, str], ...] = ()
    is_astray: bool = False
    inherited: Inherited | KbackupError | None = None
    held: tuple[HeldCut, ...] = ()
    untold_to: int | None = None
    stores_values: bool = False
    held_up: HeldUp | None = None

    @property
    def again(self) -> tuple[HeldCut, ...]:
        """The cuts that would be written again as they are."""
        return tuple(cut for cut in self.held if cut.is_same)

    @property
    def end(self) -> int:
        """Where the log ends, behind open transactions too."""
        return self.log.end_offset if self.held_up is None else self.held_up.end


@dataclass(frozen=True, slots=True)
class Start:
    """Where to continue.

    Attributes:
        offset: The first offset to read.
        expired: Offsets that the cluster deleted before they were backed up.
        warnings: Codes and sentences for the operator.
        moves_group: The group is ahead of *offset* and must be set back first.
    """

    offset: int
    expired: tuple[Span, ...] = ()
    warnings: tuple[tuple[str, str], ...] = field(default=())
    moves_group: bool = False


def decide(where: TopicPartition, seen: Evidence, *, reset: str) -> Start:
    """Decide where the backup of *where* continues: never so that values are stored twice.

    Args:
        where: For the messages.
        seen: The state of group, bucket and log.
        reset: ``earliest`` or ``latest``: where an unknown partition begins.

    Raises:
        TopicChangedError: If the log ends before the end of the backup: another topic of that name.
        CorruptObjectError: If the object that would show where another tool stopped is damaged.
        RefusedError: If values would be stored twice.
        StoreError: If that object may not be read.
    """
    start = _past_held(where, seen, _decide(where, seen, reset))
    if not seen.stores_values:
        return start
    if seen.untold_to is not None and seen.inherited is None and start.offset < seen.untold_to:
        raise untold(where, start.offset, seen.untold_to)
    others = (cut for cut in seen.held if cut.end > start.offset and not cut.is_same)
    strange = next((cut for cut in others if cut.is_values or cut.start < start.offset), None)
    if strange is not None:
        raise misplaced(where, start.offset, strange)
    cut = around(seen.again, start.offset)
    if cut is None:
        return start
    said = f"{where}: offset {start.offset} is in the middle of a cut of values"
    if cut.start >= seen.log.start_offset:
        offset = cut.start
        text = f"{said}: writing again what begins at {offset}, under the same names"
    elif cut.is_whole:
        offset = cut.end
        text = f"{said}, the log has lost its beginning, and the bucket has all of it: "
        text += f"continuing at {offset}"
    else:
        raise unreachable(where, cut, seen.log.start_offset)
    moves = seen.committed is not None and seen.committed.offset > offset
    warnings = (*start.warnings, ("group_behind", text))
    return replace(start, offset=offset, warnings=warnings, moves_group=moves)


def _past_held(where: TopicPartition, seen: Evidence, start: Start) -> Start:
    """Return *start*, or the end of what is stored where nothing is left to do before it.

    A group may be behind what is stored: it was set back, another group backs up to the same place,
    or a run died before it committed.  Full records are stored again, and a restore compares them
    by offset.  Where values are or would be among them, and nothing is missing, the backup
    continues after all that is there; in the middle of a cut that is for `decide` to judge.
    """
    position, end = seen.committed, seen.stored_to
    if position is None or end is None or start.offset >= end:
        return start
    behind = [cut for cut in seen.held if cut.end > start.offset]
    if not seen.stores_values and not any(cut.is_values for cut in behind):
        return start
    is_inside = any(cut.start < start.offset for cut in behind)
    if is_inside or without(Span(start.offset, end), seen.kept):
        return start
    if end > seen.end:
        raise _cut_back(where, seen.end, end)
    text = (
        f"{where}: the group's offset is {position.offset}, but the bucket holds all up to {end}: "
        "continuing there, so that no record is stored twice"
    )
    warnings = (*start.warnings, ("group_behind", text))
    return replace(start, offset=end, warnings=warnings, moves_group=False)


def _cut_back(where: TopicPartition, end: int, reached: int) -> TopicChangedError:
    return TopicChangedError(
        f"{where} ends at offset {end}, but was backed up to {reached}",
        "the topic was deleted and created again, or its log was cut back",
        "back the new topic up to another topics.dir; what is stored stays as it is",
        topic=where.topic,
        partition=where.partition,
    )


def _decide(where: TopicPartition, seen: Evidence, reset: str) -> Start:
    wanted, warnings = _wanted(where, seen)
    warnings += _astray(where, seen)
    if wanted is None:
        wanted = seen.reached  # what expired since this run began is a gap, though it was not known
    if wanted is None:
        # reset applies to a first start only
        is_new = seen.committed is None and not seen.has_objects and seen.known_to is None
        is_news_only = is_new and reset == "latest"
        first = seen.log.end_offset if is_news_only else seen.log.start_offset
        known_to = seen.known_to
        if known_to is None and seen.committed is not None:
            known_to = seen.committed.offset  # only the group is known
        known = first if known_to is None else known_to
        # Of what had been stored before, what is missing cannot be read any more.
        lost = [part for span in seen.lost for part in _expired(seen, _before(span, first))]
        expired = joined([*lost, *_expired(seen, Span(known, first))])
        return Start(first, expired, warnings, seen.committed is not None)
    if wanted > seen.end:
        raise _cut_back(where, seen.end, wanted)
    moves = seen.committed is not None and seen.committed.offset > wanted
    if wanted < seen.log.start_offset:
        expired = _expired(seen, Span(wanted, seen.log.start_offset))
        return Start(seen.log.start_offset, expired, warnings, moves)
    return Start(wanted, (), warnings, moves)


def _before(span: Span, end: int) -> Span:
    return Span(span.start_offset, min(span.end_offset, end))


def _astray(where: TopicPartition, seen: Evidence) -> tuple[tuple[str, str], ...]:
    """Warn that the pointer of a dated layout is to another object than the newest."""
    if not seen.is_astray:
        return ()
    text = (
        f"{where}: its last_chunk_index does not name the newest object in the bucket: it decides "
        "nothing here, and is set right with the next object"
    )
    return (("pointer_astray", text),)


def _expired(seen: Evidence, span: Span) -> tuple[Span, ...]:
    """Return the part of *span*, which the log no longer has, that is lost.

    If the group was set back, to back offsets up again, nothing in the bucket is lost.
    """
    return without(span, seen.kept)


def _wanted(
    where: TopicPartition, seen: Evidence
) -> tuple[int | None, tuple[tuple[str, str], ...]]:
    """The offset that leaves no gap, None for the beginning, and warnings about it."""
    if isinstance(seen.inherited, KbackupError):
        raise seen.inherited
    if seen.inherited is not None:
        if seen.inherited.reached > seen.end:
            raise _cut_back(where, seen.end, seen.inherited.reached)
        committed = None if seen.committed is None else seen.committed.offset
        return seen.inherited.start(where, committed, seen.log.start_offset)
    if seen.committed is None:
        return _wanted_by_bucket(where, seen)
    committed = seen.committed.offset
    if seen.is_confirmed:
        return committed, ()
    if not seen.has_objects:
        text = (
            f"{where}: the group's offset is {committed}, but the bucket holds nothing of it: "
            "starting at the beginning"
        )
        return None, (("bucket_behind", text),)
    if seen.stored_to is None or seen.stored_to >= committed:
        return committed, ()
    text = (
        f"{where}: the group's offset is {committed}, but the bucket ends at {seen.stored_to}: "
        "continuing there, so that no hole appears"
    )
    return seen.stored_to, (("bucket_behind", text),)


def _wanted_by_bucket(
    where: TopicPartition, seen: Evidence
) -> tuple[int | None, tuple[tuple[str, str], ...]]:
    """The same where the group has no offset."""
    if seen.stored_to is not None:
        text = (
            f"{where}: the group has no offset (they expire), the bucket ends at "
            f"{seen.stored_to}: continuing there"
        )
        return seen.stored_to, (("offset_missing", text),)
    if not seen.has_objects:
        return None, ()
    text = (
        f"{where}: the group has no offset, and the bucket's objects do not show where they end: "
        "starting at the beginning"
    )
    return None, (("offset_missing", text),)
