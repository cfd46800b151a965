"""Read a backup's ledger, and list its objects as the ledger knows that they were stored.

The ledger is read before the bucket is listed: what it names was stored before, so a sink that
works meanwhile makes no object seem missing.
"""

import logging
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from kbackup.catalog.ledger import stream
from kbackup.catalog.ledger.rows import (
    OBJECT,
    SINK,
    TOMBSTONES,
    TOPIC,
    Entry,
    PartitionLedger,
    TopicEntry,
    TopicLedger,
    entries,
    named,
    order,
    stored,
    topic_entries,
)
from kbackup.catalog.ledger.stream import unreadable
from kbackup.catalog.listing import BackupFile, Catalog, FileSet, earlier_of, list_backup
from kbackup.clock import Clock, shown_ms
from kbackup.errors import (
    IncompleteBackupError,
    Issue,
    RefusedError,
    StoreError,
    counted,
    form,
    some,
)
from kbackup.formats import FormatOptions
from kbackup.naming import Layout
from kbackup.naming.renaming import ALL, TopicFilter
from kbackup.records import (
    UNKNOWN,
    Facts,
    Rotation,
    Span,
    TopicIdentity,
    TopicPartition,
    joined,
)
from kbackup.runs import history
from kbackup.runs.report import HeldUp
from kbackup.stores import Earlier, ObjectHead, Store, StoredObject, is_refused, side_by_side
from kbackup.stores.encrypted import DATA_KEY


@dataclass(frozen=True, slots=True)
class BackupState:
    """What a backup says about itself.

    Attributes:
        damage: Files of the ledger that cannot be read, beside those of the topics' own.
        later: Topics of which nothing had been backed up by the time that is asked for: `as_of`.
    """

    topics: Mapping[str, TopicEntry] = field(default_factory=dict)
    sinks: Sequence[TopicEntry] = ()
    ledgers: Mapping[str, TopicLedger] = field(default_factory=dict)
    damage: Sequence[Issue] = ()
    later: Sequence[str] = ()
    _watched: set[tuple[str, str]] = field(
        init=False, repr=False, compare=False, default_factory=set
    )

    def __post_init__(self) -> None:
        for name, entry in self.topics.items():
            self._watched.update((entry.cluster_id, one) for one in entry.names or (name,))

    @property
    def names(self) -> set[str]:
        """The topics that the ledger speaks of, also where what it said of topics is gone."""
        return {*self.topics, *self.ledgers}.difference(self.later)

    def has_ledger(self, topic: str) -> bool:
        """Whether the ledger speaks of *topic*; else the objects alone do."""
        return topic in self.topics

    def has_entered(self, topic: str) -> bool:
        """Whether the ledger speaks of any of a topic's objects or offsets."""
        return bool(self.ledgers.get(topic, _NO_LEDGER).partitions)

    def ledger(self, where: TopicPartition) -> PartitionLedger:
        """Return what the ledger says of a partition."""
        return self.ledgers.get(where.topic, _NO_LEDGER).partition(where.partition)

    def identity(self, topic: str) -> TopicIdentity:
        """Return which topic of that name was backed up last, as far as that is known."""
        entry = self.topics.get(topic)
        return UNKNOWN if entry is None else entry.identity

    def partitions(self) -> set[TopicPartition]:
        """Return every partition that is known, those without any object too."""
        found = set()
        for name, entry in self.topics.items():
            found |= {TopicPartition(name, at) for at in range(entry.partitions or 0)}
        for name, ledger in self.ledgers.items():
            found |= {TopicPartition(name, at) for at in ledger.partitions}
        return {where for where in found if where.topic not in self.later}

    def facts(self, where: TopicPartition, file: BackupFile) -> Facts | None:
        """Return what the ledger knows of the records in a listed object.

        None where it does not know the object, or the object has changed since.
        """
        entry = self.ledger(where).objects.get(file.key)
        return None if entry is None or entry.bytes != file.size else entry.facts

    def left(self, found: Catalog) -> Catalog:
        """Return a listing without what is to be deleted: nobody reads that any more."""
        ledgers = self.ledgers.values()
        marked = {key for one in ledgers for at in one.partitions.values() for key in at.marked}
        return found.without(marked) if marked else found

    def watches(self, topic: str, cluster_id: str) -> bool:
        """Whether a sink backs *topic* of that cluster up, by its name or by a pattern."""
        if (cluster_id, topic) in self._watched:
            return True
        return any(
            topic in TopicFilter(one.names, one.pattern, None, one.excluded).topics([topic])
            for one in self.sinks
            if one.cluster_id == cluster_id and (one.names or one.pattern)
        )

    def all_damage(self) -> list[Issue]:
        """Return every file of the ledger that cannot be read."""
        return [*self.damage, *(one for each in self.ledgers.values() for one in each.damage)]


