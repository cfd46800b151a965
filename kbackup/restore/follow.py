"""``--follow``: go on restoring what is new in the bucket until stopped.

It lists the bucket again and again.  Only topics whose objects have changed are planned, with the
same checks as by a restore that ends, and only what is new is given to tasks: where each partition
stands is its committed position, so a run that was killed goes on as any restore does.  What fails
or is refused is set aside and tried again later, while the rest goes on.

With ``--follow-groups`` consumer groups are set as the copy reaches their captures.  These are read
before the bucket is listed, and applied after what was listed is restored, so that one which a live
sink has just stored can be reached.  A group that its capture is ahead of waits for it, with that
capture; each group is set whole.  Only its own values are ever replaced: what it sets is stored
first, beside what `restore groups` has set, and can be undone like that.
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kbackup.catalog import groups as captured
from kbackup.clock import moment_of, rfc3339
from kbackup.errors import (
    Issue,
    KafkaError,
    KbackupError,
    RefusedError,
    SparkError,
    StoppedError,
    counted,
)
from kbackup.events import Event, Planned
from kbackup.kafka import Cluster, Groups, check_idle
from kbackup.naming.renaming import TopicFilter, matching, rename
from kbackup.plugins import choose_topics
from kbackup.records import TopicPartition
from kbackup.restore.accounting import RestoreProgress, tell_start
from kbackup.restore.groups import (
    LONE_STREAMS,
    GroupsSet,
    Offsets,
    PlannedGroup,
    Stood,
    by_group,
    captured_of,
    following_id,
    lone_streams,
    planned_groups,
    set_whole,
    why_lone,
)
from kbackup.restore.job import RestoreUnit
from kbackup.restore.plan import PlannedTopic, Planner, RestorePlan, confirm_adding
from kbackup.restore.restored import Restored, why_spread
from kbackup.restore.routing import RecordRoutes
from kbackup.restore.target import begin, checked_by_cluster
from kbackup.restore.translate import GroupView, Learned, NotReachedError
from kbackup.restore.watch import BUCKET, Ready, RestoreNews, stamps
from kbackup.runs import backup_state
from kbackup.runs.context import Agree, RunContext
from kbackup.runs.following import Asides, Backoff, Subject, aside_told, place_of, turns
from kbackup.runs.inventory import Inventory, listed
from kbackup.spark.channel import NotBegun, R
from kbackup.stores import Store

if TYPE_CHECKING:
    from kbackup.restore.run import RestoreTasks

OVERDUE_S: Final = 600.0
"""How long an object may wait to become whole until the restore no longer counts as complete."""


class Following:
    """One restore that follows; *prepare* registers a plan's schemas before it is carried out."""

    def __init__(
        self,
        frame: RunContext,
        store: Store,
        account: RestoreProgress,
        tasks: "RestoreTasks",
        prepare: Callable[[RestorePlan], None],
    ) -> None:
        self._frame, self._store, self._account = frame, store, account
        self._tasks, self._prepare = tasks, prepare
        settings, summary, environment = frame.settings, frame.summary, frame.environment
        self._settings, self._summary, self._environment = settings, summary, environment
        self._tell, self._stop, self._layout = frame.tell, frame.stop, frame.layout
        self._interval_s = settings.s3_poll_interval_ms / 1000
        self._news = RestoreNews(frame, account)
        self._asides = Asides(Backoff(self._interval_s, self._interval_s))
        self._ready = Ready(self._interval_s)
        self._cluster: Cluster | None = None
        self._stamps: dict[str, str] = {}
        self._reached = dict[TopicPartition, int | None]()
        self._success: float | None = None
        self._visits, self._is_first = 0, True
        self._asked = set[str]()  # the targets that the cluster has allowed
        self._looked: backup_state.Looked = {}
        self._routes: RecordRoutes | None = None
        if choose_topics(settings.transforms):
            self._routes = RecordRoutes(settings, store)
        self._groups: FollowedGroups | None = None
        if settings.follow_groups is not None:
            self._groups = FollowedGroups(frame, store)

    def run(self, agree: Agree | None) -> None:
        """List and restore until asked to stop, or until nothing that was asked for can be.

        Raises:
            KbackupError: If the first look fails, or Spark does.
        """
        stop = self._stop
        for number in turns(
            stop.is_set, stop.event.wait, self._environment.clock, self._interval_s
        ):
            try:
                names = self.turn(agree if number == 0 else None)
            except SparkError:
                raise
            except KbackupError as error:
                if number == 0:
                    raise
                self._set_aside(BUCKET, [error.issue()])
            else:
                if number == 0 and names and all(map(self._asides.holds, names)):
                    return
            self._is_first = False

    def turn(self, agree: Agree | None = None) -> list[str]:
        """List the bucket once, and restore what is new; return the topics that are restored."""
        now, looked = self._now(), self._environment.clock.now().timestamp()
        if self._asides.rests(BUCKET, now):
            return []
        cluster = self._reach()
        if self._groups is not None:
            self._groups.look()
        said = backup_state.read_topics(self._store, self._layout, self._environment.clock)
        found = listed(self._settings, self._store, self._settings.topics, said)
        stamped = stamps(found, said)
        names = self._news.names(stamped)
        if self._is_first:
            tell_start(self._frame, cluster, names, self._settings.asked.left_out(stamped))
        self._news.listed(found)
        for place in self._asides.gone(names):
            self._take_up(place)
        due = [name for name in names if self._is_due(name, stamped[name], now)]
        if due:
            try:
                self._visit(due, names, cluster, agree)
            except KafkaError:
                self._cluster = None  # its client may ask for ever a broker that was restarted
                raise
            self._stamps |= {name: stamped[name] for name in due}
        self._take_up(BUCKET)
        if self._groups is not None:
            self._groups.apply(cluster)
        self._news.held_up(self._store, self._reached.get, names)
        is_whole = not self._summary.standing and self._ready.longest_s(now) < OVERDUE_S
        if is_whole and not self._stop.is_set():
            self._success = looked
        return names

    def facts(self) -> Event:
        """Return what the summary says beside what every summary does."""
        with self._account.lock:
            good = self._success
            return {
                "plan": self._news.plans(),
                "timings": replace(self._frame.timings),
                "last_success": (
                    None if good is None else rfc3339(datetime.fromtimestamp(good, UTC))
                ),
                **({} if self._groups is None else self._groups.facts()),
            }

    # looking

    def _now(self) -> float:
        return self._environment.clock.steady_s()

    def _reach(self) -> Cluster:
        try:
            if self._cluster is None:
                self._cluster = self._environment.kafka.cluster()
            else:
                self._cluster.refresh()
        except KbackupError:
            self._cluster = None
            raise
        return self._cluster

    def _is_due(self, name: str, stamp: str, now: float) -> bool:
        """Whether to plan a topic: it has changed, or something of it waits to be tried again."""
        if self._asides.holds(name):
            return not self._asides.rests(name, now)
        if self._stamps.get(name) != stamp or self._ready.waits(name):
            return True
        return any(not self._asides.rests(at, now) for at in self._asides.partitions(name))

    # restoring

    def _visit(
        self,
        due: Sequence[str],
        names: Sequence[str],
        cluster: Cluster,
        agree: Agree | None,
    ) -> None:
        clock, settings = self._environment.clock, self._settings
        check_idle(cluster, self._frame.group)
        said = backup_state.read(self._store, self._layout, clock, TopicFilter(due))
        self._news.read(said)
        begun = clock.ms() / 1000 if self._is_first else None
        found = listed(settings, self._store, due, said, self._looked)
        taken = self._ready.take(due, found, said, self._now(), begun)
        there = {*taken.topics(), *said.topics} & set(due)
        inventory = Inventory(settings, self._store, taken, said)
        there -= self._read_routes(sorted(there), inventory)
        if self._stop.is_set():
            return
        beside = [name for name in names if name not in there]
        plan = self._plan(cluster, inventory, there, beside)
        sources = {topic.copy.source for topic in plan.topics}
        for name in there - sources - plan.failed.keys():
            self._take_up(name)  # none of its records has a topic: nothing is in their way
        good = self._begun(plan, cluster, agree)
        self._tell(Planned([row.shown() for row in self._account.rows()]))
        homes = {at: None if self._routes is None else self._routes.home(at) for at in taken.sets}
        reached = {at: said.ledger(at).reached() for at in homes}
        self._account.ends({at: (reached[at], home) for at, home in homes.items()})
        self._reached |= reached
        now = self._now()
        units = [unit for unit in good if not self._asides.rests(unit.source, now)]
        if units and not self._stop.is_set():
            self._restore(plan, sorted(units, key=lambda unit: unit.size, reverse=True), cluster)

    def _plan(
        self, cluster: Cluster, inventory: Inventory, only: Collection[str], beside: Collection[str]
    ) -> RestorePlan:
        """Plan *only* these topics; one that cannot be planned does not keep others from it."""
        planner = Planner(
            inventory, cluster, now_ms=self._environment.clock.ms(), only=only, beside=beside,
            routes=self._routes, backup=self._frame.backup, group=self._frame.group,
        )  # fmt: skip
        plan = planner.plan()
        self._news.lacking(inventory.catalog, planner.missing)
        for name, error in plan.failed.items():
            self._set_aside(name, [error.issue()])
        return self._allowed(plan, cluster)

    def _allowed(self, plan: RestorePlan, cluster: Cluster) -> RestorePlan:
        """Return *plan* with what the cluster has against topics it was not asked about yet."""
        new = [
            topic
            for topic in plan.topics
            if not topic.refusals and (topic.grows or topic.copy.target not in self._asked)
        ]
        if not new:
            return plan
        said = checked_by_cluster(
            replace(plan, topics=tuple(new)), cluster, self._environment.kafka.permissions(),
            self._settings.replication_factor, asks_for_transactions=False,
        )  # fmt: skip
        self._asked |= {topic.copy.target for topic in said.topics if not topic.refusals}
        answered = {topic.copy.target: topic for topic in said.topics}
        topics = tuple(answered.get(topic.copy.target, topic) for topic in plan.topics)
        return replace(plan, topics=topics)

    def _begun(self, plan: RestorePlan, cluster: Cluster, agree: Agree | None) -> list[RestoreUnit]:
        """Make the targets ready; return what is to be done in those that nothing forbids."""
        unconfirmed: RefusedError | None = None
        try:
            confirm_adding(plan, agree, is_agreed=self._settings.yes)
        except RefusedError as error:
            unconfirmed = error
        begun = list[RestoreUnit]()
        by_source: dict[str, list[PlannedTopic]] = {}
        self._news.planned(plan.topics)
        for topic in plan.topics:
            by_source.setdefault(topic.copy.source, []).append(topic)
        for name, topics in by_source.items():
            alone = replace(plan, topics=tuple(topics))
            failures, units = self._begin(alone, cluster, unconfirmed)
            if failures:
                self._set_aside(name, failures)
                continue
            self._take_up(name)
            left = {unit.source for unit in units}
            for where in self._asides.partitions(name):
                if where not in left:  # somebody else has restored it, or it is gone
                    self._take_up(where)
            for unit in units:
                self._account.plan(unit)
            begun += units
        return begun

    def _begin(
        self, plan: RestorePlan, cluster: Cluster, unconfirmed: RefusedError | None
    ) -> tuple[Sequence[Issue], Sequence[RestoreUnit]]:
        """Make the targets of one topic ready; return what is in the way, and what to do."""
        if plan.refusals:
            return [error.issue() for error in plan.refusals], []
        if unconfirmed is not None and any(topic.adds for topic in plan.topics):
            return [unconfirmed.issue()], []
        try:
            self._prepare(plan)
            first, units = begin(
                plan, cluster, self._settings.replication_factor,
                exactly_once=self._settings.exactly_once,
            )  # fmt: skip
        except KbackupError as error:
            if isinstance(error, KafkaError) and error.is_away:
                raise
            return [error.issue()], []
        if not first or self._stop.is_set():
            return [], units
        return self._tasks.begin(first, plan.group, self._visits + 1), units

    def _read_routes(self, names: Sequence[str], inventory: Inventory) -> set[str]:
        """Read new records for the topics that they go to; return where that is not possible."""
        routes, units = self._routes, list[RestoreUnit]()
        failures = dict[str, list[Issue]]()
        if routes is None:
            return set()
        for name in names:
            try:
                units += routes.unread(name, inventory)
            except KbackupError as error:
                if error.concerns_all:
                    raise
                failures[name] = [error.issue()]
        for report in _reported(self._tasks.survey(units)) if units else ():
            if report.failure is None:
                routes.take(report)
                self._account.foretell(report.where, *routes.lost(report.where), report.skipped)
            elif report.failure.code != StoppedError.code:  # the caller sees a stop, too
                failures.setdefault(report.where.topic, []).append(report.failure)
        for name in [name for name in names if name not in failures]:
            try:
                self._news.routed(name, routes.check(name))
            except RefusedError as error:
                failures[name] = [error.issue()]
        for name, its in failures.items():
            self._set_aside(name, its)
        return {*failures}

    def _restore(self, plan: RestorePlan, units: Sequence[RestoreUnit], cluster: Cluster) -> None:
        self._visits += 1
        reports = _reported(self._tasks.restore(units, plan.group, self._visits))
        for report in reports:
            self._account.take(report)
            if report.failure is not None and report.failure.code != StoppedError.code:
                self._set_aside(report.where, [report.failure])
        failed = {report.where for report in reports if report.failure is not None}
        for where in {report.where for report in reports} - failed:  # all topics that it goes to
            self._take_up(where)
        if self._stop.is_set():
            return
        found = self._tasks.audit(plan, cluster, reports)
        with self._account.lock:
            for issue in found.issues:
                at = issue.place.get("topic"), issue.place.get("partition")
                self._summary.stand(("audit", *at), [issue])

    # what is set aside

    def _set_aside(self, place: Subject, failures: Sequence[Issue]) -> None:
        with self._account.lock:
            is_news = self._asides.add(place, failures, self._now(), random.random())  # noqa: S311  (spreads retries)
            where = place_of(place)
            self._summary.stand(("aside", place), [each.at(**where) for each in failures])
        if is_news:
            self._tell(aside_told("restore", place, failures[0], self._frame.run))

    def _take_up(self, place: Subject) -> None:
        with self._account.lock:
            was_aside = self._asides.remove(place)
            self._summary.stand(("aside", place), ())
        if was_aside:
            self._tell(aside_told("restore", place, None, self._frame.run))


