"""Copy the objects of one store into another one, byte for byte, and compare them.

Below whatever stands around a store: what is encrypted stays so, under the same key, and is read
with the same keys.  Nothing is replaced but by what holds all of its records: a sink that was
killed may have stored an object again, with more of them.
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import BinaryIO, Final

from kbackup.catalog.ledger.rows import Entry
from kbackup.catalog.ledger.stream import folder
from kbackup.catalog.listing import FileSet, earlier_of
from kbackup.errors import (
    CorruptObjectError,
    Issue,
    ObjectNotFoundError,
    RefusedError,
    StoreError,
)
from kbackup.files import file_sha256
from kbackup.naming import Layout
from kbackup.records import Facts, TopicIdentity
from kbackup.stores import Copies, ObjectHead, Store, at_versions, metadata_of


class Outcome(StrEnum):
    """What became of one object."""

    SENT = "sent"
    """It is there now."""
    THERE = "there"
    """It was there already."""
    LOST = "lost"
    """The source does not have it, or not as it was stored: nobody could copy it."""
    REFUSED = "refused"
    """Something else is there under its key."""


@dataclass(frozen=True, slots=True)
class Copied:
    """One object: what became of it, its *size* if it is there now, and *why* if that is wrong."""

    key: str
    outcome: Outcome
    size: int = 0
    why: Issue | None = None


def copy_if_absent(
    source: Store, target: Store, key: str, row: Entry | None = None, *, is_there: bool
) -> Copied:
    """Bring one object into *target*, unless it is there.

    *row* is what the ledger says was stored, if it says anything; *is_there* says whether a listing
    of *target* has shown something under the key.
    """
    there = target.head(key) if is_there else None
    said = source.head(key) if there is not None else None
    if there is not None and said is not None and _is_same(source, target, key, said, there):
        return Copied(key, Outcome.THERE, there.size)
    if there is None and isinstance(target, Copies):
        found = target.copy_from(source, key, lambda said: _is_right(row, said["sha256"], said))
        if found is not None:
            return Copied(key, Outcome.SENT, found.size)
    sent = _sent(source, target, key, row)
    if sent.outcome is Outcome.LOST and row is not None:
        with suppress(StoreError):  # then it is as lost as it looks
            for stored in earlier_of(source, [row]).values():
                return _sent(at_versions(source, {key: stored.version}), target, key, row)
    return sent


def _sent(source: Store, target: Store, key: str, row: Entry | None) -> Copied:
    """Send an object through this host."""
    try:
        body = source.open(key)
    except (ObjectNotFoundError, CorruptObjectError) as error:
        return Copied(key, Outcome.LOST, why=error.issue().at(key=key))
    with body:
        sha256, metadata = _said_of(source, key, body)
        size = body.seek(0, io.SEEK_END)
        if not _is_right(row, sha256, metadata):
            why = "it is not the object that was stored: its sha256 differs"
            do = "kbackup restore verify says how to store it again"
            return Copied(key, Outcome.LOST, why=CorruptObjectError(key, why, do, key=key).issue())
        facts = {name: text for name, text in metadata.items() if name != "sha256"}
        if target.put(key, body, sha256=sha256, metadata=facts, if_absent=True):
            return Copied(key, Outcome.SENT, size)
        there = target.head(key)
        if (
            there is not None
            and _holds_all({**facts, "sha256": sha256}, there.metadata)
            and target.put(key, body, sha256=sha256, metadata=facts, if_match=there.etag)
        ):
            return Copied(key, Outcome.SENT, size)
    why = "something else is stored there under this key, and stays"
    do = "copy to another bucket, or find out what it is and move it away"
    return Copied(key, Outcome.REFUSED, why=RefusedError(key, why, do, key=key).issue())


def _said_of(source: Store, key: str, body: BinaryIO) -> tuple[str, Mapping[str, str]]:
    """Return the sha256 of an object that was opened, and its metadata."""
    metadata = metadata_of(body)
    if metadata is not None and "sha256" in metadata:
        return metadata["sha256"], metadata  # which the store has compared
    head = source.head(key) if metadata is None else None
    return file_sha256(body).hex(), metadata or ({} if head is None else head.metadata)


def _is_same(source: Store, target: Store, key: str, said: ObjectHead, there: ObjectHead) -> bool:
    """Whether both stores hold the same bytes; what says no sha256 is read."""
    return said.size == there.size and _sha256(source, key, said) == _sha256(target, key, there)


def _sha256(store: Store, key: str, head: ObjectHead) -> str | None:
    said = head.metadata.get("sha256")
    if said is not None:
        return said
    try:
        with store.open(key) as body:
            return file_sha256(body).hex()
    except (ObjectNotFoundError, CorruptObjectError):
        return None


def _is_right(row: Entry | None, sha256: str, metadata: Mapping[str, str]) -> bool:
    """Whether an object is what *row*, if any, says was stored, or that one grown."""
    if row is None or row.sha256 in (None, sha256):
        return True
    stored = row.facts
    return stored is not None and stored.has_grown(Facts.from_metadata(metadata))


def _holds_all(now: Mapping[str, str], before: Mapping[str, str]) -> bool:
    """Whether an object holds all records of another one, of the same topic."""
    was, facts = Facts.from_metadata(before), Facts.from_metadata(now)
    identity = TopicIdentity.from_metadata(now)
    if was is None or facts is None or identity.conflicts(TopicIdentity.from_metadata(before)):
        return False
    # a sink may have stored it again with more; a repair the same records, in other bytes
    is_same = was.digest is not None and replace(was, sha256=facts.sha256) == facts
    return was.has_grown(facts) or (is_same and was.digest == facts.digest)


def in_order(sets: Sequence[FileSet]) -> Iterator[str]:
    """Yield the keys of a partition's objects in an order that every part of which is a backup.

    Sets by their offsets, as a sink stores them; in a set siblings come first, then the index: the
    values mark it as complete.
    """
    for files in sets:
        *siblings, main = [file.key for file in reversed(files.files)]
        yield from siblings
        if files.index is not None:
            yield files.index
        yield main


BEFORE: Final = ("schemas",)
"""Folders of what objects need to be read: listed after objects, sent before them."""

AFTER: Final = ("groups", "cluster", "restores")
"""Folders of what relies on objects: listed before objects, sent after them."""

_APPLIED: Final = "/applied/"
"""What a restore has set in its target, and may set again: no part of the backup."""

_OF_PLACE: Final = ("sink copy", "sink expire", "restore verify")
"""The commands whose run records are about one bucket, and no backup."""

_RUNS_COMPARED: Final = 64
"""Of so many of the newest run records more than size is compared: a run may still be writing."""


@dataclass(frozen=True, slots=True)
class CopiedEvidence:
    """Files below ``_kbackup/`` that are copied one by one.

    In the order of sending, *keys* are of what is not *there*, or may be another.
    """

    keys: Sequence[str]
    there: frozenset[str]


def evidence(
    source: Store,
    target: Store,
    layout: Layout,
    names: Sequence[str],
    is_asked: Callable[[str], bool],
) -> CopiedEvidence:
    """Return the files of folders of a backup, of each of which one name has one content.

    Of schemas only those of topics that *is_asked* names.
    """
    wanted: list[str] = []
    there: set[str] = set()
    for name in names:
        prefix = folder(layout, name)
        old = {one.key: one.size for one in target.list(prefix)}
        for one in source.list(prefix):
            below = one.key.removeprefix(prefix)
            if name == "schemas" and not is_asked(below.partition("/")[0]):
                continue
            if _APPLIED not in one.key and old.get(one.key) != one.size:
                wanted.append(one.key)
        there |= old.keys()
    return CopiedEvidence(wanted, frozenset(there))


def run_records(source: Store, target: Store, layout: Layout) -> CopiedEvidence:
    """Return the run records that are not there, or may have been written again since."""
    prefix = layout.runs_prefix()
    old = {one.key: one.size for one in target.list(prefix)}
    every = [
        one
        for one in source.list(prefix)
        if not any(layout.is_run_of(one.key, command) for command in _OF_PLACE)
    ]
    newest = {one.key for one in every[-_RUNS_COMPARED:]}
    wanted = [one.key for one in every if one.key in newest or old.get(one.key) != one.size]
    return CopiedEvidence(wanted, frozenset(old))


def copy_run_record(source: Store, target: Store, key: str, *, is_there: bool) -> Copied:
    """Bring a run record, which its run may have written again, or the id of the backup."""
    found = copy_if_absent(source, target, key, is_there=is_there)
    if found.outcome is not Outcome.REFUSED:
        return found
    there = target.head(key)
    if there is None:
        return found
    with source.open(key) as body:
        sha256, size = file_sha256(body).hex(), body.tell()
        is_done = target.put(key, body, sha256=sha256, metadata={}, if_match=there.etag)
    return Copied(key, Outcome.SENT, size) if is_done else found
