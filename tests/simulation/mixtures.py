"""The second family of scripts: layouts, formats, groups and names over the same offsets.

The first family plays one sink's configuration under every fault.  This one plays few faults and
many configurations: a connector and several groups of kbackup write to one ``topics.dir`` in
turns, people move positions, objects and the ledger, and hosts' clocks are a day apart.  It has a
checker of its own, which knows of each record only where it was produced and which objects hold it:

``lost``      a run that ends with 0 leaves no readable record outside the bucket
``untrue``    a restore that ends with 0 delivers each record of the bucket, once and in order; one
              that ends with 3 delivers none twice and none out of order
``unsaid``    nothing ends with 0 over a backup from which something is gone, while the ledger that
              knows of it is there
``at odds``   where `verify --deep` ends with 0, so does a restore
``strange``   no command ends as a defect of kbackup
"""

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any, Final

from kbackup.errors import LockedError
from kbackup.kafka import Position
from kbackup.records import TopicPartition
from tests.simulation.bucket import decode
from tests.simulation.determinism import deterministic
from tests.simulation.events import Ended, Entered, Note, Row
from tests.simulation.process import Process, Script, Together
from tests.simulation.promises import CODES
from tests.simulation.script import Shape, Step
from tests.simulation.stage import Stage
from tests.simulation.truth import partition_of

