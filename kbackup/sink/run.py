"""One run of the sink: plan, lock, tasks on Spark, account for every offset, leave a record."""

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kbackup import engine, moments
from kbackup.backup.ledger.stream import Clock
from kbackup.config import Settings
from kbackup.config.layout import RECORD_FORMAT
from kbackup.errors import KbackupError, TopicChangedError
from kbackup.kafka import Cluster, Position
from kbackup.records import Span, TopicPartition
from kbackup.reports import PartitionReport
from kbackup.runs import history, wiring
from kbackup.runs.locks import RunLock, lost_lock
from kbackup.runs.stopping import Stop
from kbackup.runs.summary import Event, Summary
from kbackup.runs.world import World
from kbackup.sink import accounting
from kbackup.sink import plan as planning
from kbackup.sink.beats import Beats
from kbackup.sink.entering import RunLedger, asked
from kbackup.sink.follow import follow
from kbackup.sink.job import SinkJob, SinkUnit
from kbackup.sink.plan import PlannedPartition, SinkPlan
from kbackup.sink.task import back_up
from kbackup.stores import Store, open_store

_log: Final = logging.getLogger(__name__)

_EXPIRED: Final = "expired"
_ROUNDS: Final = 3
"""How often retention may overtake a run before it gives up on a partition."""

Tell = Callable[[Event], None]


