"""``sink copy``: keep a second copy of a backup in another store, a backup at any moment.

What a run needs to be read is there before it: keys and schemas before objects, objects in the
order of their offsets, and the rows of a partition once all of its objects are there, in one part.
So a run may be killed anywhere, and two may be at work at once: neither takes a lock.

The source may grow meanwhile.  Its ledger is read first, then its objects are listed, then what
they need: each names only what was stored before it.
"""

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.catalog import identity, listing
from kbackup.catalog.copying import (
    AFTER,
    BEFORE,
    Copied,
    CopiedEvidence,
    Outcome,
    copy_if_absent,
    copy_run_record,
    evidence,
    in_order,
    run_records,
)
from kbackup.catalog.keys import IF_DAMAGED, WrappedKey, data_stream, recipients_stream
from kbackup.catalog.ledger import stream
from kbackup.catalog.ledger.rows import (
    NOTHING,
    OBJECT,
    OBJECTS,
    PASSED,
    TOPIC,
    Entry,
    TopicLedger,
    entries,
    ranged,
    rows_of,
    table,
)
from kbackup.catalog.ledger.stream import Stream, topic_stream, topics_stream
from kbackup.catalog.listing import Catalog, FileSet
from kbackup.catalog.rekeying import OLD_KEYS
from kbackup.clock import Clock, rfc3339
from kbackup.errors import (
    CorruptObjectError,
    IncompleteBackupError,
    Issue,
    KbackupError,
    RefusedError,
    StoreError,
    counted,
    form,
    some,
)
from kbackup.events import Plain, Warned
from kbackup.formats import FormatOptions
from kbackup.naming import Layout
from kbackup.naming.renaming import TopicFilter
from kbackup.records import Span, TopicPartition
from kbackup.runs import history
from kbackup.runs.backup_state import BackupState, Looked, list_as_stored
from kbackup.runs.context import Stop
from kbackup.runs.history import Estimate, of_stored
from kbackup.runs.report import Summary
from kbackup.stores import Served, Store, at_versions

_THREADS: Final = 8
"""Each holds an object: in memory up to a part of an upload, then on disk."""

_RECORD_S: Final = 600.0
"""Seconds after which a run that follows says again that it is at work."""

_NAMED: Final = 100
"""Objects that are named as errors; all are counted."""


@dataclass(frozen=True, slots=True)
class TopicCopied:
    """What became of a topic's objects in one pass.

    Attributes:
        sent: Objects that were not there, or with ``--dry-run`` would be sent.
        there: Objects that were there.
        left: Objects that are not there now.
    """

    HEAD: ClassVar = {"type": "copied"}

    topic: str
    sent: int
    bytes: int
    there: int
    left: int


@dataclass(frozen=True, slots=True)
class _CopiedPartition:
    """One partition, before and after its objects were sent."""

    where: TopicPartition
    keys: Sequence[str]
    sizes: Mapping[str, int]
    rows: Mapping[str, Entry]
    known: Mapping[str, Entry]
    brought: list[Copied] = field(default_factory=list)
    same: list[str] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Whether all is there that the source has."""
        done = sum(one.outcome is not Outcome.REFUSED for one in self.brought)
        return done + len(self.same) == len(self.keys)

    def is_known(self, key: str, there: Mapping[str, int]) -> bool:
        """Whether the target's ledger says of an object, which is there, what the source's does."""
        row, size = self.rows.get(key), self.sizes.get(key)
        return (
            row is not None and row.sha256 is not None and row == self.known.get(key)
            and row.bytes == size == there.get(key)
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a pass begins with."""

    topics: pa.Table
    rows: Mapping[str, pa.Table]
    there: Mapping[str, TopicLedger]
    found: Catalog
    names: Sequence[str]
    partitions: Sequence[_CopiedPartition]
    present: Mapping[str, int]
    before: CopiedEvidence
    after: CopiedEvidence
    records: CopiedEvidence

    def unread(self) -> Iterator[Copied]:
        """Yield the objects that the source did not give."""
        for partition in self.partitions:
            yield from (one for one in partition.brought if one.outcome is Outcome.LOST)


