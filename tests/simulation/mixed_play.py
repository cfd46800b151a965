"""The second family of scripts: layouts, formats, groups and names over the same offsets.

The first family plays one sink's configuration under every fault.  This one plays few faults and
many configurations: a connector and several groups of kbackup write to one ``topics.dir`` in
turns, with keys and headers beside values or without; a run that follows lets others go on; people
move positions, objects and the ledger, and hosts' clocks are a day apart.  Every tenth mixture is
encrypted, but for what the connector writes.  The family has a checker of its own, which knows of
each record only where it was produced and which objects hold it:

``lost``      a run that ends with 0 leaves no readable record outside the bucket
``untrue``    a restore that ends with 0 delivers each record of the bucket, once and in order; one
              that ends with 3 delivers none twice and none out of order
``unsaid``    nothing ends with 0 over a backup from which something is gone, while the ledger that
              knows of it is there
``twice``     a sink stores no values under a second name, nor do two at once
``at odds``   where `verify --deep` ends with 0, so does a restore; and a sink that refuses a topic
              of the same name changes nothing for a restore
``strange``   no command ends as a defect of kbackup
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from os import getpid
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.simulation.bucket import SimStoreSettings, decode, is_side, stem
from tests.simulation.determinism import deterministic
from tests.simulation.events import NO_TYPE, Ended, Note, Row, Stored, named
from tests.simulation.mixed_script import DIRECTORIES, FORMATS, IN_JSON, SIDES, Mixture
from tests.simulation.mixed_stage import MixedStage
from tests.simulation.process import Process, Script, Together
from tests.simulation.product import (
    OBJECTS,
    TOPICS,
    Acceptance,
    ConfigurationError,
    IncompleteBackupError,
    KafkaSettings,
    LedgerRepair,
    LockedError,
    NewerVersionError,
    Plain,
    Position,
    RepairRun,
    Span,
    Stop,
    Summary,
    TopicPartition,
    batches_as_stored,
    encoded,
    layout_of,
    original,
    parsed,
    reading_of,
    replaced,
)
from tests.simulation.promises import CODES
from tests.simulation.script import HOSTS, Step
from tests.simulation.truth import partition_of
from tests.support.telling import telling


class MixedPlay(MixedStage):
    """The performance of a script of this family.

    Attributes:
        restored: Exit codes of the restores.
    """

    def __init__(self, mixture: Mixture) -> None:
        if KafkaSettings("nowhere").without_batches():
            kinds = tuple(kind for kind in mixture.formats if kind != "log")
            mixture = replace(mixture, formats=kinds or ("full",))
        super().__init__(mixture)
        self.restored: list[int] = []
        self._copies = 0

    def run(self, steps: Sequence[Step]) -> "MixedPlay":
        """Perform *steps*; stop at the first that shows something wrong."""
        settling = replaced("settle", 0.0)  # nobody writes while a run waits
        raw = batches_as_stored() if self.mixture.is_raw else nullcontext()
        with deterministic(Random("ids"), self.clock), settling, raw:
            for number, step in enumerate(steps):
                self.history.append(Note(f"--- {number}: {step}"))
                self.clock.sleep(60)
                getattr(self, "_" + step.kind.replace(" ", "_"))(Random(f"step {step.seed}"))
                self.bucket.land(Random(step.seed), 0.5)
                self._remember()
                if self.broken:
                    break
        return self

    # runs

    def _host(self, rng: Random, script: Script | None = None) -> Process:
        process = self._process(rng, script or Script())
        process.apart = rng.choice(HOSTS)
        process.on_request = lambda: None  # what is late lands between runs
        return process

    def _options(self, rng: Random, kind: str = "", directory: str = "") -> dict[str, Any]:
        """The options of a sink: of a format and a directory, or of any."""
        options = {
            **rng.choice(({"topics": "alpha"}, {"topics_regex": "al.*"})),
            "group": rng.choice(self.mixture.groups),
            "flush_size": str(rng.choice((3, 5, 8, 50))),
            **self._locking,
        }
        drawn = rng.choice(self.mixture.formats), rng.choice(self.mixture.directories)
        kind, directory = kind or drawn[0], directory or drawn[1]
        if kind == "log":  # batches of several hours are not taken apart
            directory = "partition"
        return {**options, **FORMATS[kind], **DIRECTORIES[directory], **self._sides(rng, kind)}

    def _sides(self, rng: Random, kind: str) -> dict[str, Any]:
        """Which of keys and headers are stored beside values; a run need not do as the last one."""
        if not self.mixture.has_sides or kind in ("full", "log"):
            return {}
        stored = [f"store_kafka_{name}" for name in SIDES if rng.random() < 0.5]
        return dict.fromkeys(stored, True) | (IN_JSON if kind == "gzip" else {})

    @property
    def _locking(self) -> dict[str, Any]:
        """The options of locks; each process that plays has its own lock files."""
        if not self.mixture.has_locks:
            return {"no_lock": True}
        return {
            "no_lock": False,
            "lock_dir": str(Path(tempfile.gettempdir()) / f"locks-{getpid()}"),
        }

    def _survive(self, process: Process, work: Callable[[], Plain]) -> dict[str, Any] | None:
        try:
            return super()._survive(process, work)
        except (LockedError, NewerVersionError) as error:
            self.history.append(Note(f"{process.name} ended with {error.exit_code}: {error.what}"))
            return None

    def _ends_well(self, ended: Ended | None, what: str) -> bool:
        """Whether a command ended by itself, and as one may."""
        if ended is None:
            return False
        if ended.code not in CODES - {1, 9} or "defect of kbackup" in ended.text:
            self._break(f"strange: {what} ended with {ended.code}: {ended.text[-400:]}")
        return True

    def _sink(self, rng: Random, script: Script | None = None) -> Ended | None:
        options = self._options(rng)
        self.history.append(Note(f"sink {options}"))
        before = {
            where: {row.offset: named(row.value) for row in self._log(where).rows
                    if row.offset < self._log(where).stable_end}
            for where in self._wheres()
        }  # fmt: skip
        values, since = self._values(), len(self.history)
        ended = self.sink(self._host(rng, script), **options)
        self._check_once(values, since)
        self._check_open(ended)
        if self._ends_well(ended, "a sink") and ended is not None and ended.code == 0:
            held = self._held()
            for where, rows in before.items():
                known = held.get(where, {})
                lost = [
                    at for at, name in rows.items()
                    if known.get(at) != name and name not in self.excused
                ]  # fmt: skip
                if lost:
                    self._break(f"lost: a sink ended with 0 without {where} {lost[:9]}")
        return ended

    def _check_open(self, ended: Ended | None) -> None:
        """A sink names each partition that an open transaction holds up."""
        if ended is not None and ended.code in (0, 3):
            for where in self._wheres():
                at = max(self._log(where).stable_end, self._log(where).start)
                if (
                    at < self._log(where).end
                    and f"{where} is held up at offset {at}" not in ended.text
                ):
                    self._break(
                        f"unsaid: a sink ended with {ended.code}, {where} is held up at {at}"
                    )

    def _values(self) -> dict[bytes, str]:
        """The records that are in objects of values, each with an object that has it."""
        return {
            named(row.value): key
            for key in self.bucket.data_keys()
            if self.bucket.objects[key].head.metadata and "/copied/" not in key
            for row in decode(key, self.bucket.objects[key].body) or ()
            if row.timestamp_type == NO_TYPE
        }

    def _check_once(self, before: dict[bytes, str], since: int) -> None:
        """A sink stores no values under a second name.

        Of several directories, and of a connector's objects, a start does not know all: `verify`
        names what is there twice.
        """
        if self.mixture.is_connected or len(self.mixture.directories) > 1:
            return
        for event in self.history[since:]:
            rows = event.rows or () if isinstance(event, Stored) and event.by == "kbackup" else ()
            key = event.key if isinstance(event, Stored) else ""
            for row in rows:
                if row.timestamp_type == NO_TYPE:
                    other = before.setdefault(named(row.value), key)
                    if other != key:
                        self._break(f"twice: {key} holds {row.offset}, which is in {other}")
                        return

    def _died(self, rng: Random) -> None:
        kind = rng.choice(("kafka commit", "PUT", "any"))
        at = rng.randint(1, 40) if kind == "any" else 0
        self._sink(rng, Script(dies_at=at, dies_before="" if kind == "any" else kind))

    def _follow(self, rng: Random) -> None:
        """A sink that follows while records come, and other runs take their turns."""
        process, options = self._host(rng, Script(turns=rng.randint(2, 5))), self._options(rng)
        process.on_wait = self._meanwhile(process, rng, with_sinks=self.mixture.has_locks)
        values, since = self._values(), len(self.history)
        self.history.append(Note(f"follow {options}"))
        ended = self.sink(process, "follow", follow=True, rotate_idle_ms="2000", **options)
        self._check_once(values, since)
        self._ends_well(ended, "a sink that follows")

    def _meanwhile(self, process: Process, rng: Random, *, with_sinks: bool) -> Callable[[], None]:
        """What others do while a run waits."""
        sinks = {"sink": 0.3, "died": 0.1} if with_sinks else {}
        others = {"produce": 0.4, "abort": 0.1, "open": 0.05, "close": 0.1, "restore": 0.05}
        others |= sinks

        def act() -> None:
            for kind, chance in others.items():
                if rng.random() < chance:
                    getattr(self, f"_{kind}")(Random(rng.random()))
            self.clock.apart = process.apart

        return act

    def _standby(self, rng: Random) -> None:
        """A restore that follows while sinks store, and one that goes on after it."""
        self._copies += 1
        rename = f"copy{self._copies}-$0"
        process = self._host(rng, Script(turns=rng.randint(2, 3)))
        process.on_wait = self._meanwhile(process, rng, with_sinks=True)
        ended = self.standby(process, rename, **self._reading(rng))
        if self._ends_well(ended, "a restore that follows") and ended is not None:
            if ended.code in (0, 3):
                self._compare(rename, 3)
            self._go_on(rng, rename)

    def _only(self, rng: Random) -> None:
        """A restore of the objects of one format, and one of all that goes on after it."""
        self._copies += 1
        rename = f"copy{self._copies}-$0"
        kind = rng.choice(self.mixture.formats)
        name = FORMATS[kind].get("format_class", "parquet")
        ended = self.restore(self._host(rng), rename, only_format=name, **self._reading(rng))
        self.history.append(Note(f"only {name} ended with {ended and ended.code}"))
        if not self._ends_well(ended, "a restore") or ended is None:
            return
        if ended.code in (0, 3):
            self._compare(rename, ended.code)
        if rng.random() < 0.7:
            self._go_on(rng, rename)

    def _two_at_once(self, rng: Random) -> None:
        self._produce(rng)
        works = {}
        for _ in range(2):
            own = Random(rng.random())
            process = self._host(own)
            options = self._options(own)
            if not self.mixture.has_locks:
                options["group"] = self.mixture.groups[0]  # as a lock would see to
            works[process] = lambda p=process, o=options: self.sink(p, **o)
        if self.mixture.has_locks:
            values, since = self._values(), len(self.history)
            Together(rng).run(works)  # type: ignore[arg-type]
            self._check_once(values, since)

    def _restore(self, rng: Random) -> Ended | None:
        """Restore into a new topic, and compare."""
        self._copies += 1
        rename = f"copy{self._copies}-$0"
        process = self._host(rng)
        ended = self._restored(process, rename)
        if not self._ends_well(ended, "a restore") or ended is None:
            return None
        self.restored.append(ended.code)
        if ended.code in (0, 3):
            self._compare(rename, ended.code)
        return ended

    def _restored(self, process: Process, rename: str) -> Ended | None:
        return self.restore(process, rename, **self._reading(process.rng))

    def _reading(self, rng: Random) -> dict[str, Any]:
        """The options of restores."""
        kinds = self.mixture.formats
        if self.mixture.has_schemas:  # what has columns is not read as bytes
            kinds = tuple(kind for kind in kinds if kind != "bytes")
        form = FORMATS[rng.choice(kinds)]
        return {"yes_split_on_newline": True, **self._locking, **form}

    def _compare(self, rename: str, code: int) -> None:
        held = self._held()
        for where in self._wheres():
            name = rename.replace("$0", where.topic)
            shown = self.kafka.rows(TopicPartition(name, where.partition))
            came = [named(row.value) for row in shown]
            order = [int(name.split(b"/")[2]) for name in came]
            expected = held.get(where, {})
            if self.is_spread:  # values of several directories have no order
                came, order = sorted(came, key=lambda name: int(name.split(b"/")[2])), sorted(order)
            if code == 0 and came != [expected[at] for at in sorted(expected)]:
                missing = [at for at in sorted(expected) if expected[at] not in came]
                twice = sorted({at for at in order if order.count(at) > 1})
                self._break(
                    f"untrue: {where} restored with 0: {len(came)} of {len(expected)}, missing "
                    f"{missing[:9]}, twice {twice[:9]}, order {order[:40]}"
                )
            elif code == 0:
                self._check_content(where, shown)
            elif order != sorted(set(order)):
                self._break(f"untrue: {where} restored with {code} as {order[:40]}")
            known = self._stored.get(where, {})
            unsaid = [at for at in known if at not in expected]
            if code == 0 and unsaid:
                self._break(f"unsaid: {where} restored with 0, {unsaid[:9]} are gone")

    def _again(self, rng: Random) -> None:
        """Restore into the topic of the restore before."""
        if self._copies:
            self._go_on(rng, f"copy{self._copies}-$0")

    def _go_on(self, rng: Random, rename: str) -> None:
        ended = self._restored(self._host(rng), rename)
        if self._ends_well(ended, "a restore") and ended is not None and ended.code == 0:
            self._compare(rename, ended.code)

    def _verify(self, rng: Random) -> Ended | None:
        ended = self.verify(self._host(rng), deep=True)
        if not self._ends_well(ended, "verify") or ended is None:
            return None
        if ended.code == 0:
            after = self._restore(Random(0))
            if after is not None and after.code not in (0, 3):
                text = f"at odds: verify --deep ends with 0, a restore with {after.code}"
                self._break(f"{text}: {after.text[-400:]}")
        return ended

    def _final(self, rng: Random) -> None:
        """A good run of the first group, and all that looks."""
        for where in self._wheres():
            self._finish(where, rng)
        self._sink(rng)
        self._verify(rng)
        self._restore(rng)

    # what takes several runs to show

    def _go_over(self, rng: Random) -> None:
        """A sink of full records goes over what a connector has written, and may die."""
        for where in self._wheres():
            offset = rng.choice((0, rng.randint(0, self._log(where).end)))
            self.kafka.groups.setdefault("a", {})[where] = Position(offset)
        at = rng.choice((0, rng.randint(10, 60)))
        process = self._host(rng, Script(dies_at=at))
        self.sink(process, topics="alpha", group="a", flush_size="5", **self._locking)
        self._restore(rng)

    def _take_over(self, rng: Random) -> None:
        """A sink of full records goes on where the connector's group stands, and may die."""
        for where, offset in self._connected.items():
            self.kafka.groups.setdefault("a", {})[where] = Position(offset)
        for at in (rng.choice((0, 0, rng.randint(10, 60))), 0):
            process = self._host(rng, Script(dies_at=at))
            self.sink(process, topics="alpha", group="a", flush_size="5", **self._locking)
        self._restore(rng)

    def _hang(self, rng: Random) -> None:
        """A transaction is open for longer than one may be."""
        self._open(rng)
        self._produce(rng)
        options, apart = self._options(rng), rng.choice(HOSTS)
        codes = []
        for _ in range(2):
            process = self._host(rng)
            process.apart = apart
            ended = self.sink(process, **options)
            self._check_open(ended)
            codes.append(None if ended is None else ended.code)
            self.clock.sleep(3600)
        if codes[0] in (0, 3) and codes[1] == 0:
            self._break("unsaid: a transaction is open for an hour, and a sink ends with 0")

    def _refused(self, rng: Random) -> None:
        """A topic of the same name is refused, and the backup stays restorable as it is."""
        if rng.random() < 0.7:
            self._lose_ledger(rng)
        before = self._restore(rng)
        self._recreate(rng)
        keys = self.bucket.data_keys()
        ended = self._sink(rng)
        after = self._restore(rng)
        if ended is None or before is None or after is None or keys != self.bucket.data_keys():
            return
        if ended.code not in (0, 3) and before.code != after.code:
            text = f"at odds: a sink was refused, and a restore ends with {after.code}"
            self._break(f"{text} in place of {before.code}: {after.text[-400:]}")

    def _mend(self, rng: Random) -> None:
        """Objects are lost, accepted, written again from the topic, lost again."""
        key = self._lose_one(rng)
        if key is None:
            return
        if rng.random() < 0.7:
            self._accept(rng)
            self._remember()
        if rng.random() < 0.3:
            self._recreate(rng)
        if rng.random() < 0.8:
            self._repair(rng, *key)
            self._remember()
        if rng.random() < 0.5 and key[0] in self.bucket.objects:
            self._take_away(key[0])
            self.bucket.delete(key[0], "person")
        self._restore(rng)

    def _lose_one(self, rng: Random) -> tuple[str, tuple[Row, ...]] | None:
        """Delete an object; return its key, and what was in it."""
        there = [key for key in self.bucket.data_keys() if "/copied/" not in key]
        keys = [key for key in there if not is_side(key)]
        if not keys:
            return None
        key = rng.choice(keys)
        rows = decode(key, self.bucket.objects[key].body) or ()
        beside = [side for side in there if is_side(side) and stem(side) == stem(key)]
        gone = rng.choice((key, *beside))
        self._take_away(gone)
        self.bucket.delete(gone, "person")
        return key, rows

    def _accept(self, rng: Random) -> None:
        """What is missing is accepted; nothing has to name it any more."""
        process = self._host(rng)
        settings = self._settings("verify")
        store, layout = SimStoreSettings(self.bucket, process).open(), layout_of(settings)
        summary = Summary("verify", "restore verify")
        mending = LedgerRepair(store, layout, reading_of(settings), summary, self.clock)
        everything = Acceptance([(where, Span(0, 10**9)) for where in self._wheres()])

        def accept() -> Plain:
            # nothing shows that the topic, or that any, was ever there
            with suppress(ConfigurationError, IncompleteBackupError):
                list(mending.accept(everything))
            return summary.finish()

        self._survive(process, accept)
        self._beside = {side: main for side, main in self._beside.items()
                        if side in self.bucket.objects}  # fmt: skip
        held = self._held()
        for where, rows in self._stored.items():
            for at in rows.keys() - held.get(where, {}).keys():
                del rows[at]

    def _repair(self, rng: Random, key: str, rows: tuple[Row, ...]) -> None:
        """An object is written again, by a host of any time."""
        where = partition_of(key)
        first = rows[0].offset
        kind = next((name for name, ending in _ENDINGS.items() if key.endswith(ending)), "full")
        directory = "partition" if "/partition=" in key else "hour"
        options = self._options(rng, kind, directory)
        settings = self._settings("sink", repair=f"alpha:{where.partition}:{first}", **options)
        process, told = self._host(rng), list[Any]()
        summary = self._survive(
            process,
            lambda: RepairRun(settings, telling(told), Stop(), self._world(process))(),
        )
        ended = self._end("repair", process, summary, told)
        self.history.append(Note(f"repair of {key} ended with {ended and ended.code}"))
        found = self.bucket.objects.get(key)
        there = () if found is None else decode(key, found.body) or ()
        if {_topic_id(row) for row in there} - {_topic_id(row) for row in rows}:
            self._break(f"untrue: a repair stored {there[:2]} in place of {rows[:2]}")

    def _later(self, rng: Random) -> None:
        """A file of the ledger is of a later version: every command says so and changes nothing."""
        before = {}
        for words in ("topics/", "objects/"):
            keys = [key for key in self.bucket.keys("_kbackup/ledger/") if f"/{words}" in key]
            if not keys:
                return
            before[keys[0]] = self.bucket.objects[keys[0]]
        for key, held in before.items():
            form = TOPICS if "/topics/" in key else OBJECTS
            rows, metadata = parsed(key, held.body, form)
            more = {name: text.decode() for name, text in metadata.items() if name != _VERSION}
            with replaced("ledger version", original("ledger version") + 1):
                self.bucket.put(key, encoded(rows, form.schema, more), {}, by="person")
        there = self._written()
        for name, run in self._commands(rng):
            ended = run()
            if ended is not None and ended.code != NewerVersionError.exit_code:
                self._break(f"unsaid: {name} ended with {ended.code} over a later version's ledger")
        if self._written() != there:
            self._break("unsaid: something is written beside a later version's ledger")
        for key, held in before.items():
            self.bucket.put(key, held.body, held.head.metadata, by="person")

    def _written(self) -> dict[str, bytes]:
        """What commands write for good, but for what they say of themselves."""
        own = ("_kbackup/locks/", "_kbackup/runs/")
        return {at: held.body for at, held in self.bucket.objects.items() if not at.startswith(own)}

    def _commands(self, rng: Random) -> Iterator[tuple[str, Callable[[], Ended | None]]]:
        yield "a sink", lambda: self.sink(self._host(rng), **self._options(rng))
        yield "verify", lambda: self.verify(self._host(rng), deep=False)
        yield "a restore", lambda: self._restored(self._host(rng), "later-$0")


def _topic_id(row: Row) -> bytes:
    return named(row.value).split(b"/")[-1]


_VERSION: Final = b"kbackup.ledger"
_ENDINGS: Final = {
    "gzip": ".json.gz", "json": ".json", "bytes": ".bin", "log": ".log.zst", "avro": ".avro",
    "parquet": ".snappy.parquet",
}  # fmt: skip
