"""Make metrics of a backup or a restore for Prometheus, from its bucket: a file, or a page.

All of it comes from run records, locks, ledger and keys, so any host can write the metrics when the
one that backs up is dead.  A run adds what no record says yet: how far it is.
"""

import errno
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kbackup import files
from kbackup.catalog import drills
from kbackup.catalog.drills import LastDrill
from kbackup.catalog.keys import own_rows, recipients_stream
from kbackup.catalog.ledger.rows import TopicLedger, is_main
from kbackup.clock import Clock
from kbackup.errors import ConfigurationError, CorruptObjectError, KbackupError, StoreError
from kbackup.events import Ended, PartitionRow, to_json
from kbackup.naming import Layout, place_of
from kbackup.naming.renaming import TopicFilter
from kbackup.runs import backup_state, history
from kbackup.runs.context import Periodic, RunCommand, RunContext
from kbackup.runs.history import LastRun, PastRun, Proof, RunRecord
from kbackup.runs.status import RESTORE, SINK, ThisRestore, Words, status
from kbackup.stores import Store, open_store

_log: Final = logging.getLogger(__name__)

FRESH_S: Final = 15.0
"""Seconds for which what was found in the bucket is served: scrapes cost no more requests."""

LEDGER_S: Final = 600.0
"""Seconds for which the sums of the ledger are: it costs some requests for each topic."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The sums of a topic's objects in the ledger."""

    records: int = 0
    objects: int = 0
    bytes: int = 0
    newest_ms: int | None = None
    removed_objects: int = 0
    removed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class BackupFacts:
    """What a backup says of itself beside its run records, which is asked for less often.

    Attributes:
        upkeep: How the newest runs of the commands of `UPKEEP` went.
        proofs: How the backup was verified last.
        recipients: For how many the next run encrypts; None for a backup that has no keys.
    """

    stored: Mapping[str, Stored] = field(default_factory=dict)
    drill: LastDrill | None = None
    upkeep: Mapping[str, LastRun] = field(default_factory=dict)
    proofs: Sequence[Proof] = ()
    recipients: int | None = None


@dataclass(frozen=True, slots=True)
class MetricValues:
    """What metrics are made of.

    Attributes:
        is_up: Whether the last look at the bucket found it.
        was_read: Whether any look has.
        success: Up to when the backup, or the restore, is complete; None where nothing says so.
    """

    command: str
    is_up: bool
    now: datetime
    was_read: bool = False
    last: PastRun | None = None
    group: str | None = None
    rows: tuple[PartitionRow, ...] = ()
    success: datetime | None = None
    running: int = 0
    beside: BackupFacts = BackupFacts()


_Samples = Iterator[tuple[tuple[str, ...], float | None]]


@dataclass(frozen=True, slots=True)
class Metric:
    """A declared metric; each is a gauge.

    Attributes:
        own: Its labels beside those that all metrics have, `LABELS`.
        samples: Returns its numbers with the texts of *own*; one that is None is left out.
    """

    name: str
    help: str
    own: tuple[str, ...]
    samples: Callable[[MetricValues], _Samples]


LABELS: Final = {
    "backup": "URL of the store with `topics.dir`",
    "command": "`sink` or `restore`",
    "topics": "what `topics` or `topics.regex` asked for, empty for everything",
}
"""Of every metric."""

_PARTITION: Final = ("group", "topic", "partition", "target")

OWN_LABELS: Final = {
    "group": "the consumer group that keeps the positions",
    "code": "the [code](../troubleshoot.md) of a failure",
    "mode": "`deep`, `part` (of it), `source` or `target`",
    "topic": "the topic that is, or was, backed up",
    "partition": "its number",
    "target": "of a restore: the topic that is written to",
}


_T = TypeVar("_T")


def _of_one(
    name: str,
    text: str,
    one: Callable[[MetricValues], _T | None],
    value: Callable[[_T], float | None],
) -> Metric:
    """Return a metric of something that there may be one of."""

    def samples(seen: MetricValues) -> _Samples:
        if (found := one(seen)) is not None:
            yield (), value(found)

    return Metric(f"kbackup_last_{name}", text, (), samples)


def _of_run(name: str, text: str, value: Callable[[PastRun], float | None]) -> Metric:
    return _of_one(f"run_{name}", text, lambda seen: seen.last, value)