_log: Final = logging.getLogger(__name__)

NOTHING: Final = BackupState()
"""What is known of a backup that has no ledger."""

_NO_LEDGER: Final = TopicLedger()


def read(
    store: Store,
    layout: Layout,
    clock: Clock,
    asked: TopicFilter = ALL,
) -> BackupState:
    """Return what a backup says about itself, and of the objects of the topics of *asked*.

    Costs a listing and the reads of `Stream.read` for all topics together, and the same for each.
    """
    known = read_topics(store, layout, clock)
    if layout.is_generic:
        return known
    # where what it said of topics is gone, what it says of their objects is still evidence
    there = known.topics.keys() or stream.entered_topics(store, layout)
    wanted = [name for name in asked.topics(there) if name in there]
    return with_objects(known, store, layout, clock, wanted)


def read_if_allowed(
    store: Store,
    layout: Layout,
    clock: Clock,
    asked: TopicFilter = ALL,
) -> BackupState:
    """Return what `read` does; where that is denied, nothing but the damage that this is.

    For those who read records.  The ledger is evidence, and a restore can do without: objects are
    listed, and say themselves what they hold.  Whoever may not read it has to be told that what is
    missing will not be missed.
    """
    try:
        return read(store, layout, clock, asked)
    except StoreError as error:
        if not error.is_denied:
            raise
        why = f"{error}: missing objects go unnoticed, and empty topics are not known"
        return BackupState(damage=(unreadable(layout.records_prefix(), why, error.do),))


def read_topics(store: Store, layout: Layout, clock: Clock) -> BackupState:
    """Read what the ledger says of topics and sinks, and nothing of their objects.

    It speaks of objects that a sink has named: of a generic layout, only sinks are read.
    """
    ledger = stream.topics_stream(store, layout, clock)
    found = ledger.read()
    topics: dict[str, TopicEntry] = {}
    sinks, damage = [], [*found.damage]
    for entry in sorted(topic_entries(found.rows), key=order):
        if entry.kind == SINK:
            sinks.append(entry)
        elif layout.is_generic:
            continue
        elif entry.kind == TOPIC and entry.topic and entry.is_possible:
            topics[entry.topic] = entry
        elif entry.kind == TOPIC and entry.topic:
            topics[entry.topic] = replace(entry, partitions=None)
            why = f"it gives {entry.topic} {entry.partitions} partitions, which no topic can have"
            damage.append(unreadable(ledger.prefix, why))
    return BackupState(topics, sinks, {}, tuple(damage))


def held_up(
    store: Store,
    layout: Layout,
    reached: Callable[[TopicPartition], int | None],
    topics: Collection[str],
    partitions: Collection[int] | None = None,
) -> dict[TopicPartition, HeldUp]:
    """Return what of a backup open transactions held up when sinks last looked.

    A look at an offset that the backup has passed is outdated: that transaction has ended.

    Args:
        reached: Returns the offset before which everything was stored, None where that is not
            known: `PartitionLedger.reached`.
    """
    try:
        found = history.read_held_up(store, layout)
    except StoreError as error:  # evidence, and never needed
        _log.debug("what transactions hold up is not known: %s", error)
        return {}
    return {
        where: each
        for where, each in sorted(found.items())
        if where.topic in topics
        and (partitions is None or where.partition in partitions)
        and (reached(where) or 0) <= each.offset
    }


def with_objects(
    known: BackupState, store: Store, layout: Layout, clock: Clock, topics: Collection[str]
) -> BackupState:
    """Return *known* with the ledgers of *topics*."""

    def read_one(topic: str) -> TopicLedger:
        found = stream.topic_stream(store, layout, topic, clock).read()
        return TopicLedger.of(entries(found.rows), found.damage)

    found = dict(zip(topics, side_by_side(read_one, topics), strict=True))
    return replace(known, ledgers={**known.ledgers, **found})


