"""A backup of ``orders`` with a ledger, as a sink leaves it, and what `verify` says of it."""

import io
from collections.abc import Container
from typing import Any

from backup_samples import RECORD, Backup

from kbackup.catalog.ledger import stream
from kbackup.catalog.ledger.rows import OBJECTS, TOPICS, TopicEntry, stored, table
from kbackup.naming import View
from kbackup.pipeline.views import ReadOptions, ViewSpec
from kbackup.records import Facts, Span, TopicIdentity, TopicPartition
from kbackup.runs import backup_state
from kbackup.runs.report import Summary
from kbackup.verify.run import LedgerRepair, Notes
from tests.support.hand_clock import HandClock
from tests.support.verified import NOW, Verified

WHERE = TopicPartition("orders", 0)


ID = TopicIdentity("cluster-1", "id")


CLOCK = HandClock(NOW.timestamp() * 1000 + 10**12)


def backup_with_ledger(
    *cuts: range, views: tuple[ViewSpec, ...] = RECORD, into: Backup | None = None
) -> tuple[Backup, list[str]]:
    """A backup of ``orders`` as a sink leaves it, and its keys."""
    backup = Backup() if into is None else into
    topics = [TopicEntry("topic", "orders", "cluster-1", "id", 1, compacted=False)]
    stream.topics_stream(backup.store, backup.layout, CLOCK).append(table(topics, TOPICS))
    keys = backup.put("orders", 0, *cuts, views=views, identity=ID)
    for key, cut in zip(keys, cuts, strict=True):
        enter(backup, key, cut)
    return backup, keys


def enter(backup: Backup, key: str, cut: range, *, after_ms: int = 0) -> None:
    """Enter an object into the ledger, as its sink does when it is stored, or that much later."""
    head = backup.store.head(key)
    assert head is not None
    facts = Facts.from_metadata(head.metadata)
    assert facts is not None
    time_ms = int(head.modified.timestamp() * 1000) + after_ms
    span = Span(cut.start, cut.stop)
    view = View.RECORD if ".record." in key else View.VALUE
    row = stored(WHERE, key, view, facts, head.size, span, "r1", time_ms)
    stream.topic_stream(backup.store, backup.layout, "orders", CLOCK).append(table([row], OBJECTS))


def mending(backup: Backup) -> LedgerRepair:
    """What mends the ledger of *backup*."""
    summary = Summary("r2", "restore verify")
    return LedgerRepair(backup.store, backup.layout, ReadOptions(), summary, CLOCK)


def by_ledger(backup: Backup, *, deep: bool = False) -> Verified:
    """What a verify says of a backup, which goes by the ledger in its bucket."""
    notes = Notes(backup_state.read(backup.store, backup.layout, CLOCK))
    return Verified(backup, deep=deep, notes=notes)


def verified(backup: Backup, *, deep: bool = False) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and findings of that."""
    found = by_ledger(backup, deep=deep)
    return found.exit_code, found.findings


def damage(backup: Backup, folder: str, spare: Container[str] = ()) -> None:
    """Overwrite every file of a part of the ledger but those to spare."""
    there = [one.key for one in backup.store.list(stream.folder(backup.layout) + folder)]
    for key in (key for key in there if key not in spare):
        backup.store.put(key, io.BytesIO(b"no Parquet"), sha256="", metadata={})
