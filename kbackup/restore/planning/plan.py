"""What a restore would write where: plain data, made by `planner`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kbackup.errors import KbackupError, RefusedError
from kbackup.events import RestoreTopic, TopicPlanned
from kbackup.records import Span, TopicPartition
from kbackup.restore.job import RestoreUnit
from kbackup.restore.planning.safety import Intent, Target


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """One topic's restore.

    Attributes:
        intent: From where to where.
        target: The target as it stands.
        units: What tasks have to do.
        action: ``create``, ``append``, ``resume``, ``done`` or ``refuse``.
        config: Settings of a topic to create.
        refusals: Why nothing may be written.
        warnings: Codes and sentences.
        objects: Number of objects.
        records: Number of records in them, None if names and run records do not show it.
        stored_bytes: Bytes of the objects.
        partitions: How many the target has, is created with, or is given by this restore.
        beginnings: Where partitions share targets: units of which only the beginning is committed,
            all of them before the first record is written.
    """

    intent: Intent
    target: Target
    units: tuple[RestoreUnit, ...]
    action: str
    config: Mapping[str, str]
    refusals: tuple[KbackupError, ...]
    warnings: tuple[tuple[str, str], ...]
    objects: int
    records: int | None
    stored_bytes: int
    partitions: int
    beginnings: tuple[RestoreUnit, ...] = ()

    @property
    def adds(self) -> bool:
        """Whether records would be added to those of somebody else."""
        return self.action == "append" and self.target.records > 0

    @property
    def grows(self) -> bool:
        """Whether partitions are added to the target."""
        had = self.target.partitions
        return self.action != "refuse" and had is not None and had < self.partitions

    def event(self) -> TopicPlanned:
        """Return the plan's line of this topic."""
        retention_ms = self.config["retention.ms"] if self.action == "create" else None
        own = RestoreTopic(
            self.target.partitions, self.objects, self.records, self.stored_bytes, retention_ms
        )
        return TopicPlanned(
            self.intent.source, self.intent.target, self.action, self.intent.partitions,
            self.refusals[0] if self.refusals else None, own,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore would do.

    Attributes:
        topics: One entry a topic.
        group: The consumer group that keeps the positions.
        spans: What each target partition holds before the restore.
    """

    topics: tuple[PlannedTopic, ...]
    group: str
    spans: Mapping[TopicPartition, Span]

    @property
    def refusals(self) -> list[KbackupError]:
        """All reasons not to begin; if there is any, nothing runs."""
        return [error for topic in self.topics for error in topic.refusals]

    @property
    def groups(self) -> list[str]:
        """The groups that keep positions: the restore's, or one for each partition of a backup."""
        beginnings = (unit for topic in self.topics for unit in topic.beginnings)
        own = {unit.group for unit in (*self.units(), *beginnings)}
        return sorted(self.group if group is None else group for group in own)

    def units(self) -> list[RestoreUnit]:
        """Return what tasks have to do, the largest share first."""
        units = [unit for topic in self.topics for unit in topic.units]
        return sorted(units, key=lambda unit: unit.size, reverse=True)


def confirm(plan: RestorePlan, agree: Callable[[str], bool] | None, *, is_agreed: bool) -> None:
    """Ask before records are added to topics that have some already.

    Args:
        plan: What is to be done.
        agree: Asks a person; None where nobody can be asked.
        is_agreed: Somebody agreed in advance.

    Raises:
        RefusedError: If nobody agrees.
    """
    added = [topic.intent.target for topic in plan.topics if topic.adds]
    if not added or is_agreed:
        return
    names = ", ".join(added)
    if agree is None or not agree(f"{names}: not empty. Add the backup's records to it?"):
        raise RefusedError(
            f"{names} is not empty, and adding to it was not confirmed",
            "--if-exists append needs a confirmation",
            "--yes confirms in advance",
        )
