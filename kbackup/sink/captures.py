"""Capture where consumer groups stand, and if asked who may do what in the cluster.

Of groups: offsets first, then high watermarks, then records.  So whatever an application had
written by the time it committed an offset lies before a high watermark, and a capture that is
stored once the backup has reached those misses nothing of it.  Last stable offsets would not do: a
committed offset can be seen before the marker of the transaction that it was committed with.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from kbackup.catalog import access, groups
from kbackup.catalog.access import AccessBundle
from kbackup.catalog.groups import GroupEntry
from kbackup.catalog.ledger.rows import TopicEntry, table
from kbackup.config.running import NO_GROUPS
from kbackup.errors import CorruptObjectError, KbackupError, some
from kbackup.kafka import NOT_DESCRIBED, SETTLE_S, Cluster, Connection, Group, GroupOffset, Topic
from kbackup.naming.renaming import matching
from kbackup.records import TopicPartition
from kbackup.runs import wiring
from kbackup.runs.context import RunContext
from kbackup.runs.position import is_own
from kbackup.runs.report import OfSink, Row
from kbackup.sink.accounting import SinkProgress
from kbackup.sink.plan import partitions_of, topics_of_drills
from kbackup.stores import Store

_log: Final = logging.getLogger(__name__)

CAPTURE_S: Final = 60.0
"""Seconds between two captures of a run that follows."""

LOOK_S: Final = 5.0
"""How often it looks whether the backup has reached what a capture waits for."""

DROPPED: Final = "missing_captures"
"""Counts the captures that could not be made."""

LEFT_OUT: Final = "incomplete_captures"
"""Counts, where groups were asked for by name, that some may not be seen."""

INCOMPLETE: Final = "groups_incomplete"
NOT_CAPTURED: Final = "groups_not_captured"

ACCESS_S: Final = 600.0
"""Seconds between two looks of a run that follows at ACLs, users and settings."""

NO_ACCESS: Final = "missing_cluster_parts"
"""Counts, where ``cluster.capture`` asks for them, the parts that could not be captured."""

ACCESS_NOT_CAPTURED: Final = "access_not_captured"

WITHOUT_OFFSETS: Final = "groups_without_offsets"

Standing = Mapping[str, Mapping[TopicPartition, GroupOffset]]


@dataclass(frozen=True, slots=True)
class _CaptureTaken:
    """What the cluster has said; it counts once the backup has reached *ends*."""

    at_ms: int
    steady_s: float
    groups: Mapping[str, Group]
    is_complete: bool
    offsets: Standing
    topics: Mapping[str, Topic]
    ends: Mapping[TopicPartition, int]

    def has_offsets(self) -> bool:
        """Whether any group stands anywhere in the sink's topics."""
        return any(where in self.ends for each in self.offsets.values() for where in each)


