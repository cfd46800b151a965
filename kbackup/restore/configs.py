"""``restore configs``: give restored topics the settings of their originals.

A topic that is created by a restore deletes nothing and takes records of any age: retention and
compaction of the original would eat old records as they arrive.  `changes` is the way back.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, Final

from kbackup.catalog.ledger.rows import named
from kbackup.clock import Clock, rfc3339
from kbackup.config import Settings
from kbackup.errors import IncompleteBackupError, RefusedError
from kbackup.events import Warned
from kbackup.kafka import Cluster, deletes_older_than
from kbackup.naming import View
from kbackup.naming.renaming import rename
from kbackup.records import TopicIdentity
from kbackup.runs import backup_state, wiring
from kbackup.runs.backup_state import BackupState
from kbackup.runs.context import Agree, confirm
from kbackup.runs.report import Summary
from kbackup.stores import Store

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


def waits_for_settle(name: str) -> bool:
    """Whether a setting of the original has to wait until the copy has been checked."""
    return name in _WAITING or name.startswith((*_WAITING_PREFIXES, *_OF_ITS_CLUSTER))


def settled_changes(original: Mapping[str, str], current: Mapping[str, str]) -> Changes:
    """Return what makes a restored topic's settings those of its original.

    What someone else has set on the topic since, and the original did not set, stays.  *original*
    has the settings that differed from its cluster's defaults.
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


@dataclass(frozen=True, slots=True)
class _Settled:
    source: str
    target: str
    changes: Changes


@dataclass(frozen=True, slots=True)
class SettingChanged:
    """One setting of a restored topic that is changed, or would be; None: the cluster's default."""

    HEAD: ClassVar = {"type": "topic_setting"}

    topic: str
    source: str
    name: str
    before: str | None
    after: str | None


def settle(
    settings: Settings,
    cluster: Cluster,
    store: Store,
    clock: Clock,
    summary: Summary,
    agree: Agree | None = None,
) -> Iterator[SettingChanged | Warned]:
    """Change the settings of the topics that a restore with these settings writes to.

    It yields each setting, before anything is changed, and warnings.

    Raises:
        IncompleteBackupError: If the backup does not say how a topic was set.
        RefusedError: If nobody agreed.
    """
    layout = wiring.layout(settings)
    said = backup_state.read(store, layout, clock, settings.asked)
    found = list(_found(settings, cluster, said))
    for one in found:
        yield from _shown(one)
        for left in one.changes.left:
            text = f"{one.target}: {left} belongs to the original's cluster, and is not set"
            yield summary.warn("setting_left", text)
        if (doubt := _eaten(one, said, clock)) is not None:
            yield summary.warn("retention", doubt)
    changed = [one for one in found if one.changes]
    summary.facts["settled"] = []
    summary.facts["unsettled"] = [one.target for one in changed] if settings.dry_run else []
    if settings.dry_run or not changed:
        return
    names = ", ".join(one.target for one in changed)
    what = f"the settings of {names} were left as they are"
    why = "retention and compaction delete records, and this was not confirmed"
    confirm(agree, f"{names}: change these settings?", what, why, is_agreed=settings.yes)
    for one in changed:
        cluster.alter_topic_config(one.target, one.changes.config, one.changes.removed)
        summary.facts["settled"].append(one.target)


def _found(settings: Settings, cluster: Cluster, said: BackupState) -> Iterator[_Settled]:
    settings.asked.check_exclusion(said.topics)
    names = settings.asked.topics(said.topics)
    targets = {name: rename(name, settings.renames) for name in names}
    there = set(cluster.topic_names())
    copies = there.intersection(targets.values())
    configs = cluster.topic_config(copies, overridden_only=True)
    topics = cluster.topics(copies)
    for name, target in targets.items():
        if name not in said.topics:
            raise IncompleteBackupError(
                f"the backup does not say how {name} was set",
                "an earlier version or another tool wrote it, or it is not in the backup",
                "set the topic by hand: kafka-configs",
                topic=name,
            )
        if target not in there:
            if name in settings.topics:
                raise RefusedError(
                    f"there is no topic {target}",
                    "it has not been restored to this cluster",
                    "give the renaming that the restore was given",
                    topic=target,
                )
            continue
        if target not in configs:
            raise RefusedError(
                f"the settings of {target} cannot be read",
                "DESCRIBE_CONFIGS may be denied",
                "allow it (kafka-acls)",
                topic=target,
            )
        entry = said.topics[name]
        now = TopicIdentity(cluster.cluster_id, topics[target].topic_id)
        if target == name and not entry.identity.conflicts(now):
            continue  # the original itself, not one that was restored in its place
        yield _Settled(name, target, settled_changes(entry.config, configs[target]))


def _shown(one: _Settled) -> Iterator[SettingChanged]:
    removed = dict.fromkeys(one.changes.removed, None)
    wanted: dict[str, str | None] = {**one.changes.config, **removed}
    for name, value in wanted.items():
        yield SettingChanged(one.target, one.source, name, one.changes.before.get(name), value)


def _eaten(one: _Settled, said: BackupState, clock: Clock) -> str | None:
    """Return that records are older than what the topic is about to keep."""
    if "retention.ms" in one.changes.removed:
        return (
            f"{one.target}: retention.ms goes back to this cluster's default, which may delete "
            "restored records"
        )
    age = deletes_older_than(said.topics[one.source].config)
    if age is None or "retention.ms" not in one.changes.config:
        return None
    ledger = said.ledgers.get(one.source)
    times = [  # of values alone the times are those of their restore
        entry.min_timestamp
        for partition in (() if ledger is None else ledger.partitions.values())
        for entry in partition.objects.values()
        if entry.min_timestamp is not None and entry.view == named(View.RECORD)
    ]
    oldest = min((time for time in times if time >= 0), default=None)
    if oldest is None or clock.ms() - oldest <= age:
        return None
    since = rfc3339(datetime.fromtimestamp(oldest / 1000, UTC))
    return (
        f"{one.target}: retention.ms={age} will delete restored records; the oldest is of {since}"
    )
