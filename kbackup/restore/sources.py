"""What run records know of the topics in a backup, and the settings that their copies get."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

LONG_MAX: Final = str(2**63 - 1)

KEPT_CONFIG: Final = ("max.message.bytes", "compression.type")
"""Settings of the source topic that a created target gets.  Not cleanup.policy and retention:
nothing may be deleted before the restore has been looked at."""


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """What run records know of a topic, beyond its objects.

    Attributes:
        partitions: Their number when it was backed up; 0 where no record says.
        cluster_id: Of the cluster it was backed up from; empty where no record says.
        config: Its settings then.
    """

    partitions: int = 0
    cluster_id: str = ""
    config: Mapping[str, str] = field(default_factory=dict)


def known_topics(
    records: Iterable[Mapping[str, Any]], names: Iterable[str], cluster_id: str
) -> tuple[dict[str, SourceTopic], set[str]]:
    """Return what run records of the sink say of topics, and which ones it backs up here.

    Args:
        records: Run records, the newest first.
        names: The topics of the backup.
        cluster_id: Of the cluster to restore to.
    """
    wanted = set(names)
    found: dict[str, SourceTopic] = {}
    watched: set[str] = set()
    for record in records:
        source = str(record.get("cluster_id") or "")
        for name, entry in (record.get("topic_settings") or {}).items():
            if source == cluster_id:
                watched.add(name)
            if name in wanted and name not in found:
                config = entry.get("config") or {}
                found[name] = SourceTopic(int(entry.get("partitions") or 0), source, config)
    return found, watched


def config_of_copy(source: SourceTopic, given: Mapping[str, str]) -> dict[str, str]:
    """Return settings of a topic to create: nothing restored may be deleted or refused.

    Args:
        source: The topic that was backed up.
        given: The operator's settings, which win.
    """
    return {
        "retention.ms": "-1",
        "cleanup.policy": "delete",
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": LONG_MAX,
        "message.timestamp.after.max.ms": LONG_MAX,
        **{name: source.config[name] for name in KEPT_CONFIG if name in source.config},
        **given,
    }
