"""What group, bucket and log say about each partition, gathered with few requests."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from kbackup.backup.ledger.objects import PartitionLedger
from kbackup.clock import Clock
from kbackup.errors import CorruptObjectError, KbackupError, ObjectKeyError, StoreError
from kbackup.flow.write import CutFacts
from kbackup.formats import FormatOptions
from kbackup.kafka import Position
from kbackup.naming import INDEX_EXTENSION, UPLOAD_DATE, Layout, ObjectKey, View
from kbackup.records import UNKNOWN, Facts, Span, TopicIdentity, TopicPartition, joined
from kbackup.runs.known import NOTHING, Known, with_objects
from kbackup.sink import inherited
from kbackup.sink.confirming import UNCONFIRMED, Confirmation, confirm
from kbackup.sink.dated import pointed_to
from kbackup.sink.held import HeldCut, held, one_after_another, untold_to
from kbackup.sink.inherited import Inherited
from kbackup.sink.start import Evidence
from kbackup.stores import Store

_THREADS: Final = 16
"""One HEAD a partition decides how long a run with nothing to do takes."""

_DENIED: Final = 403
"""The status of an answer that says that this object may not be read, or is archived."""


def gather(
    store: Store,
    layout: Layout,
    clock: Clock,
    logs: Mapping[TopicPartition, Span],
    committed: Mapping[TopicPartition, Position],
    known: Known = NOTHING,
    *,
    options: FormatOptions = FormatOptions(),  # noqa: B008  (frozen)
    cut_records: int = 0,
    values: str | None = None,
) -> dict[TopicPartition, Evidence]:
    """Return what is known of each partition of *logs*.

    A partition whose committed offset names the object before it costs one listing from there on,
    unless something else follows or its log begins after it.  The others cost a listing of their
    topic and its ledger, and a HEAD of each object of their last cut, and of each object that the
    ledger lacks and that the position, or the log's start, has not passed.  Where another tool has
    written the newest object, it is read.

    Args:
        store: Where the objects are.
        layout: How they are named.
        clock: The time.
        logs: What each partition's log holds.
        committed: The group's positions.
        known: What the ledger says of topics.
        options: How another tool's objects are read.
        cut_records: How many records make a cut, by configuration.
        values: The extension of the objects that are going to be written, where they hold values
            alone.

    Raises:
        StoreError: If the bucket cannot be asked.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        answers = pool.map(lambda at: confirm(store, layout, *at), committed.items())
        confirmed = dict(zip(committed, answers, strict=True))
        doubtful = [
            where
            for where, log in logs.items()
            if not confirmed.get(where, UNCONFIRMED).is_confirmed
            or committed[where].offset < log.start_offset  # what expired may be in the bucket
            or confirmed[where].is_behind
        ]
        known = _with_spread(known, store, layout, clock, confirmed, logs, committed)
        for where in logs.keys() - set(doubtful):
            reached = known.ledger(where).reached()
            if reached is not None and reached > committed[where].offset:
                doubtful.append(where)
                confirmed[where] = replace(confirmed[where], is_confirmed=False)
        topics = sorted({where.topic for where in doubtful})
        begun = [topic for topic in topics if known.has_ledger(topic)]
        unread = [topic for topic in begun if topic not in known.ledgers]
        known = with_objects(known, store, layout, clock, unread)
        stored = _objects(store, layout, doubtful)
        mains = {
            where: main for where, objects in stored.items() if (main := _mains(layout, objects))
        }
        cuts = pool.map(lambda objects: _last_cut(store, objects), mains.values())
        last = dict(zip(mains, cuts, strict=True))
        unentered = {
            where: [at for at in objects if at.key not in known.ledger(where).objects]
            for where, objects in stored.items()
            if where.topic in begun
        }
        ends = {
            where: _end(known.ledger(where), stored[where], last.get(where)) for where in stored
        }
        unknown = {
            where: _cuts(store, pool, lacking, known.identity(where.topic), values)
            for where, objects in stored.items()
            if (at := committed[where].offset if where in committed else ends[where]) is not None
            and (lacking := _lacking(layout, objects, known.ledger(where), at))
        }
        pointed = dict(
            zip(mains, pool.map(lambda at: _pointed_to(store, layout, at), mains), strict=True)
        )

        def count(where: TopicPartition) -> Inherited | KbackupError | None:
            position = committed.get(where)
            offset = None if position is None else position.offset
            return _inherited(store, options, mains[where], offset, cut_records)

        foreign = [
            where
            for where, cut in last.items()
            if cut.is_foreign
            and not confirmed.get(where, UNCONFIRMED).is_confirmed
            and mains[where][-1].start_offset
            >= (known.ledger(where).end({at.key for at in stored[where]}) or 0)
        ]
        legacies = dict(zip(foreign, pool.map(count, foreign), strict=True))
    evidence = {}
    for where, log in logs.items():
        said, cut = confirmed.get(where, UNCONFIRMED), last.get(where, _LastCut())
        ledger, listed = known.ledger(where), stored.get(where, ())
        keys = {at.key for at in listed}
        end = _end(ledger, listed, cut)
        more = unknown.get(where, ())
        for one in more:  # of a run that died before it entered values in another format
            is_other = one.is_values and not one.is_same
            if end is not None and one.is_whole and is_other and one.start <= end:
                end = max(end, one.end)
        cuts_there = (*_held(values, ledger, keys, legacies.get(where)), *more)
        pointer = pointed.get(where)
        evidence[where] = Evidence(
            log,
            committed.get(where),
            said.is_confirmed,
            end,
            where in mains,
            (*said.identities, cut.identity),
            known_to=ledger.reached(),
            kept=joined([*ledger.kept(keys), *(one.span for one in more if one.is_whole)]),
            lost=joined(one.span for one in ledger.missing(keys)),
            unentered=tuple((at.start_offset, at.key) for at in unentered.get(where, ())),
            is_astray=pointer is not None and pointer != mains[where][-1].start_offset,
            inherited=legacies.get(where),
            held=tuple(sorted(cuts_there, key=lambda one: (one.start, -one.end))),
            untold_to=None if values is None else untold_to(ledger, keys),
            stores_values=values is not None,
        )
    return evidence


