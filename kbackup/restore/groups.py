"""``restore groups``: set consumers' offsets in restored topics to what they had read.

All groups are examined before the first one is set; then each is whole or untouched.  What was
there is stored first, and `undo` sets it back.
"""

import base64
import logging
import secrets
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, Final

from kbackup import __version__
from kbackup.catalog import groups as captured
from kbackup.catalog.groups import GroupEntry, TopicCapture
from kbackup.catalog.ledger.stream import folder
from kbackup.clock import Clock, moment_of, shown_ms
from kbackup.config import Settings
from kbackup.errors import (
    ConfigurationError,
    KafkaError,
    KbackupError,
    ObjectNotFoundError,
    RefusedError,
    counted,
    some,
)
from kbackup.events import INLINE, Warned
from kbackup.kafka import NOT_DESCRIBED, Cluster, Connection, GroupOffset, Groups
from kbackup.naming import Layout
from kbackup.naming.renaming import Rename, matching, rename
from kbackup.plugins import choose_topics
from kbackup.records import TopicPartition
from kbackup.restore.restored import BY_HAND, Restored, why_spread
from kbackup.restore.translate import BY_TIME, GroupView, Translated
from kbackup.runs import wiring
from kbackup.runs.context import Agree, confirm
from kbackup.runs.inventory import Inventory
from kbackup.runs.position import digest
from kbackup.runs.report import Summary
from kbackup.stores import Store, parse_json, put_json, side_by_side

VERSION: Final = 1
"""Of what is stored before offsets are set."""

_log: Final = logging.getLogger(__name__)

_LATEST: Final = 16
"""Of how many runs before it a run looks at what they have set."""

_RETENTION: Final = "offsets.retention.minutes"

DELETED: Final = "deleted_offsets"
"""Counts the offsets that a group had to read and the target has deleted."""

Offsets = Mapping[TopicPartition, GroupOffset]
"""Where a group stands."""

Standing = Mapping[str, Offsets]
"""Where each group stands."""

APPROXIMATE: Final = "approximate_offsets"
"""Counts the offsets that were translated by time."""


