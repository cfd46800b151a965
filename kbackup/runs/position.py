"""Write and read the text beside a committed offset: what a sink's or a restore's offset rests on.

The group's offset on the target partition is the next offset of the *backup*.  An offset alone
does not say which backup, which source and which target log it was about, so the text beside it
does.  It is bounded whatever the backup looks like: keys are kept as digests.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, Self, TypeVar

from kbackup.catalog.translated import Translation
from kbackup.errors import NewerVersionError
from kbackup.kafka import Position
from kbackup.records import UNKNOWN, Span, TopicIdentity, TopicPartition, joined


@dataclass(frozen=True, slots=True)
class Done:
    """What one run has done in a partition, over all tasks that it has tried it with.

    Attributes:
        records: Records that are safe: stored, or acknowledged and committed.
        objects: Objects stored, or read to their end.
        bytes_read: Bytes of the records read, as `records.record_bytes` counts; of a restore, of
            the objects read.
        bad_records: Records left out because they do not fit where they go.
        filtered: Records that a transform left out.
        first: Offset in the backed-up partition of the first record that is safe, None without
            one.
        last: That of the last one.
        bytes_stored: Bytes of the objects stored; of sinks only.
        nulls: Records left out because they have no value; of sinks only.
        commits: Transactions that held records, or commits without transactions; of restores
            only, as all that follow.
        duplicates: Records that several objects hold, each of them written once.
        zero_timestamps: Timestamps of 0 ms, written as 1 ms.
        bad_objects: Objects of which rows were left out as bad.
        strange_schemas: Records written with the id of a schema that the backup lacks.
        as_stored: Bytes of batches that were sent as they are stored.
        bytes_written: Of all that was sent: those, and `records.record_bytes` of other records.
    """

    records: int = 0
    objects: int = 0
    bytes_read: int = 0
    bad_records: int = 0
    filtered: int = 0
    first: int | None = None
    last: int | None = None
    bytes_stored: int = 0
    nulls: int = 0
    commits: int = 0
    duplicates: int = 0
    zero_timestamps: int = 0
    bad_objects: int = 0
    strange_schemas: int = 0
    as_stored: int = 0
    bytes_written: int = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the fields that are there and whole numbers; the others keep their defaults."""
        known = cls.__dataclass_fields__
        given = {at: value for at, value in data.items() if type(value) is int and at in known}
        return cls(**given)

    def __add__(self, later: "Done") -> "Done":
        """Return what was done with what was done *later*."""
        names = self.__dataclass_fields__.keys() - {"first", "last"}
        counts = {name: getattr(self, name) + getattr(later, name) for name in names}
        first = later.first if self.first is None else self.first
        return Done(**counts, first=first, last=self.last if later.last is None else later.last)


NOTHING: Final = Done()


_JSON: Final = json.JSONDecoder()

_ROOM: Final = 4096
"""A broker takes less beside an offset, in bytes."""


def _to_text(of: Mapping[str, Any], at: int | None, run: str, done: Done) -> str:
    """Return the text to commit with an offset; a broker takes 4,096 bytes."""
    offset = {} if at is None else {"at": at}
    counts = {name: getattr(done, name) for name in done.__dataclass_fields__}
    said = {name: value for name, value in counts.items() if value != getattr(NOTHING, name)}
    data = {**of, **offset, "run": run, "done": said}
    text = json.dumps(data, separators=(",", ":"))
    if len(text) >= _ROOM:  # the longest keys of all leave none for what can be done without
        data.pop("backup", None)
        text = json.dumps(data, separators=(",", ":"))
    return text


Of = TypeVar("Of")


