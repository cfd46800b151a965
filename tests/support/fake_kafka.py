"""A whole cluster in memory: topics that come, go, fail and are deleted; a `Connection`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from backup_samples import batch

from kbackup.errors import KafkaError, KbackupError
from kbackup.kafka import LogStartMovedError, NewTopic, Position, Topic
from kbackup.records import Span, TopicPartition
from tests.support.creating import each_created


@dataclass
class FakeKafka:
    """One cluster and its group; a `Connection` that opens clients of itself."""

    ids: dict[str, str] = field(default_factory=dict)  # the id of each topic
    # what each partition holds, by offsets; the records are made when they are read
    logs: dict[TopicPartition, Span] = field(default_factory=dict)
    positions_: dict[TopicPartition, Position] = field(default_factory=dict)  # the group's
    # what reading a partition raises
    faults: dict[TopicPartition, KbackupError] = field(default_factory=dict)
    # how many offsets open transactions keep from consumers
    behind: dict[TopicPartition, int] = field(default_factory=dict)
    # partitions that nobody answers for
    leaderless: set[TopicPartition] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)  # topics that may not be described
    is_away: bool = False  # no broker answers
    opened: int = 0  # how often a reader was opened
    # values of records that are not the usual ones
    values: dict[tuple[TopicPartition, int], bytes | None] = field(default_factory=dict)
    # keys of records that are not the usual ones
    keys: dict[tuple[TopicPartition, int], bytes | None] = field(default_factory=dict)
    # offsets whose records compaction has removed
    compacted: set[tuple[TopicPartition, int]] = field(default_factory=set)
    # what was written to topics, and acknowledged: topic, and the record's columns
    letters: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    # settings of topics that are their own
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    # errors of the next writes, one each; None for a write that goes well
    unwritten: list[KbackupError | None] = field(default_factory=list)
    cluster_id: str = "cluster-1"  # the cluster's id
    brokers: int = 1  # how many

    def create(self, topic: str, *ends: int, topic_id: str = "") -> list[TopicPartition]:
        """Create a topic, or add partitions to it, whose logs end there."""
        self.ids.setdefault(topic, topic_id or f"id-of-{topic}")
        first = sum(where.topic == topic for where in self.logs)
        made = [TopicPartition(topic, first + at) for at in range(len(ends))]
        self.logs |= {where: Span(0, end) for where, end in zip(made, ends, strict=True)}
        return made

    def delete(self, topic: str) -> None:
        """Delete a topic and its positions."""
        del self.ids[topic]
        for where in [where for where in self.logs if where.topic == topic]:
            del self.logs[where]
            self.positions_.pop(where, None)

    def append(self, where: TopicPartition, count: int) -> None:
        """Write *count* records."""
        log = self.logs[where]
        self.logs[where] = Span(log.start_offset, log.end_offset + count)

    # -- Connection

    def cluster(self) -> "FakeKafka":
        """Itself."""
        self._answer()
        return self

    def permissions(self) -> "_Everything":
        """What this principal may do."""
        return _Everything()

    def reader(self, _group: str) -> "_Reader":
        """A reader."""
        self.opened += 1
        return _Reader(self)

    def positions(self, _group: str) -> "_Positions":
        """The group's positions."""
        return _Positions(self)

    def writer(self, target: TopicPartition, _group: str, **_: Any) -> "_Writer":
        """A writer of plain records."""
        return _Writer(self, target)

    # -- Cluster

    def create_topic(
        self, name: str, partitions: int, _factor: int, config: Mapping[str, str],
        *, only_validate: bool = False,
    ) -> str:  # fmt: skip
        """Create a topic."""
        if only_validate:
            return ""
        self.configs[name] = dict(config)
        self.create(name, *[0] * partitions)
        return self.ids[name]

    def create_topics(
        self, topics: Sequence[NewTopic], *, only_validate: bool = False
    ) -> dict[str, str | KbackupError]:
        """Create topics; one that is refused does not keep the others."""
        return each_created(self.create_topic, topics, only_validate=only_validate)

    def refresh(self) -> None:
        """Nothing is remembered."""
        self._answer()

    def topic_names(self) -> list[str]:
        """All topics."""
        return sorted(self.ids)

    def topics(
        self, names: Iterable[str], failures: dict[str, KafkaError] | None = None
    ) -> dict[str, Topic]:
        """Those of *names* that exist."""
        self._answer()
        partitions = Counter(where.topic for where in self.logs)
        found = {}
        for name in names:
            if name in self.denied:
                if failures is None:
                    raise KafkaError(f"describing topic {name}", "not authorised")
                failures[name] = KafkaError(f"describing topic {name}", "not authorised")
            elif name in self.ids:
                gone = frozenset(at.partition for at in self.leaderless if at.topic == name)
                found[name] = Topic(name, partitions[name], self.ids[name], gone)
        return found

    def spans(self, wheres: Sequence[TopicPartition], **_: Any) -> dict[TopicPartition, Span]:
        """What the logs hold."""
        self._answer()
        assert not self.leaderless & set(wheres)
        return {where: self.logs[where] for where in wheres}

    def ends(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs end, behind open transactions."""
        return {where: self.logs[where].end_offset + self.behind.get(where, 0) for where in wheres}

    def committed(
        self, _group: str, wheres: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Position]:
        """The group's positions."""
        return {where: self.positions_[where] for where in wheres if where in self.positions_}

    def set_positions(self, _group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """Move the group."""
        self.positions_ |= positions

    def has_group(self, _group: str) -> bool:
        """Whether the group has positions."""
        return bool(self.positions_)

    def members(self, _group: str) -> list[str]:
        """Nobody."""
        return []

    def topic_config(
        self, names: Iterable[str], *, overridden_only: bool = False
    ) -> dict[str, dict[str, str]]:
        """The settings of topics: one that nobody has changed, and their own."""
        default = {} if overridden_only else {"cleanup.policy": "delete"}
        return {name: {**default, **self.configs.get(name, {})} for name in names}

    def _answer(self) -> None:
        if self.is_away:
            away = KafkaError("asking the cluster", "no answer")
            away.is_away = True
            raise away


class _Everything:
    """The permissions of a cluster without an authoriser."""

    def of_topics(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """All operations."""
        return dict.fromkeys(names, self.of_group(""))

    def of_group(self, _group: str) -> frozenset[str]:
        """All operations."""
        return frozenset({"READ", "WRITE", "DESCRIBE", "ALTER"})

    of_transactions = of_group


@dataclass
class _Reader:
    kafka: FakeKafka

    def read(self, where: TopicPartition, span: Span) -> Iterator[pa.RecordBatch]:
        """The records of a span."""
        if where in self.kafka.faults:
            raise self.kafka.faults[where]
        start = self.kafka.logs[where].start_offset
        if span.start_offset < start:
            raise LogStartMovedError(f"{where} no longer has the next offset")
        made = batch(range(span.start_offset, span.end_offset))
        rows = [
            row for row in made.to_pylist() if (where, row["offset"]) not in self.kafka.compacted
        ]
        for row in rows:
            row["value"] = self.kafka.values.get((where, row["offset"]), row["value"])
            row["key"] = self.kafka.keys.get((where, row["offset"]), row["key"])
        yield pa.RecordBatch.from_pylist(rows, made.schema)

    def close(self) -> None:
        """Nothing to leave."""


@dataclass
class _Writer:
    kafka: FakeKafka
    target: TopicPartition
    sent: list[dict[str, Any]] = field(default_factory=list)

    def write(self, batch: pa.RecordBatch) -> int:
        """Take records."""
        self.sent += batch.to_pylist()
        return 0

    def flush(self) -> None:
        """Acknowledge them, or fail as was planned."""
        error = self.kafka.unwritten.pop(0) if self.kafka.unwritten and self.sent else None
        if error is not None:
            raise error
        self.kafka.letters += ((self.target.topic, row) for row in self.sent)
        self.sent = []

    def close(self) -> None:
        """Nothing to leave."""


@dataclass
class _Positions:
    kafka: FakeKafka

    def read(self, where: TopicPartition) -> Position | None:
        """The group's position."""
        return self.kafka.positions_.get(where)

    def advance(self, where: TopicPartition, position: Position) -> None:
        """Move the group on."""
        self.kafka.positions_[where] = position

    def read_all(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """The group's positions."""
        return {where: self.read(where) for where in wheres}

    def advance_all(self, positions: Mapping[TopicPartition, Position]) -> dict[Any, Any]:
        """Move the group on."""
        for where, position in positions.items():
            self.advance(where, position)
        return {}

    def close(self) -> None:
        """Nothing to leave."""
