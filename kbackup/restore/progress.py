"""Track a restore's progress in each partition, report it, and list what it leaves out.

A restore that follows names only the first ones in its summary; the list of what is skipped has
them all, for whoever brings them back in another way.  Each run adds to the file.  A task reports
what it has left out when it ends, so a run that is killed may have left out more.
"""

import json
import logging
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TextIO, Unpack

from kbackup.catalog.listing import object_count
from kbackup.catalog.translated import TranslatedEntry, TranslationLog
from kbackup.errors import ConfigurationError, Issue, KbackupError, ObjectKeyError, SparkError
from kbackup.events import (
    Event,
    Progress,
    RestoreStart,
    Started,
    from_json,
    to_json,
)
from kbackup.kafka import Cluster
from kbackup.naming.renaming import EXCLUDES_NOTHING, LeftOut
from kbackup.records import TopicPartition
from kbackup.restore import target, transaction
from kbackup.restore.job import RestoreJob, RestoreUnit
from kbackup.restore.plan import RestorePlan
from kbackup.restore.routing import Surveyed, survey
from kbackup.restore.target import Audit
from kbackup.restore.task import put_back
from kbackup.restore.transaction import Report, translated
from kbackup.runs import wiring
from kbackup.runs.context import RunContext
from kbackup.runs.position import NOTHING, Done, RestorePosition
from kbackup.runs.report import OfRestore, PartitionReport, Row, Summary
from kbackup.spark.channel import LocalChannel, NotBegun, R, Task
from kbackup.spark.engine import TaskOptions
from kbackup.stores import Store, side_by_side


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
                f"the list of what is skipped, {self._path}, cannot be written",
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
            f"the list of what was skipped, {self._path}, is not complete",
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
    window = wiring.selection(settings) or None
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
    )  # fmt: skip
    frame.tell(started)
    if (text := settings.asked.idle_exclusion(left_out)) is not None:
        frame.tell(summary.warn(EXCLUDES_NOTHING, text))


_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RestoreTasks:
    """Runs the tasks of a restore, and takes in what they say.

    Attributes:
        schema_ids: `RestoreJob.schema_ids`, as far as schemas are registered.
    """

    frame: RunContext
    account: RestoreProgress
    schema_ids: Mapping[str, Mapping[str, Mapping[int, int]]]

    def job(self, group: str, visit: int = 0) -> RestoreJob:
        """Return what tasks need to know; visits are counted from 1 where a run follows."""
        frame, settings = self.frame, self.frame.settings
        job = target.job_of(
            settings, frame.environment.kafka, frame.environment.store, run=frame.run, group=group,
            clock=frame.environment.clock,
        )  # fmt: skip
        error_topic = target.error_topic(settings)
        return replace(job, error_topic=error_topic, schema_ids=self.schema_ids, visit=visit)

    def survey(self, units: Sequence[RestoreUnit]) -> list[Surveyed | NotBegun]:
        """Read units for the topics of their records; nothing is written."""
        task = partial(survey, self.job(self.frame.group))
        if self.frame.settings.dry_run:  # a plan starts no JVM
            return [*task(units, LocalChannel(self.frame.stop.event))]
        return self._run(task, units, keeps=True)

    def begin(self, units: Sequence[RestoreUnit], group: str, visit: int = 0) -> list[Issue]:
        """Commit the beginnings of units; return what has kept any from it."""
        found = self._run(partial(put_back, self.job(group, visit)), units)
        return [each.failure for each in found if each.failure is not None]

    def restore(
        self, units: Sequence[RestoreUnit], group: str, visit: int = 0
    ) -> list[Report | NotBegun]:
        """Restore units, the largest first; return what has become of them."""
        job = self.job(group, visit)
        return self._run(partial(put_back, job), units, **transaction.manner(job))

    def keep_translated(
        self, store: Store, cluster: Cluster, units: Sequence[RestoreUnit], group: str
    ) -> None:
        """Store the translation rows beside the positions: a group that is idle loses those.

        Nothing depends on it, and a store may be read-only.
        """
        asked = [unit.target for unit in units if unit.is_translated]
        log = TranslationLog(store, self.frame.layout, group, self.frame.environment.clock)
        try:
            rows = defaultdict[str, list[TranslatedEntry]](list)
            for where, position in cluster.committed(group, asked).items():
                read = RestorePosition.read(where, position)
                rows[where.topic] += [] if read is None else translated(where, read[0])
            filled = [topic for topic, own in rows.items() if own]  # they may be a thousand
            side_by_side(lambda topic: log.append(topic, rows[topic]), filled)
        except KbackupError as error:
            _log.info("translation rows are not stored: %s", error)

    def audit(self, plan: RestorePlan, cluster: Cluster, reports: Sequence[Report]) -> Audit:
        """Compare what stands in the targets of a plan with what was written there."""
        exactly_once = self.frame.settings.exactly_once
        written = target.written(cluster, plan.spans, reports, exactly_once=exactly_once)
        count = partial(target.count, self.frame.environment.kafka, plan.group)
        return target.audit(written, partial(self._run, count), exactly_once=exactly_once)

    def _run(
        self, task: Task[R], units: Sequence[Any], **manner: Unpack[TaskOptions]
    ) -> list[R | NotBegun]:
        if self.frame.settings.follow:
            manner["keeps"] = True
        return self.frame.tasks(task, units, self._hear, **manner)

    def _hear(self, event: Event) -> None:
        said = from_json(event)
        if isinstance(said, Progress):
            said = self.account.progress(said)
        if said is not None:
            self.frame.tell(said)


def reported(found: Sequence[R | NotBegun]) -> list[R]:
    """Return the reports of tasks; `SparkError` if one has not begun."""
    for each in found:
        if isinstance(each, NotBegun):
            raise SparkError(each.failure.what, each.failure.why)
    return [each for each in found if not isinstance(each, NotBegun)]
