"""Where a script of the second family is performed, and what others do there."""

import gzip
import io
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from random import Random
from typing import Any, Final

import fastavro

from tests.simulation.bucket import decode, is_side, stem
from tests.simulation.events import NO_TYPE, Entered, Note, Row, named
from tests.simulation.mixed_script import SIDES, Mixture
from tests.simulation.product import Position, TopicPartition
from tests.simulation.script import Shape
from tests.simulation.stage import Stage
from tests.simulation.truth import partition_of

_WITH_SCHEMA: Final = (
    b'{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"field":"n"}],'
    b'"optional":false},"payload":{"n":"%s"}}'
)
"""A value that brings its schema, as the formats with columns need it."""

_AVRO: Final = fastavro.parse_schema(
    {"type": "record", "name": "ConnectDefault", "fields": [{"name": "n", "type": "string"}]}
)


class MixedStage(Stage):
    """What there is, and what others than kbackup do to it.

    Attributes:
        mixture: What stays the same.
        broken: What was found wrong.
        excused: Records that people took away, so that `verify` alone has to name them.
    """

    def __init__(self, mixture: Mixture) -> None:
        super().__init__(Shape((("alpha", mixture.partitions),), 5))
        self.mixture = mixture
        self.broken: list[str] = []
        self.excused: set[bytes] = set()
        self._stored: dict[TopicPartition, dict[int, bytes]] = {}
        self._entered: set[str] = set()
        self._connected: dict[TopicPartition, int] = {}
        self.is_spread = "hour" in mixture.directories  # over several
        self._is_recreated = False
        self._made: dict[bytes, Row] = {}  # all records, by their names
        self._beside: dict[str, str] = {}  # keys and headers that the ledger knows, and of what
        self._past: list[tuple[str, TopicPartition, Position]] = []
        self.kafka.sink_groups.update(mixture.groups)
        self.bucket.is_encrypted = mixture.is_encrypted and find_spec("cryptography") is not None

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
                found.setdefault(partition_of(key), {})[row.offset] = named(row.value)
        return found

    def _contents(self) -> dict[TopicPartition, dict[int, list[tuple[str, Row]]]]:
        """What objects say of each record, each with the object; full records before values."""
        sides = {(stem(key), part): key for key in self.bucket.data_keys() for part in SIDES
                 if f".{part}." in key}  # fmt: skip

        def has(key: str, part: str) -> bool:
            side = sides.get((stem(key), part))
            return side is not None and not self._is_left_over(key, side, part)

        found: dict[TopicPartition, dict[int, list[tuple[str, Row]]]] = {}
        for key in self.bucket.data_keys():
            there = found.setdefault(partition_of(key), {})
            for row in decode(key, self.bucket.objects[key].body) or ():
                if row.timestamp_type == NO_TYPE:
                    made = self._made[named(row.value)]
                    said = row._replace(
                        key=made.key if has(key, "keys") else None,
                        headers=made.headers if has(key, "headers") else (),
                    )
                    there.setdefault(row.offset, []).append((key, said))
                else:
                    there.setdefault(row.offset, []).insert(0, (key, row))
        return found

    def _is_left_over(self, main: str, side: str, part: str) -> bool:
        """Whether values say that they were stored without it, and it is of other records."""
        mine, its = (self.bucket.objects[key].head.metadata for key in (main, side))
        if not (mine and its) or part in mine.get("siblings", ""):
            return False
        return any(mine.get(name) != its.get(name) for name in ("records", "last-offset"))

    def _check_content(self, where: TopicPartition, came: Sequence[Row]) -> None:
        """Records come back as the objects have them; nothing that was beside values is missed."""
        said = self._contents().get(where, {})
        for row in came:
            known = [one for _, one in said.get(int(named(row.value).split(b"/")[2]), ())]
            if known and known[0].timestamp_type != NO_TYPE:
                is_there = row.content == known[0].content
            else:
                is_there = (row.key, row.headers) in {(one.key, one.headers) for one in known}
            if not is_there:
                self._break(f"untrue: {where} restored with 0 as {row}, which is {known}")
                return
        for side, main in self._beside.items():
            if side not in self.bucket.objects and main in self.bucket.objects:
                rows = decode(main, self.bucket.objects[main].body) or ()
                if partition_of(main) == where and any(
                    [key for key, _ in said[row.offset]] == [main] for row in rows
                ):
                    self._break(f"unsaid: {where} restored with 0, {side} is gone")

    def _remember(self) -> None:
        """Keep what the ledger knows, and where the groups were."""
        for event in self.history[self._checked :]:
            if isinstance(event, Entered):
                self._entered.add(event.key)
        self._checked = len(self.history)
        for key in self._entered & self.bucket.objects.keys():
            for row in decode(key, self.bucket.objects[key].body) or ():
                self._stored.setdefault(partition_of(key), {})[row.offset] = named(row.value)
        mains = {stem(key): key for key in self.bucket.data_keys() if not is_side(key)}
        for key in self._entered & self.bucket.objects.keys():
            if is_side(key) and stem(key) in mains:
                self._beside[key] = mains[stem(key)]
        for group in self.mixture.groups:
            for where, position in self.kafka.groups.get(group, {}).items():
                if (group, where, position) not in self._past:
                    self._past.append((group, where, position))

    # what happens to the topic

    def _log(self, where: TopicPartition) -> Any:
        return self.kafka.logs[where]

    def _rows(self, rng: Random, where: TopicPartition, count: int) -> list[Row]:
        end, topic_id = self._log(where).end, self.kafka.ids[where.topic]
        now = int(self.clock.right.timestamp() * 1000)
        rows = []
        for at in range(count):
            name = f"{where.topic}/{where.partition}/{end + at}/{topic_id}".encode()
            value = _WITH_SCHEMA % name if self.mixture.has_schemas else b'"%s"' % name
            rows.append(
                Row(
                    0, now - rng.randrange(self.mixture.hours) * 3_600_000, 1,
                    b'"k%d"' % at if self.mixture.has_sides else None, value,
                    (("name", name),) if self.mixture.has_sides else (),
                )
            )  # fmt: skip
            self._made[name] = rows[-1]
        return rows

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
        ending = rng.choice((".json", ".bin", ".json.gz", *self._columns))
        directories = rng.choice((1, 1, 2, 3))
        self.is_spread = self.is_spread or directories > 1
        for where in [] if self._is_recreated else self._wheres():
            begin = self._connected.get(where, 0)
            rows = self._log(where).between(begin, self._log(where).stable_end)
            for at in range(0, len(rows) - size + 1, size):
                for number in range(directories):
                    share = [
                        row for row in rows[at : at + size] if row.offset % directories == number
                    ]
                    name = f"partition={where.partition}" if directories == 1 else f"d={number}"
                    self._put_values(where, share, name, ending)
                self._connected[where] = rows[at + size - 1].offset + 1

    @property
    def _columns(self) -> tuple[str, ...]:
        """Extensions of the files with schemas that a connector writes."""
        return (".avro",) if self.mixture.has_schemas else ()

    def _put_values(
        self, where: TopicPartition, rows: Sequence[Row], directory: str, ending: str
    ) -> None:
        if not rows:
            return
        if self.mixture.is_transformed and ending != ".avro":
            rows = self._transform(rows)
        name = f"{where.topic}+{where.partition}+{rows[0].offset:010d}{ending}"
        body = b"".join((row.value or b"") + b"\n" for row in rows)
        if ending.endswith(".gz"):
            body = gzip.compress(body, mtime=0)
        elif ending == ".avro":
            file = io.BytesIO()
            records = [{"n": named(row.value).decode()} for row in rows]
            fastavro.writer(file, _AVRO, records, sync_marker=b"s" * 16)
            body = file.getvalue()
        key = f"topics/{where.topic}/{directory}/{name}"
        self._take_away(key)  # as the connector replaces what it finds
        self.bucket.put(key, body, {}, by="person")

    def _transform(self, rows: Sequence[Row]) -> list[Row]:
        """Change values, and leave some out: those are in the bucket only if kbackup has them."""
        kept = [row for row in rows if row is rows[0] or row.offset % 7 not in (3, 4)]
        self.excused |= {named(row.value) for row in rows} - {named(row.value) for row in kept}
        return [row._replace(value=b'{"was":"%s"}' % named(row.value)) for row in kept]

    def _take_away(self, key: str) -> None:
        """Ask for the records of an object no more: it is `verify` that names them."""
        if key in self.bucket.objects:
            rows = decode(key, self.bucket.objects[key].body) or ()
            self.excused |= {named(row.value) for row in rows}

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
        self._lose(rng.choice(("/ledger/", "/ledger/", "", "/topics/")))

    def _lose(self, part: str) -> None:
        """Remove what kbackup says of the backup, as far as its name has *part*."""
        for key in [key for key in self.bucket.keys("_kbackup/") if part in key]:
            self.bucket.delete(key, "person")
        self._stored.clear()
        self._beside.clear()
        self._entered.clear()

    def _lose_metadata(self, rng: Random) -> None:
        keys = [] if self._is_recreated else self.bucket.data_keys()
        for key in keys if rng.random() < 0.3 else rng.sample(keys, min(1, len(keys))):
            self.bucket.put(key, self.bucket.objects[key].body, {}, by="person")

    def _move_copy(self, rng: Random) -> None:
        """An object is copied into another directory, with its metadata."""
        keys = self.bucket.data_keys()
        if keys:
            key = rng.choice(keys)
            held = self.bucket.objects[key]
            *folders, name = key.split("/")
            is_kept = self._is_recreated or rng.random() < 0.7
            metadata = held.head.metadata if is_kept else {}
            self.bucket.put("/".join([*folders, "copied", name]), held.body, metadata, by="person")

    def _delete(self, rng: Random) -> None:
        keys = self.bucket.data_keys()
        if keys:
            key = rng.choice(keys)
            self._take_away(key)
            self.bucket.delete(key, "person")

    def _recreate(self, rng: Random) -> None:
        """Create the topic anew, unless objects do not say which topic they are of."""
        if not all(self.bucket.objects[key].head.metadata for key in self.bucket.data_keys()):
            return
        self._is_recreated = True
        self.kafka.delete("alpha")
        self.kafka.create("alpha", self.mixture.partitions, is_source=True)
        self._produce(rng)

    def _expire(self, rng: Random) -> None:
        where = rng.choice(self._wheres())
        self.kafka.expire(where, rng.randint(self._log(where).start, self._log(where).end))

    def _grow(self, rng: Random) -> None:
        """The topic gets another partition, which may stay empty.

        Of one that only a connector backs up, no ledger says that the topic has it.
        """
        there = len(self._wheres())
        if there < 4 and not self.mixture.is_connected:
            self.kafka.grow("alpha", there + 1)
            if rng.random() < 0.5:
                self._produce(rng)
