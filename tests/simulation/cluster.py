"""Kafka in memory."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.simulation.events import (
    Event,
    Gone,
    Produced,
    Row,
    TargetShows,
    Touched,
    Unfit,
)
from tests.simulation.product import KafkaError, Position, Span, TopicPartition
from tests.support.fake_cluster import FakeCluster

NO_CONFIG: Final[Mapping[str, str]] = {}


@dataclass
class Log:
    """One partition's log."""

    rows: list[Row] = field(default_factory=list)  # the readable records, by offset
    start: int = 0  # the log start
    end: int = 0  # the end offset; markers and aborted records take offsets too
    # records of transactions that are not over, by transactional id
    open: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def stable_end(self) -> int:
        """The last stable offset."""
        return min((rows[0].offset for rows in self.open.values()), default=self.end)

    def append(self, rows: Iterable[Row], transaction: str | None = None) -> list[Row]:
        """Give *rows* their offsets; readable at once, or with their transaction."""
        kept = []
        for row in rows:
            kept.append(row._replace(offset=self.end))
            self.end += 1
        if transaction is None:
            self.rows += kept
        elif kept:
            self.open.setdefault(transaction, []).extend(kept)
        return kept

    def finish(self, transaction: str, *, commits: bool) -> list[Row]:
        """End a transaction with its marker; return the records that are readable now."""
        kept = self.open.pop(transaction, None)
        if kept is None:
            return []
        self.end += 1
        if not commits:
            return []
        self.rows = sorted([*self.rows, *(row for row in kept if row.offset >= self.start)])
        return kept

    def between(self, start: int, end: int) -> list[Row]:
        """The readable records of a span."""
        low = bisect_left(self.rows, start, key=lambda row: row.offset)
        return self.rows[low : bisect_left(self.rows, end, key=lambda row: row.offset)]


class Kafka(FakeCluster):
    """The cluster's own state, and what people do to it.

    Attributes:
        history: Grows by what happens to topics that are backed up.
        sources: Those topics.
        is_left_out: Whether sinks leave a record out on purpose.
        is_unfit: Whether a record is to become a dead letter.
    """

    logs: dict[TopicPartition, Log]

    def __init__(self, history: list[Event]) -> None:
        super().__init__(cluster_id="c1")
        self.history = history
        self.sources: set[str] = set()
        self.groups: dict[str, dict[TopicPartition, Position]] = {}
        self.epochs: dict[str, int] = {}
        self.sink_groups: set[str] = set()
        self.now_ms: Callable[[], int] = lambda: 0
        self.is_left_out: Callable[[Row], bool] = lambda _: False
        self.is_unfit: Callable[[Row], bool] = lambda _: False
        self._made = 0

    def find(self, where: TopicPartition) -> Log | None:
        """A partition's log, None where there is none; the last one's where the client chooses."""
        there = self.partitions(where.topic) if where.partition < 0 else [where]
        return self.logs.get(there[-1]) if there else None

    def log(self, where: TopicPartition) -> Log:
        """A partition's log.

        Raises:
            KafkaError: If there is none.
        """
        log = self.find(where)
        if log is None:
            raise KafkaError(str(where), "unknown topic or partition", "")
        return log

    def rows(self, where: TopicPartition) -> list[Row]:
        """The readable records of a partition, none where there is none."""
        log = self.find(where)
        return [] if log is None else log.rows

    def partitions(self, name: str) -> list[TopicPartition]:
        """Those of a topic, in order; none where there is none."""
        return [where for where in self.logs if where.topic == name]

    def create(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, str] = NO_CONFIG,
        *,
        is_source: bool = False,
    ) -> None:
        """Make a topic."""
        self._made += 1
        self.ids[name] = f"{name}-id{self._made}"
        self.configs[name] = dict(config)
        if is_source:
            self.sources.add(name)
        self.grow(name, partitions)

    def grow(self, name: str, count: int) -> None:
        """Add partitions to a topic until it has so many."""
        for at in range(len(self.partitions(name)), count):
            self.logs[TopicPartition(name, at)] = Log()

    def delete(self, name: str) -> None:
        """Delete a topic; Kafka drops its committed offsets with it."""
        del self.ids[name], self.configs[name]
        self.sources.discard(name)
        held: list[dict[TopicPartition, Any]] = [self.logs, *self.groups.values()]
        for of in held:
            for where in [where for where in of if where.topic == name]:
                del of[where]

    # -- what `FakeCluster` asks

    def span(self, where: TopicPartition) -> Span:
        """From the log start to the last stable offset."""
        log = self.log(where)
        return Span(log.start, max(log.start, log.stable_end))

    def ends(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs end, behind open transactions."""
        return {where: self.log(where).end for where in wheres}

    def group(self, name: str) -> dict[TopicPartition, Position]:
        """The positions of a group."""
        return self.groups.get(name, {})

    def add_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic, as kbackup asks."""
        self.create(name, partitions, config)
        self.history.append(Touched("topic", name))

    # -- what people do

    def produce(self, where: TopicPartition, rows: Iterable[Row]) -> None:
        """Append records that are readable at once."""
        kept = self.logs[where].append(rows)
        if where.topic not in self.sources:
            return
        topic_id = self.ids[where.topic]
        kept = [row for row in kept if not self.is_left_out(row)]
        fit = tuple(row for row in kept if not self.is_unfit(row))
        if fit:
            self.history.append(Produced(topic_id, where, fit, self.now_ms()))
        if unfit := tuple(row for row in kept if self.is_unfit(row)):
            self.history.append(Unfit(topic_id, where, unfit))

    def abort(self, where: TopicPartition, rows: Iterable[Row]) -> None:
        """Append a transaction that is aborted: offsets without records."""
        log = self.logs[where]
        log.append(rows, "aborted")
        log.finish("aborted", commits=False)

    def expire(self, where: TopicPartition, start: int) -> None:
        """Move the log start, as retention and DeleteRecords do."""
        log = self.logs[where]
        log.start = max(log.start, min(start, log.end))
        gone = tuple(row.offset for row in log.rows if row.offset < log.start)
        log.rows = [row for row in log.rows if row.offset >= log.start]
        if where.topic in self.sources and gone:
            self.history.append(Gone(self.ids[where.topic], where, gone, "expired"))

    def compact(self, where: TopicPartition, offsets: Iterable[int]) -> None:
        """Drop records out of the middle."""
        log, chosen = self.logs[where], frozenset(offsets)
        log.rows = [row for row in log.rows if row.offset not in chosen]
        if where.topic in self.sources and chosen:
            gone = Gone(self.ids[where.topic], where, tuple(sorted(chosen)), "compacted")
            self.history.append(gone)


def show(kafka: Kafka, target: TopicPartition, *, repeats: bool = False) -> None:
    """Note what a consumer of a target gets."""
    log = kafka.find(target)
    if log is not None:
        rows = tuple(log.between(log.start, log.stable_end))
        kafka.history.append(TargetShows(target, rows, repeats))