def as_of(
    found: Catalog, known: BackupState, moment_ms: int, asked: TopicFilter = ALL
) -> tuple[Catalog, BackupState]:
    """Return listing and ledger with nothing but what had been stored before a time.

    A file set counts from when its records were stored first: what was repaired or copied since
    was there before.  That is what the ledger says.  An object of which it does not say so was
    there if the store has had it since.  It was not if it comes after all that was, and the store's
    times are those of the backup, not of a copy.

    Args:
        asked: What has to be known.

    Raises:
        IncompleteBackupError: If nothing had been stored of all that is asked for, or of a topic
            that is asked for by name.
        RefusedError: If that cannot be told of an object of *asked*.
    """
    ledgers = {topic: one.before(moment_ms) for topic, one in known.ledgers.items()}
    then = replace(known, ledgers=ledgers)
    topics, sets = {*asked.topics(found.topics())}, dict[TopicPartition, list[FileSet]]()
    for where, every in found.sets.items():
        reached = _reached(where, every, known, moment_ms)
        was_there = {
            files.id: _was_there(files, known, then, moment_ms, reached) for files in every
        }
        kept = [files for files in every if was_there[files.id]]
        doubtful = [files for files in every if was_there[files.id] is None]
        if where.topic in topics and asked.has(where.partition):
            if doubtful:
                raise _untold(where, doubtful, moment_ms)
            late = [files for files in every if not was_there[files.id]]
            _check_order(where, kept, late, known.ledger(where), moment_ms)
        if kept:
            sets[where] = kept
    there = {where.topic for where in sets}
    there |= {name for name, one in ledgers.items() if one.has_objects}
    names = {*found.topics(), *known.names}
    wanted = names.intersection(asked.topics(names))
    later = sorted(wanted - there)
    if later and (asked.names or not wanted & there):
        ats = (at for at in known.partitions() if at.topic in later)
        rows = (row for at in ats for row in known.ledger(at).objects.values())
        times = [at for row in rows if (at := row.first_stored) is not None and at >= moment_ms]
        why = "either it was empty, or its first records were stored later"
        raise IncompleteBackupError(
            f"nothing of {some(later)} had been backed up by {shown_ms(moment_ms)}",
            f"the first object was stored at {shown_ms(min(times))}" if times else why,
            "choose a later time; kbackup restore list shows what there is now",
            topic=later[0],
        )
    return replace(found, sets=sets), replace(then, later=later)


Looked = dict[tuple[Entry, float | None], StoredObject | None]
"""Which version was found of a lost object: by its row, and since when another one is there."""


def list_as_stored(
    store: Store,
    layout: Layout,
    options: FormatOptions,
    known: BackupState,
    asked: TopicFilter,
    only_format: str | None = None,
    looked: Looked | None = None,
) -> Catalog:
    """List a backup, with versions that were stored in place of what was deleted or overwritten.

    The ledger says what was: where it misses nothing, and knows each size, no request is made.  An
    object that has grown stays, and what was removed on purpose is gone.  What *looked* has is not
    looked for again, and what is found is added to it.

    Raises:
        StoreError: If the store does not answer; where it refuses, `Catalog.untold` says so.
    """

    def listed(instead: Mapping[str, StoredObject]) -> Catalog:
        return list_backup(
            store, layout, options, topics=asked.names, only_format=only_format, instead=instead
        )

    found = listed({})
    if layout.is_generic or not isinstance(store, Earlier):
        return found
    topics = {*asked.topics(known.ledgers.keys())}
    wheres = [at for at in known.partitions() if at.topic in topics and asked.has(at.partition)]
    lost = [one for at in wheres for one in _lost(found, at, known.ledger(at), layout)]
    looked = {} if looked is None else looked
    new = [one for one in lost if one not in looked]

    def has_grown(of: tuple[Entry, float | None]) -> bool:
        row, modified = of
        head = None if modified is None else store.head(row.key or "")
        now = None if head is None else Facts.from_metadata(head.metadata)
        return row.facts is not None and row.facts.has_grown(now)

    try:
        grown = side_by_side(has_grown, new)
        gone = (row for (row, _), is_longer in zip(new, grown, strict=True) if not is_longer)
        versions = earlier_of(store, gone)
    except StoreError as error:
        if not is_refused(error):
            raise
        return replace(found, untold=f"{error}; {error.do}")
    looked |= {one: versions.get(one[0].key or "") for one in new}
    instead = {each.key: each for one in lost if (each := looked[one]) is not None}
    if instead:
        found = listed(instead)
        found.versions = {key: one.version for key, one in instead.items()}
    return found


