"""Which settings a restored topic has, and which it gets once someone has checked it.

A topic that is created by a restore deletes nothing and takes records of any age: retention and
compaction of the original would eat old records as they arrive.  `changes` is the way back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_LONG_MAX: Final = str(2**63 - 1)

COPY_CONFIG: Final = {
    "retention.ms": "-1",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _LONG_MAX,
    "message.timestamp.after.max.ms": _LONG_MAX,
}
"""Settings of every topic that a restore creates."""

_WAITING: Final = frozenset(
    {
        "cleanup.policy", "delete.retention.ms", "max.compaction.lag.ms",
        "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "min.insync.replicas",
        "retention.bytes", "retention.ms",
    }
)  # fmt: skip
"""What deletes records, or keeps a cluster with fewer brokers from taking them."""

_WAITING_PREFIXES: Final = ("local.retention.", "message.timestamp.")

_OF_ITS_CLUSTER: Final = (
    "leader.replication.throttled.", "follower.replication.throttled.", "remote.", "confluent.",
)  # fmt: skip
"""How settings begin that mean something in the cluster of the original only."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a topic lacks to be set as its original was.

    Attributes:
        config: Settings to put.
        removed: Settings of the restore to take off: the original had the cluster's defaults.
        left: Settings of the original that belong to its cluster, and are not put.
        before: The values, of those to be changed, that the topic has; without those it has not.
    """

    config: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    before: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.config or self.removed)


def waits(name: str) -> bool:
    """Whether a setting of the original has to wait until the copy has been checked."""
    return name in _WAITING or name.startswith((*_WAITING_PREFIXES, *_OF_ITS_CLUSTER))


def changes(original: Mapping[str, str], current: Mapping[str, str]) -> Changes:
    """Return what makes a restored topic's settings those of its original.

    What someone else has set on the topic since, and the original did not set, stays.

    Args:
        original: The settings of the original that differed from its cluster's defaults.
        current: Those of the restored topic.
    """
    left = tuple(sorted(name for name in original if name.startswith(_OF_ITS_CLUSTER)))
    config = {
        name: value
        for name, value in sorted(original.items())
        if name not in left and current.get(name) != value
    }
    removed = tuple(
        name
        for name, value in COPY_CONFIG.items()
        if name not in original and current.get(name) == value
    )
    before = {name: current[name] for name in (*config, *removed) if name in current}
    return Changes(config, removed, left, before)


def deletes_older_than(original: Mapping[str, str]) -> int | None:
    """Return the age in ms at which the original's settings delete records; None for never.

    Where it does not say, the cluster's default does, which is not known here.
    """
    if "delete" not in original.get("cleanup.policy", "delete"):
        return None
    age = int(original.get("retention.ms", -1))
    return None if age < 0 else age
