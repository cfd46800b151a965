"""Account for a restore: each partition's progress, what is left out, what the target got.

A restore that follows names only the first ones in its summary; the list of what is skipped has
them all, for whoever brings them back in another way.  Each run adds to the file.  A task reports
what it has left out when it ends, so a run that is killed may have left out more.

An audit makes the cheap count first: each transaction adds one marker to a partition, so a clean
run moves its end offset by records and commits.  If that does not fit, because an earlier run was
killed or someone else writes, the records are counted one by one.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TextIO

from kbackup import errors
from kbackup.catalog.listing import object_count
from kbackup.errors import (
    AuditError,
    ConfigurationError,
    EndNotSeenError,
    Issue,
    KbackupError,
    ObjectKeyError,
)
from kbackup.events import Progress, RestoreStart, Started, to_json
from kbackup.kafka import Cluster, Connection
from kbackup.naming.renaming import EXCLUDES_NOTHING, LeftOut
from kbackup.records import Span, TopicPartition
from kbackup.restore.job import RestoreUnit
from kbackup.runs import wiring
from kbackup.runs.context import RunContext
from kbackup.runs.position import NOTHING, Done, Lane
from kbackup.runs.report import OfRestore, PartitionReport, Row, Summary
from kbackup.spark.channel import NotBegun, TaskChannel


class SkipList:
    """The file, if there is a path; safe from one thread at a time."""

    def __init__(self, path: str | None, run: str) -> None:
        self._path, self._run = None if path is None else Path(path), run
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        """Open the file, before anything is restored; `ConfigurationError` if it cannot be."""
        if self._path is None:
            return self
        try:
            # line by line: whoever follows a restore reads the list meanwhile
            self._file = self._path.open("a", buffering=1, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"skipped file {self._path} cannot be written",
                error.strerror or str(error),
                "give --skipped-file a path in a folder that exists and can be written",
            ) from error
        return self

    def add(self, failure: Issue, where: TopicPartition | None = None) -> None:
        """Write down something that is left out, and why; `KbackupError` if it cannot be."""
        if self._file is None:
            return
        place = {} if where is None else where.place
        entry = {"type": "skipped", "run": self._run, **to_json(failure.at(**place))}
        try:
            self._file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise self._lost(error) from error

    def __exit__(self, *_: object) -> None:
        """Make what was written safe, and close the file; `KbackupError` if it is not safe."""
        if self._file is None:
            return
        try:
            with self._file as file:
                file.flush()
                if (
                    self._path is not None and self._path.is_file()
                ):  # not a pipe, such as /dev/stderr
                    os.fsync(file.fileno())
        except OSError as error:
            raise self._lost(error) from error
        finally:
            self._file = None

    def _lost(self, error: OSError) -> KbackupError:
        return KbackupError(
            f"skipped file {self._path} is not complete",
            error.strerror or str(error),
            "free space; to get the whole list, restore into a new topic",
        )


_Place = tuple[TopicPartition, str]
"""A partition of the backup, and the topic that its records are written to."""


def row_of(unit: RestoreUnit) -> Row[OfRestore]:
    """Return the row of a partition of which this run has done nothing yet."""
    is_begun = not unit.begins and unit.committed is not None
    committed = unit.committed.offset if is_begun and unit.committed is not None else None
    own = OfRestore(unit.target.topic, object_count(unit.sets))
    return Row(PartitionReport(unit.source, unit.sets[0].start_offset, None, committed, own))


class RestoreProgress:
    """The rows of the summary.  Tasks update it while they work; safe from any thread.

    It names *names_most* bad records and objects, None: all; *skip_list* names all of them.
    """

    def __init__(
        self,
        summary: Summary,
        names_most: int | None = None,
        skip_list: SkipList | None = None,
    ) -> None:
        self._skip_list = skip_list or SkipList(None, summary.run)
        self.lock = summary.lock
        self._summary = summary
        self._rows: dict[_Place, Row[OfRestore]] = {}
        self._done: dict[_Place, Done] = {}
        self._nameable = names_most
        self._foretold: dict[tuple[TopicPartition, str], int] = {}
        self._named: dict[TopicPartition, set[tuple[str, str]]] = {}  # with what is foretold
        self._bad_objects: dict[tuple[TopicPartition, str], str] = {}

    def lacks(self, error: KbackupError) -> None:
        """Count an object that is known to be missing, and list it."""
        with self.lock:
            self._summary.skip("missing_objects")
            self._skip_list.add(error.issue())

    def passes_over(self, failure: Issue) -> None:
        """List an object that is nobody's; the listing counts it."""
        with self.lock:
            self._skip_list.add(failure)

    def rows(self) -> list[Row[OfRestore]]:
        """Return what plan and summary say of the partitions."""
        with self.lock:
            return list(self._rows.values())

    def plan(self, unit: RestoreUnit) -> None:
        """Open the row of a partition, or note what a visit has to do in it."""
        with self.lock:
            place = unit.source, unit.target.topic
            row = self._rows.get(place)
            if row is None:
                row = row_of(unit)
                self._done[place] = NOTHING
            else:
                planned = row.report.done.objects + object_count(unit.sets)
                own = replace(row.report.own, planned_objects=planned)
                row = replace(row, report=replace(row.report, own=own), state="to do")
            self._rows[place] = row

    def ends(self, found: Mapping[TopicPartition, tuple[int | None, str | None]]) -> None:
        """Note where the backups of partitions end, as far as the ledger says so.

        Args:
            found: Of each partition its end, None where the ledger does not say, and the only
                topic whose restore gets there, None for whichever there is.
        """
        with self.lock:
            for place, row in self._rows.items():
                end, target = found.get(place[0], (None, None))
                if target in (None, place[1]) and end is not None:
                    self._rows[place] = replace(row, report=replace(row.report, end=end))

    def progress(self, said: Progress) -> Progress:
        """Take over what is safe; return it with what earlier visits have done."""
        with self.lock:
            place = said.where, said.target or ""
            before = self._done[place]
            said = replace(
                said,
                records=before.records + said.records,
                objects=before.objects + said.objects,
                bytes_read=before.bytes_read + (said.bytes_read or 0),
            )
            row = self._rows[place] = self._rows[place].went_on(said)
            return replace(said, end=row.end)

    def take(self, report: PartitionReport[OfRestore]) -> None:
        """Take over what a visit has come to."""
        with self.lock:
            summary, where = self._summary, report.where
            place = where, report.own.target
            row = self._rows[place]
            done = self._done[place] = self._done[place] + report.done
            committed = row.report.committed if report.committed is None else report.committed
            now = replace(row.report, committed=committed, done=done)
            state = "done" if report.failure is None else report.failure.code
            self._rows[place] = Row(now, state, is_reported=True)
            skipped = list[Issue]()
            objects, records = report.done.bad_objects, report.done.bad_records
            for each in report.own.skipped:
                if self._is_news(place, each):
                    skipped.append(each)
                else:
                    objects, records = objects - 1, records - each.place.get("records", 0)
            self.left_out(where, records, objects, skipped)
            for name in ("as_stored", "bytes_written"):
                before = summary.facts.get(name, 0)
                summary.facts[name] = before + getattr(report.done, name)
            summary.skip("records_of_unregistered_schemas", report.done.strange_schemas)
            summary.skip("timestamps_of_0_ms_written_as_1_ms", report.done.zero_timestamps)

    def _is_news(self, place: _Place, failure: Issue) -> bool:
        """Whether no other topic's restore has left the same object out."""
        where, target = place
        key = None if "offset" in failure.place else failure.place.get("key")
        return key is None or self._bad_objects.setdefault((where, key), target) == target

    def foretell(
        self, where: TopicPartition, records: int, objects: int, skipped: Sequence[Issue] = ()
    ) -> None:
        """Count what a partition leaves out none of whose records has a topic.

        It takes the place of what was counted before, and names what is *skipped* since: once a
        record has a topic, its task counts all, and names no more what is named here.
        """
        with self.lock:
            counted = self._summary.skipped
            for reason, count in (("bad_objects", objects), ("bad_records", records)):
                if before := self._foretold.get((where, reason), 0):
                    self._summary.skip(reason, max(0, counted.pop(reason, 0) - before))
                self._summary.skip(reason, count)
                self._foretold[where, reason] = count
            self.left_out(where, 0, 0, skipped)
            told = self._named.setdefault(where, set())
            told.update((each.what, each.why) for each in skipped)

    def left_out(
        self, where: TopicPartition, records: int, objects: int, skipped: Sequence[Issue]
    ) -> None:
        """Count bad records and objects of a partition, and name *skipped*."""
        with self.lock:
            self._summary.skip("bad_objects", objects)
            self._summary.skip("bad_records", records)
            told = self._named.get(where, ())
            skipped = [each for each in skipped if (each.what, each.why) not in told]
            for failure in skipped:
                self._skip_list.add(failure, where)
            named = skipped[: self._nameable]
            for entry in named:
                self._summary.warn("skipped", f"{entry.what}: {entry.why}")
            if self._nameable is not None:
                self._nameable -= len(named)


