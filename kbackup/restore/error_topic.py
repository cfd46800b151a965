"""The topic for what a restore cannot read, ``parse.error.topic.prefix``: its name and checks."""

from kbackup.config import Settings
from kbackup.errors import RefusedError
from kbackup.kafka import Cluster
from kbackup.restore.planning.plan import RestorePlan
from kbackup.runs.letters import ensure_topic


def topic_of(settings: Settings) -> str | None:
    """Return the topic that a restore writes to what it cannot read; None for none.

    Source: the connector, which names it after its prefix and itself.
    """
    prefix = settings.parse_error_topic_prefix
    if not prefix or settings.behavior_on_error == "fail":
        return None
    return f"{prefix}-{settings.name or 'kbackup'}"


def check(topic: str | None, plan: RestorePlan) -> None:
    """Check that nothing else is written to the topic.

    Raises:
        RefusedError: If it is a target of the restore.
    """
    if any(each.intent.target == topic for each in plan.topics):
        raise RefusedError(
            f"{topic} would get the records of a backup and those that cannot be read",
            "parse.error.topic.prefix names a topic that is restored to",
            "choose another prefix, or another --rename",
            topic=topic,
        )


def ready(
    topic: str | None, cluster: Cluster, factor: int | None, *, only_validate: bool = False
) -> None:
    """Create the topic, unless it is there or none is asked for.

    Args:
        topic: The topic.
        cluster: The target.
        factor: Replicas of each partition; None for the cluster's default.
        only_validate: Create nothing: have the cluster say whether it would.

    Raises:
        KafkaError: If it cannot be created.
    """
    if topic is not None:
        factor, option = -1 if factor is None else factor, "--replication-factor"
        ensure_topic(cluster, topic, factor, option, only_validate=only_validate)
