"""Gather what group, bucket and log say about each partition, with few requests."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Final

from kbackup.catalog.coverage import Holding, entered
from kbackup.catalog.ledger.rows import PartitionLedger
from kbackup.clock import Clock
from kbackup.errors import CorruptObjectError, KbackupError, ObjectKeyError, StoreError
from kbackup.formats import FormatOptions
from kbackup.kafka import Position
from kbackup.naming import INDEX_EXTENSION, UPLOAD_DATE, DatedLayout, Layout, ObjectKey, View
from kbackup.records import UNKNOWN, Facts, Rotation, Span, TopicIdentity, TopicPartition, joined
from kbackup.runs.backup_state import NOTHING, BackupState, with_objects
from kbackup.runs.position import SinkPosition
from kbackup.sink.keep import from_on, named, read_pointer
from kbackup.sink.start import (
    Evidence,
    Inherited,
    StoredCut,
    count_inherited,
    one_after_another,
    stored_cuts,
    untold_to,
)
from kbackup.stores import ObjectHead, Store

_ANY: Final = ".any"
"""An extension that no object has."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a committed position, and the object it names, say.

    Attributes:
        is_confirmed: The object is in the bucket, or the committer needed none.
        identities: Which topic they are of.
        is_behind: The group was set back, and has not come to the end of what was stored then.
        is_spread: The partition may have several directories, of which one was listed.
    """

    is_confirmed: bool = False
    identities: tuple[TopicIdentity, ...] = ()
    is_behind: bool = False
    is_spread: bool = False


UNCONFIRMED: Final = Confirmation()


def confirm(
    store: Store, layout: Layout, where: TopicPartition, position: Position, backup: str = ""
) -> Confirmation:
    """Return what a position says, and whether the bucket agrees and nothing follows."""
    last = SinkPosition.read(position.metadata)
    if last is None:
        return UNCONFIRMED
    is_of_another = last.backup and backup and last.backup != backup
    if is_of_another or last.at != position.offset:  # moved since
        return Confirmation(identities=(last.identity,))
    is_behind = last.again_to is not None
    found = _following(store, layout, where, position.offset, last.key)
    if found.has_more:  # another run has stored what follows
        return Confirmation(identities=(last.identity,))
    said = Confirmation(True, (last.identity,), is_behind, found.is_spread)
    if last.key is None or (found.size is not None and found.size == last.size):
        return said  # without a key, kbackup committed that it had nothing to store before it
    is_ours = last.key.startswith(layout.prefix(where.topic))
    head = _head(store, last.key) if is_ours else None
    if head is None or last.last_offset is None:  # an object of another tool, counted once
        return replace(said, is_confirmed=head is not None)
    facts = Facts.from_metadata(head.metadata)
    # one that reaches beyond the position has grown since: another run has stored what follows
    is_there = facts is not None and last.last_offset <= facts.last_offset < position.offset
    identities = (last.identity, TopicIdentity.from_metadata(head.metadata))
    return replace(said, is_confirmed=is_there, identities=identities)


def _head(store: Store, key: str) -> ObjectHead | None:
    try:
        return store.head(key)
    except ObjectKeyError:
        return None  # a key that this store cannot have


@dataclass(frozen=True, slots=True)
class _Following:
    """What a listing shows from a partition's last object on."""

    size: int | None = None  # of that object; None where it is not there
    has_more: bool = False  # objects of the partition follow it
    is_spread: bool = False  # it may have others where the listing does not show them


def _following(
    store: Store, layout: Layout, where: TopicPartition, offset: int, key: str | None
) -> _Following:
    """List from the last object on, in its directory; nothing where that is another backup's."""
    if key is not None and not key.startswith(layout.prefix(where.topic)):
        return _Following()  # it is in another topics.dir, or was stored under another name
    if not layout.has_folders:
        return _Following(is_spread=True)  # names are not in the order of offsets
    whole = f"partition={where.partition}"
    size, has_more, is_first = None, False, key is None
    try:
        key = key or layout.key(
            ObjectKey(where.topic, where.partition, offset, whole, _ANY, View.VALUE)
        )
        for one, _ in from_on(store, layout, key):
            if one.key != key:
                has_more = True
                break
            size = one.size
        directory = layout.parse(key).encoded_partition
    except ObjectKeyError:
        return _Following()
    return _Following(size, has_more, is_spread=is_first or directory != whole)


