"""The performance of a script."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from tests.simulation.cluster import Log, show
from tests.simulation.determinism import deterministic
from tests.simulation.events import Moved, Note, Row
from tests.simulation.process import Script, Together
from tests.simulation.product import Position, TopicPartition
from tests.simulation.promises import Violation
from tests.simulation.script import Step
from tests.simulation.stage import Stage
from tests.simulation.truth import LAYOUT, partition_of

END = "copy-$0-end"
MERGED = "merged"

FATES = {"none": 45, "kill": 22, "worker": 8, "faults": 15, "event": 10}
"""What befalls a run."""


class Play(Stage):
    """The performance of a script: its steps are methods by their names."""

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

    def _log(self, where: TopicPartition) -> Log:
        return self.kafka.logs[where]

    def _timestamp(self, rng: Random) -> int:
        if self.shape.timestamp_type == 2:
            return self.clock.ms()
        now = self.clock.ms() - rng.randrange(1000) if rng.random() < 0.97 else 0
        return (
            max(0, now - rng.randrange(self.shape.hours) * 3_600_000) if self.shape.hours else now
        )

    def _rows(self, rng: Random, where: TopicPartition, count: int) -> list[Row]:
        """Records to produce, each with a name of its own."""
        log, topic_id = self._log(where), self.kafka.ids[where.topic]
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
                    self._value(rng, name),
                    (("name", name), *more[: rng.choice((0, 0, 1, 2))]),
                )
            )
        return rows

    def _value(self, rng: Random, name: bytes) -> bytes | None:
        if self.shape.has_letters and rng.random() < 0.2:
            return None
        return name if self.shape.values_only else rng.choice((None, b"", name * 2))

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

    def _standby(self, rng: Random) -> None:
        """A restore that follows while records come, and sinks store them."""
        process = self._process(rng, replace(self._fate(rng), turns=rng.randint(2, 6)))

        def meanwhile() -> None:
            if rng.random() < 0.4:
                self._produce(rng)
            if rng.random() < 0.5:
                self.sink(self._process(rng, self._fate(rng)))

        self.bucket.land(
            rng, 1.0
        )  # what lands on an object that others are past is verify's to name
        process.on_wait = meanwhile
        self.standby(process)

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
            starts = [
                LAYOUT.parse(key).start_offset
                for key in self.bucket.data_keys()
                if partition_of(key) == where
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
        names = [name for name in self.kafka.ids if name.startswith("copy-")]
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
            partitions = len(self._wheres(name))
            config = self.kafka.configs[name]
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
        if source.rpartition(".")[2] != target.rpartition(".")[2]:
            return  # of another format: whatever reads it says so
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
        together.run(works)

    def _add_partition(self, rng: Random) -> None:
        name, _ = rng.choice(self.shape.topics)
        if (there := len(self._wheres(name))) < 3:
            self.kafka.grow(name, there + 1)

    def _merge(self, rng: Random) -> None:
        for name, _ in self.shape.topics:
            self.restore(
                self._process(rng, self._fate(rng)), MERGED, topics=self.stored_name(name),
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
        stuck = [found for found in ended[:1] if found is not None and self._checker.excuses(found)]
        # status says that a partition stands still, and calls that run the last that says so
        for found in ended[:-1] if stuck or self.shape.is_apart else ended:
            if found is not None and found.code not in (0, 3) and not self._checker.excuses(found):
                text = f"a clean {found.kind} ends with {found.code}: {found.text[-600:]}"
                self.violations.append((-1, Violation("P6", text, len(self.history))))
