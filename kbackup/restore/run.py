"""One run of a restore: plan as a whole, create topics, tasks on Spark, audit, leave a record."""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from kbackup import errors
from kbackup.catalog import access
from kbackup.catalog.identity import BackupIdentity
from kbackup.catalog.ledger import stream
from kbackup.catalog.translated import TranslatedEntry, TranslationLog
from kbackup.config import Settings
from kbackup.errors import Issue, KbackupError, StoppedError
from kbackup.events import Ended, Event, Planned, Progress, Tell, from_json
from kbackup.kafka import Cluster, check_idle
from kbackup.plugins import choose_topics
from kbackup.restore import accounting, target, transaction
from kbackup.restore.accounting import Audit, RestoreProgress, SkipList, tell_start
from kbackup.restore.follow import Following
from kbackup.restore.job import SKIPPED_MOST, RestoreJob, RestoreUnit
from kbackup.restore.plan import Planner, RestorePlan, confirm_adding, job_of
from kbackup.restore.routing import RecordRoutes, Survey, survey
from kbackup.restore.schemas import TargetSchemas
from kbackup.restore.target import begin, checked_by_cluster
from kbackup.restore.task import bytes_as_stored, put_back
from kbackup.restore.transaction import Report, translated
from kbackup.restore.watch import RestoreNews
from kbackup.runs import backup_state, history, wiring
from kbackup.runs.context import Agree, Environment, RunContext, Stop
from kbackup.runs.dead_letters import ensure_topic
from kbackup.runs.history import of_stored
from kbackup.runs.inventory import Inventory, listed
from kbackup.runs.locks import RunLock
from kbackup.runs.position import RestorePosition
from kbackup.runs.report import OfRestore, PartitionReport
from kbackup.spark.channel import LocalChannel, NotBegun, R, Task
from kbackup.spark.engine import TaskOptions
from kbackup.stores import Served, Store, side_by_side

if TYPE_CHECKING:
    from kbackup.restore.drill import DrillRun

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RestoreTasks:
    """Run the tasks of a restore, and take in what they report.

    Attributes:
        schema_ids: `RestoreJob.schema_ids`, as far as schemas are registered.
    """

    frame: RunContext
    account: RestoreProgress
    schema_ids: Mapping[str, Mapping[str, Mapping[int, int]]]

    def job(self, group: str, visit: int = 0) -> RestoreJob:
        """Return what tasks need to know; visits are counted from 1 where a run follows."""
        frame, settings = self.frame, self.frame.settings
        job = job_of(
            settings, frame.environment.kafka, frame.environment.store, run=frame.run, group=group,
            clock=frame.environment.clock,
        )  # fmt: skip
        error_topic = target.error_topic(settings)
        return replace(job, error_topic=error_topic, schema_ids=self.schema_ids, visit=visit)

    def survey(self, units: Sequence[RestoreUnit]) -> list[Survey | NotBegun]:
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
        return self._run(partial(put_back, job), units, **transaction.task_options(job))

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
        written = accounting.written(cluster, plan.spans, reports, exactly_once=exactly_once)
        count = partial(accounting.count, self.frame.environment.kafka, plan.group)
        return accounting.audit(written, partial(self._run, count), exactly_once=exactly_once)

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