_Listed = tuple[str, ObjectKey]
"""An object's key, and what it says; in a dated layout all are in one directory."""


_THREADS: Final = 16
"""One HEAD a partition decides how long a run with nothing to do takes."""


def gather(
    store: Store,
    layout: Layout,
    clock: Clock,
    logs: Mapping[TopicPartition, Span],
    committed: Mapping[TopicPartition, Position],
    known: BackupState = NOTHING,
    *,
    options: FormatOptions = FormatOptions(),  # noqa: B008  (frozen)
    cut_records: int = 0,
    values: str | None = None,
    backup: str = "",
) -> dict[TopicPartition, Evidence]:
    """Return what is known of each partition of *logs*.

    A partition whose committed offset names the object before it costs one listing from there on,
    and the ledger of its topic if that has grown and values are written, or it may have several
    directories; unless something else follows or its log begins after it.  The others cost a
    listing of their topic and its ledger, and a HEAD of each object of their last cut, and of each
    object that the ledger lacks and that the position, or the log's start, has not passed.  Where
    another tool has written the newest object, it is read.

    Args:
        options: How another tool's objects are read.
        cut_records: How many records make a cut, by configuration.
        values: The extension of the objects that are going to be written, where they hold values
            alone.
    """
    search = _Search(store, layout, options, cut_records, values)
    with ThreadPoolExecutor(_THREADS) as pool, search.pool:
        answers = pool.map(
            lambda at: confirm(store, layout, at[0], at[1], backup), committed.items()
        )
        said = dict.fromkeys(logs, UNCONFIRMED) | dict(zip(committed, answers, strict=True))
        doubtful = {
            where
            for where, log in logs.items()
            if not said[where].is_confirmed
            or _is_doubtful(layout, said[where], committed[where], log, values)
        }
        known = _with_others(
            known, store, layout, clock, said, logs, committed, is_values=values is not None
        )
        for where in logs.keys() - doubtful:
            reached = known.ledger(where).reached()
            if reached is not None and reached > committed[where].offset:
                doubtful.add(where)
                said[where] = replace(said[where], is_confirmed=False)
        begun = sorted(topic for topic in {at.topic for at in doubtful} if known.has_ledger(topic))
        unread = [topic for topic in begun if topic not in known.ledgers]
        known = with_objects(known, store, layout, clock, unread)
        stored = _objects(store, layout, [where for where in logs if where in doubtful])
        found = pool.map(
            lambda at: search.evidence(
                at, logs[at], committed.get(at), said[at], stored.get(at, ()), known
            ),
            logs,
        )
        return dict(zip(logs, found, strict=True))


def _is_doubtful(
    layout: Layout, said: Confirmation, position: Position, log: Span, values: str | None
) -> bool:
    """Whether the bucket has to be searched, though the object of the position is there."""
    if position.offset < log.start_offset or said.is_behind:  # what expired may be in the bucket
        return True
    if not said.is_spread or position.offset >= log.end_offset or values is None:
        return False
    # written in another format now: a run that died may have left a part of the next cut, in
    # directories that no listing shows
    last = SinkPosition.read(position.metadata)
    if last is None or last.key is None or not layout.knows(last.key):
        return True
    return layout.parse(last.key).extension != values  # whole: one may end with another


