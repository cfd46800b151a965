"""One run of the sink: plan, lock, tasks on Spark, account for every offset, leave a record."""

import functools
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from queue import SimpleQueue
from typing import Final

from kbackup.catalog.identity import BackupIdentity
from kbackup.clock import moment_of, rfc3339
from kbackup.config import Settings
from kbackup.errors import (
    KafkaError,
    KbackupError,
    StoppedError,
    TopicChangedError,
    TopicsLockedError,
)
from kbackup.events import Ended, Event, Plain, Progress, Tell, Warned, from_json
from kbackup.kafka import Cluster, LogStartMovedError, Position
from kbackup.records import TopicPartition
from kbackup.runs import history, wiring
from kbackup.runs.context import Environment, Periodic, RunContext, Stop, linked
from kbackup.runs.dead_letters import ensure_topic
from kbackup.runs.following import aside_told
from kbackup.runs.locks import RunLock, left_to_others
from kbackup.runs.position import SinkPosition
from kbackup.runs.report import HeldUp, OfSink, PartitionReport
from kbackup.sink import accounting, schemas
from kbackup.sink.accounting import News, RunLedger, SinkProgress
from kbackup.sink.captures import LOOK_S, AccessCapture, GroupCaptures
from kbackup.sink.follow import deal, follow
from kbackup.sink.job import BrokersGone, FollowOrder, FollowReport, SinkUnit
from kbackup.sink.plan import (
    Claim,
    SinkPartitionPlan,
    SinkPlan,
    error_policy,
    job_of,
    locked,
    make_plan,
    plan_more,
    selection,
)
from kbackup.sink.task import back_up
from kbackup.spark.channel import Task
from kbackup.stores import Store

_log: Final = logging.getLogger(__name__)

_ROUNDS: Final = 3
"""How often retention may overtake a run before it gives up on a partition."""

NEWCOMERS_S: Final = 20.0
"""Seconds between two looks for new topics: if one fails, what is new is followed within 60 s."""


