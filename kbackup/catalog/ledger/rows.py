"""The rows of the ledger: their columns, which of two about one thing counts, what they say."""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Final, Self, TypeVar, get_args

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.errors import Issue
from kbackup.naming import View
from kbackup.records import Facts, Span, TopicIdentity, TopicPartition, joined, replaced

OBJECT: Final = "object"
GAP: Final = "gap"
ACCEPTED: Final = "accepted"
REMOVED: Final = "removed"
KEPT: Final = "kept"
SKIPPED: Final = "skipped"
PASSED: Final = "passed"
TOPIC: Final = "topic"
SINK: Final = "sink"

TOMBSTONES: Final = "tombstones"
"""What the ledger calls the view of an object of keys that no values belong to."""


PARTITIONS_MOST: Final = 100_000
"""No topic has more; Kafka's controller creates 10,000 at a time."""


_FORGED: Final = (
    "move it away: records are restored without it, and kbackup sink reindex rebuilds the ledger"
)


@dataclass(frozen=True, slots=True)
class StreamForm:
    """What the files of one stream look like.

    Attributes:
        schema: Their columns; a reader leaves out columns it does not know.
        merged: Returns the rows that count, one for each thing they are about.  It depends on the
            set of rows alone: not on their order, nor on how often one of them is there.
        is_purged: Whether files are deleted once a snapshot holds their rows.
        forged: What to do about a file that kbackup has not written.
    """

    schema: pa.Schema
    merged: Callable[[pa.Table], pa.Table]
    is_purged: bool = False
    forged: str = _FORGED

    @classmethod
    def of(
        cls,
        kind: type[Any],
        merged: Callable[[pa.Table], pa.Table],
        *others: pa.Field,
        is_purged: bool = False,
        forged: str = _FORGED,
    ) -> Self:
        """Return the form of rows of a dataclass: a column for each attribute, in their order.

        A column may be null where the attribute may be None.  *others* are those that are not what
        the attribute's type says.
        """
        columns = {one.name: one for one in others}
        for one in fields(kind):
            if one.name not in columns:
                own, *none = get_args(one.type) or (one.type,)
                columns[one.name] = pa.field(one.name, _KINDS[own], nullable=bool(none))
        schema = pa.schema([columns[one.name] for one in fields(kind)])
        return cls(schema, merged, is_purged, forged)


_KINDS: Final = {str: pa.string(), int: pa.int64(), bytes: pa.binary(), bool: pa.bool_()}


