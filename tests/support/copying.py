"""Copies of backups, and what `verify` says of one with all that was written down beside it."""

from datetime import UTC, datetime
from typing import Any

from kbackup.catalog import groups, identity
from kbackup.catalog.schemas import SchemaIndex
from kbackup.clock import SystemClock
from kbackup.formats import FormatOptions
from kbackup.naming import Layout
from kbackup.naming.renaming import ALL
from kbackup.pipeline.views import ReadOptions
from kbackup.runs import backup_state, locks
from kbackup.runs.context import Stop
from kbackup.runs.report import Summary
from kbackup.sink.copy import CopyRun
from kbackup.stores import Store
from kbackup.verify.run import Notes, verify


def copy_run(source: Store, target: Store, summary: Summary, **more: Any) -> CopyRun:
    """Return a copy of all that is in a store, if *more* says nothing else."""
    given: dict[str, Any] = {
        "layout": Layout(), "options": FormatOptions(), "asked": ALL, "clock": SystemClock(),
        "stop": Stop(), **more,
    }  # fmt: skip
    return CopyRun(source, target, summary=summary, **given)


def verified(store: Store, layout: Layout) -> Summary:
    """Return the summary of a shallow verify."""
    clock, summary = SystemClock(), Summary("r", "restore verify")
    notes = Notes(
        backup_state.read(store, layout, clock),
        locks.holders(store, layout, "sink"),
        SchemaIndex.read(store, layout),
        {},
        bool(identity.read(store, layout, "").id),
        groups.read(store, layout, clock).damage,
    )
    now = datetime.now(UTC)
    for _ in verify(store, layout, ReadOptions(), summary, now=now, notes=notes):
        pass
    return summary
