"""Enter a run into ledger and positions before its tasks begin.

Its tasks enter the objects.
"""

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from kbackup.catalog import listing
from kbackup.catalog.ledger import stream
from kbackup.catalog.ledger.rows import GAP, OBJECTS, SINK, TOPIC, TOPICS, TopicEntry, ranged, table
from kbackup.catalog.ledger.stream import FOLD_AT, Stream
from kbackup.clock import Clock
from kbackup.config import Settings
from kbackup.errors import KafkaError, KbackupError
from kbackup.events import Event
from kbackup.kafka import Cluster
from kbackup.naming import Layout
from kbackup.naming.renaming import UNROUTED, Asked, Routes
from kbackup.pipeline.views import ReadOptions
from kbackup.records import Span, TopicPartition
from kbackup.runs import wiring
from kbackup.runs.context import RunContext
from kbackup.runs.known import listed
from kbackup.runs.report import Summary
from kbackup.sink import accounting
from kbackup.sink.accounting import News, SinkProgress
from kbackup.sink.job import SinkUnit
from kbackup.sink.plan import Claim, SinkPartitionPlan, SinkPlan, no_others, plan_more
from kbackup.stores import Store

_THREADS: Final = 16


class RunLedger:
    """The ledger, as the driver of one run writes it.

    It speaks of topics by the names under which they are stored.
    """

    def __init__(
        self, store: Store, layout: Layout, run: str, clock: Clock, routes: Routes = UNROUTED
    ) -> None:
        self._store, self._layout, self._run, self._clock = store, layout, run, clock
        self._routes = routes
        self._entered: Counter[str] = Counter()
        self._lock = threading.Lock()  # parts are counted while others are folded
        self._topics_changed = False

    def begin(
        self,
        plan: SinkPlan,
        cluster: Cluster,
        asked: TopicEntry,
        reading: ReadOptions,
        settings: Mapping[str, Event],
    ) -> None:
        """Enter the topics of a run before anything is stored of them.

        A topic that has no ledger yet gets one of all that is there; so do objects that it lacks
        and that the run continues after: a run may have died between storing and entering them.
        Nothing is written where nothing has changed since the last run.

        Args:
            plan: The run's; topics that it refuses are left as they are.
            asked: What the sink was asked for; the rest of its row is filled in here.
            reading: How objects are read that the ledger lacks.
            settings: The topics' own and the cluster's: `accounting.topic_settings`.

        Raises:
            NewerVersionError: If a later version has written of a topic that has new records.
            StoreError: If it cannot be written.
        """
        known, now = plan.known, self._clock.ms()
        refused = accounting.refused_topics(plan)
        names = [name for name in plan.topics if name not in refused]
        if refused and not names:  # what is there is of other topics: this run knows nothing of it
            return
        stored_as = {name: self._routes.topic(name) for name in names}
        new = [stored_as[name] for name in names if not known.has_ledger(stored_as[name])]
        left_out = {
            stored: keys
            for name, stored in stored_as.items()
            if stored not in new and (keys := _left_out(plan, name))
        }
        due = dict.fromkeys(new) | left_out
        added_to = {self._routes.topic(unit.where.topic) for unit in plan.units()} - {*new}
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(lambda topic: self._stream(topic).check_version(), added_to))
            list(pool.map(lambda name: self._enter(name, due[name], reading), due))
        configs = cluster.topic_config(names, overridden_only=True)
        ids = cluster.cluster_id
        rows = [
            TopicEntry(
                TOPIC, stored, ids, plan.topics[name].topic_id, plan.topics[name].partitions,
                _config(configs.get(name), known.topics.get(stored)),
                names=() if stored == name else (name,), run=self._run, time=now,
                compacted=_is_compacted(settings.get(name), known.topics.get(stored)),
            )
            for name, stored in stored_as.items()
        ]  # fmt: skip
        rows.append(replace(asked, cluster_id=ids, run=self._run, time=now))
        before = [*known.topics.values(), *known.sinks]
        fresh = [row for row in rows if not any(row.says_the_same(one) for one in before)]
        if fresh:
            stream.topics_stream(self._store, self._layout, self._clock).append(
                table(fresh, TOPICS)
            )
            self._topics_changed = True

    def gap(self, where: TopicPartition, span: Span) -> None:
        """Enter offsets that expired before they were backed up.

        Raises:
            StoreError: If it cannot be written.
        """
        row = ranged(GAP, where, span, self._run, self._clock.ms())
        self._stream(self._routes.topic(where.topic)).append(table([row], OBJECTS))
        self.note(where.topic)

    def note(self, topic: str) -> None:
        """Count a part that a task has entered for *topic*."""
        with self._lock:
            self._entered[self._routes.topic(topic)] += 1

    def fold(self, *, at_end: bool = False) -> None:
        """Fold what many parts were added to.

        Args:
            at_end: Of the run: look at each topic that got a part; else only at those that got
                many since they were folded.

        Raises:
            StoreError: If the store does not answer.
        """
        with self._lock:
            due = [name for name, count in self._entered.items() if at_end or count >= FOLD_AT]
            for name in due:
                del self._entered[name]
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(lambda name: self._stream(name).fold(), due))
        if at_end and self._topics_changed:
            stream.topics_stream(self._store, self._layout, self._clock).fold()

    def _enter(self, topic: str, keys: Collection[str] | None, reading: ReadOptions) -> None:
        """Enter those objects of a topic; None for all that are there."""
        found = listing.list_backup(self._store, self._layout, reading.formats, topics=[topic])
        rows = listed(self._store, found, topic, keys)
        if rows:
            self._stream(topic).append(table(rows, OBJECTS))

    def _stream(self, topic: str) -> Stream:
        return stream.topic_stream(self._store, self._layout, topic, self._clock)