def skipped(key: str, why: str) -> Issue:
    """Return the entry of an object that is not the backup's in the list of what is skipped."""
    return replace(ObjectKeyError(key, why).issue(), place={"key": key})


def tell_start(
    frame: RunContext, cluster: Cluster, topics: Sequence[str], left_out: LeftOut
) -> None:
    """Say what is going to be restored from where to where, on the screen and in the summary."""
    settings, summary, group = frame.settings, frame.summary, frame.group
    renames = [[step.regex, step.replacement] for step in settings.renames]
    window = wiring.window_text(settings) or None
    summary.facts |= {
        "group": group,
        **wiring.passing(settings, writes=True),
        "as_stored": 0,
        "bytes_written": 0,
        "cluster_id": cluster.cluster_id,
        "target": settings.bootstrap_servers,
        "store": settings.url,
        "topics_dir": settings.topics_dir,
        "renames": renames,
        "partition_map": settings.partition_map,
        "window": window,
        "transforms": [step.alias for step in settings.transforms],
    }
    own = RestoreStart(cluster.cluster_id, settings.bootstrap_servers, renames, window)
    started = Started(
        summary.run, "restore", topics, group, settings.url, settings.topics_dir, own,
        left_out.excluded or None, left_out.internal or None,
        not_yet=left_out.not_yet or None,
        server=settings.endpoint_url,
    )  # fmt: skip
    frame.tell(started)
    if (text := settings.asked.idle_exclusion(left_out)) is not None:
        frame.tell(summary.warn(EXCLUDES_NOTHING, text))