class GroupCaptures:
    """Takes captures for a run, and stores them once the backup has come so far."""

    def __init__(self, frame: RunContext, store: Store, account: SinkProgress) -> None:
        self._frame, self._settings, self._account = frame, frame.settings, account
        self._kafka: Connection = frame.environment.kafka
        self._store = store
        self._stream = groups.group_stream(store, frame.layout, frame.environment.clock)
        self._routes = wiring.routes(frame.settings)
        self._own: frozenset[str] = frozenset()
        self._taken: _CaptureTaken | None = None
        self._begun: float | None = None
        self._stored = 0

    def know(self, sinks: Collection[TopicEntry]) -> None:
        """Learn which groups are those of sinks of this backup."""
        self._own = frozenset(one.group for one in sinks if one.group is not None)

    def take(self, cluster: Cluster, *, waits: bool) -> None:
        """Ask the cluster where groups stand, then where its logs end.

        What fails drops the capture, and is in the summary.

        Args:
            waits: Wait for transactions that are open now, for as long as `SETTLE_S`.
        """
        if self._settings.groups == NO_GROUPS:
            return
        clock = self._frame.environment.clock
        self._begun = clock.steady_s()
        self._taken = None
        try:
            self._taken = self._ask(cluster, clock.ms())
            if waits and self._taken.has_offsets():
                cluster.wait_for(self._taken.ends)
        except KbackupError as error:
            self._taken = None
            self._drop(error)

    def _ask(self, cluster: Cluster, now_ms: int) -> _CaptureTaken:
        asked, steady_s = self._settings.asked, self._frame.environment.clock.steady_s()
        names = {*asked.topics(cluster.topic_names())}
        topics = cluster.topics(
            names.difference(topics_of_drills(self._settings, cluster, self._store))
        )
        with closing(self._kafka.consumer_groups()) as clients:
            listed = clients.listed()
            known = {each.name: each for each in listed.groups}
            wanted = sorted(known.keys() - {self._frame.group})
            if (pattern := self._settings.groups) is not None:
                wanted = matching(wanted, pattern, "groups")
            standing = dict(clients.offsets(wanted))
        offsets = {
            name: positions
            for name, positions in standing.items()
            if positions and not _are_own(positions)
        }
        ends = cluster.ends(partitions_of(topics, asked))  # only now
        denied = any(positions is None for positions in standing.values())
        is_complete = listed.is_complete and not denied
        said = (
            "maybe not all consumer groups are captured: this principal lacks DESCRIBE on the "
            "cluster, or on a group"
        )
        lack = LEFT_OUT if is_complete or pattern is not None else None
        texts = [] if is_complete else [(INCOMPLETE, said)]
        self._frame.remark(INCOMPLETE, *texts, skipped=lack)
        bare = sorted(
            name for name, positions in standing.items()
            if known[name].state == NOT_DESCRIBED and positions == {}
        )  # fmt: skip
        said = (
            f"{some(bare)}: not captured, as they have no offsets: share groups, or Kafka Streams "
            "groups that have committed nothing"
        )
        self._frame.remark(WITHOUT_OFFSETS, *([(WITHOUT_OFFSETS, said)] if bare else []))
        return _CaptureTaken(now_ms, steady_s, known, is_complete, offsets, topics, ends)

    def _drop(self, error: KbackupError) -> None:
        said = f"consumer groups are not captured: {error}"
        self._frame.remark(NOT_CAPTURED, (NOT_CAPTURED, said), skipped=DROPPED)

    def turn(self) -> None:
        """Take a capture if it is time, or store the one that was taken; for a run that follows."""
        if self._settings.groups == NO_GROUPS:
            return
        now = self._frame.environment.clock.steady_s()
        if self._taken is not None:
            self.keep(is_last=False)
        elif self._begun is None or now - self._begun >= CAPTURE_S:
            try:
                cluster = self._kafka.cluster()
            except KbackupError as error:
                self._begun = now
                self._drop(error)
            else:
                self.take(cluster, waits=False)

    def keep(self, *, is_last: bool) -> None:
        """Store what was taken if the backup has reached all of it; what fails is in the summary.

        Args:
            is_last: The run has ended by itself: store it in any case, with the partitions in
                which it has not come so far.
        """
        taken = self._taken
        if taken is None:
            return
        rows = {row.report.where: row for row in self._account.rows()}
        clock = self._frame.environment.clock
        has_waited = is_last or clock.steady_s() - taken.steady_s >= SETTLE_S
        found = {
            where: _lack(rows[where], end, has_waited=has_waited, is_last=is_last)
            for where, end in taken.ends.items()
            if where in rows
        }
        if groups.BEHIND in found.values() and not is_last:
            return
        # of a topic that is refused, what the backup holds goes with its earlier captures
        backed_up = {where.topic for where, why in found.items() if why != groups.REFUSED}
        found = {where: why for where, why in found.items() if where.topic in backed_up}
        self._taken = None
        if not (entries := list(self._entries(taken, rows, found))):
            return
        try:
            self._stream.append(table(entries, groups.GROUPS))
            self._stored += 1
            if is_last or self._stored % groups.FOLD_AT == 0:
                self._stream.fold(groups.FOLD_AT)
        except KbackupError as error:
            self._drop(error)
            return
        self._frame.remark(NOT_CAPTURED, skipped=DROPPED)

    def _entries(
        self,
        taken: _CaptureTaken,
        rows: Mapping[TopicPartition, Row[OfSink]],
        lacks: Mapping[TopicPartition, str],
    ) -> Iterator[GroupEntry]:
        """Yield the rows of a capture, by the names that topics have in the bucket."""
        run, now = self._frame.run, self._frame.environment.clock.ms()
        cluster_id = self._frame.summary.facts.get("cluster_id", "")
        heads = {
            name: GroupEntry(
                groups.TOPIC, taken.at_ms, self._routes.topic(name), cluster_id,
                taken.topics[name].topic_id, taken.is_complete, run=run, time=now,
            )
            for name in sorted({where.topic for where in lacks})
        }  # fmt: skip
        pattern = self._settings.groups
        if self._settings.partitions is None:
            for head in heads.values():
                yield replace(head, groups=pattern)
        else:
            for where in lacks:
                yield replace(heads[where.topic], partition=where.partition, groups=pattern)
        for where, why in sorted(lacks.items()):
            if why:
                yield replace(
                    heads[where.topic], kind=groups.UNSETTLED, is_complete=None,
                    partition=where.partition, high_watermark=taken.ends[where], why=why,
                )  # fmt: skip
        for name, positions in sorted(taken.offsets.items()):
            if name in self._own:
                continue
            group = taken.groups[name]
            # the other kind that nobody describes, a share group, has no offsets
            is_of_streams = group.state == NOT_DESCRIBED
            for where, at in sorted(positions.items()):
                if where not in lacks:
                    continue
                report = rows[where].report
                beyond = 0 if report.start is None else at.offset - report.reached
                yield replace(
                    heads[where.topic], kind=groups.OFFSET, is_complete=None, group=name,
                    protocol_type=groups.STREAMS if is_of_streams else group.protocol_type,
                    state=group.state,
                    partition=where.partition, offset=at.offset, metadata=at.metadata,
                    high_watermark=taken.ends[where], beyond=beyond if beyond > 0 else None,
                )  # fmt: skip


