"""Keep the registry schemas of a backup beside its ledger: one small object for each.

A name says all that a listing is asked for::

    _kbackup/schemas/<digest of topics.dir>/orders/value/42-0123456789ab.json   schema 42
    _kbackup/schemas/<digest of topics.dir>/orders/value/43-unknown.json        nobody knows it
    _kbackup/schemas/<digest of topics.dir>/orders/value/44-missing.json        still to be fetched
    _kbackup/schemas/<digest of topics.dir>/orders/value/45-numbers.json        the same, see below

The digits after the id are a digest of the schema, so a registry that was set up anew, and gave an
id a second meaning, does not overwrite the first one.  An object is never deleted: a schema that
was fetched after all counts for more than a note that it is missing, and what a registry did not
know once it may know later: each sink asks again for all that is noted.  A number of 8 bytes begins
like a record with a small id: where nothing else does, the registry's schema under that id counts
only if it is registered for the topic, and so a missing one is noted apart.  What is noted as
unknown alone may be a number too; a record's is noted as missing besides.
"""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import orjson

from kbackup.catalog.ledger.stream import folder
from kbackup.connect.registry import Reference, RegisteredSchema
from kbackup.errors import some
from kbackup.naming import Layout
from kbackup.stores import Store, parse_json, put_json
from kbackup.stores.encrypted import check_open

UNKNOWN: Final = "unknown"
"""The registry says that it has no such schema."""
MISSING: Final = "missing"
"""The registry did not say."""
NUMBERS: Final = "numbers"
"""Likewise, and all that begins with the id may be numbers."""

_Version = tuple[str, int]
"""A subject, and the number of a version in it."""