def _lost(
    found: Catalog, where: TopicPartition, ledger: PartitionLedger, layout: Layout
) -> Iterator[tuple[Entry, float | None]]:
    """Yield what is not there, and what has another size, with the time of what is there."""
    missing = ledger.missing(found.keys)
    yield from ((row, None) for row in missing if row.key and layout.knows(row.key))
    for file in (file for files in found.sets.get(where, ()) for file in files.files):
        row = ledger.objects.get(file.key)
        if row is not None and row.bytes != file.size and file.key not in ledger.marked:
            yield row, file.modified


def within(
    found: Catalog, known: BackupState, begin: Mapping[TopicPartition, Span]
) -> tuple[Catalog, BackupState]:
    """Return listing and ledger with nothing but the objects that begin at these offsets."""
    sets = {
        where: kept
        for where, span in begin.items()
        if (kept := [files for files in found.sets.get(where, ()) if files.start_offset in span])
    }
    ledgers = {
        topic: one.within({at.partition: span for at, span in begin.items() if at.topic == topic})
        for topic, one in known.ledgers.items()
    }
    return replace(found, sets=sets), replace(known, ledgers=ledgers)


def _was_there(
    files: FileSet, known: BackupState, then: BackupState, moment_ms: int, reached: int | None
) -> bool | None:
    """Whether a set had been stored before a time; None where nobody knows."""
    entry = known.ledger(files.where).objects.get(files.id)
    main = files.main or files.files[0]
    is_that_one = entry is not None and entry.bytes in (None, main.size)  # a dead run may grow it
    if entry is not None and is_that_one and entry.was_stored(moment_ms) is not None:
        return files.id in then.ledger(files.where).objects
    if all(_stored_by(file) * 1000 <= moment_ms for file in files.files):
        return True
    is_new = entry is None or (is_that_one and entry.first_stored is None)
    return False if is_new and reached is not None and files.start_offset >= reached else None


def _reached(
    where: TopicPartition, sets: Sequence[FileSet], known: BackupState, moment_ms: int
) -> int | None:
    """Return the offset from which on an object came later if the store says so."""
    ledger = known.ledger(where)
    timed = {key: one for key, one in ledger.objects.items() if one.first_stored is not None}
    stored_s = {file.key: file.modified for files in sets for file in files.files}
    # a copy's times are later than a run entered what it had stored; or no run has entered any
    is_copy = any(stored_s.get(key, 0) - one.time / 1000 > _SKEW_S for key, one in timed.items())
    if is_copy or known.all_damage():
        return None
    # a partition is stored in order: what lies behind all that was there came later
    there = [one for one in timed.values() if one.was_stored(moment_ms)]
    ends = (one.next_offset or (one.last or one.first) + 1 for one in there or timed.values())
    return max(ends, default=None)


def _check_order(
    where: TopicPartition,
    kept: Sequence[FileSet],
    late: Sequence[FileSet],
    ledger: PartitionLedger,
    moment_ms: int,
) -> None:
    """Check that nothing which came later, as is said, belongs between what was there."""
    beside: defaultdict[str, list[FileSet]] = defaultdict(list)
    for files in kept:
        beside[files.encoded_partition].append(files)
    rows = {
        directory: joined(ledger.objects[one.id].span for one in there if one.id in ledger.objects)
        for directory, there in beside.items()
    }
    starts = {name: [one.start_offset for one in there] for name, there in beside.items()}
    between = {name: (min(found), max(found)) for name, found in starts.items()}
    for files in late:
        at, directory = files.start_offset, files.encoded_partition
        first, last = between.get(directory, (at, at))
        if first < at < last:
            before = bisect_right(rows[directory], at, key=lambda one: one.start_offset) - 1
            if before < 0 or at >= rows[directory][before].end_offset:
                raise _untold(where, [files], moment_ms)  # stored again: its first time is lost


