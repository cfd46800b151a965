"""Where a script is performed: the world in memory, and the commands as they are."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache, partial
from random import Random
from typing import Any, TypeGuard, cast

from tests.simulation.bucket import Bucket, SimStoreSettings
from tests.simulation.clients import SimConnection
from tests.simulation.cluster import Kafka
from tests.simulation.determinism import Clock
from tests.simulation.events import Ended, Event, Keyed, Note, Ruled, StandsBy, Vouched
from tests.simulation.process import KilledError, Looks, Process, Script, Tasks
from tests.simulation.product import (
    Command,
    Environment,
    KbackupError,
    Notes,
    Plain,
    RestoreRun,
    Settings,
    SinkRun,
    Stop,
    Summary,
    TopicFilter,
    TopicPartition,
    VerifyUnit,
    layout_of,
    load,
    lock_holders,
    read_known,
    reading_of,
    status,
    to_json,
    verify,
    verify_task,
)
from tests.simulation.promises import CANARY, Checker, Violation
from tests.simulation.script import HOSTS, Shape
from tests.simulation.truth import ROUTED, source_name
from tests.support.telling import telling

COPY = "copy-$0"

_BY_HOUR = {
    "partitioner_class": "hourly", "timestamp_extractor": "record", "locale": "en",
    "timezone": "UTC",
}  # fmt: skip
"""Each object in the directory of its hour."""

_LETTERS = {
    "errors_tolerance": "all", "errors_deadletterqueue_topic_name": "letters",
    "errors_deadletterqueue_topic_replication_factor": "1",
}  # fmt: skip
"""What does not fit goes to a topic of its own."""

_OF_KAFKA = "org.apache.kafka.connect.transforms."
_STEPS = (
    (
        f"transforms.leave.type={_OF_KAFKA}Filter", "transforms.leave.predicate=has_h",
        "predicates=has_h", f"predicates.has_h.type={_OF_KAFKA}predicates.HasHeaderKey",
        "predicates.has_h.name=h",
    ),
    (
        f"transforms.route.type={_OF_KAFKA}RegexRouter", "transforms.route.regex=.*",
        f"transforms.route.replacement={ROUTED}$0",
    ),
)  # fmt: skip

_STRICT = {"flush_on_stop": False, "rotate_interval_ms": "-1"}
"""Files are cut by the number of their records alone."""


class Stage:
    """Clusters, bucket and clock, and the commands that are run there.

    Attributes:
        history: All that happened.
        violations: The promises that were broken, by the number of the step.
    """

    def __init__(self, shape: Shape, *, stop_at_first: bool = True) -> None:
        self.shape = shape
        self._sink_group = "kbackup-sink"
        self.history: list[Event] = []
        self.violations: list[tuple[int, Violation]] = []
        self.ended: list[Ended] = []
        self._stops = stop_at_first
        self._checker = Checker()
        self._checked = 0
        self.clock = Clock()
        self.kafka = Kafka(self.history)
        self.kafka.now_ms = lambda: int(self.clock.right.timestamp() * 1000)
        self.bucket = Bucket(self.history, self.clock, self.kafka)
        self._names = itertools.count()
        self._sinks = 0
        self._troubles: set[str] = set()
        if shape.leaves_out:
            self.kafka.is_left_out = lambda row: any(name == "h" for name, _ in row.headers)
        if shape.has_letters:
            self.kafka.is_unfit = lambda row: row.value is None
        if shape.is_keyed:
            self.history.append(Keyed())
        for name, partitions in shape.topics:
            self.kafka.create(name, partitions, is_source=True)
        if not shape.flush_on_stop and not shape.hours:
            self.history.append(Ruled(shape.flush_size))
        settings = self._settings("sink", topics="alpha", flush_size="1")
        self._layout = layout_of(settings)
        self._sink_group = str(settings.group)
        self.kafka.sink_groups.add(self._sink_group)

    def _check(self, number: int) -> None:
        while self._checked < len(self.history):
            found = self._checker.take(self.history[self._checked])
            self.violations += [(number, violation) for violation in found]
            self._checked += 1

    # who acts

    def _process(self, rng: Random, script: Script) -> Process:
        process = Process(f"run {next(self._names)}", rng, self.clock, script)
        process.on_request = lambda: self.bucket.land(process.rng, 0.02)
        if self.shape.is_apart:
            process.apart = Random(f"host of {process.name}").choice(HOSTS)
        return process

    def _settings(self, command: Command, **options: Any) -> Settings:
        given = {
            "bootstrap_servers": "nowhere:9092",
            "s3_bucket_name": "lake",
            "no_lock": True,
            **({"group": self._sink_group} if command == "sink" else {}),
            **({} if self.shape.group is None else {"group": self.shape.group}),
            **({"format_class": "bytes"} if self.shape.values_only else {}),
            **self._format(command),
            **options,
        }
        return _load(command, self._transforms if command == "sink" else (), **given)

    def _format(self, command: Command) -> dict[str, Any]:
        """Batches for some sinks, if there are any."""
        if command != "sink" or not self.shape.in_batches:
            return {}
        self._sinks += 1
        return {} if self._sinks % self.shape.in_batches else {"format_class": "log"}

    @property
    def _transforms(self) -> tuple[str, ...]:
        """The properties of the transforms of sinks."""
        names = [("leave", self.shape.leaves_out), ("route", self.shape.is_routed)]
        used = [name for name, is_used in names if is_used]
        return (f"transforms={','.join(used)}", *(_STEPS[0] if "leave" in used else ()),
                *(_STEPS[1] if "route" in used else ())) if used else ()  # fmt: skip

    def stored_name(self, topic: str) -> str:
        """The name of a topic in the bucket."""
        return f"{ROUTED}{topic}" if self.shape.is_routed else topic

    def _world(self, process: Process) -> Environment:
        return Environment(
            cast("Any", SimConnection(self.kafka, process)),
            cast("Any", SimStoreSettings(self.bucket, process)),
            cast("Any", Tasks(process)),
            self.clock,
        )

    def _end(
        self, kind: str, process: Process, summary: dict[str, Any] | None, told: list[Any],
        targets: dict[TopicPartition, TopicPartition] | None = None,
    ) -> Ended | None:  # fmt: skip
        """Note how a command ended; nothing where it was killed."""
        if summary is None or process.is_dead:
            self.history.append(Note(f"{kind} was killed at request {process.requests}"))
            return None
        seen = vars(process).get("seen", {})
        committed = vars(process).get("committed", {})
        done = len(vars(process).get("written", ()))
        if kind in ("sink", "follow"):
            read = vars(process).get("read", set())
            done = sum(
                offset in self._checker.truth.stored(where) and offset < committed.get(where, 0)
                for where, offset in read
            )
        script = process.script
        found = Ended(
            kind,
            summary["exit_code"],
            {where: (topic_id, span.end_offset) for where, (topic_id, span) in seen.items()},
            summary["records"],
            done,
            targets or {},
            sum(count for kind, count in process.of_kind.items() if not kind.startswith("kafka")),
            json.dumps([*told, summary], default=str),
            bool(script.faults or script.events or script.worker_dies_at or script.is_slow),
            process.name,
            self._may_leave(),
            summary["errors"],
        )
        self.ended.append(found)
        self.history.append(found)
        return found

    def _may_leave(self) -> int:
        """Records of a partition that a good sink may leave to the next one."""
        files = max(1, self.shape.hours)
        return 0 if self.shape.flush_on_stop else files * (self.shape.flush_size - 1)

    @property
    def _all_topics(self) -> str:
        return ",".join(name for name, _ in self.shape.topics)

    def sink(self, process: Process, kind: str = "sink", **options: Any) -> Ended | None:
        """Run a sink."""
        settings = self._settings(
            "sink",
            **{
                **({} if "topics_regex" in options else {"topics": self._all_topics}),
                "flush_size": str(self.shape.flush_size),
                **({} if self.shape.flush_on_stop else _STRICT),
                **(_BY_HOUR if self.shape.hours else {}),
                **(_LETTERS if self.shape.has_letters else {}),
                **options,
            },
        )
        told: list[Any] = []
        summary = self._survive(
            process,
            lambda: SinkRun(settings, telling(told), Stop(), self._world(process))(),
        )
        if summary is not None:
            self._check(-1)
        return self._end(kind, process, summary, told)

    def follow(self, process: Process) -> Ended | None:
        """Run a sink that follows, until it has had its turns."""
        return self.sink(process, "follow", follow=True, rotate_idle_ms="2000")

    def status(self, process: Process) -> Ended | None:
        """Ask how the backup fares."""
        store = SimStoreSettings(self.bucket, process).open()
        names = [name for name, _ in self.shape.topics]
        summary = self._survive(
            process,
            lambda: status(
                store, self._layout, max_age_s=None, now=self.clock.now(), asked=TopicFilter(names)
            ),
        )  # fmt: skip
        if self._is_dated(summary):
            until = datetime.fromisoformat(summary["last_success"]).timestamp() * 1000
            topics = {where: self.kafka.ids[where.topic] for where in self._wheres()}
            self.history.append(Vouched(int(until), topics, self._may_leave()))
        return self._end("status", process, summary, [])

    @property
    def _restoring(self) -> dict[str, Any]:
        """The options of all restores.  The map sends each partition to the one of its number."""
        mapped = {
            "partition_map": "key" if self.shape.is_keyed else "modulo", "target_partitions": "3",
        }  # fmt: skip
        given = mapped if self.shape.is_mapped or self.shape.is_keyed else {}
        return given if self.shape.exactly_once else {**given, "exactly_once": False}

    def _renaming(self, rename: str) -> dict[str, str]:
        """The options that name targets after topics as they are called in Kafka."""
        if not self.shape.is_routed:
            return {"rename": rename}
        return {"rename_regex": f"{ROUTED}(.*)", "rename": rename.replace("$0", "$1")}

    def restore(self, process: Process, rename: str = COPY, **options: Any) -> Ended | None:
        """Run a restore."""
        given = {**self._restoring, **self._renaming(rename), **options}
        settings = self._settings("restore", **given)
        names = [source_name(name) for name in settings.topics]
        names = names or [name for name, _ in self.shape.topics]
        targets = {
            where: TopicPartition(rename.replace("$0", name), where.partition)
            for name in names
            for where in self._wheres(name)
        }
        told: list[Any] = []
        summary = self._survive(
            process, lambda: RestoreRun(settings, telling(told), Stop(), self._world(process))()
        )
        return self._end("restore", process, summary, told, targets)

    def standby(self, process: Process, rename: str = COPY, **options: Any) -> Ended | None:
        """Run a restore that follows, until it has had its looks."""
        names = ",".join(self.stored_name(name) for name, _ in self.shape.topics)
        settings = self._settings(
            "restore",
            follow=True,
            topics=names,
            **{**self._restoring, **self._renaming(rename), **options},
        )
        told: list[Any] = []
        stop = Stop()
        stop.event = Looks(process)
        summary = self._survive(
            process, lambda: RestoreRun(settings, telling(told), stop, self._world(process))()
        )
        targets = {
            where: TopicPartition(rename.replace("$0", where.topic), where.partition)
            for where in self._wheres()
        }
        self._check(-1)
        if self._is_dated(summary):
            until = datetime.fromisoformat(summary["last_success"]).timestamp() * 1000
            self.history.append(StandsBy(int(until), targets))
        return self._end("standby", process, summary, told, targets)

    def verify(self, process: Process, *, deep: bool) -> Ended | None:
        """Run a verification."""
        settings = self._settings("verify")
        summary = Summary("verify", "restore verify")
        told: list[Any] = []

        def work() -> Plain:
            try:
                found = self._verification(settings, process, summary, deep=deep)
                told.extend(to_json(each) for each in found)
            except KbackupError as error:
                summary.fail(error)
            return summary.finish()

        found = self._survive(process, work)
        return self._end("verify --deep" if deep else "verify", process, found, told)

    def _verification(
        self, settings: Settings, process: Process, summary: Summary, *, deep: bool
    ) -> Iterator[Plain]:
        place = SimStoreSettings(self.bucket, process)
        store, layout = place.open(), layout_of(settings)
        said = read_known(store, layout, self.clock, settings.asked)
        task = partial(verify_task, place, reading_of(settings))  # type: ignore[arg-type]

        def read(units: Sequence[VerifyUnit]) -> list[Any]:
            return Tasks(process)(task, units, told, Stop().event)

        def told(_: Any) -> None:
            pass

        yield from verify(
            store, layout, reading_of(settings), summary, now=self.clock.now(),
            notes=Notes(said, lock_holders(store, layout, "sink")),
            read=read if deep else None,
        )  # fmt: skip

    def _is_dated(self, summary: dict[str, Any] | None) -> TypeGuard[dict[str, Any]]:
        """Whether a summary says since when all is well, by a clock that is right."""
        return bool(summary and summary.get("last_success")) and not self.shape.is_apart

    def _survive(self, process: Process, work: Callable[[], Plain]) -> dict[str, Any] | None:
        self.clock.apart = process.apart
        try:
            return to_json(work())
        except KilledError:
            assert process.is_dead
            return None
        finally:
            self.clock.apart = timedelta()

    def _wheres(self, *names: str) -> list[TopicPartition]:
        wanted = names or [name for name, _ in self.shape.topics]
        return [where for name in wanted for where in self.kafka.partitions(name)]


@lru_cache(1_000)
def _load(command: Command, extra: tuple[str, ...], **given: Any) -> Settings:
    """The same options make the same settings, which nobody changes."""
    settings = load(command, options=given, files=(), environ={}, extra=extra).settings
    return settings.replace(kafka_admin={"sasl.password": CANARY})