FORMATS: Final[dict[str, dict[str, Any]]] = {
    "full": {},
    "json": {"format_class": "json"},
    "gzip": {"format_class": "json", "s3_compression_type": "gzip"},
    "bytes": {"format_class": "bytes"},
}
DIRECTORIES: Final[dict[str, dict[str, Any]]] = {
    "partition": {},
    "hour": {
        "partitioner_class": "hourly", "timestamp_extractor": "record", "locale": "en",
        "timezone": "UTC",
    },
}  # fmt: skip
HOSTS: Final = (timedelta(), timedelta(days=1), timedelta(days=-1))
"""By how much their clocks are wrong."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """What stays the same throughout a script of this family.

    Attributes:
        partitions: Of the topic.
        formats: Those that sinks write, by names of `FORMATS`.
        directories: Where they put objects, by names of `DIRECTORIES`.
        groups: Those of sinks.
        hours: Over how many hours records' times are spread.
        is_connected: Whether a connector writes to the same directory.
        has_locks: Whether runs take locks.
        is_meddled: Whether people change objects and the ledger.
    """

    partitions: int
    formats: tuple[str, ...]
    directories: tuple[str, ...]
    groups: tuple[str, ...]
    hours: int
    is_connected: bool
    has_locks: bool
    is_meddled: bool


STEPS: Final = {
    "produce": 24, "abort": 3, "open": 2, "close": 3, "sink": 30, "died": 8, "restore": 6,
    "again": 3, "verify": 3, "two at once": 3, "set back": 4, "set ahead": 3, "put back": 3,
    "forget": 3,
}  # fmt: skip
MEDDLING: Final = {
    "lose ledger": 3, "lose metadata": 3, "move copy": 2, "delete": 2, "recreate": 1, "expire": 1,
    "accept": 1,
}  # fmt: skip


def mixture_of(seed: int) -> tuple[Mixture, list[Step]]:
    """The script that a number stands for."""
    rng = Random(f"mixture {seed}")
    mixture = Mixture(
        rng.choice((1, 1, 2)),
        tuple(rng.sample([*FORMATS], rng.choice((1, 2, 2, 3)))),
        ("partition",) if rng.random() < 0.7 else tuple(rng.sample([*DIRECTORIES], 2)),
        ("a", "b")[: rng.choice((1, 2, 2))],
        rng.choice((1, 1, 3)),
        rng.random() < 0.3,
        rng.random() < 0.3,
        rng.random() < 0.5,
    )
    weights = STEPS | (MEDDLING if mixture.is_meddled else {})
    kinds = rng.choices([*weights], [*weights.values()], k=rng.randint(3, 9))
    first = ["produce", "connect" if mixture.is_connected else "sink"]
    steps = [Step(kind, rng.randrange(10**6)) for kind in [*first, *kinds, "final"]]
    for _ in range(2 if mixture.is_connected else 0):
        at = rng.randint(2, len(steps) - 1)
        steps.insert(at, Step("connect", rng.randrange(10**6)))
    return mixture, steps


class MixedPlay(Stage):
    """The performance of a script of this family.

    Attributes:
        broken: What was found wrong.
        restored: Exit codes of the restores.
    """

    def __init__(self, mixture: Mixture) -> None:
        super().__init__(Shape((("alpha", mixture.partitions),), 5))
        self.mixture = mixture
        self.broken: list[str] = []
        self.restored: list[int] = []
        self._stored: dict[TopicPartition, dict[int, bytes]] = {}
        self._entered: set[str] = set()
        self._excused: set[bytes] = set()
        self._connected: dict[TopicPartition, int] = {}
        self._past: list[tuple[str, TopicPartition, Position]] = []
        self._copies = 0
        self.kafka.sink_groups.update(mixture.groups)

    def run(self, steps: Sequence[Step]) -> "MixedPlay":
        """Perform *steps*; stop at the first that shows something wrong."""
        with deterministic(Random("ids"), self.clock):
            for number, step in enumerate(steps):
                self.history.append(Note(f"--- {number}: {step}"))
                self.clock.sleep(60)
                getattr(self, "_" + step.kind.replace(" ", "_"))(Random(f"step {step.seed}"))
                self.bucket.land(Random(step.seed), 0.5)
                self._remember()
                if self.broken:
                    break
        return self

    # what is true

    def _check(self, number: int) -> None:
        """The first family's promises are not asked for here."""

    def _break(self, what: str) -> None:
        self.broken.append(what)

    def _held(self) -> dict[TopicPartition, dict[int, bytes]]:
        """The records of all objects that are in the bucket, by their offsets."""
        found: dict[TopicPartition, dict[int, bytes]] = {}
        for key in self.bucket.data_keys():
            rows = decode(key, self.bucket.objects[key].body)
            for row in rows or ():
                found.setdefault(partition_of(key), {})[row.offset] = row.value or b""
        return found

    def _remember(self) -> None:
        """Keep what the ledger knows, and where the groups were."""
        for event in self.history[self._checked :]:
            if isinstance(event, Entered):
                self._entered.add(event.key)
        self._checked = len(self.history)
        for key in self._entered & self.bucket.objects.keys():
            for row in decode(key, self.bucket.objects[key].body) or ():
                self._stored.setdefault(partition_of(key), {})[row.offset] = row.value or b""
        for group in self.mixture.groups:
            for where, position in self.kafka.groups.get(group, {}).items():
                if (group, where, position) not in self._past:
                    self._past.append((group, where, position))

    # runs

    def _host(self, rng: Random, script: Script | None = None) -> Process:
        process = self._process(rng, script or Script())
        process.apart = rng.choice(HOSTS)
        process.on_request = lambda: None  # what is late lands between runs
        return process

    def _options(self, rng: Random) -> dict[str, Any]:
        return {
            "topics": "alpha",
            "group": rng.choice(self.mixture.groups),
            "flush_size": str(rng.choice((3, 5, 8, 50))),
            "no_lock": not self.mixture.has_locks,
            **FORMATS[rng.choice(self.mixture.formats)],
            **DIRECTORIES[rng.choice(self.mixture.directories)],
        }

    def _survive(
        self, process: Process, work: Callable[[], dict[str, Any]]
    ) -> dict[str, Any] | None:
        try:
            return super()._survive(process, work)
        except LockedError as error:
            self.history.append(Note(f"{process.name} ended with 8: {error.what}"))
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
            where: {row.offset: row.value or b"" for row in self._log(where).rows
                    if row.offset < self._log(where).stable_end}
            for where in self._wheres()
        }  # fmt: skip
        ended = self.sink(self._host(rng, script), **options)
        if self._ends_well(ended, "a sink") and ended is not None and ended.code == 0:
            held = self._held()
            for where, rows in before.items():
                known = held.get(where, {})
                lost = [
                    at for at, name in rows.items()
                    if known.get(at) != name and name not in self._excused
                ]  # fmt: skip
                if lost:
                    self._break(f"lost: a sink ended with 0 without {where} {lost[:9]}")
        return ended

    def _died(self, rng: Random) -> None:
        kind = rng.choice(("kafka commit", "PUT", "any"))
        at = rng.randint(1, 40) if kind == "any" else 0
        self._sink(rng, Script(dies_at=at, dies_before="" if kind == "any" else kind))

    def _two_at_once(self, rng: Random) -> None:
        works = {}
        for _ in range(2):
            own = Random(rng.random())
            process = self._host(own)
            options = self._options(own)
            if not self.mixture.has_locks:
                options["group"] = self.mixture.groups[0]  # as a lock would see to
            works[process] = lambda p=process, o=options: self.sink(p, **o)
        if self.mixture.has_locks:
            Together(rng).run(works)  # type: ignore[arg-type]

    def _restore(self, rng: Random, *, is_final: bool = False) -> Ended | None:
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
        return self.restore(
            process, rename, no_lock=not self.mixture.has_locks, yes_split_on_newline=True
        )

    def _compare(self, rename: str, code: int) -> None:
        held = self._held()
        for where in self._wheres():
            name = rename.replace("$0", where.topic)
            log = self.kafka.log(TopicPartition(name, where.partition))
            came = [] if log is None else [row.value or b"" for row in log.rows]
            order = [int(name.split(b"/")[2]) for name in came]
            expected = held.get(where, {})
            if "hour" in self.mixture.directories:  # values of several directories have no order
                came, order = sorted(came, key=lambda name: int(name.split(b"/")[2])), sorted(order)
            if code == 0 and came != [expected[at] for at in sorted(expected)]:
                missing = [at for at in sorted(expected) if expected[at] not in came]
                twice = sorted({at for at in order if order.count(at) > 1})
                self._break(
                    f"untrue: {where} restored with 0: {len(came)} of {len(expected)}, missing "
                    f"{missing[:9]}, twice {twice[:9]}, order {order[:40]}"
                )
            elif order != sorted(set(order)):
                self._break(f"untrue: {where} restored with {code} as {order[:40]}")
            known = self._stored.get(where, {})
            unsaid = [at for at in known if at not in expected]
            if code == 0 and unsaid:
                self._break(f"unsaid: {where} restored with 0, {unsaid[:9]} are gone")

    def _again(self, rng: Random) -> None:
        """Restore into the topic of the restore before."""
        if self._copies:
            rename = f"copy{self._copies}-$0"
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

    # what happens to the topic

    def _log(self, where: TopicPartition) -> Any:
        return self.kafka.topics[where.topic].logs[where.partition]

    def _rows(self, rng: Random, where: TopicPartition, count: int) -> list[Row]:
        end, topic_id = self._log(where).end, self.kafka.topics[where.topic].topic_id
        now = int(self.clock.right.timestamp() * 1000)
        return [
            Row(
                0, now - rng.randrange(self.mixture.hours) * 3_600_000, 1, None,
                b'"%s/%d/%d/%s"' % (
                    where.topic.encode(), where.partition, end + at, topic_id.encode()
                ),
                (),
            )
            for at in range(count)
        ]  # fmt: skip

    def _produce(self, rng: Random) -> None:
        for where in self._wheres():
            self.kafka.produce(where, self._rows(rng, where, rng.randint(1, 20)))

    def _abort(self, rng: Random) -> None:
        where = rng.choice(self._wheres())
        self.kafka.abort(where, self._rows(rng, where, rng.randint(1, 3)))

    def _open(self, rng: Random) -> None:
        where = rng.choice(self._wheres())
        self._log(where).append(self._rows(rng, where, rng.randint(1, 3)), "left open")

    def _close(self, rng: Random) -> None:
        self._finish(rng.choice(self._wheres()), rng)

    def _finish(self, where: TopicPartition, rng: Random) -> None:
        self._log(where).finish("left open", commits=rng.random() < 0.5)

    def _connect(self, rng: Random) -> None:
        """A connector writes what it has not written: values, without metadata."""
        size = rng.choice((4, 10, 17))
        ending = rng.choice((".json", ".bin", ".json.gz"))
        for where in self._wheres():
            begin = self._connected.get(where, 0)
            rows = self._log(where).between(begin, self._log(where).stable_end)
            for at in range(0, len(rows) - size + 1, size):
                self._put_values(where, rows[at : at + size], ending)
                self._connected[where] = rows[at + size - 1].offset + 1

    def _put_values(self, where: TopicPartition, rows: Sequence[Row], ending: str) -> None:
        name = f"{where.topic}+{where.partition}+{rows[0].offset:010d}{ending}"
        body = b"".join((row.value or b"") + b"\n" for row in rows)
        if ending.endswith(".gz"):
            body = gzip.compress(body, mtime=0)
        key = f"topics/{where.topic}/partition={where.partition}/{name}"
        self._take_away(key)  # as the connector replaces what it finds
        self.bucket.put(key, body, {}, by="person")

    def _take_away(self, key: str) -> None:
        """Ask for the records of an object no more: it is `verify` that names them."""
        if key in self.bucket.objects:
            rows = decode(key, self.bucket.objects[key].body) or ()
            self._excused |= {row.value or b"" for row in rows}

    # what people do

    def _moved(self, rng: Random) -> tuple[str, TopicPartition, Position] | None:
        group, where = rng.choice(self.mixture.groups), rng.choice(self._wheres())
        found = self.kafka.groups.get(group, {}).get(where)
        return None if found is None else (group, where, found)

    def _set(self, rng: Random, low: int, high: int, at: tuple[Any, Any, Position]) -> None:
        group, where, found = at
        offset = rng.randint(min(low, high), max(low, high))
        keeps = rng.random() < 0.4
        position = replace(found, offset=offset) if keeps else Position(offset)
        self.history.append(Note(f"{group} is set to {offset}, metadata kept: {keeps}"))
        self.kafka.groups[group][where] = position

    def _set_back(self, rng: Random) -> None:
        if found := self._moved(rng):
            self._set(rng, 0, found[2].offset, found)

    def _set_ahead(self, rng: Random) -> None:
        if found := self._moved(rng):
            self._set(rng, found[2].offset, self._log(found[1]).end, found)

    def _put_back(self, rng: Random) -> None:
        """An earlier position, as it was, metadata and all."""
        if self._past:
            group, where, position = rng.choice(self._past)
            self.kafka.groups.setdefault(group, {})[where] = position
            self.history.append(Note(f"{group} is put back to {position.offset}"))

    def _forget(self, rng: Random) -> None:
        self.clock.sleep(8 * 86400)
        self.kafka.groups.pop(rng.choice(self.mixture.groups), None)

    def _lose_ledger(self, rng: Random) -> None:
        prefix = rng.choice(("_kbackup/ledger/", "_kbackup/"))
        for key in [key for key in self.bucket.objects if key.startswith(prefix)]:
            self.bucket.delete(key, "person")
        self._stored.clear()
        self._entered.clear()

    def _lose_metadata(self, rng: Random) -> None:
        keys = self.bucket.data_keys()
        for key in keys if rng.random() < 0.3 else rng.sample(keys, min(1, len(keys))):
            self.bucket.put(key, self.bucket.objects[key].body, {}, by="person")

    def _move_copy(self, rng: Random) -> None:
        """An object is copied into another directory, with its metadata."""
        keys = self.bucket.data_keys()
        if keys:
            key = rng.choice(keys)
            held = self.bucket.objects[key]
            *folders, name = key.split("/")
            metadata = held.head.metadata if rng.random() < 0.7 else {}
            self.bucket.put("/".join([*folders, "copied", name]), held.body, metadata, by="person")

    def _delete(self, rng: Random) -> None:
        keys = self.bucket.data_keys()
        if keys:
            key = rng.choice(keys)
            self._take_away(key)
            self.bucket.delete(key, "person")

    def _recreate(self, rng: Random) -> None:
        self.kafka.delete("alpha")
        self.kafka.create("alpha", self.mixture.partitions, is_source=True)
        self._produce(rng)

    def _expire(self, rng: Random) -> None:
        where = rng.choice(self._wheres())
        self.kafka.expire(where, rng.randint(self._log(where).start, self._log(where).end))

    def _accept(self, rng: Random) -> None:
        """What is missing is accepted."""
        self._verify(rng)
