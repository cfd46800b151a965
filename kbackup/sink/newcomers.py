"""Topics and partitions that appear while a run follows."""

import threading
from typing import Final

from kbackup.config import Settings
from kbackup.errors import KafkaError, KbackupError
from kbackup.kafka import Cluster
from kbackup.runs.world import World
from kbackup.sink import planner
from kbackup.sink.job import SinkUnit
from kbackup.sink.opening import Opening
from kbackup.sink.plan import SinkPlan
from kbackup.stores import Store

NEWCOMERS_S: Final = 20.0
"""Seconds between two looks.  Even if one of them fails, what is new is followed within 60 s."""


class Newcomers:
    """Takes in matching topics and partitions that are new.

    Args:
        settings: The configuration.
        world: The cluster, asked by one client as long as it answers, and the time.
        store: Where the backup is.
        opening: Accounts for newcomers, and enters them into the ledger.
        plan: What is backed up already.
        looked: When the cluster was asked for it, in seconds since the epoch.
        claim: Takes topics, and returns those that are left to other runs.

    Attributes:
        looked: When the cluster was last asked: what came before is being backed up.
    """

    def __init__(
        self, settings: Settings, world: World, store: Store, opening: Opening, plan: SinkPlan,
        looked: float, claim: planner.Claim = planner.no_others,
    ) -> None:  # fmt: skip
        self._claim = claim
        self._settings, self._world, self._store = settings, world, store
        self._opening, self._group = opening, plan.group
        self._known = {at.where: at.identity for at in plan.partitions}
        self._cluster: Cluster | None = None
        self.looked = looked

    def adopt(self) -> list[SinkUnit]:
        """Look once, and take in what is new; return what tasks have to begin with.

        Raises:
            KbackupError: If cluster or store do not answer, or a newcomer cannot be backed up.
        """
        began = self._world.clock.now().timestamp()
        plan, cluster = self._look()
        if plan.partitions:
            self._opening.add(plan, cluster, self._group, self.looked)
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
                self._cluster = self._world.kafka.cluster()
            else:
                self._cluster.refresh()
            plan = planner.more(
                self._settings, self._cluster, self._store, self._world.clock, self._known,
                self._claim,
            )  # fmt: skip
        except KbackupError:
            self._cluster = None  # its client may keep asking a broker that was restarted
            raise
        return plan, self._cluster
