"""One run of the sink: plan, lock, tasks on Spark, account for every offset, leave a record."""

import functools
import logging
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any, Final

from kbackup import engine, moments
from kbackup.config import Settings
from kbackup.errors import KbackupError, StoppedError, TopicChangedError
from kbackup.events import PROGRESS, Event, Progress
from kbackup.kafka import Cluster, LogStartMovedError, Position
from kbackup.records import TopicPartition
from kbackup.reports import OfSink, PartitionReport
from kbackup.runs import history, wiring
from kbackup.runs.beats import Beats
from kbackup.runs.locks import RunLock, lost_lock
from kbackup.runs.record import RunRecord
from kbackup.runs.stopping import Stop, linked
from kbackup.runs.summary import Summary
from kbackup.runs.world import World
from kbackup.sink import accounting, planner, schemas
from kbackup.sink.accounting import Account
from kbackup.sink.dead_letters import ensure_topic
from kbackup.sink.entering import RunLedger
from kbackup.sink.follow import deal, follow
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.messages import ADOPT, EXAMINED, GAVE_UP, Examined
from kbackup.sink.newcomers import NEWCOMERS_S, Newcomers
from kbackup.sink.news import News, Tell
from kbackup.sink.opening import Opening
from kbackup.sink.plan import SinkPlan
from kbackup.sink.task import back_up
from kbackup.sink.wiring import error_policy, job_of
from kbackup.stores import Store, open_store

_log: Final = logging.getLogger(__name__)

RECORD_S: Final = 20.0
"""Seconds between two run records of a sink that follows."""

_ROUNDS: Final = 3
"""How often retention may overtake a run before it gives up on a partition."""