def _of_partition(name: str, text: str, value: Callable[[PartitionRow], float | None]) -> Metric:
    def samples(seen: MetricValues) -> _Samples:
        for row in seen.rows:
            yield _place(seen, row), value(row)

    return Metric(f"kbackup_{name}", text, _PARTITION, samples)


def _of_topic(name: str, text: str, value: Callable[[Stored], float | None]) -> Metric:
    def samples(seen: MetricValues) -> _Samples:
        for topic, sums in seen.beside.stored.items():
            yield (topic,), value(sums)

    return Metric(f"kbackup_stored_{name}", text, ("topic",), samples)


def _of_drill(name: str, text: str, value: Callable[[LastDrill], float | None]) -> Metric:
    return _of_one(f"drill_{name}", text, lambda seen: seen.beside.drill, value)


def _of_proof(name: str, text: str, value: Callable[[Proof], float | None]) -> Metric:
    def samples(seen: MetricValues) -> _Samples:
        for proof in seen.beside.proofs:
            yield (proof.mode,), value(proof)

    return Metric(f"kbackup_last_verify_{name}", text, ("mode",), samples)


UPKEEP: Final = {"copy": "sink copy", "expiry": "sink expire"}
"""What keeps a backup, and leaves a record in the bucket that it has worked on."""


def _of_upkeep(noun: str, what: str, done: str) -> Iterator[Metric]:
    """Yield the metrics of one of `UPKEEP`; the field *done* of its record counts objects."""

    def metric(name: str, text: str, value: Callable[[LastRun], float | None]) -> Metric:
        return _of_one(f"{noun}_{name}", text, lambda seen: seen.beside.upkeep.get(noun), value)

    def failures(seen: MetricValues) -> _Samples:
        if noun in seen.beside.upkeep:
            yield from _by_code(seen.beside.upkeep[noun].record.past())

    yield metric("timestamp_seconds", f"Start of the newest {what}, of the last 100 days.",
                 lambda run: _seconds(run.record.started))  # fmt: skip
    yield metric("success_timestamp_seconds", "The same of the newest that went well; 0 for none.",
                 lambda run: _seconds(run.success) or 0)  # fmt: skip
    yield metric("exit_code", "Its exit code, so far if it follows.",
                 lambda run: run.record.past().exit_code)  # fmt: skip
    yield metric("objects", f"Objects that it {done}.", lambda run: run.record.said.get(done))
    yield metric("bytes", "Their bytes.", lambda run: run.record.said.get(f"{done}_bytes"))
    yield Metric(f"kbackup_last_{noun}_failures", "Its failures, by code.",
                 ("code",), failures)  # fmt: skip


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _place(seen: MetricValues, row: PartitionRow) -> tuple[str, ...]:
    return seen.group or "", row.where.topic, str(row.where.partition), row.target or ""


def _success(seen: MetricValues) -> _Samples:
    if seen.was_read or seen.success is not None:
        yield (), 0 if seen.success is None else int(seen.success.timestamp())


def _failures(seen: MetricValues) -> _Samples:
    if seen.last is not None:
        yield from _by_code(seen.last)


def _by_code(run: PastRun) -> _Samples:
    errors = [error for error in run.errors or () if isinstance(error, dict)]  # others may write
    codes = Counter(str(error.get("code")) for error in errors)
    for code, times in sorted(codes.items()):
        yield (code,), times


def _lag_s(seen: MetricValues) -> _Samples:
    for row in seen.rows:
        until = row.complete_until or seen.success
        lag = None if until is None else max(0.0, (seen.now - until).total_seconds())
        yield _place(seen, row), lag


def _bytes(seen: MetricValues) -> _Samples:
    if seen.last is not None:
        yield (), seen.last.bytes_stored if seen.command == SINK.command else seen.last.bytes_read


