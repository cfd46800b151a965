"""What a restore says and does before its tasks: create topics, commit where it begins in each.

Where records are written in transactions, each task commits its own beginning, once its writer has
fenced every other.  So no restore sets back what another one has committed since the plan.  Where
several partitions of a backup share a target, tasks commit all beginnings before any of them writes
a record: a partition without a position then is never one that has yet to begin.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kbackup.config import Settings
from kbackup.errors import KafkaError, KbackupError, worst
from kbackup.events import RestoreStart, Started, Tell
from kbackup.kafka import Cluster, Position
from kbackup.records import TopicPartition
from kbackup.restore.job import RestoreUnit
from kbackup.restore.planning.plan import RestorePlan
from kbackup.restore.planning.target import create
from kbackup.runs import wiring
from kbackup.runs.summary import Summary

_NAMED: Final = 10
"""The most topics that an error names."""


@dataclass(frozen=True, slots=True)
class PreparedTasks:
    """What tasks have to do, with the ids of created topics.

    Attributes:
        first: Units without objects, whose beginnings are committed before anything else is done.
        units: The plan's units.
    """

    first: list[RestoreUnit]
    units: list[RestoreUnit]


def begin(
    plan: RestorePlan, cluster: Cluster, replication_factor: int | None, *, exactly_once: bool
) -> PreparedTasks:
    """Prepare the targets; a restore killed from here on can be continued.

    Args:
        plan: What is to be done.
        cluster: The target.
        replication_factor: Of created topics; None for the cluster's default.
        exactly_once: Tasks write in transactions, and commit their beginnings themselves.

    Raises:
        KafkaError: If a topic or a partition cannot be created, or a position not be written.
    """
    new = [topic for topic in plan.topics if topic.action == "create"]
    ids = dict[str, str]()
    refused = list[KbackupError]()
    for name, created in create(new, cluster, replication_factor).items():
        if isinstance(created, KbackupError):
            refused.append(created)
        else:
            ids[name] = created
    if refused:
        raise _refusal(refused)

    for topic in plan.topics:
        if topic.grows:
            cluster.create_partitions(topic.intent.target, topic.partitions)

    def named(unit: RestoreUnit) -> RestoreUnit:
        return unit.marked(ids.get(unit.target.topic, unit.bookmark.of.target_id))

    first = [named(unit) for topic in plan.topics for unit in topic.beginnings]
    units = [named(unit) for unit in plan.units()]
    if exactly_once:
        return PreparedTasks(
            first, [unit if unit.group is None else unit.begun() for unit in units]
        )
    positions = dict[str, dict[TopicPartition, Position]]()
    for unit in (*first, *units):
        if unit.begins:
            mine = positions.setdefault(unit.group or plan.group, {})
            mine |= {lane.target: lane.position() for lane in unit.lanes}
    for group, committed in positions.items():
        cluster.set_positions(group, committed)
    return PreparedTasks([], [unit.begun() for unit in units])


def _refusal(refused: Sequence[KbackupError]) -> KbackupError:
    """Return why topics were not created, as one error: of the class that matters most."""
    for error in refused:
        if len(refused) == 1 or (isinstance(error, KafkaError) and error.is_away):
            return error
    code = worst(error.exit_code for error in refused)
    kind = next(type(error) for error in refused if error.exit_code == code)
    shown, rest = refused[:_NAMED], len(refused) - _NAMED
    named = [*map(str, shown), *([f"and {rest} more"] if rest > 0 else [])]
    remedies = dict.fromkeys(error.do for error in shown if error.do)
    return kind(
        f"{len(refused)} topics were not created",
        "; ".join(named),
        "; ".join(remedies),
    )


def tell_start(
    settings: Settings,
    summary: Summary,
    cluster: Cluster,
    topics: Sequence[str],
    tell: Tell,
) -> None:
    """Say what is going to be restored from where to where, on the screen and in the summary."""
    renames = [[step.regex, step.replacement] for step in settings.renames]
    group = wiring.restore_group(settings)
    summary.facts |= {
        "group": group,
        "kafka_client": wiring.kafka_way(settings).name,
        "cluster_id": cluster.cluster_id,
        "target": settings.bootstrap_servers,
        "store": settings.url,
        "topics_dir": settings.topics_dir,
        "renames": renames,
        "partition_map": settings.partition_map,
        "window": str(wiring.window(settings)) or None,
        "transforms": [step.alias for step in settings.transforms],
    }
    own = RestoreStart(cluster.cluster_id, settings.bootstrap_servers, renames)
    started = Started(summary.run, topics, group, settings.url, settings.topics_dir, own)
    tell(started)
