"""Plans one visit of a restore that follows: no topic keeps another from being restored."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from kbackup.config import Settings
from kbackup.errors import Failure, KbackupError
from kbackup.kafka import Cluster
from kbackup.restore.account import Account
from kbackup.restore.follow.remarks import Remarks
from kbackup.restore.planning.inventory import Inventory
from kbackup.restore.planning.plan import RestorePlan
from kbackup.restore.planning.planner import Planner
from kbackup.restore.planning.shares import Shares
from kbackup.restore.planning.target import asked
from kbackup.runs import wiring
from kbackup.runs.known import Known
from kbackup.runs.world import World
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
        world: World,
        store: Store,
        account: Account,
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
        said: Known,
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
        self, cluster: Cluster, inventory: Inventory, said: Known, only: Collection[str],
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
