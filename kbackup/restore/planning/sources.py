"""What a backup says of its topics, and the settings that their copies get."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kbackup.restore import settling
from kbackup.runs.known import Known

KEPT_CONFIG: Final = ("max.message.bytes", "compression.type")
"""Settings of the source topic that a created target gets.  Not cleanup.policy and retention:
nothing may be deleted before the restore has been looked at."""


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """What a backup says of a topic, beyond its objects.

    Attributes:
        partitions: Their number when it was backed up; 0 where it is not known.
        cluster_id: Of the cluster it was backed up from; empty where it is not known.
        config: Its settings then.
    """

    partitions: int = 0
    cluster_id: str = ""
    config: Mapping[str, str] = field(default_factory=dict)


def source_of(known: Known, topic: str) -> SourceTopic:
    """Return what a backup says of a topic, beyond its objects."""
    entry = known.topics.get(topic)
    if entry is None:
        return SourceTopic()
    return SourceTopic(entry.partitions or 0, entry.cluster_id, entry.config)


def config_of_copy(
    source: SourceTopic, given: Mapping[str, str], *, original: bool = False
) -> dict[str, str]:
    """Return settings of a topic to create: nothing restored may be deleted or refused.

    Args:
        source: The topic that was backed up.
        given: The operator's settings, which win.
        original: Take all of the source's settings that can do neither.
    """
    kept = {
        name: value
        for name, value in source.config.items()
        if name in KEPT_CONFIG or (original and not settling.waits(name))
    }
    return {**settling.COPY_CONFIG, **kept, **given}