METRICS: Final = (
    Metric(
        "kbackup_up",
        "1 if the bucket could be read, else 0; the other metrics are then those of before, or "
        "only what the run itself knows.",
        (),
        lambda seen: iter([((), float(seen.is_up))]),
    ),
    Metric(
        "kbackup_last_success_timestamp_seconds",
        "Everything that was written to Kafka before this time is backed up; of a restore: "
        "everything that was in the bucket is restored.  0 if no good run is known.",
        (),
        _success,
    ),
    Metric(
        "kbackup_running",
        "Runs that hold their locks.",
        (),
        lambda seen: iter([((), seen.running)] if seen.was_read else ()),
    ),
    _of_run(
        "timestamp_seconds", "Start of the newest run.",
        lambda run: _seconds(run.started),
    ),
    _of_run("exit_code", "Exit code of the newest run; that so far of one that follows.",
            lambda run: run.exit_code),
    _of_run("duration_seconds", "How long the newest run took, or has taken so far.",
            lambda run: run.seconds),
    _of_run("records", "Records that the newest run copied.", lambda run: run.records),
    _of_run("objects", "Objects that the newest run stored, or read.", lambda run: run.objects),
    Metric("kbackup_last_run_bytes", "Bytes of these objects.", (), _bytes),
    Metric(
        "kbackup_last_run_failures", "Failures of the newest run, by code.",
        ("code",), _failures,
    ),
    _of_partition("committed_offset", "The next offset to copy.", lambda row: row.committed),
    _of_partition("lag_records", "Offsets that were left to copy when the run last looked.",
                  lambda row: row.lag),
    Metric(
        "kbackup_lag_seconds",
        "Age, when the metrics were made, of the time up to which the partition is complete.",
        _PARTITION,
        _lag_s,
    ),
    _of_partition("partition_records", "Records that the newest run copied.",
                  lambda row: row.records),
    _of_partition("partition_objects", "Objects that the newest run stored, or read.",
                  lambda row: row.objects),
    _of_partition(
        "partition_bytes", "Bytes of these objects.",
        lambda row: row.bytes_read if row.bytes_stored is None else row.bytes_stored,
    ),
    _of_partition("restore_planned_objects", "Objects that the restore is to read in all.",
                  lambda row: row.planned_objects),
    _of_topic("records", "Records of all objects in the ledger, also of those removed since.",
              lambda sums: sums.records),
    _of_topic("objects", "These objects.", lambda sums: sums.objects),
    _of_topic("bytes", "Their bytes.", lambda sums: sums.bytes),
    _of_topic("removed_objects", "How many of them were removed on purpose.",
              lambda sums: sums.removed_objects),
    _of_topic("removed_bytes", "The bytes of those.", lambda sums: sums.removed_bytes),
    _of_topic(
        "newest_record_timestamp_seconds", "The highest timestamp of their records.",
        lambda sums: None if sums.newest_ms is None else sums.newest_ms / 1000,
    ),
    _of_drill("timestamp_seconds", "End of the newest drill.",
              lambda drill: int(drill.ended.timestamp())),
    _of_drill("passed_timestamp_seconds", "End of the newest drill that has passed; 0 for none.",
              lambda drill: 0 if drill.passed is None else int(drill.passed.timestamp())),
    _of_drill("exit_code", "Exit code of the newest drill.", lambda drill: drill.exit_code),
    _of_drill("rto_seconds", "How long a recovery takes by it, of all that is stored.",
              lambda drill: drill.rto_s),
    _of_drill("rpo_seconds", "Age of its oldest partition's backup.", lambda drill: drill.rpo_s),
    _of_proof("timestamp_seconds", "Start of the newest `restore verify`, of the last 100 days.",
              lambda proof: _seconds(proof.started)),
    _of_proof("passed_timestamp_seconds",
              "The same of the newest that found nothing wrong; 0 for none.",
              lambda proof: _seconds(proof.passed) or 0),
    _of_proof("exit_code", "Exit code of the newest.", lambda proof: proof.exit_code),
    Metric("kbackup_recipients", "For how many the next run encrypts.", (),
           lambda seen: iter([((), seen.beside.recipients)])),
    *_of_upkeep("copy", "`sink copy` into this bucket", "sent"),
    *_of_upkeep("expiry", "`sink expire`", "deleted"),
)  # fmt: skip
"""All metrics, in the order in which they are written."""


