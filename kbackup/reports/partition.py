"""How far the work on one partition is, as a task reports it and the driver adds it up."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from kbackup.errors import Failure
from kbackup.events import Progress
from kbackup.records import Span, TopicPartition
from kbackup.reports.bookmark import Bookmark, LastObject
from kbackup.reports.done import NOTHING, Done
from kbackup.reports.held_up import HeldUp

SPANS_MOST: Final = 1000
"""Spans of skipped offsets that a report names; the ledger names all of them."""

GAPS_MOST: Final = 100
"""Gaps that a report names, the last of them: each was among them when it was met."""


class OneDirection(Protocol):
    """What only a sink, or only a restore, reports of a partition."""

    @property
    def target(self) -> str | None:
        """The topic that is written to; None where objects are."""
        ...

    def progress(self, done: Done) -> Mapping[str, int]:
        """Return the bytes that a `Progress` names."""
        ...

    def row(self, done: Done, *, is_reported: bool) -> Mapping[str, Any]:
        """Return the fields that only this direction's rows have, in JSON."""
        ...


Own = TypeVar("Own", bound=OneDirection)


@dataclass(frozen=True, slots=True)
class PartitionReport(Generic[Own]):
    """How far the work on one partition is.

    Attributes:
        where: The partition that is, or was, backed up.
        start: The first offset of it to copy; None: nowhere, it is refused.
        end: The offset to copy up to, as far as it is known.
        committed: The next offset to copy, as committed; None before anything is.
        own: What only this direction reports.
        done: What the run has done.
        failure: What stopped the work; None if nothing has.
        held_up: The open transaction behind *end*; None where there is none; of sinks only.
    """

    where: TopicPartition
    start: int | None
    end: int | None
    committed: int | None
    own: Own
    done: Done = NOTHING
    failure: Failure | None = None
    held_up: HeldUp | None = None

    @property
    def reached(self) -> int:
        """The next offset to copy."""
        found = self.start if self.committed is None else self.committed
        assert found is not None  # noqa: S101  (a task works on what is not refused)
        return found

    def progress(self, run: str, open_records: int) -> Progress:
        """Return the ``progress`` event: what is safe, and how many records are not safe yet."""
        done = self.done
        return Progress(
            run, self.where, self.committed, done.records, done.objects, open_records,
            self.own.target, self.end, **self.own.progress(done),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class OfSink:
    """What only a sink reports.

    Attributes:
        bookmark: What was committed beside the report's *committed*, None where it is nothing of
            ours.
        gaps: Offsets that expired before they could be read, in order; no more than `GAPS_MOST`,
            the last of them.
        skipped: Offsets of records that were left out because they do not fit the layout, in
            order; no more than `SPANS_MOST` spans, the first of them.
        until: Of a run that follows: everything that was written to the partition before then is
            backed up, in seconds since the epoch; None where that is not known yet.
    """

    bookmark: Bookmark[LastObject] | None = None
    gaps: tuple[Span, ...] = ()
    skipped: tuple[Span, ...] = ()
    until: float | None = None

    @property
    def target(self) -> None:
        """Objects are written."""

    def progress(self, done: Done) -> Mapping[str, int]:
        """Return the bytes that were stored."""
        return {"bytes_stored": done.bytes_stored}

    def row(self, done: Done, *, is_reported: bool) -> dict[str, Any]:
        """Return the fields that only a sink's rows have, in JSON."""
        found = {
            "bytes_stored": done.bytes_stored, "skipped": done.bad_records,
            "skipped_offsets": [[span.start_offset, span.end_offset - 1] for span in self.skipped],
        }  # fmt: skip
        return found | {"nulls_left_out": done.nulls} if is_reported else found


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
class OfRestore:
    """What only a restore reports.

    Attributes:
        target: The topic that is written to.
        planned_objects: File sets to be read, with those that were; 0 where a task does not say.
        log_end: Where the target's log ended at least before this run's first record, judging by a
            position that was committed since the plan; None where there was none, or where other
            partitions of the backup are restored to the same one.
        lanes: What was written to each partition of the target.
        skipped: What was left out, and why.
    """

    target: str
    planned_objects: int = 0
    log_end: int | None = None
    lanes: tuple[WrittenTo, ...] = ()
    skipped: tuple[Failure, ...] = ()

    def progress(self, done: Done) -> Mapping[str, int]:
        """Return the bytes that were read."""
        return {"bytes_read": done.bytes_read}

    def row(self, done: Done, *, is_reported: bool) -> dict[str, Any]:
        """Return the fields that only a restore's rows have, in JSON."""
        found = {"target": self.target, "planned_objects": self.planned_objects}
        left_out = done.bad_records + done.bad_objects
        more = {"duplicates": done.duplicates, "skipped": left_out}
        return found | more if is_reported else found
