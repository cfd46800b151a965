"""Store each registry schema that records name beside the sink's objects.

A task looks at the ids in rows before these are filed, so a schema is stored before the cut
that needs it is committed.  Nothing here keeps a record from being backed up: a schema that cannot
be fetched is noted in the bucket, makes the run exit 3, and is asked for again by the next one.  So
is one that the registry does not have, which changes no exit code: what is no record's may look so.

A number of 8 bytes, as Kafka's LongSerializer writes it, begins with a zero and what may be the id
of any schema; so does a windowed key that is made of one.
"""

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import orjson
import pyarrow as pa

from kbackup.catalog import schemas
from kbackup.catalog.schemas import KeptSchema, SchemaIndex, SchemaUse
from kbackup.clock import Clock
from kbackup.connect import avro_reading
from kbackup.connect.avro_reading import united
from kbackup.connect.registry import (
    AVRO,
    JSON,
    RegisteredSchema,
    RegistrySettings,
    connect,
)
from kbackup.connect.registry.framing import are_numbers, bodies_under, schema_ids
from kbackup.errors import RegistryError
from kbackup.events import Warned
from kbackup.naming import Layout
from kbackup.records import TopicPartition
from kbackup.runs.report import Summary
from kbackup.spark.channel import TaskChannel
from kbackup.stores import Store

if TYPE_CHECKING:
    from kbackup.connect.registry.client import RegistryClient

MOST: Final = 20
"""Bodies that are tried: the more, the less likely it is that all of them fit by chance."""


def fits(schema: RegisteredSchema, bodies: pa.BinaryArray) -> bool:
    """Whether all of *bodies* can be values of *schema*; of Protobuf nothing is known."""
    some = bodies.slice(0, MOST)
    if schema.kind == AVRO:
        try:
            text = united(schema.text, [text for _, text in schema.imports])
            return not avro_reading.decode_each_avro(some, text)[1]
        except ValueError:  # no schema of ours: nothing is known
            return True
    if schema.kind == JSON:
        return all(_is_json(body) for body in some.to_pylist())
    return True


def _is_json(body: bytes) -> bool:
    try:
        orjson.loads(body)
    except ValueError:
        return False
    return True


_log: Final = logging.getLogger(__name__)

REST_S: Final = 60.0
"""A registry that failed is left alone for so long."""

COMPARE_S: Final = 3600.0
"""How often a sink that follows looks whether a registry is still the one that it was."""

STRANGERS_MOST: Final = 20
"""Ids of a topic's part that the registry does not know, after which no more are asked for: what
begins with a zero there is something else.  A part of which a schema is known has fifty times as
many."""

Samples = tuple[tuple[SchemaUse, tuple[str, ...]], ...]
"""Schemas, each with the objects that hold it."""


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """Where the schemas of records are; plain data.

    Attributes:
        registries: The registry of each part, by "key" and "value".
        stored: The schemas that the backup has already.
        unknown: Those that the registry did not have a moment ago.
        samples: For each part a few of them, with their objects: a registry that has others under
            their ids was set up anew, and gives ids a second meaning.
    """

    registries: Mapping[str, RegistrySettings] = field(default_factory=dict)
    stored: frozenset[SchemaUse] = frozenset()
    unknown: frozenset[SchemaUse] = frozenset()
    samples: Mapping[str, Samples] = field(default_factory=dict)


NO_SCHEMAS: Final = SchemaSource()