@dataclass(frozen=True, slots=True)
class GroupsOptions:
    """What the command is asked to do.

    Where there are no *names*, *pattern* is a Java regular expression for groups.  In *renamed*
    ``$0`` is a group's name; None: the same.  *id* names what was there, for `GroupsRun.undo`;
    None: a random one does.
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None
    renamed: str | None = None
    id: str | None = None

    def chosen(self, there: Collection[str]) -> list[str]:
        """Return the captured groups that are asked for; `RefusedError` if one of them was not."""
        found, lacking = sorted(there), list[str]()
        if self.names:
            found, lacking = sorted({*self.names}), sorted({*self.names} - {*there})
        elif self.pattern is not None:
            found = matching(found, self.pattern, "--groups")
            lacking = [] if found else [self.pattern]
        if lacking:
            raise RefusedError(
                f"no capture has {', '.join(lacking)}",
                "the groups that a sink has captured in these topics are others, or none",
                "see which: kbackup restore list --consumer-groups",
            )
        return found

    def name(self, group: str) -> str:
        """Return what a group is called in the target."""
        if self.renamed is None:
            return group
        return rename(group, [Rename(regex="(?s).*", replacement=self.renamed)])

    def called(self, groups: Sequence[str], own: str) -> dict[str, str]:
        """Return groups by what they are called in the target, none like the restore's *own* one.

        `RefusedError`: two would have one name, or one a name that it cannot have.
        """
        found: dict[str, str] = {}
        for group in groups:
            name = self.name(group)
            if name in found:
                why = f"{found[name]} would have it too, and one would lose its offsets"
            elif name == own:
                why = "the restore keeps its own positions there"
            else:
                why = "" if name else "its new name is empty"
            if why:
                do = "give a name that holds the old one: --rename-groups 'dr_$0'"
                raise RefusedError(f"group {group} cannot be called '{name}'", why, do)
            found[name] = group
        return found


@dataclass(frozen=True, slots=True)
class GroupTranslated:
    """Where a group stood in a partition, and where it goes on in the restored one.

    Attributes:
        where: The partition that was backed up.  Of several that share one of the target, that
            with the oldest record to be read.
        was: The next offset that it was to read when it was captured; None: it never had one, as
            the source has no such partition.
        becomes: The same in the target; None where it is refused.
        unread: How many offsets lie from there to the end of the log: the lag that Kafka shows.
        lost: How many that it had to read the target has deleted.
        note: What is to be said of it; empty for nothing.
        is_approximate: It goes by the time of a record: some may be read again, or not at all.
        taken: When it was captured; None where no capture says so.
    """

    HEAD: ClassVar = {"type": "group_offset"}

    where: TopicPartition = field(metadata=INLINE)
    group: str
    target: str
    target_partition: int
    was: int | None
    becomes: int | None
    unread: int | None
    lost: int = 0
    note: str = ""
    is_approximate: bool = False
    taken: datetime | None = None


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """One group: its rows, what to set, and what is in the way.

    Attributes:
        oldest: Of each topic of the backup, when the oldest record that it had not read was
            written, in ms since the epoch, as far as that is known.
    """

    name: str
    rows: Sequence[GroupTranslated]
    offsets: Offsets
    refusals: Sequence[KbackupError]
    oldest: Mapping[str, int]


class GroupsRun:
    """One run of the command.

    *by_time*: go by the times of records where nothing tells exactly where a group goes on.
    *inventory* is what the restore was given; None: what is there.
    """

    def __init__(
        self,
        settings: Settings,
        kafka: Connection,
        store: Store,
        clock: Clock,
        summary: Summary,
        agree: Agree | None = None,
        *,
        by_time: bool = False,
        inventory: Inventory | None = None,
    ) -> None:
        self._agree, self._by_time, self._inventory = agree, by_time, inventory
        self._settings, self._kafka, self._store = settings, kafka, store
        self._clock, self._summary = clock, summary
        self._layout = wiring.layout(settings)

    def set(self, options: GroupsOptions) -> Iterator[GroupTranslated | Warned]:
        """Translate the offsets of groups, and set them unless it is a dry run.

        It yields each offset, before anything is set, and warnings.  If nothing can be set, it
        raises `KbackupError`.
        """
        cluster, captures = self._kafka.cluster(), self._captures()
        there = {row.group or "" for one in captures.values() for row in one.offsets}
        chosen = options.chosen(there)
        yield from self._remarks(captures, chosen)
        with closing(self._view(cluster)) as view:
            yield from self._damage(view)
            yield from self._streams(view, cluster, there, chosen, options)
            every, called = by_group(captures), options.called(chosen, view.group)
            stood = {name: every.get(group, {}) for name, group in called.items()}
            planned = planned_groups(view, stood)
            self._summary.skip("bad_objects", view.bad_objects)
            yield from self._doomed(view, planned)
        for group in planned:
            yield from group.rows
        refused = [error for group in planned for error in group.refusals]
        refused += _live(cluster, [group.name for group in planned])
        for error in refused:
            self._summary.fail(error)
        rows = [row for one in planned for row in one.rows]
        self._summary.skip(DELETED, sum(row.lost for row in rows))
        self._summary.skip(APPROXIMATE, sum(row.is_approximate for row in rows))
        if not self._settings.dry_run:
            self._summary.facts["groups"] = []
        if refused or not planned:
            return
        self._summary.facts["offsets_kept_s"] = self._kept_s()
        with closing(self._kafka.consumer_groups()) as clients:
            names = [group.name for group in planned]
            before = {name: dict(found or {}) for name, found in clients.offsets(names)}
            told = lone_streams(clients, stood)
            if told:
                yield self._summary.warn(LONE_STREAMS, why_lone(told))
            own = GroupsSet.find(self._store, self._layout, following_id(view.group, cluster))
            self._confirm(planned, before, own)
            if not self._settings.dry_run:
                sides = before, {one.name: one.offsets for one in planned}
                name = options.id or secrets.token_hex(4)
                applied = GroupsSet(name, cluster.cluster_id, *sides)
                if options.id is None:  # else who has given it knows it, and what it is for
                    yield from self._set_before(applied)
                applied.store(self._store, self._layout)
                if options.id is None:
                    _log.warning("--undo %s undoes what this run sets, even if it is killed", name)
                self._apply(clients, planned, applied)

    def _set_before(self, applied: "GroupsSet") -> Iterator[Warned]:
        """Name earlier runs, such as one that was killed, that have set groups where they stand."""
        for one in GroupsSet.latest(self._store, self._layout):
            names = [group for group, now in applied.before.items() if one.holds(group, now)]
            if names and one.cluster_id == applied.cluster_id:
                text = f"{some(names)}: set by an earlier run: after --undo {applied.id}, --undo "
                yield self._summary.warn("groups_set_before", f"{text}{one.id} undoes that too")

    def _kept_s(self) -> int | None:
        """Return for how long the target keeps the offsets of a group without members."""
        try:
            with closing(self._kafka.access()) as access:
                said = access.settings().get(_RETENTION)
            return None if said is None or said.value is None else 60 * int(said.value)
        except (KbackupError, ValueError) as error:  # no permission, or a service has none to tell
            _log.info("%s of the brokers is not known: %s", _RETENTION, error)
            return None

    def _confirm(
        self, planned: Sequence[PlannedGroup], before: Standing, own: "GroupsSet | None"
    ) -> None:
        """Ask before a group is moved that stands in the target, unless the restore has set it."""
        moved = [
            f"{group.name} in {at} from {now.offset} to {wanted.offset}"
            for group in planned
            for at, wanted in group.offsets.items()
            if (now := before[group.name].get(at)) is not None
            and now.offset != wanted.offset
            and not (own is not None and own.has_set(group.name, at, now))
        ]
        agree = None if self._settings.dry_run else self._agree
        if moved:
            what = f"{some(moved)}: moving was not confirmed"
            why = "consumers have committed there, or this command has set it before"
            confirm(agree, f"{some(moved)}: move?", what, why, is_agreed=self._settings.yes)

    def _view(self, cluster: Cluster) -> GroupView:
        if (why := why_spread(self._settings)) is not None:
            is_chosen = bool(choose_topics(self._settings.transforms))
            if is_chosen or not self._by_time:
                do = BY_HAND if is_chosen else BY_TIME
                raise RefusedError("offsets of this restore cannot be translated", why, do)
        restored = Restored(
            self._settings, self._kafka, self._store, self._clock, cluster, self._inventory
        )
        return GroupView(restored, cluster, self._store, by_time=self._by_time)

    def _damage(self, view: GroupView) -> Iterator[Warned]:
        for one in view.damage:
            yield self._summary.warn(one.code, one.text, key=one.what)

    def _captures(self) -> Mapping[str, TopicCapture]:
        """Return the newest capture of each topic that is asked for, no later than its window."""
        settings = self._settings
        ends = [end for end in (settings.as_of, settings.to_time) if end is not None]
        found = captured.read(self._store, self._layout, self._clock, min(ends, default=None))
        for damage in found.damage:
            self._summary.fail(damage)
        names = settings.asked.topics(found.newest)
        newest = captured_of(names, found.newest, settings.partitions)
        if not newest:
            then = f" before {shown_ms(min(ends))}" if ends else ""
            raise RefusedError(
                f"no sink has captured where the groups of these topics stood{then}",
                "captures are taken at the end of a sink, and are kept in the backup",
                BY_HAND,
            )
        return newest

    def _remarks(
        self, captures: Mapping[str, TopicCapture], chosen: Sequence[str]
    ) -> Iterator[Warned]:
        if not chosen:
            text = "no group had an offset in these topics when they were captured"
            yield self._summary.warn("no_groups", text)
        for name in self._settings.topics:
            if name not in captures:
                text = f"{name}: no sink has captured where its groups stood"
                yield self._summary.warn("groups_not_captured", text)
        for name, one in captures.items():
            if not one.topic.is_complete:
                text = f"{name}: maybe not all groups were captured: the sink may not list them"
                yield self._summary.warn("groups_incomplete", text)
            for where, why in one.unsettled.items():
                text = f"{where}: what its consumers had caused by then may be missing ({why})"
                yield self._summary.warn("group_unsettled", text)

    def _streams(
        self,
        view: GroupView,
        cluster: Cluster,
        groups: Collection[str],
        chosen: Sequence[str],
        options: GroupsOptions,
    ) -> Iterator[Warned]:
        """Name the internal topics that an application of Kafka Streams looks for in vain."""
        wanted = defaultdict[str, list[str]](list)
        for name in view.topics:
            if name.endswith(("-changelog", "-repartition")):
                owners = (group for group in groups if name.startswith(f"{group}-"))
                owner = max(owners, key=len, default="")
                if owner in chosen:
                    wanted[owner].append(options.name(owner) + name.removeprefix(owner))
        hidden: dict[str, KafkaError] = {}  # nothing says whether these are there
        there = cluster.topics({name for names in wanted.values() for name in names}, hidden)
        for group, names in wanted.items():
            if lacking := [name for name in names if name not in there and name not in hidden]:
                text = f"{group} is an application of Kafka Streams, which will not find "
                yield self._summary.warn("streams_renamed", text + some(lacking))

    def _doomed(self, view: GroupView, planned: Sequence[PlannedGroup]) -> Iterator[Warned]:
        """Name groups whose next records the originals' retention will delete, once it is set."""
        found, now = defaultdict[str, list[str]](list), self._clock.ms()
        for group in planned:
            for topic, written in group.oldest.items():
                kept = view.keeps_ms(topic)
                if kept is not None and written < now - kept:
                    found[topic].append(group.name)
        for topic, names in found.items():
            text = f"{topic}: under its original's retention, Kafka deletes records not read by "
            yield self._summary.warn("retention", text + some(names))

    def _apply(
        self, clients: Groups, planned: Sequence[PlannedGroup], applied: "GroupsSet"
    ) -> None:
        # whether these have members only setting them tells: if one is refused, no other is set
        unseen = _unseen(clients)
        self._summary.facts["undo"] = applied.id
        for group in sorted(planned, key=lambda one: one.name not in unseen):
            is_set = self._set(clients, group.name, group.offsets, applied.before[group.name])
            if not is_set and group.name in unseen:
                return

    def _set(self, clients: Groups, group: str, offsets: Offsets, before: Offsets) -> bool:
        """Set one group, and return whether it stands there."""
        try:
            set_whole(clients, group, offsets, before)
            ((_, now),) = clients.offsets([group])
        except KbackupError as error:
            self._summary.fail(error)
            return False
        moved = [at for at, wanted in offsets.items() if (now or {}).get(at) != wanted]
        if moved:
            self._summary.fail(
                RefusedError(
                    f"group {group} is no longer where it was set, in {moved[0]}",
                    "a consumer has committed meanwhile",
                    "stop its consumers, and run the command again",
                )
            )
            return False
        self._summary.facts["groups"].append(group)
        return True

    def undo(self, name: str) -> None:
        """Set groups back to where they stood before a run of this command, or none of them."""
        applied = GroupsSet.read(self._store, self._layout, name)
        cluster = self._kafka.cluster()
        if not self._settings.dry_run:
            self._summary.facts["groups"] = []
        if applied.cluster_id not in ("", cluster.cluster_id):
            raise RefusedError(
                f"run {name} set no groups in this cluster",
                f"it set groups in cluster {applied.cluster_id}",
                "give that cluster: -k HOST:PORT",
            )
        refused = [*_live(cluster, applied.after)]
        with closing(self._kafka.consumer_groups()) as clients:
            now = {group: found or {} for group, found in clients.offsets([*applied.after])}
            refused += filter(None, (applied.moved(group, now[group]) for group in applied.after))
            for error in refused:
                self._summary.fail(error)
            if refused or self._settings.dry_run:
                return
            for group in applied.after:
                try:
                    before = applied.before.get(group, {})
                    _set_back(clients, group, before, now[group], applied.after[group])
                except KbackupError as error:  # a consumer has joined meanwhile
                    self._summary.fail(RefusedError(error.what, error.why, error.do or BY_HAND))
                    continue
                self._summary.facts["groups"].append(group)

    def where(
        self, offsets: Iterable[tuple[TopicPartition, int]]
    ) -> Iterator[GroupTranslated | Warned]:
        """Translate offsets, for consumers that keep their own elsewhere; yield them, and warnings.

        If one cannot be translated, it raises `KbackupError`.
        """
        with closing(self._view(self._kafka.cluster())) as view:
            yield from self._damage(view)
            for where, offset in offsets:
                entry = GroupEntry(
                    captured.OFFSET, 0, where.topic, partition=where.partition, offset=offset
                )
                for row, at, found in view.translated([entry]):
                    if isinstance(found, KbackupError):
                        raise found
                    yield _row(view, where, "", at, row, found)