def _read(text: str, of: Callable[[Mapping[str, Any]], Of]) -> Of | None:
    """Return what *of* reads from what `_to_text` wrote; None where it is anyone else's."""
    try:
        data, _ = _JSON.raw_decode(text)  # a client may read on behind it
        return of(data)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _by(data: Mapping[str, Any]) -> tuple[str, Done, int | None]:
    """Return which run has committed it, what it had done, and with which offset."""
    run, done, at = data.get("run", ""), data.get("done") or {}, data.get("at")
    if not (isinstance(run, str) and isinstance(done, dict) and isinstance(at, int | None)):
        raise TypeError("not what a run commits")
    return run, Done.from_dict(done), at


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """What is kept beside a sink's committed offset: the object that ends there, and who stored it.

    Attributes:
        key: The object's key; None: nothing had been stored before this offset.
        last_offset: Offset of its last record; None where another tool wrote it, which says only
            how many records it holds.
        identity: Which topic the offset is of, as far as the cluster tells.
        again_to: The offset up to which values are stored a second time, because the group was set
            back; None where the offset is not before that.
        done: What that run had done in this partition by then: where a task dies, the one that
            takes over continues from here, and no count is lost.
        at: The offset that it was committed with; None before that.
    """

    key: str | None = None
    last_offset: int | None = None
    identity: TopicIdentity = UNKNOWN
    again_to: int | None = None
    size: int | None = None
    backup: str = ""
    run: str = ""
    done: Done = NOTHING
    at: int | None = None

    def position(self, offset: int) -> Position:
        """Return *offset* with this beside it, to commit."""
        return Position(offset, replace(self, at=offset).to_metadata())

    def to_metadata(self) -> str:
        """Return the text to commit with the offset."""
        again = {} if self.again_to is None else {"again": self.again_to}
        size = {} if self.size is None else {"size": self.size}
        backup = {} if not self.backup else {"backup": self.backup}
        of = {
            "key": self.key, "last": self.last_offset, **size, **self.identity.to_metadata(),
            **again, **backup,
        }  # fmt: skip
        return _to_text(of, self.at, self.run, self.done)

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read what `to_metadata` returned; None where it is anyone else's."""
        return _read(text, cls._of)

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> Self:
        identity = TopicIdentity.from_metadata(data)
        found = cls(
            data["key"], data["last"], identity, data.get("again"), data.get("size"),
            data.get("backup", ""), *_by(data),
        )  # fmt: skip
        (found.key or "").encode()  # half of a surrogate pair is no key
        is_sound = (
            isinstance(found.key, str | None)
            and isinstance(found.last_offset, int | None)
            and isinstance(found.again_to, int | None)
            and isinstance(found.size, int | None)
            and isinstance(found.backup, str)
            and isinstance(identity.cluster_id, str)
            and isinstance(identity.topic_id, str)
        )
        if not is_sound:
            raise TypeError("not what a sink commits")
        return found

    @classmethod
    def beside(cls, position: Position | None) -> Self | None:
        """Read what a sink committed with that offset; None where somebody has moved it since."""
        if position is None:
            return None
        found = cls.read(position.metadata)
        return found if found is not None and found.at == position.offset else None


ABSENT_MOST: Final = 16
"""Ranges of absent offsets beside an offset; more are joined, the closest first."""

TRANSLATED_MOST: Final = 16
"""Rows of translation beside an offset: they take 1 KiB of what a broker takes."""

VERSION: Final = 2
"""Of the text."""