def _with_spread(
    known: Known,
    store: Store,
    layout: Layout,
    clock: Clock,
    confirmed: Mapping[TopicPartition, Confirmation],
    logs: Mapping[TopicPartition, Span],
    committed: Mapping[TopicPartition, Position],
) -> Known:
    """Return *known* with the ledgers of topics over several directories that have grown.

    One listing cannot show what other runs have stored of such a partition; their ledger does.
    """
    topics = {
        where.topic
        for where, said in confirmed.items()
        if said.is_confirmed
        and said.is_spread
        and logs[where].end_offset > committed[where].offset
        and known.has_ledger(where.topic)
    }
    return with_objects(known, store, layout, clock, sorted(topics))


@dataclass(frozen=True, slots=True)
class _Stored:
    """A listed object; in the order of start offsets."""

    key: str
    directory: str
    parts: ObjectKey

    @property
    def start_offset(self) -> int:
        """Of its first record."""
        return self.parts.start_offset


@dataclass(frozen=True, slots=True)
class _LastCut:
    """What a partition's last cut says.

    Attributes:
        stored_to: The offset up to which nothing is missing: the end of the cut if all its
            objects are there, else its start; None where it does not say.
        identity: Which topic its newest object is of.
        is_foreign: Another tool wrote its newest object.
    """

    stored_to: int | None = None
    identity: TopicIdentity = UNKNOWN
    is_foreign: bool = False


def _objects(
    store: Store, layout: Layout, wheres: Sequence[TopicPartition]
) -> dict[TopicPartition, list[_Stored]]:
    """Return the objects of each partition that has some, in the order of start offsets."""
    wanted = set(wheres)
    found: dict[TopicPartition, list[_Stored]] = {}
    for prefix in layout.prefixes(where.topic for where in wheres):
        for entry in store.list(prefix):
            try:
                parts = layout.parse(entry.key)
            except ObjectKeyError:
                continue
            where = TopicPartition(parts.topic, parts.partition)
            if where in wanted and parts.extension != INDEX_EXTENSION:
                directory = UPLOAD_DATE if layout.is_dated else parts.encoded_partition
                one = _Stored(entry.key, directory, parts)
                found.setdefault(where, []).append(one)
    for objects in found.values():
        objects.sort(key=lambda at: at.start_offset)
    return found