def set_whole(clients: Groups, group: str, offsets: Offsets, before: Offsets) -> None:
    """Set a group in all partitions or in none: a broker may refuse some of them alone."""
    try:
        clients.alter(group, offsets)
    except KbackupError as error:
        stands, do = "it is as it was", error.do or BY_HAND
        try:
            ((_, found),) = clients.offsets([group])
            now = found or {}  # who may not read it may not set it
            own = [at for at, wanted in offsets.items() if now.get(at) == wanted]
            _set_back(clients, group, before, now, own)
        except KbackupError:
            stands, do = "part of it may be set", "stop its consumers, and set it back: --undo"
        raise RefusedError(error.what, f"{error.why}: {stands}", do) from error


def _set_back(
    clients: Groups, group: str, before: Offsets, now: Offsets, wheres: Iterable[TopicPartition]
) -> None:
    """Set a group back where it does not stand as before; a run may have been killed here."""
    apart = [at for at in wheres if now.get(at) != before.get(at)]
    clients.alter(group, {at: before[at] for at in apart if at in before})
    clients.delete(group, [at for at in apart if at not in before])


Stood = Mapping[str, Sequence[GroupEntry]]
"""Where a group stood, by topic."""

LONE_STREAMS: Final = "streams_group"


def lone_streams(clients: Groups, stood: Mapping[str, Stood]) -> list[str]:
    """Return the groups of Kafka Streams (KIP-1071) that are not there as such."""
    found = {
        name
        for name, topics in stood.items()
        if any(row.protocol_type == captured.STREAMS for rows in topics.values() for row in rows)
    }
    return sorted(found - _unseen(clients)) if found else []