class SinkRun:
    """One run, from settings to summary."""

    def __init__(self, settings: Settings, tell: Tell, stop: Stop, world: World) -> None:
        self._settings, self._tell, self._stop, self._world = settings, tell, stop, world
        self._run = history.new_run_id(world.clock.now())
        self._summary = Summary(self._run, "sink")
        self._layout = wiring.layout(settings)
        self._account = Account(self._summary)
        self._news = News(settings, self._summary, tell)
        self._timings = engine.Timings()
        self._ended = threading.Event()
        self._newcomers: Newcomers | None = None
        self._schemas = schemas.NO_SCHEMAS
        self._earlier: datetime | None = None
        self._noted: str | None = None

    def __call__(self) -> Event:
        """Run to the end; what fails is in the summary, and nothing is raised but usage errors."""
        try:
            self._work()
        except KbackupError as error:
            if error.exit_code in (2, 8):
                raise
            self._summary.fail(error)
        return self._finish()

    def _work(self) -> None:
        settings = self._settings
        cluster = self._world.kafka.cluster()
        store = open_store(self._world.store)
        routes = wiring.routes(settings)
        self._ledger = RunLedger(store, self._layout, self._run, self._world.clock, routes)
        self._opening = Opening(settings, self._summary, self._account, self._news, self._ledger)
        if settings.dry_run:
            plan = planner.make(settings, cluster, store, self._world.clock)
            self._opening.report(plan, cluster)
            for planned in accounting.plan_topics(plan, self._layout, routes):
                self._tell(planned.to_dict())
            for event in accounting.plan_partitions(plan, settings):
                self._tell(event)
            for at in plan.partitions:
                self._news.expired(at)
            return
        names = list(settings.topics) or [settings.topics_regex or ""]
        self._summary.facts |= {"names": names, "topics_regex": settings.topics_regex}
        lock = RunLock.for_settings(
            settings, store, self._layout, "sink", names, self._run, self._stop.event.wait
        )
        tasks = self._world.run_tasks
        with lock as held:
            try:
                self._earlier = history.read_success(store, self._layout, names)
                self._noted = None if self._earlier is None else moments.text(self._earlier)
                looked = self._world.clock.now().timestamp()
                plan = planner.make(settings, cluster, store, self._world.clock, likely=tasks.begin)
                self._opening.report(plan, cluster)
                self._opening.enter(plan, cluster)
                if (topic := error_policy(settings).topic) is not None:
                    factor = settings.errors_deadletterqueue_topic_replication_factor
                    ensure_topic(cluster, topic, factor)
                self._opening.start(plan.partitions, plan.group, cluster)
                registries = wiring.source_registries(settings)
                self._schemas = schemas.begin(registries, store, self._layout)
                with Beats("folding the ledger", self._ledger.fold):
                    if settings.follow:
                        self._newcomers = Newcomers(
                            settings, self._world, store, self._opening, plan, looked
                        )
                        self._follow(plan, store, self._newcomers)
                    else:
                        self._once(plan, cluster, store)
                self._fold()
                with self._account.lock:
                    topics = {routes.topic(row["topic"]) for row in self._account.rows()}
                schemas.report(self._schemas, store, self._layout, topics, self._summary)
            except KbackupError as error:
                self._summary.fail(error)
            finally:
                tasks.end()
            if held is not None and held.is_lost:
                self._summary.fail(lost_lock())
            self._write_record(store)

    def _write_record(self, store: Store) -> None:
        summary = self._finish()
        history.write_run(store, self._layout, summary)
        if summary["last_success"] not in (None, self._noted):
            history.write_success(store, self._layout, summary)
            self._noted = summary["last_success"]

    def _fold(self) -> None:
        """Fold the ledger, unless asked to stop; what cannot be folded now is by a later run."""
        if self._stop.is_set():
            return
        try:
            self._ledger.fold(at_end=True)
        except KbackupError as error:
            _log.warning("folding the ledger: %s", error)

    def _job(self, plan: SinkPlan) -> SinkJob:
        return job_of(self._settings, self._world, self._run, plan.group, self._schemas)

    def _once(self, plan: SinkPlan, cluster: Cluster, store: Store) -> None:
        units: Sequence[SinkUnit] = plan.units()
        for _ in range(_ROUNDS):
            if not units or self._stop.is_set():
                return
            overtaken = self._tasks(functools.partial(back_up, self._job(plan)), units)
            if not overtaken:
                return
            plan = planner.make(self._settings, cluster, store, self._world.clock, overtaken)
            again = [at for at in plan.partitions if at.where in overtaken]
            for at in again:
                self._news.odd(at)
                self._account.plan_again(at)
            for where in overtaken.keys() - {at.where for at in again}:
                self._summary.fail(_gone(where))
            self._opening.start(again, plan.group, cluster)
            units = [unit for at in again if (unit := at.unit()) is not None]
        for where in {unit.where for unit in units}:
            self._summary.fail(
                KbackupError(f"{where}: retention overtook the backup {_ROUNDS} times",
                             "records expire faster than they can be read",
                             "raise the topic's retention", topic=where.topic)
            )  # fmt: skip

    def _follow(self, plan: SinkPlan, store: Store, newcomers: Newcomers) -> None:
        """Keep tasks at work until someone stops them, or nothing is left to follow."""
        units = [unit for at in plan.partitions if (unit := at.followed()) is not None]
        record = functools.partial(self._write_record, store)
        with Beats("leaving a run record", record, RECORD_S, at_once=True):
            units += newcomers.wait(self._stop.event)
            if not units or self._stop.is_set():
                return
            orders: SimpleQueue[Event] = SimpleQueue()

            def look() -> None:
                for unit in newcomers.adopt():
                    orders.put({"type": ADOPT, **unit.to_dict()})

            task = functools.partial(follow, self._job(plan), self._settings.rotate_idle_ms)
            looks = Beats("looking for new topics", look, NEWCOMERS_S)
            with looks, linked(self._stop.event, self._ended):
                reports = self._run_tasks(
                    task, units, self._ended, slices_per_core=1, deal=deal, orders=orders
                )
        for report in reports:
            self._take(report)
        self._leave_behind(plan.group)

    def _leave_behind(self, group: str) -> None:
        """Move the group past the gaps that tasks recorded, where one ends a backup."""
        if not (ends := self._account.gap_ends()):
            return
        cluster = self._world.kafka.cluster()
        behind = {
            where: Position(ends[where], position.metadata)
            for where, position in cluster.committed(group, ends).items()
            if position.offset < ends[where]
        }
        cluster.set_positions(group, behind)

    def _tasks(
        self, task: engine.Task[PartitionReport[OfSink]], units: Sequence[SinkUnit]
    ) -> dict[TopicPartition, int]:
        """Run *task* over *units*; return where it is in those that retention overtook."""
        overtaken = {}
        for report in self._run_tasks(task, units, self._stop.event):
            if report.failure is not None and report.failure.code == LogStartMovedError.code:
                overtaken[report.where] = report.reached
            elif report.failure is not None:
                self._summary.fail(report.failure)
            self._account_for(report)
        return overtaken

    def _run_tasks(
        self,
        task: engine.Task[PartitionReport[OfSink]],
        units: Sequence[SinkUnit],
        stop: threading.Event,
        **how: Any,
    ) -> list[PartitionReport[OfSink]]:
        found = self._world.run_tasks(task, units, self._hear, stop, timings=self._timings, **how)
        self._summary.facts["timings"] = self._timings.to_dict()
        for each in found:
            if isinstance(each, engine.NotBegun):
                self._summary.fail(each.failure)
        return [each for each in found if isinstance(each, PartitionReport)]

    def _hear(self, event: Event) -> None:
        """Update the account with what tasks report, and pass on what is for the screen."""
        if event["type"] == EXAMINED:
            self._take(Examined.from_dict(event).report)
            return
        if event["type"] == GAVE_UP:
            self._ended.set()
            return
        if event["type"] == PROGRESS:
            said = Progress.from_dict(event)
            if not said.open:  # a commit, and a part of the ledger before it
                self._ledger.note(said.where.topic)
            self._account.progress(said)
        self._tell(event)

    def _account_for(self, report: PartitionReport[OfSink]) -> bool:
        """Take in a report, and announce what it left out; as `Account.take`."""
        skipped = self._account.newly_skipped(report)
        is_new = self._account.take(report)
        self._news.skipped(report, skipped)
        return is_new

    def _take(self, report: PartitionReport[OfSink]) -> None:
        """Take in the progress of a partition that is followed, and report it if it is stalled."""
        if self._account_for(report):
            self._tell(report.progress(self._run, 0).to_dict())
        failure = report.failure
        is_stopped = failure is not None and failure.code == StoppedError.code
        if self._account.set_aside(report.where, None if is_stopped else failure):
            self._news.standing(report)
        if not self._settings.topics_regex and self._account.is_lost():
            self._ended.set()

    def _finish(self) -> Event:
        """Return the summary; it says up to when everything is known to be backed up."""
        with self._account.lock:
            self._summary.partitions = self._account.rows()
            summary = self._summary.finish(self._stop.signal)
            until = self._account.until()
        good: datetime | None = None
        if not self._settings.follow:
            ended = RunRecord(summary)
            if ended.is_good and not summary["errors"] and not ended.matched_nothing:
                good = ended.started
        elif until is not None and self._newcomers is not None:
            good = datetime.fromtimestamp(min(until, self._newcomers.looked), UTC)
        good = good or self._earlier
        return {**summary, "last_success": None if good is None else moments.text(good)}


def _gone(where: TopicPartition) -> KbackupError:
    return TopicChangedError(
        f"{where} no longer exists",
        "its topic was deleted, or recreated with fewer partitions",
        "what is stored stays as it is; look at the topic before running again",
        topic=where.topic,
        partition=where.partition,
    )
