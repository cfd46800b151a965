"""The clients of a cluster in memory, each request of which may fail by a script."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from tests.simulation.cluster import Kafka, show
from tests.simulation.events import (
    Begun,
    Committed,
    Row,
    Touched,
    named,
)
from tests.simulation.process import Process
from tests.simulation.product import (
    APPEND_TIME,
    NO_OTHERS,
    SCHEMA,
    Batches,
    Group,
    GroupList,
    GroupOffset,
    KafkaError,
    KbackupError,
    LogStartMovedError,
    OffsetMovedError,
    Position,
    RestorePosition,
    Span,
    TakenOverError,
    TimestampType,
    Topic,
    TopicChangedError,
    TopicPartition,
    decoded,
    walk,
)
from tests.support.encoded import Sent, batch
from tests.support.fake_cluster import FakeCluster

_HEADERS = SCHEMA.field("headers").type


@dataclass(frozen=True)
class SimConnection:
    """The way of one process to the fake cluster: a `kafka.Connection`."""

    kafka: Kafka
    process: Process

    def cluster(self) -> "SimCluster":
        return SimCluster(self)

    def reader(self, group: str, *, by_batches: bool = False) -> "SimReader":
        return SimReader(self)

    def positions(self, group: str) -> "SimPositions":
        return SimPositions(self, group)

    def permissions(self) -> Kafka:
        return self.kafka

    def consumer_groups(self) -> "SimGroups":
        return SimGroups(self)

    def writer(
        self,
        target: TopicPartition,
        group: str,
        *,
        exactly_once: bool = True,
        max_message_bytes: int | None = None,
        is_spread: bool = False,
    ) -> "SimWriter":
        kind = SimBatchWriter if exactly_once and not is_spread else SimWriter
        return kind(self, target, group, exactly_once=exactly_once)

    def fence(self, target: TopicPartition) -> TopicPartition:
        """All partitions of a topic share a writer: two are enough for what many share."""
        return replace(target, partition=0)

    def call(self, kind: str, act: Callable[[], Any]) -> Any:
        """Make a request; *act* is what the cluster does."""
        fault = self.process.request(kind)
        if fault in ("fail", "late"):
            raise KafkaError(kind, "refused by the script", "")
        done = act()
        if fault == "lost":
            raise KafkaError(kind, "the answer was lost by the script", "")
        return done

    def moved(self, group: str, where: TopicPartition, position: Position) -> None:
        """Take a commit by kbackup into the group and into the history."""
        self.kafka.groups.setdefault(group, {})[where] = position
        self.kafka.history.append(Touched("group", group))
        if where.topic in self.kafka.sources and group in self.kafka.sink_groups:
            leave_behind(self.kafka, self.process, where)
            vars(self.process).setdefault("committed", {})[where] = position.offset
            topic_id, at_ms = self.kafka.ids[where.topic], self.kafka.now_ms()
            self.kafka.history.append(Committed(topic_id, where, position.offset, at_ms))


def leave_behind(kafka: Kafka, process: Process, where: TopicPartition) -> None:
    """Note where the log began that a sink saw, once it leaves something of it behind."""
    seen = getattr(process, "seen", {})
    if where in seen:
        topic_id, span = seen[where]
        kafka.history.append(Begun(topic_id, where, span.start_offset))


class SimCluster:
    """What the driver asks: each question is a request, which the cluster answers.

    Attributes:
        REQUESTS: The kind of the request that a question is.
    """

    REQUESTS: ClassVar = {
        "refresh": "kafka topics", "ends": "kafka ends", "committed": "kafka committed",
        "has_group": "kafka groups", "members": "kafka members",
    }  # fmt: skip

    def __init__(self, connection: SimConnection) -> None:
        self._to, self._kafka = connection, connection.kafka
        self.cluster_id, self.brokers = self._kafka.cluster_id, 1
        self.topic_names = self._kafka.topic_names
        connection.call("kafka connect", lambda: None)

    def __getattr__(self, name: str) -> Any:
        if name not in self.REQUESTS:
            raise AttributeError(name)
        kind, ask = self.REQUESTS[name], getattr(self._kafka, name)
        return lambda *given: self._to.call(kind, partial(ask, *given))

    def topics(self, names: Iterable[str], _failures: object = None) -> dict[str, Topic]:
        found: dict[str, Topic] = self._to.call(
            "kafka topics", lambda: self._kafka.topics(sorted(set(names)))
        )
        return found

    def topic_config(
        self, names: Iterable[str], *, overridden_only: bool = False
    ) -> dict[str, dict[str, str]]:
        wanted = sorted(set(names) & self._kafka.ids.keys())
        ask = partial(self._kafka.topic_config, wanted, overridden_only=overridden_only)
        found: dict[str, dict[str, str]] = self._to.call("kafka config", ask)
        return found

    def spans(
        self, wheres: Sequence[TopicPartition], *, committed_only: bool = True
    ) -> dict[TopicPartition, Span]:
        def ask() -> dict[TopicPartition, Span]:
            found = self._kafka.spans(wheres)
            ends = {} if committed_only else self._kafka.ends(wheres)
            return {at: Span(own.start_offset, ends.get(at, own.end_offset))
                    for at, own in found.items()}  # fmt: skip

        found: dict[TopicPartition, Span] = self._to.call("kafka spans", ask)
        seen = vars(self._to.process).setdefault("seen", {})
        for where, span in found.items():
            seen.setdefault(where, (self._kafka.ids[where.topic], span))
        return found

    def settled_spans(
        self, wheres: Sequence[TopicPartition], *_: object
    ) -> dict[TopicPartition, Span]:
        return self.spans(wheres)

    def wait_for(self, ends: Mapping[TopicPartition, int], _wait_s: float = 0) -> None:
        self.spans(list(ends))

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        def act() -> None:
            for where, position in positions.items():
                self._to.moved(group, where, position)

        if positions:
            self._to.call("kafka set positions", act)

    create_topics = FakeCluster.create_topics  # each topic is a request

    def create_topic(self, name: str, *given: Any, only_validate: bool) -> str:
        def act() -> str:
            if name in self._kafka.ids:
                raise KafkaError(f"creating topic {name}", "it exists", "")
            return self._kafka.create_topic(name, *given, only_validate=only_validate)

        topic_id: str = self._to.call("kafka create", act)
        return topic_id

    def create_partitions(self, name: str, count: int, *, only_validate: bool = False) -> None:
        def act() -> None:
            there = len(self._kafka.partitions(name))
            if there >= count:
                raise KafkaError(f"adding partitions to {name}", f"it has {there}", "")
            if not only_validate:
                self._kafka.grow(name, count)

        self._to.call("kafka create partitions", act)


class SimGroups:
    """Where all groups stand, kbackup's own among them."""

    def __init__(self, connection: SimConnection) -> None:
        self._to = connection

    def listed(self) -> GroupList:
        found: GroupList = self._to.call(
            "kafka list groups",
            lambda: GroupList(
                tuple(Group(name, "consumer", "EMPTY") for name in sorted(self._to.kafka.groups)),
                is_complete=True,
            ),
        )
        return found

    def offsets(
        self, groups: Sequence[str]
    ) -> Iterator[tuple[str, dict[TopicPartition, GroupOffset] | None]]:
        for name in groups:
            yield name, self._to.call("kafka group offsets", partial(self._of, name))

    def _of(self, name: str) -> dict[TopicPartition, GroupOffset]:
        return {
            where: GroupOffset(position.offset, position.metadata.encode())
            for where, position in self._to.kafka.groups.get(name, {}).items()
        }

    def close(self) -> None:
        pass


