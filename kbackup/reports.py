"""What the work on one partition has come to.

A task keeps a `PartitionReport` of each partition and replaces it as the work continues.  What it
commits beside an offset is a `Bookmark`; whoever continues there reads it.  Both cross processes as
plain data: `PartitionReport.to_dict` and `Bookmark.to_metadata` fix the names of the fields.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self

from kbackup.events import Progress
from kbackup.records import UNKNOWN, Span, TopicIdentity, TopicPartition

SPANS_MOST: Final = 1000
"""Spans of skipped offsets that a report names; the ledger names all of them."""


@dataclass(frozen=True, slots=True)
class Done:
    """What one run has done in a partition, over all tasks that it has tried it with.

    Attributes:
        records: Records stored.
        objects: Objects stored.
        bytes_read: Bytes of the records read for them, as `records.record_bytes` counts.
        bytes_stored: Bytes of the objects.
        nulls: Records left out because they have no value.
        bad_records: Records left out because they do not fit the layout.
        first: Offset of the first record stored, None without one.
        filtered: Records that a transform left out.
    """

    records: int = 0
    objects: int = 0
    bytes_read: int = 0
    bytes_stored: int = 0
    nulls: int = 0
    bad_records: int = 0
    first: int | None = None
    filtered: int = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the fields that are there and whole numbers; the others keep their defaults."""
        given = ((field.name, data.get(field.name)) for field in fields(cls))
        return cls(**{name: value for name, value in given if type(value) is int})


