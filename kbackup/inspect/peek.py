"""``restore cat``: records of an object, or of a partition from an offset on, in kcat's words.

Source: kcat 1.7, ``format.c``.
"""

import base64
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Final, NotRequired, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.catalog import schemas
from kbackup.catalog.claims import Reading
from kbackup.catalog.covered import covered, within
from kbackup.catalog.listing import EVERYTHING, Catalog, FileSet, Window, not_in_backup
from kbackup.catalog.merging import records
from kbackup.catalog.schemas import SchemaIndex, SchemaUse
from kbackup.clock import shown_ms
from kbackup.connect.registry.framing import schema_ids
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    IncompleteBackupError,
    ObjectKeyError,
    ObjectNotFoundError,
    StoreError,
    some,
)
from kbackup.events import INLINE
from kbackup.naming import OFFSET_MAX, PARTITION_MAX, Layout
from kbackup.naming.renaming import TopicFilter
from kbackup.pipeline.views import ReadOptions
from kbackup.records import UNKNOWN, Facts, TimestampType, TopicPartition
from kbackup.runs.backup_state import NOTHING, BackupState, list_as_stored
from kbackup.stores import Store, at_versions, side_by_side

Shown = str | dict[str, str] | None
"""Bytes as JSON: text where they are UTF-8, else ``{"$base64": ...}``; null is null."""


class Named(TypedDict):
    """The schema that a key or payload names, where the backup has it."""

    id: int
    subjects: list[str]


class Record(TypedDict):
    """A record as ``peek`` yields it: a JSON value under kcat's names."""

    topic: str
    partition: int
    offset: int
    tstype: str
    ts: int | None
    headers: list[list[Any]]  # pairs of a name and `Shown`
    key: Shown
    payload: Shown
    key_schema: NotRequired[Named]
    payload_schema: NotRequired[Named]


_TOKEN: Final = re.compile(r"%(.?)|\\(x[0-9A-Fa-f]{1,2}|0[0-7]{0,3}|.)|([^%\\]+|\\\Z)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t"}


def render(record: Record, template: str) -> bytes:
    r"""Return *record* as *template* says; nothing is appended to it.

    ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%k`` key, ``%s`` payload, ``%K`` and ``%S``
    their sizes in bytes (-1 for null), ``%R`` that of the payload as four bytes, ``%T`` timestamp
    in ms (-1 for none), ``%Z`` the same in UTC (kcat has no such letter), ``%h`` headers, ``%%``;
    ``\n``, ``\r``, ``\t``, ``\x0a``.  A null key or payload prints nothing.

    Raises:
        ConfigurationError: If the format has an unknown letter.
    """
    return b"".join(
        piece if isinstance(piece, bytes) else piece(record) for piece in _parse(template)
    )


@cache
def _parse(template: str) -> tuple[bytes | Callable[[Record], bytes], ...]:
    return tuple(_piece(match, template) for match in _TOKEN.finditer(template))


def _piece(match: re.Match[str], template: str) -> bytes | Callable[[Record], bytes]:
    letter, escape, text = match.groups()
    if text is not None:
        return text.encode()
    if escape is not None:
        if escape[0] in "x0" and escape != "x":
            return bytes([int(escape.lstrip("x"), 16 if escape[0] == "x" else 8) & 0xFF])
        return _ESCAPES.get(escape, escape.encode())
    if letter == "%":
        return b"%"
    if letter not in _LETTERS:
        raise ConfigurationError(
            f"%{letter} in the format {template!r} has no meaning",
            "" if letter else "it ends with a single %",
            f"use one of {' '.join('%' + known for known in (*_LETTERS, '%'))}",
        )
    return _LETTERS[letter]


