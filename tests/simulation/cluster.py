"""Kafka in memory."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.events import (
    Event,
    Gone,
    Produced,
    Row,
    TargetShows,
    Unfit,
)
from tests.simulation.product import TopicPartition

if TYPE_CHECKING:
    from tests.simulation.product import Position


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


@dataclass
class FakeTopic:
    """A topic, with its settings."""

    name: str
    topic_id: str
    logs: list[Log]
    config: dict[str, str]
    is_source: bool


class Kafka:
    """The cluster's own state, and what people do to it.

    Attributes:
        history: Grows by what happens to topics that are backed up.
        is_left_out: Whether sinks leave a record out on purpose.
        is_unfit: Whether a record is to become a dead letter.
    """

    def __init__(self, history: list[Event]) -> None:
        self.history = history
        self.cluster_id = "c1"
        self.topics: dict[str, FakeTopic] = {}
        self.groups: dict[str, dict[TopicPartition, Position]] = {}
        self.epochs: dict[str, int] = {}
        self.sink_groups: set[str] = set()
        self.now_ms: Callable[[], int] = lambda: 0
        self.is_left_out: Callable[[Row], bool] = lambda _: False
        self.is_unfit: Callable[[Row], bool] = lambda _: False
        self._made = 0

    def log(self, where: TopicPartition) -> Log | None:
        """A partition's log, None where there is none."""
        topic = self.topics.get(where.topic)
        if topic is None or where.partition >= len(topic.logs):
            return None
        return topic.logs[where.partition]

    def create(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, str] | None = None,
        *,
        is_source: bool = False,
    ) -> None:
        """Make a topic."""
        self._made += 1
        logs = [Log() for _ in range(partitions)]
        topic_id = f"{name}-id{self._made}"
        self.topics[name] = FakeTopic(name, topic_id, logs, dict(config or {}), is_source)

    def delete(self, name: str) -> None:
        """Delete a topic; Kafka drops its committed offsets with it."""
        del self.topics[name]
        for positions in self.groups.values():
            for where in [where for where in positions if where.topic == name]:
                del positions[where]

    def produce(self, where: TopicPartition, rows: Iterable[Row]) -> None:
        """Append records that are readable at once."""
        topic = self.topics[where.topic]
        kept = topic.logs[where.partition].append(rows)
        if not topic.is_source:
            return
        kept = [row for row in kept if not self.is_left_out(row)]
        fit = tuple(row for row in kept if not self.is_unfit(row))
        if fit:
            self.history.append(Produced(topic.topic_id, where, fit, self.now_ms()))
        if unfit := tuple(row for row in kept if self.is_unfit(row)):
            self.history.append(Unfit(topic.topic_id, where, unfit))

    def abort(self, where: TopicPartition, rows: Iterable[Row]) -> None:
        """Append a transaction that is aborted: offsets without records."""
        log = self.topics[where.topic].logs[where.partition]
        log.append(rows, "aborted")
        log.finish("aborted", commits=False)

    def expire(self, where: TopicPartition, start: int) -> None:
        """Move the log start, as retention and DeleteRecords do."""
        topic = self.topics[where.topic]
        log = topic.logs[where.partition]
        log.start = max(log.start, min(start, log.end))
        gone = tuple(row.offset for row in log.rows if row.offset < log.start)
        log.rows = [row for row in log.rows if row.offset >= log.start]
        if topic.is_source and gone:
            self.history.append(Gone(topic.topic_id, where, gone, "expired"))

    def compact(self, where: TopicPartition, offsets: Iterable[int]) -> None:
        """Drop records out of the middle."""
        topic = self.topics[where.topic]
        log, chosen = topic.logs[where.partition], frozenset(offsets)
        log.rows = [row for row in log.rows if row.offset not in chosen]
        if topic.is_source and chosen:
            self.history.append(Gone(topic.topic_id, where, tuple(sorted(chosen)), "compacted"))


def show(kafka: Kafka, target: TopicPartition, *, repeats: bool = False) -> None:
    """Note what a consumer of a target gets."""
    log = kafka.log(target)
    if log is not None:
        rows = tuple(log.between(log.start, log.stable_end))
        kafka.history.append(TargetShows(target, rows, repeats))