REMOVED_SINCE: Final = "removed_since"
"""The code of a warning: what had been stored was removed on purpose since."""


def removed_since(where: TopicPartition, keys: Sequence[str]) -> str:
    """Return the warning that objects which had been there have been removed since."""
    what = f"{counted(len(keys), 'object')} that had been there, removed on purpose since"
    return f"{where}: it lacks {what}: {some(keys, 3)}"


_SKEW_S: Final = 900.0
"""What a host's clock and the store's may be apart: S3 takes no request with more."""


def _stored_by(file: BackupFile) -> float:
    """Return the seconds by which a file was surely there: S3 cuts off what is less than one."""
    return file.modified + (1 if file.modified.is_integer() else 0.001)


def _untold(where: TopicPartition, doubtful: Sequence[FileSet], moment_ms: int) -> RefusedError:
    number = len(doubtful)
    return RefusedError(
        f"it is not known what of {where} had been stored by {shown_ms(moment_ms)}",
        f"the ledger does not say when {counted(number, 'object')} "
        f"{form(number, 'was', 'were')} first stored: {some([files.id for files in doubtful], 3)}",
        "choose a later time, or go by the records' own times with --to-time; where no object was "
        "copied or stored again, kbackup sink reindex takes the times that the store gives",
        **where.place,
    )


_ADOPTING_THREADS: Final = 32


def listed(
    store: Store,
    found: Catalog,
    topic: str,
    only: Container[str] | None = None,
    *,
    has_times: bool = False,
) -> list[Entry]:
    """Return a row for each listed object of *topic*, with what is stored beside it.

    Objects of a cut of which others are not there, as after a crash, get none: a row would say that
    the cut was stored.

    Args:
        only: The keys of those that are wanted; None for all.
        has_times: Whether the store's times are those at which objects were stored first.  They
            are not in a copy, nor of what was stored again: nobody but an operator knows.
    """
    pairs = [
        (where, files, file)
        for where in found.partitions(topic)
        for files in found.sets[where]
        for file in files.files
        if only is None or file.key in only
    ]
    with ThreadPoolExecutor(_ADOPTING_THREADS) as pool:
        heads = list(pool.map(lambda pair: store.head(pair[2].key), pairs))
    are_cuts = {where: _are_cuts(found.sets[where]) for where in found.partitions(topic)}
    there = [
        (pair, head, Rotation.from_metadata(head.metadata))
        for pair, head in zip(pairs, heads, strict=True)
        if head is not None
    ]
    counts = Counter((where, cut) for (where, files, file), _, cut in there if file is files.main)
    rows = [
        (_row(where, files, file, head, are_cuts[where]), file)
        for (where, files, file), head, cut in there
        if cut is None or counts[where, cut] >= cut.files
    ]
    return [
        replace(
            row,
            first_stored=int(file.modified * 1000) if has_times else None,
            held_since=ceil(_stored_by(file) * 1000) if has_times else None,
        )
        for row, file in rows
    ]


def _are_cuts(sets: Sequence[FileSet]) -> bool:
    """Whether each object of the partition is a cut of its own: there is but one directory."""
    return len({files.encoded_partition for files in sets}) <= 1


def _row(
    where: TopicPartition, files: FileSet, file: BackupFile, head: ObjectHead, is_cut: bool
) -> Entry:
    facts = Facts.from_metadata(head.metadata)
    view = TOMBSTONES if files.is_tombstones and file is files.main else file.view
    time_ms = int(head.modified.timestamp() * 1000)
    if facts is None:
        return Entry(
            OBJECT, where.partition, files.start_offset, None, file.key, named(view),
            bytes=head.size, time=time_ms,
        )  # fmt: skip
    said = Rotation.from_metadata(head.metadata)
    cut = Span(facts.first_offset, facts.last_offset + 1) if said is None else said.span
    row = stored(where, file.key, view, facts, head.size, cut, "", time_ms)
    row = replace(row, data_key=head.metadata.get(DATA_KEY))
    return row if is_cut or said is not None else replace(row, cut_start=None, next_offset=None)