@dataclass(slots=True)
class SchemaKeeper:
    """Stores the schemas that one task meets."""

    source: SchemaSource
    store: Store
    layout: Layout
    clock: Clock
    run: str
    channel: TaskChannel
    _settled: set[SchemaUse] = field(default_factory=set)
    _unknown: set[SchemaUse] = field(default_factory=set)  # of those settled
    _parts: set[tuple[str, str]] = field(default_factory=set)  # with a schema that is known
    _numbers: set[SchemaUse] = field(default_factory=set)  # taken for numbers so far
    _missing: set[tuple[SchemaUse, str]] = field(default_factory=set)
    _strangers: dict[tuple[str, str], int] = field(default_factory=dict)
    _rests_until: dict[str, float] = field(default_factory=dict)
    _compared_s: float = 0.0

    def __post_init__(self) -> None:
        self._compared_s = self.clock.steady_s()
        self._unknown |= self.source.unknown
        self._settled |= self.source.stored | self._unknown
        self._parts |= {(use.topic, use.part) for use in self.source.stored}

    def meet(self, where: TopicPartition, batch: pa.RecordBatch) -> None:
        """Store the schemas that records of *batch* name, as far as they are new.

        Raises:
            StoreError: If one of them, or a note, cannot be stored.
        """
        if self.clock.steady_s() - self._compared_s >= COMPARE_S:
            self._compare()
        for part in self.source.registries:
            for schema_id in schema_ids(batch[part]):
                use = SchemaUse(where.topic, part, schema_id)
                if use in self._settled or self._strangers_of(use) >= self._strangers_most(use):
                    continue
                numbers = are_numbers(batch[part], schema_id)
                if not (numbers and use in self._numbers):
                    bodies = bodies_under(batch[part], schema_id) if numbers else None
                    self._keep(use, where, bodies)

    def _keep(self, use: SchemaUse, where: TopicPartition, bodies: pa.BinaryArray | None) -> None:
        """Store a schema; *bodies* are what it is to describe, if they may be numbers."""
        numbers = bodies is not None
        of_part = use.topic, use.part
        if self.clock.steady_s() < self._rests_until.get(use.part, 0.0):
            self._miss(use, where, "the registry did not answer a moment ago", numbers=numbers)
            return
        registry = self.source.registries[use.part]
        try:
            found = _look(registry, use, numbers=numbers, bodies=bodies)
        except RegistryError as error:
            self._rests_until[use.part] = self.clock.steady_s() + REST_S
            self._miss(use, where, str(error), numbers=numbers)
            return
        if isinstance(found, KeptSchema):
            schemas.put(self.store, self.layout, found)
            self._settled.add(use)
            self._parts.add(of_part)
            return
        for what in (schemas.UNKNOWN,) if numbers else (schemas.MISSING, schemas.UNKNOWN):
            schemas.note(self.store, self.layout, use, what, found)
        (self._numbers if numbers else self._settled).add(use)
        self._unknown.add(use)
        strangers, most = self._strangers_of(use) + 1, self._strangers_most(use)
        self._strangers[of_part] = strangers
        of = f" for {use.topic}" if numbers else ""
        text = (
            f"{where} names schema {use.id} in a {use.part}, which the registry does not have{of}"
        )
        if strangers >= most:
            text += f"; this is the {most}th of them, and no more are asked for in this {use.part}"
        self._tell(where, "unknown_schema", text, use)

    def _compare(self) -> None:
        """Ask again for what the registry did not have, and for all if it was set up anew."""
        self._compared_s = self.clock.steady_s()
        self._settled -= self._unknown
        self._unknown.clear()
        self._strangers.clear()
        for part, samples in self.source.samples.items():
            registry = connect(self.source.registries[part])
            registry.forget()
            try:
                is_same = holds(registry, samples, self.layout)
            except RegistryError as error:
                _log.warning("whether the registry is still the same is not known: %s", error)
                continue
            if not is_same:
                self._settled -= {use for use in self._settled if use.part == part}

    def _strangers_of(self, use: SchemaUse) -> int:
        return self._strangers.get((use.topic, use.part), 0)

    def _strangers_most(self, use: SchemaUse) -> int:
        return STRANGERS_MOST * (50 if (use.topic, use.part) in self._parts else 1)

    def _miss(self, use: SchemaUse, where: TopicPartition, why: str, *, numbers: bool) -> None:
        """Note a schema that is still to be fetched, once."""
        what = schemas.NUMBERS if numbers else schemas.MISSING
        if (use, what) in self._missing or (use, schemas.MISSING) in self._missing:
            return
        schemas.note(self.store, self.layout, use, what, why)
        self._missing.add((use, what))
        self._tell(where, "missing_schema", f"{use} could not be fetched: {why}", use)

    def _tell(self, where: TopicPartition, code: str, text: str, use: SchemaUse) -> None:
        more = {"part": use.part, "schema": use.id}
        self.channel.tell(Warned.about(where, code, text, self.run, **more))


def _look(
    registry: RegistrySettings, use: SchemaUse, *, numbers: bool, bodies: pa.BinaryArray | None
) -> KeptSchema | str:
    """Return a schema of *registry*, or why it is none of *use*."""
    connection = connect(registry)
    found = connection.schema(use.id)
    if found is None:
        return f"{registry.name} has no schema {use.id}"
    versions = connection.versions(use.id)
    if numbers and not _counts(use, found, versions, bodies):
        return f"{registry.name} has schema {use.id}, but for others: {', '.join(sorted(versions))}"
    return KeptSchema(use, found, versions)


