"""Plans one partition of a backup: what of it is asked for, and what of that is left to do."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kbackup.backup.file_sets import FileSet
from kbackup.backup.window import Window
from kbackup.config import Settings
from kbackup.errors import KbackupError
from kbackup.records import TopicPartition
from kbackup.restore.job import RestoreUnit
from kbackup.restore.planning import soundness
from kbackup.restore.planning.inventory import Inventory
from kbackup.restore.planning.lanes import Lanes
from kbackup.restore.planning.routing import routed_from
from kbackup.restore.planning.shares import Shares
from kbackup.restore.remaining import remaining


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """What one partition adds to the plan of its topic.

    Attributes:
        sets: What of the backup is asked for.
        unit: What of it a task has to do; None for nothing.
        records: Records in *sets*; None where that is not known before they are read.
        refusals: Why nothing may be written.
        warnings: Codes and sentences.
    """

    sets: Sequence[FileSet]
    unit: RestoreUnit | None
    records: int | None
    refusals: Sequence[KbackupError]
    warnings: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class PartitionPlanner:
    """Plans partitions one by one.

    Attributes:
        settings: The configuration.
        inventory: What the backup holds.
        window: Which of the records are asked for.
        shares: Which topics the transforms choose, where they choose one for each record.
    """

    settings: Settings
    inventory: Inventory
    window: Window
    shares: Shares | None

    def plan(
        self, where: TopicPartition, target: str, lanes: Lanes, max_message_bytes: int | None
    ) -> PlannedPartition:
        """Return what a partition adds to the plan of one topic.

        Args:
            where: The partition of the backup.
            target: The topic that is written to.
            lanes: Its partitions, and where the restore stands in them.
            max_message_bytes: Largest record that it takes; None for what the broker says.
        """
        facts = self.inventory.facts
        found = self.inventory.covered(where)
        sets = found.sets
        share = None if self.shares is None else self.shares.of(where, target)
        bookmark = lanes.standing(where).bookmark
        mark = None if bookmark is None else bookmark.of
        begun = None if mark is None or mark.total == 0 else mark
        reads_all = share is None or share.counts_rest or (begun is not None and begun.is_all)
        if share is not None and not reads_all:
            sets = self.inventory.among(where, share.sets)
        warnings: list[tuple[str, str]] = []
        refusals = found.refusals()
        if share is None or share.counts_rest:
            warnings += found.warnings()
        records = self.inventory.records(where, sets) if share is None else share.records
        if not self.window.is_everything:
            records = None  # not known before they are read
            refusals += soundness.indivisible(where, sets, self.window, facts)
            sets = [files for files in sets if self.window.takes(files, facts(files))]
        own = None if share is None else share.sets
        left = remaining(self.inventory.facts_of_begun, sets, mark, self.inventory.cut_of, own)
        if left.refusal is not None:
            refusals.append(left.refusal)
        unit = None
        if left.sets:
            unit = lanes.unit(
                where,
                tuple(self.inventory.digested(files) for files in left.sets),
                first_offset=sets[0].start_offset,
                before=left.before,
                max_message_bytes=max_message_bytes,
                window=self.window,
            )
        if unit is not None and share is not None:
            unit = replace(
                unit, routed_from=routed_from(self.settings, where.topic),
                counts_rest=share.counts_rest,
            )  # fmt: skip
            if begun is None:
                unit = unit.reading(is_all=reads_all)
        return PlannedPartition(sets, unit, records, refusals, warnings)
