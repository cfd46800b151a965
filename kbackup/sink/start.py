"""Where a partition's backup goes on: a pure function of what group, bucket and log say.

The group's committed offset and the bucket must agree, or a hole could arise that nobody sees:
offsets can be reset, expire, or be moved ahead, and objects can be deleted.
"""

from dataclasses import dataclass, field

from kbackup.errors import CorruptObjectError, TopicChangedError
from kbackup.kafka import Position
from kbackup.records import Span, TopicIdentity, TopicPartition, without
from kbackup.sink.inherited import Inherited


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one partition before a run.

    Attributes:
        log: From the log's start to the end offset to back up to.
        committed: The group's position, None without.
        is_confirmed: The object that was committed with the position is in the bucket.
        stored_to: The offset after the last record of the bucket's last object; None when the
            bucket has no object of this partition, or does not say.
        has_objects: The bucket holds objects of this partition.
        identities: Which topic the position and the objects looked at say they are of.
        reached: Where this run stands already, when it plans a second time; None before it
            has begun.
        known_to: The offset before which everything was stored once, going by the ledger, whether
            or not it still is; None where the ledger does not know the partition.
        kept: The offsets of which the bucket holds all there was, and known gaps, going by the
            ledger and by what a run stored and did not live to enter; empty where neither was
            asked.
        unentered: The bucket's objects that the ledger lacks, each with its start offset.
        is_astray: The pointer of a dated layout names another object than the newest.
        inherited: What another tool, whose objects are the newest, has left; why that cannot be
            known; None where nobody has left any, or the position is confirmed.
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
    unentered: tuple[tuple[int, str], ...] = ()
    is_astray: bool = False
    inherited: Inherited | CorruptObjectError | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Where to go on.

    Attributes:
        offset: The first offset to read.
        expired: Offsets that the cluster deleted before they were backed up.
        warnings: Codes and sentences for the operator.
        moves_group: The group stands ahead of *offset* and has to be set back first.
    """

    offset: int
    expired: tuple[Span, ...] = ()
    warnings: tuple[tuple[str, str], ...] = field(default=())
    moves_group: bool = False


def decide(where: TopicPartition, seen: Evidence, *, reset: str) -> Start:
    """Decide where the backup of *where* goes on.

    Args:
        where: For the sentences.
        seen: What group, bucket and log say.
        reset: ``earliest`` or ``latest``: where a partition begins that nobody knows.

    Raises:
        TopicChangedError: If the log ends before what was backed up: another topic of this name.
        CorruptObjectError: If the object that would show where another tool stopped is damaged.
    """
    wanted, warnings = _wanted(where, seen)
    warnings += _astray(where, seen)
    if wanted is None:
        wanted = seen.reached  # what expired since this run began is a gap, though nobody knew it
    if wanted is None:
        # reset serves a first start only
        is_new = seen.committed is None and not seen.has_objects and seen.known_to is None
        is_news_only = is_new and reset == "latest"
        first = seen.log.end_offset if is_news_only else seen.log.start_offset
        known_to = seen.known_to
        if known_to is None and seen.committed is not None:
            known_to = seen.committed.offset  # the group's word is all there is
        # What had been stored before *known_to* is missing.
        expired = () if known_to is None else _expired(seen, Span(known_to, first))
        return Start(first, expired, warnings, seen.committed is not None)
    if wanted > seen.log.end_offset:
        raise TopicChangedError(
            f"{where} ends at offset {seen.log.end_offset}, but was backed up to {wanted}",
            "the topic was deleted and created again, or its log was cut back",
            "back the new topic up to another topics.dir; what is stored stays as it is",
            topic=where.topic,
            partition=where.partition,
        )
    moves = seen.committed is not None and seen.committed.offset > wanted
    if wanted < seen.log.start_offset:
        expired = _expired(seen, Span(wanted, seen.log.start_offset))
        return Start(seen.log.start_offset, expired, warnings, moves)
    return Start(wanted, (), warnings, moves)


def _astray(where: TopicPartition, seen: Evidence) -> tuple[tuple[str, str], ...]:
    """Say that the pointer of a dated layout is of another object than the newest."""
    if not seen.is_astray:
        return ()
    text = (
        f"{where}: its last_chunk_index does not name the newest object in the bucket: it decides "
        "nothing here, and is set right with the next object"
    )
    return (("pointer_astray", text),)


def _expired(seen: Evidence, span: Span) -> tuple[Span, ...]:
    """Return what is lost of *span*, which the log no longer has.

    Somebody who sets the group back, to back offsets up again, loses nothing that is in the bucket.
    """
    return without(span, seen.kept)


def _wanted(
    where: TopicPartition, seen: Evidence
) -> tuple[int | None, tuple[tuple[str, str], ...]]:
    """The offset that leaves no hole, None for the beginning, and what to say of it."""
    if isinstance(seen.inherited, CorruptObjectError):
        raise seen.inherited
    if seen.inherited is not None:
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
