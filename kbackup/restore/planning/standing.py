"""What a committed position means for a target as it stands now: a pure function.

A position is worth something only where the log it was committed to is still there.  It is
compared with what is to be restored, and with the target, before "done" or "nothing new" is said.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kbackup.errors import KbackupError, RefusedError, TopicChangedError
from kbackup.kafka import Position
from kbackup.naming import Layout
from kbackup.records import Span, TopicPartition
from kbackup.reports import Bookmark, Mark, Source


@dataclass(frozen=True, slots=True)
class Log:
    """A target partition before a restore.

    Attributes:
        where: The partition.
        topic_id: The topic's id; empty where the cluster has none.
        span: From its log start to its end offset, open transactions included.
    """

    where: TopicPartition
    topic_id: str
    span: Span


LEFT_OUT: Final = "left_out"
"""The code of the warning that a partition lacks what an earlier run passed over."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a restore finds in one target partition.

    Attributes:
        bookmark: Where this restore continues; None where it has to begin.
        refusal: Why it must do neither.
        warning: Code and sentence for the operator; None where there is nothing to say.
    """

    bookmark: Bookmark[Mark] | None = None
    refusal: KbackupError | None = None
    warning: tuple[str, str] | None = None

    @property
    def has_written(self) -> bool:
        """Whether records were restored up to the bookmark, as far as it says."""
        log = None if self.bookmark is None else self.bookmark.of.log
        return log is not None and len(log) > 0


def judge(
    found: Position | None, source: Source, log: Log, *, group: str, layout: Layout
) -> Standing:
    """Return where a restore of *source* stands in *log*.

    Args:
        found: The group's position in the target partition.
        source: What is to be restored.
        log: The target as it stands.
        group: The consumer group, for the sentences.
        layout: How objects are named: an early version kept a key.
    """
    if found is None:
        return Standing()
    bookmark = Mark.read(found, layout)
    if bookmark is None:
        return Standing(refusal=_of_others(group, log.where))
    if bookmark.of.source.conflicts(source):
        return Standing()
    stood = bookmark.of.log
    return _early(bookmark, log) if stood is None else _in_log(bookmark, stood, log)


def united(found: Mapping[TopicPartition, Standing]) -> Standing:
    """Return where the restore of one source stands whose records go to several partitions.

    Its positions in them are committed together.  Where some of these are worth nothing any more,
    it can begin anew only if the others have none of its records.

    Args:
        found: Where it stands in each; at least one.
    """
    refused = next((each for each in found.values() if each.refusal is not None), None)
    if refused is not None:
        return refused
    known = {where: at for where, each in found.items() if (at := each.bookmark) is not None}
    gone = [where for where in found if where not in known]
    written = [where for where, each in found.items() if each.has_written]
    warning = next((each.warning for each in found.values() if each.warning is not None), None)
    if gone and written:
        why = f"it no longer has its part of what was restored to {written[0]} and others"
        return Standing(refusal=_changed(gone[0], why))
    if gone:
        return Standing(warning=warning)
    if len({bookmark.of.place for bookmark in known.values()}) > 1:
        why = "the positions in the partitions of its topic do not agree: they were moved"
        return Standing(refusal=_changed(next(iter(found)), why))
    return Standing(next(iter(known.values())), warning=warning)


def _in_log(bookmark: Bookmark[Mark], stood: Span, log: Log) -> Standing:
    """Judge a position of this restore by where the log stood, and where it stands."""
    mark = bookmark.of
    if mark.target_id and log.topic_id and mark.target_id != log.topic_id:
        return _anew(log, "target_recreated", "was deleted and created again")
    if not len(stood):  # nothing was written yet, so nothing can be gone
        return Standing(bookmark)
    if not len(log.span):
        return _anew(log, "target_emptied", "has been emptied")
    why = None
    if log.span.end_offset < stood.end_offset:
        why = (
            f"its log ends at offset {log.span.end_offset}, but ended at {stood.end_offset} when "
            "this restore wrote to it"
        )
    elif log.span.start_offset > stood.start_offset:
        why = (
            f"its log begins at offset {log.span.start_offset}, but this restore has written "
            f"from {stood.start_offset} on"
        )
    if why is not None:
        return Standing(refusal=_changed(log.where, why))
    return Standing(bookmark, warning=_left_out(log.where) if mark.total is None else None)


def _left_out(where: TopicPartition) -> tuple[str, str]:
    text = (
        f"{where}: an earlier run of this restore left out what was damaged, and this one "
        "continues after it; once that is repaired, restore into a new topic to get its "
        "records"
    )
    return LEFT_OUT, text


def _early(bookmark: Bookmark[Mark], log: Log) -> Standing:
    """Judge a position of a version that did not keep where the log stood."""
    has_written = bool(bookmark.done.records) or bookmark.of.place.rows > 0
    if has_written and not len(log.span):
        return _anew(log, "target_emptied", "has been emptied")
    if log.span.start_offset:
        text = (
            f"{log.where}: its log begins at offset {log.span.start_offset}; an earlier version "
            "of kbackup restored to it, and cannot say whether restored records were deleted"
        )
        return Standing(bookmark, warning=("target_start", text))
    return Standing(bookmark)


def _anew(log: Log, code: str, what: str) -> Standing:
    text = f"{log.where} {what} since it was restored: the restore starts over"
    return Standing(warning=(code, text))


def _changed(where: TopicPartition, why: str) -> TopicChangedError:
    return TopicChangedError(
        f"{where} has lost records that were restored to it",
        why,
        "restore into a new topic with --rename, or delete this one first",
        topic=where.topic,
        partition=where.partition,
    )


def _of_others(group: str, where: TopicPartition) -> RefusedError:
    return RefusedError(
        f"consumer group {group} has a position in {where} that no restore committed",
        "a sink or a consumer uses the group and would lose its place, or somebody has moved it",
        "choose another --group; where it was moved, restore into a new topic with --rename",
        topic=where.topic,
        partition=where.partition,
    )