def why_lone(groups: Sequence[str]) -> str:
    """Return what to do about groups of `lone_streams`, which offsets alone will make."""
    return (
        f"{some(groups)}: before Kafka 4.2, no application with group.protocol=streams can join a "
        "group that has only offsets (GROUP_ID_NOT_FOUND): start it with group.protocol=classic"
    )


def _unseen(clients: Groups) -> set[str]:
    return {each.name for each in clients.listed().groups if each.state == NOT_DESCRIBED}


def by_group(captures: Mapping[str, TopicCapture]) -> dict[str, dict[str, list[GroupEntry]]]:
    """Return where each group stood, by topic, in one pass over all."""
    found: defaultdict[str, dict[str, list[GroupEntry]]] = defaultdict(dict)
    for topic, capture in captures.items():
        for row in capture.offsets:
            found[row.group or ""].setdefault(topic, []).append(row)
    return found


def planned_groups(view: GroupView, stood: Mapping[str, Stood]) -> list[PlannedGroup]:
    """Return what is to be set of groups that stood there when captured, or why it cannot be."""
    view.look_up(row for topics in stood.values() for rows in topics.values() for row in rows)
    return [_planned(view, own, name) for name, own in stood.items()]


def _planned(view: GroupView, stood: Stood, name: str) -> PlannedGroup:
    rows, refusals = list[GroupTranslated](), list[KbackupError]()
    offsets: dict[TopicPartition, GroupOffset] = {}
    oldest: dict[str, int] = {}
    for topic, own in stood.items():
        for row, at, found in view.translated(own):
            rows.append(_row(view, row.where, name, at, row, found))
            if isinstance(found, KbackupError):
                refusals.append(found)
                continue
            offsets[at] = GroupOffset(found.offset, row.metadata or b"")
            if found.written is not None:
                oldest[topic] = min(found.written, oldest.get(topic, found.written))
        for at, begin in view.added(topic):
            source = TopicPartition(topic, at.partition)
            rows.append(_row(view, source, name, at, None, begin))
            offsets[at] = GroupOffset(begin.offset, b"")
    return PlannedGroup(name, rows, offsets, refusals, oldest)