@dataclass(frozen=True, slots=True)
class WatchedRuns:
    """What metrics are about: all runs of one command, or of one *restore*."""

    store: Store
    url: str
    layout: Layout
    clock: Clock
    asked: TopicFilter
    of: Words
    restore: ThisRestore | None = None

    @property
    def labels(self) -> dict[str, str]:
        """The texts of `LABELS`."""
        asked = ",".join(sorted(self.asked.names)) or self.asked.pattern or ""
        return {
            "backup": place_of(self.url, self.layout.topics_dir),
            "command": self.of.command,
            "topics": asked,
        }

    def status(
        self, max_age_s: float | None, own: RunRecord | None = None, *, has_schemas: bool = True
    ) -> Ended:
        """Return what `kbackup.runs.status.status` finds."""
        return status(
            self.store, self.layout, max_age_s=max_age_s, now=self.clock.now(), asked=self.asked,
            of=self.of, restore=self.restore, own=own, has_schemas=has_schemas,
        )  # fmt: skip

    def beside(self) -> BackupFacts:
        """Return what the backup says beside its run records, without what cannot be read."""
        store, layout, asked = self.store, self.layout, self.asked
        recent = cache(partial(history.RecentRuns.listed, store, layout, self.clock.now()))

        def last(command: str) -> LastRun | None:
            return recent().last(command, asked)

        upkeep = {
            noun: _if_readable(partial(last, command), None) for noun, command in UPKEEP.items()
        }
        return BackupFacts(
            _if_readable(self._stored, {}),
            _if_readable(lambda: drills.last(store, layout), None),
            {noun: found for noun, found in upkeep.items() if found is not None},
            _if_readable(lambda: recent().proofs(asked), []),
            _if_readable(self._recipients, None),
        )

    def _stored(self) -> dict[str, Stored]:
        found = backup_state.read(self.store, self.layout, self.clock, self.asked)
        return {topic: _sums(ledger) for topic, ledger in sorted(found.ledgers.items())}

    def _recipients(self) -> int | None:
        rows = own_rows(recipients_stream(self.store, self.layout, self.clock))
        return sum(row.is_current for row in rows) if rows else None


def _if_readable(ask: Callable[[], _T], otherwise: _T) -> _T:
    """Return an answer: who may read run records need not be allowed to read anything else."""
    try:
        return ask()
    except (StoreError, CorruptObjectError) as error:
        _log.debug("left out of the metrics: %s", error)
        return otherwise


def _sums(ledger: TopicLedger) -> Stored:
    entries = [one for at in ledger.partitions.values() for one in at.objects.values()]
    removed = [one for at in ledger.partitions.values() for one in at.removed(())]
    return Stored(
        sum(one.records or 0 for one in entries if is_main(one)),
        len(entries),
        sum(one.bytes or 0 for one in entries),
        max((one.max_timestamp for one in entries if one.max_timestamp is not None), default=None),
        len(removed),
        sum(one.bytes or 0 for one in removed),
    )


class Exporter(Collector):
    """Metrics of a backup or a restore.  Safe from any thread.

    Args:
        own: Returns how far a run is that has left no record of that yet; None where there is none.
    """

    def __init__(
        self, watched: WatchedRuns, own: Callable[[], RunRecord | None] = lambda: None
    ) -> None:
        self._watched, self._own = watched, own
        self._lock = threading.Lock()
        self._seen = MetricValues(watched.of.command, False, watched.clock.now())
        self._looked: float | None = None
        self._summed: float | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def look(self, max_age_s: float | None = None) -> Ended:
        """Look at the bucket; metrics are those of what was found last."""
        with self._lock:
            return self._look(max_age_s, has_schemas=True)

    def _look(self, max_age_s: float | None = None, *, has_schemas: bool = False) -> Ended:
        watched, own = self._watched, self._own()
        now, steady_s = watched.clock.now(), watched.clock.steady_s()
        self._looked = steady_s
        try:
            found = watched.status(max_age_s, own, has_schemas=has_schemas)
        except KbackupError as error:
            self._seen = replace(self._seen, is_up=not isinstance(error, StoreError), now=now)
            if own is not None:
                self._seen = replace(
                    self._seen, last=own.past(), rows=tuple(own.rows), group=own.group
                )
            raise
        beside = self._seen.beside
        is_old = self._summed is None or steady_s - self._summed >= LEDGER_S
        if is_old and watched.of is SINK:
            self._summed, beside = steady_s, watched.beside()
        self._seen = MetricValues(
            watched.of.command,
            is_up=True,
            now=now,
            was_read=True,
            last=next(iter(found.facts["runs"]), None),
            group=found.facts["group"],
            rows=tuple(row for row in found.partitions if isinstance(row, PartitionRow)),
            success=found.facts["last_success"],
            running=len(found.facts["running"]),
            beside=beside,
        )
        return found

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics of what was seen last: a part of what Prometheus' client asks for."""
        labels = self._watched.labels
        with self._lock:
            seen = self._seen
        for metric in METRICS:
            family = GaugeMetricFamily(metric.name, metric.help, labels=[*labels, *metric.own])
            for texts, value in metric.samples(seen):
                if value is not None:
                    family.add_metric([*labels.values(), *texts], value)
            if family.samples:
                yield family

    def write(self, path: Path) -> None:
        """Write the metrics of what was seen last into a file, whole or not at all.

        Raises:
            ConfigurationError: If it cannot be written; the old file is then as it was.
        """
        try:
            if not path.parent.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, f"{path.parent} is not a folder")
            files.replace_file(path, generate_latest(self._registry))
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            raise ConfigurationError(
                f"metrics file {path} cannot be written",
                why or str(error),
                "give --metrics-file a path in a folder that exists and can be written",
            ) from error

    @contextmanager
    def serving(self, address: str) -> Iterator[None]:
        """Serve metrics over HTTP as long as the context lasts; what is older than 15 s is renewed.

        Args:
            address: ``HOST:PORT``.

        Raises:
            ConfigurationError: If nothing can be served there.
        """
        host, _, port = address.rpartition(":")
        registry = CollectorRegistry()
        registry.register(_Renewed(self))
        try:
            server, thread = start_http_server(int(port), host.strip("[]"), registry)
        except OSError as error:
            raise ConfigurationError(
                f"metrics cannot be served at {address}",
                error.strerror or str(error),
                "give --metrics-listen a port that is free, and an address of this host",
            ) from error
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def renew(self, older_than_s: float = 0.0) -> None:
        """Look at the bucket, as *look* does but for schemas, if the last look was so long ago.

        Where it does not answer, metrics say so.
        """
        with self._lock:
            now = self._watched.clock.steady_s()
            if self._looked is None or now - self._looked >= older_than_s:
                try:
                    self._look()
                except KbackupError as error:
                    _log.info("the bucket could not be read for metrics: %s", error)