def _stored(value: Shown) -> bytes | None:
    """Return the bytes that `shown_bytes` made JSON of."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else base64.b64decode(value["$base64"])


def _length(value: Shown) -> int:
    stored = _stored(value)
    return -1 if stored is None else len(stored)


def _printed(value: Shown, null: bytes = b"") -> bytes:
    stored = _stored(value)
    return null if stored is None else stored


def _headers(record: Record) -> bytes:
    pairs = [name.encode() + b"=" + _printed(value, b"NULL") for name, value in record["headers"]]
    return b",".join(pairs)


def _timestamp(record: Record) -> bytes:
    return str(-1 if record["ts"] is None else record["ts"]).encode()


def _moment(record: Record) -> bytes:
    return b"?" if record["ts"] is None else shown_ms(record["ts"]).encode()


_LETTERS: Final[Mapping[str, Callable[[Record], bytes]]] = {
    "t": lambda record: record["topic"].encode(),
    "p": lambda record: str(record["partition"]).encode(),
    "o": lambda record: str(record["offset"]).encode(),
    "k": lambda record: _printed(record["key"]),
    "s": lambda record: _printed(record["payload"]),
    "K": lambda record: str(_length(record["key"])).encode(),
    "S": lambda record: str(_length(record["payload"])).encode(),
    "R": lambda record: _length(record["payload"]).to_bytes(4, "big", signed=True),
    "T": _timestamp,
    "Z": _moment,
    "h": _headers,
}


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """A schema that records name.

    Attributes:
        state: ``stored``; ``unknown`` if the registry did not have it; ``missing`` if it is still
            to be fetched.
        kind: ``AVRO``, ``JSON`` or ``PROTOBUF``; None where it is not stored.
    """

    HEAD: ClassVar = {"type": "schema"}

    use: SchemaUse = field(metadata=INLINE)
    state: str
    kind: str | None = None
    subjects: tuple[str, ...] = ()


def named_schemas(store: Store, layout: Layout, topics: Collection[str]) -> Iterator[NamedSchema]:
    """Yield the schemas that records of *topics* name, by topic, part and id.

    Costs a listing for each topic, and a request for each schema.  An id that had two meanings
    comes twice; one that cannot be read raises `CorruptObjectError`.
    """
    index = SchemaIndex.read(store, layout, sorted(topics))
    places = [(use, key) for use, keys in index.keys.items() for key in keys]
    loaded = side_by_side(lambda one: schemas.load(store, *one), places)
    found = [
        NamedSchema(each.use, "stored", each.schema.kind, tuple(sorted(each.versions)))
        for each in loaded
    ]
    found += [NamedSchema(use, "unknown") for use in index.unknown]
    found += [NamedSchema(use, "missing") for use in index.missing]
    yield from sorted(found, key=lambda each: (each.use, each.subjects))


class SchemaNames:
    """Tells which schema a record of a topic names; asks the store when the first may name one."""

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


def shown_bytes(value: bytes | None) -> str | dict[str, str] | None:
    """Return *value* as JSON has it: null, text where it is UTF-8, else base64."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"$base64": base64.b64encode(value).decode()}


_WANTED: Final = re.compile(r"([A-Za-z0-9._-]{1,249})(?::(\d{1,99})(?:@(\d{1,99}))?)?", re.ASCII)
_NEAR: Final = re.compile(r"[A-Za-z0-9._-]{1,249}:([^:@/]*)(?:@([^:@/]*))?")


@dataclass(frozen=True, slots=True)
class PeekTarget:
    """What to look at: one object, or a topic from some point on; None narrows nothing."""

    topic: str
    key: str | None = None
    partition: int | None = None
    offset: int | None = None

    @classmethod
    def parse(cls, text: str, layout: Layout) -> "PeekTarget":
        """Read a key or ``TOPIC[:PARTITION[@OFFSET]]``; `ConfigurationError` if it is neither."""
        try:
            return cls(layout.parse(text).topic, key=text)
        except ObjectKeyError:
            match = _WANTED.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                f"{text!r} is neither an object's key nor TOPIC[:PARTITION[@OFFSET]]",
                _slip(text),
                do=f"give a key from its first part on, such as {layout.prefix('orders')}..., "
                "or orders:0@4200",
            )
        topic, partition, offset = match.groups()
        if int(partition or 0) > PARTITION_MAX or int(offset or 0) > OFFSET_MAX:
            raise ConfigurationError(f"{text!r} is larger than any partition or offset in Kafka")
        return cls(
            topic,
            partition=None if partition is None else int(partition),
            offset=None if offset is None else int(offset),
        )


def _slip(text: str) -> str:
    """Return which number is none, in words: the text may be masked, as a secret before an @ is."""
    match = _NEAR.fullmatch(text)
    numbers = () if match is None else (("partition", match[1]), ("offset", match[2]))
    return ", ".join(
        f"its {name} is not a number"
        for name, number in numbers
        if number is not None and not (number.isascii() and number.isdecimal())
    )


