"""One run of a restore: plan as a whole, create topics, tasks on Spark, audit, leave a record."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, Unpack

from kbackup import engine
from kbackup.backup import catalog
from kbackup.channel import Here
from kbackup.config import Settings
from kbackup.engine import NotBegun, R
from kbackup.errors import KbackupError, StoppedError
from kbackup.events import PROGRESS, Event
from kbackup.kafka import Cluster, check_idle
from kbackup.reports import OfRestore, PartitionReport
from kbackup.restore import audit, news, pace
from kbackup.restore.account import SKIPPED_MOST, Account
from kbackup.restore.beginning import begin
from kbackup.restore.follow import Following
from kbackup.restore.inventory import Inventory
from kbackup.restore.job import RestoreJob, RestoreUnit
from kbackup.restore.lookout import skipped
from kbackup.restore.plan import RestorePlan, confirm
from kbackup.restore.planner import Planner
from kbackup.restore.routing import to_survey
from kbackup.restore.schemas import TargetSchemas
from kbackup.restore.shares import Shares, Surveyed
from kbackup.restore.skip_list import SkipList
from kbackup.restore.soundness import REPEATED
from kbackup.restore.standing import LEFT_OUT
from kbackup.restore.survey import survey
from kbackup.restore.target import asked
from kbackup.restore.task import put_back
from kbackup.runs import history, known, wiring
from kbackup.runs.beats import Beats
from kbackup.runs.locks import RunLock, lost_lock
from kbackup.runs.stopping import Stop
from kbackup.runs.summary import Summary
from kbackup.runs.world import World
from kbackup.steps import choose_topics
from kbackup.stores import Store, open_store

Tell = Callable[[Event], None]

RECORD_S: Final = 20.0
"""Seconds between two run records of a restore that follows."""


class RestoreRun:
    """One restore, from settings to summary."""

    def __init__(self, settings: Settings, tell: Tell, stop: Stop, world: World) -> None:
        self._settings, self._tell, self._stop, self._world = settings, tell, stop, world
        self._run = history.new_run_id(world.clock.now())
        self._summary = Summary(self._run, "restore")
        self._layout = wiring.layout(settings)
        self._timings = engine.Timings()
        self._skip_list = SkipList(settings.skipped_file, self._run)
        self._account = Account(
            self._summary, SKIPPED_MOST if settings.follow else None, self._skip_list
        )
        self._schemas = TargetSchemas(settings, self._layout, self._summary, tell)
        self._following: Following | None = None

    def __call__(self, agree: Callable[[str], bool] | None = None) -> Event:
        """Run to the end; failures are in the summary.

        Args:
            agree: Asks a person; None if nobody can be asked.
        """
        try:
            self._work(agree)
        except KbackupError as error:
            if error.exit_code in (2, 8):
                raise
            self._summary.fail(error)
        return self._finish()

    def _work(self, agree: Callable[[str], bool] | None) -> None:
        settings = self._settings
        cluster = self._world.kafka.cluster()
        store = open_store(self._world.store)
        if settings.dry_run:
            plan = self._plan(cluster, store)
            self._show(plan, cluster)
            if agree is None and not plan.refusals:
                confirm(plan, None, is_agreed=settings.yes)  # a plan exits as the run would
            return
        group = [wiring.restore_group(settings)]
        lock = RunLock.for_settings(
            settings, store, self._layout, "restore", group, self._run, self._stop.event.wait
        )
        tasks = self._world.run_tasks
        with self._skip_list, lock as held:
            tasks.begin()  # a restore with nothing to do is rare, and discards it unused
            try:
                if settings.follow:
                    self._follow(store, agree)
                elif not self._once(cluster, store, agree):
                    return
            finally:
                tasks.end()
            if held is not None and held.is_lost:
                self._summary.fail(lost_lock())
            self._leave_record(store)

    def _once(self, cluster: Cluster, store: Store, agree: Callable[[str], bool] | None) -> bool:
        """Restore what is there now; return whether anything was started."""
        plan = self._plan(cluster, store)
        self._show(plan, cluster)
        if plan.refusals:
            return False
        confirm(plan, agree, is_agreed=self._settings.yes)
        self._restore(plan, cluster)
        return True

    def _follow(self, store: Store, agree: Callable[[str], bool] | None) -> None:
        """Restore what arrives until asked to stop, writing a run record regularly."""
        following = self._following = Following(
            self._settings, self._world, store, self._summary, self._account, self._tell,
            self._stop, self._prepare, self._job,
        )  # fmt: skip

        def record() -> None:
            history.write_run(store, self._layout, self._finish())

        with Beats("leaving a run record", record, RECORD_S):
            try:
                following.run(agree)
            except KbackupError as error:
                self._summary.fail(error)

    def _finish(self) -> Event:
        """Return the summary as it is now."""
        with self._account.lock:
            self._summary.partitions = self._account.rows()
            summary = self._summary.finish(self._stop.signal)
            return summary if self._following is None else summary | self._following.facts()

    def _restore(self, plan: RestorePlan, cluster: Cluster) -> None:
        try:
            self._write(plan, cluster)
        except KbackupError as error:
            self._summary.fail(error)

    def _leave_record(self, store: Store) -> None:
        """Write the run record.  Nothing depends on it, and a store may be read-only."""
        try:
            history.write_run(store, self._layout, self._finish())
        except KbackupError as error:
            text = f"no run record was left beside the backup: {error}"
            self._tell(self._summary.warn("no_run_record", text))

    def _plan(self, cluster: Cluster, store: Store) -> RestorePlan:
        settings = self._settings
        check_idle(cluster, wiring.restore_group(settings))
        said = known.read_if_allowed(
            store, self._layout, self._world.clock, settings.topics, settings.topics_regex
        )
        found = catalog.read(
            store,
            self._layout,
            wiring.format_options(settings),
            topics=settings.topics,
            only_format=settings.format_class,
        )
        self._say_foreign(found)
        for damage in said.all_damage():
            self._tell(self._summary.warn("ledger_damaged", damage.text, key=damage.name))
        shares = None
        if choose_topics(settings.transforms):
            inventory = Inventory(settings, store, found, said)
            shares = self._survey(to_survey(settings, store, inventory))
        planner = Planner(
            settings=settings,
            cluster=cluster,
            store=store,
            catalog=found,
            known=said,
            now_ms=self._world.clock.ms(),
            shares=shares,
        )
        plan = asked(
            planner.plan(),
            cluster,
            self._world.kafka.permissions(),
            settings.replication_factor,
            # a run checks this with its first writer, and no client of ours may outlive the check
            asks_for_transactions=settings.exactly_once and settings.dry_run,
        )
        for error in planner.missing:
            self._account.lacks(error)
            self._tell(self._summary.warn("missing_object", f"{error}; left out"))
        if not plan.refusals:
            self._schemas.plan(plan, open_store(self._world.store))
        return plan

    def _survey(self, units: list[RestoreUnit]) -> Shares:
        """Read the backup for the topics that its records go to.

        Raises:
            KbackupError: If a partition could not be read, or the run was asked to stop.
        """
        job = self._job(RestorePlan((), wiring.restore_group(self._settings), {}))
        if self._settings.dry_run:  # a plan starts no JVM
            found: Sequence[Surveyed | NotBegun] = list(survey(job, units, Here(self._stop.event)))
        else:
            found = self._tasks(functools.partial(survey, job), units, keeps=True)
        for each in found:
            if each.failure is not None:
                raise each.failure.error()
        if self._stop.is_set():
            raise StoppedError("stopped while the topics of the backup's records were looked for")
        surveyed = [each for each in found if isinstance(each, Surveyed)]
        for each in surveyed:
            self._account.left_out(each.where, each.bad_records, each.bad_objects, each.skipped)
        shares = Shares.of_reports(surveyed)
        for topic in sorted({unit.source.topic for unit in units}):
            targets = shares.targets(topic)
            text = f"{topic}: its transforms leave no record, so no topic is chosen"
            if not targets:
                self._tell(self._summary.warn("no_topic", text))
        return shares

    def _say_foreign(self, found: catalog.Catalog) -> None:
        self._summary.skip("foreign_objects", found.foreign_count)
        for key, why in found.foreign:
            self._skip_list.add(skipped(key, why))
        for key, why in found.foreign[:20]:
            self._tell(self._summary.warn("foreign_object", f"{key} is ignored: {why}", key=key))
        for code, text in found.left_out():
            self._tell(self._summary.warn(code, text))

    def _show(self, plan: RestorePlan, cluster: Cluster) -> None:
        topics = [topic.intent.source for topic in plan.topics]
        news.start(self._settings, self._summary, cluster, topics, self._tell)
        self._summary.facts["plan"] = [topic.event() for topic in plan.topics]
        for topic in plan.topics:
            self._tell(topic.event())
            for error in topic.refusals:
                self._summary.fail(error)
            for code, text in topic.warnings:
                self._tell(self._summary.warn(code, text))
                if code == LEFT_OUT:  # the target still differs from the backup
                    self._summary.skip("incomplete_partitions")
                elif code == REPEATED:
                    self._summary.skip("repeated_topics")
            for unit in topic.units:
                self._account.plan(unit)
        self._schemas.show()
        self._tell({"type": "plan", "partitions": self._account.rows()})

    def _write(self, plan: RestorePlan, cluster: Cluster) -> None:
        if self._stop.is_set():
            return
        self._schemas.register()
        exactly_once = self._settings.exactly_once
        factor = self._settings.replication_factor
        begun = begin(plan, cluster, factor, exactly_once=exactly_once)  # empty topics too
        if not begun.units:
            return
        job = self._job(plan)
        task = functools.partial(put_back, job)
        if begun.first and self._has_failed(self._tasks(task, begun.first)):
            return
        found = self._tasks(task, begun.units, **pace.manner(job))
        for each in found:
            if isinstance(each, NotBegun):
                self._summary.fail(each.failure)
        reports = [each for each in found if isinstance(each, PartitionReport)]
        for report in reports:
            if report.failure is not None:
                self._summary.fail(report.failure)
            self._account.take(report)
        self._audit(plan, cluster, reports)

    def _has_failed(self, found: Sequence[PartitionReport[OfRestore] | NotBegun]) -> bool:
        """Take over the failures of tasks that only commit beginnings; whether there are any."""
        failures = [each.failure for each in found if each.failure is not None]
        for failure in failures:
            self._summary.fail(failure)
        return bool(failures) or self._stop.is_set()

    def _prepare(self, plan: RestorePlan) -> None:
        """Register the schemas that have come since the last visit."""
        self._schemas.plan(plan, open_store(self._world.store))
        self._schemas.show()
        self._schemas.register()

    def _job(self, plan: RestorePlan, visit: int = 0) -> RestoreJob:
        return RestoreJob(
            run=self._run,
            kafka=self._world.kafka,
            store=self._world.store,
            reading=wiring.reading(self._settings),
            group=plan.group,
            exactly_once=self._settings.exactly_once,
            on_error=self._settings.behavior_on_error,
            max_record_bytes=self._settings.max_record_bytes,
            offset_header=self._settings.offset_header,
            transforms=self._settings.transforms,
            is_renamed=self._settings.rename is not None,
            max_records_per_second=self._settings.max_records_per_second,
            max_bytes_per_second=self._settings.max_bytes_per_second,
            schema_ids=self._schemas.ids,
            visit=visit,
        )

    def _tasks(
        self, task: engine.Task[R], units: Sequence[Any], **manner: Unpack[engine.Manner]
    ) -> list[R | NotBegun]:
        manner["timings"] = self._timings
        reports = self._world.run_tasks(task, units, self._hear, self._stop.event, **manner)
        self._summary.facts["timings"] = self._timings.to_dict()
        return reports

    def _hear(self, event: Event) -> None:
        self._tell(self._account.progress(event) if event["type"] == PROGRESS else event)

    def _audit(
        self, plan: RestorePlan, cluster: Cluster, reports: Sequence[PartitionReport[OfRestore]]
    ) -> None:
        exactly_once = self._settings.exactly_once
        written = audit.written(cluster, plan.spans, reports, exactly_once=exactly_once)
        doubtful = [entry for entry in written if not entry.is_plain]
        if self._stop.is_set():
            self._summary.facts["audit"] = "not made"
            return
        self._summary.facts["audit"] = "counted" if doubtful else "plain"
        if not doubtful:
            return
        task = functools.partial(audit.count, self._world.kafka, plan.group)
        counted, failures = audit.counts(self._tasks(task, doubtful))
        for failure in failures:
            self._summary.fail(failure)
        for error in audit.differences(doubtful, counted, exactly_once=exactly_once):
            self._summary.fail(error)
        if not exactly_once:
            for where, records in audit.repeats(doubtful, counted):
                text = f"{where}: {records} records were written again, or by someone else"
                self._tell(self._summary.warn("repeated", text))
