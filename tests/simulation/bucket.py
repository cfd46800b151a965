"""An object store in memory, seen by one process, with requests that fail by its script."""

import gzip
import hashlib
import io
import json
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice, takewhile
from random import Random
from typing import Any, BinaryIO, cast

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tests.simulation.clients import leave_behind, to_rows
from tests.simulation.cluster import Kafka
from tests.simulation.determinism import Clock
from tests.simulation.events import (
    NO_TYPE,
    Entered,
    Event,
    GapKept,
    Listed,
    Removed,
    Row,
    Stored,
    Touched,
    named,
)
from tests.simulation.process import KilledError, Process
from tests.simulation.product import (
    MAGIC,
    CorruptObjectError,
    EncryptedStore,
    FormatOptions,
    LogFormat,
    ObjectHead,
    ObjectNotFoundError,
    Store,
    StoredObject,
    StoreError,
    TopicPartition,
    View,
)
from tests.simulation.truth import partition_of, source_name

PAGE = 40
"""Keys a page of a listing."""

LATE = timedelta(minutes=15)
"""S3 takes no request that is older."""


@dataclass(frozen=True)
class Held:
    """One object."""

    body: bytes
    head: ObjectHead


def _read(body: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    file = pq.ParquetFile(pa.BufferReader(body), pre_buffer=False)
    return file.read(columns, use_threads=False)


def is_side(key: str) -> bool:
    """Whether an object holds keys or headers beside values."""
    return ".keys." in key or ".headers." in key


def stem(key: str) -> str:
    """What the objects of one file set have in common: the name without what tells them apart."""
    folder, _, name = key.rpartition("/")
    return f"{folder}/{name.partition('.')[0]}"


def _values(key: str, body: bytes) -> list[bytes] | None:
    """The values of an object of values; those of a schema by their one field."""
    if key.endswith((".bin", ".json", ".json.gz")):
        return (gzip.decompress(body) if key.endswith(".gz") else body).split(b"\n")[:-1]
    if key.endswith(".avro"):
        rows: list[Any] = list(fastavro.reader(io.BytesIO(body)))
        return [row["n"].encode() for row in rows]
    if key.endswith(".parquet") and ".record." not in key:
        return [name.encode() for name in _read(body)["n"].to_pylist()]
    return None


@dataclass(frozen=True)
class SimKeys:
    """What encrypts the objects with records, and lets others be read that are not encrypted."""

    takes_plain: bool = True

    def name(self, key: str) -> bytes | None:
        """An object's own."""
        return key.encode() if key.startswith("topics/") else None

    def for_new(self, _key: str) -> tuple[bytes, bytes]:
        """The only data key."""
        return b"i" * 16, b"k" * 32

    def of(self, _key_id: bytes, _key: str) -> bytes:
        """The only data key."""
        return b"k" * 32

    def has(self, key_id: bytes) -> bool:
        """Whether that is its id."""
        return key_id == b"i" * 16

    def keyed(self, text: str) -> str:
        """A digest under a key."""
        return hashlib.sha256(f"own key {text}".encode()).hexdigest()


class _Alone:
    """A store of one object."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def open(self, _key: str) -> BinaryIO:
        return io.BytesIO(self._body)


def _decrypted(key: str, body: bytes) -> bytes:
    below = cast("Store", _Alone(body))
    with EncryptedStore(below, SimKeys()).open(key) as content:
        return content.read()


@lru_cache(20_000)
def decode(key: str, body: bytes) -> tuple[Row, ...] | None:
    if is_side(key):
        return ()
    if body.startswith(MAGIC):
        try:
            body = _decrypted(key, body)
        except CorruptObjectError:  # it is not in its own place
            return None
    values = _values(key, body)
    if values is not None:
        return tuple(
            Row(int(named(value).split(b"/")[2]), -1, NO_TYPE, None, value, ()) for value in values
        )
    try:
        if key.endswith(".log.zst"):
            found = LogFormat().read(io.BytesIO(body), View.RECORD, ".log.zst", FormatOptions())
            return tuple(row for some in found for row in to_rows(some))
        return tuple(to_rows(_read(body)))
    except (pa.ArrowInvalid, OSError, KeyError, CorruptObjectError):
        return None


def _said(key: str, body: bytes) -> Iterator[GapKept | Entered]:
    """What an object of kbackup's own says of objects, and of records that expired."""
    words = key.split("/")
    if words[:2] == ["_kbackup", "gaps"]:
        gap = json.loads(body)
        where = TopicPartition(source_name(gap["topic"]), gap["partition"])
        yield GapKept(where, gap["start"], gap["end"])
    elif words[:2] == ["_kbackup", "ledger"] and words[3] == "objects":
        for row in _read(body, ["kind", "partition", "first", "last", "key"]).to_pylist():
            if row["kind"] == "gap":
                where = TopicPartition(source_name(words[4]), row["partition"])
                yield GapKept(where, row["first"], row["last"] + 1)
            elif row["kind"] == "object" and not key.endswith(".snapshot.parquet"):
                yield Entered(row["key"])


class Bucket:
    """The objects, and what people do to them.

    Attributes:
        late: PUTs without an answer that may still land.
        is_encrypted: Whether kbackup encrypts objects.
    """

    def __init__(self, history: list[Event], clock: Clock, kafka: Kafka) -> None:
        self.history, self.clock, self.kafka = history, clock, kafka
        self.objects: dict[str, Held] = {}
        self._keys: list[str] = []
        self.late: list[tuple[datetime, Callable[[], Any]]] = []
        self.bodies: set[bytes] = set()
        self.is_encrypted = False

    def put(
        self,
        key: str,
        body: bytes,
        metadata: Mapping[str, str],
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        by: str = "kbackup",
    ) -> bool:
        """Store an object, unless a condition says no."""
        sha256 = hashlib.sha256(body).hexdigest()
        there = self.objects.get(key)
        if if_absent and there is not None:
            return there.head.etag == sha256
        if if_match is not None and (there is None or there.head.etag != if_match):
            return there is not None and there.head.etag == sha256
        facts = {**metadata, **({"sha256": sha256} if by == "kbackup" else {})}
        if there is None:
            insort(self._keys, key)
        self.objects[key] = Held(body, ObjectHead(len(body), self.clock.right, sha256, facts))
        self.bodies.add(body)
        if key.startswith("topics/"):
            self.history.append(Stored(key, decode(key, body), by, len(body)))
        if by == "kbackup":
            self.history.append(Touched("object", key))
            self.history += _said(key, body)
        return True

    def delete(self, key: str, by: str = "kbackup") -> None:
        """Remove an object."""
        if self.objects.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]
            self.history.append(Removed(key, by))

    def land(self, rng: Random, chance: float) -> None:
        """Let PUTs arrive that were under way for long."""
        for entry in [entry for entry in self.late if rng.random() < chance]:
            self.late.remove(entry)
            began, put = entry
            if self.clock.right - began < LATE:
                put()

    def keys(self, prefix: str, after: str = "") -> Iterator[str]:
        """Keys with a prefix, sorted, from the first one past *after* on."""
        at = bisect_right(self._keys, after) if after else bisect_left(self._keys, prefix)
        return takewhile(lambda key: key.startswith(prefix), islice(self._keys, at, None))

    def data_keys(self) -> list[str]:
        """Keys of the objects with records."""
        return list(self.keys("topics/"))


