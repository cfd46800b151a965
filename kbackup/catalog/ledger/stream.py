"""Append to and read a stream: a folder of small files to which any process may append.

A snapshot holds every row of the parts whose time is at most its *watermark*, which its name
carries, and of those newer ones that it names.  So a reader lists until it has passed the
watermark of the newest snapshot, and opens that and the parts that it does not hold.

Nothing is ever replaced, nor deleted but by `Stream.purge`, and no writer waits for another.  A
file's time is that of its writer's clock or, where files are there that are named later, just after
theirs: so it is also a counter, which each row carries, and what was written by a host whose clock
is behind still comes after what its writer could see.

What keeps a part from being overlooked is this: a snapshot's watermark is `GRACE_MS` before the
listing it was made from and before the newest part in it, and an append is good only if its file
was there half of that after it was named, else it is made again under a new name.  That leaves the
other half for clocks of writers that cannot see each other's files yet.

::

    8204999999999-5f3a9c1e2b7d4a60.parquet                          a part: rows of one append
    8204999999000-0c11d2aa93e8b754.1795000001000.snapshot.parquet   all that was there before

A name begins with the time it was made, counted downwards, so that the newest file is listed
first.
"""

import hashlib
import io
import json
import logging
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kbackup import __version__
from kbackup.catalog.ledger.rows import OBJECTS, TOPICS, StreamForm
from kbackup.clock import Clock
from kbackup.errors import (
    CorruptObjectError,
    Issue,
    NewerVersionError,
    ObjectNotFoundError,
    StoreError,
    is_of_memory,
)
from kbackup.naming import Layout
from kbackup.records import replaced
from kbackup.stores import Store, side_by_side
from kbackup.stores.encrypted import check_open

VERSION: Final = 1
"""Of the files; a reader refuses a later one."""

_TOP: Final = 9_999_999_999_999
_NAME: Final = re.compile(
    r"(?P<down>\d{13})-[0-9a-f]{16}(?:\.(?P<watermark>\d{13})\.snapshot)?\.parquet", re.ASCII
)
_PART_CODEC: Final = "snappy"
_SNAPSHOT_CODEC: Final = "zstd"
"""In a column of a few rows, zstd's frames cost more bytes than it saves, and half the time."""

_VERSION_KEY: Final = b"kbackup.ledger"
_WRITER_KEY: Final = b"kbackup.version"


@dataclass(frozen=True, slots=True)
class Name:
    """A file's name, in parts; *watermark* is None for a part."""

    text: str
    time_ms: int
    watermark: int | None

    @classmethod
    def parse(cls, text: str) -> "Name | None":
        """Return the parts of a file's name; None if it is foreign."""
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        watermark = match["watermark"]
        return cls(text, _TOP - int(match["down"]), None if watermark is None else int(watermark))


def stamped(rows: pa.Table, counter: int) -> pa.Table:
    """Return *rows* with *counter*."""
    return replaced(rows, "counter", pa.repeat(pa.scalar(counter, pa.int64()), len(rows)))


def new_name(time_ms: int, watermark: int | None = None) -> str:
    """Return a name that no other file has: of a snapshot with a watermark, of a part without."""
    snapshot = "" if watermark is None else f".{watermark:013d}.snapshot"
    return f"{_TOP - time_ms:013d}-{secrets.token_hex(8)}{snapshot}.parquet"


def encoded(
    rows: pa.Table,
    schema: pa.Schema,
    metadata: Mapping[bytes, str],
    *,
    is_snapshot: bool = False,
) -> bytes:
    """Return the bytes of a file that holds *rows*, cast to *schema*, and *metadata*."""
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        schema,
        compression=_SNAPSHOT_CODEC if is_snapshot else _PART_CODEC,
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    ) as writer:  # fmt: skip  (half the bytes of a part would be what is left out)
        writer.write_table(_as(rows, schema))
        writer.add_key_value_metadata(
            {_VERSION_KEY: str(VERSION), _WRITER_KEY: __version__, **metadata}
        )
    return sink.getvalue()


