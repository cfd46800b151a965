"""What a restore's offset rests on: which backup, which target log, and how far it is.

The group's offset on the target partition is the next offset of the *backup*.  An offset alone
does not say which backup, which source and which target log it was about, so a mark does.  It
is bounded whatever the backup looks like: keys are kept as digests.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from kbackup.errors import NewerVersionError, ObjectKeyError
from kbackup.kafka import Position
from kbackup.naming import Layout
from kbackup.records import UNKNOWN, Span, TopicIdentity, TopicPartition
from kbackup.reports.bookmark import Bookmark
from kbackup.reports.done import Done

VERSION: Final = 2
"""Of the text.  Version 1, of kbackup 0.1 before it kept its source, named the object's key."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a position refers to in the backup.

    Attributes:
        backup: Digest of where the backup is.
        where: The partition that was backed up.
        identity: Which topic that was, as far as its objects say.
        window: Which of its records are restored; empty for all.
    """

    backup: str
    where: TopicPartition
    identity: TopicIdentity = UNKNOWN
    window: str = ""

    def conflicts(self, other: "Source") -> bool:
        """Whether this is known to be another source than *other*."""
        if self.window != other.window:
            return True
        if self.where != other.where or self.identity.conflicts(other.identity):
            return True
        return bool(self.backup and other.backup) and self.backup != other.backup


@dataclass(frozen=True, slots=True)
class Place:
    """How far a restore is in a partition.

    Whole records know their offsets: their progress is an offset, and an object that has grown is
    read again from there.  Rows of the connectors' layout do not: theirs is a number of rows.

    Attributes:
        offset: The next offset of whole records; all below it are done.
        reached: What is committed: the next offset of the backup, whole records or not.
        values: Digest of the key of the value set at hand; empty before the first.
        rows: Rows of that set that are done.
        before: Digest of all value sets before that one, as they were; None where a version
            committed the place that did not keep it.
        content: Digest of *rows* if their object has a name of any form; empty otherwise.
    """

    offset: int
    reached: int
    values: str = ""
    rows: int = 0
    before: str | None = ""
    content: str = ""


def digest(text: str) -> str:
    """Return a short digest of *text*."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Mark:
    """What a restore's offset rests on.

    Attributes:
        source: What is restored.
        target_id: Id of the target topic; empty where the cluster has none.
        log: Where the target's log stood: its end when this restore began in it, and what its
            end is at least since.  This restore's records are in between.
        place: How far it is.
        total: Whole records of the backup that it has finished, over all runs; None if that is not
            known, as after an object that was skipped.
        ids: Some of the schemas' ids that it found, each with its part, "key" or "value", and what
            it is in the target; None where it was given no Schema Registry.
        is_all: Whether *total* counts the records of all sets; else of those that hold records of
            the target, where transforms choose a topic for each record.
    """

    source: Source
    target_id: str
    log: Span | None
    place: Place
    total: int | None = 0
    ids: tuple[tuple[str, int, int], ...] | None = None
    is_all: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, but for the offset that is committed."""
        source, place, log = self.source, self.place, self.log
        return {
            "v": VERSION, "backup": source.backup,
            "source": [source.where.topic, source.where.partition],
            **({"window": source.window} if source.window else {}),
            **source.identity.to_metadata(), "target-id": self.target_id,
            "log": None if log is None else [log.start_offset, log.end_offset],
            "offset": place.offset, "values": place.values, "rows": place.rows,
            "before": place.before, "total": self.total,
            **({"content": place.content} if place.content else {}),
            **({} if self.ids is None else {"ids": self.ids}),
            **({} if self.is_all else {"all": False}),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], offset: int) -> Self:
        """Read what `to_dict` returned, committed beside *offset*.

        Raises:
            KeyError: If it is anything else.
            TypeError: Likewise.
            ValueError: Likewise.
        """
        topic, partition = data["source"]
        source = Source(
            data["backup"],
            TopicPartition(topic, partition),
            TopicIdentity.from_metadata(data),
            data.get("window", ""),
        )
        place = Place(
            data["offset"], offset, data["values"], data["rows"], data["before"],
            data.get("content", ""),
        )  # fmt: skip
        log = None if data["log"] is None else Span(*data["log"])
        ids = data.get("ids")
        if ids is not None:
            ids = tuple((str(part), int(old), int(new)) for part, old, new in ids)
        is_all = bool(data.get("all", True))
        return cls(source, data["target-id"], log, place, data["total"], ids, is_all)

    @classmethod
    def read(cls, position: Position, layout: Layout) -> "Bookmark[Mark] | None":
        """Read what a restore committed with that offset; None where it is anyone else's.

        Whoever has moved the offset and kept the text has made it theirs.  Version 2 did not
        always say which offset it was; whole records alone show it.

        Raises:
            NewerVersionError: If a restore of a later version committed it.
        """

        def of(data: Mapping[str, Any]) -> Mark:
            if "v" in data:
                if isinstance(data["v"], int) and data["v"] > VERSION:
                    raise NewerVersionError.of("the restore's position", data["v"], VERSION)
                return cls.from_dict(data, position.offset)
            return _version_1(position.offset, data, layout)

        found = Bookmark.read(position.metadata, of)
        if found is None:
            return None
        at, place = found.at, found.of.place
        if at is None and place.offset and not place.values:
            at = place.offset
        return found if at in (None, position.offset) else None

    def follows(self, earlier: "Mark") -> bool:
        """Whether this is of the same restore into the same log as *earlier*, or a later one."""
        mine, its = self.log, earlier.log
        return (
            not self.source.conflicts(earlier.source)
            and self.target_id == earlier.target_id
            and (None if mine is None else mine.start_offset)
            == (None if its is None else its.start_offset)
            and self.place.reached >= earlier.place.reached
        )

    def moved(self, place: Place, *, passed: int | None, log_grew: int) -> Self:
        """Return the mark that follows this one.

        Args:
            place: How far the restore is.
            passed: Whole records of the backup it is done with since; None: not known.
            log_grew: Offsets of the target's log that were taken since, at least.
        """
        total = None if self.total is None or passed is None else self.total + passed
        log = self.log
        if log is not None:
            log = Span(log.start_offset, log.end_offset + log_grew)
        return replace(self, place=place, log=log, total=total)


def _version_1(offset: int, data: Mapping[str, Any], layout: Layout) -> Mark:
    """Read what kbackup committed at first: an object's key and its rows, -1 for all of them.

    Raises:
        ValueError: If it is anything else.
    """
    key, rows = data["key"], int(data["rows"])
    try:
        name = layout.parse(key)
    except ObjectKeyError as error:
        raise ValueError(str(error)) from None
    if rows < 0:  # the last row was counted on from the object's first offset
        last = Done.from_dict(data.get("done") or {}).last
        rows = max(0, (offset if last is None else last + 1) - name.start_offset)
    source = Source("", TopicPartition(name.topic, name.partition))
    return Mark(source, "", None, Place(offset, offset, digest(key), rows, None), total=None)
