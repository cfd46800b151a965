"""Show the state of a backup or a restore: past runs, the last success and its age, current runs.

Everything comes from run records and lock objects; Kafka is not contacted, and nothing is written.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Any, Final, Self

from kbackup.catalog import access, drills, groups
from kbackup.catalog.schemas import SchemaIndex
from kbackup.clock import StoppedClock, moment_of
from kbackup.config import Settings
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    NewerVersionError,
    NoKeyError,
    OutdatedBackupError,
    some,
)
from kbackup.events import Ended, PartitionRow
from kbackup.naming import Layout
from kbackup.naming.renaming import ALL, TopicFilter
from kbackup.records import TopicPartition
from kbackup.runs import history, locks, wiring
from kbackup.runs.history import PastRun, RunRecord, Selection
from kbackup.runs.report import Summary
from kbackup.stores import Store


@dataclass(frozen=True, slots=True)
class Words:
    """The wording for the runs of one command.

    Attributes:
        unknown: Begins the sentence that no successful run is known.
        old: Begins the sentence that the last success is too old.
        keeps_success: Its last success is kept beside its run records.
    """

    command: str
    unknown: str
    old: str
    do: str
    begin: str
    keeps_success: bool = False


@dataclass(frozen=True, slots=True)
class ThisRestore:
    """One restore among all from a bucket.

    Attributes:
        groups: The consumer groups of which one keeps its positions.
        lock: What its lock is for.
        is_configured: Whether a configuration says which it is: a run for fewer topics than that
            is of another.
        target: The brokers that it writes to, as ``bootstrap.servers`` names them; None for any.
    """

    groups: Sequence[str]
    lock: str
    is_configured: bool = True
    target: str | None = None

    @classmethod
    def of(cls, settings: Settings, groups: Sequence[str]) -> Self:
        """Return the restore of a configuration, whose positions one of *groups* keeps."""
        return cls(groups, wiring.restore_lock(settings), target=settings.bootstrap_servers)

    def is_into(self, record: RunRecord) -> bool:
        """Whether a run wrote to its cluster, as far as both say."""
        return not self.target or record.wrote_to(self.target)

    def has(self, record: RunRecord, asked: TopicFilter) -> bool:
        """Whether a run was one of this restore, for what is asked."""
        is_whole = not (self.is_configured and record.names) or bool(asked.words)
        keeps = map(record.keeps_positions_in, self.groups)
        return is_whole and self.is_into(record) and any(keeps)


@dataclass(frozen=True, slots=True)
class RunningNow:
    """A run that holds its lock, as the lock object says."""

    run: str | None
    host: str | None
    pid: int | None
    started: str | None


@dataclass(frozen=True, slots=True)
class CapturesKept:
    """What is kept of where consumer groups stood.

    Attributes:
        since: When the first capture that is kept was taken.
        is_complete: Whether those are known to hold all groups that there were.
    """

    since: datetime | None
    newest: datetime | None
    topics: int
    groups: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class AccessKept:
    """What is kept of who may do what in the cluster.

    Attributes:
        taken: When the newest bundle was taken; what has not changed since is not stored again.
        acls: How many ACLs it has; None where the cluster did not give them.
    """

    taken: datetime | None
    acls: int | None
    users: int | None


SINK: Final = Words(
    "sink",
    "no good run of kbackup sink is known for",
    "the backup is known to be complete only up to",
    "see the errors of the last run, and run kbackup sink",
    "run kbackup sink; if it has run, check bucket and topics.dir",
    keeps_success=True,
)

RESTORE: Final = Words(
    "restore",
    "no good run of kbackup restore is known for",
    "the restore is known to hold only what was in the bucket",
    "see the errors of the last run, and run kbackup restore",
    "if one has run, check bucket and topics.dir, or give its --config",
)

_PAST: Final = 10
_LOOKED: Final = 300
"""The most run records that are read: two days of a sink that runs every quarter of an hour, with
room for those of other runs."""


def status(
    store: Store,
    layout: Layout,
    *,
    max_age_s: float | None,
    now: datetime,
    asked: TopicFilter = ALL,
    of: Words = SINK,
    restore: ThisRestore | None = None,
    own: RunRecord | None = None,
    has_schemas: bool = True,
) -> Ended:
    """Return the state of the backup in this ``topics.dir``, in the shape of a summary.

    Its ``exit_code`` is 7 if it is not known up to when the backup is complete, or if that is more
    than *max_age_s* ago.  A successful run (exit 0 or 3) makes it complete up to the start of the
    run: what was written later may not be in it.  A run that follows records this time itself, for
    all of its partitions: the backup ages while one of them makes no progress.

    The newest 300 runs are read; if none of them covers the names, the time that the last
    successful run of exactly these names has stored counts.  Where a host's clock was wrong, a
    later good run for the same names and partitions puts it right, since no record is believed to
    be complete for longer than the last of them has stored.

    What it has beside a summary's fields, the reference of JSON lines says.

    Args:
        asked: Only runs that covered all of these topics, or that had this ``topics.regex``, and
            only their rows, of these partitions; only the success of runs that were asked for all
            of them.  With neither topics nor a pattern, all runs count as runs of one backup.
        of: The command whose runs count.  A successful restore has restored what was in the
            bucket when it began.
        restore: Only runs of this one; None for all.
        own: A run that counts as the newest one, in place of the record that it has left.
        has_schemas: Warn of schemas that are not in the bucket: a listing for each topic.

    Raises:
        ConfigurationError: If there are restores of several groups, or into several clusters, and
            none was named.
    """
    summary = Summary(history.new_run_id(now), f"{of.command} status")
    past: list[PastRun] = []
    rows = success = newest = None
    words = set(asked.words)
    groups, targets, others = dict[str, str](), set[str](), set[str]()
    kept = history.kept_successes(store, layout) if of.keeps_success else {}
    looks_beside = of.keeps_success and has_schemas
    recent = history.RecentRuns.listed(store, layout, now) if looks_beside else None
    left = (
        record
        for record in history.runs(store, layout, of.command, now=now, recent=recent)
        if own is None or record.run != own.run
    )
    for record in islice(chain([own] if own else [], left), _LOOKED):
        is_mine = restore is None or restore.has(record, asked)
        if record is not own and not (words <= record.covered and is_mine):
            whose = f"{record.group} for {some(record.names)}" if record.names else record.group
            if restore is not None and not restore.is_into(record):
                whose = f"{whose} into {record.target}"
            others |= set() if restore is None else {str(whose)}
            continue
        groups.setdefault(str(record.group), _shown(record))
        if record.target is not None and not any(map(record.wrote_to, targets)):
            targets.add(record.target)
        newest = newest or record
        if len(past) < _PAST:
            past.append(record.past())
        rows = rows or list(_rows(record, asked))
        believed = _believed(record, kept, summary, now)
        success = success or (believed if record.vouches_for(asked.partitions) else None)
        if rows and success and len(past) == _PAST:
            break
    if of is RESTORE:
        _refuse_several(groups, targets if restore is None or not restore.target else ())
    for (of_names, _), record in kept.items():
        if success is None and set(of_names) == words and record.vouches_for(asked.partitions):
            success = _believed(record, kept, summary, now)
    mine = set[str | None]()  # a restore's lock names its group, or what follows from its options
    if restore is not None:
        mine = {restore.lock} if newest is None else {restore.lock, newest.group, newest.run}
    summary.partitions = [*(rows or ())]
    if recent is not None:
        index = SchemaIndex.read(store, layout, sorted(asked.names) or None)
        schemas_of = {use.topic for use in index.unknown.union(index.missing)}
        for code, text in index.lacking(asked.topics(schemas_of)):
            summary.warn(code, text)
        summary.facts |= _kept(store, layout, summary, now, asked)
        summary.facts["last_drill"] = drills.last(store, layout)
        summary.facts["proofs"] = recent.proofs(asked)
    _judge(of, summary, layout, (success, now, max_age_s), newest, restore, others)
    summary.facts |= {
        "group": None if newest is None else newest.group,
        "topics_dir": layout.topics_dir,
        "names": sorted(words) or None,
        "runs": past,
        "last_success": success,
        "age_s": None if success is None else _age_s(success, now),
        "max_age_s": max_age_s,
        "running": list(_running(of, store, layout, now, words, mine)),
    }
    return summary.finish()


def _shown(record: history.RunRecord) -> str:
    """Return a restore as who has begun several knows it: by what it has written, and when."""
    into = sorted({row.target or row.where.topic for row in record.rows})
    return f"{record.group} ({', '.join([record.run, *([some(into)] if into else [])])})"


def _refuse_several(groups: Mapping[str, str], targets: Collection[str]) -> None:
    if len(groups) > 1:
        raise ConfigurationError(
            f"restores of {len(groups)} consumer groups were found: {'; '.join(groups.values())}",
            "each may have a target of its own",
            "give the options that one of them had, such as --rename, or its group: --of-group",
        )
    if len(targets) > 1:
        raise ConfigurationError(
            f"restores into {len(targets)} clusters were found: {'; '.join(sorted(targets))}",
            "they keep their positions in consumer groups of the same name",
            "give the --config of one of them, with its bootstrap.servers",
        )


def complete_up_to(
    store: Store,
    layout: Layout,
    wheres: Collection[TopicPartition],
    now: datetime,
    summary: Summary,
) -> dict[TopicPartition, datetime]:
    """Return up to when the backup of each partition is complete, as far as a sink says so.

    Partitions are called as in Kafka.
    """
    found: dict[TopicPartition, datetime] = {}
    kept = history.kept_successes(store, layout)
    past = islice(history.runs(store, layout, SINK.command, now=now), _LOOKED)
    for record in chain(past, kept.values()):
        left = [at for at in wheres if at not in found and record.vouches_for([at.partition])]
        if not left:
            if len(found) == len(wheres):
                break
            continue
        rows = {row.where: row.complete_until for row in record.rows}
        covered, success = record.covered, _believed(record, kept, summary, now)
        for at in left:
            moment = rows.get(at) or (success if at.topic in covered else None)
            if moment is not None and moment <= now + history.CLOCKS:
                found[at] = moment
    return found


def _rows(record: RunRecord, asked: TopicFilter) -> Iterator[PartitionRow]:
    rows = record.rows
    chosen = {row.where.topic for row in rows}
    if asked.names or asked.pattern is not None:
        chosen = set(asked.topics(chosen))
    for row in rows:
        if row.where.topic in chosen and asked.has(row.where.partition):
            yield row


def _kept(
    store: Store, layout: Layout, summary: Summary, now: datetime, asked: TopicFilter
) -> Mapping[str, Any]:
    """Return what is kept of groups and of access; nothing where the key for them is not here."""
    try:
        captures = _captures(store, layout, summary, now, asked)
        return {"captures": captures, "access_kept": _access(store, layout, summary)}
    except NoKeyError as error:
        summary.warn(error.code, f"captures of groups and access are not shown: {error}")
        return {}


def _captures(
    store: Store, layout: Layout, summary: Summary, now: datetime, asked: TopicFilter
) -> CapturesKept | None:
    """Return what is kept of the groups of the selected topics, None if nothing is."""
    found = groups.read(store, layout, StoppedClock(now))
    for damage in found.damage:
        summary.warn(damage.code, str(damage))
    mine = [found.newest[name] for name in asked.topics(found.newest) if name in found.newest]
    if not mine:
        return None
    return CapturesKept(
        moment_of(min(one.since for one in mine)),
        moment_of(max(one.topic.taken for one in mine)),
        len(mine),
        len({row.group for one in mine for row in one.offsets}),
        all(one.topic.is_complete for one in mine),
    )


def _access(store: Store, layout: Layout, summary: Summary) -> AccessKept | None:
    """Return what is kept of ACLs and users; None if nothing is, or it cannot be read."""
    try:
        found = next(access.newest_first(store, layout), None)
    except (CorruptObjectError, NewerVersionError) as error:
        summary.warn(error.code, str(error))
        return None
    if found is None:
        return None
    acls, users = (None if part is None else len(part) for part in (found.acls, found.users))
    return AccessKept(moment_of(found.taken), acls, users)


def _believed(
    record: RunRecord, kept: Mapping[Selection, RunRecord], summary: Summary, now: datetime
) -> datetime | None:
    """Return the record's success, unless it is in the future, which would disable this check."""
    success, last = record.success, kept.get(record.selection, record).success
    success = None if success is None or last is None else min(success, last)
    if success is not None and success > now + history.CLOCKS:
        text = (
            f"run {record.run} starts in the future: a clock was wrong, so the run does not count"
        )
        summary.warn("run_in_future", text)
        return None
    return success


