"""What a restore does before its tasks: create topics, and commit where it begins in each."""

from dataclasses import replace

from kbackup.kafka import Cluster
from kbackup.restore.job import RestoreUnit
from kbackup.restore.plan import RestorePlan
from kbackup.restore.target import create


def begin(plan: RestorePlan, cluster: Cluster, replication_factor: int | None) -> list[RestoreUnit]:
    """Make the targets ready; a kill from here on leaves a restore that can go on.

    Returns:
        The plan's units, each with the position that is committed for it.

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
        if unit.committed is not None:
            begun.append(unit)
            continue
        mark = replace(unit.mark, target_id=ids.get(unit.target.topic, unit.mark.target_id))
        positions[unit.target] = mark.position()
        begun.append(replace(unit, mark=mark, committed=positions[unit.target]))
    cluster.set_positions(plan.group, positions)
    return begun
