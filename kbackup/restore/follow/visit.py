"""Plan one visit of a restore that follows, and find out which topics its records go to.

Where transforms choose a topic for each record, all that is new is read before it is planned, and
nothing of it is written meanwhile.  So each topic that turns up passes the checks of any other
target before its first record is written.  What was read once is not read again to find that out.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from kbackup.config import Settings
from kbackup.errors import Failure, KbackupError, RefusedError, StoppedError
from kbackup.kafka import Cluster
from kbackup.records import TopicPartition
from kbackup.restore.account import RestoreProgress
from kbackup.restore.follow.watch import Remarks
from kbackup.restore.job import RestoreUnit
from kbackup.restore.planning.inventory import Inventory
from kbackup.restore.planning.plan import RestorePlan
from kbackup.restore.planning.planner import Planner
from kbackup.restore.planning.resuming import chain
from kbackup.restore.planning.routing import (
    RoutedRecords,
    Shares,
    Surveyed,
    added,
    check,
    check_archived,
    to_survey,
    with_home,
)
from kbackup.restore.planning.target import asked
from kbackup.runs import wiring
from kbackup.runs.environment import Environment
from kbackup.runs.known import BackupState
from kbackup.stores import Store


class VisitPlanner:
    """Makes the plans of all visits, and remembers what the cluster has allowed.

    Args:
        settings: The configuration.
        world: The cluster and the time.
        store: Where the backup is, opened.
        account: Takes objects that are missing and left out.
        remarks: Takes what is odd.
        set_aside: Takes a topic that cannot be planned, and why.

    Attributes:
        unplanned: The topics of the latest visit that could not be planned.
    """

    def __init__(
        self,
        settings: Settings,
        world: Environment,
        store: Store,
        account: RestoreProgress,
        remarks: Remarks,
        set_aside: Callable[[str, Sequence[Failure]], None],
    ) -> None:
        self._settings, self._world, self._store = settings, world, store
        self._account, self._remarks, self._set_aside = account, remarks, set_aside
        self._asked: set[str] = set()
        self.unplanned: set[str] = set()

    def plan(
        self,
        cluster: Cluster,
        inventory: Inventory,
        said: BackupState,
        only: Collection[str],
        beside: Collection[str],
        shares: Shares | None,
    ) -> RestorePlan:
        """Plan a visit.

        Args:
            cluster: The target.
            inventory: The objects that are ready.
            said: What the backup says about itself.
            only: The topics to plan.
            beside: Topics that the same run restores, and that are not planned now.
            shares: Which topics the transforms choose, where they choose one for each record.

        Raises:
            KbackupError: If the cluster or the store does not answer, or the only topic that the
                run restores cannot be planned.
        """
        self.unplanned = set()
        found = self._planned(cluster, inventory, said, only, beside, shares)
        return self._allowed(found, cluster)

    def _planned(
        self, cluster: Cluster, inventory: Inventory, said: BackupState, only: Collection[str],
        beside: Collection[str], shares: Shares | None,
    ) -> RestorePlan:  # fmt: skip
        """Plan *only* these topics; one that cannot be planned does not keep others from it."""

        def planned(names: Collection[str]) -> RestorePlan:
            planner = Planner(
                settings=self._settings, cluster=cluster, store=self._store,
                inventory=inventory, known=said, now_ms=self._world.clock.ms(), only=names,
                beside=[*beside, *(name for name in only if name not in names)], shares=shares,
            )  # fmt: skip
            plan = planner.plan()
            for error in planner.missing:
                key = str(error.place.get("topic", "")), str(error)
                if self._remarks.odd(key, [("missing_object", f"{error}; left out")]):
                    self._account.lacks(error)
            return plan

        try:
            return planned(only)
        except KbackupError as error:
            if len({*only, *beside}) < 2 or error.exit_code in (5, 6):
                raise
        plans = []
        for name in sorted(only):
            try:
                plans.append(planned([name]))
            except KbackupError as error:
                if error.exit_code in (5, 6):
                    raise
                self.unplanned.add(name)
                self._set_aside(name, [error.failure()])
        spans = {where: span for plan in plans for where, span in plan.spans.items()}
        topics = tuple(topic for plan in plans for topic in plan.topics)
        return RestorePlan(topics, wiring.restore_group(self._settings), spans)

    def _allowed(self, plan: RestorePlan, cluster: Cluster) -> RestorePlan:
        """Return *plan* with what the cluster has against topics it was not asked about yet."""
        new = [
            topic
            for topic in plan.topics
            if not topic.refusals and (topic.grows or topic.intent.target not in self._asked)
        ]
        if not new:
            return plan
        said = asked(
            replace(plan, topics=tuple(new)), cluster, self._world.kafka.permissions(),
            self._settings.replication_factor, asks_for_transactions=False,
        )  # fmt: skip
        self._asked |= {topic.intent.target for topic in said.topics if not topic.refusals}
        answered = {topic.intent.target: topic for topic in said.topics}
        topics = tuple(answered.get(topic.intent.target, topic) for topic in plan.topics)
        return replace(plan, topics=topics)


@dataclass(slots=True)
class _Known:
    """What is known of one partition.

    Attributes:
        seen: What stands for each set that was read, as it was then.
        shares: Where its records go.
        bad_records: Records without a topic that are counted, as long as none has one.
        bad_objects: Objects that cannot be read, likewise.
    """

    seen: dict[str, str] = field(default_factory=dict)
    shares: dict[str, RoutedRecords] = field(default_factory=dict)
    bad_records: int = 0
    bad_objects: int = 0


class FollowedRoutes:
    """Where the records of a backup go that is followed.

    Args:
        settings: The configuration.
        store: Where the backup is.
        read: Reads units for their topics, and reports where their records go.
        account: Counts what has no topic, as long as no task would.
        remarks: Takes what is odd.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        read: Callable[[Sequence[RestoreUnit]], Sequence[Surveyed]],
        account: RestoreProgress,
        remarks: Remarks,
    ) -> None:
        self._settings, self._store, self._read = settings, store, read
        self._account, self._remarks = account, remarks
        self._known: dict[TopicPartition, _Known] = {}

    @property
    def shares(self) -> Shares:
        """Where all that was read goes."""
        return Shares({where: known.shares for where, known in self._known.items()})

    def home(self, where: TopicPartition) -> str | None:
        """Return the topic whose restore reads all objects of a partition; None for none."""
        shares = self._known[where].shares if where in self._known else {}
        return next((name for name, share in shares.items() if share.counts_rest), None)

    def look(self, topics: Sequence[str], inventory: Inventory) -> dict[str, list[Failure]]:
        """Read what is new of *topics*.

        Returns:
            What is in the way of each; empty where nothing is.

        Raises:
            StoreError: If the store does not answer.
        """
        failures: dict[str, list[Failure]] = {name: [] for name in topics}
        units = list[RestoreUnit]()
        for name in topics:
            try:
                found = self._unread(name, inventory)
                check_archived(self._store, found)
            except KbackupError as error:
                if error.exit_code in (5, 6):
                    raise
                failures[name].append(error.failure())
            else:
                units += found
        new = {unit.source: unit for unit in units}
        for report in self._read(units) if units else ():
            if report.failure is None:
                self._take(new[report.where], report)
            elif report.failure.code != StoppedError.code:  # the caller sees a stop, too
                failures[report.where.topic].append(report.failure)
        for name in topics:
            if not failures[name]:
                try:
                    self._judge(name)
                except RefusedError as error:
                    failures[name].append(error.failure())
        return failures

    def _unread(self, name: str, inventory: Inventory) -> list[RestoreUnit]:
        """Return what of a topic was not read yet; what was may be archived by now."""
        whole = to_survey(self._settings, inventory, [name])
        wheres = {unit.source for unit in whole}
        for where in [at for at in self._known if at.topic == name and at not in wheres]:
            del self._known[where]  # nothing of it is left
        return list(filter(None, map(self._news, whole)))

    def _news(self, unit: RestoreUnit) -> RestoreUnit | None:
        """Return what of a partition was not read yet, and forget what is gone."""
        now = {files.part: chain("", [files]) for files in unit.sets}
        known = self._known.setdefault(unit.source, _Known())
        if any(now.get(one, stamp) != stamp for one, stamp in known.seen.items()):
            self._forget_counts(known)
            known = self._known[unit.source] = _Known()  # what it held, nothing says any more
        known.seen = {one: stamp for one, stamp in known.seen.items() if one in now}
        left = {
            name: replace(share, sets=share.sets & now.keys())
            for name, share in known.shares.items()
        }
        known.shares = with_home({name: share for name, share in left.items() if share.sets})
        new = tuple(files for files in unit.sets if files.part not in known.seen)
        return replace(unit, sets=new) if new else None

    def _take(self, unit: RestoreUnit, report: Surveyed) -> None:
        known = self._known[unit.source]
        known.seen |= {files.part: chain("", [files]) for files in unit.sets}
        shares = dict(known.shares)
        for name, share in report.shares.items():
            shares[name] = added(shares[name], share) if name in shares else share
        known.shares = with_home(shares)
        if known.shares:  # the task that restores its first topic counts all of it
            self._forget_counts(known)
            return
        known.bad_records += report.bad_records
        known.bad_objects += report.bad_objects
        self._account.foretell(unit.source, report.bad_records, report.bad_objects, report.skipped)

    def _forget_counts(self, known: _Known) -> None:
        self._account.counts_again(known.bad_records, known.bad_objects)
        known.bad_records = known.bad_objects = 0

    def _judge(self, name: str) -> None:
        """Report a topic none of whose records has another, and refuse one with too many.

        Raises:
            RefusedError: If its records go to too many topics.
        """
        targets = self.shares.targets(name)
        check(name, len(targets))
        text = f"{name}: there is no record, or its transforms leave none: no topic is chosen"
        self._remarks.odd((name, "no_topic"), [] if targets else [("no_topic", text)])