@dataclass(frozen=True, slots=True)
class Bookmark:
    """What is kept beside a committed offset: the object that ends there, and who committed it.

    It lets the next run see with one look that group and bucket agree; an offset that someone
    else moved has lost it.

    Attributes:
        key: The object's key; None: nothing had been stored before this offset.
        last_offset: Offset of its last record; None where another tool wrote it, which says only
            how many records it holds.
        run: Id of the run that committed; empty where it was not kept.
        done: What that run had done in this partition by then: where a task dies, the one that
            takes over continues from here, and no count is lost.
        identity: Which topic the offset is of; not known where an earlier version committed it.
        again_to: The offset up to which values are stored a second time, because the group was set
            back; None where the offset beside it is not before that.
    """

    key: str | None = None
    last_offset: int | None = None
    run: str = ""
    done: Done = Done()
    identity: TopicIdentity = UNKNOWN
    again_to: int | None = None

    def to_metadata(self) -> str:
        """Return the text to commit with the offset."""
        done = {} if self.done == Done() else asdict(self.done)
        data = {
            "key": self.key, "last": self.last_offset, "run": self.run, "done": done,
            **self.identity.to_metadata(),
        }  # fmt: skip
        if self.again_to is not None:
            data["again"] = self.again_to
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def from_metadata(cls, text: str) -> Self | None:
        """Read what `to_metadata` wrote; None where it is anyone else's."""
        try:
            data = json.loads(text)
            key, last, run, done = data["key"], data["last"], data.get("run", ""), data.get("done")
            identity = TopicIdentity.from_metadata(data)
            again = data.get("again")
            (key or "").encode()  # half of a surrogate pair is no key
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        is_sound = (
            isinstance(key, str | None)
            and isinstance(last, int | None)
            and isinstance(run, str)
            and isinstance(done, dict | None)
            and isinstance(identity.cluster_id, str)
            and isinstance(identity.topic_id, str)
            and isinstance(again, int | None)
        )
        if not is_sound:
            return None
        return cls(key, last, run, Done.from_dict(done or {}), identity, again)


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """How far the backup of one partition is.

    Attributes:
        where: The partition.
        start: The first offset to back up.
        end: The offset to back up to, as far as it is known.
        committed: The next offset to back up.
        done: What this run has done.
        last: Offset of the last record that this run has stored, None without one.
        bookmark: What was committed beside *committed*, None where it is nothing of ours.
        gaps: Offsets that expired before they could be read, in order.
        skipped: Offsets of records that were left out because they do not fit the layout, in
            order; no more than `SPANS_MOST` spans, the first of them.
        failure: What stopped the work, as ``KbackupError.to_dict`` puts it; None if nothing has.
        until: Of a run that follows: everything that was written to the partition before then is
            backed up, in seconds since the epoch; None where that is not known yet.
    """

    where: TopicPartition
    start: int
    end: int
    committed: int
    done: Done = Done()
    last: int | None = None
    bookmark: Bookmark | None = None
    gaps: tuple[Span, ...] = ()
    skipped: tuple[Span, ...] = ()
    failure: Mapping[str, Any] | None = None
    until: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data: what Spark hands over, and what crosses the line."""
        return {
            "topic": self.where.topic,
            "partition": self.where.partition,
            "start": self.start,
            "end": self.end,
            "committed": self.committed,
            **asdict(self.done),
            "last": self.last,
            "metadata": "" if self.bookmark is None else self.bookmark.to_metadata(),
            "gaps": [[gap.start_offset, gap.end_offset] for gap in self.gaps],
            "skipped": [[span.start_offset, span.end_offset] for span in self.skipped],
            "until": self.until,
            **({} if self.failure is None else {"failure": dict(self.failure)}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned."""
        return cls(
            TopicPartition(data["topic"], data["partition"]),
            data["start"],
            data["end"],
            data["committed"],
            Done.from_dict(data),
            data["last"],
            Bookmark.from_metadata(data["metadata"]),
            tuple(Span(start, end) for start, end in data["gaps"]),
            tuple(Span(start, end) for start, end in data["skipped"]),
            data.get("failure"),
            data["until"],
        )

    def progress(self, run: str, open_records: int) -> Progress:
        """Return the ``progress`` event: what is safe, and how many records are not safe yet."""
        done = self.done
        return Progress(
            run, self.where, self.committed, done.records, done.objects, open_records,
            end=self.end, bytes_stored=done.bytes_stored,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Restored:
    """What one run of a restore has done in a partition, over all tasks it has tried it with.

    Attributes:
        records: Records acknowledged and committed.
        objects: File sets read to their end.
        bytes_read: Bytes of their objects.
        commits: Transactions that held records, or commits without transactions.
        duplicates: Records that several objects hold, each of them written once.
        zero_timestamps: Timestamps of 0 ms, written as 1 ms.
        first: Offset in the backup of the first record written, None without one.
        last: That of the last one.
        bad_records: Records left out as bad.
        bad_objects: File sets of which rows were left out as bad.
        filtered: Records that a transform left out.
        strange_schemas: Keys and values written with the id of a schema that the backup lacks.
    """

    records: int = 0
    objects: int = 0
    bytes_read: int = 0
    commits: int = 0
    duplicates: int = 0
    zero_timestamps: int = 0
    first: int | None = None
    last: int | None = None
    bad_records: int = 0
    bad_objects: int = 0
    filtered: int = 0
    strange_schemas: int = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the fields that are there and whole numbers; the others keep their defaults."""
        given = ((field.name, data.get(field.name)) for field in fields(cls))
        return cls(**{name: value for name, value in given if type(value) is int})

    def __add__(self, later: "Restored") -> "Restored":
        """Return what was done with what was done *later*."""
        ends = ("first", "last")
        counts = {
            field.name: getattr(self, field.name) + getattr(later, field.name)
            for field in fields(self)
            if field.name not in ends
        }
        first = later.first if self.first is None else self.first
        return Restored(**counts, first=first, last=self.last if later.last is None else later.last)


NOTHING: Final = Restored()


@dataclass(frozen=True, slots=True)
class WrittenTo:
    """What one run of a restore wrote to one partition of a target, of one of the backup.

    Attributes:
        partition: Of the target.
        records: Records acknowledged and committed.
        commits: Transactions that held some of them, or commits without transactions.
    """

    partition: int
    records: int = 0
    commits: int = 0

    def __add__(self, other: "WrittenTo") -> "WrittenTo":
        """Return what was written to the same partition together."""
        records, commits = self.records + other.records, self.commits + other.commits
        return WrittenTo(self.partition, records, commits)


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """How far the restore of one partition is.

    Attributes:
        source: The partition that was backed up.
        target: The topic that is written to; its partition has the same number.
        done: What this run has done.
        committed: The next offset of the backup, None before anything is known of it.
        skipped: What was left out, each as ``KbackupError.to_dict`` puts it.
        failure: What stopped the work, in the same form; None if nothing has.
        log_end: Where the target's log ended at least before this run's first record, judging by a
            position that was committed since the plan; None where there was none, or where other
            partitions of the backup are restored to the same one.
        lanes: Where its records went; empty for the partition of the same number.
    """

    source: TopicPartition
    target: str
    done: Restored = NOTHING
    committed: int | None = None
    skipped: tuple[Mapping[str, Any], ...] = ()
    failure: Mapping[str, Any] | None = None
    log_end: int | None = None
    lanes: tuple[WrittenTo, ...] = ()

    @property
    def written(self) -> tuple[WrittenTo, ...]:
        """What it wrote to each partition of the target."""
        return self.lanes or (
            WrittenTo(self.source.partition, self.done.records, self.done.commits),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data: what Spark hands over."""
        return {
            "topic": self.source.topic,
            "partition": self.source.partition,
            "target": self.target,
            **asdict(self.done),
            "committed": self.committed,
            "log_end": self.log_end,
            "lanes": [asdict(lane) for lane in self.lanes],
            "skipped": [dict(entry) for entry in self.skipped],
            **({} if self.failure is None else {"failure": dict(self.failure)}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned."""
        return cls(
            TopicPartition(data["topic"], data["partition"]),
            data["target"],
            Restored.from_dict(data),
            data["committed"],
            tuple(data["skipped"]),
            data.get("failure"),
            data["log_end"],
            tuple(WrittenTo(**lane) for lane in data["lanes"]),
        )

    def progress(self, run: str, open_records: int) -> Progress:
        """Return the ``progress`` event: what is safe, and how many records are not safe yet."""
        done = self.done
        return Progress(
            run, self.source, self.committed, done.records, done.objects, open_records,
            self.target, bytes_read=done.bytes_read,
        )  # fmt: skip