def _live(cluster: Cluster, groups: Collection[str]) -> Iterator[KbackupError]:
    for group, members in zip(groups, side_by_side(cluster.members, groups), strict=True):
        if members:
            yield RefusedError(
                f"group {group} has {counted(len(members), 'live member')}",
                f"{', '.join(members[:3])}: what it commits next would undo this",
                "stop its consumers, and run the command again; a static member counts until its "
                "session times out",
            )


def captured_of(
    topics: Iterable[str], newest: Mapping[str, TopicCapture], partitions: Collection[int] | None
) -> dict[str, TopicCapture]:
    """Return the captures of those of some topics that have one, of these partitions; None: all."""
    return {name: _of_partitions(newest[name], partitions) for name in topics if name in newest}


def _of_partitions(capture: TopicCapture, partitions: Collection[int] | None) -> TopicCapture:
    """Return what a capture says of some partitions, each row with its topic's id."""
    of = capture.topic
    kept = [
        replace(
            row, cluster_id=row.cluster_id or of.cluster_id, topic_id=row.topic_id or of.topic_id
        )
        for row in capture.offsets
        if partitions is None or row.partition in partitions
    ]
    return replace(capture, offsets=tuple(kept))


def _row(
    view: GroupView,
    where: TopicPartition,
    group: str,
    at: TopicPartition,
    row: GroupEntry | None,
    found: Translated | KbackupError,
) -> GroupTranslated:
    was = None if row is None else row.offset
    taken = None if row is None or not row.taken else moment_of(row.taken)
    if isinstance(found, KbackupError):
        return GroupTranslated(
            where, group, at.topic, at.partition, was, None, None, note=found.why, taken=taken
        )  # fmt: skip
    return GroupTranslated(
        where, group, at.topic, at.partition, was, found.offset, view.unread(at, found.offset),
        found.lost, found.note, found.is_approximate, taken,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class GroupsSet:
    """What a run has set, and what was there.

    Attributes:
        cluster_id: Where; empty where an earlier version has kept it, or the cluster has no id.
        before: Where each group stood, in all partitions.
        last: Where it stood just before, if it had been set already: it does still, where a run
            was killed in between.
    """

    id: str
    cluster_id: str
    before: Standing
    after: Standing
    last: Standing = field(default_factory=dict)

    def store(self, store: Store, layout: Layout) -> None:
        """Store it, before anything is set: else nothing could be undone."""
        sides = {"before": self.before, "after": self.after, "last": self.last}
        more = {"v": VERSION, "version": __version__, "cluster_id": self.cluster_id}
        said = {name: _plain(side) for name, side in sides.items()}
        put_json(store, _key(layout, self.id), more | said)

    @classmethod
    def read(cls, store: Store, layout: Layout, name: str) -> "GroupsSet":
        """Return what a run has stored.

        `ConfigurationError`: there is none of that name.  `CorruptObjectError`: it cannot be read.
        """
        if not name.isalnum():
            raise ConfigurationError(
                f"--undo {name}", "it is not an id", "give the id that was shown"
            )
        key = _key(layout, name)
        try:
            with store.open(key) as file:
                body = file.read()
        except ObjectNotFoundError as error:
            raise ConfigurationError(
                f"there is no run {name} that set groups", f"there is no {key}",
                "give the id that kbackup restore groups has shown",
            ) from error  # fmt: skip

        def made(said: Mapping[str, Any]) -> "GroupsSet":
            sides = (_sides(said[side]) for side in ("before", "after", "last"))
            return cls(name, str(said.get("cluster_id", "")), *sides)

        return parse_json(key, body, made, "offsets of groups that were set", BY_HAND)

    @classmethod
    def find(cls, store: Store, layout: Layout, name: str) -> "GroupsSet | None":
        """Return what was stored under a name; None where nothing was."""
        return None if store.head(_key(layout, name)) is None else cls.read(store, layout, name)

    @classmethod
    def latest(cls, store: Store, layout: Layout) -> Iterator["GroupsSet"]:
        """Yield what the latest runs have stored, newest first; what cannot be read is left out."""
        there = store.list(_key(layout, "").removesuffix(".json"))
        for one in sorted(there, key=lambda one: one.modified, reverse=True)[:_LATEST]:
            try:
                yield cls.read(store, layout, one.key.rpartition("/")[2].removesuffix(".json"))
            except KbackupError as error:
                _log.info("%s is left out: %s", one.key, error)

    @staticmethod
    def delete(store: Store, layout: Layout, name: str) -> None:
        """Delete what was stored under a name: nothing of it can be set back any more."""
        store.delete(_key(layout, name))

    def has_set(self, group: str, at: TopicPartition, now: GroupOffset) -> bool:
        """Whether a group stands in a partition where a run has set it."""
        return now in (side.get(group, {}).get(at) for side in (self.after, self.last))

    def holds(self, group: str, now: Offsets) -> bool:
        """Whether a group stands where this run has set it, and had stood elsewhere."""
        before, after = self.before.get(group, {}), self.after.get(group, {})
        return all(now.get(at) == one for at, one in after.items()) and any(
            before.get(at) != one for at, one in after.items()
        )

    def moved(self, group: str, now: Offsets) -> KbackupError | None:
        """Return why a group cannot be set back: it has moved since.  None where it can."""
        # others than the first: a run was killed
        sides = [side[group] for side in (self.after, self.last, self.before) if group in side]
        for at in self.after[group]:
            if now.get(at) not in [side.get(at) for side in sides]:
                return RefusedError(
                    f"group {group} has moved in {at} since",
                    "its consumers have gone on from where it was set" if at in now
                    else "it has no offset there any more",
                    BY_HAND, **at.place,
                )  # fmt: skip
        return None


def following_id(group: str, cluster: Cluster) -> str:
    """Return the id of what a restore with this consumer group sets as it follows."""
    return digest(f"{group} {cluster.cluster_id}")[:8]


def _key(layout: Layout, name: str) -> str:
    return f"{folder(layout, 'groups')}applied/{name}.json"


def _plain(side: Standing) -> dict[str, Any]:
    return {
        group: [
            [at.topic, at.partition, one.offset, base64.b64encode(one.metadata).decode()]
            for at, one in sorted(offsets.items())
        ]
        for group, offsets in side.items()
    }


def _sides(data: Mapping[str, Any]) -> dict[str, dict[TopicPartition, GroupOffset]]:
    return {
        group: {
            TopicPartition(topic, partition): GroupOffset(offset, base64.b64decode(metadata))
            for topic, partition, offset, metadata in rows
        }
        for group, rows in data.items()
    }