def to_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as columns."""
    headers = [[{"key": k, "value": v} for k, v in row.headers] for row in rows]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row.offset for row in rows], pa.int64()),
            pa.array([row.timestamp for row in rows], pa.int64()),
            pa.array([row.timestamp_type for row in rows], pa.int8()),
            pa.array([row.key for row in rows], pa.binary()),
            pa.array([row.value for row in rows], pa.binary()),
            pa.array(headers, _HEADERS),
        ],
        schema=SCHEMA,
    )


def to_rows(batch: pa.RecordBatch | pa.Table) -> list[Row]:
    """Columns as rows; a timestamp that is not stored is -1."""
    columns = {name: batch[name].to_pylist() for name in batch.schema.names}
    count = len(batch)
    headers = columns.get("headers") or [()] * count
    return [
        Row(
            columns["offset"][at],
            -1 if columns["timestamp"][at] is None else columns["timestamp"][at],
            columns["timestamp_type"][at],
            columns["key"][at],
            columns["value"][at],
            tuple((pair["key"], pair["value"]) for pair in headers[at]),
        )
        for at in range(count)
    ]


def _sent(row: Row) -> bytes:
    headers = [(name.encode(), value) for name, value in row.headers]
    attributes = APPEND_TIME if row.timestamp_type == TimestampType.LOG_APPEND else 0
    return batch(
        row.offset, [Sent(row.value, row.key, headers, row.timestamp)], attributes=attributes
    )


class SimReader:
    """Reads a log, a few records at a time."""

    def __init__(self, connection: SimConnection) -> None:
        self._to = connection

    def close(self) -> None:
        pass

    def read(self, where: TopicPartition, span: Span) -> Generator[pa.RecordBatch, None, None]:
        position = span.start_offset
        while position < span.end_offset:
            count = self._to.process.rng.randint(1, 9)
            rows = self._to.call("kafka read", lambda: self._some(where, position, span, count))  # noqa: B023
            if not rows:
                return
            position = rows[-1].offset + 1
            read = vars(self._to.process).setdefault("read", set())
            read.update((where, row.offset) for row in rows)
            self._to.process.fetched.update((where, row.offset) for row in rows)
            yield to_batch(rows)

    def batches(self, where: TopicPartition, span: Span) -> Generator[Batches, None, None]:
        """The same, each record as the batch that it was sent in."""
        for some in self.read(where, span):
            yield walk(pa.py_buffer(b"".join(map(_sent, to_rows(some))))).check()

    def _some(self, where: TopicPartition, position: int, span: Span, count: int) -> list[Row]:
        log = self._to.kafka.log(where)
        if position < log.start:
            self._drop_unsafe(where, log.start)
            raise LogStartMovedError(f"{where} no longer has offset {position}", "it has expired")
        if log.end < span.end_offset:
            raise TopicChangedError(f"{where} ends at {log.end}", "it was cut back", "")
        return log.between(position, min(span.end_offset, log.stable_end))[:count]

    def _drop_unsafe(self, where: TopicPartition, log_start: int) -> None:
        """Forget having read what a run that retention overtakes will not store any more.

        An earlier run may have stored the same records, which does not make them this one's.
        """
        process = vars(self._to.process)
        safe = process.get("committed", {}).get(where, 0)
        process["read"] = {
            (at, offset)
            for at, offset in process.get("read", ())
            if at != where or offset < safe or offset >= log_start
        }


class SimPositions:
    """A group, from the side of a task."""

    def __init__(self, connection: SimConnection, group: str) -> None:
        self._to, self._group = connection, group

    def close(self) -> None:
        pass

    def read(self, where: TopicPartition) -> Position | None:
        def ask() -> Position | None:
            return self._to.kafka.groups.get(self._group, {}).get(where)

        found: Position | None = self._to.call("kafka position", ask)
        return found

    def advance(self, where: TopicPartition, position: Position) -> None:
        found = self.read(where)
        if found is not None and found.offset > position.offset:
            raise OffsetMovedError(
                f"committing {where} offset {position.offset} to group {self._group}",
                f"the group's offset is already {found.offset}",
            )
        self._to.call("kafka commit", lambda: self._to.moved(self._group, where, position))

    def read_all(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        def ask() -> dict[TopicPartition, Position | None]:
            held = self._to.kafka.groups.get(self._group, {})
            return {where: held.get(where) for where in wheres}

        found: dict[TopicPartition, Position | None] = self._to.call("kafka position", ask)
        return found

    def advance_all(
        self, positions: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, KbackupError]:
        def commit() -> None:
            for where, position in plain.items():
                self._to.moved(self._group, where, position)

        try:
            found = self.read_all(list(positions))
            plain = {
                where: position
                for where, position in positions.items()
                if (held := found[where]) is None or held.offset <= position.offset
            }
            if plain:
                self._to.call("kafka commit", commit)
        except KbackupError as error:
            return dict.fromkeys(positions, error)
        errors: dict[TopicPartition, KbackupError] = {}
        for where in positions.keys() - plain.keys():
            try:
                self.advance(where, positions[where])
            except KbackupError as error:
                errors[where] = error
        return errors


class SimWriter:
    """Writes to the partitions of a topic."""

    def __init__(
        self, connection: SimConnection, target: TopicPartition, group: str, *, exactly_once: bool
    ) -> None:
        self._to, self._target, self._group = connection, target, group
        self._exactly_once = exactly_once
        self._id = f"{group}-{connection.fence(target)}"
        self.record_bytes_max = 2**31
        self._written: dict[TopicPartition, Span] = {}
        self._epoch = 0
        if exactly_once:
            connection.call("kafka init", self._init)

    def _init(self) -> None:
        epochs = self._to.kafka.epochs
        self._epoch = epochs[self._id] = epochs.get(self._id, 0) + 1
        self._to.kafka.log(self._target)
        self._finish(commits=False)

    def _finish(self, *, commits: bool) -> dict[TopicPartition, list[Row]]:
        """End the transaction wherever it has written; return what is readable now."""
        kafka = self._to.kafka
        found = {
            where: kafka.logs[where].finish(self._id, commits=commits)
            for where in kafka.partitions(self._target.topic)
        }
        return {where: rows for where, rows in found.items() if rows}

    def position(self, where: TopicPartition | None = None) -> Position | None:
        return SimPositions(self._to, self._group).read(where or self._target)

    def positions(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        return SimPositions(self._to, self._group).read_all(wheres)

    def write(self, batch: pa.RecordBatch, where: TopicPartition | None = None) -> int:
        rows = [row._replace(timestamp=row.timestamp or 1) for row in to_rows(batch)]
        zeros = sum(row.timestamp == 0 for row in to_rows(batch))
        self._to.call("kafka write", lambda: self._append(rows, where or self._target))
        return zeros

    def _append(self, rows: list[Row], where: TopicPartition) -> None:
        self._check()
        self._to.kafka.history.append(Touched("topic", where.topic))
        log = self._to.kafka.log(where)
        start = self._written[where].start_offset if where in self._written else log.end
        if self._exactly_once:
            log.append(rows, self._id)
        else:
            log.append(rows)
            self._note(rows, where)
        self._written[where] = Span(start, log.end)

    def _note(self, rows: Iterable[Row], where: TopicPartition) -> None:
        """Note what a run wrote; what it writes again after its worker died counts once."""
        vars(self._to.process).setdefault("written", set()).update(row.name for row in rows)
        show(self._to.kafka, where, repeats=not self._exactly_once)

    def commit(
        self,
        position: Position,
        others: Mapping[TopicPartition, Position] = NO_OTHERS,
        where: TopicPartition | None = None,
    ) -> None:
        positions = {where or self._target: position, **others}
        self._to.call("kafka commit transaction", lambda: self._commit(positions))

    def _commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        self._check()
        if self._exactly_once:
            for where in positions:
                self._to.kafka.log(where)
            finished = self._finish(commits=True)
            for where in positions:
                self._note(finished.get(where, []), where)
            assert finished.keys() <= positions.keys(), "records without a position"
        else:
            for where, position in positions.items():
                found = self._to.kafka.groups.get(self._group, {}).get(where)
                if found is not None and found.offset > position.offset:
                    raise OffsetMovedError("committing", "another run overtook this one")
        for where, position in positions.items():
            self._to.moved(self._group, where, position)
            self._check_translated(where, position)

    def _check_translated(self, where: TopicPartition, position: Position) -> None:
        """A row says where the target has the records of a span of offsets: all, and no other."""
        read = RestorePosition.read(where, position)
        if read is None:
            return
        log, source = self._to.kafka.log(where), read[0].source.where
        for row in read[0].translated:
            is_mixed = not (self._exactly_once or row.is_contiguous)  # nobody keeps another away
            if row.target_first < log.start or is_mixed:
                continue
            shown = log.between(row.target_first, row.target_last + 1)
            names = [named(one.name).decode().split("/")[:3] for one in shown]
            own = [int(at) for topic, _, at in names if source.topic.endswith(topic)]
            expected = [row.first, row.last, row.records]
            assert [*own[:1], *own[-1:], len(own)] == expected, (where, row, names, position)

    def _check(self) -> None:
        if self._exactly_once and self._to.kafka.epochs[self._id] != self._epoch:
            raise TakenOverError(str(self._target), "another restore took over this partition", "")

    def flush(self) -> None:
        pass

    def written(self, where: TopicPartition) -> Span | None:
        return self._written.pop(where, None)

    def abort(self) -> None:
        """A process that is dead aborts nothing; the next writer does."""
        process = self._to.process
        if process.is_dead or process.has_no_worker or not self._exactly_once:
            return
        if self._to.kafka.epochs[self._id] == self._epoch:
            self._finish(commits=False)

    def close(self) -> None:
        self.abort()


class SimBatchWriter(SimWriter):
    """Takes batches, too."""

    def write_batches(self, batches: Batches, where: TopicPartition | None = None) -> None:
        """Write their records."""
        for rows in decoded(batches):
            self.write(rows, where)
