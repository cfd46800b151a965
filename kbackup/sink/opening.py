"""What a run does with its plan before tasks begin: report, account, ledger, positions."""

from collections.abc import Iterable

from kbackup.config import Settings
from kbackup.kafka import Cluster
from kbackup.runs import wiring
from kbackup.runs.summary import Summary
from kbackup.sink import accounting
from kbackup.sink.accounting import Account
from kbackup.sink.entering import RunLedger, asked
from kbackup.sink.news import News
from kbackup.sink.plan import PlannedPartition, SinkPlan


class Opening:
    """Opens what was planned.

    Args:
        settings: The configuration.
        summary: Gets the run's facts.
        account: Gets a row for each partition.
        news: Reports the plan, and what is odd about it.
        ledger: Where topics and gaps are entered.
    """

    def __init__(
        self, settings: Settings, summary: Summary, account: Account, news: News, ledger: RunLedger
    ) -> None:
        self._settings, self._summary, self._account = settings, summary, account
        self._news, self._ledger = news, ledger

    def report(self, plan: SinkPlan, cluster: Cluster) -> None:
        """Open the account of what is planned, and report it."""
        settings = self._settings
        self._summary.facts |= {
            "group": plan.group,
            "kafka_client": wiring.kafka_way(settings).name,
            "cluster_id": cluster.cluster_id,
            "topics_dir": settings.topics_dir,
            "topic_settings": accounting.topic_settings(plan, cluster.topic_config(plan.topics)),
            **({"stored_as": self._stored_as(plan)} if settings.renames else {}),
        }
        for at in plan.partitions:
            self._account.begin(at)
        self._news.start(plan)
        self._news.held_up(self._account.held_up())

    def _stored_as(self, plan: SinkPlan) -> dict[str, str]:
        """Return the names under which topics are stored: who reads run records looks there."""
        routes = wiring.routes(self._settings)
        return {name: routes.topic(name) for name in plan.topics}

    def enter(self, plan: SinkPlan, cluster: Cluster) -> None:
        """Enter topics into the ledger before anything is stored of them.

        Raises:
            StoreError: If it cannot be written.
        """
        settings = self._settings
        sought = asked(plan.group, settings.topics, settings.topics_regex)
        self._ledger.begin(plan, cluster, sought, wiring.reading(settings))

    def start(self, partitions: Iterable[PlannedPartition], group: str, cluster: Cluster) -> None:
        """Enter what has expired, and set the group to where the run begins.

        Raises:
            KafkaError: If the cluster does not answer.
            StoreError: If the ledger cannot be written.
        """
        positions = {}
        for at in partitions:
            for gap in self._news.expired(at):
                self._ledger.gap(at.where, gap)
            if (position := at.position()) is not None:
                positions[at.where] = position
        cluster.set_positions(group, positions)

    def add(self, plan: SinkPlan, cluster: Cluster, group: str, empty_at: float | None) -> None:
        """Take partitions in that have come while the run follows.

        Args:
            plan: Only of these.
            cluster: Where they are.
            group: The run's.
            empty_at: When they had not been there yet, in seconds since the epoch: all that was
                written to them before is backed up.

        Raises:
            KafkaError: If the cluster does not answer.
            StoreError: If the ledger cannot be written.
        """
        settings = accounting.topic_settings(plan, cluster.topic_config(plan.topics))
        self.enter(plan, cluster)
        self.start(plan.partitions, group, cluster)
        with self._account.lock:
            self._summary.facts["topic_settings"] |= settings
            if self._settings.renames:
                self._summary.facts["stored_as"] |= self._stored_as(plan)
            for at in plan.partitions:
                self._account.begin(at, None if at.refusal is not None else empty_at)
                self._news.odd(at)
        self._news.planned(plan)