def peek(
    store: Store,
    layout: Layout,
    options: ReadOptions,
    what: str,
    *,
    count: int = 10,
    only_format: str | None = None,
    window: Window = EVERYTHING,
    key: bytes | None = None,
    known: BackupState = NOTHING,
) -> Iterator[Record]:
    """Yield records of a backup, *count* at most.

    *what* is an object's key, or ``TOPIC[:PARTITION[@OFFSET]]``, of *only_format* alone.  What is
    *known* tells which objects a restore would read; those that it shows to hold no record in
    *window* are not opened.

    Yields:
        JSON values under kcat's names: ``topic partition offset tstype ts headers key payload``.
        Headers are pairs; bytes are text where they are UTF-8, else ``{"$base64": ...}``; null is
        null.  ``ts`` is in ms, null where the layout has not stored it.  ``key_schema`` and
        ``payload_schema`` are there where the backup holds the registry schema that one names.

    Raises:
        ConfigurationError: If *what* is neither.
        IncompleteBackupError: If the backup holds nothing of it.
        CorruptObjectError: If an object is damaged; what was yielded before is good.
        ObjectNotFoundError: If there is no such object.
        RefusedError: If it is not known which objects to read, so that a restore is refused.
    """
    place = PeekTarget.parse(what, layout)
    narrow = only_format if place.key is None else None
    said = known if place.key is None else NOTHING  # one object is shown as it is
    found = list_as_stored(store, layout, options.formats, said, TopicFilter([place.topic]), narrow)
    store, found = at_versions(store, found.versions), said.left(found)
    left, names, has_untimed = count, SchemaNames(store, layout, place.topic), False
    if place.offset is not None:
        window = window.narrowed("offset", ">=", place.offset)
    identity = UNKNOWN if place.key is not None else known.identity(place.topic)
    reading = Reading(store, options, identity)
    for where, sets in _chosen(found, place, {*found.topics(), *known.names}, layout.place, narrow):
        opened = sets if place.key is not None else _read(reading, where, sets, window, known)
        has_untimed = has_untimed or any(not (e.is_whole or e.is_generic) for e in opened)
        first = place.offset or 0
        for batch in records(reading, opened, offset=first):
            rows = window.rows(batch)
            if key is not None:
                rows = rows.filter(pc.equal(rows["key"], key))
            rows = rows.slice(0, left)
            left -= len(rows)
            for row in rows.to_pylist():
                yield _shown(where, row, names)
            if left <= 0:
                return
    if left < count or count == 0:
        return
    if key is not None or window.has_times:
        asked = " and ".join(
            ["that key"] * (key is not None) + ["such a timestamp"] * window.has_times
        )
        why = f"no record there has {asked}"
        if window.has_times and has_untimed:
            why = "objects of values alone store no timestamps"
        do = "choose by offset, or see what is there: kbackup restore list --map"
        raise IncompleteBackupError(f"{what}: nothing to show", why, do, topic=place.topic)
    if place.key is None:
        raise IncompleteBackupError(
            f"{what} is not in the backup",
            "it holds no record there, and none after it",
            f"see where it ends: kbackup restore list {place.topic} --deep",
            topic=place.topic,
        )


def _read(
    reading: Reading,
    where: TopicPartition,
    sets: list[FileSet],
    window: Window,
    known: BackupState,
) -> list[FileSet]:
    """Return the sets that a restore reads, of those that may hold records of *window*."""
    found = covered(reading, where, sets, known.ledger(where))
    for refusal in found.refusals():
        raise refusal
    stated = found.stated()

    def facts(files: FileSet) -> Facts | None:
        said = None if files.main is None else known.facts(where, files.main)
        return stated.get(files.id) if said is None else said

    return within(reading.store, found.sets, window, facts)


def _chosen(
    found: Catalog, place: PeekTarget, there: Collection[str], backup: str, narrow: str | None
) -> Iterator[tuple[TopicPartition, list[FileSet]]]:
    """Yield the file sets to read, by partition."""
    wheres = found.partitions(place.topic)
    if place.key is not None:
        for where in wheres:
            for files in found.sets[where]:
                if any(file.key == place.key for file in files.files):
                    yield where, [files]
                    return
        raise ObjectNotFoundError(
            place.key, "no such object", "list them with kbackup restore list", key=place.key
        )
    numbers = [where.partition for where in wheres]
    if not wheres and place.topic not in there:
        raise not_in_backup(place.topic, there, backup)
    if place.partition not in (None, *numbers) or not numbers:
        of = f"{place.topic}:{place.partition}" if numbers else place.topic
        kind = "no object" if narrow is None else f"no {narrow} object"
        raise IncompleteBackupError(
            f"{of} has {kind} in the backup under {backup}",
            f"there are some in partition {some([*map(str, numbers)])}" if numbers else "",
            f"see what there is: kbackup restore list {place.topic}",
            topic=place.topic,
        )
    for where in wheres:
        if place.partition in (None, where.partition):
            yield where, found.sets[where]


def _shown(where: TopicPartition, row: Mapping[str, Any], names: SchemaNames) -> Record:
    found: Record = {
        "topic": where.topic,
        "partition": where.partition,
        "offset": row["offset"],
        "tstype": TimestampType.word(row["timestamp_type"]),
        "ts": row["timestamp"],
        "headers": [[header["key"], shown_bytes(header["value"])] for header in row["headers"]],
        "key": shown_bytes(row["key"]),
        "payload": shown_bytes(row["value"]),
    }
    if (of_key := names.of("key", row["key"])) is not None:
        found["key_schema"] = of_key
    if (of_payload := names.of("value", row["value"])) is not None:
        found["payload_schema"] = of_payload
    return found
