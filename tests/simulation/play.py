"""A script of steps made from a number, and its performance.

Each step draws from a number of its own, so a step can be left out and the others stay as they
are: that is how a history that breaks a promise is made small.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import Any

from kbackup import config
from kbackup.config import Settings
from kbackup.errors import KbackupError
from kbackup.kafka import Position
from kbackup.records import TopicPartition
from kbackup.restore.run import RestoreRun
from kbackup.runs import known, locks, wiring
from kbackup.runs.stopping import Stop
from kbackup.runs.summary import Summary
from kbackup.runs.world import World
from kbackup.sink.run import SinkRun
from kbackup.sink.status import status
from kbackup.verify.run import Notes, verify
from kbackup.verify.task import VerifyJob, VerifyUnit, verify_task
from tests.simulation.bucket import LAYOUT, Bucket, SimStoreSettings
from tests.simulation.cluster import Kafka, Log, SimConnection, show
from tests.simulation.events import Ended, Event, Moved, Note, Row, Ruled, Vouched
from tests.simulation.process import (
    Clock,
    KilledError,
    Process,
    Script,
    Tasks,
    Together,
    deterministic,
)
from tests.simulation.promises import CANARY, Checker, Violation

TOPICS = ("alpha", "beta")
COPY = "copy-$0"
END = "copy-$0-end"
MERGED = "merged"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens, and the number its dice begin with."""

    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}#{self.seed}"


@dataclass(frozen=True, slots=True)
class Shape:
    """What stays the same throughout a script.

    Attributes:
        topics: What is backed up, with the number of partitions.
        flush_size: Records a file.
        flush_on_stop: Whether a run closes its last short file.
        exactly_once: How a restore writes.
        group: One group for sink and restore, as some operators set it; None for one each.
        hours: Over how many directories records are spread, by their timestamps; 0: by partition.
        timestamp_type: Who sets timestamps: 1 the producer, 2 the broker.
    """

    topics: tuple[tuple[str, int], ...]
    flush_size: int
    flush_on_stop: bool = True
    exactly_once: bool = True
    group: str | None = None
    hours: int = 0
    timestamp_type: int = 1


_BY_HOUR = {
    "partitioner_class": "hourly", "timestamp_extractor": "record", "locale": "en",
    "timezone": "UTC",
}  # fmt: skip
"""Each object in the directory of its hour."""

FATES = {"none": 45, "kill": 22, "worker": 8, "faults": 15, "event": 10}
"""What befalls a run."""

_STRICT = {"flush_on_stop": False, "rotate_interval_ms": "-1"}
"""Files are cut by the number of their records alone."""

WEIGHTS = {
    "produce": 26, "sink": 24, "sink unsaid": 2, "sink slow": 2, "restore": 12, "verify": 5,
    "expire": 4, "compact": 2,
    "recreate": 1, "set group back": 2, "set group ahead": 1, "forget group": 3,
    "empty target": 2, "empty target in part": 1, "recreate target": 1, "delete object": 1,
    "copy object": 1, "two at once": 5, "add partition": 1, "merge": 2, "idle": 2,
    "forget restore": 1,
}  # fmt: skip


def script_of(seed: int) -> tuple[Shape, list[Step]]:
    """The script that a number stands for."""
    rng = Random(f"script {seed}")
    topics = TOPICS[: rng.choice((1, 1, 2))]
    shape = Shape(
        tuple((name, rng.choice((1, 1, 2))) for name in topics),
        rng.choice((1, 2, 3, 4, 5, 6, 50)),
        flush_on_stop=rng.random() < 0.8,
        exactly_once=rng.random() < 0.85,
        group="mine" if rng.random() < 0.08 else None,
    )
    kinds = rng.choices([*WEIGHTS], [*WEIGHTS.values()], k=rng.randint(5, 14))
    steps = [Step(kind, rng.randrange(10**6)) for kind in ["produce", "sink", *kinds, "final"]]
    return _varied(seed, shape, steps)


def _varied(seed: int, shape: Shape, steps: list[Step]) -> tuple[Shape, list[Step]]:
    """Give a script what came to the simulation later; most of each stays as it was."""
    rng = Random(f"more of script {seed}")
    if rng.random() < 0.25:
        shape = replace(shape, hours=rng.choice((2, 3)))
    if rng.random() < 0.15:
        shape = replace(shape, timestamp_type=2)
    for kind, chance in {"follow": 0.35, "three at once": 0.12, "status": 0.5}.items():
        if rng.random() < chance:
            at = rng.randint(2, len(steps) - 1)
            steps = [*steps[:at], Step(kind, rng.randrange(10**6)), *steps[at:]]
    return shape, steps