def _pointed_to(store: Store, layout: Layout, where: TopicPartition) -> int | None:
    return pointed_to(store, layout, where) if layout.is_dated else None


def _mains(layout: Layout, objects: Sequence[_Stored]) -> list[_Stored]:
    return [one for one in objects if layout.is_main(one.parts)]


def _lacking(
    layout: Layout, objects: Sequence[_Stored], ledger: PartitionLedger, offset: int
) -> list[_Stored]:
    """Return those of *objects* that the ledger lacks and that may reach behind *offset*."""
    mains = _mains(layout, objects)
    first = max((one.start_offset for one in mains if one.start_offset <= offset), default=0)
    return [one for one in mains if one.start_offset >= first and one.key not in ledger.objects]


def _end(ledger: PartitionLedger, objects: Iterable[_Stored], cut: "_LastCut | None") -> int | None:
    """Return where the backup ends, by the ledger, else by its last cut."""
    end = ledger.end({at.key for at in objects})
    return end if end is not None or cut is None else cut.stored_to


def _cuts(
    store: Store,
    pool: Executor,
    objects: Sequence[_Stored],
    identity: TopicIdentity,
    values: str | None,
) -> tuple[HeldCut, ...]:
    """Return the cuts of *objects*, as far as these say which they are of."""
    counts: Counter[tuple[CutFacts, bool, bool]] = Counter()
    heads = pool.map(lambda one: store.head(one.key), objects)
    for one, head in zip(objects, heads, strict=True):
        cut = None if head is None else CutFacts.from_metadata(head.metadata)
        if head is None or cut is None:
            continue
        if not identity.conflicts(TopicIdentity.from_metadata(head.metadata)):
            is_values = one.parts.view is not View.RECORD
            is_same = is_values and values is not None and one.parts.extension == values
            counts[cut, is_same, is_values] += 1
    return tuple(
        HeldCut(cut.span, count, count == cut.files, is_same, is_values)
        for (cut, is_same, is_values), count in counts.items()
    )


def _last_cut(store: Store, objects: Sequence[_Stored]) -> _LastCut:
    """Look at the cut that the newest object belongs to.

    A run that died between two objects of a cut leaves one that is not complete.  Its start is
    where to continue: the same records make the same objects again.  An object that an earlier,
    shorter cut left, and that did not grow, says other than its neighbours; then, too, the cut is
    taken for incomplete, which costs reading it once more and nothing else.
    """
    head = store.head(objects[-1].key)
    if head is None:
        return _LastCut()
    if (facts := Facts.from_metadata(head.metadata)) is None:
        return _LastCut(is_foreign=objects[-1].parts.view is not View.RECORD)
    identity = TopicIdentity.from_metadata(head.metadata)
    cut = CutFacts.from_metadata(head.metadata)
    if cut is None:  # of a version that did not keep it
        is_one = len({at.directory for at in objects}) == 1
        return _LastCut(facts.last_offset + 1 if is_one else None, identity)
    start = cut.span.start_offset
    of_cut = [at for at in objects if at.start_offset >= start]
    heads = [store.head(at.key) for at in of_cut[:-1]]
    cuts = {None if at is None else CutFacts.from_metadata(at.metadata) for at in heads} | {cut}
    is_complete = len(of_cut) == cut.files and len(cuts) == 1
    return _LastCut(cut.span.end_offset if is_complete else start, identity)


def _inherited(
    store: Store,
    options: FormatOptions,
    objects: Sequence[_Stored],
    committed: int | None,
    cut_records: int,
) -> Inherited | KbackupError | None:
    pairs = [(one.key, replace(one.parts, encoded_partition=one.directory)) for one in objects]
    try:
        return inherited.count(store, options, pairs, committed, cut_records)
    except CorruptObjectError as error:
        return error
    except StoreError as error:
        if error.place.get("status") != _DENIED:
            raise
        return error  # archived, or denied: this object's partition alone


def _held(
    values: str | None,
    ledger: PartitionLedger,
    present: Container[str],
    left: Inherited | KbackupError | None,
) -> tuple[HeldCut, ...]:
    """Return the cuts that are there, by the ledger and by what another tool has left."""
    found = held(ledger, present, values)
    if values is None or found or not isinstance(left, Inherited) or not left.is_one_directory:
        return found
    return tuple(one_after_another(left.starts))