@dataclass(frozen=True, slots=True)
class Entry:
    """One row about a partition of a topic.

    Attributes:
        kind: ``object``: an object was stored.  ``gap``: the cluster had deleted these offsets
            before they were backed up.  ``accepted``: someone said that what is missing here was
            removed on purpose.  ``removed``: an object is to be deleted, and counts as gone from
            now on.  ``kept``: that was taken back.  ``skipped``: records were left out here because
            they do not fit the layout.  ``passed``: a run had come to the end of these offsets, and
            there was nothing to store.
        first: Offset of the first record, inclusive.
        last: Offset of the last record, inclusive; None where the object does not say.
        key: The object; None for a range of offsets.
        view: The part of the records that the object holds: ``record``, ``value``, ``keys`` or
            ``headers``; ``tombstones`` for the keys of records without a value.
        records: Number of records; None where the object does not say.
        sha256: Of the object's bytes, in hexadecimal; None where the object does not say.
        min_timestamp: Lowest record timestamp in ms; None where no record has one.
        max_timestamp: Highest record timestamp in ms; None where no record has one.
        cut_start: The position before the cut that the object belongs to.
        next_offset: The position after it.
        time: When, in ms since the epoch, by the clock of the host that wrote it: for people.  Of
            ``removed`` by the store's clock: it is compared with that.
        counter: Above those of all rows that its writer could see; None until it is entered.
        covers: The run that wrote the row that is accepted, removed or kept; None for any other
            kind.
        digest: Of the object's records, behind its method: ``r1:`` of records, ``b1:`` of batches
            as Kafka stores them, ``h1:`` with a key.  None: not taken.
        version: Reserved for the store's version of the object: always None, for versions are found
            by size and sha256, or by the server's times, whatever has become of the ledger.
        data_key: Id of what the object is encrypted with; None where it is not.
        first_stored: When an object of these records was stored first, in ms since the epoch: one
            that takes its place keeps it.  None for any other kind, and where a run has entered
            what it did not store.
        held_since: When one of as many records was stored first: later, if it has grown.  None for
            any other kind, and where an earlier version wrote it.
        below: Of another tool's object, which does not say its last record: the end of the log,
            asked for once the object was there.  None where that says nothing of its records.
    """

    kind: str
    partition: int
    first: int
    last: int | None
    key: str | None = None
    view: str | None = None
    records: int | None = None
    bytes: int | None = None
    sha256: str | None = None
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    cut_start: int | None = None
    next_offset: int | None = None
    run: str | None = None
    time: int = 0
    counter: int | None = None
    covers: str | None = None
    digest: str | None = None
    version: str | None = None
    data_key: str | None = None
    first_stored: int | None = None
    held_since: int | None = None
    below: int | None = None

    def was_stored(self, moment_ms: int) -> bool | None:
        """Whether an object had been stored before a time; None where nobody knows.

        Of one that has grown since, nothing says which of its records were there.
        """
        if self.first_stored is None:
            return None
        held = self.time if self.held_since is None else self.held_since
        if held < moment_ms:
            return True
        return None if self.first_stored < moment_ms else False

    def instead_of(self, before: "Entry") -> "Entry":
        """Return the row of an object with what an earlier row about it knows, as its digest.

        Of an object that is still the same, the run that stored it too: what names that row, such
        as a removal, goes on naming it, also where a host does not see the later row yet.
        """
        said, now = (before.records, before.bytes), (self.records, self.bytes)
        is_as_long = said[0] == now[0] if None not in (said[0], now[0]) else said[1] == now[1]
        held = before.held_since if is_as_long else None
        is_same = self.sha256 is not None and self.sha256 == before.sha256
        return replace(
            self, digest=before.digest if is_same and self.digest is None else self.digest,
            first_stored=before.first_stored or self.first_stored,
            held_since=held or self.held_since, run=before.run if is_same else self.run,
            below=before.below if is_as_long and self.last is None else self.below,
        )  # fmt: skip

    @property
    def has_facts(self) -> bool:
        """Whether it says enough of the object's records for `facts`, which cost more to make."""
        return None not in (self.last, self.records, self.sha256)

    @property
    def facts(self) -> Facts | None:
        """What is known of the object's records; None where it does not say."""
        if not self.has_facts:
            return None
        return Facts(
            self.first, self.last, self.records, self.min_timestamp, self.max_timestamp,  # type: ignore[arg-type]
            self.sha256, self.digest,  # type: ignore[arg-type]
        )  # fmt: skip

    @property
    def cut(self) -> tuple[int, int, str | None] | None:
        """Which cut of which run an object is of; None where the row does not say.

        Objects of one cut have no record in common.
        """
        if self.cut_start is None or self.next_offset is None:
            return None
        return self.cut_start, self.next_offset, self.run

    @property
    def span(self) -> Span:
        """The offsets of a row about a range."""
        return Span(self.first, (self.first if self.last is None else self.last) + 1)


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """One row about a topic, or about a sink and the topics it was asked for.

    Attributes:
        kind: ``topic`` or ``sink``.
        topic: The topic; None for a sink.
        partitions: The topic's number of partitions; None for a sink, or where it is not known.
        config: The topic's settings that differ from the cluster's defaults.
        names: The topics that the sink was asked for by name; of a topic that is stored under
            another name, its own.
        pattern: The ``topics.regex`` that it was asked for; None if there is none.
        compacted: Whether Kafka compacts the topic, or did when any sink looked; None for a sink,
            and where an earlier version wrote it.
    """

    kind: str
    topic: str | None = None
    cluster_id: str = ""
    topic_id: str = ""
    partitions: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    names: tuple[str, ...] = ()
    pattern: str | None = None
    run: str | None = None
    time: int = 0
    counter: int | None = None
    excluded: str | None = None
    compacted: bool | None = None

    @property
    def identity(self) -> TopicIdentity:
        """Which topic of which cluster."""
        return TopicIdentity(self.cluster_id, self.topic_id)

    @property
    def is_possible(self) -> bool:
        """Whether a topic can have as many partitions as it says; else work would not end."""
        return self.partitions is None or 0 <= self.partitions <= PARTITIONS_MOST

    def says_the_same(self, other: "TopicEntry") -> bool:
        """Whether both rows say the same, whoever wrote them and when."""
        return all(
            getattr(self, f.name) == getattr(other, f.name)
            for f in fields(self)
            if f.name not in ("run", "time", "counter")
        )


