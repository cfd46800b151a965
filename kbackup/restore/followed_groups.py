"""``--follow-groups``: consumer groups of a standby, set as the copy reaches their captures.

Captures are read before the bucket is listed, and applied after what was listed is restored, so
that one which a live sink has just stored can be reached.  A group that its capture is ahead of
waits for it, with that capture; each group is set whole.  Only its own values are ever replaced:
what it sets is stored first, beside what `restore groups` has set, and can be undone like that.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from kbackup.catalog import groups as captured
from kbackup.clock import moment_of, rfc3339
from kbackup.errors import KbackupError, RefusedError, counted
from kbackup.events import Event
from kbackup.kafka import Cluster, GroupOffset, Groups
from kbackup.naming.renaming import matching, rename
from kbackup.records import TopicPartition
from kbackup.restore.groups import (
    LONE_STREAMS,
    Applied,
    Stood,
    by_group,
    following_id,
    lone_streams,
    of_partitions,
    planned_group,
    set_whole,
    why_lone,
)
from kbackup.restore.restored import Restored, why_spread
from kbackup.restore.translate import GroupView, Learned, NotReachedError
from kbackup.restore.watch import Remarks
from kbackup.runs.context import RunContext
from kbackup.stores import Store

RENEW_S: Final = 86_400.0
"""After how many seconds a group is set again though no sink has captured it anew: Kafka forgets
the offsets of a group that has no members."""

RETRY_S: Final = 300.0
"""After how many seconds a group is looked at again that could not be set."""

_Taken = tuple[tuple[str, int], ...]
"""Which captures a group is set by: topics, and when each was taken."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A group that is to be set.

    Attributes:
        taken: The captures that it is set by.
        stood: Where it stood by them.
        is_ahead: The copy has not come to them yet.
        not_before: By the clock that nobody sets: when it is looked at again.
    """

    taken: _Taken
    stood: Stood
    is_ahead: bool = False
    not_before: float = 0.0


class FollowedGroups:
    """The groups of one restore that follows.

    Args:
        frame: The run's.
        store: Where the backup is.
        remarks: Reports what keeps a group from being set.

    Raises:
        RefusedError: If offsets of this restore cannot be translated.
    """

    def __init__(self, frame: RunContext, store: Store, remarks: Remarks) -> None:
        self._frame, self._store, self._remarks = frame, store, remarks
        self._settings, self._kafka = frame.settings, frame.world.kafka
        if (why := why_spread(self._settings)) is not None:
            raise RefusedError(
                "consumer groups cannot follow this restore", why, "leave out --follow-groups"
            )
        self._waiting: dict[str, _Waiting] = {}
        self._set: dict[str, tuple[_Taken, float]] = {}
        self._known: Learned = {}
        self._own: Applied | None = None
        self._seen: Collection[str] = ()
        self._newest: Mapping[str, Stood] = {}

    def facts(self) -> Event:
        """Return what the summary says: which groups stand as captured, and as of when."""
        taken = [ms for each, _ in self._set.values() for _, ms in each]
        oldest = moment_of(min(taken)) if taken else None
        undo = {} if self._own is None or not self._set else {"undo": self._own.id}
        return {
            "groups": sorted(self._set),
            "groups_taken": None if oldest is None else rfc3339(oldest),
            **undo,
        }

    def look(self) -> None:
        """Read the newest captures; what fails is a remark."""
        try:
            newest = self._captured()
        except KbackupError as error:
            self._remark("", "groups_not_set", f"consumer groups are not set: {error}")
            return
        now = self._frame.world.clock.steady_s()
        for name, stood in newest.items():
            taken = tuple((topic, rows[0].taken) for topic, rows in sorted(stood.items()))
            waiting, (done, at) = self._waiting.get(name), self._set.get(name, ((), -RENEW_S))
            if waiting is not None and (waiting.is_ahead or waiting.taken == taken):
                continue
            if waiting is not None:
                self._waiting[name] = replace(waiting, taken=taken, stood=stood)
            elif done != taken or now - at >= RENEW_S:
                self._waiting[name] = _Waiting(taken, stood)

    def _captured(self) -> Mapping[str, Stood]:
        """Return where each group that is to follow stood, by the newest captures."""
        settings, frame = self._settings, self._frame
        stream = captured.group_stream(self._store, frame.layout, frame.world.clock)
        if (new := stream.read_if_new(self._seen)) is None:
            return self._newest
        found = captured.captures(new[1])
        said = [(damage.code, damage.text) for damage in found.damage]
        self._remarks.odd(("", "captures"), said)
        newest = by_group(
            {
                topic: of_partitions(found.newest[topic], settings.partitions)
                for topic in {*settings.asked.topics(found.newest)} & found.newest.keys()
            }
        )
        names = matching(sorted(newest), settings.follow_groups or "", "follow.groups")
        self._seen, self._newest = new[0], {name: newest[name] for name in names}
        return self._newest

    def apply(self, cluster: Cluster) -> None:
        """Set the groups that the copy has come to; what fails is a remark."""
        now = self._frame.world.clock.steady_s()
        names = [name for name, one in sorted(self._waiting.items()) if one.not_before <= now]
        if not names or self._frame.stop.is_set():
            return
        try:
            with closing(self._kafka.consumer_groups()) as clients:
                self._apply(clients, cluster, names)
        except KbackupError as error:
            self._remark("", "groups_not_set", f"consumer groups are not set: {error}")
            return
        self._remark("")

    def _apply(self, clients: Groups, cluster: Cluster, names: Sequence[str]) -> None:
        settings, frame = self._settings, self._frame
        own = self._read_own(cluster)
        standing = dict(clients.offsets(names))
        free = dict[str, Mapping[TopicPartition, GroupOffset]]()
        for name, now in standing.items():
            why = self._taken_by(cluster, own, name, now)
            if why is None and now is not None:
                free[name] = now
                continue
            self._rest(name)
            self._set.pop(name, None)
            self._remark(name, "group_left_alone", f"group {name} {why}: it is left alone")
        if not free:
            return
        lone = lone_streams(clients, {name: self._waiting[name].stood for name in free})
        restored = Restored(settings, self._kafka, self._store, frame.world.clock, cluster)
        with closing(GroupView(restored, cluster, self._store, known=self._known)) as view:
            found = {
                name: offsets
                for name in free
                if (offsets := self._translated(view, name, is_lone=name in lone)) is not None
            }
        self._known = view.learned
        if not found:
            return
        after = Applied(
            own.id,
            {**{name: free[name] for name in found}, **own.before},
            {**own.after, **found},
            {**own.last, **{name: free[name] for name in found}},
        )
        if after != own:
            after.store(self._store, frame.layout)
        self._own = after
        for name, offsets in found.items():
            self._alter(clients, name, offsets, free[name])

    def _read_own(self, cluster: Cluster) -> Applied:
        """Return what runs of this restore have set, and what was there before."""
        if self._own is None:
            name = following_id(self._frame.group, cluster)
            there = Applied.find(self._store, self._frame.layout, name)
            self._own = Applied(name, {}, {}) if there is None else there
        return self._own

    def _taken_by(
        self,
        cluster: Cluster,
        own: Applied,
        name: str,
        now: Mapping[TopicPartition, GroupOffset] | None,
    ) -> str | None:
        """Return who a group belongs to; None: to nobody, and it stands where it was set."""
        if now is None:
            return "may not be read"
        if members := cluster.members(name):
            return f"has {counted(len(members), 'live member')}"
        topics = {rename(topic, self._settings.renames) for topic in self._waiting[name].stood}
        for at in sorted(now):
            if at.topic in topics and not own.has_set(name, at, now[at]):
                return f"stands in {at} where this restore has not set it"
        return None

    def _translated(
        self, view: GroupView, name: str, *, is_lone: bool
    ) -> Mapping[TopicPartition, GroupOffset] | None:
        """Return where a group is to stand; None where it cannot be set yet."""
        waiting = self._waiting[name]
        found = planned_group(view, waiting.stood, name)
        failed = [one for one in found.refusals if not isinstance(one, NotReachedError)]
        if failed:
            self._rest(name)
            self._remark(name, "group_not_set", f"group {name} is not set: {failed[0]}")
            return None
        self._remark(name, *((LONE_STREAMS, why_lone([name])) if is_lone else ()))
        if found.refusals:
            self._waiting[name] = replace(waiting, is_ahead=True)
            return None
        if name not in self._set:
            for row in found.rows:
                self._frame.tell(row)
        return found.offsets

    def _alter(
        self,
        clients: Groups,
        name: str,
        offsets: Mapping[TopicPartition, GroupOffset],
        before: Mapping[TopicPartition, GroupOffset],
    ) -> None:
        try:
            set_whole(clients, name, offsets, before)
        except KbackupError as error:  # a consumer has joined meanwhile
            self._rest(name)
            self._remark(name, "group_not_set", f"group {name} is not set: {error}")
            return
        taken = self._waiting.pop(name).taken
        self._set[name] = taken, self._frame.world.clock.steady_s()

    def _rest(self, name: str) -> None:
        """Look at a group again after a while, and then by its newest captures."""
        later = self._frame.world.clock.steady_s() + RETRY_S
        self._waiting[name] = replace(self._waiting[name], is_ahead=False, not_before=later)

    def _remark(self, name: str, code: str = "", text: str = "") -> None:
        """Report what keeps a group, or all where *name* is empty, from being set; if anything."""
        self._remarks.odd(("consumer group", name), [(code, text)] if code else [])
