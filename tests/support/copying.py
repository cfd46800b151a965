"""What `verify` says of a backup as the command does, with all that was written down beside it."""

from datetime import UTC, datetime

from kbackup.catalog import groups, identity
from kbackup.catalog.schemas import SchemaIndex
from kbackup.clock import SystemClock
from kbackup.naming import Layout
from kbackup.pipeline.views import ReadOptions
from kbackup.runs import known, locks
from kbackup.runs.report import Summary
from kbackup.stores import Store
from kbackup.verify.run import Notes, verify


def verified(store: Store, layout: Layout) -> Summary:
    """Return the summary of a shallow verify."""
    clock, summary = SystemClock(), Summary("r", "restore verify")
    notes = Notes(
        known.read(store, layout, clock),
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