class AccessCapture:
    """Captures ACLs, users and the brokers' settings, where ``cluster.capture`` asks for that.

    What the cluster does not tell is a warning, and makes the run exit 3: records are backed up.
    """

    def __init__(self, frame: RunContext, store: Store) -> None:
        self._frame, self._store = frame, store
        self._newest: AccessBundle | None = None
        self._looked: float | None = None

    def turn(self) -> None:
        """Look whether it is time; for a run that follows."""
        now = self._frame.environment.clock.steady_s()
        if self._looked is None or now - self._looked >= ACCESS_S:
            self.take()

    def take(self) -> None:
        """Ask the cluster, and store what it says if that differs from the newest bundle."""
        if not self._frame.settings.cluster_capture:
            return
        self._looked = self._frame.environment.clock.steady_s()
        try:
            with closing(self._frame.environment.kafka.access()) as asked:
                found, failures = access.take_bundle(asked, self._frame.environment.clock.ms())
            if found.missing.keys() != {*access.PARTS}:
                self._keep(found)
        except KbackupError as error:
            failures = dict.fromkeys(access.PARTS, str(error))
        if not failures:
            self._frame.remark(ACCESS_NOT_CAPTURED, skipped=NO_ACCESS)
            return
        why = "; ".join(dict.fromkeys(failures.values()))
        said = ACCESS_NOT_CAPTURED, f"not captured: {', '.join(failures)} of the cluster: {why}"
        self._frame.remark(ACCESS_NOT_CAPTURED, said, skipped=NO_ACCESS, count=len(failures))

    def _keep(self, found: AccessBundle) -> None:
        store, layout = self._store, self._frame.layout
        if self._newest is None:
            try:
                self._newest = next(access.newest_first(store, layout), None)
            except CorruptObjectError as error:
                _log.warning("the newest capture of ACLs and users: %s", error)
        if self._newest is None or not found.says_as(self._newest):
            access.put(store, layout, found, self._frame.run)
            self._newest = found


def _lack(row: Row[OfSink], end: int, *, has_waited: bool, is_last: bool) -> str:
    """Return why the backup of a partition ends before *end*, if it does: empty if it does not."""
    report = row.report
    if report.start is None:
        return groups.REFUSED
    if report.reached >= end:
        return ""
    if not has_waited:
        return groups.BEHIND  # it may come there yet
    held_up = report.held_up
    if held_up is not None and held_up.offset < end and report.reached >= held_up.offset:
        return groups.TRANSACTION
    if row.state == "failed":
        return groups.FAILED
    return groups.TAIL if is_last and row.state == "tail left open" else groups.BEHIND


def _are_own(positions: Mapping[TopicPartition, GroupOffset]) -> bool:
    return any(
        is_own(where, at.offset, at.metadata.decode(errors="replace"))
        for where, at in positions.items()
    )