class RestoreRun:
    """One restore, from settings to summary: a `RunCommand`; a drill's leaves no run record."""

    def __init__(
        self,
        settings: Settings,
        tell: Tell,
        stop: Stop,
        environment: Environment,
        agree: Agree | None = None,
        rehearsal: "DrillRun | None" = None,
    ) -> None:
        frame = self._frame = RunContext.of("restore", settings, tell, stop, environment)
        self._agree, self._rehearsal = agree, rehearsal
        self._summary = frame.summary
        self._skip_list = SkipList(settings.skipped_file, frame.run)
        self._account = RestoreProgress(
            self._summary, SKIPPED_MOST if settings.follow else None, self._skip_list
        )
        self._news = RestoreNews(frame, self._account)
        self._schemas = TargetSchemas(settings, frame.layout, self._summary, frame.tell)
        self._error_topic = target.error_topic(settings)
        self._following: Following | None = None

    def __call__(self) -> Ended:
        """Run to the end; failures are in the summary, and nothing is raised but usage errors."""
        return self._frame(self, beside=self._skip_list)

    @property
    def _tasks(self) -> RestoreTasks:
        return RestoreTasks(self._frame, self._account, self._schemas.ids)

    @property
    def locks(self) -> Sequence[str]:
        """What is restored to where."""
        return [wiring.restore_lock(self._frame.settings)]

    def group(self, cluster: Cluster, backup: BackupIdentity) -> str:
        """Return the group that keeps the positions: `target.group`."""
        return target.group(self._frame.settings, cluster, backup)

    def preview(self, cluster: Cluster, store: Store) -> None:
        """Report what would be restored; `RefusedError` if the run would ask a person in vain."""
        settings, plan = self._frame.settings, self._plan(cluster, store)
        self._show(plan, cluster)
        if plan.refusals:
            return
        if objects := sum(topic.objects for topic in plan.topics):
            past = history.runs(store, self._frame.layout, "restore", now=self._frame.started)
            size = sum(topic.stored_bytes for topic in plan.topics)
            requests = objects if isinstance(store, Served) else None
            found, as_stored = of_stored(size, requests, size, past, "bytes_read"), 0
            if wiring.kafka_settings(settings).writes_batches:
                as_stored = bytes_as_stored(self._tasks.job(plan.group), plan.units())
            self._summary.facts["estimate"] = replace(found, as_stored=as_stored)
        if self._agree is None:
            confirm_adding(plan, None, is_agreed=settings.yes)  # exits as the run would
        self._create_error_topic(cluster, only_validate=True)

    def work(self, cluster: Cluster, store: Store, _lock: RunLock | None) -> bool:
        """Restore what is there, or what arrives until asked to stop."""
        self._frame.environment.run_tasks.begin()  # few restores have nothing to do, and discard it
        if self._frame.settings.follow:
            self._follow(cluster, store)
            return True
        plan = self._plan(cluster, store)
        self._show(plan, cluster)
        if plan.refusals:
            return False
        confirm_adding(plan, self._agree, is_agreed=self._frame.settings.yes)
        try:
            self._write(plan, cluster, store)
        except KbackupError as error:
            self._summary.fail(error)
        return True

    def record(self, store: Store) -> None:
        """Leave the run record.  Nothing depends on it, and a store may be read-only."""
        if self._rehearsal is not None:
            return
        try:
            history.write_run(store, self._frame.layout, self.finish())
        except KbackupError as error:
            text = f"no run record was left beside the backup: {error}"
            self._frame.tell(self._summary.warn("no_run_record", text))

    def finish(self) -> Ended:
        """Return the summary as it is now."""
        with self._account.lock:
            self._summary.partitions = [row.shown() for row in self._account.rows()]
            summary = self._frame.finish()
            return summary if self._following is None else summary.saying(**self._following.facts())

    def _follow(self, cluster: Cluster, store: Store) -> None:
        """Restore what arrives until asked to stop, leaving a run record regularly."""
        self._create_error_topic(cluster)
        following = self._following = Following(
            self._frame, store, self._account, self._tasks, partial(self._prepare, store)
        )

        def record() -> None:
            history.write_run(store, self._frame.layout, self.finish())

        with self._frame.recording(record):
            try:
                following.run(self._agree)
            except KbackupError as error:
                self._summary.fail(error)

    def _plan(self, cluster: Cluster, store: Store) -> RestorePlan:
        settings, environment = self._frame.settings, self._frame.environment
        check_idle(cluster, self._frame.group)
        wiring.check_as_of(settings, environment.clock.ms())
        inventory, routes = self._take_stock(store), None
        if choose_topics(settings.transforms):
            routes = self._read_routes(store, inventory)
        planner = Planner(
            inventory,
            cluster,
            now_ms=environment.clock.ms(),
            routes=routes,
            backup=self._frame.backup,
            group=self._frame.group,
        )
        plan = checked_by_cluster(
            planner.plan(),
            cluster,
            environment.kafka.permissions(),
            settings.replication_factor,
            # a run checks this with its first writer, and no client of ours may outlive the check
            asks_for_transactions=settings.exactly_once and settings.dry_run,
        )
        self._news.lacking(inventory.catalog, planner.missing)
        if not plan.refusals:
            self._check(plan, store)
        if settings.as_of is None:  # else what is held up now came later
            said, sources = inventory.known, {topic.copy.source for topic in plan.topics}
            self._news.held_up(store, lambda at: said.ledger(at).reached(), sources)
        return plan

    def _take_stock(self, store: Store) -> Inventory:
        settings, layout = self._frame.settings, self._frame.layout
        if self._rehearsal is not None:
            return self._rehearsal.inventory
        # whoever holds the lock may write beside the ledger: that it may not be read is no design
        read = backup_state.read_if_allowed if settings.no_lock else backup_state.read
        said = read(store, layout, self._frame.environment.clock, settings.asked)
        found = listed(settings, store, settings.topics, said)
        self._news.listed(found)
        self._news.read(said)
        return Inventory(settings, store, found, said)

    def _read_routes(self, store: Store, inventory: Inventory) -> RecordRoutes:
        frame, names = self._frame, inventory.topics()
        inventory.look_at(names)
        routes = RecordRoutes(frame.settings, store)
        units = [unit for name in names for unit in routes.unread(name, inventory)]
        found = self._tasks.survey(units)
        for each in found:
            if each.failure is not None:
                raise each.failure.error()
        if frame.stop.is_set():
            raise StoppedError("stopped while the topics of the backup's records were looked for")
        for report in [each for each in found if isinstance(each, Survey)]:
            routes.take(report)
            self._account.foretell(report.where, *routes.lost(report.where), report.skipped)
        for name in names:
            self._news.routed(name, routes.check(name))
        return routes

    def _show(self, plan: RestorePlan, cluster: Cluster) -> None:
        topics = [topic.copy.source for topic in plan.topics]
        tell_start(self._frame, cluster, topics, plan.left_out)
        self._news.planned(plan.topics)
        self._summary.facts["plan"] = self._news.plans()
        for topic in plan.topics:
            for error in topic.refusals:
                self._summary.fail(error)
            for unit in topic.units:
                self._account.plan(unit)
        self._schemas.show()
        self._frame.tell(Planned([row.shown() for row in self._account.rows()]))

    def _write(self, plan: RestorePlan, cluster: Cluster, store: Store) -> None:
        frame, settings = self._frame, self._frame.settings
        if frame.stop.is_set():
            return
        of = self._rehearsal
        if of is not None:
            of.planned(plan)
        self._schemas.register()
        self._create_error_topic(cluster)
        first, units = begin(  # empty topics too
            plan, cluster, settings.replication_factor, exactly_once=settings.exactly_once,
            created=None if of is None else of.created,
        )  # fmt: skip
        if not units:
            return
        if first:
            failures = self._tasks.begin(first, plan.group)
            for failure in failures:
                self._summary.fail(failure)
            if failures or frame.stop.is_set():
                return
        reports = frame.begun(self._tasks.restore(units, plan.group))
        for report in reports:
            if report.failure is not None:
                self._summary.fail(report.failure)
            self._account.take(report)
        self._audit(plan, cluster, reports)
        self._say_unregistered(plan, store)
        self._say_captured(store)
        self._tasks.keep_translated(store, cluster, units, plan.group)

    def _say_unregistered(self, plan: RestorePlan, store: Store) -> None:
        try:
            if left := self._schemas.unregistered(plan, store):
                self._summary.facts["unregistered"] = left
        except KbackupError as error:  # the records are there
            _log.debug("which schemas they name is not known: %s", error)

    def _say_captured(self, store: Store) -> None:
        try:
            if any(store.list(stream.folder(self._frame.layout, "groups"))):
                self._summary.facts["captured"] = True
            if any(store.list(access.bundles_folder(self._frame.layout))):
                self._summary.facts["access"] = True
        except KbackupError as error:
            _log.debug("what was captured of the cluster is not known: %s", error)

    def _create_error_topic(self, cluster: Cluster, *, only_validate: bool = False) -> None:
        """Create the topic for what cannot be read, unless it is there or none is asked for."""
        if self._error_topic is not None:
            factor = self._frame.settings.replication_factor
            ensure_topic(
                cluster, self._error_topic, -1 if factor is None else factor,
                "--replication-factor", only_validate=only_validate,
            )  # fmt: skip

    def _check(self, plan: RestorePlan, store: Store) -> None:
        """Check what goes with a plan: the topic for unreadable records, and the schemas."""
        target.check_error_topic(self._error_topic, plan)
        self._schemas.plan(plan, store)

    def _prepare(self, store: Store, plan: RestorePlan) -> None:
        self._check(plan, store)
        self._schemas.show()
        self._schemas.register()

    def _audit(
        self, plan: RestorePlan, cluster: Cluster, reports: Sequence[PartitionReport[OfRestore]]
    ) -> None:
        if self._frame.stop.is_set():
            self._summary.facts["audit"] = "not made"
            return
        found = self._tasks.audit(plan, cluster, reports)
        self._summary.facts["audit"] = found.how
        for issue in found.issues:
            self._summary.fail(issue)
        for where, records in found.repeated:
            text = f"{where}: {errors.counted(records, 'record')} "
            text += f"{errors.form(records, 'was', 'were')} written again, or by someone else"
            self._frame.tell(self._summary.warn("repeated", text))