@dataclass(frozen=True, slots=True)
class _Search:
    store: Store
    layout: Layout
    options: FormatOptions
    cut_records: int
    values: str | None
    pool: Executor = field(default_factory=lambda: ThreadPoolExecutor(_THREADS))  # for HEADs

    def evidence(
        self,
        where: TopicPartition,
        log: Span,
        position: Position | None,
        said: Confirmation,
        objects: Sequence[_Listed],
        known: BackupState,
    ) -> Evidence:
        """Return what is known of a partition, of which *objects* are listed in order."""
        ledger, values = known.ledger(where), self.values
        keys, mains = {key for key, _ in objects}, _mains(self.layout, objects)
        cut = _last_cut(self.store, mains)
        found = entered(starmap(_by_name, mains), ledger, keys)
        entered_to, offset = found.end, None if position is None else position.offset
        end = cut.stored_to if entered_to is None else entered_to
        more = self._lacking_cuts(objects, ledger, end if offset is None else offset, known, where)
        is_foreign = cut.is_foreign and not said.is_confirmed
        left = None
        if is_foreign and mains[-1][1].start_offset >= (entered_to or 0):
            left = self._inherited(mains, offset)
        for one in more:  # of a run that died before it entered values in another format
            is_other = one.is_values and not one.is_same
            if end is not None and one.is_whole and is_other and one.start <= end:
                end = max(end, one.end)
        has_ledger = known.has_ledger(where.topic)
        return Evidence(
            log,
            position,
            said.is_confirmed,
            end,
            has_objects=bool(mains),
            identities=(*said.identities, cut.identity),
            known_to=ledger.reached(),
            kept=joined([*found.whole, *(one.span for one in more if one.is_whole)]),
            lost=joined(found.said.missing),
            given_up=joined(found.said.removed),
            unentered=tuple(
                (parts.start_offset, key)
                for key, parts in objects
                if has_ledger and key not in ledger.objects
            ),
            unended=tuple(
                (parts.start_offset, key)
                for key, parts in objects
                if (row := ledger.objects.get(key)) is not None
                and row.last is None
                and row.below is None
            ),
            is_astray=self._is_astray(where, mains),
            inherited=left,
            held=tuple(
                sorted(
                    (*_held(values, ledger, keys, left), *more),
                    key=lambda one: (one.start, -one.end),
                )
            ),
            untold_to=None if values is None else untold_to(ledger, keys),
            stores_values=values is not None,
            of_other_layout=_of_other_layout(self.layout, position, ledger),
        )

    def _is_astray(self, where: TopicPartition, mains: Sequence[_Listed]) -> bool:
        """Whether the pointer of a dated layout names another object than the newest."""
        if not mains or not isinstance(self.layout, DatedLayout):
            return False
        pointer = read_pointer(self.store, self.layout, where)
        return pointer is not None and pointer != mains[-1][1].start_offset

    def _lacking_cuts(
        self,
        objects: Sequence[_Listed],
        ledger: PartitionLedger,
        offset: int | None,
        known: BackupState,
        where: TopicPartition,
    ) -> tuple[StoredCut, ...]:
        """Return the cuts that the ledger lacks and that may reach behind *offset*."""
        # as far as their objects say which they are of
        if offset is None:
            return ()
        counts: Counter[tuple[Rotation, bool, bool]] = Counter()
        lacking = _lacking(self.layout, objects, ledger, offset)
        heads = self.pool.map(lambda one: self.store.head(one[0]), lacking)
        identity = known.identity(where.topic)
        for (_, parts), head in zip(lacking, heads, strict=True):
            cut = None if head is None else Rotation.from_metadata(head.metadata)
            if head is None or cut is None:
                continue
            if not identity.conflicts(TopicIdentity.from_metadata(head.metadata)):
                is_values = parts.view is not View.RECORD
                is_same = is_values and parts.extension == self.values
                counts[cut, is_same, is_values] += 1
        return tuple(
            StoredCut(cut.span, count, count == cut.files, is_same, is_values)
            for (cut, is_same, is_values), count in counts.items()
        )

    def _inherited(
        self, objects: Sequence[_Listed], committed: int | None
    ) -> Inherited | KbackupError | None:
        """Return what another tool has left, or why that cannot be known."""
        try:
            return count_inherited(
                self.store, self.options, objects, committed, self.cut_records, values=self.values
            )  # fmt: skip
        except CorruptObjectError as error:
            return error
        except StoreError as error:
            if not error.is_denied:
                raise
            return error  # this object's partition alone


def _of_other_layout(
    layout: Layout, position: Position | None, ledger: PartitionLedger
) -> str | None:
    """Return the newest object below ``topics.dir`` that is known, if *layout* has no such name."""
    newest = max(ledger.objects.values(), key=lambda one: one.first, default=None)
    commit_metadata = None if position is None else SinkPosition.read(position.metadata)
    keys = (
        None if commit_metadata is None else commit_metadata.key,
        None if newest is None else newest.key,
    )
    key = next((key for key in keys if key is not None), None)
    if key is None or not key.startswith(layout.prefix()) or layout.knows(key):
        return None
    return key


