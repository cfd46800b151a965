"""What a restore says before it works."""

from collections.abc import Sequence

from kbackup.config import Settings
from kbackup.events import RestoreStart, Started, Tell
from kbackup.kafka import Cluster
from kbackup.runs import wiring
from kbackup.runs.summary import Summary


def start(
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
