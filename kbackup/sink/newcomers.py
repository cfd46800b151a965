"""Topics and partitions that appear while a run follows."""

from collections.abc import Mapping
from typing import Final

from kbackup.config import Settings
from kbackup.errors import KbackupError
from kbackup.kafka import Cluster
from kbackup.records import TopicIdentity, TopicPartition
from kbackup.runs.world import World
from kbackup.sink import plan as planning
from kbackup.sink.plan import SinkPlan
from kbackup.stores import Store

NEWCOMERS_S: Final = 20.0
"""Seconds between two looks.  Even if one of them fails, what is new is followed within 60 s."""


class Newcomers:
    """Finds matching topics and partitions that are new, with one client as long as it answers."""

    def __init__(self, settings: Settings, world: World, store: Store) -> None:
        self._settings, self._world, self._store = settings, world, store
        self._cluster: Cluster | None = None

    def look(self, known: Mapping[TopicPartition, TopicIdentity]) -> tuple[SinkPlan, Cluster]:
        """Plan the partitions that appeared after the *known* ones were planned.

        Returns:
            The plan, which may have none, and the cluster it is of.

        Raises:
            KbackupError: If cluster or store do not answer, or a newcomer cannot be backed up.
        """
        try:
            if self._cluster is None:
                self._cluster = self._world.kafka.cluster()
            else:
                self._cluster.refresh()
            plan = planning.more(
                self._settings, self._cluster, self._store, self._world.clock, known
            )
        except KbackupError:
            self._cluster = None  # its client may keep asking a broker that was restarted
            raise
        return plan, self._cluster