@dataclass(frozen=True)
class SimStoreSettings:
    """The way of one process to the bucket; opens a store as `StoreSettings` does."""

    bucket: Bucket
    process: Process
    url: str = "s3://lake"
    wrapper: None = None
    is_secret: bool = False

    def open(self) -> Store:
        """The store."""
        store = SimStore(self.bucket, self.process)
        return EncryptedStore(store, SimKeys()) if self.bucket.is_encrypted else store


class SimStore:
    """A `Store`."""

    def __init__(self, bucket: Bucket, process: Process) -> None:
        self._bucket, self._process = bucket, process

    @staticmethod
    def check_url(url: str) -> None:
        """Accept any."""

    def put(
        self,
        key: str,
        body: BinaryIO,
        *,
        sha256: str,
        metadata: Mapping[str, str],
        if_absent: bool = False,
        if_match: str | None = None,
    ) -> bool:
        body.seek(0)
        data = body.read()
        process, bucket = self._process, self._bucket
        if key.startswith("topics/"):
            process.sent.update((partition_of(key), row.offset) for row in decode(key, data) or ())

        def act() -> bool:
            if key.startswith("topics/"):
                leave_behind(bucket.kafka, process, partition_of(key))
            return bucket.put(key, data, metadata, if_absent=if_absent, if_match=if_match)

        try:
            fault = process.request("PUT")
        except KilledError as killed:
            if killed.is_now and process.rng.random() < 0.5:
                bucket.late.append((bucket.clock.right, act))  # it was on its way
            raise
        if process.script.is_slow and key.startswith("topics/") and not if_absent:
            fault = "late"
        if fault == "late":
            bucket.late.append((bucket.clock.right, act))
        if fault in ("fail", "late"):
            raise StoreError(f"PUT {key}", "503 by the script", "")
        done = act()
        if fault == "lost":
            raise StoreError(f"PUT {key}", "the answer was lost by the script", "")
        return done

    def _ask(self, kind: str, key: str) -> None:
        if self._process.request(kind) != "ok":
            raise StoreError(f"{kind} {key}", "503 by the script", "")

    def open(self, key: str) -> BinaryIO:
        self._ask("GET", key)
        found = self._bucket.objects.get(key)
        if found is None:
            raise ObjectNotFoundError(key, "no such object", key=key)
        return io.BytesIO(found.body)

    def list(self, prefix: str, *, after: str = "", **_: Any) -> Iterator[StoredObject]:
        if prefix.startswith("topics/"):
            self._bucket.history.append(Listed(self._process.name))
        while True:
            self._ask("LIST", prefix)
            keys = list(islice(self._bucket.keys(prefix, after), PAGE + 1))
            for key in keys[:PAGE]:
                head = self._bucket.objects.get(key)
                if head is not None:
                    size, etag = head.head.size, head.head.etag
                    yield StoredObject(key, size, head.head.modified, etag)
            if len(keys) <= PAGE:
                return
            after = keys[PAGE - 1]

    def head(self, key: str) -> ObjectHead | None:
        self._ask("HEAD", key)
        found = self._bucket.objects.get(key)
        return None if found is None else found.head

    def delete(self, key: str) -> None:
        self._ask("DELETE", key)
        self._bucket.delete(key)