class SinkRun:
    """One run, from settings to summary: an `RunCommand`."""

    def __init__(
        self, settings: Settings, tell: Tell, stop: Stop, environment: Environment
    ) -> None:
        frame = self._frame = RunContext.of("sink", settings, tell, stop, environment)
        self._summary = frame.summary
        self._account = SinkProgress(self._summary)
        self._news = News(settings, self._summary, frame.tell)
        self._ended = threading.Event()
        self._newcomers: Newcomers | None = None
        self._schemas = schemas.NO_SCHEMAS
        self._earlier: datetime | None = None
        self._lock: RunLock | None = None
        self._left: set[str] = set()
        self._noted: str | None = None
        self._held_up: dict[TopicPartition, HeldUp] = {}
        self._before: Mapping[TopicPartition, HeldUp] = {}  # what an earlier run has seen held up

    def __call__(self) -> Ended:
        """Run to the end; what fails is in the summary, and nothing is raised but usage errors."""
        settings = self._frame.settings
        wiring.check_batches(settings)
        if not settings.dry_run:
            self._summary.facts |= {"names": self.locks, "topics_regex": settings.topics_regex}
        return self._frame(self)

    @property
    def locks(self) -> Sequence[str]:
        """The topics, or the pattern."""
        return locked(self._frame.settings)

    def group(self, _cluster: Cluster, backup: BackupIdentity) -> str:
        """Return the group that keeps the positions."""
        return wiring.group(self._frame.settings, backup, "sink")

    def preview(self, cluster: Cluster, store: Store) -> None:
        """Report what would be done with each topic and partition."""
        frame = self._frame
        plan = make_plan(
            frame.settings, cluster, store, frame.environment.clock, backup=frame.backup
        )
        self._report(plan, cluster)
        self._create_letters(cluster, only_validate=True)
        routes = wiring.routes(frame.settings)
        for planned in accounting.plan_topics(plan, frame.layout, routes):
            frame.tell(planned)
        for partition in accounting.plan_partitions(plan, frame.settings):
            frame.tell(partition)
        for at in plan.partitions:
            self._news.expired(at)
        self._summary.facts |= accounting.estimated(
            plan.partitions, store, frame.layout, frame.started
        )

    def work(self, cluster: Cluster, store: Store, lock: RunLock | None) -> bool:
        """Back up what there is, or until asked to stop; what fails is in the summary.

        Raises:
            TopicsLockedError: If other runs back up all that this one was asked for.
        """
        self._lock = lock
        try:
            self._remember(store)
            self._back_up(cluster, store)
        except TopicsLockedError:
            raise
        except KbackupError as error:
            self._summary.fail(error)
        return True

    def _remember(self, store: Store) -> None:
        """Learn up to when an earlier run has made the backup complete."""
        frame = self._frame
        left = history.kept_success(store, frame.layout, selection(frame.settings))
        kept, self._before = left.success, left.held_up
        self._noted = None if kept is None else rfc3339(kept)
        if kept is not None and kept > frame.started + history.CLOCKS:
            text = (
                f"an earlier run says that the backup is complete up to {self._noted}, which is in "
                "the future: a clock was wrong, so that does not count"
            )
            frame.tell(self._summary.warn("run_in_future", text))
            return
        self._earlier = kept

    def _create_letters(self, cluster: Cluster, *, only_validate: bool = False) -> None:
        """Create the topic for dead letters, unless it is there or none is asked for."""
        settings = self._frame.settings
        if (topic := error_policy(settings).topic) is not None:
            factor = settings.errors_deadletterqueue_topic_replication_factor
            option = "errors.deadletterqueue.topic.replication.factor"
            ensure_topic(cluster, topic, factor, option, only_validate=only_validate)

    def _claim(self, topics: Collection[str]) -> Collection[str]:
        """Take *topics* for this run; return, and report, those that others work on."""
        if self._lock is None:
            return ()
        begins = self._newcomers is None
        left = self._lock.claim_some(topics) if begins else self._lock.claim(topics)
        if left.keys() != self._left:
            self._left = set(left)
            reason = "locked_topics"
            said = [(reason, left_to_others(left))] if left else []
            self._frame.remark(reason, *said, skipped=reason, count=len(left))
        return left

    def _back_up(self, cluster: Cluster, store: Store) -> None:
        settings, environment, layout = (
            self._frame.settings,
            self._frame.environment,
            self._frame.layout,
        )
        routes, run = wiring.routes(settings), self._frame.run
        self._ledger = RunLedger(store, layout, run, environment.clock, routes)
        captures = GroupCaptures(self._frame, store, self._account)
        bundle = AccessCapture(self._frame, store)
        captures.take(cluster, waits=not settings.follow)  # before the plan asks for end offsets
        looked = environment.clock.now().timestamp()
        plan = make_plan(
            settings, cluster, store, environment.clock, likely=environment.run_tasks.begin,
            claim=self._claim, backup=self._frame.backup,
        )  # fmt: skip
        captures.know(plan.known.sinks)
        self._report(plan, cluster)
        left = self._enter(plan, cluster, self._summary.facts["topic_settings"])
        if left:  # the log has grown while their objects were listed
            plan = plan.reaching(cluster.spans(sorted(left)))
        self._create_letters(cluster)
        self._start(plan.partitions, plan.group, cluster)
        self._schemas = schemas.begin(wiring.source_registries(settings), store, layout)
        with Periodic("folding the ledger", self._ledger.fold):
            if settings.follow:
                self._newcomers = Newcomers(
                    self._frame, store, self._add, plan, looked, self._claim
                )
                groups = Periodic("capturing consumer groups", captures.turn, LOOK_S)
                with groups, Periodic("capturing ACLs and users", bundle.turn, LOOK_S):
                    self._follow(plan, store, self._newcomers)
            else:
                self._once(plan, cluster, store)
        captures.keep(is_last=not self._frame.stop.is_set())
        if not settings.follow and not self._frame.stop.is_set():
            bundle.take()
        self._fold(store)
        with self._account.lock:
            topics = {routes.topic(row.report.where.topic) for row in self._account.rows()}
        schemas.report(self._schemas, store, layout, topics, self._summary)

    def _report(self, plan: SinkPlan, cluster: Cluster) -> None:
        settings = self._frame.settings
        found = accounting.topic_settings(plan, cluster.topic_config(plan.topics))
        self._summary.facts |= {
            "group": plan.group,
            **wiring.passing(settings, writes=False),
            "cluster_id": cluster.cluster_id,
            "topics_dir": settings.topics_dir,
            "topic_settings": found,
            **({"stored_as": self._stored_as(plan)} if settings.renames else {}),
        }
        for at in plan.partitions:
            self._account.begin(at)
        self._news.start(plan)
        self._frame.tell_all(self._summary.held_up(self._account.held_up()))

    def _stored_as(self, plan: SinkPlan) -> dict[str, str]:
        routes = wiring.routes(self._frame.settings)
        return {name: routes.topic(name) for name in plan.topics}

    def _enter(
        self, plan: SinkPlan, cluster: Cluster, found: Mapping[str, Event]
    ) -> set[TopicPartition]:
        """Enter topics into the ledger before anything is stored of them: `RunLedger.begin`."""
        settings = self._frame.settings
        return self._ledger.begin(plan, cluster, settings.asked, wiring.reading(settings), found)

    def _start(self, partitions: Iterable[SinkPartitionPlan], group: str, cluster: Cluster) -> None:
        """Enter what has expired, and set the group to where the run begins."""
        positions = {}
        for at in partitions:
            for gap in self._news.expired(at):
                self._ledger.gap(at.where, gap)
            if (position := at.position()) is not None:
                positions[at.where] = position
        cluster.set_positions(group, positions)

    def _add(self, plan: SinkPlan, cluster: Cluster, empty_at: float) -> None:
        """Take partitions in that came while the run follows; at *empty_at* none was there yet."""
        found = accounting.topic_settings(plan, cluster.topic_config(plan.topics))
        self._enter(plan, cluster, found)
        self._start(plan.partitions, plan.group, cluster)
        with self._account.lock:
            self._summary.facts["topic_settings"] |= found
            if self._frame.settings.renames:
                self._summary.facts["stored_as"] |= self._stored_as(plan)
            for at in plan.partitions:
                self._account.begin(at, None if at.refusal is not None else empty_at)
                self._news.odd(at)
        self._news.planned(plan)

    def record(self, store: Store) -> None:
        """Leave the run record, and up to when all is backed up where that is news."""
        summary = self.finish()
        history.write_run(store, self._frame.layout, summary)
        routes = wiring.routes(self._frame.settings)
        held_up = {routes(where): each for where, each in self._account.held_up().items()}
        success = summary.facts["last_success"]
        # a run that was refused before it planned anything does not even take back what is wrong
        is_news = success != self._noted and (success is not None or self._account.rows())
        if is_news or held_up != self._held_up:
            history.write_success(store, self._frame.layout, summary, self._unseen() | held_up)
            self._noted, self._held_up = success, held_up

    def _unseen(self) -> dict[TopicPartition, HeldUp]:
        """Return what an earlier run has seen held up, and this one has not looked at."""
        routes = wiring.routes(self._frame.settings)
        seen = {
            routes(row.report.where) for row in self._account.rows() if row.report.start is not None
        }
        return {where: each for where, each in self._before.items() if where not in seen}

    def _fold(self, store: Store) -> None:
        """Fold the ledger, unless asked to stop; what cannot be folded now is by a later run."""
        if self._frame.stop.is_set():
            return
        try:
            self._ledger.fold(at_end=True)
            self._frame.fold_keys(store)
        except KbackupError as error:
            _log.warning("folding the ledger: %s", error)

    def _once(self, plan: SinkPlan, cluster: Cluster, store: Store) -> None:
        settings, clock = self._frame.settings, self._frame.environment.clock
        units: Sequence[SinkUnit] = plan.units()
        for _ in range(_ROUNDS):
            if not units or self._frame.stop.is_set():
                return
            job = job_of(self._frame, plan.group, self._schemas)
            overtaken = self._tasks(functools.partial(back_up, job), units)
            if not overtaken:
                return
            plan = make_plan(
                settings, cluster, store, clock, overtaken,
                claim=lambda _topics: self._left, backup=self._frame.backup,
            )  # fmt: skip
            again = [at for at in plan.partitions if at.where in overtaken]
            for at in again:
                self._news.odd(at)
                self._account.plan_again(at)
            for where in overtaken.keys() - {at.where for at in again}:
                self._summary.fail(_gone(where))
            self._start(again, plan.group, cluster)
            units = [unit for at in again if (unit := at.unit()) is not None]
        for where in {unit.where for unit in units}:
            self._summary.fail(
                KbackupError(f"{where}: retention overtook the backup {_ROUNDS} times",
                             "records expire faster than they can be read",
                             "raise the topic's retention", topic=where.topic)
            )  # fmt: skip

    def _follow(self, plan: SinkPlan, store: Store, newcomers: "Newcomers") -> None:
        """Keep tasks at work until someone stops them, or nothing is left to follow."""
        units = [unit for at in plan.partitions if (unit := at.followed()) is not None]
        settings, stop = self._frame.settings, self._frame.stop
        with self._frame.recording(functools.partial(self.record, store), at_once=True):
            units += newcomers.wait(stop.event)
            if not units or stop.is_set():
                return
            orders: SimpleQueue[Plain] = SimpleQueue()

            def look() -> None:
                for unit in newcomers.adopt():
                    orders.put(FollowOrder(unit))

            job = job_of(self._frame, plan.group, self._schemas)
            task = functools.partial(follow, job, settings.rotate_idle_ms)
            looks = Periodic("looking for new topics", look, NEWCOMERS_S)
            with looks, linked(stop.event, self._ended):
                found = self._frame.tasks(
                    task, units, self._hear, self._ended, slices_per_core=1, deal=deal,
                    orders=orders,
                )  # fmt: skip
        for report in self._frame.begun(found):
            self._take(report)
        self._leave_behind(plan.group)

    def _leave_behind(self, group: str) -> None:
        """Move the group past the gaps that tasks recorded, where one ends a backup."""
        if not (ends := self._account.gap_ends()):
            return
        cluster = self._frame.environment.kafka.cluster()
        behind = {
            where: Position(end) if commit_metadata is None else commit_metadata.position(end)
            for where, position in cluster.committed(group, ends).items()
            if position.offset < (end := ends[where])
            for commit_metadata in [SinkPosition.beside(position)]
        }
        cluster.set_positions(group, behind)

    def _tasks(
        self, task: Task[PartitionReport[OfSink]], units: Sequence[SinkUnit]
    ) -> dict[TopicPartition, int]:
        """Run *task* over *units*; return where it is in those that retention overtook."""
        overtaken = {}
        found = self._frame.tasks(task, units, self._hear)
        for report in self._frame.begun(found):
            if report.failure is not None and report.failure.code == LogStartMovedError.code:
                overtaken[report.where] = report.reached
            elif report.failure is not None:
                self._summary.fail(report.failure)
            self._account_for(report)
        return overtaken

    def _hear(self, event: Event) -> None:
        if event["type"] == FollowReport.TYPE:
            self._take(FollowReport.from_dict(event).report)
            return
        if event["type"] == BrokersGone.TYPE:
            self._ended.set()
            return
        said = from_json(event)
        if isinstance(said, Progress):
            if not said.open:  # a commit, and a part of the ledger before it
                self._ledger.note(said.where.topic)
            said = replace(said, end=self._account.progress(said))
        if isinstance(said, Warned) and said.code == "bad_record":  # of each partition the first
            where = said.place["topic"], said.place["partition"]
            with self._summary.lock:
                self._summary.remarks.setdefault(said.code, {}).setdefault(where, said)
        if said is not None:
            self._frame.tell(said)

    def _account_for(self, report: PartitionReport[OfSink]) -> bool:
        """Take in a report, and announce what it left out; as `SinkProgress.take`."""
        skipped = self._account.newly_skipped(report)
        is_new = self._account.take(report)
        self._news.skipped(report, skipped)
        return is_new

    def _take(self, report: PartitionReport[OfSink]) -> None:
        """Take in the progress of a partition that is followed, and report it if it is stalled."""
        self._account.look(report.where, report.held_up)
        if self._account_for(report):
            self._frame.tell(report.progress(self._frame.run, 0))
        failure = report.failure
        is_stopped = failure is not None and failure.code == StoppedError.code
        if self._account.set_aside(report.where, None if is_stopped else failure):
            self._frame.tell(aside_told("backup", report.where, failure, self._frame.run))
        if not self._frame.settings.topics_regex and self._account.is_lost():
            self._ended.set()

    def finish(self) -> Ended:
        """Return the summary; it says up to when everything is known to be backed up."""
        with self._account.lock:
            held_up = self._account.held_up()
            self._frame.tell_all(self._summary.held_up(held_up))
            untils = self._untils()
            self._summary.partitions = [
                replace(row.shown(), complete_until=untils.get(row.report.where))
                for row in self._account.rows()
            ]
            summary = self._frame.finish()
            until = self._account.until()
        good: datetime | None = None
        if self._left:
            pass  # whether the run that has these topics gets on is for its own record to say
        elif not self._frame.settings.follow:
            if summary.is_good:
                good = self._complete(held_up.values())
        elif until is not None and self._newcomers is not None:
            good = moment_of(min(until, self._newcomers.looked) * 1000)
        good = good or self._earlier
        return summary.saying(last_success=None if good is None else rfc3339(good))

    def _untils(self) -> Mapping[TopicPartition, datetime | None]:
        untils = self._account.untils() if self._frame.settings.follow else self._untils_of_once()
        return {
            where: moment_of(until * 1000) for where, until in untils.items() if until is not None
        }

    def _untils_of_once(self) -> Mapping[TopicPartition, float | None]:
        """Return the same of a run that ends by itself, in seconds since the epoch."""
        started = self._frame.started.timestamp()
        found: dict[TopicPartition, float | None] = {}
        for row in self._account.rows():
            held_up = row.report.held_up
            if held_up is not None:  # as far as it had been before the transaction
                found[row.report.where] = held_up.until
            elif row.lag == 0:
                found[row.report.where] = started
        return found

    def _complete(self, held_up: Iterable[HeldUp]) -> datetime | None:
        """Return up to when a good run has made the backup complete: mostly up to its own start."""
        # what lies behind an open transaction is not in it; None: as far as it had been before
        started, untils = self._frame.started, [each.until for each in held_up]
        moments = (moment_of(until * 1000) for until in untils if until is not None)
        known = [moment for moment in moments if moment is not None]
        return min([started, *known]) if len(known) == len(untils) else None


