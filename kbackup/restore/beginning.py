"""What a restore does before its tasks: create topics, and commit where it begins in each.

Where records are written in transactions, each task commits its own beginning, once its writer has
fenced every other.  So no restore sets back what another one has committed since the plan.
"""

from dataclasses import replace

from kbackup.kafka import Cluster
from kbackup.restore.job import RestoreUnit
from kbackup.restore.plan import RestorePlan
from kbackup.restore.target import create


def begin(
    plan: RestorePlan, cluster: Cluster, replication_factor: int | None, *, exactly_once: bool
) -> list[RestoreUnit]:
    """Prepare the targets; a restore killed from here on can be continued.

    Args:
        plan: What is to be done.
        cluster: The target.
        replication_factor: Of created topics; None for the cluster's default.
        exactly_once: Tasks write in transactions, and commit their beginnings themselves.

    Returns:
        The plan's units, with the ids of created topics.

    Raises:
        KafkaError: If a topic cannot be created, or a position not be written.
    """
    ids = {
        topic.intent.target: create(topic, cluster, replication_factor)
        for topic in plan.topics
        if topic.action == "create"
    }
    begun, positions = [], {}
    for unit in plan.units():
        mark = replace(unit.mark, target_id=ids.get(unit.target.topic, unit.mark.target_id))
        if exactly_once or not unit.begins:
            begun.append(replace(unit, mark=mark))
            continue
        positions[unit.target] = mark.position()
        begun.append(replace(unit, mark=mark, committed=positions[unit.target], begins=False))
    cluster.set_positions(plan.group, positions)
    return begun