class CopyRun:
    """One run of ``sink copy``.

    Args:
        source: Where the backup is; as it is stored, without anything around it.
        target: Where the copy is to be, likewise.
        options: For formats whose extension is a setting.
        stop: When set, the run ends before the next object.
        poll_s: Seconds between two passes; None for one pass.
    """

    def __init__(
        self,
        source: Store,
        target: Store,
        layout: Layout,
        options: FormatOptions,
        asked: TopicFilter,
        clock: Clock,
        summary: Summary,
        stop: Stop,
        *,
        poll_s: float | None = None,
        is_dry: bool = False,
    ) -> None:
        self._source, self._target, self._layout = source, target, layout
        self._given, self._looked = source, Looked()  # without versions of an earlier pass
        self._options, self._asked, self._clock = options, asked, clock
        self._summary, self._stop = summary, stop
        self._poll_s, self._is_dry = poll_s, is_dry
        self._failed = threading.Event()
        self._keys_seen: dict[str, Collection[str]] = {}
        summary.facts |= {"dry_run": is_dry, "files": 0, **history.selected(asked)}
        if poll_s is not None:
            summary.facts["follow"] = True
        self._is_ours, self._work_s = False, 0.0
        self._left: tuple[object, float] = None, 0.0

    def __call__(self) -> Iterator[Plain]:
        """Copy once, or until stopped; what fails is in the summary.

        Raises:
            KbackupError: If it was asked for wrongly.
        """
        facts = self._summary.facts
        if not self._is_dry:
            facts["last_success"] = None
        while True:
            standing, self._summary.standing = self._summary.standing, {}
            self._failed.clear()
            begun = self._clock.now()
            try:
                yield from self._pass()
            except KbackupError as error:
                if error.begins_nothing:
                    raise
                self._fail(error.issue())
            if self._stop.is_set() and not self._summary.standing:
                self._summary.standing = standing  # the pass did not come to what was wrong
            if self._is_ours:
                if not (self._stop.is_set() or self._summary.standing):
                    facts["last_success"] = rfc3339(begun)
                self._leave_record()
            if self._poll_s is None or self._stop.event.wait(self._poll_s):
                return

    def _leave_record(self) -> None:
        """Say in the copy how it was made: who watches it may not see the backup."""
        facts, steady_s = self._summary.facts, self._clock.steady_s()
        news = facts.get("sent"), facts["files"], [*self._summary.standing], self._stop.is_set()
        if news == self._left[0] and steady_s - self._left[1] < _RECORD_S:
            return
        self._left = news, steady_s
        try:
            said = self._summary.finish(self._stop.signal)
            history.write_run(self._target, self._layout, said)
        except StoreError as error:
            self._fail(error.issue())

    def _fail(self, issue: Issue) -> None:
        self._summary.stand((issue.what, issue.code), [issue])

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._failed.is_set()

    def _pass(self) -> Iterator[Plain]:
        self._check_target()
        self._is_ours = not self._is_dry
        seen = self._look()
        yield from self._summary.remark("as_stored", seen.found.as_stored())
        if not self._is_dry:
            yield from self._enter_keys()
            self._before_objects(seen)
        began_s = self._clock.steady_s()
        with ThreadPoolExecutor(_THREADS) as pool:
            for error in pool.map(lambda one: self._send(one, seen.present), seen.partitions):
                if error is not None:
                    self._fail(error)
        self._work_s += self._clock.steady_s() - began_s
        yield from self._told(seen)
        gone = self._gone(seen)
        if gone:
            seen = replace(seen, rows=self._with_removals(seen.rows))
        if not self._is_dry and not self._is_over():
            self._after_objects(seen)
        self._name_what_is_lost(seen, gone)

    def _check_target(self) -> None:
        """Check that nothing but a copy of this backup is there."""
        own = identity.read(self._source, self._layout, "").id
        there = identity.read(self._target, self._layout, "").id
        if there and there == own:
            return
        if there:
            raise RefusedError(
                "the target holds another backup",
                f"its id is {there}, and that of this one is {own or 'not written'}",
                "copy to another bucket or folder",
            )
        identity.check_apart(self._target, self._layout)
        self._check_room()

    def _check_room(self) -> None:
        """Check that no other objects are where nobody has begun a copy of this backup."""
        source, target, layout = self._source, self._target, self._layout
        if any(layout.is_run_of(one.key, "sink copy") for one in target.list(layout.runs_prefix())):
            return
        theirs = listing.list_backup(target, layout, self._options).keys
        if theirs and (others := theirs - listing.list_backup(source, layout, self._options).keys):
            raise RefusedError(
                "the target holds objects of something else",
                f"{counted(len(others), 'object')} that this backup does not have, such as "
                f"{min(others)}: they would be taken for its own",
                "copy to another bucket or folder",
            )

    def _look(self) -> _Seen:
        """Read and list, in this order: what relies on objects, objects, what they rely on."""
        source, target, layout = self._given, self._target, self._layout
        after = evidence(source, target, layout, AFTER, lambda _: True)
        records = run_records(source, target, layout)
        said = topics_stream(source, layout, self._clock).read()
        self._tell_damage(said.damage)
        entered = set[str]()
        if not layout.is_generic:  # where what it said of topics is gone, their objects' is there
            entered = _topics_of(said.rows) or stream.entered_topics(source, layout)
        rows = self._read_ledgers(source, entered, tells=True)
        there = self._read_ledgers(target, entered)
        ours = {name: TopicLedger.of(entries(table)) for name, table in rows.items()}
        said_of = BackupState(ledgers=ours)
        found = list_as_stored(
            source, layout, self._options, said_of, self._asked, looked=self._looked
        )
        self._source = at_versions(source, found.versions)
        names = self._chosen(found, {*rows, *_topics_of(said.rows)})
        if not layout.is_generic:
            names = [name for name in names if name in rows or not self._is_late(name)]
        theirs = {name: TopicLedger.of(entries(table)) for name, table in there.items()}
        numbers = {where.partition for where in found.sets if where.topic in names}
        numbers.update(at for name in names if name in ours for at in ours[name].partitions)
        listing.check_partitions(self._asked, numbers, layout.place)
        present = {
            one.key: one.size
            for prefix in layout.prefixes(names) or [layout.prefix()]
            for one in target.list(prefix)
        }
        partitions = [
            _partition(where, sets, ours.get(where.topic), theirs.get(where.topic), present)
            for where, sets in sorted(found.sets.items())
            if where.topic in names and self._asked.has(where.partition)
        ]
        before = evidence(source, target, layout, BEFORE, {*names}.__contains__)
        kept = {name: table for name, table in rows.items() if name in names}
        return _Seen(
            said.rows, kept, theirs, found, names, partitions, present, before, after, records
        )

    def _is_late(self, topic: str) -> bool:
        """Whether a sink has entered a topic since the ledger was read: the next pass copies it."""
        ledger = topic_stream(self._source, self._layout, topic, self._clock)
        return next(self._source.list(ledger.prefix), None) is not None

    def _chosen(self, found: Catalog, known: set[str]) -> list[str]:
        asked, there = self._asked, {*found.topics(), *known}
        if there and not (asked.names or asked.pattern or asked.excluded):
            return sorted(there)  # internal ones too: a backup has them if they were asked for
        return listing.chosen(asked, there, self._layout.place)

    def _read_ledgers(
        self, store: Store, topics: set[str], *, tells: bool = False
    ) -> dict[str, pa.Table]:
        asked = self._asked
        wanted = [name for name in sorted(topics) if not asked.names or name in asked.names]

        def read(topic: str) -> stream.Contents:
            return topic_stream(store, self._layout, topic, self._clock).read()

        with ThreadPoolExecutor(_THREADS) as pool:
            found = dict(zip(wanted, pool.map(read, wanted), strict=True))
        for contents in found.values():
            self._tell_damage(contents.damage if tells else ())
        return {topic: contents.rows for topic, contents in found.items() if len(contents.rows)}

    def _tell_damage(self, damage: Sequence[Issue]) -> None:
        for one in damage:
            self._fail(CorruptObjectError(one.what, one.why, one.do, key=one.what).issue())

    def _before_objects(self, seen: _Seen) -> None:
        """Send what objects need, the backup's id, and that there are such topics."""
        self._send_files(seen.before)
        key = identity.key(self._layout)
        is_there = self._target.head(key) is not None
        if self._source.head(key) is not None:
            self._take(copy_run_record(self._source, self._target, key, is_there=is_there))
        rows = _about(seen.topics, seen.names)
        if len(rows):
            topics_stream(self._target, self._layout, self._clock).adopt(rows)
        begun = {topic for topic, ledger in seen.there.items() if ledger.partitions}
        for one in seen.partitions:
            if (topic := one.where.topic) not in begun and topic in seen.rows:
                self._begin(one.where)
                begun.add(topic)

    def _enter_keys(self) -> Iterator[Warned]:
        """Enter the keys that the source has; the copy may have recipients of its own."""
        brought, left = set[str](), set[str]()
        for stream_of in (recipients_stream, data_stream):
            source, target = (
                stream_of(one, self._layout, self._clock) for one in (self._source, self._target)
            )
            found = source.read_if_new(self._keys_seen.get(source.prefix, ()))
            if found is None:
                continue
            names, there = found
            new = list[WrappedKey]()
            # a new copy gets what others hide: who has a key can tell there which of them is forged
            hidden = source.superseded() if len(there.rows) and target.is_empty else None
            if len(there.rows) and (
                new := [*rows_of(WrappedKey, target.adopt(there.rows, hidden))]
            ):
                self._summary.facts["files"] += 1
                target.fold()
                brought.update(row.recipient for row in new if row.wrapped is not None)
            self._tell_damage([replace(one, do=IF_DAMAGED) for one in there.damage])
            if not there.damage:
                self._keys_seen[source.prefix] = names
            # Without the backup's own key nobody knows that their owner has removed them, and they
            # may be all that opens the copy.
            if stream_of is recipients_stream or any(row.wrapped is None for row in new):
                left |= _kept_for_removed(target)
        if brought:
            own = recipients_stream(self._target, self._layout, self._clock).read().rows
            left |= {row.recipient for row in rows_of(WrappedKey, own) if not row.wrapped} & brought
        if left:
            text = (
                f"{some(sorted(left))} {form(len(left), 'was', 'were')} removed from the "
                "recipients, and the copy still has files of keys for them; with FILE for the "
                f"copy, kbackup keys remove {min(left)} --config FILE deletes them"
            )
            yield self._summary.warn(OLD_KEYS, text)

    def _begin(self, where: TopicPartition) -> None:
        """Enter that nothing was passed so far: a topic without any row has lost its ledger."""
        row = ranged(PASSED, where, Span(0, 0), self._summary.run, self._clock.ms())
        ledger = topic_stream(self._target, self._layout, where.topic, self._clock)
        ledger.append(table([row], OBJECTS))

    def _send(self, partition: _CopiedPartition, present: Mapping[str, int]) -> Issue | None:
        """Send what is not there of a partition, up to the first object that cannot be sent."""
        for key in partition.keys:
            if self._is_over():
                return None
            if partition.is_known(key, present):
                partition.same.append(key)
                continue
            if self._is_dry:
                size = partition.sizes.get(key, 0)
                is_there = key in present and size in (0, present[key])
                outcome = Outcome.THERE if is_there else Outcome.SENT
                partition.brought.append(Copied(key, outcome, size))
                continue
            row = partition.rows.get(key)
            try:
                found = copy_if_absent(
                    self._source, self._target, key, row, is_there=key in present
                )
            except KbackupError as error:
                self._failed.set()
                return error.issue().at(**partition.where.place)
            partition.brought.append(found)
            if found.outcome is Outcome.REFUSED:
                return found.why
        return None

    def _send_files(self, files: CopiedEvidence) -> None:
        """Send files that are no objects of records, those that exist already left alone."""

        def send(key: str) -> Copied | None:
            if self._is_over():
                return None
            return copy_if_absent(self._source, self._target, key, is_there=key in files.there)

        with ThreadPoolExecutor(_THREADS) as pool:
            for found in pool.map(send, files.keys):
                self._take(found)

    def _take(self, found: Copied | None) -> None:
        """Take what became of a file."""
        if found is None:
            return
        if found.why is not None:
            self._fail(found.why)
        facts = self._summary.facts
        facts["files"] += found.outcome is Outcome.SENT

    def _after_objects(self, seen: _Seen) -> None:
        """Send what relies on objects, and enter those of the partitions that are complete."""
        self._send_files(seen.after)
        for key in seen.records.keys:
            if not self._is_over():
                there = seen.records.there
                self._take(copy_run_record(self._source, self._target, key, is_there=key in there))
        if self._is_over():
            return
        broken = {one.where for one in seen.partitions if not one.is_done}
        for topic, rows in seen.rows.items():
            numbers = {
                at
                for at in rows["partition"].unique().to_pylist()
                if TopicPartition(topic, at) not in broken and self._asked.has(at)
            }
            kept = rows.filter(pc.is_in(rows["partition"], pa.array(numbers, pa.int32())))
            ledger = topic_stream(self._target, self._layout, topic, self._clock)
            if len(kept) and ledger.adopt(kept):
                ledger.fold()

    def _told(self, seen: _Seen) -> Iterator[Plain]:
        """Count, and yield what became of each topic of which there is news."""
        facts, rows = self._summary.facts, dict[str, Counter[str]]()
        for one in seen.partitions:
            count = rows.setdefault(one.where.topic, Counter())
            for brought in one.brought:
                count[brought.outcome] += 1
                if brought.outcome is Outcome.SENT:
                    count["bytes"] += brought.size
            count["same"] += len(one.same)
            count["keys"] += len(one.keys)
        for topic, count in rows.items():
            there = count[Outcome.THERE] + count["same"]
            left = count["keys"] - there - count[Outcome.SENT]
            if self._poll_s is None or count[Outcome.SENT] or left:
                yield TopicCopied(topic, count[Outcome.SENT], count["bytes"], there, left)
        total = sum(rows.values(), Counter[str]())
        facts["sent"] = facts.get("sent", 0) + total[Outcome.SENT]
        facts["sent_bytes"] = facts.get("sent_bytes", 0) + total["bytes"]
        facts["found"] = total["keys"]
        if not self._is_dry:
            facts["timings"] = {"work_s": round(self._work_s, 3)}
        elif total[Outcome.SENT]:
            facts["estimate"] = self._estimate(seen, total["bytes"])
        foreign = [("foreign_object", why, key) for key, why in seen.found.foreign]
        yield from self._summary.remark("foreign_objects", foreign)
        self._summary.count("foreign_objects", seen.found.foreign_count)

    def _estimate(self, seen: _Seen, size: int) -> Estimate:
        sizes = [
            brought.size
            for one in seen.partitions
            for brought in one.brought
            if brought.outcome is Outcome.SENT
        ]
        target = self._target
        gets = len(sizes) if isinstance(self._source, Served) else 0
        stores = sum(map(target.puts, sizes)) if isinstance(target, Served) else 0
        past = history.runs(self._target, self._layout, "sink copy", now=self._clock.now())
        return of_stored(size, gets + stores or None, size, past, "sent_bytes")

    def _gone(self, seen: _Seen) -> set[str]:
        """Return the objects that have gone since they were listed."""
        unread = (one.key for one in seen.unread())
        return {key for key in unread if self._source.head(key) is None}

    def _with_removals(self, rows: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Return *rows*, with what the source says by now of objects that were removed."""
        now = self._read_ledgers(self._source, {*rows})
        return {
            topic: pa.concat_tables([said, _about_removals(now[topic])]) if topic in now else said
            for topic, said in rows.items()
        }

    def _name_what_is_lost(self, seen: _Seen, gone: set[str]) -> None:
        """Name what the source has lost, unless it was removed on purpose."""
        present = seen.found.keys - gone
        named = 0
        for topic, rows in seen.rows.items():
            for number, ledger in TopicLedger.of(entries(rows)).partitions.items():
                if not self._asked.has(number):
                    continue
                for entry in ledger.missing(present):
                    named += 1
                    if named <= _NAMED:
                        self._fail(_missing(TopicPartition(topic, number), entry))
        for one in seen.unread():
            if one.key not in gone and one.why is not None:
                named += 1
                if named <= _NAMED:
                    self._fail(one.why)
        said = []
        if named > _NAMED:
            text = f"{counted(named - _NAMED, 'more object')} {form(named, 'is', 'are')} lost"
            said = [("more_errors", text)]
        self._summary.remark("more_errors", said)


def _partition(
    where: TopicPartition,
    sets: Sequence[FileSet],
    ours: TopicLedger | None,
    theirs: TopicLedger | None,
    present: Collection[str],
) -> _CopiedPartition:
    mine, known = (
        NOTHING if ledger is None else ledger.partition(where.partition)
        for ledger in (ours, theirs)
    )
    # what the copy has expired is not brought again, but what the source missed and has again, or
    # had marked, for the copy too, and keeps
    again = mine.undone.union(row.key for row in mine.accepted)
    gone = {row.key for row in known.removed(present)} - again
    sizes = {file.key: file.size for files in sets for file in files.files}
    keys = [key for key in in_order(sets) if key not in gone]
    return _CopiedPartition(where, keys, sizes, mine.objects, known.objects)


def _topics_of(rows: pa.Table) -> set[str]:
    return {name for name in rows["topic"].to_pylist() if name}


def _about(rows: pa.Table, topics: Sequence[str]) -> pa.Table:
    """Return the rows about *topics*, and those about sinks."""
    is_named = pc.is_in(rows["topic"], pa.array(topics, pa.string()))
    return rows.filter(pc.or_(pc.not_equal(rows["kind"], TOPIC), is_named))


def _about_removals(rows: pa.Table) -> pa.Table:
    """Return the rows that say something of objects, but what was stored."""
    return rows.filter(pc.and_(pc.is_valid(rows["key"]), pc.not_equal(rows["kind"], OBJECT)))


def _missing(where: TopicPartition, entry: Entry) -> Issue:
    return IncompleteBackupError(
        entry.key or str(where),
        f"it is missing in the source (offsets {entry.first}-{entry.span.end_offset - 1})",
        "the copy has it if an earlier run has copied it: kbackup restore verify there",
        key=entry.key,
        **where.place,
    ).issue()


def _kept_for_removed(keys: Stream) -> set[str]:
    """Return recipients that were removed and for whom files still hold what was wrapped."""
    rows = rows_of(WrappedKey, keys.read().rows)
    removed = {(row.id, row.recipient) for row in rows if row.wrapped is None}
    if not removed:
        return set()
    every = rows_of(WrappedKey, keys.superseded())
    held = {(row.id, row.recipient) for row in every if row.wrapped is not None}
    return {recipient for _, recipient in removed & held}