def _gone(where: TopicPartition) -> KbackupError:
    return TopicChangedError(
        f"{where} no longer exists",
        "its topic was deleted, or recreated with fewer partitions",
        "what is stored stays as it is; check the topic before running again",
        **where.place,
    )


class Newcomers:
    """Takes in matching topics and partitions that are new.

    Args:
        frame: The run's; its cluster is asked by one client as long as it answers.
        add: Takes in what is new, which was not there yet at a time.
        looked: When the cluster was asked for it, in seconds since the epoch.
        claim: Takes topics, and returns those that are left to other runs.

    Attributes:
        looked: When the cluster was last asked: what came before is being backed up.
    """

    def __init__(
        self, frame: RunContext, store: Store, add: Callable[[SinkPlan, Cluster, float], None],
        plan: SinkPlan, looked: float, claim: Claim,
    ) -> None:  # fmt: skip
        self._add, self._claim = add, claim
        self._frame, self._environment, self._store = frame, frame.environment, store
        self._known = {at.where: at.identity for at in plan.partitions}
        self._cluster: Cluster | None = None
        self.looked = looked

    def adopt(self) -> list[SinkUnit]:
        """Look once, and take in what is new; return what tasks have to begin with.

        Raises:
            KbackupError: If cluster or store do not answer, or a newcomer cannot be backed up.
        """
        began = self._environment.clock.now().timestamp()
        plan, cluster = self._look()
        if plan.partitions:
            self._add(plan, cluster, self.looked)
            self._known |= {at.where: at.identity for at in plan.partitions}
        self.looked = began
        return [unit for at in plan.partitions if (unit := at.followed()) is not None]

    def wait(self, stop: threading.Event) -> list[SinkUnit]:
        """Wait for a first topic, where there is none; a single failed look is forgiven.

        Returns:
            What tasks have to begin with; nothing where *stop* was set first.
        """
        has_failed = False
        units: list[SinkUnit] = []
        while not self._known and not stop.wait(NEWCOMERS_S):
            try:
                units = self.adopt()
            except KafkaError:
                if has_failed:
                    raise
                has_failed = True
            else:
                has_failed = False
        return units

    def _look(self) -> tuple[SinkPlan, Cluster]:
        """Plan the partitions that have appeared; return with it the cluster it is of."""
        try:
            if self._cluster is None:
                self._cluster = self._environment.kafka.cluster()
            else:
                self._cluster.refresh()
            plan = plan_more(
                self._frame.settings, self._cluster, self._store, self._environment.clock,
                self._known, self._claim, self._frame.backup,
            )  # fmt: skip
        except KbackupError:
            self._cluster = None  # its client may keep asking a broker that was restarted
            raise
        return plan, self._cluster