def order(row: Entry | TopicEntry) -> tuple[int, str]:
    """Return what rows are ordered by: what they follow, and names where neither follows."""
    return row.counter or 0, row.run or ""


def stored(
    where: TopicPartition,
    key: str,
    view: str,
    facts: Facts,
    size: int,
    cut: Span,
    run: str,
    time_ms: int,
) -> Entry:
    """Return the row of an object that was stored.

    *cut* reaches from the position before the cut that it belongs to, to the one after it; *view*
    is `TOMBSTONES` where records have no values.
    """
    return Entry(
        OBJECT, where.partition, facts.first_offset, facts.last_offset, key, named(view),
        facts.records, size, facts.sha256, facts.min_timestamp, facts.max_timestamp,
        cut.start_offset, cut.end_offset, run, time_ms, digest=facts.digest, first_stored=time_ms,
        held_since=time_ms,
    )  # fmt: skip


def named(view: str) -> str:
    """Return what the ledger calls a view."""
    return view.removeprefix(".") or "value"


def is_main(entry: Entry) -> bool:
    """Whether it is about what its records are known by: no sibling of an object of values."""
    return entry.view in MAIN_VIEWS


MAIN_VIEWS: Final = (named(View.RECORD), named(View.VALUE), TOMBSTONES)


def table(rows: Iterable[object], form: StreamForm) -> pa.Table:
    """Return rows, whose attributes are the columns of *form*, as columns."""
    values = attrgetter(*form.schema.names)
    columns = list(zip(*map(values, rows), strict=True)) or [()] * len(form.schema)
    arrays = [_array(column, f.type) for column, f in zip(columns, form.schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=form.schema)


def _array(column: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        column = [sorted(each.items()) for each in column]
    return pa.array(column, kind)


R = TypeVar("R")


def rows_of(kind: Callable[..., R], rows: pa.Table) -> Iterator[R]:
    """Yield rows as what *kind* makes of them, whose attributes have the order of the columns."""
    for values in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        yield kind(*values)


def entries(rows: pa.Table) -> Iterator[Entry]:
    """Yield the rows of a topic's stream."""
    return rows_of(Entry, rows)


def topic_entries(rows: pa.Table) -> Iterator[TopicEntry]:
    """Yield the rows of the stream about topics."""
    for row in rows.to_pylist():
        yield TopicEntry(
            **{**row, "config": dict(row["config"] or ()), "names": tuple(row["names"] or ())}
        )


def _merged_objects(rows: pa.Table) -> pa.Table:
    """Objects only grow: of rows about one that with more records counts, then the later one.

    But for one that was removed on purpose and stored again: what was stored last counts.
    """
    text = [rows["kind"], *(rows[name].cast(pa.string()) for name in ("partition", "first"))]
    last = pc.fill_null(rows["last"].cast(pa.string()), "")
    ranged = pc.binary_join_element_wise(*text, last, " ")
    keyed = pc.binary_join_element_wise(rows["kind"], rows["key"], " ")
    is_passed = pc.equal(rows["kind"], PASSED)  # of a partition, only how far it has come counts
    about = pc.if_else(
        is_passed, pc.binary_join_element_wise(*text[:2], " "), pc.coalesce(keyed, ranged)
    )
    named = pc.binary_join_element_wise(about, rows["covers"], " =")
    about = pc.coalesce(named, about)  # each row that is accepted has its own
    # Of as many records that end elsewhere neither holds the other: someone deleted the object,
    # and a run stored it again without what the cluster no longer had.  The row that ends first
    # counts: the object that is there does not fit it, and verify says so.
    rank = pc.if_else(is_passed, rows["last"], pc.negate(rows["last"]))
    ranked = rows.append_column("_rank", rank).append_column("_about", about)
    ranked = ranked.append_column("_removals", _removals(rows))
    found = _best(ranked, about, ["_removals", "records", "_rank", *_LATER, "sha256"])
    found = found.drop_columns(["_rank", "_removals"])
    if len(found) < len(rows):
        counts = pc.value_counts(about.combine_chunks())
        several = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        is_several = pc.is_in(about, several)  # most have one row, whose times are their own
        rows, about = rows.filter(is_several), about.filter(is_several)
        found = _lowest("first_stored", found, found["_about"], rows, about)
        of_size = _with_records(found["_about"], found)
        found = _lowest("held_since", found, of_size, rows, _with_records(about, rows))
    return found.drop_columns("_about")


def _removals(rows: pa.Table) -> pa.Array:
    """Return a number for each row that rises with each removal of its object before it."""
    is_said = pc.is_in(rows["kind"], pa.array([ACCEPTED, REMOVED, KEPT]))
    if not pc.any(is_said).as_py():  # as in nearly every ledger, each time that it is read
        return pa.repeat(0, len(rows))
    key, covers = (pc.fill_null(rows[name], "") for name in ("key", "covers"))
    of = pc.binary_join_element_wise(key, covers, " ")
    said = latest(rows.filter(is_said).append_column("_of", of.filter(is_said)), of.filter(is_said))
    gone = said["_of"].filter(pc.not_equal(said["kind"], KEPT))  # the others were taken back
    says = pc.and_(is_said, pc.is_in(of, gone.combine_chunks())).combine_chunks().cast(pa.int64())
    # a removal is of what was entered with its counter, or without one, too: see `names`
    counter = pc.fill_null(rows["counter"], 0)
    about = pa.table([key, counter, says], names=["key", "counter", "says"])
    order = pc.sort_indices(about, [(name, "ascending") for name in about.column_names])
    number = pc.cumulative_sum(says.take(order)).take(pc.sort_indices(order))
    return pc.if_else(is_said.combine_chunks(), 0, number)  # of removals the order is as before


def _lowest(
    name: str, found: pa.Table, of: pa.ChunkedArray, rows: pa.Table, about: pa.ChunkedArray
) -> pa.Table:
    """Return *found* with the lowest *name*, a time, of the *rows*, if any, *about* the same."""
    negated = rows.select(["time"]).append_column("_about", about)
    negated = negated.append_column("_first", pc.negate(rows[name]))
    earliest = _best(negated, about, ["_first"])
    at = pc.index_in(of, earliest["_about"].combine_chunks())
    times = pc.negate(earliest["_first"].combine_chunks()).take(at)
    return replaced(found, name, pc.coalesce(times, found[name]))


def _with_records(about: pa.ChunkedArray, rows: pa.Table) -> pa.ChunkedArray:
    count = pc.fill_null(rows["records"].cast(pa.string()), "")
    return pc.binary_join_element_wise(about, count, " ")


def names(acceptance: Entry, run: str | None, counter: int | None) -> bool:
    """Whether a row about a removal names one of this run and counter about the same.

    What a run stores again after that, under the same name, has not been accepted.
    """
    return acceptance.covers == (run or "") and (counter or 0) <= (acceptance.counter or 0)


def _merged_topics(rows: pa.Table) -> pa.Table:
    """The latest row about each topic, and about each sink's group, counts."""
    # a topic's partitions never become fewer, nor is what was compacted whole, whichever row counts
    names = ("kind", "topic", "cluster_id", "topic_id", "group")
    about = pc.binary_join_element_wise(*(pc.fill_null(rows[name], "") for name in names), " ")
    by_name = rows.append_column("_about", about)
    found = latest(by_name, about).sort_by("_about")
    has_id = pc.not_equal(found["topic_id"], "")
    for name in ("partitions", "compacted"):
        ranked = by_name.append_column("_rank", by_name[name].cast(pa.int32()))
        most = _best(ranked, about, ["_rank"]).sort_by("_about")[name]
        most = pc.if_else(has_id, most, found[name]) if name == "partitions" else most
        found = replaced(found, name, most)
    return found.drop_columns("_about")


_LATER: Final = ["counter", "run"]
"""What follows another row comes before it."""


def latest(rows: pa.Table, about: pa.ChunkedArray) -> pa.Table:
    """Return of the rows *about* each thing the latest."""
    return _best(rows, about, _LATER)


def _best(rows: pa.Table, about: pa.ChunkedArray, order: list[str]) -> pa.Table:
    """Return of the rows *about* each thing the highest by the columns of *order*."""
    if not len(rows):
        return rows
    ordered = [*order, "time"]  # of rows alike in all else any counts, but always the same one
    keys = [(name, "descending") for name in ordered]  # nulls come last
    ranked = pc.sort_indices(rows.select(ordered), keys)
    # `Table.group_by` would do the rest, but loads two libraries that nothing else needs: codes
    # are given in order, so each new one is higher than all before it
    highest = pc.cumulative_max(about.combine_chunks().take(ranked).dictionary_encode().indices)
    is_new = pa.concat_arrays([pa.array([True]), pc.not_equal(highest[1:], highest[:-1])])
    return rows.take(ranked.filter(is_new))


OBJECTS: Final = StreamForm.of(
    Entry, _merged_objects, pa.field("partition", pa.int32(), nullable=False)
)
"""A topic's stream: rows of `Entry`."""

TOPICS: Final = StreamForm.of(
    TopicEntry,
    _merged_topics,
    pa.field("cluster_id", pa.string()),
    pa.field("topic_id", pa.string()),
    pa.field("partitions", pa.int32()),
    pa.field("config", pa.map_(pa.string(), pa.string())),
    pa.field("names", pa.list_(pa.string())),
)
"""The stream about all topics: rows of `TopicEntry`."""


@dataclass(frozen=True, slots=True)
class PartitionLedger:
    """What is known of one partition.

    Attributes:
        objects: Every object ever stored, by key.
        gaps: Offsets that had expired before they were backed up.
        accepted: What an operator declared to be removed on purpose.
        skipped: Offsets of records that were left out because they do not fit the layout.
        passed: Offsets without anything to store, such as markers of transactions.
        marked: What says of an object that it is to be deleted, by key.  Such an object counts as
            gone on purpose, though it may still be there.
        undone: Objects of which that was taken back.
    """

    objects: dict[str, Entry] = field(default_factory=dict)
    gaps: list[Span] = field(default_factory=list)
    accepted: list[Entry] = field(default_factory=list)
    skipped: list[Span] = field(default_factory=list)
    passed: list[Span] = field(default_factory=list)
    marked: dict[str, Entry] = field(default_factory=dict)
    undone: set[str] = field(default_factory=set)

    def before(self, moment_ms: int) -> "PartitionLedger":
        """Return what it knows of the objects that had been stored before a time.

        Those of one cut count together: until the last of them is stored, none of them is entered.
        One of which that is not known stays.
        """
        known = {key: one.was_stored(moment_ms) for key, one in self.objects.items()}
        late = {self.objects[key].cut for key, was in known.items() if was is False} - {None}
        kept = {
            key: one
            for key, one in self.objects.items()
            if known[key] is None or (known[key] and one.cut not in late)
        }
        return replace(self, objects=kept)

    def within(self, begin: Span) -> "PartitionLedger":
        """Return what it knows of the objects that begin at these offsets."""
        kept = {key: one for key, one in self.objects.items() if one.first in begin}
        return replace(self, objects=kept)

    def missing(self, present: Container[str]) -> list[Entry]:
        """Return what was stored and is not there, nor accepted as removed, in offset order.

        An object whose offsets were backed up again, under other keys, is not missing.  *present*
        are the keys of a listing that was made after the ledger was read.
        """
        is_accepted = self._acceptance()
        lacking = [entry for entry in self.absent(present) if not is_accepted(entry)]
        return sorted(lacking, key=lambda entry: (entry.first, entry.key or ""))

    def absent(self, present: Container[str]) -> list[Entry]:
        """Return what was stored and is not there, unless its offsets were backed up again."""
        gone = [entry for key, entry in self.objects.items() if key not in present]
        dense: defaultdict[str | None, list[Span]] = defaultdict(list)  # each offset has a record
        for key, one in self.objects.items() if gone else ():
            if key in present and one.last is not None and one.records == len(one.span):
                dense[one.view].append(one.span)
        there = {view: joined(spans) for view, spans in dense.items()}
        return [entry for entry in gone if not _is_within(entry, there.get(entry.view, ()))]

    def removed(self, present: Container[str]) -> list[Entry]:
        """Return the objects that are not there and were removed on purpose, in offset order."""
        if not self.accepted and not self.marked:
            return []
        is_accepted = self._acceptance()
        gone = (entry for key, entry in self.objects.items() if key not in present)
        return sorted(filter(is_accepted, gone), key=lambda entry: (entry.first, entry.key or ""))

    def _acceptance(self) -> Callable[[Entry], bool]:
        """Return what tells whether an object that is gone was removed on purpose."""
        agreed = defaultdict(list)
        for one in self.accepted:
            agreed[one.key].append(one)

        def is_accepted(entry: Entry) -> bool:
            said = agreed.get(entry.key, ())
            return entry.key in self.marked or any(
                names(one, entry.run, entry.counter) for one in said
            )

        return is_accepted

    def reached(self) -> int | None:
        """Return the offset before which everything was stored once, or had expired.

        Objects that were there and have gone since count too.  None where nothing is known.
        """
        ends = [end for one in self.objects.values() if (end := one.next_offset) is not None]
        ends += [span.end_offset for span in (*self.gaps, *self.passed)]
        return max(ends, default=None)


NOTHING: Final = PartitionLedger()
"""What is known of a partition that is not in the ledger; never added to."""


def _said_last(said: Iterable[Entry], objects: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return what says last of *objects*, by key, that they are to go, or that they stay."""
    # once that is done, or taken back, a later row about the same object says so
    newest = {(one.key, one.covers): one for one in sorted(said, key=order)}
    return {
        key: one
        for (key, _), one in newest.items()
        if key is not None
        and (row := objects.get(key)) is not None
        and names(one, row.run, row.counter)
    }


def _is_within(entry: Entry, spans: Sequence[Span]) -> bool:
    """Whether one of *spans* holds all offsets of an object."""
    return entry.last is not None and any(
        span.start_offset <= entry.first and entry.span.end_offset <= span.end_offset
        for span in spans
    )


@dataclass(frozen=True, slots=True)
class TopicLedger:
    """What is known of one topic; *unknown* rows are of kinds that this version does not know."""

    partitions: Mapping[int, PartitionLedger] = field(default_factory=dict)
    damage: Sequence[Issue] = ()
    unknown: int = 0

    @classmethod
    def of(cls, entries: Iterable[Entry], damage: Sequence[Issue] = ()) -> "TopicLedger":
        """Return the ledger that *entries*, one about each thing, make up."""
        found: defaultdict[int, PartitionLedger] = defaultdict(PartitionLedger)
        said: defaultdict[int, list[Entry]] = defaultdict(list)
        unknown = 0
        for entry in entries:
            at = found[entry.partition]
            if entry.kind == GAP:
                at.gaps.append(entry.span)
            elif entry.kind in (ACCEPTED, REMOVED, KEPT):
                said[entry.partition].append(entry)
                if entry.kind == ACCEPTED:
                    at.accepted.append(entry)
            elif entry.kind == PASSED:
                at.passed.append(entry.span)
            elif entry.kind == SKIPPED:
                at.skipped.append(entry.span)
            elif entry.kind == OBJECT and entry.key is not None:
                at.objects[entry.key] = entry
            else:
                unknown += 1
        for number, about in said.items():
            at = found[number]
            last = _said_last(about, at.objects)
            at.marked.update((key, one) for key, one in last.items() if one.kind == REMOVED)
            at.undone.update(key for key, one in last.items() if one.kind == KEPT)
        for one in found.values():
            one.gaps.sort()
            one.skipped[:] = joined(one.skipped)
        return cls(dict(found), damage, unknown)

    @property
    def has_objects(self) -> bool:
        """Whether it knows of any object, wherever it is now."""
        return any(one.objects for one in self.partitions.values())

    def partition(self, number: int) -> PartitionLedger:
        """Return what is known of a partition."""
        return self.partitions.get(number, NOTHING)

    def before(self, moment_ms: int) -> "TopicLedger":
        """Return what it knows of the objects that had been stored before a time."""
        then = {number: one.before(moment_ms) for number, one in self.partitions.items()}
        return replace(self, partitions=then)

    def within(self, begin: Mapping[int, Span]) -> "TopicLedger":
        """Return what it knows of the objects that begin at these offsets of each partition."""
        nothing = Span(0, 0)
        kept = {n: one.within(begin.get(n, nothing)) for n, one in self.partitions.items()}
        return replace(self, partitions=kept)


def ranged(
    kind: str,
    where: TopicPartition,
    span: Span,
    run: str,
    time_ms: int,
    *,
    records: int | None = None,
) -> Entry:
    """Return the row of offsets that are in no object: `GAP`, `PASSED`, or `SKIPPED` *records*."""
    last = span.end_offset - 1
    return Entry(
        kind, where.partition, span.start_offset, last, records=records, run=run, time=time_ms
    )


def of_object(kind: str, entry: Entry, run: str, time_ms: int) -> Entry:
    """Return a row about the object that *entry* names, and no later one under its key.

    It is `ACCEPTED` or `KEPT` by that host's clock, `REMOVED` by the store's.
    """
    return Entry(
        kind, entry.partition, entry.first, entry.last, entry.key, run=run, time=time_ms,
        covers=entry.run or "",
    )  # fmt: skip
