"""Consumer groups: where they stood, and runs that set them beside a copy."""

from collections.abc import Sequence
from typing import Any

from backup_samples import RECORD, Backup

from kbackup.catalog.groups import GROUPS, GroupEntry, group_stream
from kbackup.catalog.ledger.rows import table
from kbackup.catalog.translated import TranslatedEntry, TranslationLog
from kbackup.clock import Clock, SystemClock
from kbackup.errors import KbackupError
from kbackup.events import Ended
from kbackup.pipeline.views import ViewSpec
from kbackup.restore import transaction
from kbackup.restore.groups import GroupsOptions, GroupsRun
from kbackup.runs.position import RestorePosition
from kbackup.runs.report import Summary
from tests.support.target import COPY, FakeTarget, Grouped, Restoring

CLOCK = SystemClock()


def capture(
    backup: Backup, taken: int = 1, protocol_type: str | None = None, clock: Clock = CLOCK, /,
    **stood: int | Sequence[int | None],
) -> None:  # fmt: skip
    """Store where groups stood in orders: in partition 0, or in each, None for nowhere."""
    rows = [GroupEntry("topic", taken, "orders", "", "", is_complete=True, run="s", counter=1)]
    rows += [
        GroupEntry("offset", taken, "orders", group=group, partition=at, offset=offset,
                   metadata=b"m", run="s", counter=1, protocol_type=protocol_type)
        for group, each in stood.items()
        for at, offset in enumerate([each] if isinstance(each, int) else each)
        if offset is not None
    ]  # fmt: skip
    group_stream(backup.store, backup.layout, clock).append(table(rows, GROUPS))


def restored(
    *sets: Sequence[int], cluster: FakeTarget | None = None,
    views: tuple[ViewSpec, ...] = RECORD, lacks_rows: bool = False, **options: Any,
) -> Restoring:  # fmt: skip
    """A backup that was restored."""
    of = Restoring(cluster=cluster or FakeTarget())
    of.backup.put("orders", 0, *sets, views=views)
    of.restore(**options)
    if lacks_rows:
        of.keep_rows()
    return of


def grouped(**stood: int) -> Restoring:
    """A restored topic of ten records, and a capture of where groups stood in it."""
    of = restored(range(10), cluster=Grouped())
    capture(of.backup, **stood)
    return of


def groups_run(
    of: Restoring, summary: Summary | None = None, *, by_time: bool = False, **options: Any
) -> GroupsRun:
    """A run of ``restore groups``."""
    kafka: Any = of.cluster
    summary = summary or Summary("r", "restore groups")
    return GroupsRun(of.settings(**options), kafka, of.store, CLOCK, summary, by_time=by_time)


def set_groups(of: Restoring, *names: str, **options: Any) -> tuple[Ended, list[Any]]:
    """Run the command; how it ended, and what it told."""
    summary = Summary("r", "restore groups")
    asked = GroupsOptions(names, options.pop("pattern", None), options.pop("renamed", None))
    try:
        told = [*groups_run(of, summary, **options).set(asked)]
    except KbackupError as error:
        summary.fail(error)
        told = []
    return summary.finish(), told


def rows_beside(of: Restoring) -> list[TranslatedEntry]:
    """The rows of translation beside the position, as they are stored."""
    (group,) = of.cluster.groups
    read = RestorePosition.read(COPY, of.cluster.groups[group][COPY])
    assert read is not None
    return transaction.translated(COPY, read[0])


def store_rows(of: Restoring, rows: Sequence[TranslatedEntry]) -> None:
    """Store rows of translation."""
    (group,) = of.cluster.groups
    TranslationLog(of.store, of.backup.layout, group, CLOCK).append(COPY.topic, rows)


def forgotten(of: Restoring, lacking: int | None = None) -> None:
    """Let Kafka forget the position, with the rows stored, as a restore stores them at its end."""
    rows = rows_beside(of)
    if lacking is not None:
        del rows[lacking]
    store_rows(of, rows)
    (positions,) = of.cluster.groups.values()
    del positions[COPY]
