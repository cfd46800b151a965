"""Report how far a run is: its tasks for each partition, its summary for all.

A task keeps a `PartitionReport` of each partition and replaces it as the work continues; the
driver keeps a `Row` of it, and `Row.shown` is what screens and run records show.  What a task
commits beside an offset, whoever continues there reads: `kbackup.runs.position`.

A report has what both directions share, and of the other type what one direction alone knows:
``PartitionReport[OfSink]``.

Consumers of committed records read no further than the first offset of a transaction that is open.
While it is open, all that follows is kept from a backup too: for moments as a rule, and until
somebody ends it where its producer is gone and the coordinator has lost it.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from threading import RLock
from time import monotonic
from typing import Any, Final, Generic, Self, TypeVar

from kbackup import clock
from kbackup.errors import Issue, KbackupError, StoppedError, worst
from kbackup.events import (
    NOT_SHOWN,
    Ended,
    PartitionRow,
    Progress,
    SummaryRow,
    TopicSums,
    Warned,
)
from kbackup.records import Span, TopicPartition
from kbackup.runs.position import NOTHING, Done, Lane, SinkPosition

LONG_S: Final = 900.0
"""Kafka's default for ``transaction.max.timeout.ms``: no transaction should be open for longer."""


@dataclass(frozen=True, slots=True)
class HeldUp:
    """Where a transaction holds a partition's backup up, as of a look at the cluster.

    Times are in seconds since the epoch, by the clock of the host that looked.

    Attributes:
        offset: The last stable offset.
        end: The end of the log, behind the transaction.
        seen: When the log ended there.
        since: When the backup was first seen to be held up at this offset.
        until: All that was written before then is in the backup once *offset* is; None where that
            is not known.
        waits: An end of the log, and when it was that: once the backup is there, all that was
            written before then is in it.
        is_at_start: The log begins at *offset*: retention has deleted what was before it, and the
            transaction may be one that had begun there.
    """

    offset: int
    end: int
    seen: float
    since: float
    until: float | None = None
    waits: tuple[int, float] | None = None
    is_at_start: bool = field(default=False, metadata=NOT_SHOWN)

    @classmethod
    def of(cls, log: Span, end: int, now: float) -> Self | None:
        """Return what a look at the cluster shows; None where no transaction holds anything up.

        Args:
            log: From its start to the last stable offset.
            end: The end of the log, asked for before that: what is written meanwhile is not behind
                a transaction.
        """
        offset = log.end_offset
        if end <= offset:
            return None
        return cls(offset, end, now, now, None, (end, now), not len(log))

    @property
    def behind(self) -> int:
        """How many offsets are not in the backup for it."""
        return self.end - self.offset

    @property
    def is_long(self) -> bool:
        """Whether it has lasted for longer than a transaction may."""
        return self.seen - self.since > LONG_S

    def after(self, earlier: "HeldUp | None") -> "HeldUp":
        """Return this with what an earlier look has shown of the same partition."""
        if earlier is None:
            return self
        is_same = self.offset == earlier.offset or (
            self.is_at_start and self.offset > earlier.offset
        )
        since = min(self.since, earlier.since) if is_same else self.since
        until, waits = earlier.until, earlier.waits
        if waits is None or self.offset >= waits[0]:
            until, waits = (until if waits is None else waits[1]), self.waits
        return replace(self, since=since, until=until, waits=waits)

    def text(self, where: TopicPartition) -> str:
        """Return the sentence that says so of *where*."""
        since = clock.rfc3339(datetime.fromtimestamp(self.since, UTC))
        return (
            f"{where} is held up at offset {self.offset} since {since} by an open transaction; "
            f"{self.behind:,} offsets behind it are not in the backup; if it stays open, see "
            "kafka-transactions.sh find-hanging"
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` made of it; KeyError, TypeError or ValueError if it is none."""
        until, waits = data["until"], data["waits"]
        return cls(
            int(data["offset"]),
            int(data["end"]),
            float(data["seen"]),
            float(data["since"]),
            None if until is None else float(until),
            None if waits is None else (int(waits[0]), float(waits[1])),
        )


SPANS_MOST: Final = 1000
"""Spans of skipped offsets that a report names; the ledger names all of them."""

GAPS_MOST: Final = 100
"""Gaps that a report names, the last of them: each was among them when it was met."""


Own = TypeVar("Own", bound="OfSink | OfRestore")


@dataclass(frozen=True, slots=True)
class PartitionReport(Generic[Own]):
    """How far the work on one partition is.

    Attributes:
        start: The first offset of it to copy; None: nowhere, it is refused.
        end: The offset to copy up to, as far as it is known.
        committed: The next offset to copy, as committed; None before anything is.
        held_up: The open transaction behind *end*; None where there is none; of sinks only.
    """

    where: TopicPartition
    start: int | None
    end: int | None
    committed: int | None
    own: Own
    done: Done = NOTHING
    failure: Issue | None = None
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
        commit_metadata: What was committed beside the report's *committed*, None where it is
            nothing of ours.
        gaps: Offsets that expired before they could be read, in order; no more than `GAPS_MOST`,
            the last of them.
        skipped: Offsets of records that were left out because they do not fit the layout, in
            order; no more than `SPANS_MOST` spans, the first of them.
        until: Of a run that follows: everything that was written to the partition before then is
            backed up, in seconds since the epoch; None where that is not known yet.
    """

    commit_metadata: SinkPosition | None = None
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
        """Return the fields that only a sink's rows have."""
        found = {
            "bytes_stored": done.bytes_stored, "skipped": done.bad_records,
            "skipped_offsets": self.skipped,
        }  # fmt: skip
        return found | {"nulls_left_out": done.nulls} if is_reported else found


@dataclass(frozen=True, slots=True)
class OfRestore:
    """What only a restore reports.

    Attributes:
        planned_objects: Objects to be read, with those that were; 0 where a task does not say.
        log_end: Where the target's log ended at least before this run's first record, judging by a
            position that was committed since the plan; None where there was none, or where other
            partitions of the backup are restored to the same one.
        lanes: The partitions of the target, with what was written to each.
    """

    target: str
    planned_objects: int = 0
    log_end: int | None = None
    lanes: tuple[Lane, ...] = ()
    skipped: tuple[Issue, ...] = ()

    def progress(self, done: Done) -> Mapping[str, int]:
        """Return the bytes that were read."""
        return {"bytes_read": done.bytes_read}

    def row(self, done: Done, *, is_reported: bool) -> dict[str, Any]:
        """Return the fields that only a restore's rows have."""
        found = {"target": self.target, "planned_objects": self.planned_objects}
        left_out = done.bad_records + done.bad_objects
        more = {"duplicates": done.duplicates, "skipped": left_out}
        return found | more if is_reported else found


@dataclass(frozen=True, slots=True)
class Row(Generic[Own]):
    """How far the work on one partition is, and how it is called.

    Attributes:
        report: How far it is, over all tasks and visits of the run.
        is_reported: Whether a task has ended its work on it.
    """

    report: PartitionReport[Own]
    state: str = "to do"
    is_reported: bool = False

    @property
    def end(self) -> int | None:
        """Where the work ends, as far as that is known: no earlier than it has come."""
        report = self.report
        return None if report.end is None else max(report.end, report.committed or 0)

    @property
    def lag(self) -> int | None:
        """Offsets that are left; None where start or end is not known."""
        report = self.report
        reached = report.start if report.committed is None else report.committed
        if reached is None or self.end is None:
            return None
        end = self.end if report.held_up is None else max(self.end, report.held_up.end)
        return end - reached

    def went_on(self, said: Progress) -> "Row[Own]":
        """Return the row with what a task has made safe meanwhile, which counts the whole run."""
        report = self.report
        done = replace(
            report.done,
            records=said.records,
            objects=said.objects,
            bytes_read=report.done.bytes_read if said.bytes_read is None else said.bytes_read,
            bytes_stored=(
                report.done.bytes_stored if said.bytes_stored is None else said.bytes_stored
            ),
        )
        ends = [end for end in (report.end, said.end) if end is not None]
        report = replace(report, committed=said.committed, end=max(ends, default=None), done=done)
        return replace(self, report=report)

    def shown(self) -> PartitionRow:
        """Return what plan, summary and run record say of the partition."""
        report, done = self.report, self.report.done
        return PartitionRow(
            report.where, report.start, done.first, done.last, done.records, done.objects,
            done.bytes_read, self.end, report.committed, self.lag, self.state,
            filtered=done.filtered if self.is_reported else None,
            held_up=report.held_up,
            **report.own.row(done, is_reported=self.is_reported),
        )  # fmt: skip


_SKIPPED: Final = 3

HELD_UP: Final = "held_up"
"""Code of the warning that an open transaction holds a partition's backup up."""

LEFT_BEHIND: Final = "held_up_offsets"
"""Counts the offsets that transactions which are open for too long keep from the backup."""


Remark = tuple[str, str] | tuple[str, str, str]
"""Code and text of a warning, and the key of the object that it is about, if it is about one."""


class Summary:
    """Collects what happened; `finish` says what it comes to: an `Ended`.

    Attributes:
        lock: Guards it where it is written while the run goes on.
        skipped: Counts of what was left out, by reason.
        remarks: Warnings that hold for now, by what they are of.
        standing: Errors that hold for now, by what they are of.  They are the reason of the exit
            code even where a signal ends the run: it stopped something that was not whole.
    """

    def __init__(self, run: str, command: str) -> None:
        self.run, self.command = run, command
        self.partitions: list[SummaryRow] = []
        self.skipped: dict[str, int] = {}
        self.facts: dict[str, Any] = {}
        self.lock = RLock()
        self.remarks: dict[Hashable, dict[Hashable, Warned]] = {}
        self.standing: dict[Hashable, tuple[Issue, ...]] = {}
        self._errors: list[Issue] = []
        self._warnings: list[Warned] = []
        self._told: dict[TopicPartition, tuple[float, bool]] = {}
        self._started = monotonic()

    def fail(self, error: KbackupError | Issue) -> None:
        """Take an error; the same one is kept once."""
        failure = error.issue() if isinstance(error, KbackupError) else error
        if failure not in self._errors:
            self._errors.append(failure)

    def stand(self, about: Hashable, failures: Iterable[Issue]) -> None:
        """Take why something fails for now, in place of what it failed with before."""
        with self.lock:
            self.standing.pop(about, None)
            if found := tuple(failures):
                self.standing[about] = found

    def warn(self, code: str, text: str, **place: Any) -> Warned:
        """Take a warning; return it, to be told."""
        warned = Warned(code, text, place, run=self.run)
        self._warnings.append(warned)
        return warned

    def skip(self, reason: str, count: int = 1) -> None:
        """Count something that was left out and makes the run exit 3."""
        if count:
            self.skipped[reason] = self.skipped.get(reason, 0) + count

    def count(self, reason: str, number: int) -> None:
        """Take how much is left out for now, in place of what was counted by this reason."""
        self.skipped.pop(reason, None)
        self.skip(reason, number)

    def remark(self, about: Hashable, said: Iterable[Remark]) -> list[Warned]:
        """Take what holds *about* something for now, in place of what did; return the news."""
        now: dict[Hashable, Warned] = {}
        for each in said:
            place = {"key": each[2]} if len(each) > 2 else {}
            now[each] = Warned(each[0], each[1], place, run=self.run)
        with self.lock:
            before = self.remarks.get(about, {})
            self.remarks[about] = now
        return [now[each] for each in now if each not in before]

    def holding(self) -> list[Warned]:
        """Return the warnings that hold for now."""
        with self.lock:
            return [one for each in self.remarks.values() for one in each.values()]

    def held_up(self, found: Mapping[TopicPartition, HeldUp]) -> list[Warned]:
        """Take what open transactions hold up now, in place of what they did; return the news.

        What holds a partition up is news once, and once more when it does so for too long: then
        what is behind it is left out.
        """
        said: dict[Hashable, Warned] = {}
        news = []
        for where, each in found.items():
            said[where] = Warned.about(where, HELD_UP, each.text(where), self.run)
            if self._told.get(where) != (each.since, each.is_long):
                self._told[where] = each.since, each.is_long
                news.append(said[where])
        with self.lock:
            self.remarks[HELD_UP] = said
            self.count(LEFT_BEHIND, sum(each.behind for each in found.values() if each.is_long))
        return news

    def total(self, name: str) -> int | None:
        """Return the sum of a column of the partitions, None where one of them is unknown."""
        counts = [getattr(row, name) for row in self.partitions if hasattr(row, name)]
        return None if None in counts else sum(counts)

    def _is_run(self) -> bool:
        """Whether the rows say what was stored, rather than, as ``bytes``, what is there."""
        return any(getattr(row, "bytes_stored", None) is not None for row in self.partitions)

    def exit_code(self, signal: int | None = None) -> int:
        """Return the exit code of all that happened; *signal* is the one that stopped the run."""
        if signal is not None and not self.standing:
            return 128 + signal
        codes = [failure.exit_code for failure in self._all_errors()]
        return worst([*codes, _SKIPPED if self.skipped else 0])

    def _all_errors(self) -> list[Issue]:
        found = [failure for failure in self._errors if failure.code != StoppedError.code]
        for failure in chain(*self.standing.values()):
            if failure not in found:
                found.append(failure)
        return found

    def finish(self, signal: int | None = None) -> Ended:
        """Return the summary as it is now."""
        code = self.exit_code(signal)
        return Ended(
            self.run,
            self.command,
            _result(code),
            code,
            round(monotonic() - self._started, 1),
            self.total("records"),
            self.total("objects"),
            self.total("bytes_read"),
            self.total("bytes_stored" if self._is_run() else "bytes"),
            dict(self.skipped),
            tuple(self.partitions),
            _topics(self.partitions),
            self._all_errors(),
            (*self._warnings, *self.holding()),
            dict(self.facts),
        )


def _result(code: int) -> str:
    words = {0: "ok", 3: "skipped", 4: "refused", 130: "stopped", 143: "stopped"}
    return words.get(code, "stopped" if code > 128 else "failed")


def _topics(rows: Iterable[SummaryRow]) -> tuple[TopicSums, ...]:
    """Sum the partitions of each topic, or of each topic that records of one are restored to."""
    found: dict[tuple[str, str | None], TopicSums] = {}
    for row in rows:
        place = row.where.topic, getattr(row, "target", None)
        found[place] = found.get(place, TopicSums(*place)).plus(row)
    return tuple(found.values())