@dataclass(frozen=True, slots=True)
class RestoreSource:
    """What a position refers to in the backup.

    Attributes:
        backup: The backup's id; digest of where it is, if it has none.
        identity: Which topic that was, as far as its objects say.
        window: Which of its records are restored; empty for all.
        address: Digest of where the backup is: what positions named before it had an id; not kept.
    """

    backup: str
    where: TopicPartition
    identity: TopicIdentity = UNKNOWN
    window: str = ""
    address: str = field(default="", compare=False)

    def conflicts(self, other: "RestoreSource") -> bool:
        """Whether this is known to be another source than *other*."""
        if self.window != other.window:
            return True
        if self.where != other.where or self.identity.conflicts(other.identity):
            return True
        if not (self.backup and other.backup):
            return False
        is_same = other.backup in (self.backup, self.address) or self.backup == other.address
        return not is_same


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a restore is in a partition.

    Full records know their offsets: their progress is an offset, and an object that has grown is
    read again from there.  Rows of the connectors' layout do not: theirs is a number of rows.

    Attributes:
        offset: The next offset of full records; all below it are done.
        reached: What is committed: the next offset of the backup, full records or not.
        values: Digest of the key of the value set at hand; empty before the first.
        rows: Rows of that set that are done.
        before: Digest of all value sets before that one, as they were.
        content: Digest of *rows* if their object has a name of any form; empty otherwise.
        sizes: Its `FileSet.sizes` as it was found; None where a version did not keep them.
    """

    offset: int
    reached: int
    values: str = ""
    rows: int = 0
    before: str = ""
    content: str = ""
    sizes: tuple[int | None, ...] | None = None


def digest(text: str) -> str:
    """Return a short digest of *text*."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Lane:
    """One partition that a restore writes to.

    Attributes:
        log: Where its log stood: its end when this restore began in it, and what its end is at
            least since.  This restore's records are in between.
        committed: What the group's position there was when that was found out; None for none.
        records: Records that the run has written to it, acknowledged and committed.
        commits: Transactions that held some of them, or commits without transactions.
    """

    target: TopicPartition
    log: Span
    committed: Position | None = None
    records: int = 0
    commits: int = 0

    def wrote(self, records: int, *, leaves_marker: bool) -> Self:
        """Return it after a commit with *records* more; a transaction leaves a marker behind it."""
        commits = int(bool(records))
        end = self.log.end_offset + records + (commits if leaves_marker else 0)
        return replace(
            self,
            log=Span(self.log.start_offset, end),
            records=self.records + records,
            commits=self.commits + commits,
        )