def long_script_of(seed: int, runs: int = 1000) -> tuple[Shape, list[Step]]:
    """A year: as `script_of`, with many runs in the middle."""
    rng = Random(f"long script {seed}")
    shape, steps = script_of(seed)
    shape = replace(shape, topics=(("alpha", 1), ("beta", 1)))
    year = [Step("one of many", rng.randrange(10**6)) for _ in range(runs)]
    return shape, [*steps[:-1], *year, *script_of(seed + 1)[1]]


class Play:
    """The performance of a script.

    Attributes:
        history: All that happened.
        violations: The promises that were broken, by the number of the step.
    """

    def __init__(self, shape: Shape, *, stop_at_first: bool = True) -> None:
        self.shape = shape
        self.history: list[Event] = []
        self.violations: list[tuple[int, Violation]] = []
        self.ended: list[Ended] = []
        self._stops = stop_at_first
        self._checker = Checker()
        self._checked = 0
        self.clock = Clock()
        self.kafka = Kafka(self.history)
        self.kafka.now_ms = self.clock.ms
        self.bucket = Bucket(self.history, self.clock, self.kafka)
        self._names = itertools.count()
        self._troubles: set[str] = set()
        for name, partitions in shape.topics:
            self.kafka.create(name, partitions, is_source=True)
        if not shape.flush_on_stop and not shape.hours:
            self.history.append(Ruled(shape.flush_size))
        settings = self._settings("sink", topics="alpha")
        self._layout = wiring.layout(settings)
        self._sink_group = wiring.group(settings, "sink")
        self.kafka.sink_groups.add(self._sink_group)

    def run(self, steps: Sequence[Step]) -> "Play":
        """Perform *steps*; stop at the first broken promise, unless asked to go on."""
        with deterministic(Random("ids"), self.clock):
            for number, step in enumerate(steps):
                self.history.append(Note(f"--- {number}: {step} at {self.clock.now():%F %T}"))
                rng = Random(f"step {step.seed}")
                self.clock.sleep(60)
                getattr(self, "_" + step.kind.replace(" ", "_"))(rng)
                self.bucket.land(rng, 0.3)
                self._check(number)
                if self.violations and self._stops:
                    break
        return self

    def _check(self, number: int) -> None:
        while self._checked < len(self.history):
            found = self._checker.take(self.history[self._checked])
            self.violations += [(number, violation) for violation in found]
            self._checked += 1

    # who acts

    def _process(self, rng: Random, script: Script) -> Process:
        process = Process(f"run {next(self._names)}", rng, self.clock, script)
        process.on_request = lambda: self.bucket.land(process.rng, 0.02)
        return process

    def _settings(self, command: config.Command, **options: Any) -> Settings:
        given = {
            "bootstrap_servers": "nowhere:9092",
            "s3_bucket_name": "lake",
            "no_lock": True,
            **({} if self.shape.group is None else {"group": self.shape.group}),
            **options,
        }
        settings = config.load(command, options=given, files=(), environ={}).settings
        return settings.model_copy(update={"kafka_admin": {"sasl.password": CANARY}})

    def _world(self, process: Process) -> World:
        return World(
            SimConnection(self.kafka, process),
            SimStoreSettings(self.bucket, process),  # type: ignore[arg-type]
            Tasks(process),
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
            done = sum(
                offset in self._checker.stored(where) and offset < committed.get(where, 0)
                for where, offset in vars(process).get("read", ())
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
        )
        self.ended.append(found)
        self.history.append(found)
        return found

    def _may_leave(self) -> int:
        """Records of a partition that a good sink may leave to the next one."""
        files = max(1, self.shape.hours)
        return 0 if self.shape.flush_on_stop else files * (self.shape.flush_size - 1)

    def sink(self, process: Process, kind: str = "sink", **options: Any) -> Ended | None:
        """Run a sink."""
        settings = self._settings(
            "sink",
            **{
                "topics": ",".join(name for name, _ in self.shape.topics),
                "flush_size": str(self.shape.flush_size),
                **({} if self.shape.flush_on_stop else _STRICT),
                **(_BY_HOUR if self.shape.hours else {}),
                **options,
            },
        )
        told: list[Any] = []
        summary = self._survive(
            process, lambda: SinkRun(settings, told.append, Stop(), self._world(process))()
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
                store, self._layout, max_age_s=None, now=self.clock.now(), names=names
            ),
        )  # fmt: skip
        if summary is not None and summary["last_success"] is not None:
            until = datetime.fromisoformat(summary["last_success"]).timestamp() * 1000
            topics = {where: self.kafka.topics[where.topic].topic_id for where in self._wheres()}
            self.history.append(Vouched(int(until), topics, self._may_leave()))
        return self._end("status", process, summary, [])

    def restore(self, process: Process, rename: str = COPY, **options: Any) -> Ended | None:
        """Run a restore."""
        given = {**({} if self.shape.exactly_once else {"exactly_once": False}), **options}
        settings = self._settings("restore", rename=rename, **given)
        names = settings.topics or tuple(name for name, _ in self.shape.topics)
        targets = {
            where: TopicPartition(rename.replace("$0", name), where.partition)
            for name in names
            for where in self._wheres(name)
        }
        told: list[Any] = []
        summary = self._survive(
            process, lambda: RestoreRun(settings, told.append, Stop(), self._world(process))()
        )
        return self._end("restore", process, summary, told, targets)

    def verify(self, process: Process, *, deep: bool) -> Ended | None:
        """Run a verification."""
        settings = self._settings("verify")
        summary = Summary("verify", "restore verify")
        told: list[Any] = []

        def work() -> dict[str, Any]:
            try:
                told.extend(self._verification(settings, process, summary, deep=deep))
            except KbackupError as error:
                summary.fail(error)
            return summary.finish()

        found = self._survive(process, work)
        return self._end("verify --deep" if deep else "verify", process, found, told)

    def _verification(
        self, settings: Settings, process: Process, summary: Summary, *, deep: bool
    ) -> Iterator[Any]:
        place = SimStoreSettings(self.bucket, process)
        store, layout = place.open(), wiring.layout(settings)
        said = known.read(store, layout, self.clock, settings.topics, settings.topics_regex)
        job = VerifyJob(place, wiring.reading(settings))  # type: ignore[arg-type]

        def read(units: Sequence[VerifyUnit]) -> list[Any]:
            return Tasks(process)(
                lambda share, line: verify_task(job, share, line), units, told, Stop().event
            )

        def told(_: Any) -> None:
            pass

        yield from verify(
            store, layout, wiring.reading(settings), summary, now=self.clock.now(),
            notes=Notes(said, locks.holders(store, layout, "sink")),
            read=read if deep else None,
        )  # fmt: skip

    @staticmethod
    def _survive(process: Process, work: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        try:
            return work()
        except KilledError:
            assert process.is_dead
            return None

    def _fate(self, rng: Random) -> Script:
        """What befalls one run."""
        at = rng.choice((rng.randint(1, 14), rng.randint(1, 60)))
        match rng.choices([*FATES], [*FATES.values()])[0]:
            case "kill":
                return Script(dies_at=at)
            case "worker":
                return Script(worker_dies_at=at)
            case "faults":
                words = ("fail", "lost", "late", "late")
                ats = rng.sample(range(1, 50), rng.randint(1, 4))
                return Script(faults={at: rng.choice(words) for at in ats})
            case "event":
                kind = rng.choice(("expire", "expire", "produce", "compact", "forget_group"))
                seed = rng.randrange(10**6)
                return Script(events={at: lambda: getattr(self, f"_{kind}")(Random(seed))})
        return Script()

    # the steps

    def _wheres(self, *names: str) -> list[TopicPartition]:
        topics = [self.kafka.topics[name] for name in names or [n for n, _ in self.shape.topics]]
        return [TopicPartition(t.name, n) for t in topics for n in range(len(t.logs))]

    def _log(self, where: TopicPartition) -> Log:
        return self.kafka.topics[where.topic].logs[where.partition]

    def _timestamp(self, rng: Random) -> int:
        if self.shape.timestamp_type == 2:
            return self.clock.ms()
        now = self.clock.ms() - rng.randrange(1000) if rng.random() < 0.97 else 0
        return (
            max(0, now - rng.randrange(self.shape.hours) * 3_600_000) if self.shape.hours else now
        )

    def _rows(self, rng: Random, where: TopicPartition, count: int) -> list[Row]:
        """Records to produce, each with a name of its own."""
        log, topic_id = self._log(where), self.kafka.topics[where.topic].topic_id
        rows = []
        for at in range(count):
            name = f"{where.topic}/{where.partition}/{log.end + at}/{topic_id}".encode()
            more: tuple[tuple[str, bytes | None], ...] = (("h", None), ("h", b""))
            rows.append(
                Row(
                    0,
                    self._timestamp(rng),
                    self.shape.timestamp_type,
                    rng.choice((None, b"", b"k", name)),
                    rng.choice((None, b"", name * 2)),
                    (("name", name), *more[: rng.choice((0, 0, 1, 2))]),
                )
            )
        return rows

    def _produce(self, rng: Random) -> None:
        for where in self._wheres():
            if rng.random() < 0.8:
                self.kafka.produce(where, self._rows(rng, where, rng.randint(1, 12)))
            if rng.random() < 0.15:
                self.kafka.abort(where, self._rows(rng, where, rng.randint(1, 3)))

    def _sink(self, rng: Random) -> None:
        self.sink(self._process(rng, self._fate(rng)))

    def _sink_unsaid(self, rng: Random) -> None:
        """A sink that dies when it has stored its first objects, and not committed them."""
        self.sink(self._process(rng, Script(dies_before="kafka commit")))

    def _sink_slow(self, rng: Random) -> None:
        """A sink whose replacing PUTs arrive when others have been at work."""
        self.sink(self._process(rng, Script(is_slow=True)))

    def _follow(self, rng: Random) -> None:
        """A sink that follows while records come, and what else there is."""
        process = self._process(rng, replace(self._fate(rng), turns=rng.randint(2, 16)))
        others = {0.4: "produce", 0.04: "expire", 0.02: "compact", 0.01: "forget_group"}

        def meanwhile() -> None:
            for chance, kind in others.items():
                if rng.random() < chance:
                    getattr(self, f"_{kind}")(rng)

        process.on_wait = meanwhile
        self.follow(process)
        self._status(rng)

    def _status(self, rng: Random) -> None:
        self.status(self._process(rng, Script()))

    def _three_at_once(self, rng: Random) -> None:
        self._at_once(
            rng, rng.choice((("sink",) * 3, ("restore",) * 3, ("sink", "sink", "restore")))
        )

    def _restore(self, rng: Random) -> None:
        self.restore(self._process(rng, self._fate(rng)))

    def _verify(self, rng: Random) -> None:
        self.verify(self._process(rng, Script()), deep=rng.random() < 0.5)

    def _expire(self, rng: Random) -> None:
        where = rng.choice(self._wheres())
        log = self._log(where)
        self.kafka.expire(where, rng.randint(log.start, log.end))

    def _compact(self, rng: Random) -> None:
        where = rng.choice(self._wheres())
        self.kafka.compact(
            where, [row.offset for row in self._log(where).rows if rng.random() < 0.3]
        )

    def _recreate(self, rng: Random) -> None:
        name, partitions = rng.choice(self.shape.topics)
        self._troubles.add("recreated")
        self.kafka.delete(name)
        self.kafka.create(name, partitions, is_source=True)
        if rng.random() < 0.7:
            for where in self._wheres(name):
                self.kafka.produce(where, self._rows(rng, where, rng.randint(1, 30)))

    def _set_group(self, where: TopicPartition, offset: int) -> None:
        """Somebody moves the sink's group, and keeps no metadata with it."""
        self.kafka.groups.setdefault(self._sink_group, {})[where] = Position(offset)
        self.history.append(Moved(where))

    def _set_group_back(self, rng: Random) -> None:
        where = rng.choice(self._wheres())
        found = self.kafka.groups.get(self._sink_group, {}).get(where)
        if found is not None:
            names = [LAYOUT.parse(key) for key in self.bucket.data_keys()]
            starts = [
                name.start_offset
                for name in names
                if TopicPartition(name.topic, name.partition) == where
            ]
            anywhere = rng.randint(0, found.offset)
            self._set_group(where, rng.choice((anywhere, rng.choice(starts or [anywhere]))))

    def _set_group_ahead(self, rng: Random) -> None:
        where = rng.choice(self._wheres())
        found = self.kafka.groups.get(self._sink_group, {}).get(where)
        if found is not None:
            self._set_group(
                where, rng.randint(found.offset, max(found.offset, self._log(where).end))
            )

    def _forget_group(self, rng: Random) -> None:
        """Committed offsets of an idle group expire."""
        self.clock.sleep(8 * 86400)
        positions = self.kafka.groups.get(self._sink_group, {})
        for where in [where for where in positions if rng.random() < 0.8]:
            del positions[where]

    def _forget_restore(self, rng: Random) -> None:
        self.clock.sleep(8 * 86400)
        for group in [group for group in self.kafka.groups if group not in self.kafka.sink_groups]:
            del self.kafka.groups[group]

    def _targets(self) -> list[TopicPartition]:
        names = [name for name in self.kafka.topics if name.startswith("copy-")]
        return [where for name in names for where in self._wheres(name)]

    def _empty_target(self, rng: Random) -> None:
        for where in self._targets():
            self.kafka.expire(where, self._log(where).end)
            show(self.kafka, where)

    def _empty_target_in_part(self, rng: Random) -> None:
        for where in self._targets():
            log = self._log(where)
            self.kafka.expire(where, rng.randint(log.start, log.end))
            show(self.kafka, where, repeats=not self.shape.exactly_once)

    def _recreate_target(self, rng: Random) -> None:
        for name in sorted({where.topic for where in self._targets()}):
            partitions = len(self.kafka.topics[name].logs)
            config = self.kafka.topics[name].config
            self.kafka.delete(name)
            if rng.random() < 0.5:
                self.kafka.create(name, partitions, config)
            for partition in range(partitions):
                show(self.kafka, TopicPartition(name, partition))

    def _delete_object(self, rng: Random) -> None:
        keys = self.bucket.data_keys()
        if keys:
            self._troubles.add("deleted")
            self.bucket.delete(rng.choice(keys), "person")

    def _copy_object(self, rng: Random) -> None:
        """Somebody copies an object over the name of another, or next to it."""
        keys = self.bucket.data_keys()
        if len(keys) < 2:
            return
        source, target = rng.sample(keys, 2)
        self._troubles.add("copied")
        held = self.bucket.objects[source]
        metadata = held.head.metadata if rng.random() < 0.7 else {}
        if held.body != self.bucket.objects[target].body:
            self.bucket.put(target, held.body, metadata, by="person")

    def _two_at_once(self, rng: Random) -> None:
        self._at_once(
            rng, rng.choice((("sink", "sink"), ("restore", "restore"), ("sink", "restore")))
        )

    def _at_once(self, rng: Random, kinds: Sequence[str]) -> None:
        processes = []
        for _ in kinds:
            own = Random(rng.random())
            processes.append(self._process(own, self._fate(own)))
            fresh = {own.randint(3, 25): lambda own=own: self._produce(own)}
            script = processes[-1].script
            script.events = script.events or (fresh if own.random() < 0.5 else {0: lambda: None})
        together = Together(rng)
        works = {
            process: (lambda kind=kind, process=process: getattr(self, kind)(process))
            for kind, process in zip(kinds, processes, strict=True)
        }
        together.run(works)  # type: ignore[arg-type]

    def _add_partition(self, rng: Random) -> None:
        name, _ = rng.choice(self.shape.topics)
        if len(self.kafka.topics[name].logs) < 3:
            self.kafka.topics[name].logs.append(Log())

    def _merge(self, rng: Random) -> None:
        for name, _ in self.shape.topics:
            self.restore(
                self._process(rng, self._fate(rng)), MERGED, topics=name,
                if_exists="append", yes=True,
            )  # fmt: skip

    def _idle(self, rng: Random) -> None:
        self.clock.sleep(rng.choice((60, 3600, 86400)))

    def _one_of_many(self, rng: Random) -> None:
        """A run of a year: cron, nearly always with little to do."""
        self.clock.sleep(8 * 3600)
        if rng.random() < 0.2:
            where = TopicPartition("beta", 0)
            self.kafka.produce(where, self._rows(rng, where, rng.randint(1, 4)))
        fate = self._fate(rng) if rng.random() < 0.1 else Script()
        self.sink(self._process(rng, fate), topics="beta")

    def _final(self, rng: Random) -> None:
        """Without faults any more, all is as it should be, unless somebody broke it."""
        self.bucket.land(rng, 1.0)
        ended = [
            self.sink(self._process(rng, Script())),
            self.verify(self._process(rng, Script()), deep=False),
            self.verify(self._process(rng, Script()), deep=True),
            self.restore(self._process(rng, Script()), END),
            self.status(self._process(rng, Script())),
        ]
        if self._troubles or not self.bucket.data_keys():
            return
        for found in ended:
            if found is not None and found.code not in (0, 3):
                text = f"a clean {found.kind} ends with {found.code}: {found.text[-600:]}"
                self.violations.append((-1, Violation("P6", text, len(self.history))))


def play(seed: int, *, is_long: bool = False) -> Play:
    """Perform the script of a number."""
    shape, steps = long_script_of(seed) if is_long else script_of(seed)
    return Play(shape).run(steps)
