"""``--follow``: a long task that owns some partitions and visits each when it is worth while.

No file stays open between two visits.  A partition is visited when enough records wait to fill a
file, or when the oldest has waited long enough for a short one: so each record is read once, and
memory is that of a single run whatever the number of partitions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

from kbackup import engine
from kbackup.backup.ledger import objects, place
from kbackup.backup.ledger.rows import OBJECTS, table
from kbackup.backup.ledger.stream import SYSTEM
from kbackup.channel import Line
from kbackup.errors import KafkaError, KbackupError, TopicChangedError
from kbackup.kafka import PATIENCE_S, Cluster, LogStartMovedError
from kbackup.records import Span, TopicIdentity, TopicPartition
from kbackup.reports import PartitionReport
from kbackup.sink.job import SinkJob, SinkUnit, recreated
from kbackup.sink.task import Clients, Work, connected

POLL_S: Final = 1.0
"""How often the end offsets are asked for."""


@dataclass(slots=True)
class Watch:
    """One partition's backlog.

    Attributes:
        position: The next offset to back up.
        wanted: Records that have to wait here before a full file is likely.
        waiting_since: When records behind *position* were first seen, by the monotonic clock.
    """

    position: int
    wanted: int
    waiting_since: float | None = None

    def is_due(self, end_offset: int, now: float, idle_s: float | None) -> bool:
        """Whether to visit: enough records wait, or one has waited *idle_s* seconds."""
        backlog = end_offset - self.position
        if backlog <= 0:
            self.waiting_since = None
            return False
        if self.waiting_since is None:
            self.waiting_since = now
        waited = now - self.waiting_since
        return backlog >= self.wanted or (idle_s is not None and waited >= idle_s)


def follow(
    job: SinkJob,
    starts: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
    idle_ms: int,
    units: Sequence[SinkUnit],
    line: Line,
) -> Iterator[engine.Report]:
    """Back up *units* until asked to stop; yields one report a partition, at the end.

    Args:
        job: What tasks need to know; with its ``flush_tail`` a short file is closed when a
            record has waited *idle_ms*, without it only full files are written.
        starts: The next offset to back up.
        topic_ids: Of the topics that were planned: another one under the same name ends it.
        idle_ms: How long a record may wait.
        units: The partitions.
        line: To the driver.
    """
    with connected(job) as clients:
        following = _Following(job, idle_ms / 1000 if job.flush_tail else None, clients, line)
        for unit in units:
            following.add(unit, starts[unit.where], topic_ids[unit.where.topic])
        following.run()
    for report in following.totals.values():
        yield report.to_dict()


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the cluster finds.

    Attributes:
        logs: What the logs hold; empty where a topic is gone.
        gone: Topics that are not there.
        changed: Topics that are others of the same name.
    """

    logs: Mapping[TopicPartition, Span] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Following:
    """The partitions of one task, what is known of them, and the reports that grow on it."""

    job: SinkJob
    idle_s: float | None
    clients: Clients
    line: Line
    totals: dict[TopicPartition, PartitionReport] = field(default_factory=dict)
    _watches: dict[TopicPartition, Watch] = field(default_factory=dict)
    _topic_ids: dict[str, str] = field(default_factory=dict)
    _identities: dict[str, TopicIdentity] = field(default_factory=dict)
    _cluster: Cluster | None = None

    def add(self, unit: SinkUnit, start: int, topic_id: str) -> None:
        """Follow one more partition, from offset *start* on."""
        self.totals[unit.where] = PartitionReport(
            unit.where, start, unit.span.end_offset, start, bookmark=unit.bookmark
        )
        self._watches[unit.where] = Watch(start, self._file_records)
        self._topic_ids[unit.where.topic] = topic_id
        self._identities[unit.where.topic] = unit.identity

    def run(self) -> None:
        """Visit partitions until asked to stop, or until one cannot be followed any more."""
        before = Look()
        heard = monotonic()
        while not self.line.is_stopped() and not self._has_failed():
            try:
                look = self._look()
            except KafkaError as error:
                if monotonic() - heard > PATIENCE_S:
                    self._fail(dict.fromkeys(self.totals, error))
                self.line.wait(POLL_S)
                continue
            heard = monotonic()
            reasons = {at: changed(at, watch.position, look, before)
                       for at, watch in self._watches.items()}  # fmt: skip
            self._fail({at: error for at, error in reasons.items() if error is not None})
            before = look
            if not self._has_failed():
                for where, log in look.logs.items():
                    self._visit(where, log.end_offset)
                self.line.wait(POLL_S)

    @property
    def _file_records(self) -> int:
        return max(1, self.job.rule.records or 1)

    def _has_failed(self) -> bool:
        return any(total.failure is not None for total in self.totals.values())

    def _fail(self, errors: Mapping[TopicPartition, KbackupError]) -> None:
        for where, error in errors.items():
            self.totals[where] = replace(self.totals[where], failure=error.to_dict())

    def _look(self) -> Look:
        """Look at the cluster.

        Raises:
            KafkaError: If it does not answer.
        """
        self._cluster = self._cluster or self.job.kafka.cluster()
        gone, changed = _replaced(self._cluster, self._topic_ids)
        return Look({} if gone else self._cluster.spans(list(self.totals)), gone, changed)

    def _visit(self, where: TopicPartition, end: int) -> None:
        """Back up what waits in a partition, if it is worth while."""
        watch, total = self._watches[where], self.totals[where]
        is_full = end - watch.position >= watch.wanted
        if self.line.is_stopped() or not watch.is_due(end, monotonic(), self.idle_s):
            return
        span, identity = Span(watch.position, end), self._identities[where.topic]
        unit = SinkUnit(where, span, total.bookmark, identity)
        visit = replace(self.job, flush_tail=self.job.flush_tail and not is_full)
        work = Work(visit, unit, self.clients, self.line)
        error: KbackupError | None = None
        try:
            work.run()
        except KbackupError as caught:
            error = caught
        self.totals[where] = _grown(total, work.report)
        if isinstance(error, LogStartMovedError):
            error = self._go_on_behind(where, error)
        if error is not None:
            work.fail(error)
            self.totals[where] = replace(self.totals[where], failure=work.report.failure)
        _visited(watch, self.totals[where].committed, end, self._file_records)

    def _go_on_behind(self, where: TopicPartition, error: KbackupError) -> KbackupError | None:
        """Write down what expired before it was read, and continue at the log's start.

        Written down at once: the next commit is behind it, and no later run would find it.

        Returns:
            What keeps the partition from going on: *error* where nothing has expired.
        """
        assert self._cluster is not None  # noqa: S101  (a partition was seen before it is visited)
        total = self.totals[where]
        try:
            log = self._cluster.spans([where])[where]
            gap = Span(total.committed, log.start_offset)
            if not len(gap):
                return error
            row = objects.gap(where, gap, self.job.run, SYSTEM.wall_ms())
            stream = place.of_topic(self.clients.store, self.job.layout, where.topic)
            stream.append(table([row], OBJECTS))
        except KbackupError as other:
            return other
        self.totals[where] = replace(total, gaps=(*total.gaps, gap), committed=gap.end_offset)
        text = f"{where}: offsets {gap.start_offset} to {gap.end_offset - 1} have expired"
        self.line.tell({"type": "warning", "run": self.job.run, "code": "gap", "text": text})
        return None