@dataclass(frozen=True, slots=True)
class Written:
    """What a run wrote to one target partition.

    Attributes:
        records: Records acknowledged and committed.
        commits: Transactions that held some of them; 0 without transactions.
        before: End offset before the run.
        after: What the log holds after the run, up to the first transaction that is open.
        end: Where the log is said to end, behind open transactions.
    """

    target: TopicPartition
    records: int
    commits: int
    before: int
    after: Span
    end: int

    @property
    def least(self) -> int:
        """Where the log ends at least: what the cluster has acknowledged is in it."""
        return self.before + self.records + self.commits

    @property
    def is_seen(self) -> bool:
        """Whether the cluster shows what it has acknowledged; nothing can be said before."""
        return self.end >= self.least

    @property
    def is_hidden(self) -> bool:
        """Whether another producer's transaction is open, past which nothing is read."""
        return self.after.end_offset < self.end

    @property
    def is_plain(self) -> bool:
        """Whether the end offset moved by exactly what was written, and nothing was deleted."""
        moved = self.after.end_offset - self.before
        return moved == self.records + self.commits and self.after.start_offset <= self.before

    @property
    def span(self) -> Span:
        """Return the offsets to count records in."""
        return Span(max(self.before, self.after.start_offset), self.after.end_offset)

    def unseen(self) -> KbackupError | None:
        """Return the error of a partition that does not show what was acknowledged."""
        if self.is_seen:
            return None
        return EndNotSeenError(
            f"{self.target}: the records of this run could not be seen",
            f"its log is reported to end at {self.end}, but what the cluster has acknowledged "
            f"reaches at least {self.least}",
            "check the brokers, and the topic's leaders; what was acknowledged is there once "
            "they agree",
            **self.target.place,
        )

    def difference(self, counted: int, *, exactly_once: bool) -> KbackupError | None:
        """Return the error of a partition where the count is not what was written.

        Without transactions, a task whose worker died leaves records that are there twice: then
        more of them are no difference.
        """
        if counted == self.records or (counted > self.records and not exactly_once):
            return None
        why = "someone else writes to the topic, or the topic deletes records"
        do = "compare with kbackup restore verify, then restore into a new topic"
        if self.is_hidden and counted < self.records:
            why = "another producer's open transaction hides what follows it"
            do = "stop that producer; consumers then see the records, which are committed"
        return AuditError(
            f"{self.target} shows {errors.counted(counted, 'record')}; {self.records} were written",
            why,
            do,
            **self.target.place,
        )