class SinkRun:
    """One run, from settings to summary."""

    def __init__(self, settings: Settings, tell: Tell, stop: Stop, world: World) -> None:
        self._settings, self._tell, self._stop, self._world = settings, tell, stop, world
        self._run = history.new_run_id(world.clock.now())
        self._summary = Summary(self._run, "sink")
        self._layout = wiring.layout(settings)
        self._rows: dict[TopicPartition, dict[str, Any]] = {}
        self._met_gaps: list[tuple[TopicPartition, Span]] = []
        self._timings = engine.Timings()

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
        self._ledger = RunLedger(store, self._layout, self._run, self._time())
        if settings.dry_run:
            plan = planning.make(settings, cluster, store)
            self._show(plan, cluster)
            for event in accounting.plan_topics(plan, self._layout):
                self._tell(event)
            for at in plan.partitions:
                self._tell_expired(at)
            return
        names = list(settings.topics) or [settings.topics_regex or ""]
        self._summary.facts["names"] = names
        lock = RunLock.for_settings(
            settings, store, self._layout, "sink", names, self._run, self._stop.event.wait
        )
        tasks = self._world.run_tasks
        with lock as held:
            try:
                plan = planning.make(settings, cluster, store, likely=tasks.begin)
                self._show(plan, cluster)
                sought = asked(plan.group, settings.topics, settings.topics_regex)
                self._ledger.begin(plan, cluster, sought, wiring.reading(settings))
                self._prepare(plan.partitions, plan.group, cluster)
                with Beats("folding the ledger", self._ledger.fold):
                    if settings.follow:
                        self._follow(plan, cluster, store)
                    else:
                        self._once(plan, cluster, store)
                self._fold()
            except KbackupError as error:
                self._summary.fail(error)
            finally:
                tasks.end()
            if held is not None and held.is_lost:
                self._summary.fail(lost_lock())
            self._write_record(store)

    def _write_record(self, store: Store) -> None:
        history.write_run(store, self._layout, self._finish(store))

    def _fold(self) -> None:
        """Fold the ledger, unless asked to stop; what cannot be folded now is by a later run."""
        if self._stop.is_set():
            return
        try:
            self._ledger.fold(at_end=True)
        except KbackupError as error:
            _log.warning("folding the ledger: %s", error)

    def _time(self) -> Clock:
        """Return the driver's time as the ledger wants it."""
        now = self._world.clock.now
        return Clock(lambda: int(now().timestamp() * 1000))

    def _show(self, plan: SinkPlan, cluster: Cluster) -> None:
        settings = self._settings
        self._summary.facts |= {
            "group": plan.group,
            "kafka_client": wiring.kafka_way(settings).name,
            "cluster_id": cluster.cluster_id,
            "topics_dir": settings.topics_dir,
            "topic_settings": accounting.topic_settings(plan, cluster.topic_config(plan.topics)),
        }
        self._tell(
            {
                "type": "start", "v": 1, "run": self._run, "command": "sink",
                "topics": sorted(plan.topics), "group": plan.group, "store": settings.url,
                "topics_dir": settings.topics_dir, "format": settings.format_class or RECORD_FORMAT,
                "view": settings.view, "flush_size": settings.flush_size,
            }
        )  # fmt: skip
        self._tell(
            {"type": "plan", "partitions": [accounting.planned(at) for at in plan.partitions]}
        )
        if not plan.partitions:
            text = f"no topic matches topics.regex {settings.topics_regex}"
            self._tell(self._summary.warn("no_topic", text))
        for at in plan.partitions:
            self._rows[at.where] = accounting.begin(at)
            self._summary.partitions.append(self._rows[at.where])
            self._tell_start(at)

    def _tell_start(self, at: PlannedPartition) -> None:
        """Tell what is odd about where a partition goes on, or why it does not."""
        if at.refusal is not None:
            self._summary.fail(at.refusal)
        if at.start is not None:
            place = {"topic": at.where.topic, "partition": at.where.partition}
            for code, text in at.start.warnings:
                self._tell(self._summary.warn(code, text, **place))

    def _prepare(
        self, partitions: Iterable[PlannedPartition], group: str, cluster: Cluster
    ) -> None:
        """Write down what has expired, and put the group where the run begins."""
        positions = {}
        for at in partitions:
            gap = self._tell_expired(at)
            if gap is not None:
                self._ledger.gap(at.where, gap)
            if (position := at.position()) is not None:
                positions[at.where] = position
        cluster.set_positions(group, positions)

    def _tell_expired(self, at: PlannedPartition) -> Span | None:
        """Tell of offsets that expired before they were backed up, count and return them."""
        gap = None if at.start is None else at.start.expired
        if gap is None:
            return None
        text = (
            f"{at.where}: offsets {gap.start_offset} to {gap.end_offset - 1} have expired in the "
            "cluster before they were backed up"
        )
        self._tell(
            self._summary.warn(
                "gap", text, topic=at.where.topic, partition=at.where.partition,
                offsets=[gap.start_offset, gap.end_offset - 1],
            )
        )  # fmt: skip
        self._summary.skip("expired_offsets", len(gap))
        return gap

    def _job(self, plan: SinkPlan) -> SinkJob:
        settings = self._settings
        return SinkJob(
            run=self._run,
            kafka=self._world.kafka,
            store=self._world.store,
            layout=self._layout,
            views=wiring.views(settings),
            partitioner=settings.partitioner_class,
            rule=wiring.rule(settings),
            plugin_options=settings.plugin_options,
            group=plan.group,
            flush_tail=settings.flush_on_stop,
            drops_nulls=settings.view == "value" and settings.behavior_on_null_values == "ignore",
        )

    def _once(self, plan: SinkPlan, cluster: Cluster, store: Store) -> None:
        units: Sequence[SinkUnit] = plan.units()
        for _ in range(_ROUNDS):
            if not units or self._stop.is_set():
                return
            overtaken = self._tasks(functools.partial(back_up, self._job(plan)), units)
            if not overtaken:
                return
            plan = planning.make(self._settings, cluster, store, overtaken)
            again = [at for at in plan.partitions if at.where in overtaken]
            for at in again:
                self._tell_start(at)
                accounting.plan_again(self._rows[at.where], at)
            for where in overtaken.keys() - {at.where for at in again}:
                self._summary.fail(_gone(where))
            self._prepare(again, plan.group, cluster)
            units = [unit for at in again if (unit := at.unit()) is not None]
        for where in {unit.where for unit in units}:
            self._summary.fail(
                KbackupError(f"{where}: retention overtook the backup {_ROUNDS} times",
                             "records expire faster than they can be read",
                             "raise the topic's retention", topic=where.topic)
            )  # fmt: skip

    def _follow(self, plan: SinkPlan, cluster: Cluster, store: Store) -> None:
        units = [
            SinkUnit(at.where, at.seen.log, None, at.identity)
            if (unit := at.unit()) is None
            else unit
            for at in plan.partitions
            if at.start is not None
        ]
        starts = {at.where: at.start.offset for at in plan.partitions if at.start is not None}
        ids = {name: topic.topic_id for name, topic in plan.topics.items()}
        job, idle_ms = self._job(plan), self._settings.rotate_idle_ms
        task = functools.partial(follow, job, starts, ids, idle_ms)
        record = functools.partial(self._write_record, store)
        with Beats("leaving a run record", record):
            self._tasks(task, units, slices_per_core=1)
        self._leave_behind(plan.group, cluster)

    def _leave_behind(self, group: str, cluster: Cluster) -> None:
        """Count the gaps that tasks wrote down, and set the group on behind those at its end."""
        ends: dict[TopicPartition, int] = {}
        for where, gap in self._met_gaps:
            self._summary.skip("expired_offsets", len(gap))
            ends[where] = gap.end_offset
        stands = cluster.committed(group, ends)
        behind = {
            where: Position(ends[where], position.metadata)
            for where, position in stands.items()
            if position.offset < ends[where]
        }
        cluster.set_positions(group, behind)

    def _tasks(
        self,
        task: engine.Task,
        units: Sequence[SinkUnit],
        slices_per_core: int | None = None,
    ) -> dict[TopicPartition, int]:
        """Run *task* over *units*; return where it stands in those that retention overtook."""
        reports = self._world.run_tasks(
            task,
            units,
            self._hear,
            self._stop.event,
            slices_per_core=slices_per_core,
            timings=self._timings,
        )
        self._summary.facts["timings"] = self._timings.to_dict()
        overtaken = {}
        for data in reports:
            if "topic" not in data:  # of a task that could not begin
                self._summary.fail(data["failure"])
                continue
            report = PartitionReport.from_dict(data)
            if report.failure is not None and report.failure["code"] == _EXPIRED:
                overtaken[report.where] = report.committed
            elif report.failure is not None:
                self._summary.fail(report.failure)
            self._met_gaps += ((report.where, gap) for gap in report.gaps)
            accounting.grow(self._rows[report.where], report)
        return overtaken

    def _hear(self, event: Event) -> None:
        """Pass an event on; a run that follows keeps its rows up with what is committed."""
        if event["type"] == "progress" and not event["open"]:  # a commit, and a part before it
            self._ledger.note(event["topic"])
        if event["type"] == "progress" and self._settings.follow:
            row = self._rows[TopicPartition(event["topic"], event["partition"])]
            row["committed"], row["end"] = event["committed"], max(row["end"], event["end"])
            row["lag"] = row["end"] - row["committed"]
        self._tell(event)

    def _finish(self, store: Store | None = None) -> Event:
        """Return the summary; with *store*, it says when a run last was good."""
        summary = self._summary.finish(self._stop.signal)
        is_good = not summary["errors"] and summary["exit_code"] in (*history.GOOD, 130, 143)
        if self._settings.follow and is_good:
            summary["last_success"] = moments.text(self._world.clock.now())
        elif summary["exit_code"] not in history.GOOD and store is not None:
            mine = self._summary.facts["names"]
            past = history.runs(store, self._layout, "sink")
            before = (history.success(run) for run in past if run.get("names") == mine)
            last = next((time for time in before if time is not None), None)
            summary["last_success"] = None if last is None else moments.text(last)
        else:
            summary["last_success"] = self._run[:20] if is_good else None
        return summary


def _gone(where: TopicPartition) -> KbackupError:
    return TopicChangedError(
        f"{where} is no longer there",
        "its topic was deleted, or made anew with fewer partitions",
        "what is stored stays as it is; look at the topic before running again",
        topic=where.topic,
        partition=where.partition,
    )