def changed(where: TopicPartition, position: int, look: Look, before: Look) -> KbackupError | None:
    """Return why a partition cannot be followed any more; most is believed when seen twice.

    One broker's answer may be behind, or come while another takes over.
    """
    if where.topic in look.changed:
        return recreated(where)
    if where.topic in look.gone & before.gone:
        return _deleted(where)
    ends = [one.logs[where].end_offset for one in (before, look) if where in one.logs]
    if len(ends) == 2 and max(ends) < position:
        return TopicChangedError(
            f"{where} ends at offset {ends[-1]}, but was backed up to {position}",
            "its log was cut back",
            "what is stored stays as it is; look at the topic before running again",
            topic=where.topic,
            partition=where.partition,
        )
    return None


def _replaced(
    cluster: Cluster, topic_ids: Mapping[str, str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the topics that are not there, and those that are others of the same name."""
    found = cluster.topics(topic_ids)
    ids = {name: topic.topic_id for name, topic in found.items()}
    changed = {name for name, now in ids.items() if now and topic_ids[name] not in ("", now)}
    return frozenset(topic_ids.keys() - found.keys()), frozenset(changed)


def _deleted(where: TopicPartition) -> KafkaError:
    return KafkaError(
        f"{where.topic} is no longer there",
        "it was deleted while it was backed up",
        "what is stored stays as it is; take it out of the topics to back up",
        topic=where.topic,
        partition=where.partition,
    )


def _visited(watch: Watch, committed: int, end: int, size: int) -> None:
    """Set what the next visit waits for: what is left of the last one, and a file more."""
    if committed > watch.position:
        watch.waiting_since = None
    watch.position = committed
    left = end - committed
    watch.wanted = size if left < size else left + size


def _grown(total: PartitionReport, visit: PartitionReport) -> PartitionReport:
    """Take over a visit's report, which counts what the whole run has done."""
    last = total.last if visit.last is None else visit.last
    return replace(visit, start=total.start, gaps=total.gaps, last=last)