def written(
    cluster: Cluster,
    spans: Mapping[TopicPartition, Span],
    reports: Iterable[PartitionReport[OfRestore]],
    *,
    exactly_once: bool,
) -> list[Written]:
    """Return what tasks wrote to each partition, which held *spans* before, and what it holds now.

    One to which a restore failed is left out: the failure says so itself, and somebody else may
    have gone on.
    """
    lanes = dict[TopicPartition, list[Lane]]()
    befores = {where: span.end_offset for where, span in spans.items()}
    failed: set[TopicPartition] = set()
    for report in reports:
        for lane in report.own.lanes:
            lanes.setdefault(lane.target, []).append(lane)
            befores[lane.target] = max(befores.get(lane.target, 0), report.own.log_end or 0)
            failed |= {lane.target} if report.failure is not None else set()
    acknowledged = [
        Written(
            where,
            sum(lane.records for lane in its),
            sum(lane.commits for lane in its) if exactly_once else 0,
            before := befores[where],
            Span(before, before),
            before,
        )
        for where, its in lanes.items()
        if where not in failed and any(lane.records for lane in its)
    ]
    wheres = [entry.target for entry in acknowledged]
    after = cluster.settled_spans(wheres, {entry.target: entry.least for entry in acknowledged})
    ends = cluster.ends(wheres)
    return [
        replace(entry, after=after[entry.target], end=ends[entry.target]) for entry in acknowledged
    ]


@dataclass(frozen=True, slots=True)
class TargetCount:
    """What `count` found in one target partition."""

    target: TopicPartition
    records: int = 0
    failure: Issue | None = None


def count(
    kafka: Connection, group: str, written: Sequence[Written], channel: TaskChannel
) -> Iterator[TargetCount]:
    """Count the records between *before* and *after*; a task, because it may have much to read."""
    with closing(kafka.reader(group)) as reader:
        for entry in written:
            try:
                batches = reader.read(entry.target, entry.span)
                report = TargetCount(entry.target, sum(len(batch) for batch in batches))
            except KbackupError as error:
                report = TargetCount(entry.target, failure=error.issue())
            yield report
            if channel.is_stopped():
                return


@dataclass(frozen=True, slots=True)
class Audit:
    """What comparing the target with what was written there has come to.

    Attributes:
        how: ``plain``, ``counted`` or ``not made``.
        repeated: The partitions that hold more records than were written, and how many.
    """

    how: str
    issues: tuple[Issue, ...] = ()
    repeated: tuple[tuple[TopicPartition, int], ...] = ()


def audit(
    found: Sequence[Written],
    counts: Callable[[Sequence[Written]], Sequence[TargetCount | NotBegun]],
    *,
    exactly_once: bool,
) -> Audit:
    """Compare what the target holds with what was written there, counted in tasks by `count`."""
    doubtful = [entry for entry in found if entry.is_seen and not entry.is_plain]
    unseen = [error for entry in found if (error := entry.unseen()) is not None]
    reports = counts(doubtful) if doubtful else ()
    failed = [each.failure for each in reports if each.failure is not None]
    counted = {
        each.target: each.records
        for each in reports
        if isinstance(each, TargetCount) and each.failure is None
    }
    how = "counted" if doubtful else "plain"
    if unseen or len(counted) < len(doubtful):  # a count failed, or the run was stopped
        how = "not made"
    judged = [(entry, counted[entry.target]) for entry in doubtful if entry.target in counted]
    wrong = [entry.difference(count, exactly_once=exactly_once) for entry, count in judged]
    repeated = (
        (entry.target, count - entry.records)
        for entry, count in judged
        if count > entry.records and not exactly_once
    )
    issues = [error.issue() for error in unseen]
    issues += [*failed, *(error.issue() for error in wrong if error is not None)]
    return Audit(how, tuple(issues), tuple(repeated))