RENEW_S: Final = 86_400.0
"""After how many seconds a group is set again though no sink has captured it anew: Kafka forgets
the offsets of a group that has no members."""

RETRY_S: Final = 300.0
"""After how many seconds a group is looked at again that could not be set."""

_Taken = tuple[tuple[str, int], ...]
"""Which captures a group is set by: topics, and when each was taken."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A group that is to be set by captures, not before a time of the clock that nobody sets."""

    taken: _Taken
    stood: Stood
    is_ahead: bool = False
    not_before: float = 0.0


class FollowedGroups:
    """The groups of one restore that follows; `RefusedError` if no offset can be translated."""

    def __init__(self, frame: RunContext, store: Store) -> None:
        self._frame, self._store = frame, store
        self._settings, self._kafka = frame.settings, frame.environment.kafka
        if (why := why_spread(self._settings)) is not None:
            raise RefusedError(
                "consumer groups cannot follow this restore", why, "leave out --follow-groups"
            )
        self._waiting: dict[str, _Waiting] = {}
        self._set: dict[str, tuple[_Taken, float]] = {}
        self._known: Learned = {}
        self._own: GroupsSet | None = None
        self._seen: Collection[str] = ()
        self._newest: Mapping[str, Stood] = {}

    def facts(self) -> Event:
        """Return what the summary says: which groups stand as captured, and as of when."""
        taken = [ms for each, _ in self._set.values() for _, ms in each]
        oldest = moment_of(min(taken)) if taken else None
        undo = {} if self._own is None or not self._set else {"undo": self._own.id}
        return {
            "groups": sorted(self._set),
            "groups_taken": None if oldest is None else rfc3339(oldest),
            **undo,
        }

    def look(self) -> None:
        """Read the newest captures; what fails is a remark."""
        try:
            newest = self._captured()
        except KbackupError as error:
            self._remark("", "groups_not_set", f"consumer groups are not set: {error}")
            return
        now = self._frame.environment.clock.steady_s()
        for name, stood in newest.items():
            found = {(topic, row.taken) for topic, rows in stood.items() for row in rows}
            taken = tuple(sorted(found))
            waiting, (done, at) = self._waiting.get(name), self._set.get(name, ((), -RENEW_S))
            if waiting is not None and (waiting.is_ahead or waiting.taken == taken):
                continue
            if waiting is not None:
                self._waiting[name] = replace(waiting, taken=taken, stood=stood)
            elif done != taken or now - at >= RENEW_S:
                self._waiting[name] = _Waiting(taken, stood)

    def _captured(self) -> Mapping[str, Stood]:
        """Return where each group that is to follow stood, by the newest captures."""
        settings, frame = self._settings, self._frame
        stream = captured.group_stream(self._store, frame.layout, frame.environment.clock)
        if (new := stream.read_if_new(self._seen)) is None:
            return self._newest
        found = captured.captures(new[1])
        said = [(damage.code, damage.text) for damage in found.damage]
        frame.remark(("", "captures"), *said)
        topics = settings.asked.topics(found.newest)
        newest = by_group(captured_of(topics, found.newest, settings.partitions))
        names = matching(sorted(newest), settings.follow_groups or "", "follow.groups")
        self._seen, self._newest = new[0], {name: newest[name] for name in names}
        return self._newest

    def apply(self, cluster: Cluster) -> None:
        """Set the groups that the copy has come to; what fails is a remark."""
        now = self._frame.environment.clock.steady_s()
        names = [name for name, one in sorted(self._waiting.items()) if one.not_before <= now]
        if not names or self._frame.stop.is_set():
            return
        try:
            with closing(self._kafka.consumer_groups()) as clients:
                self._apply(clients, cluster, names)
        except KbackupError as error:
            self._remark("", "groups_not_set", f"consumer groups are not set: {error}")
            return
        self._remark("")

    def _apply(self, clients: Groups, cluster: Cluster, names: Sequence[str]) -> None:
        settings, frame = self._settings, self._frame
        own = self._read_own(cluster)
        standing = dict(clients.offsets(names))
        free = dict[str, Offsets]()
        for name, now in standing.items():
            why = self._taken_by(cluster, own, name, now)
            if why is None and now is not None:
                free[name] = now
                continue
            self._rest(name)
            self._set.pop(name, None)
            self._remark(name, "group_left_alone", f"group {name} {why}: it is left alone")
        if not free:
            return
        stood = {name: self._waiting[name].stood for name in free}
        lone = lone_streams(clients, stood)
        restored = Restored(settings, self._kafka, self._store, frame.environment.clock, cluster)
        with closing(GroupView(restored, cluster, self._store, known=self._known)) as view:
            planned = planned_groups(view, stood)
        self._known = view.learned
        reached = [one for one in planned if self._is_reached(one, is_lone=one.name in lone)]
        found = {one.name: one.offsets for one in reached}
        if not found:
            return
        after = GroupsSet(
            own.id,
            own.cluster_id,
            {**{name: free[name] for name in found}, **own.before},
            {**own.after, **found},
            {**own.last, **{name: free[name] for name in found}},
        )
        if after != own:
            after.store(self._store, frame.layout)
        self._own = after
        for name, offsets in found.items():
            self._alter(clients, name, offsets, free[name])

    def _read_own(self, cluster: Cluster) -> GroupsSet:
        if self._own is None:
            name = following_id(self._frame.group, cluster)
            there = GroupsSet.find(self._store, self._frame.layout, name)
            self._own = GroupsSet(name, cluster.cluster_id, {}, {}) if there is None else there
        return self._own

    def _taken_by(
        self, cluster: Cluster, own: GroupsSet, name: str, now: Offsets | None
    ) -> str | None:
        """Return who a group belongs to; None: to nobody, and it stands where it was set."""
        if now is None:
            return "may not be read"
        if members := cluster.members(name):
            return f"has {counted(len(members), 'live member')}"
        topics = {rename(topic, self._settings.renames) for topic in self._waiting[name].stood}
        for at in sorted(now):
            if at.topic in topics and not own.has_set(name, at, now[at]):
                return f"stands in {at} where this restore has not set it"
        return None

    def _is_reached(self, found: PlannedGroup, *, is_lone: bool) -> bool:
        """Whether the copy has come to where a group stood; say what keeps it from being set."""
        name = found.name
        failed = [one for one in found.refusals if not isinstance(one, NotReachedError)]
        if failed:
            self._rest(name)
            self._remark(name, "group_not_set", f"group {name} is not set: {failed[0]}")
            return False
        self._remark(name, *((LONE_STREAMS, why_lone([name])) if is_lone else ()))
        if found.refusals:
            self._waiting[name] = replace(self._waiting[name], is_ahead=True)
            return False
        if name not in self._set:
            for row in found.rows:
                self._frame.tell(row)
        return True

    def _alter(self, clients: Groups, name: str, offsets: Offsets, before: Offsets) -> None:
        try:
            set_whole(clients, name, offsets, before)
        except KbackupError as error:  # a consumer has joined meanwhile
            self._rest(name)
            self._remark(name, "group_not_set", f"group {name} is not set: {error}")
            return
        taken = self._waiting.pop(name).taken
        self._set[name] = taken, self._frame.environment.clock.steady_s()

    def _rest(self, name: str) -> None:
        """Look at a group again after a while, and then by its newest captures."""
        later = self._frame.environment.clock.steady_s() + RETRY_S
        self._waiting[name] = replace(self._waiting[name], is_ahead=False, not_before=later)

    def _remark(self, name: str, code: str = "", text: str = "") -> None:
        """Report what keeps a group, or all where *name* is empty, from being set; if anything."""
        self._frame.remark(("consumer group", name), *([(code, text)] if code else []))


def _reported(found: Sequence[R | NotBegun]) -> list[R]:
    """Return the reports of tasks; `SparkError` if one has not begun."""
    for each in found:
        if isinstance(each, NotBegun):
            raise SparkError(each.failure.what, each.failure.why)
    return [each for each in found if not isinstance(each, NotBegun)]