def _left_out(plan: SinkPlan, topic: str) -> set[str]:
    """Return the objects of *topic* that a run continues after and that the ledger lacks."""
    return {
        key
        for at in plan.partitions
        if at.where.topic == topic and at.start is not None
        for first, key in at.seen.unentered
        if first < at.start.offset
    }


def _config(found: Mapping[str, str] | None, before: TopicEntry | None) -> Mapping[str, str]:
    """Return a topic's own settings; where they may not be read, what is known of them."""
    if found is None:
        return {} if before is None else before.config
    return {name: text for name, text in found.items() if text is not None}


def _is_compacted(found: Event | None, before: TopicEntry | None) -> bool | None:
    """Whether Kafka compacts a topic, or ever did: then a key's last value may be its oldest."""
    was = None if before is None else before.compacted
    if before is not None and "compact" in before.config.get("cleanup.policy", ""):
        was = True  # an earlier version has kept no more of it
    policy = None if found is None else found["config"].get("cleanup.policy")
    return was if was or policy is None else "compact" in policy


def sought(group: str, asked: Asked) -> TopicEntry:
    """Return what a sink was asked for."""
    names = tuple(sorted(asked.names))
    return TopicEntry(
        SINK, group=group, names=names, pattern=asked.pattern, excluded=asked.excluded
    )


class Opening:
    """Opens what was planned."""

    def __init__(
        self,
        settings: Settings,
        summary: Summary,
        account: SinkProgress,
        news: News,
        ledger: RunLedger,
    ) -> None:
        self._settings, self._summary, self._account = settings, summary, account
        self._news, self._ledger = news, ledger

    def report(self, plan: SinkPlan, cluster: Cluster) -> None:
        """Open the account of what is planned, and report it."""
        settings = self._settings
        self._summary.facts |= {
            "group": plan.group,
            "kafka_client": wiring.sink_way(settings),
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
        """Return the names under which topics are stored."""
        routes = wiring.routes(self._settings)
        return {name: routes.topic(name) for name in plan.topics}

    def enter(self, plan: SinkPlan, cluster: Cluster) -> None:
        """Enter topics into the ledger before anything is stored of them.

        Raises:
            StoreError: If it cannot be written.
        """
        self._enter(plan, cluster, self._summary.facts["topic_settings"])

    def _enter(self, plan: SinkPlan, cluster: Cluster, found: Mapping[str, Event]) -> None:
        settings = self._settings
        entry = sought(plan.group, settings.asked)
        self._ledger.begin(plan, cluster, entry, wiring.reading(settings), found)

    def start(self, partitions: Iterable[SinkPartitionPlan], group: str, cluster: Cluster) -> None:
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
            empty_at: When they had not been there yet, in seconds since the epoch: all that was
                written to them before is backed up.

        Raises:
            KafkaError: If the cluster does not answer.
            StoreError: If the ledger cannot be written.
        """
        settings = accounting.topic_settings(plan, cluster.topic_config(plan.topics))
        self._enter(plan, cluster, settings)
        self.start(plan.partitions, group, cluster)
        with self._account.lock:
            self._summary.facts["topic_settings"] |= settings
            if self._settings.renames:
                self._summary.facts["stored_as"] |= self._stored_as(plan)
            for at in plan.partitions:
                self._account.begin(at, None if at.refusal is not None else empty_at)
                self._news.odd(at)
        self._news.planned(plan)


NEWCOMERS_S: Final = 20.0
"""Seconds between two looks.  Even if one of them fails, what is new is followed within 60 s."""


class Newcomers:
    """Takes in matching topics and partitions that are new.

    Args:
        frame: The run's; its cluster is asked by one client as long as it answers.
        looked: When the cluster was asked for it, in seconds since the epoch.
        claim: Takes topics, and returns those that are left to other runs.

    Attributes:
        looked: When the cluster was last asked: what came before is being backed up.
    """

    def __init__(
        self, frame: RunContext, store: Store, opening: Opening, plan: SinkPlan, looked: float,
        claim: Claim = no_others,
    ) -> None:  # fmt: skip
        self._claim = claim
        self._frame, self._world, self._store = frame, frame.world, store
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
            plan = plan_more(
                self._frame.settings, self._cluster, self._store, self._world.clock, self._known,
                self._claim, self._frame.backup,
            )  # fmt: skip
        except KbackupError:
            self._cluster = None  # its client may keep asking a broker that was restarted
            raise
        return plan, self._cluster
