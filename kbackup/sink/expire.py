"""``sink expire``: mark objects that have had their time in one run, delete them in a later one.

Between the two, what reads without a lock goes on reading: a restore, a copy, a query.  From the
mark on all who plan leave the objects out, and no one calls them missing, at whatever request a
run dies.  The mark's age is the store's to tell: it is compared with no host's clock.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, cast

from kbackup.catalog import identity, listing
from kbackup.catalog.expiry import (
    NOTHING_MARKED,
    Block,
    Marked,
    blocks,
    keys_of,
    marked,
    of_unknown_age,
    to_expire,
)
from kbackup.catalog.ledger.rows import (
    ACCEPTED,
    KEPT,
    OBJECTS,
    REMOVED,
    Entry,
    of_object,
    table,
)
from kbackup.catalog.ledger.stream import topic_stream
from kbackup.catalog.listing import FileSet, object_bytes, object_count
from kbackup.clock import Clock, moment_of, rfc3339
from kbackup.config import Settings
from kbackup.errors import (
    CorruptObjectError,
    KbackupError,
    RefusedError,
    counted,
    form,
    some,
)
from kbackup.events import INLINE, Plain
from kbackup.naming import Layout
from kbackup.records import TopicPartition
from kbackup.runs import backup_state, history, wiring
from kbackup.runs.backup_state import BackupState
from kbackup.runs.context import Agree, Stop, confirm
from kbackup.runs.history import Estimate, of_stored
from kbackup.runs.locks import RunLock, all_locked, lost_lock, store_clock
from kbackup.runs.locks import prefix as lock_prefix
from kbackup.runs.report import Summary
from kbackup.sink.plan import locked
from kbackup.stores import Served, Store, Versions

_THREADS: Final = 16
_PLANNED: Final = ("marks", "deletes", "waits", "undone")
_AT_ONCE: Final = 64
"""Sets that are deleted side by side: what a run that dies leaves is a prefix but for so many."""


@dataclass(frozen=True, slots=True)
class ExpireOptions:
    """What is to go.

    Attributes:
        older_than: What is older than this; None: nothing by age.
        max_bytes: The oldest, until no more is left; None: nothing by size.
        grace: How long what was marked stays at least.
        takes_compacted: Topics too that Kafka compacts, or did.
    """

    older_than: timedelta | None = None
    max_bytes: int | None = None
    grace: timedelta = timedelta(hours=24)
    takes_compacted: bool = False
    is_undo: bool = False


@dataclass(frozen=True, slots=True)
class ExpiryPlanned:
    """What goes of a partition, or would.

    Attributes:
        marks: Objects that are marked as removed by this run.
        gone: How many of those were deleted already, as by a rule of the bucket.
        up_to: The offset before which nothing is left to restore then; null where nothing is
            marked by this run.
        waits: Objects that were marked and stay for now.
        due: When the last of those can be deleted; null where there are none.
        undone: Objects whose mark is taken back.
    """

    HEAD: ClassVar = {"type": "expire"}

    where: TopicPartition = field(metadata=INLINE)
    marks: int = 0
    mark_bytes: int = 0
    gone: int = 0
    up_to: int | None = None
    deletes: int = 0
    delete_bytes: int = 0
    waits: int = 0
    due: datetime | None = None
    undone: int = 0


@dataclass(frozen=True, slots=True)
class _MarkedPartition:
    """What is to be done with one."""

    where: TopicPartition
    marks: Sequence[Block] = ()
    deletes: Marked = NOTHING_MARKED
    waits: Marked = NOTHING_MARKED
    undone: Sequence[Entry] = ()

    @property
    def is_work(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.marks or self.deletes.rows or self.undone)

    def shown(self, grace_ms: int) -> ExpiryPlanned:
        rows = [row for one in self.marks for row in one.rows]
        sets = [files for one in self.marks for files in one.sets]
        due = max((mark.time + grace_ms for _, mark in self.waits.rows), default=None)
        return ExpiryPlanned(
            self.where,
            len(rows),
            object_bytes(sets),
            len(rows) - object_count(sets),
            self.marks[-1].span.end_offset if self.marks else None,
            len(self.deletes.rows),
            object_bytes(self.deletes.sets),
            len(self.waits.rows),
            None if due is None else moment_of(due),
            len(self.undone),
        )


class ExpireRun:
    """One run of ``sink expire``.

    Args:
        clock: The time, for people; a dry run asks it, and writes no probe.
        stop: When set, the run ends before the next objects.
        agree: Asks a person; None where there is none.
    """

    def __init__(
        self,
        settings: Settings,
        options: ExpireOptions,
        store: Store,
        layout: Layout,
        clock: Clock,
        summary: Summary,
        stop: Stop,
        agree: Agree | None,
    ) -> None:
        self._settings, self._options, self._store = settings, options, store
        self._layout, self._clock, self._summary = layout, clock, summary
        self._stop, self._agree = stop, agree
        summary.facts |= history.selected(settings.asked)
        self._lock: RunLock | None = None
        self._has_versions, self._begun_ms, self._work_s = False, 0, 0.0
        self._is_declined = False  # which is no failure to be told of

    def __call__(self) -> Iterator[Plain]:
        """Plan, yield the plan, and carry it out; what fails is in the summary.

        Raises:
            KbackupError: If it was asked for wrongly, or a sink or a restore is at work.
        """
        try:
            yield from self._run()
        except KbackupError as error:
            if error.begins_nothing:
                raise
            self._summary.fail(error)
        if not (self._settings.dry_run or self._is_declined):
            try:
                said = self._summary.finish(self._stop.signal)
                history.write_run(self._store, self._layout, said)
            except KbackupError as error:
                self._summary.fail(error)

    def _run(self) -> Iterator[Plain]:
        settings = self._settings
        if settings.dry_run:
            found = self._plan(self._clock.ms())
            yield from self._told(found)
            if any(one.is_work for one in found):
                self._summary.facts["estimate"] = self._estimate(found)
            return
        backup = identity.read(self._store, self._layout, wiring.address(settings).address)
        lock = RunLock.for_settings(
            settings, backup, self._store, self._layout, "sink", locked(settings),
            self._summary.run, self._stop.event.wait,
        )  # fmt: skip
        with lock as held:
            self._lock = held
            if held is not None:
                held.check_no_restore()
                names = backup_state.read_topics(self._store, self._layout, self._clock).topics
                if left := held.claim(settings.asked.topics(names)):
                    raise all_locked(left)
            self._begun_ms = self._now_ms()
            found = self._plan(self._begun_ms)
            yield from self._told(found)
            if self._options.is_undo:
                gone = sum(len(one.waits.rows) - len(one.undone) for one in found)
                self._summary.skip("objects_gone", gone)
            if not any(one.is_work for one in found):
                return
            self._confirm()
            for topic, of_topic in itertools.groupby(found, key=lambda one: one.where.topic):
                if self._may_go_on():
                    self._carry_out(topic, [*of_topic])

    def _now_ms(self) -> int:
        """Return the time by the store's clock."""
        key = f"{lock_prefix(self._layout)}{self._summary.run}.clock"
        return int(store_clock(self._store, key).timestamp() * 1000)

    def _plan(self, now_ms: int) -> list[_MarkedPartition]:
        settings, options = self._settings, self._options
        said = backup_state.read(self._store, self._layout, self._clock, settings.asked)
        damage = () if options.is_undo else said.all_damage()
        for issue in damage:  # it may say that a mark is undone
            raise CorruptObjectError(issue.what, issue.why, issue.do, key=issue.what)
        listed = listing.list_backup(
            self._store, self._layout, wiring.format_options(settings), topics=settings.topics
        )
        there = {*listed.topics(), *said.names}
        place = self._layout.place
        chosen = listing.chosen(settings.asked, there, place)
        every = [one for one in {*listed.sets, *said.partitions()} if one.topic in chosen]
        listing.check_partitions(settings.asked, (one.partition for one in every), place)
        wheres = sorted(where for where in every if settings.asked.has(where.partition))
        found = {where: marked(listed.sets.get(where, ()), said.ledger(where)) for where in wheres}
        if options.is_undo:
            plans = [
                _MarkedPartition(where, waits=one, undone=one.whole())
                for where, one in found.items()
            ]
        else:
            sets = said.left(listed).sets
            marks = self._to_mark(wheres, sets, said, now_ms)
            found = self._agreed(found, listed.sets, said, now_ms)
            grown = now_ms - _ms(options.grace)
            plans = [
                _MarkedPartition(where, marks.get(where, ()), one.older(grown), one.younger(grown))
                for where, one in found.items()
            ]
            plans = [self._with_one_left(one, sets.get(one.where, ())) for one in plans]
        return [one for one in plans if one.is_work or one.waits.rows]

    def _with_one_left(self, one: _MarkedPartition, sets: Sequence[FileSet]) -> _MarkedPartition:
        """Return what is to be done where at least one set stays, whatever was lost meanwhile."""
        if sets or not one.deletes.rows:
            return one
        text = f"{one.where}: nothing is deleted, as all that is left of it is marked as removed"
        self._leave(object_count(one.deletes.sets), text, **one.where.place)
        return replace(one, deletes=NOTHING_MARKED)

    def _leave(self, objects: int, why: str, **place: Any) -> None:
        """Say that objects stay that were to go."""
        self._summary.warn("not_removed", why, **place)
        self._summary.skip("objects_not_removed", objects)

    def _to_mark(
        self,
        wheres: Iterable[TopicPartition],
        sets: Mapping[TopicPartition, Sequence[FileSet]],
        said: BackupState,
        now_ms: int,
    ) -> Mapping[TopicPartition, Sequence[Block]]:
        """Return the blocks to mark; name the sets of which nobody knows how old they are."""
        found = {where: blocks(sets.get(where, ()), said.ledger(where)) for where in wheres}
        marks = self._policy(found, now_ms)
        for where, every in found.items():
            if unknown := of_unknown_age(every, len(marks.get(where, ()))):
                number = object_count(unknown)
                text = f"{where}: {counted(number, 'object')} {form(number, 'stays', 'stay')}, as "
                text += "does what follows: it is not known how old the records are, or where they "
                text += "end: "
                text += some([files.id for files in unknown], 3)
                self._leave(number, text, **where.place)
        self._check_compacted({where.topic for where in marks}, said)
        return marks

    def _policy(
        self, found: Mapping[TopicPartition, Sequence[Block]], now_ms: int
    ) -> Mapping[TopicPartition, Sequence[Block]]:
        options = self._options
        before_ms = None if options.older_than is None else now_ms - _ms(options.older_than)
        return to_expire(found, before_ms, options.max_bytes)

    def _agreed(
        self,
        found: dict[TopicPartition, Marked],
        sets: Mapping[TopicPartition, Sequence[FileSet]],
        said: BackupState,
        now_ms: int,
    ) -> dict[TopicPartition, Marked]:
        """Return what is marked and this run's policy names too; name the rest, which stays."""
        if not any(one.sets for one in found.values()):
            return found
        every = {
            where: blocks(sets.get(where, ()), replace(said.ledger(where), marked={}))
            for where in found
        }
        # a sink's credentials can write marks, and have no right to delete
        policy = self._policy(every, now_ms)
        agreed = dict[TopicPartition, Marked]()
        for where, one in found.items():
            spares = self._spares(where.topic, said)
            agreed[where] = named = one.named(() if spares else policy.get(where, ()))
            if stays := [files for files in one.sets if files not in named.sets]:
                number = object_count(stays)
                text = f"{where}: {counted(number, 'object')} marked as removed "
                text += f"{form(number, 'stays', 'stay')}, as this run would not mark "
                text += f"{form(number, 'it', 'them')}: {some([files.id for files in stays], 3)}"
                self._leave(number, text, **where.place)
        return agreed

    def _check_compacted(self, topics: Iterable[str], said: BackupState) -> None:
        """Refuse topics whose last values may be their oldest records."""
        names = [topic for topic in sorted(topics) if self._spares(topic, said)]
        if names:
            raise RefusedError(
                f"{some(names)}: nothing is removed",
                "it is or was compacted, or no sink has looked: the last value of a key may be its "
                "oldest record",
                "choose other topics: -t; --compacted removes them anyway",
                topic=names[0],
            )

    def _spares(self, topic: str, said: BackupState) -> bool:
        """Whether nothing goes of a topic that Kafka compacts, or did, or that nobody looked at."""
        # its last values may be its oldest records; what sinks have seen decides: nobody asks Kafka
        row = said.topics.get(topic)
        return not self._options.takes_compacted and (
            row is None
            or row.compacted is not False
            or "compact" in row.config.get("cleanup.policy", "")
        )

    def _estimate(self, found: Sequence[_MarkedPartition]) -> Estimate:
        sets = [files for one in found for files in one.deletes.sets]
        objects, topics = object_count(sets), {one.where.topic for one in found if one.is_work}
        each = 5 if self._has_versions else 1  # listed twice, asked twice for its lock, deleted
        is_served = isinstance(self._store, Served)
        requests = each * objects + len(topics) if is_served else None
        past = history.runs(self._store, self._layout, "sink expire", now=self._clock.now())
        return of_stored(object_bytes(sets), requests, objects, past, "deleted")

    def _told(self, found: Sequence[_MarkedPartition]) -> Iterator[Plain]:
        if isinstance(self._store, Versions) and any(one.deletes.rows for one in found):
            self._has_versions = self._store.is_locked()
        yield from self._summary.finish().warnings
        rows = [one.shown(_ms(self._options.grace)) for one in found]
        yield from rows
        self._summary.facts |= {"is_undo": self._options.is_undo} | {
            f"planned_{name}": sum(getattr(row, name) for row in rows) for name in _PLANNED
        }

    def _confirm(self) -> None:
        planned = (self._summary.facts[f"planned_{name}"] for name in _PLANNED)
        marks, deletes, _, undone = planned
        what = f"mark {counted(marks, 'object')} as removed, delete {counted(deletes, 'object')}"
        if undone:
            what = f"keep {counted(undone, 'object')}"
        self._is_declined = True
        confirm(
            self._agree, f"{what}?", "nothing was done", "it was not confirmed",
            is_agreed=self._settings.yes,
        )  # fmt: skip
        self._is_declined = False

    def _carry_out(self, topic: str, found: Sequence[_MarkedPartition]) -> None:
        """Delete what was marked long ago, then mark what goes next, or take marks back."""
        ledger = topic_stream(self._store, self._layout, topic, self._clock)
        run, now_ms, facts = self._summary.run, self._clock.ms(), self._summary.facts
        rows = [
            of_object(ACCEPTED, row, run, now_ms)
            for one in found
            for row in self._delete(one.deletes)
        ]
        rows += [of_object(KEPT, row, run, now_ms) for one in found for row in one.undone]
        marks = [row for one in found for each in one.marks for row in each.rows]
        if marks:  # a plan may have waited long for its answer
            marked_ms = self._now_ms()
            rows += [of_object(REMOVED, row, run, marked_ms) for row in marks]
        if rows:
            ledger.append(table(rows, OBJECTS))
            ledger.fold()
        facts["marked"] = facts.get("marked", 0) + len(marks)
        facts["undone"] = facts.get("undone", 0) + sum(len(one.undone) for one in found)

    def _delete(self, found: Marked) -> list[Entry]:
        """Delete the sets of a partition, the oldest first; return the rows of what is gone."""
        facts = self._summary.facts
        for files in found.changed:
            text = f"{files.id}: it is not what was marked as removed, and stays"
            self._leave(len(files.files), text, key=files.id)
        left = {file.key for files in found.all_sets for file in files.files}
        began_s = self._clock.steady_s()
        locked: list[tuple[FileSet, datetime]] = []
        with ThreadPoolExecutor(_THREADS) as pool:
            for first in range(0, len(found.sets), _AT_ONCE):
                if not self._may_go_on():
                    break
                batch: Sequence[FileSet] = found.sets[first : first + _AT_ONCE]
                kept = dict(zip(batch, pool.map(self._delete_set, batch), strict=True))
                locked += [(files, end) for files, end in kept.items() if end is not None]
                batch = [files for files, end in kept.items() if end is None]
                left.difference_update(file.key for files in batch for file in files.files)
                facts["deleted"] = facts.get("deleted", 0) + object_count(batch)
                facts["deleted_bytes"] = facts.get("deleted_bytes", 0) + object_bytes(batch)
        self._work_s += self._clock.steady_s() - began_s
        facts["timings"] = {"work_s": round(self._work_s, 3)}
        if locked:
            number = object_count(files for files, _ in locked)
            text = (
                f"{counted(number, 'object')} {form(number, 'is', 'are')} locked, the last until "
            )
            text += f"{rfc3339(max(end for _, end in locked))}: "
            text += some([files.id for files, _ in locked], 3)
            self._leave(number, text)
        return [row for row, _ in found.rows if row.key not in left]

    def _delete_set(self, files: FileSet) -> datetime | None:
        """Delete a set, with all versions; return until when one is locked: then all stay."""
        keys = [*keys_of(files)]
        if not self._has_versions:
            for key in keys:
                self._store.delete(key)
            return None
        store = cast("Versions", self._store)
        ends = [end for key in keys if (end := store.locked_until(key)) is not None]
        if any(int(end.timestamp() * 1000) > self._begun_ms for end in ends):
            return max(ends)
        for key in keys:
            store.delete_versions(key)
        return None

    def _may_go_on(self) -> bool:
        """Whether the run is neither stopped nor taken for dead."""
        if self._lock is not None and self._lock.is_lost:
            self._summary.fail(lost_lock())
            return False
        return not self._stop.is_set()


def _ms(span: timedelta) -> int:
    return int(span.total_seconds() * 1000)