def _with_others(
    known: BackupState,
    store: Store,
    layout: Layout,
    clock: Clock,
    confirmed: Mapping[TopicPartition, Confirmation],
    logs: Mapping[TopicPartition, Span],
    committed: Mapping[TopicPartition, Position],
    *,
    is_values: bool,
) -> BackupState:
    """Return *known* with the ledgers of topics that have grown and that others may back up too."""
    # one listing cannot show what other runs have stored of a partition in several directories, nor
    # that they have several; their ledger does, and values are not to be stored twice
    topics = {
        where.topic
        for where, said in confirmed.items()
        if said.is_confirmed
        and (said.is_spread or is_values)
        and logs[where].end_offset > committed[where].offset
        and known.has_ledger(where.topic)
    }
    return with_objects(known, store, layout, clock, sorted(topics))


@dataclass(frozen=True, slots=True)
class _LastCut:
    """What a partition's last cut says."""

    stored_to: int | None = None  # its end if all of it is there, else its start; None: not said
    identity: TopicIdentity = UNKNOWN  # which topic its newest object is of
    is_foreign: bool = False  # another tool wrote its newest object


def _objects(
    store: Store, layout: Layout, wheres: Sequence[TopicPartition]
) -> dict[TopicPartition, list[_Listed]]:
    """Return the objects of each partition that has some, in the order of start offsets."""
    wanted = set(wheres)
    found: dict[TopicPartition, list[_Listed]] = {}
    for prefix in layout.prefixes(where.topic for where in wheres):
        for entry, parts in named(store, layout, prefix):
            where = TopicPartition(parts.topic, parts.partition)
            if where in wanted and parts.extension != INDEX_EXTENSION:
                if layout.is_dated:
                    parts = replace(parts, encoded_partition=UPLOAD_DATE)  # noqa: PLW2901
                found.setdefault(where, []).append((entry.key, parts))
    for objects in found.values():
        objects.sort(key=lambda one: one[1].start_offset)
    return found


def _mains(layout: Layout, objects: Sequence[_Listed]) -> list[_Listed]:
    return [one for one in objects if layout.is_main(one[1])]


def _by_name(key: str, parts: ObjectKey) -> Holding:
    view = parts.view
    return Holding(
        key, parts.encoded_partition, parts.start_offset, view is View.RECORD,
        is_tombstones=view is View.KEY,
    )  # fmt: skip


def _lacking(
    layout: Layout, objects: Sequence[_Listed], ledger: PartitionLedger, offset: int
) -> list[_Listed]:
    """Return those of *objects* that the ledger lacks and that may reach behind *offset*."""
    mains = _mains(layout, objects)
    starts = (parts.start_offset for _, parts in mains)
    first = max((start for start in starts if start <= offset), default=0)
    return [
        (key, parts)
        for key, parts in mains
        if parts.start_offset >= first and key not in ledger.objects
    ]


def _last_cut(store: Store, objects: Sequence[_Listed]) -> _LastCut:
    """Look at the cut that the newest object belongs to."""
    head = store.head(objects[-1][0]) if objects else None
    if head is None:
        return _LastCut()
    if (facts := Facts.from_metadata(head.metadata)) is None:
        return _LastCut(is_foreign=objects[-1][1].view is not View.RECORD)
    identity = TopicIdentity.from_metadata(head.metadata)
    cut = Rotation.from_metadata(head.metadata)
    if cut is None:  # 0.1.0 did not keep it
        is_one = len({parts.encoded_partition for _, parts in objects}) == 1
        return _LastCut(facts.last_offset + 1 if is_one else None, identity)
    # A run that died inside a cut leaves it incomplete; from its start the same records make the
    # same objects again.  An object of an earlier, shorter cut that did not grow says other than
    # its neighbours: the cut is read once more, which costs nothing else.
    start = cut.span.start_offset
    of_cut = [key for key, parts in objects if parts.start_offset >= start]
    heads = [store.head(key) for key in of_cut[:-1]]
    cuts = {None if at is None else Rotation.from_metadata(at.metadata) for at in heads} | {cut}
    is_complete = len(of_cut) == cut.files and len(cuts) == 1
    return _LastCut(cut.span.end_offset if is_complete else start, identity)


def _held(
    values: str | None,
    ledger: PartitionLedger,
    present: Container[str],
    left: Inherited | KbackupError | None,
) -> tuple[StoredCut, ...]:
    found = stored_cuts(ledger, present, values)
    if values is None or found or not isinstance(left, Inherited) or not left.is_one_directory:
        return found
    return tuple(one_after_another(left.starts))