_NAME: Final = re.compile(r"([^/]+)/(key|value)/(\d{1,10})-([0-9a-z]{1,16})\.json", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class SchemaUse:
    """A schema that records of a topic name: an id of the registry of its part, key or value."""

    topic: str
    part: str
    id: int

    def __str__(self) -> str:
        return f"schema {self.id} of {self.topic}'s {self.part}s"


@dataclass(frozen=True, slots=True)
class KeptSchema:
    """A schema of a backup, as the registry had it, and its versions in subjects, by these."""

    use: SchemaUse
    schema: RegisteredSchema
    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SchemaIndex:
    """What a backup has, as names tell it.

    Attributes:
        keys: The objects of each schema; several if its id had several meanings.
        unknown: Those that the registry did not have when it was last asked.
        noted: Those that could not be fetched when they were met.
        numbers: Those of *unknown* and *noted* that only what may be numbers names.
    """

    keys: Mapping[SchemaUse, tuple[str, ...]]
    unknown: frozenset[SchemaUse]
    noted: frozenset[SchemaUse]
    numbers: frozenset[SchemaUse] = frozenset()

    @property
    def missing(self) -> list[SchemaUse]:
        """Those that are still to be fetched."""
        return sorted(self.noted - self.keys.keys() - self.unknown)

    def lacking(self, topics: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield code and text of a warning about the schemas that *topics* lack.

        What may be a number, and is no schema that the registry has, is not one of them.
        """
        unknown = sorted(self.unknown - self.numbers)
        for code, uses, why in (
            ("missing_schemas", self.missing, "the Schema Registry did not answer"),
            ("unknown_schemas", unknown, "the Schema Registry does not have it"),
        ):
            lacking = [str(use) for use in uses if use.topic in topics]
            if lacking:
                yield code, f"not stored: {some(lacking)}: {why}; each sink asks again"

    @classmethod
    def read(cls, store: Store, layout: Layout, topics: Collection[str] | None = None) -> Self:
        """List the schemas of *topics*, None for all."""
        keys: dict[SchemaUse, tuple[str, ...]] = {}
        others: dict[str, set[SchemaUse]] = {UNKNOWN: set(), MISSING: set(), NUMBERS: set()}
        for prefix in [""] if topics is None else [f"{topic}/" for topic in topics]:
            for use, what, key in _listed(store, layout, prefix):
                if what in others:
                    others[what].add(use)
                else:
                    keys[use] = (*keys.get(use, ()), key)
        unknown = others[UNKNOWN] - keys.keys()
        noted = others[MISSING] | others[NUMBERS]
        numbers = (noted | unknown) - others[MISSING]
        return cls(keys, frozenset(unknown), frozenset(noted), frozenset(numbers))


NO_SCHEMAS: Final = SchemaIndex({}, frozenset(), frozenset())


def put(store: Store, layout: Layout, kept: KeptSchema) -> None:
    """Store a schema."""
    more = {"v": 1, **_place(kept.use), "subjects": dict(kept.versions)}
    put_json(store, key_of(layout, kept.use, kept.schema), more | _document(kept.schema))


def key_of(layout: Layout, use: SchemaUse, schema: RegisteredSchema) -> str:
    """Return the object that holds a schema, once it is stored."""
    data = orjson.dumps(_document(schema), option=orjson.OPT_SORT_KEYS)
    return _key(layout, use, hashlib.sha256(data).hexdigest()[:12])


def note(store: Store, layout: Layout, use: SchemaUse, what: str, why: str) -> None:
    """Note that a schema is *what*: `UNKNOWN`, `MISSING` or `NUMBERS`."""
    put_json(store, _key(layout, use, what), {"v": 1, **_place(use), "why": why})


def load(store: Store, use: SchemaUse, key: str) -> KeptSchema:
    """Read the schema of an object that `SchemaIndex.keys` names; else `CorruptObjectError`."""
    with store.open(key) as body:
        check_open(key, body)
        data = body.read()

    def kept(found: Mapping[str, Any]) -> KeptSchema:
        versions = {str(name): int(version) for name, version in found["subjects"].items()}
        return KeptSchema(use, _schema(found), versions)

    do = "restore the object from a copy, or register the schema by hand"
    return parse_json(key, data, kept, "schema", do)


def _listed(store: Store, layout: Layout, prefix: str) -> Iterator[tuple[SchemaUse, str, str]]:
    start = folder(layout, "schemas")
    for entry in store.list(start + prefix):
        match = _NAME.fullmatch(entry.key.removeprefix(start))
        if match is not None:
            topic, part, number, what = match.groups()
            yield SchemaUse(topic, part, int(number)), what, entry.key


def _key(layout: Layout, use: SchemaUse, what: str) -> str:
    return f"{folder(layout, 'schemas')}{use.topic}/{use.part}/{use.id}-{what}.json"


def _place(use: SchemaUse) -> dict[str, Any]:
    return {"topic": use.topic, "part": use.part, "id": use.id}


def _document(schema: RegisteredSchema, seen: set[_Version] | None = None) -> dict[str, Any]:
    """Return a schema as JSON in the registries' own words, and what it refers to, each once."""
    seen = set() if seen is None else seen
    references = []
    for each in schema.references:
        named = {"name": each.name, "subject": each.subject, "version": each.version}
        place = each.subject, each.version
        if place not in seen:
            named["of"] = _document(each.schema, seen)
            seen.add(place)
        references.append(named)
    more = orjson.loads(schema.rules) if schema.rules else {}
    plain = {"schemaType": schema.kind, "schema": schema.text, "references": references}
    return plain | ({"rules": more} if more else {})


def _schema(
    data: Mapping[str, Any], known: dict[_Version, RegisteredSchema] | None = None
) -> RegisteredSchema:
    known = {} if known is None else known
    references = []
    for each in data["references"]:
        place = each["subject"], int(each["version"])
        if "of" in each:
            known[place] = _schema(each["of"], known)
        references.append(Reference(each["name"], *place, known[place]))
    rules = (
        orjson.dumps(data["rules"], option=orjson.OPT_SORT_KEYS).decode() if "rules" in data else ""
    )
    return RegisteredSchema(data["schemaType"], data["schema"], tuple(references), rules)
