"""The registry schemas that a topic's records name, as the sink has stored them."""

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kbackup.backup import schemas
from kbackup.backup.schemas import SchemaIndex, SchemaUse
from kbackup.errors import CorruptObjectError, StoreError
from kbackup.events import Event
from kbackup.look.kcat import Named
from kbackup.naming import Layout
from kbackup.registry.framing import schema_ids
from kbackup.stores import Store

_READERS: Final = 8
"""Objects that are read side by side."""


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """A schema that records name.

    Attributes:
        use: By which topic, in which part, under which id.
        state: ``stored``; ``unknown`` if the registry did not have it; ``missing`` if it is still
            to be fetched.
        kind: ``AVRO``, ``JSON`` or ``PROTOBUF``; None where it is not stored.
        subjects: Those that it was registered under.
    """

    use: SchemaUse
    state: str
    kind: str | None = None
    subjects: tuple[str, ...] = ()

    def to_dict(self) -> Event:
        """Return it as a line of ``--json``."""
        return {
            "type": "schema", "topic": self.use.topic, "part": self.use.part, "id": self.use.id,
            "state": self.state, "kind": self.kind, "subjects": list(self.subjects),
        }  # fmt: skip


def named_schemas(store: Store, layout: Layout, topics: Collection[str]) -> Iterator[NamedSchema]:
    """Yield the schemas that records of *topics* name, by topic, part and id.

    Costs a listing for each topic, and a request for each schema.  An id that had two meanings
    comes twice.

    Raises:
        CorruptObjectError: If one cannot be read.
        StoreError: If the store does not answer.
    """
    index = SchemaIndex.read(store, layout, sorted(topics))
    places = [(use, key) for use, keys in index.keys.items() for key in keys]
    with ThreadPoolExecutor(_READERS) as pool:
        loaded = list(pool.map(lambda one: schemas.load(store, *one), places))
    found = [
        NamedSchema(each.use, "stored", each.schema.kind, tuple(sorted(each.versions)))
        for each in loaded
    ]
    found += [NamedSchema(use, "unknown") for use in index.unknown]
    found += [NamedSchema(use, "missing") for use in index.missing]
    yield from sorted(found, key=lambda each: (each.use, each.subjects))


class Names:
    """Tells which schema a record of one topic names; asks the store when the first may name one.

    Args:
        store: Where the backup is.
        layout: Which ``topics.dir``.
        topic: The topic.
    """

    def __init__(self, store: Store, layout: Layout, topic: str) -> None:
        self._store, self._layout, self._topic = store, layout, topic
        self._known: dict[tuple[str, int], Named] | None = None

    def of(self, part: str, value: bytes | None) -> Named | None:
        """Return the schema that a key or value names; None where the backup has none for it."""
        ids = schema_ids(pa.array([value], pa.binary()))
        return self._all().get((part, ids[0])) if ids else None

    def _all(self) -> dict[tuple[str, int], Named]:
        if self._known is None:
            self._known = {}
            # records can be looked at without them, as by a principal that may not list these
            with suppress(CorruptObjectError, StoreError):
                for each in named_schemas(self._store, self._layout, [self._topic]):
                    if each.state == "stored":
                        place = each.use.part, each.use.id
                        one = self._known.setdefault(place, Named(id=each.use.id, subjects=[]))
                        one["subjects"] = sorted({*one["subjects"], *each.subjects})
        return self._known