def parsed(key: str, body: bytes, form: StreamForm) -> tuple[pa.Table, dict[bytes, bytes]]:
    """Return the rows of a file, of the columns of its *form*, and its metadata.

    One of a later version raises `NewerVersionError`; a damaged one `ArrowException`, `OSError`,
    `KeyError` or `ValueError`.
    """
    file, schema = pq.ParquetFile(pa.BufferReader(body), pre_buffer=False), form.schema
    metadata = file.metadata.metadata or {}
    if (found := int(metadata[_VERSION_KEY])) > VERSION:
        writer = metadata.get(_WRITER_KEY, b"").decode(errors="replace")
        raise NewerVersionError.of(key, found, VERSION, writer, form.forged, key=key)
    is_ours = file.schema_arrow.equals(schema)
    rows = file.read(columns=None if is_ours else schema.names, use_threads=False)
    rows.validate(full=True)  # that texts are UTF-8
    if is_ours:
        return rows, metadata
    for later in schema:
        if later.nullable and later.name not in rows.column_names:  # an earlier version wrote it
            rows = rows.append_column(later, pa.nulls(len(rows), later.type))
    return _as(rows.select(schema.names), schema), metadata


def damaged(key: str, error: Exception) -> CorruptObjectError:
    """Return the error of a file that cannot be read, with the first line of why."""
    why = str(error).splitlines() or [repr(error)]
    return CorruptObjectError(key, f"it is damaged: {why[0]}", key=key)