def _judge(
    of: Words,
    summary: Summary,
    layout: Layout,
    times: tuple[datetime | None, datetime, float | None],
    newest: RunRecord | None,
    restore: ThisRestore | None,
    others: Collection[str],
) -> None:
    success, now, max_age_s = times
    trouble = "" if newest is None else newest.trouble
    if success is None:
        text = f"{of.unknown} {layout.place}"
        text += "" if restore is None else f" with group {restore.groups[0]}"
        if newest is None:
            why, do = "no such run has left a record there", of.begin
            if others:
                why = f"restores there are of {', '.join(sorted(others))}"
                do = "give the options that one of them was given, or its group with --of-group"
            summary.fail(OutdatedBackupError(text, why, do))
        else:
            summary.fail(OutdatedBackupError(text, trouble, of.do))
    elif max_age_s is not None and _age_s(success, now) > max_age_s:
        text = f"{of.old} {_span(_age_s(success, now))} ago"
        why = f"--max-age is {_span(max_age_s)}" + (f"; {trouble}" if trouble else "")
        summary.fail(OutdatedBackupError(text, why, of.do))


def _running(
    of: Words,
    store: Store,
    layout: Layout,
    now: datetime,
    asked: set[str],
    mine: set[str | None],
) -> Iterator[RunningNow]:
    for holder in locks.holders(store, layout, of.command):
        names = {*(holder.body.get("names") or ())}
        is_asked = (
            asked <= names if of is SINK else not mine or mine & {holder.body.get("run"), *names}
        )
        if is_asked and abs((now - holder.modified).total_seconds()) < locks.STALE_S:
            said = holder.body
            yield RunningNow(
                said.get("run"), said.get("host"), said.get("pid"), said.get("started")
            )


def _age_s(success: datetime, now: datetime) -> float:
    return max(0.0, (now - success).total_seconds())


def _span(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