def _counts(
    use: SchemaUse,
    found: RegisteredSchema,
    subjects: Collection[str],
    bodies: pa.BinaryArray | None,
) -> bool:
    """Whether a schema describes what may be numbers: it is the topic's, and they fit it."""
    if f"{use.topic}-{use.part}" in subjects:
        return True
    return any(_is_of(use, each) for each in subjects) and (bodies is None or fits(found, bodies))


def _is_of(use: SchemaUse, subject: str) -> bool:
    """Whether a subject can be of a topic's part: named after both, or after a record."""
    if subject.endswith(("-key", "-value")):
        return subject == f"{use.topic}-{use.part}"
    return use.part == "value" or subject.startswith(f"{use.topic}-")


def holds(registry: "RegistryClient", samples: Samples, layout: Layout) -> bool:
    """Whether a registry has what the backup has under the same ids."""
    for use, keys in samples:
        found = registry.schema(use.id)
        if found is None or schemas.key_of(layout, use, found) not in keys:
            return False
    return True


def _sampled(index: SchemaIndex, part: str) -> Samples:
    """Return the schemas of the lowest id, of the highest, and of one between them."""
    uses = sorted((use for use in index.keys if use.part == part), key=lambda use: use.id)
    chosen = {uses[at].id: uses[at] for at in (0, len(uses) // 2, -1)} if uses else {}
    return tuple((use, index.keys[use]) for use in chosen.values())


def begin(registries: Mapping[str, RegistrySettings], store: Store, layout: Layout) -> SchemaSource:
    """Return what tasks need to know, once schemas that earlier runs missed are fetched.

    What is stored is not asked for again, unless the registry was set up anew.

    Raises:
        ConfigurationError: If a client library is missing.
        StoreError: If the store does not list what it has, or takes no schema.
    """
    if not registries:
        return NO_SCHEMAS
    for registry in registries.values():
        connect(registry)
    index = SchemaIndex.read(store, layout)
    stored, silent = set(index.keys), set[str]()
    samples = {part: _sampled(index, part) for part in registries}
    for part, settings in registries.items():
        connection = connect(settings)
        connection.forget()
        try:
            if not holds(connection, samples[part], layout):
                _log.warning("%s is not the registry that it was", settings.name)
                stored -= {use for use in stored if use.part == part}
        except RegistryError as error:
            silent.add(part)
            _log.warning("whether %s is still the same is not known: %s", settings.name, error)
    found, unknown = _ask_again(index, registries.keys() - silent, registries, store, layout)
    return SchemaSource(registries, frozenset(stored | found), frozenset(unknown), samples)


def _ask_again(
    index: SchemaIndex,
    parts: set[str],
    registries: Mapping[str, RegistrySettings],
    store: Store,
    layout: Layout,
) -> tuple[set[SchemaUse], set[SchemaUse]]:
    """Store what is noted in *index* and known by now; return that, and what still nobody knows."""
    # what may be numbers is left to a record that shows that it is none
    stored, unknown = set[SchemaUse](), set[SchemaUse]()
    asked = Counter[tuple[str, str]]()
    for use in (*index.missing, *sorted(index.unknown - index.numbers)):
        is_new = use not in index.unknown
        asked[use.topic, use.part] += not is_new
        if use.part not in parts or asked[use.topic, use.part] > STRANGERS_MOST:
            continue  # of many strangers the low numbers are the likely ones
        numbers = use in index.numbers
        try:
            found = _look(registries[use.part], use, numbers=numbers, bodies=None)
        except RegistryError as error:
            parts = parts - {use.part}
            _log.warning("%s is still missing: %s", use, error)
            continue
        if isinstance(found, KeptSchema):
            schemas.put(store, layout, found)
            stored.add(use)
            continue
        if is_new:
            schemas.note(store, layout, use, schemas.UNKNOWN, found)
        if not numbers:
            unknown.add(use)
    return stored, unknown


def report(
    source: SchemaSource, store: Store, layout: Layout, topics: Collection[str], summary: Summary
) -> None:
    """Name the schemas that *topics*, as they are stored, still lack.

    The run exits 3 where the registry did not answer, and not where it does not have them.
    """
    if not source.registries:
        return
    index = SchemaIndex.read(store, layout)
    summary.skip("missing_schemas", sum(use.topic in topics for use in index.missing))
    for code, text in index.lacking(topics):
        summary.warn(code, text)