class _Renewed(Collector):
    """What is served: the metrics of a look that is not older than it may be."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def collect(self) -> Iterator[GaugeMetricFamily]:
        self._exporter.renew(FRESH_S)
        return self._exporter.collect()


class RunMetrics:
    """The metrics of a run: while it holds its lock, and at its end.

    A backup without metrics is one all the same: what keeps them from being written or served is a
    warning.
    """

    def __init__(self, frame: RunContext, command: RunCommand) -> None:
        self._frame, self._command = frame, command
        self._is_over = self._is_warned = False
        self._exporter: Exporter | None = None
        self._entered = ExitStack()

    def __enter__(self) -> None:
        exporter, listen = self._opened(), self._frame.settings.metrics_listen
        if listen is not None:
            try:
                self._entered.enter_context(exporter.serving(listen))
            except KbackupError as error:
                self._warn(error)
        if self._frame.settings.metrics_file is not None:
            self._entered.enter_context(Periodic("writing metrics", self._write, at_once=True))

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def end(self) -> None:
        """Write how the run has ended."""
        self._is_over = True
        self._write()

    def _opened(self) -> Exporter:
        if self._exporter is None:
            frame, settings = self._frame, self._frame.settings
            of = SINK if frame.summary.command == SINK.command else RESTORE
            this = ThisRestore.of(settings, [frame.group])
            store = open_store(frame.environment.store)
            self._exporter = Exporter(
                WatchedRuns(
                    store, settings.url, frame.layout, frame.environment.clock, settings.asked,
                    of, this if of is RESTORE and frame.group else None,
                ),
                self._own,
            )  # fmt: skip
        return self._exporter

    def _own(self) -> RunRecord:
        """Return how far the run is.  One that ends by itself is good only when it has."""
        said = to_json(self._command.finish()) | {"topics_dir": self._frame.layout.topics_dir}
        if not self._is_over and not self._frame.settings.follow:
            said |= {"exit_code": None, "last_success": None}
        return RunRecord(said)

    def _write(self) -> None:
        path = self._frame.settings.metrics_file
        if path is None:
            return
        try:
            exporter = self._opened()
            exporter.renew()
            exporter.write(Path(path))
        except KbackupError as error:
            self._warn(error)

    def _warn(self, error: KbackupError) -> None:
        if not self._is_warned:
            self._is_warned = True
            text = f"{error}; the run goes on without"
            self._frame.tell(self._frame.summary.warn("no_metrics", text))