def _as(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return *rows* as they are where they fit already: a cast looks at each column."""
    return rows if rows.schema.equals(schema) else rows.cast(schema)


_log: Final = logging.getLogger(__name__)

GRACE_MS: Final = 3_600_000
"""How far a snapshot's watermark is behind; half for slow writes, half for wrong clocks."""

FOLD_AT: Final = 64
"""How many parts a reader may have to open before they are folded."""

_REBUILD: Final = "kbackup sink reindex rebuilds it"

_TRIES: Final = 5
_HOLDS_KEY: Final = b"kbackup.holds"
_DAMAGED_KEY: Final = b"kbackup.damaged"


def unreadable(key: str, why: str, do: str = _REBUILD) -> Issue:
    """Return what is wrong where *key* of the ledger, a file or its folder, cannot be read."""
    return Issue("ledger_damaged", key, why, do)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a stream holds, which of its files are lost, and how many *loose* parts were opened."""

    rows: pa.Table
    damage: tuple[Issue, ...] = ()
    loose: int = 0


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The snapshot a reader begins with; the empty one where there is none."""

    rows: pa.Table
    watermark: int = -1
    holds: frozenset[str] = frozenset()
    damage: tuple[Issue, ...] = ()


@dataclass(frozen=True, slots=True)
class _Look:
    """What one listing showed, and what the files in it hold."""

    contents: Contents
    watermark: int
    newer: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream, as its readers, writers and folders see it, in the folder *prefix*."""

    store: Store
    prefix: str
    form: StreamForm
    clock: Clock

    def append(self, rows: pa.Table) -> None:
        """Add rows, all at once; when this returns, every later reader sees them.

        `StoreError` says that they cannot be stored, or never in time.
        """
        self._append(lambda counter: (counter, stamped(rows, counter)))

    def adopt(self, there: pa.Table, hidden: pa.Table | None = None) -> pa.Table:
        """Add the rows of a stream that this one is a copy of; each keeps its counter.

        All are seen at once, or none.  What is written here afterwards follows them, as it would
        there.  Returns those that say more than is here already.

        Args:
            hidden: Rows that come into the file with them, whether or not they count.
        """
        here = self.read().rows
        known = {*_texts(here)}
        every = self.form.merged(pa.concat_tables([here, there]))
        new = every.filter(pa.array([text not in known for text in _texts(every)], pa.bool_()))
        if len(new):
            last = pc.max(new["counter"]).as_py() or 0
            added = new if hidden is None else pa.concat_tables([new, hidden])
            self._append(lambda counter: (max(counter, last), added))
        return new

    def _append(self, make: Callable[[int], tuple[int, pa.Table]]) -> None:
        """Write a part: *make* takes a counter, and returns that of the name, and the rows."""
        for _ in range(_TRIES):
            wall, steady = self.clock.ms(), self.clock.steady_s()
            counter, rows = make(self._next(wall))
            body = encoded(rows, self.form.schema, {})
            self._put(new_name(counter), body)
            took_ms = max(self.clock.ms() - wall, (self.clock.steady_s() - steady) * 1000)
            if took_ms <= GRACE_MS / 2:
                return
            _log.warning("%s: a write took %.0f s; repeating it", self.prefix, took_ms / 1000)
        raise StoreError(
            f"{self.prefix} cannot be written in time",
            f"{_TRIES} writes of {len(body)} bytes took more than {GRACE_MS // 2000} s each",
            "check the store, and what pauses this process",
        )

    def read(self) -> Contents:
        """Return what the stream holds.

        Costs one listing, of as many pages as files were written since the last fold or in the
        last hour, and a read of the newest snapshot and of each part beside it.
        """
        found = self._look(self._names()).contents
        if found.damage and self.form.is_purged:  # what is purged is held by a newer snapshot
            found = self._look(self._names()).contents
        return found

    @property
    def is_empty(self) -> bool:
        """Whether there is no file."""
        return next(self._names(), None) is None

    def superseded(self) -> pa.Table:
        """Return the rows of all files that are there, those that count no more too."""
        found = side_by_side(self._part, [*self._names()])
        tables = (one for one in found if not isinstance(one, Issue))
        return pa.concat_tables([self.form.schema.empty_table(), *tables])

    def files_with(self, column: str, value: str) -> list[str]:
        """Return the keys of the files that hold a row with *value* in *column*."""
        names = [*self._names()]
        return [
            self.prefix + name.text
            for name, found in zip(names, side_by_side(self._part, names), strict=True)
            if not isinstance(found, Issue) and value in found[column].to_pylist()
        ]

    def check_version(self) -> None:
        """Read the newest file; what a later version has written raises `NewerVersionError`."""
        newest = next(self._names(), None)
        if newest is not None:
            self._part(newest)  # damage is for readers to say

    def read_if_new(self, seen: Collection[str]) -> tuple[Collection[str], Contents] | None:
        """Return what to give as *seen* the next time, and the contents; None if nothing is new.

        *seen* is empty at first.  Costs one listing, and nothing more if there is nothing new.
        """
        names = self._names()
        newer = [*self._to_watermark(names)]
        if (texts := {name.text for name in newer}) == seen:
            return None
        return texts, self._look(chain(newer, names)).contents

    def fold(self, at_least: int = FOLD_AT) -> bool:
        """Write a snapshot of all there is, if a reader has to open *at_least* parts beside it.

        Any number of folders may work at once: whichever snapshot is found first is right.  Returns
        whether one was written.
        """
        wall = self.clock.ms()
        if self._is_folded(at_least):
            return False
        look = self._look(self._names())
        if look.contents.loose < at_least or (self.form.is_purged and look.contents.damage):
            return False
        self._write_snapshot(look.contents.rows, look.contents.damage, look, wall)
        return True

    def rewrite(self, make: Callable[[Contents], pa.Table]) -> None:
        """Write a snapshot of the rows that *make* returns: what was there before counts no more.

        What is appended meanwhile still counts.
        """
        wall = self.clock.ms()
        look = self._look(self._names())
        self._write_snapshot(make(look.contents), (), look, wall)

    def purge(self) -> None:
        """Write a snapshot of all there is, and delete the files that were there.

        One that cannot be read, as while another one purges, raises `CorruptObjectError`.
        """
        wall, names = self.clock.ms(), [*self._names()]
        look = self._look(iter(names))
        for issue in look.contents.damage:
            raise CorruptObjectError(issue.what, issue.why, "run the command again", key=issue.what)
        self._write_snapshot(look.contents.rows, (), look, wall)
        side_by_side(lambda name: self.store.delete(self.prefix + name.text), names)

    def _write_snapshot(
        self, rows: pa.Table, damage: Sequence[Issue], look: _Look, wall: int
    ) -> None:
        newest = max((name.time_ms for name in look.newer if name.watermark is None), default=0)
        watermark = max(_watermark(wall, newest), look.watermark, 0)
        holds = [name.text for name in look.newer if name.time_ms > watermark]
        metadata = {
            _HOLDS_KEY: json.dumps(holds),
            _DAMAGED_KEY: json.dumps([[one.what, one.why] for one in damage]),
        }
        body = encoded(self.form.merged(rows), self.form.schema, metadata, is_snapshot=True)
        self._put(new_name(max(self._next(self.clock.ms()), watermark), watermark), body)

    def _next(self, wall: int) -> int:
        """Return the time to name a file by: later than those of all files that are there."""
        newest = next(self._names(), None)
        if newest is not None and newest.time_ms >= _TOP:
            raise CorruptObjectError(
                self.prefix + newest.text,
                "its name is the highest that there is, so no row can follow it",
                "move it away: kbackup did not write it",
                key=self.prefix + newest.text,
            )
        return wall if newest is None else max(wall, newest.time_ms + 1)

    def _is_believed(self, watermark: int) -> bool:
        """Whether a snapshot may be used: one from the future would hide what is yet to come."""
        return watermark <= self.clock.ms() + GRACE_MS // 2

    def _is_folded(self, at_least: int) -> bool:
        """Whether fewer parts than that came after the newest snapshot, judging by names alone."""
        newer = 0
        for name in self._names():
            if name.watermark is None:
                newer += 1
            elif self._is_believed(name.watermark):
                return True
            if newer >= at_least:
                return False
        return True

    def _to_watermark(self, names: Iterable[Name]) -> Iterator[Name]:
        """Yield names down to those that the newest snapshot holds, the first of these too."""
        watermark = -1
        for name in names:
            yield name
            if name.time_ms <= watermark:
                return
            if watermark < 0 and name.watermark is not None and self._is_believed(name.watermark):
                watermark = name.watermark

    def _look(self, names: Iterable[Name]) -> _Look:
        base: _Snapshot | None = None
        newer: list[Name] = []
        damage: list[Issue] = []
        for name in names:
            if base is not None and name.time_ms <= base.watermark:
                break
            if name.watermark is not None and not self._is_believed(name.watermark):
                continue
            if name.watermark is None or self.form.is_purged:
                newer.append(name)  # of several snapshots each may hold what was purged since
            if name.watermark is not None and base is None:
                try:
                    base = self._snapshot(name, name.watermark)
                except CorruptObjectError as error:
                    damage.append(unreadable(self.prefix + name.text, error.why))
        base = base or _Snapshot(self.form.schema.empty_table())
        loose = [name for name in newer if name.text not in base.holds]
        tables = [base.rows]
        for found in side_by_side(self._part, loose):
            if isinstance(found, Issue):
                damage.append(found)
            else:
                tables.append(found)
        rows = self.form.merged(pa.concat_tables(tables)) if loose else base.rows
        lost = {one.what: one for one in (*base.damage, *damage)}
        contents = Contents(rows, tuple(lost.values()), len(loose))
        return _Look(contents, base.watermark, tuple(newer))

    def _names(self) -> Iterator[Name]:
        """Yield what is there, the newest first; foreign files are left out."""
        for entry in self.store.list(self.prefix):
            name = Name.parse(entry.key.removeprefix(self.prefix))
            if name is not None:
                yield name

    def _part(self, name: Name) -> pa.Table | Issue:
        try:
            return self._rows(name)[0]
        except CorruptObjectError as error:
            return unreadable(self.prefix + name.text, error.why)

    def _snapshot(self, name: Name, watermark: int) -> _Snapshot:
        rows, metadata = self._rows(name)
        try:
            holds = json.loads(metadata[_HOLDS_KEY])
            told = json.loads(metadata[_DAMAGED_KEY])
            damage = tuple(unreadable(str(key), str(why)) for key, why in told)
            return _Snapshot(rows, watermark, frozenset((name.text, *holds)), damage)
        except (KeyError, ValueError, TypeError) as error:
            raise damaged(self.prefix + name.text, error) from error

    def _rows(self, name: Name) -> tuple[pa.Table, dict[bytes, bytes]]:
        """Read a file; rows of the form's columns, and the file's metadata."""
        key = self.prefix + name.text
        try:
            with self.store.open(key) as body:
                check_open(key, body)
                return parsed(key, body.read(), self.form)
        except ObjectNotFoundError as error:
            raise CorruptObjectError(key, "it has disappeared since it was listed") from error
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            if is_of_memory(error):
                raise
            raise damaged(key, error) from error

    def _put(self, name: str, body: bytes) -> None:
        digest = hashlib.sha256(body).hexdigest()
        self.store.put(self.prefix + name, io.BytesIO(body), sha256=digest, metadata={})


def _texts(rows: pa.Table) -> list[str]:
    """Return each row as a text that no other row has."""
    return [repr(row) for row in rows.to_pylist()]


def _watermark(wall_ms: int, newest_ms: int) -> int:
    return min(wall_ms, newest_ms) - GRACE_MS


def folder(layout: Layout, name: str = "ledger") -> str:
    """Return the folder of the ledger, or of what else a backup keeps; ends with ``/``."""
    digest = hashlib.sha256(layout.topics_dir.encode()).hexdigest()[:8]
    return f"{layout.records_prefix()}{name}/{digest}/"


def topics_stream(store: Store, layout: Layout, clock: Clock) -> Stream:
    """Return the stream about all topics, and about the sinks that back them up."""
    return Stream(store, f"{folder(layout)}topics/", TOPICS, clock)


def entered_topics(store: Store, layout: Layout) -> set[str]:
    """Return the topics of which there is a stream; costs a listing of all their files."""
    prefix = f"{folder(layout)}objects/"
    return {one.key.removeprefix(prefix).partition("/")[0] for one in store.list(prefix)}


def topic_stream(store: Store, layout: Layout, topic: str, clock: Clock) -> Stream:
    """Return the stream about one topic's objects."""
    return Stream(store, f"{folder(layout)}objects/{topic}/", OBJECTS, clock)