@dataclass(frozen=True, slots=True)
class RestorePosition:
    """Where the restore of one partition of a backup stands.

    It is committed in each partition that its records go to, with what was written there.

    Attributes:
        target_id: Id of the target topic; empty where the cluster has none.
        total: Full records of the backup that it has finished, over all runs; None if that is not
            known, as after an object that was skipped.
        ids: Some of the schemas' ids that it found, each with its part, "key" or "value", and what
            it is in the target; None where it was given no Schema Registry.
        is_all: Whether *total* counts the records of all sets; else of those that hold records of
            the target, where transforms choose a topic for each record.
        absent: Offsets of objects that were not there when the restore passed them, so that it has
            none of their records; None where a version committed the position that did not keep
            them.
        translated: Rows that say which offsets of the target have which of the backup, and are not
            stored elsewhere yet, `TRANSLATED_MOST` at most; in order.
        run: Id of the run that committed.
        done: What that run had done by then: where a task dies, the one that takes over continues
            from here, and no count is lost.
    """

    source: RestoreSource
    target_id: str
    cursor: Cursor
    total: int | None = 0
    ids: tuple[tuple[str, int, int], ...] | None = None
    is_all: bool = True
    translated: tuple[Translation, ...] = ()
    absent: tuple[Span, ...] | None = ()
    run: str = ""
    done: Done = NOTHING

    def position(self, lane: Lane) -> Position:
        """Return what to commit in one of the partitions that are written to."""
        source, cursor = self.source, self.cursor
        absent = [[one.start_offset, one.end_offset] for one in self.absent or ()]
        of = {
            "v": VERSION, "backup": source.backup,
            "source": [source.where.topic, source.where.partition],
            **({"window": source.window} if source.window else {}),
            **source.identity.to_metadata(), "target-id": self.target_id,
            "log": [lane.log.start_offset, lane.log.end_offset],
            "offset": cursor.offset, "values": cursor.values, "rows": cursor.rows,
            "before": cursor.before, "total": self.total,
            **({"content": cursor.content} if cursor.content else {}),
            **({} if cursor.sizes is None else {"sizes": cursor.sizes}),
            **({} if self.ids is None else {"ids": self.ids}),
            **({} if self.is_all else {"all": False}),
            **({} if self.absent is None else {"absent": absent}),
            **({"translated": list(map(astuple, self.translated))} if self.translated else {}),
        }  # fmt: skip
        done = replace(self.done, records=lane.records, commits=lane.commits)
        return Position(cursor.reached, _to_text(of, cursor.reached, self.run, done))

    @classmethod
    def read(cls, where: TopicPartition, position: Position) -> tuple[Self, Lane] | None:
        """Read what a restore committed in *where*; None where it is anyone else's.

        Whoever has moved the offset and kept the text has made it theirs.

        Raises:
            NewerVersionError: If a restore of a later version committed it.
        """

        def of(data: Mapping[str, Any]) -> tuple[Self, Lane] | None:
            if isinstance(data["v"], int) and data["v"] > VERSION:
                raise NewerVersionError.of("the restore's position", data["v"], VERSION)
            run, done, at = _by(data)
            if at != position.offset:
                return None
            lane = Lane(where, Span(*data["log"]), position, done.records, done.commits)
            return replace(cls._of(data, position.offset), run=run, done=done), lane

        return _read(position.metadata, of)

    @classmethod
    def _of(cls, data: Mapping[str, Any], offset: int) -> Self:
        topic, partition = data["source"]
        source = RestoreSource(
            data["backup"],
            TopicPartition(topic, partition),
            TopicIdentity.from_metadata(data),
            data.get("window", ""),
        )
        sizes = data.get("sizes")
        cursor = Cursor(
            data["offset"], offset, data["values"], data["rows"], data["before"],
            data.get("content", ""), None if sizes is None else tuple(sizes),
        )  # fmt: skip
        ids = data.get("ids")
        if ids is not None:
            ids = tuple((str(part), int(old), int(new)) for part, old, new in ids)
        is_all = bool(data.get("all", True))
        rows = tuple(Translation(*map(int, row[:5])) for row in data.get("translated") or ())
        absent = data.get("absent")
        if absent is not None:
            absent = tuple(Span(int(start), int(end)) for start, end in absent)
        numbers = cursor.offset, cursor.rows, partition
        texts = cursor.values, cursor.before, cursor.content, topic
        is_sound = (
            all(isinstance(each, int) for each in numbers)
            and all(isinstance(each, str) for each in texts)
            and isinstance(data["total"], int | None)
        )
        if not is_sound:
            raise TypeError("not what a restore commits")
        return cls(source, data["target-id"], cursor, data["total"], ids, is_all, rows, absent)

    def has_room(self, lane: Lane) -> bool:
        """Whether a broker takes what it has to say beside an offset."""
        text = self.position(lane).metadata
        is_complete = len(text) < _ROOM and '"backup":' in text
        return is_complete and len(self.translated) <= TRANSLATED_MOST

    def follows(self, earlier: "RestorePosition") -> bool:
        """Whether this is of the same restore into the same topic as *earlier*, or a later one."""
        return (
            not self.source.conflicts(earlier.source)
            and self.target_id == earlier.target_id
            and self.cursor.reached >= earlier.cursor.reached
        )

    def passing(self, absent: Iterable[Span], *, reached: int) -> Self:
        """Return the position of a restore that goes on where these offsets are in no object.

        What was absent below *reached* stays so: it was passed without its records.
        """
        if self.absent is None:
            return self
        ahead = [Span(max(one.start_offset, reached), one.end_offset) for one in absent]
        passed = [Span(one.start_offset, min(one.end_offset, reached)) for one in self.absent]
        kept = [*joined([*passed, *ahead])]
        while len(kept) > ABSENT_MOST:
            gaps = [after.start_offset - one.end_offset for one, after in pairwise(kept)]
            at = gaps.index(min(gaps))
            kept[at : at + 2] = [Span(kept[at].start_offset, kept[at + 1].end_offset)]
        return replace(self, absent=tuple(kept))


def is_own(where: TopicPartition, offset: int, text: str) -> bool:
    """Whether a sink or a restore, of any version, has committed *offset* with this text."""
    if SinkPosition.read(text) is not None:
        return True
    try:
        return RestorePosition.read(where, Position(offset, text)) is not None
    except NewerVersionError:
        return '"backup":' in text  # others number what they commit, too
